"""The checks of 1F1B beside what wrong.toml tells of them: programs without an end, training that
goes wrong, rehearsals."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from courses import Assignment
from programs import held_to_rows
from rows import HandedIn, rows

from dlviz import metrics
from dlviz.grading.assignments.one_f_one_b import checks as pipeline_checks
from dlviz.grading.assignments.one_f_one_b.run import ScheduleSize, rows_of
from dlviz.grading.harness import feedback, sandbox
from dlviz.schedules import make

globals().update(held_to_rows("one_f_one_b"))
PIPELINE = Assignment("one_f_one_b")
ROWS = {row.what: row for row in rows(PIPELINE.name)}
check_bubble, check_order = pipeline_checks.check_bubble, pipeline_checks.check_order
check_training = pipeline_checks.check_training


def plain(what):
    """1F1B of a row, or begun with these lines."""
    if what in ROWS:
        return ROWS[what].programs("order")[0]
    change = [["    warmup =", f"{what}\n    warmup ="]]
    return HandedIn(PIPELINE.name, what, {"one_f_one_b": change}, {}).programs("order")[0]


def chunked(what):
    return ROWS[what].programs("order_chunked")[0]


def test_the_solutions_give_the_rows_of_the_zoo():
    sizes = [ScheduleSize(p, m) for p in (1, 2, 3, 5, 8) for m in (1, 2, p, 2 * p + 1)]
    for size, tried in rows_of([plain("the solution")], sizes).items():
        assert tried.rows == make("1f1b", size.ranks, size.microbatches).actions
    sizes = [ScheduleSize(p, k * p, v) for p in (2, 3, 5, 8) for k in (1, 3) for v in (1, 2, 3)]
    for size, tried in rows_of([chunked("the solution")], sizes).items():
        assert tried.rows == make("interleaved", size.ranks, size.microbatches, size.chunks).actions


@pytest.mark.parametrize(
    ("what", "end"),
    [("all forwards first (GPipe)", ""), ("interleaved, all forwards first", "_chunked")],
)
def test_gpipes_order_gets_at_most_half_of_the_points(what, end):
    row, points, most = ROWS[what], {}, 0
    for name in ("order", "in_flight", "no_deadlock", "bubble"):
        check = row.check(name + end)
        points[name] = check.grade(*row.programs(name + end)).points
        most += check.points
    assert points == {"order": 0, "in_flight": 0, "no_deadlock": 1, "bubble": 1}
    worth = check_training.points
    assert sum(points.values()) + worth <= (most + worth) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        pytest.param(
            "    done = 0\n    while done < microbatches:\n        action = f'F{done}'",
            "[wa]",
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            "    import time\n    while True:\n        try:\n            time.sleep(0.001)\n"
            "        except:\n            continue",
            "",
            marks=pytest.mark.sweep,
        ),
        ("    import time\n    time.sleep(60)", r"time\.sleep\(60\)"),
    ],
    ids=["turns for ever", "swallows every exception", "sleeps"],
)
def test_a_program_that_never_ends_is_told_when_the_time_is_up(lines, shown, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    report = check_order.grade(plain(lines))
    said = " ".join(str(report).split())
    assert re.search(rf"still running when the time was up, at cell.py:\d+: {shown}", said), said
    assert "which loop around that line never stops" in said and report.points == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        "    from itertools import cycle\n    list(cycle('FB'))",
        pytest.param(
            "    row = []\n    while len(row) >= 0:\n        row.append('F0')",
            marks=pytest.mark.sweep,
        ),
    ],
    ids=["in C", "in Python"],
)
def test_a_list_that_grows_for_ever_is_ended_by_half_a_gigabyte_or_the_time(lines):
    said = " ".join(str(check_bubble.grade(plain(lines))).split())
    assert re.search("raised MemoryError.*something grows without limit|when the time was up", said)


def test_what_the_program_prints_is_shown_and_leaves_no_profile_function(capsys):
    before = sys.getprofile()
    check_bubble.grade(plain("    print('rank', rank)"), sizes=[(2, 2)])
    assert capsys.readouterr().out == "rank 0\nrank 1\n" and sys.getprofile() is before


@pytest.mark.slow
def test_training_that_is_not_that_of_one_process_is_told(monkeypatch):
    launch = pipeline_checks.launch

    def spoiled_by(change):
        def spoiled(*args, **kwargs):
            run = launch(*args, **kwargs)
            change(run.results)
            return run

        return spoiled

    for change, said in (
        (
            lambda results: results[1][1][1][0].mul_(1 + 1e-6),
            "the gradients of stage 1 are not those of one process",
        ),
        (
            lambda results: results[0][0].__setitem__(2, 0.5),
            r"rank 0 has the loss 0.5 in step 2, not 0\.\d+",
        ),
    ):
        monkeypatch.setattr(pipeline_checks, "launch", spoiled_by(change))
        failure = check_training.grade(plain("the solution"), sizes=[(2, 2)]).failure
        assert re.search(said, failure.seen)


def test_a_rehearsal_simulates_the_students_own_schedule():
    rehearse = pipeline_checks.rehearse
    done = rehearse(plain("the solution"), ranks=4, microbatches=8)
    assert repr(done) == "64 actions; bubble ratio 0.375; in flight at most 4, 3, 2, 1"
    assert done.right and not rehearse(plain("all forwards first (GPipe)")).right
    assert not rehearse(plain("warm-up of `ranks - rank`")).right
    assert len(done.trace.spans) == 64 and done.trace.meta["clock"] == "simulated"
    assert np.isclose(metrics.makespan(done.trace), (8 + 3) * 0.015)

    done = rehearse(chunked("the solution"), ranks=4, microbatches=8, chunks=2)
    assert done.right
    assert repr(done) == "128 actions; bubble ratio 0.1875; in flight at most 11, 9, 7, 5"
    assert np.isclose(metrics.makespan(done.trace), 8 * 0.015 * 1.1875)


def test_a_rehearsal_shows_a_schedule_that_stops_as_far_as_it_goes():
    rehearse = pipeline_checks.rehearse
    stuck = rehearse(plain("the ranks in reverse order"))
    spans = [getattr(stuck.trace.spans, name).tolist() for name in ("rank", "kind", "microbatch")]
    ran = {(rank, kind[0], i) for rank, kind, i in zip(*spans, strict=True)}
    assert ran == {(0, "f", 0), (1, "f", 0), (2, "f", 0), (3, "f", 0)}
    assert repr(stuck).startswith("4 of 64 actions can run. On 4 ranks with 8 microbatches, rank 0")
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    twice = rehearse(plain("two loops overlap"))
    assert repr(twice).startswith("58 of 84 actions can run.") and len(twice.trace.spans) == 58
    whole = rehearse(plain("no backwards after the last forward"))
    assert repr(whole).startswith("58 of 58 actions can run.") and len(whole.trace.spans) == 58

    for what in ("not written", "never stops yielding", "yields pairs"):
        empty = rehearse(plain(what))
        assert len(empty.trace.spans) == 0 and empty.trace.ranks == [*range(4)]
        assert "\nHint: " in repr(empty)
    nowhere = rehearse(chunked("interleaved, stages past the end"), chunks=2)
    assert len(nowhere.trace.spans) == 0 and "0 of 128 actions can run" in repr(nowhere)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of a busy machine that comes late
def test_the_students_schedule_trains_on_paced_ranks_for_all_to_see():
    done = pipeline_checks.train(chunked("the solution"), ranks=2, microbatches=4, chunks=2)
    assert done.trace.meta["clock"] == "paced"
    assert (done.trace.messages.nbytes > 8).sum() == 24, "and one that tells the loss"
    message = r"2 processes; loss \d\.\d+; bubble ratio measured \d\.\d+, simulated 0\.125"
    assert re.fullmatch(message, done.summary)
    work = {"forward", "backward"}
    assert sum(kind in work for kind in done.trace.spans.kind.tolist()) == 32

    stuck = pipeline_checks.train(plain("the ranks in reverse order"))
    assert stuck.trace.meta["clock"] == "simulated"
    assert repr(stuck).startswith("No rank was started. 4 of 64 actions can run.")
