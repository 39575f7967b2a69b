"""The checks of DDP's buckets: right programs get all points, each wrong one loses those it should
and gets a hint that fits."""

from __future__ import annotations

import re
from functools import cache, partial

import ddp_programs as program
import numpy as np
import pytest
import torch
from courses import Assignment
from judging import judged

from dlviz.collectives import all_reduce
from dlviz.grading.assignments.ddp import checks as ddp_checks
from dlviz.grading.assignments.ddp.run import Even, Shards, Unseen, attempt, bucket_bytes, cut
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.metrics import overlap
from dlviz.parallel.buckets import fill_buckets

CHECKS = ("gradients", "launches", "bytes", "overlap", "no_hang")
POINTS = dict(zip(("buckets", *CHECKS), (3, 5, 3, 2, 3, 2), strict=True))
UNEVEN, SOME, NONE = (3, 7), (2, 5, 1), (2, 4, 2)  # shards; who uses the spare layer


solution = cache(partial(Assignment("ddp").solution, torch=torch, all_reduce=all_reduce))


def grade(check, given, sizes=()):
    return getattr(ddp_checks, f"check_{check}").grade(given, sizes=sizes)


def told(report):
    return " ".join(str(report).split())


# -- cutting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [program.cut, program.cut_by_counting])
def test_right_cuts_get_all_points(given):
    report = grade("buckets", given)
    assert report.failure is None and report.points == 3, str(report)


CUTS = {
    program.cut_forwards: (
        0,
        r"\[0\], \[1\], \[2, 3\], \[4\] .*there first in backward, that of",
    ),
    program.cut_without_the_last: (0, "parameter 0 is in no bucket: what becomes of the last one"),
    program.cut_when_it_is_over: (1, "88 bytes, more than 72, by its last .*before p is put in"),
    program.cut_with_an_empty_one: (2.25, "a bucket is empty: is a new one begun before anything"),
    program.cut_by_elements: (1, "at most 72 numbers each, and a number of float64 has 8 bytes"),
    program.cut_at_an_exact_fit: (
        2.25,
        "bucket 2 is cut too early: with parameter 2 it would have exactly 72 .* Is it < or <=",
    ),
    program.cut_without_setting_back: (
        2.25,
        "cut too early: with parameter . it would have .* Is the count of bytes set back",
    ),
    program.cut_one_by_one: (1, "a bucket of its own: would the next gradient still have fitted"),
    program.cut_not_written: (0, "raised NotImplementedError, at .* still to be written"),
    program.cut_sizes: (0, "no list of lists of the parameters.*neither their sizes nor copies"),
    program.cut_by_the_library: (0, r"made by dlviz's fill_buckets, ddp_programs.py:\d+: return"),
}


def test_one_size_that_never_ends_costs_no_other_one(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    sizes = [(5, 72), (8, 72), (6, 10_000), (5, 64)]
    report = grade("buckets", program.cut_never_ends_for_a_large_one, sizes)
    assert report.points == 1.5 and [size.most for size in report.failed] == [10_000]
    assert re.search("Seen: for 6 parameters and 10000 bytes, the run had not ended", told(report))


@pytest.mark.parametrize("given", CUTS)
def test_a_wrong_cut_loses_points_and_is_told_why(given):
    points, words = CUTS[given]
    report = grade("buckets", given)
    assert report.points == points and re.search(words, told(report)), str(report)


def test_the_cut_that_is_asked_for_is_that_of_the_library():
    for seed in range(4):
        model = Unseen(seed)
        parameters = list(model.parameters())
        wanted = [bucket.parameters for bucket in fill_buckets(model, bucket_bytes(model))]
        for given in (cut, program.cut, solution("cut_into_buckets")):
            seen = given(parameters, bucket_bytes(model))
            assert [[*map(id, each)] for each in seen] == [[*map(id, each)] for each in wanted]
        elements = [sum(p.numel() for p in bucket) for bucket in wanted]
        assert len({*elements}) == len(elements) > 3, "so that another order is another size"
        assert not any(p is model.spare.weight for p in wanted[-1]), "one more has to wait for it"


# -- averaging -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_solution_gets_all_points(capsys):
    sizes = {
        "launches": [(3, 6, 1)],
        "bytes": [(2, 4)],
        "overlap": [(2, 4)],
        "no_hang": [(2, 5, 1)],
    }
    for name, points in POINTS.items():  # the others at all of theirs: `make sweep`
        given = solution("cut_into_buckets" if name == "buckets" else "BucketedGradients")
        assert getattr(ddp_checks, f"check_{name}")(given, sizes=sizes.get(name, ())) == points
    said = capsys.readouterr().out
    assert said.count("Right, ") == len(POINTS) and sum(POINTS.values()) == 18
    assert "at ranks x examples = 3x7, 2x8, 2x5 (a layer unused on some" in " ".join(said.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "check", "size"),
    [
        (program.InPlace, "gradients", SOME),
        (program.InPlace, "overlap", (2, 4)),
        (program.Closures, "gradients", NONE),
        (program.Closures, "launches", (3, 6, 1)),
        (program.OnTwoLanes, "gradients", SOME),
    ],
)
def test_a_right_program_of_another_kind_gets_all_points(given, check, size):
    report = grade(check, given, [size])
    assert report.failure is None and report.points == POINTS[check], str(report)


RIGHT = [solution("BucketedGradients"), program.Buckets, program.InPlace, program.Closures]


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", RIGHT)
@pytest.mark.parametrize("check", CHECKS)
def test_a_right_program_is_right_at_every_size(given, check):
    sizes = [size for n in range(2, 6) for size in ((n, 2 * n + 1), (n, 2 * n, 1), (n, n, 2))]
    if check in ("bytes", "overlap"):
        sizes = [size for size in sizes if len(size) == 2]
    report = grade(check, given, sizes)
    assert report.failure is None and report.points == POINTS[check], str(report)


WRONG = {  # a program, the checks that give less than all points, and what is said at which size
    program.ForgetsToDivide: (
        {"gradients"},
        {("gradients", UNEVEN): "that is the sum over the ranks .* By what does a rank have to"},
    ),
    program.AveragesAverages: (
        {"gradients"},
        {("gradients", UNEVEN): "the mean of the ranks' means .* With shards of 3 examples and 1"},
    ),
    program.DividesTwice: (
        {"gradients"},
        {("gradients", (2, 8)): "divided by the ranks once more .* examples / total has the"},
    ),
    program.SumsOverExamples: (
        {"gradients"},
        {("gradients", UNEVEN): "the sum over the examples .* not divided by all examples yet"},
    ),
    program.ForTwoRanks: (
        {"gradients"},
        {("gradients", UNEVEN): "0.5, 0.5 and 0.5 of the gradients of .* have 3, 2 and 2 of 7"},
    ),
    program.LaunchesAtTheFirstGradient: (
        {"gradients"},
        {("gradients", (2, 8)): "that is zeros .*Which of a bucket's gradients comes last"},
    ),
    program.LaunchesWhenFull: (
        {"gradients", "launches", "no_hang"},
        {
            (
                "launches",
                SOME,
            ): "rank 0 launches bucket 2 before bucket 1, which is not full there: the rank makes"
        },
    ),
    program.BackwardsOnTheLastRank: (
        {*CHECKS} - {"bytes"},
        {
            (
                "gradients",
                (2, 8),
            ): r"ddp_programs.py:\d+: handle.wait\(\).* rank 1 launches bucket 3 as number 0"
        },
    ),
    program.NeverWaits: (
        {"gradients", "no_hang"},
        {
            (
                "gradients",
                (2, 8),
            ): r"own, weighted .* nobody waited for the all-reduce submitted at "
            r"ddp_programs.py:\d+: .*submit\(all_reduce, flat\)",
            ("no_hang", (2, 4)): "rank 0 never waited for.*with a handle. What tells you that",
        },
    ),
    program.WaitsAfterEach: (
        {"overlap"},
        {("overlap", (2, 4)): "rank 0 begins no layer's backward while .* Where is the wait"},
    ),
    program.LaunchesInTheEnd: (
        {"overlap"},
        {("overlap", (2, 4)): "all buckets leave when backward is over. Which function does a"},
    ),
    program.WithoutALane: (
        {"overlap"},
        {("overlap", (2, 4)): r"no bucket was launched on a lane: comm.lane\(name\) makes one"},
    ),
    program.ForgetsTheLast: (
        {"gradients", "launches", "no_hang"},
        {
            ("launches", NONE): "backward has not filled[?] Never launched: 1, 2 and 3",
            ("no_hang", SOME): "(deadlock|mismatch).*(as many buckets, those too|does it still le)",
        },
    ),
    program.AllReducesTheParameters: (
        {"gradients"},
        {
            (
                "gradients",
                (2, 8),
            ): "this rank's own .*parameters have changed, which are equal on all"
        },
    ),
    program.NothingIsSetBack: (
        {"gradients", "launches", "bytes"},
        {("gradients", (2, 8)): "in step 1 rank 0 .* step 0 is right. What has begin to set back"},
    ),
    program.ScalesAfterTheLaunch: (
        {"gradients"},
        {
            ("gradients", (2, 8)): r"that is the sum over the ranks .*submitted at ddp_programs.py:"
            r"\d+: .* was written to before anybody had waited for it"
        },
    ),
    program.HooksInBegin: (
        {"gradients"},
        {("gradients", (2, 8)): "in step 1 rank 0 .*Hooks are registered anew in each step"},
    ),
    program.UnpacksInAnotherOrder: (
        {"gradients"},
        {
            (
                "gradients",
                (2, 8),
            ): "no sum of .* the numbers of the mean, in other places.*parted in the same"
        },
    ),
    program.AddsToTheGradient: (
        {"gradients"},
        {("gradients", UNEVEN): "the mean, added to this rank's own .*replaces"},
    ),
    program.WeighsTwice: (
        {"gradients"},
        {("gradients", UNEVEN): "the mean, times 0.429 .*is weighed before the all-reduce"},
    ),
    program.TheOtherWayRound: (
        {"gradients"},
        {("gradients", UNEVEN): "2.33, 3.5 and 3.5 of the gradients of .* have 3, 2 and 2 of 7"},
    ),
    program.SkipsWhatItHasNotUsed: (
        {"gradients", "launches", "no_hang"},
        {
            (
                "gradients",
                SOME,
            ): r"launches bucket 1 with \d+ of its \d+ numbers: those of a parameter"
        },
    ),
    program.NeedsEachGradient: (
        {"gradients", "launches", "no_hang"},
        {("launches", SOME): "'NoneType' object has no attribute.*every rank use all of its param"},
    ),
    program.LeavesTheUnusedAsItWas: (
        {"gradients"},
        {("gradients", SOME): "spare.weight that is None .*other ranks have used it"},
    ),
    program.OneForEach: (
        {"launches"},
        {("launches", NONE): "there is an all-reduce for each parameter. What a bucket is for"},
    ),
    program.InFloat32: (
        {"gradients", "bytes"},
        {
            (
                "gradients",
                (2, 8),
            ): "a sum of the ranks' gradients with fewer digits .* which type has the tensor",
            ("bytes", (2, 4)): "sends 13824 bytes in a step Expected: .* = 27648 bytes, for",
        },
    ),
    program.ByTheBackend: (
        {"bytes"},
        {("bytes", (2, 4)): "sends 0 bytes in a step .*comm.all_reduce sends nothing that a pict"},
    ),
    program.Nothing: (
        {*CHECKS},
        {("no_hang", (2, 4)): r"nothing was all-reduced.*launched by lane.submit\(all_reduce, fl"},
    ),
    program.NotWritten: ({*CHECKS}, {("bytes", (2, 4)): "this function is still to be written"}),
    program.HidesItsErrors: (
        {*CHECKS},
        {("bytes", (2, 4)): r"rank 0 met .*at ddp_programs.py:\d+: handle.wait\(\), and went on"},
    ),
    program.LeavesOnTheLastRank: (
        {*CHECKS},
        {("overlap", (2, 4)): "deadlock: .*rank 1 finished.*does each rank all-reduce as many"},
    ),
    program.RaisesInFinish: (
        {*CHECKS},
        {("gradients", (2, 8)): r"raised KeyError: 'bucket', at ddp_programs.py:\d+: raise KeyErr"},
    ),
    program.OfTheLibrary: (
        {*CHECKS},
        {("bytes", (2, 4)): r"ready-made code was called: dlviz.parallel.\w+, ddp_p.*DDP\(hold"},
    ),
    program.AveragedByTheLibrary: (
        {*CHECKS},
        {("gradients", (2, 8)): r"ready-made .*: dlviz.parallel.naive, .*average_gradients\(self"},
    ),
    program.ByTorch: (
        {*CHECKS},
        {("gradients", (2, 8)): r"ready-made code was called: torch.distributed.all_reduce, ddp_p"},
    ),
    program.ChangesTheJudge: (
        {*CHECKS},
        {("gradients", (2, 8)): "this rank's own .*launched by lane.submit"},
    ),
}
TOLD = [(given, *where) for given, (_, words) in WRONG.items() for where in words]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "check", "size"), TOLD)
def test_a_wrong_program_is_told_what_fits(given, check, size):
    lost, words = WRONG[given]
    if given is program.ChangesTheJudge:
        report = grade(check, given, [size])
    else:
        report = judged(getattr(ddp_checks, f"check_{check}"), [given], [size])
    assert check in lost and report.points == 0
    assert re.search(words[check, size], told(report)), told(report)
    assert report.failure.seen and report.failure.expected and report.failure.hint
    lines = str(report).splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_program_loses_the_points_it_should(given):
    reports = {check: grade(check, given) for check in CHECKS}
    said = {check: str(report) for check, report in reports.items()}
    assert {c for c in CHECKS if reports[c].points < POINTS[c]} == WRONG[given][0], said


@pytest.mark.slow
@pytest.mark.parametrize("check", ["launches", "no_hang"])
def test_all_reduces_of_which_the_trace_knows_nothing_do_not_count(check):
    tried = attempt(program.Nothing, Shards(2, 4))
    for own in tried.left:
        own.reduced[:] = [tried.elements, tried.elements]
    with pytest.raises(feedback.CheckFailed, match="nothing was all-reduced"):
        getattr(ddp_checks, f"check_{check}").judge(tried)


@pytest.mark.slow
def test_each_size_has_its_share_of_the_points():
    report = grade("gradients", program.ForTwoRanks, [(2, 4), (3, 6), (4, 5), (1, 2)])
    assert report.points == 2.5 and "it works on 2 ranks alone. Where does yours" in told(report)


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 2.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    report = grade("gradients", program.NeverEnds)
    assert re.search(r"not ended after 2 s rank 0 is at ddp_programs.py:\d+: ", told(report))
    assert len(report.failed) == 1 and report.points == 0


@pytest.mark.slow
def test_a_rehearsal_shows_the_students_buckets_on_the_lane_under_backward():
    done = ddp_checks.rehearse(program.cut, program.Buckets)
    words = (
        r"4 ranks; 3 all-reduces, under backward; a step of \d+ ms; the gradients are those of one"
    )
    assert done.right and re.match(words, told(done)), repr(done)
    spans = done.trace.spans
    mine = (spans.rank == 2) & (spans.kind == "collective") & (spans.lane == "comm")
    assert spans.name[mine].tolist() == ["bucket 0", "bucket 1", "bucket 2"]
    assert spans.fields[mine].tolist() and np.allclose((spans.end - spans.start)[mine], 0.018)
    step = (spans.kind == "phase") & (spans.name == "step 0")
    assert np.allclose((spans.end - spans.start)[step], 0.108)
    assert overlap(done.trace) > 0.3

    wrong = ddp_checks.rehearse(program.cut, program.ForgetsToDivide, ranks=2)
    assert "the gradients are not those of one process" in told(wrong) and not wrong.right
    waits = ddp_checks.rehearse(program.cut, program.WaitsAfterEach, ranks=2)
    assert "3 all-reduces, not under backward" in told(waits) and not waits.right
    stuck = ddp_checks.rehearse(program.cut, program.LeavesOnTheLastRank, ranks=2)
    assert len(stuck.trace.spans) and "deadlock" in repr(stuck) and not stuck.right
    empty = ddp_checks.rehearse(program.cut, program.NotWritten, ranks=2)
    assert "still to be written" in repr(empty) and not empty.right


@pytest.mark.slow
def test_a_rehearsal_with_buckets_that_are_cut_wrong_says_that_the_checks_have_others():
    forwards = ddp_checks.rehearse(program.cut_forwards, program.Buckets, ranks=2)
    assert "3 all-reduces, not under backward" in told(forwards) and not forwards.right
    assert "not yet what part 2 asks for. The checks of the class hand it" in told(forwards)
    report = judged(ddp_checks.check_overlap, [program.Buckets], [(2, 4)])
    assert report.points == 3 and "cut as part 2 asks for it, whatever your own" in told(report)


def test_a_rehearsal_of_the_cut_names_parameters_and_bytes():
    done = ddp_checks.rehearse_buckets(program.cut)
    assert repr(done).splitlines()[:2] == [
        "bucket 0: parameters 4 and 3, 64 bytes",
        "bucket 1: parameter 2, 24 bytes",
    ]
    assert done.right and len(done.buckets) == 4
    wrong = ddp_checks.rehearse_buckets(program.cut_forwards)
    assert not wrong.right and "Hint: which gradient is there first" in repr(wrong)


@pytest.mark.slow
def test_what_nobody_waits_for_has_not_begun_when_finish_returns():
    tried = attempt(program.SleepsInsteadOfWaiting, Shards(2, 4))
    first = [own.steps[0].gradients[0] for own in tried.left]
    assert not torch.equal(first[0], first[1])
    assert [len(own.unwaited) for own in tried.left] == [8, 8], "4 buckets, 2 steps"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "on_lane"),
    [
        (program.Buckets, [(2, 6), (4, 6), (6, 6)]),
        (program.WaitsAfterEach, [(2, 2), (4, 4), (6, 6)]),
        (program.LaunchesInTheEnd, [(6, 6), (6, 6), (6, 6)]),
    ],
)
def test_overlap_is_seen_in_the_order_of_launches_layers_and_waits(given, on_lane):
    """Of six layers two in a bucket: how many had begun at its launch and at the wait for it."""
    for own in attempt(given, Shards(2, 4), Even).left:
        assert own.on_lane == [on_lane, on_lane]
