"""The locked worker and the parameter server: what the checks rest on, rehearsals, and runs that do
not end."""

from __future__ import annotations

import math
import re
import time
from functools import partial

import numpy as np
import pytest
import torch
from courses import Assignment
from programs import held_to_rows
from rows import checks, rows

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
from dlviz.grading.harness import sandbox
from dlviz.metrics import staleness

globals().update(held_to_rows("parameter_server"))
ROWS = {row.what: row for row in rows("parameter_server")}
RIGHT = [row for row in ROWS.values() if not row.loses]
WORK, SERVE = ("lock", "parallel"), ("pushes", "weights", "bound", "order", "no_hang")
INF, TURNS = math.inf, 1  # worker 1 pushes only when no other may
ALONE, PAIR = (1, 2), (2, 3)  # ranks, steps


def work(what):
    return ROWS[what].programs("lock")[0]


def serve(what):
    return ROWS[what].programs("pushes")[0]


def grade(check, given, sizes=()):
    return getattr(parameter_server_checks, f"check_{check}").grade(given, sizes=sizes)


def message(report):
    return " ".join(str(report).split())


@pytest.mark.slow
def test_checks_print_and_return_the_points_of_their_cells(capsys):
    cells, right = Assignment("parameter_server").points(), ROWS["the solution"]
    points = {name: right.check(name).points for name in checks("parameter_server")}
    assert [*points] == [*WORK, *SERVE] and sum(points.values()) == 18
    for name, most in points.items():
        assert cells[f"check_{name}"] == most
        sizes = right.at[name]
        if name in ("lock", "no_hang"):  # one of each program
            assert right.check(name)(*right.programs(name), sizes=sizes) == most
    assert capsys.readouterr().out.count("Right, ") == 2


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", RIGHT, ids=str)
@pytest.mark.parametrize("check", checks("parameter_server"))
def test_a_right_program_is_right_at_every_size(row, check):
    sizes = [(ranks, steps) for ranks in range(2, 6) for steps in (1, 4)]
    if check in SERVE:
        last = int(check in ("pushes", "bound", "order"))  # the worker that pushes last, or none
        bounds = (INF,) if check in ("pushes", "order") else (0, 1, 3, INF)
        sizes = [(n, fewest, s, last) for n in range(1, 5) for fewest in (1, 3) for s in bounds]
    report = grade(check, *row.programs(check), sizes)
    assert report.failure is None and report.points == report.most, str(report)


@pytest.mark.slow
def test_each_size_has_its_share_of_the_points_and_one_rank_alone_has_none():
    given = work("reads under the lock, and writes its copy back")
    report = grade("lock", given, [PAIR, ALONE])
    assert report.points == 0 and len(report.passed) == 1
    given = serve("a worker that has pushed all still counts as the slowest")
    report = grade("weights", given, [(3, 3, 1), (2, 1, 5), (1, 3, 1)])
    assert report.points == 2 and "right at workers x bound = 2x5 and 1x1" in message(report)


@pytest.mark.slow
def test_a_worker_that_is_never_answered_is_told_of_long_before_the_time_is_up():
    begun = time.monotonic()
    report = grade("no_hang", serve("no answer to the last push"), [(3, 1, INF)])
    assert time.monotonic() - begun < sandbox.limit() and "nobody can go on" in message(report)


def never_ends(shared, *_):
    while True:
        time.sleep(0.01)


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    report = grade("parallel", never_ends)
    assert re.search(r"not ended after 1 s rank 0 is at test_parameter_s\w+.py:", message(report))
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
    ran = served(serve("the solution"), size)
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
    ran = worked(work("the solution"), Team(3, 2))
    assert all(torch.equal(own.asked[0], ran.start) for own in ran.left)


@pytest.mark.slow
def test_a_rehearsal_shows_the_steps_under_the_lock():
    done = parameter_server_checks.rehearse(work("the solution"))
    words = r"4 ranks; 12 updates in \d+ ms; the lock is not held while .* are those of one process"
    assert done.right and re.match(words, message(done)), repr(done)
    spans = done.trace.spans
    updates = spans[spans.kind == "update"]
    assert len(updates) == 12 and np.allclose(updates.end - updates.start, 0.002)
    assert "collective" not in {*spans.kind} and "wait" in {*spans.name[spans.kind == "lock"]}
    held = parameter_server_checks.rehearse(work("the lock around the whole step"), ranks=2)
    assert "the lock is held while" in message(held) and not held.right
    empty = parameter_server_checks.rehearse(work("hands in the cells as they are"), ranks=2)
    assert "still to be written" in repr(empty) and not empty.right


@pytest.mark.slow
def test_a_rehearsal_shows_the_server_and_how_stale_its_gradients_are():
    right = serve("the solution")
    done = parameter_server_checks.rehearse_server(right, workers=4, bound=INF, slow=1)
    assert done.right and "4 workers, no bound; 24 pushes in" in message(done), repr(done)
    stale = staleness(done.trace)
    last = sum(stale["rank"][::-1].tolist().index(worker) for worker in range(1, 5))
    assert len(stale) == 24 and stale.staleness.sum() + last == 3 * 24

    slow = parameter_server_checks.rehearse_server(right, pushes=3)
    assert (
        slow.right and "bound 1; 9 pushes" in message(slow) and "at most 1 ahead" in message(slow)
    )
    spans = slow.trace.spans
    taken = {rank: (spans.rank == rank) & (spans.kind == "backward") for rank in (1, 2)}
    for rank, seconds in ((1, 0.045), (2, 0.015)):
        assert np.allclose((spans.end - spans.start)[taken[rank]], seconds)

    free = parameter_server_checks.rehearse_server(serve("no bound"), pushes=3)
    assert "those of one process" in message(free) and not free.right
    stuck = parameter_server_checks.rehearse_server(serve("no answer to the last push"), pushes=2)
    assert len(stuck.trace.spans) and "nobody can go on" in repr(stuck) and not stuck.right
