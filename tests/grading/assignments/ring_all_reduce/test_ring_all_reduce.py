"""The ring's checks beside what wrong.toml tells of them: programs without an end, rehearsals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from courses import Assignment
from programs import held_to_rows
from rows import HandedIn, checks, rows

from dlviz.grading.assignments.ring_all_reduce import checks as ring_checks
from dlviz.grading.assignments.ring_all_reduce.run import attempt, contributions
from dlviz.grading.harness import feedback, sandbox
from dlviz.viz import decode, message_frames
from dlviz.widgets.source import sources

globals().update(held_to_rows("ring_all_reduce"))
RING = Assignment("ring_all_reduce")
ROWS = rows(RING.name)


def handed_in(what):
    """Both functions of a row."""
    (row,) = (row for row in ROWS if row.what == what)
    return row.programs("sums")


def begun_with(lines):
    """Both functions, the first begun with these lines."""
    change = [["    n = comm.size", f"{lines}\n    n = comm.size"]]
    return HandedIn(RING.name, lines, {"reduce_scatter": change}, {}).programs("sums")


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", [row for row in ROWS if not row.loses], ids=str)
@pytest.mark.parametrize("check", checks(RING.name))
def test_a_right_program_is_right_at_every_size(row, check):
    report = row.check(check).grade(*row.programs(check), sizes=range(1, 10))
    assert report.failure is None and report.points == 3, str(report)


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_on_more_ranks(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    endless = begun_with("    while comm.size:\n        pass")
    report = ring_checks.check_bytes.grade(*endless)
    assert "the run had not ended after 1 s" in str(report) and "cell.py:" in str(report)
    assert "which loop around that line never stops" in " ".join(str(report).split())
    assert len(report.failed) == 1 and report.points == 0
    asleep = ring_checks.check_no_hang.grade(*begun_with("    import time\n    time.sleep(60)"))
    assert re.search(r"cell.py:\d+: time.sleep\(60\)", str(asleep))
    rescued = ring_checks.check_all_gather.grade(*endless, sizes=[2])
    assert rescued.points == 3 and "the run had not ended after 1 s" in str(rescued)


@pytest.mark.slow
def test_a_program_that_grows_is_ended_by_half_a_gigabyte():
    rows = "    rows = []\n    while comm.size:\n        rows.append(torch.empty(2**20))"
    report = ring_checks.check_bytes.grade(*begun_with(rows), sizes=[2])
    assert re.search("can't allocate memory|MemoryError", str(report)), str(report)
    assert "something grows without limit" in str(report)


def test_whose_numbers_a_cell_holds_is_read_from_fractions():
    starts = np.random.default_rng(0).uniform(1.0, 9.0, (5, 200))
    counts = np.random.default_rng(1).integers(0, 3, (200, 5))
    values = (counts * starts.T).sum(axis=1)
    assert (contributions(values, starts) == counts).all()
    assert (contributions(values * (1 + 1e-9), starts) == -1).all()
    assert (contributions(np.full(200, np.nan), starts) == -1).all()


@pytest.mark.slow
def test_no_rank_is_given_what_another_began_with():
    seen, again = (attempt(3, 6, handed_in("nothing at all")) for _ in range(2))
    starts = [own.start for own in [*seen.left, *again.left]]
    assert len({tuple(start) for start in starts}) == 6
    assert (starts[0] != np.round(starts[0])).all() and starts[0].dtype == np.float64


@pytest.mark.slow
def test_the_wrong_reduce_scatter_goes_wrong_in_the_round_that_its_answer_names():
    run = ring_checks.rehearse_broken()
    assert repr(run) == "12 messages; every rank returned; 0 of 4 ranks hold a whole chunk"
    assert sources(run.trace) == {}, "the picture alone tells"
    held = [
        np.array([decode(run.trace.buffers[each.snapshots[r]]["array"], 4) for r in range(4)])
        for each in message_frames(run.trace)
    ]  # by round: (rank, cell, contributions)
    assert [counts.max() for counts in held] == [1, 1, 2, 3]
    assert (held[2][1, :3] == [2, 1, 0, 0]).all(), "rank 1's chunk 0 holds rank 0 twice"
    (answer,) = (c.source for c in RING.source.cells if "In which round?</summary>" in c.source)
    assert "</summary>In round 2, on rank 1: it adds the number of rank 0 a second time" in answer


@pytest.mark.slow
def test_a_rehearsal_shows_the_students_own_program_to_where_it_came():
    rehearse, solution = ring_checks.rehearse, handed_in("the solution")
    done = rehearse(*solution, ranks=4)
    assert repr(done) == "24 messages; every rank returned; 4 of 4 ranks hold all chunks whole"
    assert done.right
    frames = message_frames(done.trace)
    assert [len(frame.messages) for frame in frames] == [0] + 6 * [4]
    counts = [decode(done.trace.buffers[frames[-1].snapshots[r]]["array"], 4) for r in range(4)]
    assert all((each == 1).all() for each in counts)
    assert [own["label"] for own in sources(done.trace).values()] == ["cell.py"]

    half = rehearse(solution[0], ranks=3)
    assert repr(half) == "6 messages; every rank returned; 3 of 3 ranks hold a whole chunk"
    assert half.right, "its result is to be compared"
    astray = handed_in("adds to the chunk that it has just sent")
    wrong = rehearse(astray[0], ranks=3)
    assert "0 of 3 ranks hold a whole chunk" in repr(wrong) and not wrong.right
    wrong = rehearse(*astray, ranks=2)
    assert "0 of 2 ranks hold all chunks whole" in repr(wrong) and not wrong.right
    everything = handed_in("everything to everybody")
    assert not rehearse(everything[0], ranks=3).right
    costly = rehearse(*everything, ranks=3)
    assert "3 of 3 ranks" in repr(costly) and not costly.right, "its bytes are not to be compared"

    stuck = rehearse(handed_in("`send` before `recv` on every rank")[0])
    assert len(stuck.trace.messages) == 4 and not stuck.right
    assert repr(stuck).startswith("4 messages; deadlock: no rank can go on\n  rank 0 waits in send")
    assert "Which call starts a send and returns immediately?" in " ".join(repr(stuck).split())
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    empty = rehearse(handed_in("not written")[0], ranks=2)
    assert len(empty.trace.messages) == 0 and "still to be written" in repr(empty)
