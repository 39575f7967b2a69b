"""DDP's buckets: what the checks rest on, rehearsals, and runs that do not end."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from courses import Assignment
from programs import held_to_rows
from rows import HandedIn, checks, rows

from dlviz.grading.assignments.ddp import checks as ddp_checks
from dlviz.grading.assignments.ddp.run import Even, Shards, Unseen, attempt, bucket_bytes, cut
from dlviz.grading.harness import feedback, sandbox
from dlviz.metrics import overlap
from dlviz.parallel.data.buckets import fill_buckets

globals().update(held_to_rows("ddp"))
ROWS = {row.what: row for row in rows("ddp")}
RIGHT = [row for row in ROWS.values() if not row.loses]


def cutter(what):
    return ROWS[what].programs("buckets")[0]


def averager(what):
    return ROWS[what].programs("gradients")[0]


def changed(cell, check, *changes):
    return HandedIn("ddp", "changed", {cell: [*changes]}, {}).programs(check)[0]


def grade(check, given, sizes):
    return getattr(ddp_checks, f"check_{check}").grade(given, sizes=sizes)


def message(report):
    return " ".join(str(report).split())


@pytest.mark.slow
def test_checks_print_and_return_the_points_of_their_cells(capsys):
    points = Assignment("ddp").points()
    each = {f"check_{name}": ROWS["the solution"].check(name) for name in checks("ddp")}
    assert {name: check.points for name, check in each.items()}.items() <= points.items()
    assert sum(check.points for check in each.values()) == 18
    sizes = [(3, 7), (2, 5, 1)]
    assert ddp_checks.check_gradients(averager("the solution"), sizes=sizes) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Right, .* at ranks x examples = 3x7 and 2x5 \(a layer unused on some", said)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", RIGHT, ids=str)
@pytest.mark.parametrize("check", checks("ddp")[1:])
def test_a_right_program_is_right_at_every_size(row, check):
    sizes = [size for n in range(2, 6) for size in ((n, 2 * n + 1), (n, 2 * n, 1), (n, n, 2))]
    if check in ("bytes", "overlap"):
        sizes = [size for size in sizes if len(size) == 2]
    report = grade(check, *row.programs(check), sizes)
    assert report.failure is None and report.points == report.most, str(report)


@pytest.mark.sweep
@pytest.mark.slow
def test_each_size_has_its_share_of_the_points():
    sizes = [(2, 4), (3, 6), (4, 5), (1, 2)]
    report = grade("gradients", averager("works for two ranks alone"), sizes)
    assert report.points == 2.5 and "it works only on 2 ranks. Where does yours" in message(report)


# -- runs that do not end --------------------------------------------------------------------------


def test_one_size_that_never_ends_costs_no_other_one(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    endless = ["buckets = [[]]", "buckets = [[]]\n    while most > 1000: pass"]
    sizes = [(5, 72), (8, 72), (6, 10_000), (5, 64)]
    report = grade("buckets", changed("cut_into_buckets", "buckets", endless), sizes)
    assert report.points == 1.5 and [size.most for size in report.failed] == [10_000]
    assert re.search(
        "Seen: for 6 parameters and 10000 bytes, the run had not ended", message(report)
    )


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 2.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    endless = "while True:\n                try: len(self.launched)\n                except: pass"
    given = changed("bucketed_gradients", "gradients", ["handle.wait()", endless])
    report = grade("gradients", given, ())
    assert re.search(r"not ended after 2 s rank 0 is at cell.py:\d+: ", message(report))
    assert len(report.failed) == 1 and report.points == 0


# -- what the checks rest on -----------------------------------------------------------------------


def test_the_cut_that_is_asked_for_is_that_of_the_library():
    for seed in range(4):
        model = Unseen(seed)
        parameters = list(model.parameters())
        wanted = [bucket.parameters for bucket in fill_buckets(model, bucket_bytes(model))]
        for given in (cut, cutter("the solution")):
            seen = given(parameters, bucket_bytes(model))
            assert [[*map(id, each)] for each in seen] == [[*map(id, each)] for each in wanted]
        elements = [sum(p.numel() for p in bucket) for bucket in wanted]
        assert len({*elements}) == len(elements) > 3, "so that another order is another size"
        assert not any(p is model.spare.weight for p in wanted[-1]), "one more has to wait for it"


@pytest.mark.slow
@pytest.mark.parametrize("check", ["launches", "no_hang"])
def test_all_reduces_of_which_the_trace_knows_nothing_do_not_count(check):
    tried = attempt(averager("all-reduces nothing"), Shards(2, 4))
    for own in tried.left:
        own.reduced[:] = [tried.elements, tried.elements]
    with pytest.raises(feedback.CheckFailed, match="nothing was all-reduced"):
        getattr(ddp_checks, f"check_{check}").judge(tried)


@pytest.mark.slow
def test_what_nobody_waits_for_has_not_begun_when_finish_returns():
    sleep = "__import__('time').sleep(0.3)\n        for bucket, flat, handle"
    changes = ["handle.wait()", "pass"], ["for bucket, flat, handle", sleep]
    tried = attempt(changed("bucketed_gradients", "gradients", *changes), Shards(2, 4))
    first = [own.steps[0].gradients[0] for own in tried.left]
    assert not torch.equal(first[0], first[1])
    assert [len(own.unwaited) for own in tried.left] == [8, 8], "4 buckets, 2 steps"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "on_lane"),
    [
        ("the solution", [(2, 6), (4, 6), (6, 6)]),
        ("waits after each launch", [(2, 2), (4, 4), (6, 6)]),
        ("launches all in `finish`", [(6, 6), (6, 6), (6, 6)]),
    ],
)
def test_overlap_is_seen_in_the_order_of_launches_layers_and_waits(what, on_lane):
    """Of six layers two in a bucket: how many had begun at its launch and at the wait for it."""
    for own in attempt(averager(what), Shards(2, 4), Even).left:
        assert own.on_lane == [on_lane, on_lane]


# -- rehearsals ------------------------------------------------------------------------------------


def test_a_rehearsal_of_the_cut_names_parameters_and_bytes():
    done = ddp_checks.rehearse_buckets(cutter("the solution"))
    assert repr(done).splitlines()[:2] == [
        "bucket 0: parameters 4 and 3, 64 bytes",
        "bucket 1: parameter 2, 24 bytes",
    ]
    assert done.right and len(done.buckets) == 4
    wrong = ddp_checks.rehearse_buckets(cutter("cuts from the first parameter to the last"))
    assert not wrong.right and "Hint: which gradient is ready first" in repr(wrong)


@pytest.mark.slow
def test_a_rehearsal_shows_the_students_buckets_on_the_lane_under_backward():
    cut = cutter("the solution")
    done = ddp_checks.rehearse(cut, averager("the solution"))
    words = (
        r"4 ranks; 3 all-reduces, under backward; a step of \d+ ms; the gradients are those of one"
    )
    assert done.right and re.match(words, message(done)), repr(done)
    spans = done.trace.spans
    mine = (spans.rank == 2) & (spans.kind == "collective") & (spans.lane == "comm")
    assert spans.name[mine].tolist() == ["bucket 0", "bucket 1", "bucket 2"]
    assert spans.fields[mine].tolist() and np.allclose((spans.end - spans.start)[mine], 0.018)
    step = (spans.kind == "phase") & (spans.name == "step 0")
    assert np.allclose((spans.end - spans.start)[step], 0.108)
    assert overlap(done.trace) > 0.3

    wrong = {  # a program, and what is said of it
        "sums, and does not divide": "the gradients are not those of one process",
        "waits after each launch": "3 all-reduces, not under backward",
        "fewer buckets on the last rank": "deadlock",
        "hands in the cells as they are": "still to be written",
    }
    for what, words in wrong.items():
        done = ddp_checks.rehearse(cut, averager(what), ranks=2)
        assert words in message(done) and not done.right
        assert len(done.trace.spans) or what == "hands in the cells as they are"


@pytest.mark.slow
def test_a_rehearsal_with_buckets_that_are_cut_wrong_says_that_the_checks_have_others():
    right, cut = averager("the solution"), cutter("cuts from the first parameter to the last")
    forwards = ddp_checks.rehearse(cut, right, ranks=2)
    assert "3 all-reduces, not under backward" in message(forwards) and not forwards.right
    assert "not yet what part 2 asks for. The checks of the class give it" in message(forwards)
    report = grade("overlap", right, [(2, 4)])
    assert report.points == 3 and "cut as part 2 asks, whatever your own" in message(report)
