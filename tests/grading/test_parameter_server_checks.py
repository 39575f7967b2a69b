"""The checks of a locked worker and of a parameter server: right programs get all points, each
wrong one loses those it should and gets a hint that fits."""

from __future__ import annotations

import math
import re
import time
from functools import cache, partial

import numpy as np
import parameter_server_programs as program
import pytest
import torch
from courses import Assignment
from judging import judged

from dlviz.grading.assignments.parameter_server import checks as parameter_server_checks
from dlviz.grading.assignments.parameter_server import run as parameter_server_run
from dlviz.grading.assignments.parameter_server.rules import Clocks
from dlviz.grading.assignments.parameter_server.run import (
    RATE,
    Service,
    Team,
    events,
    gradient_of,
    served,
    worked,
)
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.metrics import staleness

WORK = {"lock": 4, "parallel": 2}
SERVE = {"pushes": 2, "weights": 3, "bound": 4, "order": 2, "no_hang": 1}
POINTS = WORK | SERVE
INF, TURNS = math.inf, 1  # worker 1 pushes only when no other may
ALONE, PAIR, TEAM = (1, 2), (2, 3), (3, 2)  # ranks, steps
SIZES = {  # one of each check
    "lock": TEAM,
    "parallel": PAIR,
    "pushes": (3, 2, INF, TURNS),
    "weights": (3, 2, 0),
    "bound": (3, 3, 2, TURNS),
    "order": (3, 2, INF, TURNS),
    "no_hang": (2, 4, 2),
}


solution = cache(partial(Assignment("parameter_server").solution, torch=torch, math=math))


def grade(check, given, sizes=()):
    return getattr(parameter_server_checks, f"check_{check}").grade(given, sizes=sizes)


def told(report):
    return " ".join(str(report).split())


# -- right programs --------------------------------------------------------------------------------

RIGHT = [
    *((given, check) for given in program.RIGHT_WORK for check in WORK),
    *((given, check) for given in program.RIGHT_SERVE for check in SERVE),
]
MAIN = [
    (program.one_hold_a_step, "lock"),
    (program.counts_what_is_left, "bound"),
    (program.by_class, "weights"),
]


@pytest.mark.slow
@pytest.mark.parametrize("check", POINTS)
def test_the_solution_gets_all_points(check, capsys):
    given = solution("work" if check in WORK else "serve")
    checking = getattr(parameter_server_checks, f"check_{check}")
    assert checking(given, sizes=[SIZES[check]]) == checking.points == POINTS[check]
    assert "Right, " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("given", "check"), MAIN)
def test_a_right_program_of_another_kind_gets_all_points(given, check):
    report = grade(check, given, [SIZES[check]])
    assert report.failure is None and report.points == POINTS[check], str(report)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize(("given", "check"), RIGHT)
def test_a_right_program_is_right_at_every_size(given, check):
    sizes = [(ranks, steps) for ranks in range(2, 6) for steps in (1, 4)]
    if check in SERVE:
        turns = check in ("pushes", "bound", "order")
        bounds = (INF,) if check in ("pushes", "order") else (0, 1, 3, INF)
        sizes = [(n, fewest, s, turns) for n in range(1, 5) for fewest in (1, 3) for s in bounds]
    report = grade(check, given, sizes)
    assert report.failure is None and report.points == POINTS[check], str(report)


# -- wrong ones ------------------------------------------------------------------------------------

STUCK = {"pushes", "weights", "bound", "order", "no_hang"}
WRONG = {  # a program, the checks that give less than all points, and what is said at which size
    program.holds_it_all: (
        {"parallel"},
        {("parallel", PAIR): "rank 0 holds the lock while it computes gradient 0 .* how many ran"},
    ),
    program.writes_back: (
        {"lock"},
        {("lock", PAIR): "step 0 rank . leaves the weights that it had read.*are overwritten. Of"},
    ),
    program.reads_without_the_lock: (
        {"lock"},
        {("lock", PAIR): "rank 0 asks for gradient 0 .*not read under the lock.* is it one .clone"},
    ),
    program.keeps_no_copy: (
        {"lock"},
        {("lock", ALONE): "not read under the lock .*Inside which `with` is the copy made, and is"},
    ),
    program.without_the_lock: (
        {*WORK},
        {("lock", PAIR): "not read under the lock .*shared.tensor has no numbers here then"},
    ),
    program.updates_without_the_lock: (
        {*WORK},
        {("lock", PAIR): "computed 3 gradients and made 0 updates .*while this rank did not hold"},
    ),
    program.binds_a_new_tensor: (
        {*WORK},
        {("parallel", PAIR): "the weights have not changed .*a new tensor on this rank.*by -= or"},
    ),
    program.reads_once: (
        {"lock"},
        {("lock", PAIR): "with other weights than were there .* is it made anew in each step"},
    ),
    program.copies_before_its_update: (
        {"lock"},
        {("lock", PAIR): "with other weights than were there .*after the rank's own update"},
    ),
    program.updates_twice: (
        {"lock"},
        {("lock", ALONE): "changed the weights without a new gradient .*in how many holds of"},
    ),
    program.takes_twice_as_much: (
        {"lock"},
        {("lock", ALONE): "moved by its gradient 2 times .*how often is lr times the gradient"},
    ),
    program.goes_uphill: (
        {"lock"},
        {("lock", ALONE): "moved the other way .*which sign does it have"},
    ),
    program.forgets_the_rate: (
        {"lock"},
        {("lock", ALONE): "moved by the whole gradient .*learning rate lr is not in it"},
    ),
    program.in_float32: (
        {"lock"},
        {("lock", ALONE): "the right weights with fewer digits .*which type has what is taken off"},
    ),
    program.acquires_the_lock: (
        {*WORK},
        {("lock", PAIR): "no attribute 'acquire'.*takes the lock and gives it up when its lines"},
    ),
    program.averages_with_its_copy: (
        {"lock"},
        {
            ("lock", TEAM): "moved by its gradient 0.5 times, with 0.5 of its copy .*the others' "
            "updates in it|moved by its gradient 0.5 times Expected: .*by what is it divided"
        },
    ),
    program.adds_up_its_gradients: (
        {"lock"},
        {("lock", PAIR): "1 times, and by those of earlier steps .*where does it begin anew"},
    ),
    program.changes_a_copy: (
        {*WORK},
        {("lock", PAIR): "made 0 updates .*left the shared tensor as it was. A copy .clone. may"},
    ),
    program.one_update_in_the_end: (
        {"lock"},
        {("lock", PAIR): "made 1 update .*gradients that are in no update, or several in one"},
    ),
    program.writes_the_part_alone: (
        {"lock"},
        {("lock", PAIR): "its gradient's part alone .*does not replace them"},
    ),
    program.lets_the_weights_decay: (
        {"lock"},
        {("lock", PAIR): "0.875 of the weights that are there, .*what else shrinks the weights"},
    ),
    program.one_step_less: (
        {"lock"},
        {("lock", PAIR): "rank 0 has computed 2 gradients .* 3 gradients, one a step"},
    ),
    program.locks_twice: (
        {*WORK},
        {("lock", PAIR): "holds this lock already.*stands inside another: a rank would wait for"},
    ),
    program.nothing: (
        {*POINTS},
        {
            ("parallel", PAIR): "rank 0 has computed 0 gradients .* Who calls it, how often",
            (
                "no_hang",
                (2, 4, 2),
            ): "has returned, and 11 pushes are still to come .*how many",
        },
    ),
    program.not_written: (
        {*POINTS},
        {
            ("lock", PAIR): "raised NotImplementedError, at .* still to be written",
            ("order", (2, 3, INF, TURNS)): "raised NotImplementedError, at .* still to be written",
        },
    ),
    program.OneTooFew: (
        {"weights", "bound", "no_hang"},
        {
            (
                "bound",
                (3, 3, 2, TURNS),
            ): "worker . .clock 2. (is|are) not answered.* by 2, exactly the"
        },
    ),
    program.OneTooMany: (
        {"bound"},
        {
            ("bound", (3, 3, 2, TURNS)): "answered at clock 3, while the slowest is at clock 0 .* "
            "held until the slowest is at clock 1 .* that is 3 ahead goes on, one that is 4 ahead "
            "is held. The bound is 2"
        },
    ),
    program.BoundOnItsOwnClock: (
        {"bound"},
        {
            ("bound", (2, 6, 1, TURNS)): "answered at clock 2, while the slowest is at clock 0 .*"
            "nobody is held, however far ahead: a worker that is 8 ahead is .* With whose clock"
        },
    ),
    program.BoundOnTheFastest: (
        {"bound"},
        {("bound", (3, 3, 1, TURNS)): "more than 1 behind the fastest is held, and the fastest"},
    ),
    program.NoBound: (
        {"bound"},
        {("bound", (3, 3, 0, TURNS)): "answered at clock 1, .* nobody is held, however far ah"},
    ),
    program.WaitsForAll: (
        {"pushes", "bound", "order", "no_hang"},
        {
            (
                "order",
                (3, 2, INF, TURNS),
            ): "worker . .clock 1. .* not answered.* the pushes of all"
        },
    ),
    program.WaitsForTheFinished: (
        {"weights", "bound", "no_hang"},
        {("weights", (3, 3, 1)): "a worker that has pushed its last gradient. Which workers' cloc"},
    ),
    program.HoldsTheFinished: (
        {"weights", "bound", "no_hang"},
        {
            ("no_hang", (2, 4, 0)): "is that of a worker that has pushed its last gradient. Which "
            "workers' clocks still grow|it starts no further iteration, so the bound does not"
        },
    ),
    program.AnswersOnlyWhoPushed: (
        {"weights", "bound", "no_hang"},
        {
            (
                "bound",
                (3, 3, 1, TURNS),
            ): "was held, rightly, until the slowest pushed. Who is looked at when a"
        },
    ),
    program.DropsThoseThatAreLate: (
        {"pushes"},
        {("pushes", (2, 3, INF, TURNS)): "update was called . times? for it .*some .* are dropped"},
    ),
    program.AppliesTwice: (
        {"pushes", "weights"},
        {
            (
                "pushes",
                (3, 2, INF, TURNS),
            ): "worker 1 has pushed 2 .* called 4 times .*more than on"
        },
    ),
    program.NeverApplies: (
        {"pushes", "weights"},
        {("weights", (1, 3, 1)): "update was called 0 times for it .* Who calls it"},
    ),
    program.AnswersBeforeItApplies: (
        {"weights"},
        {("weights", (2, 4, 2)): "weights after . update.*, its own not .*What comes first, the u"},
    ),
    program.AppliesWhenItAnswers: (
        {"weights"},
        {
            (
                "weights",
                (3, 2, 0),
            ): r"each gradient until then but that of worker . \(\w+( 1 of all)?"
            r"\) .* times.* is not in them, and another one is in its place: a push that is"
        },
    ),
    program.AnswersWithACopy: (
        {"weights"},
        {("weights", (3, 2, 0)): "held gets the weights as they are when it is answered. Were the"},
    ),
    program.AnswersWithTheGradient: (
        {"weights"},
        {("weights", (2, 4, 2)): "is its own gradient, and no weights .*answer to a push is the w"},
    ),
    program.TakesTheGradientOffToo: (
        {"weights"},
        {("weights", (2, 4, 2)): r"\(this\) 9 times .*Which other line changes the weights"},
    ),
    program.TurnsTheBoundIntoAnInt: (
        STUCK - {"bound"},
        {("order", (2, 3, INF, TURNS)): "OverflowError.*may be math.inf, which no int is"},
    ),
    program.CountsUpToTheBound: (
        STUCK - {"bound"},
        {("order", (2, 3, INF, TURNS)): "TypeError.*may be math.inf, which no int is and no range"},
    ),
    program.TakesTheFinishedOut: (
        STUCK,
        {
            ("order", (3, 2, INF, TURNS)): "worker 1 .clock 2. are not answered .*Has a line for "
            "those that are done taken it out of those that are looked at"
        },
    ),
    program.AnswersTheFinishedInTheEnd: (
        {"bound", "order", "no_hang"},
        {("order", (3, 2, INF, TURNS)): "has pushed its last gradient, and the bound does not hol"},
    ),
    program.InTurn: (
        STUCK,
        {
            (
                "order",
                (3, 2, INF, TURNS),
            ): "for a push of worker 1 and takes no other .*Which call"
        },
    ),
    program.WorkerOneFirst: (
        STUCK,
        {
            (
                "order",
                (2, 3, INF, TURNS),
            ): "for a push of worker 1 and takes no other .*Which call"
        },
    ),
    program.NeverLetsTheLastGoOn: (
        STUCK,
        {("no_hang", (1, 3, 0)): "has returned, and worker 1 .clock 3. is not answered.*the last "},
    ),
    program.ExpectsOneMore: (
        STUCK,
        {("no_hang", (1, 3, 0)): "waits for one more push, and all have been answered.*how many p"},
    ),
    program.AnswersTwice: (
        STUCK,
        {("weights", (2, 4, 2)): "server sends to worker ., which waits for no answer.*one answer"},
    ),
    program.NeverWaitsForItsAnswers: (
        {"no_hang"},
        {("no_hang", (1, 3, 0)): "the server never waited for the send at .*comm.isend at once"},
    ),
    program.NamesNobody: (
        STUCK,
        {("pushes", (2, 3, INF, TURNS)): r"there is no worker 0, at .*returns from whom the push"},
    ),
    program.ByTheLibrary: (
        STUCK,
        {("order", (2, 3, INF, TURNS)): r"ready-made code was called: dlviz.parallel.push_pull, p"},
    ),
    program.HidesItsErrors: (
        STUCK,
        {("weights", (2, 4, 2)): r"rank 0 met ValueError: .*, and went on .*an `except` of yours"},
    ),
}
MOST_LIKELY = {  # the others are for `make sweep` alone
    program.holds_it_all,
    program.acquires_the_lock,
    program.writes_back,
    program.reads_without_the_lock,
    program.keeps_no_copy,
    program.OneTooFew,
    program.OneTooMany,
    program.BoundOnItsOwnClock,
    program.WaitsForAll,
    program.DropsThoseThatAreLate,
    program.AppliesTwice,
    program.AnswersBeforeItApplies,
    program.AppliesWhenItAnswers,
    program.TurnsTheBoundIntoAnInt,
    program.TakesTheFinishedOut,
    program.WorkerOneFirst,
    program.NeverLetsTheLastGoOn,
}
TOLD = [
    pytest.param(given, *where, marks=[] if given in MOST_LIKELY else [pytest.mark.sweep])
    for given, (_, words) in WRONG.items()
    for where in words
]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "check", "size"), TOLD)
def test_a_wrong_program_is_told_what_fits(given, check, size):
    lost, words = WRONG[given]
    report = judged(getattr(parameter_server_checks, f"check_{check}"), [given], [size])
    assert check in lost and report.points == 0
    assert re.search(words[check, size], told(report)), told(report)
    lines = str(report).splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_program_loses_the_points_it_should(given):
    lost = WRONG[given][0]
    checks = POINTS if lost == {*POINTS} else WORK if lost <= {*WORK} else SERVE
    reports = {check: grade(check, given) for check in checks}
    said = {check: str(report) for check, report in reports.items()}
    assert {check for check in checks if reports[check].points < POINTS[check]} == lost, said


@pytest.mark.slow
def test_each_size_has_its_share_of_the_points_and_one_rank_alone_has_none():
    report = grade("lock", program.writes_back, [PAIR, ALONE])
    assert report.points == 0 and len(report.passed) == 1
    report = grade("weights", program.WaitsForTheFinished, [(3, 3, 1), (2, 1, 5), (1, 3, 1)])
    assert report.points == 2 and "right at workers x bound = 2x5 and 1x1" in told(report)


@pytest.mark.slow
def test_a_worker_that_is_never_answered_is_told_of_long_before_the_time_is_up():
    begun = time.monotonic()
    report = grade("no_hang", program.NeverLetsTheLastGoOn, [(3, 1, INF)])
    assert time.monotonic() - begun < alone.limit() and "nobody can go on" in told(report)


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    report = grade("parallel", program.never_ends)
    assert re.search(r"not ended after 1 s rank 0 is at parameter_server_p\w+.py:", told(report))
    assert len(report.failed) == 1 and report.points == 0


# -- what the checks rest on -----------------------------------------------------------------------


def replayed(start, examples, order):
    """The weights after pushes that come in this order and are answered at once."""
    weights, has, steps = start, dict.fromkeys(examples, start), dict.fromkeys(examples, 0)
    for worker in order:
        weights = weights - RATE * gradient_of(has[worker], examples[worker][steps[worker]])
        has[worker] = weights
        steps[worker] += 1
    return weights


def test_another_order_of_updates_gives_other_bits():
    drawn = partial(torch.randn, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    start, examples = drawn(20), {worker: [drawn(6, 9), drawn(6, 9)] for worker in (1, 2, 3)}
    first = replayed(start, examples, [1, 2, 3, 1, 2, 3])
    assert torch.equal(first, replayed(start, examples, [1, 2, 3, 1, 2, 3]))
    for other in ([2, 1, 3, 1, 2, 3], [1, 2, 3, 1, 3, 2], [1, 2, 3, 2, 1, 3]):
        assert not torch.equal(first, replayed(start, examples, other))


@pytest.mark.slow
def test_the_server_sees_the_pushes_in_the_order_that_was_drawn(monkeypatch):
    order = [3, 2, 3, 3, 2, 1]
    size = Service(3, 1, INF, TURNS, more=1)
    monkeypatch.setattr(parameter_server_run, "_turns", lambda size: order)
    ran = served(program.looks_at_all_that_are_held, size)
    assert [worker for what, worker in events(ran.trace) if what == "push"] == order
    examples = {worker: ran.left[worker].examples for worker in (1, 2, 3)}
    assert torch.equal(ran.left[1].got[-1], replayed(ran.start, examples, order))
    assert not torch.equal(examples[1][0], examples[2][0]), "each rank has its own"


@pytest.mark.parametrize("bound", [0, 1, 2, INF])
@pytest.mark.parametrize(("workers", "last"), [(2, 1), (2, 2), (3, 2), (4, 4)])
def test_turns_reach_the_bound_and_one_worker_pushes_only_when_no_other_may(workers, last, bound):
    size = Service(workers, 4, bound, last)
    clocks, most = Clocks(size.pushes, bound), 0.0
    for worker in parameter_server_run._turns(size):
        assert worker in clocks.going and clocks.free(worker)
        others = [each for each in clocks.going if each != last and clocks.free(each)]
        assert worker != last or not others
        clocks.push(worker)
        most = max(most, clocks.lead(worker) if worker in clocks.going else 0)
    assert not clocks.going
    assert most == bound + 1 or bound == INF


def test_in_rounds_each_worker_pushes_once_a_round_in_an_order_that_is_drawn():
    orders = [parameter_server_run._turns(Service(3, 2, 0)) for _ in range(40)]
    for order in orders:
        rounds = [order[:3], order[3:6], order[6:8], order[8:10], *([w] for w in order[10:])]
        going = [{1, 2, 3}] * 2 + [{2, 3}] * 3 + [{3}] * 3
        assert [{*each} for each in rounds[:4]] == going[:4] and sorted(order).count(3) == 8
    assert len({tuple(order[:3]) for order in orders}) > 2


@pytest.mark.slow
def test_all_ranks_have_read_before_one_writes_its_first_update():
    ran = worked(program.reads_then_updates, Team(3, 2))
    assert all(torch.equal(own.asked[0], ran.start) for own in ran.left)


@pytest.mark.slow
def test_a_rehearsal_shows_the_steps_under_the_lock():
    done = parameter_server_checks.rehearse(program.reads_then_updates)
    words = r"4 ranks; 12 updates in \d+ ms; the lock is not held while .* are those of one process"
    assert done.right and re.match(words, told(done)), repr(done)
    spans = done.trace.spans
    updates = spans[spans.kind == "update"]
    assert len(updates) == 12 and np.allclose(updates.end - updates.start, 0.002)
    assert "collective" not in {*spans.kind} and "wait" in {*spans.name[spans.kind == "lock"]}
    held = parameter_server_checks.rehearse(program.holds_it_all, ranks=2)
    assert "the lock is held while" in told(held) and not held.right
    empty = parameter_server_checks.rehearse(program.not_written, ranks=2)
    assert "still to be written" in repr(empty) and not empty.right


@pytest.mark.slow
def test_a_rehearsal_shows_the_server_and_how_stale_its_gradients_are():
    serve = program.looks_at_all_that_are_held
    done = parameter_server_checks.rehearse_server(serve, workers=4, bound=INF, slow=1)
    assert done.right and "4 workers, no bound; 24 pushes in" in told(done), repr(done)
    stale = staleness(done.trace)
    last = sum(stale["rank"][::-1].tolist().index(worker) for worker in range(1, 5))
    assert len(stale) == 24 and stale.staleness.sum() + last == 3 * 24

    slow = parameter_server_checks.rehearse_server(serve, pushes=3)
    assert slow.right and "bound 1; 9 pushes" in told(slow) and "at most 1 ahead" in told(slow)
    spans = slow.trace.spans
    taken = {rank: (spans.rank == rank) & (spans.kind == "backward") for rank in (1, 2)}
    for rank, seconds in ((1, 0.045), (2, 0.015)):
        assert np.allclose((spans.end - spans.start)[taken[rank]], seconds)

    free = parameter_server_checks.rehearse_server(program.NoBound, pushes=3)
    assert "those of one process" in told(free) and not free.right
    stuck = parameter_server_checks.rehearse_server(program.NeverLetsTheLastGoOn, pushes=2)
    assert len(stuck.trace.spans) and "nobody can go on" in repr(stuck) and not stuck.right
