"""The checks of a tensor-parallel MLP: right programs get all points, each wrong one loses those it
should and gets a hint that fits."""

from __future__ import annotations

import re
from functools import cache, partial

import numpy as np
import pytest
import tensor_programs as program
import torch
from courses import Assignment
from torch import nn

from dlviz import launch
from dlviz.collectives import all_reduce
from dlviz.grading.assignments.tensor_parallel_mlp import checks as tensor_checks
from dlviz.grading.assignments.tensor_parallel_mlp.checks import CountedSize
from dlviz.grading.assignments.tensor_parallel_mlp.hints import gradients, plain
from dlviz.grading.assignments.tensor_parallel_mlp.run import (
    STEPS,
    WAYS,
    MLPSize,
    MLPStep,
    Parallel,
    Sharded,
    attempt,
    attempt_function,
    drawn,
    refuse,
)
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.grading.harness.dealt import Dealt
from dlviz.grading.harness.feedback import CheckFailed
from dlviz.metrics import step_seconds
from dlviz.trace import Trace

CHECKS = ("parts", "outputs", "gradients", "all_reduces", "bytes")
POINTS = dict(zip(("f", "g", *CHECKS), (2, 2, 3, 3, 4, 2, 2), strict=True))
TWO, THREE, FIVE = MLPSize(2, 3, 4, 10), MLPSize(3, 2, 6, 9), MLPSize(5, 2, 5, 15)
UNEVEN = MLPSize(3, 2, 5, 9)  # neither the hidden width nor y can be shared evenly


solution = cache(
    partial(Assignment("tensor_parallel_mlp").solution, torch=torch, nn=nn, all_reduce=all_reduce)
)


def grade(check, *given, sizes=()):
    return getattr(tensor_checks, f"check_{check}").grade(*given, sizes=sizes)


def told(said):
    return " ".join(str(said).split())


def failure(check, tried):
    """What the check says of a run; None where it is right."""
    try:
        getattr(tensor_checks, f"check_{check}").judge(tried)
    except CheckFailed as failed:
        return failed
    return None


def failures(tried):
    found = {check: failure(check, tried) for check in CHECKS}
    return {check: failed for check, failed in found.items() if failed is not None}


# -- many programs in one run ----------------------------------------------------------------------


def of_one(trace, number):
    """The Trace of one of these programs."""
    spans, parts = trace.spans, []
    for rank in range(trace.meta["ranks"]):
        own = spans.rank == rank
        (case,) = np.flatnonzero(own & (spans.kind == "case") & (spans.name == f"{number}"))
        inside = (spans.wall_start >= spans.wall_start[case]) & (
            spans.wall_end <= spans.wall_end[case]
        )
        parts.append(own & inside)
    return Trace(spans[np.any(parts, axis=0)], trace.messages, meta=trace.meta)


@cache
def tried_in_turn(programs, size):
    """What each program left, or the CheckFailed that refuses it."""
    args = programs, size, STEPS
    run = launch(program.in_turn, size.ranks, device="cpu", timeout=300, args=args)
    found = {}
    for number, given in enumerate(programs):
        left = [own[number] for own in run.results]
        try:
            refuse(size, left)
            found[given] = Parallel(size, number, left, of_one(run.trace, number))
        except CheckFailed as failed:
            found[given] = failed
    return found


# -- right programs --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_solution_gets_all_points(capsys):
    assert tensor_checks.check_f(solution("CopyToRanks"), sizes=[(2, 3, 4)]) == POINTS["f"]
    assert tensor_checks.check_g(solution("SumOverRanks"), sizes=[(2, 3, 4)]) == POINTS["g"]
    for name in CHECKS:
        check = getattr(tensor_checks, f"check_{name}")
        assert check(solution("ParallelMLP"), sizes=[(3, 2, 6, 9)]) == POINTS[name] == check.points
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("Right, ") == len(POINTS) and sum(POINTS.values()) == 18
    assert "at ranks x hidden = 2x4." in said and "at ranks x hidden x inner = 3x6x9." in said


@pytest.mark.slow
def test_right_programs_of_every_kind_get_all_points():
    found = tried_in_turn(tuple(program.RIGHT), THREE)
    assert {given: failures(tried) for given, tried in found.items()} == dict.fromkeys(found, {})


@pytest.mark.slow
def test_right_programs_are_right_where_nothing_can_be_shared_evenly():
    found = tried_in_turn(tuple(program.RIGHT), UNEVEN)
    for given, tried in found.items():
        assert not {*failures(tried)} - {"bytes"}, given


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", program.RIGHT)
@pytest.mark.parametrize("check", CHECKS)
def test_a_right_program_is_right_at_every_size(given, check):
    sizes = [(n, 2, n * (h - 3), 3 * n) for n in range(2, 6) for h in (4, 5)]
    if check != "bytes":
        sizes += [(n, 2, 5, 3 * n) for n in range(1, 6)]
    report = grade(check, given, sizes=sizes)
    assert report.failure is None and report.points == POINTS[check], str(report)


def test_the_mlp_that_is_asked_for_is_that_of_torch():
    state, (x, gradient) = TWO.whole(7), TWO.batch(7, 0)
    model = nn.Sequential(nn.Linear(4, 10), nn.GELU(), nn.Linear(10, 4)).double()
    names = dict(zip(state, ("0.weight", "0.bias", "2.weight", "2.bias"), strict=True))
    model.load_state_dict({names[name]: each for name, each in state.items()})
    x.requires_grad_()
    model(x).backward(gradient)
    assert torch.equal(model(x), plain(x, state))
    wanted = [*(p.grad for p in model.parameters()), x.grad]
    for seen, right in zip(gradients(x.detach(), gradient, state).values(), wanted, strict=True):
        torch.testing.assert_close(seen, right, rtol=1e-12, atol=0)


# -- wrong modules ---------------------------------------------------------------------------------

SEEN = {"outputs", "gradients", "all_reduces", "bytes"}  # what an all-reduce too many is seen by
COST = {"all_reduces", "bytes"}
WRONG = {  # a program, the checks that it loses, and what some of them say
    program.SumsBeforeGELU: (
        SEEN,
        {
            "outputs": "is that of GELU of the sum over the ranks .* GELU of a sum is not the sum",
            "gradients": "something else .* the output is wrong too, and the gradients follow",
            "all_reduces": "all_reduce of 6 elements and all_reduce of 12 .* no other rank has any",
        },
    ),
    program.SumsBeforeGELUAlone: (
        SEEN,
        {
            "outputs": "by rank 0's part of down .* GELU of a sum",
            "bytes": "sends 64 .* 6 elements has z",
        },
    ),
    program.BiasOnEveryRank: (
        {"outputs"},
        {"outputs": "the MLP's with down.bias added 3 times .* Where is there one sum to add it"},
    ),
    program.PartOfTheBias: (
        {"gradients"},
        {"gradients": "of down.bias on rank 0 is 1/3 of what it .* is added in parts, so its gr"},
    ),
    program.WithoutBias: (
        {"outputs", "gradients"},
        {
            "outputs": "the MLP's without down.bias .* after what is it added",
            "gradients": "of down.bias on rank 0 is None .*backward never came to it",
        },
    ),
    program.WithoutBackwardOfF: (
        {"gradients", *COST},
        {
            "gradients": r"of x on rank 0 is rank 0's share of it \(wrong: x\).* does f do in back",
            "all_reduces": "in backward rank 0 calls no all-reduce .* Which function adds them",
            "bytes": "sends 0 bytes in backward Expected: .* = 128 bytes from every rank",
        },
    ),
    program.SumsBackTwice: (
        {"gradients", *COST},
        {
            "gradients": "of up.weight on rank 0 is 3 times what .* What does g do in backward",
            "all_reduces": "backward rank 0 calls .* and .* so g hands it on, and f adds",
            "bytes": "sends 256 bytes in backward",
        },
    ),
    program.SumsXTwice: (
        {"gradients", *COST},
        {"gradients": r"of x on rank 0 is 3 times .*\(wrong: x\).* added up twice"},
    ),
    program.WithoutG: (
        SEEN - {"gradients"},
        {"outputs": "is rank 0's share of the sum .* Which of f and g adds the ranks' shares"},
    ),
    program.SwappedPair: (
        {"outputs", "gradients"},
        {"outputs": "rank 0's share of that of x times 3 .* have the two changed places"},
    ),
    program.Means: (
        {"outputs", "gradients"},
        {"outputs": "the mean of the ranks' shares .* nothing is to be divided"},
    ),
    program.ScalesX: (
        {"outputs", "gradients"},
        {"outputs": "that of x times 3 .* f hands on x itself, and forwards it adds nothing"},
    ),
    program.InFloat32: (
        {"outputs", "gradients", "bytes"},
        {
            "outputs": "fewer digits .* which line makes float32 of them",
            "gradients": "right to some digits .* which line makes float32",
            "bytes": "sends 64 bytes in forward .* half of that is float32",
        },
    ),
    program.GathersShares: (
        COST,
        {"all_reduces": "calls all_gather of 12 elements .* n-1 times what one share has"},
    ),
    program.ToEverybody: (
        {"bytes"},
        {"bytes": "sends 192 bytes .* = 128 bytes .* whole tensor goes to each of the others"},
    ),
    program.ByTree: (
        {"bytes"},
        {"bytes": "which algorithm of all_reduce is used[?] The ring, which is the default"},
    ),
    program.GathersWeights: (
        {"parts", *COST},
        {
            "parts": r"as large as a whole weight: \(6, 9\), in forward, tensor_programs.py:\d+: .*"
            "weights stay where they are, a part on each rank",
            "all_reduces": "all_gather of 18 elements.* a weight is under way",
        },
    ),
    program.RowsThenColumns: (
        {*CHECKS},
        {"parts": r"holds \(9, 2\) as up.weight Expected: \(3, 6\) of the \(9, 6\) .*which dim"},
    ),
    program.EveryNth: (
        {"parts"},
        {"parts": "what rank 0 holds as up.weight is not its part .* the r-th contiguous part"},
    ),
    program.PartOfTheNext: (
        {"parts"},
        {"parts": "part 0 of 3 of the whole up.weight .* where does it begin, and where does it"},
    ),
    program.DrawsItsOwn: (
        {"parts", "outputs"},
        {"parts": "nothing is drawn anew or changed", "outputs": "that of other weights"},
    ),
    program.HoldsTheWhole: (
        {"parts"},
        {"parts": r"holds \(9, 6\) as up.weight .* all it needs of the weight"},
    ),
    program.SlicesAlone: (
        {"parts"},
        {"parts": "after __init__ the whole up.weight is still in rank 0's memory .*.clone.."},
    ),
    program.KeepsTheState: (
        {"parts"},
        {"parts": "still in rank 0's memory .* something else keeps the whole"},
    ),
    program.ComputesItAll: (
        {*CHECKS},
        {"outputs": "step 1 the output on rank 0 is no longer .* as they are now"},
    ),
    program.OldWeights: (
        {"outputs", "gradients"},
        {"outputs": "step 0 is right", "gradients": "of down.weight on rank 0 is 0 .* which line"},
    ),
    program.WithoutGELU: (
        {"outputs", "gradients"},
        {"outputs": "two layers without GELU .* GELU lies between"},
    ),
    program.RoughGELU: (
        {"outputs", "gradients"},
        {"outputs": "with an approximate GELU .* as nn.GELU.. computes it"},
    ),
    program.NoParameters: (
        {"parts", "outputs", "gradients"},
        {"parts": "rank 0 holds no parameter as up.weight .* Is it an nn.Parameter"},
    ),
    program.InFloat32Parts: (
        {"parts", "outputs", "gradients"},
        {"parts": r"rank 0 holds \(3, 6\) of float32 as up.weight .*a new module has float32"},
    ),
    program.ChangesX: (
        {"outputs", "gradients"},
        {"outputs": "rank 0 has changed x in place .* goes into a new tensor"},
    ),
    program.ThroughRank0: ({"bytes"}, {"bytes": "rank 0 sends most, rank 1 least. In a ring all"}),
    program.ByReduceAndBroadcast: (
        {"all_reduces"},
        {"all_reduces": "calls reduce of 12 .* and broadcast of 12 .* the sum goes to one rank"},
    ),
    program.FBehindUp: (
        {"gradients", *COST},
        {
            "gradients": "f or g in another place .* f stands behind up. What comes back from the",
            "all_reduces": "6 elements has z on a rank, .* anything to add to their gradient",
        },
    ),
    program.FBehindGELU: ({"gradients", *COST}, {"gradients": "f stands behind GELU"}),
    program.FBehindDown: (
        {"gradients"},
        {"gradients": "the sum is made behind down, where .* Does f stand there, or do f and g"},
    ),
    program.BackwardsSwapped: (
        {"gradients"},
        {"gradients": "the sum is made behind down, where .* Does f stand there, or do f and g"},
    ),
    program.FromTheLeftAlone: (
        {"gradients", "bytes"},
        {
            "gradients": "of x on rank 0 is 1, 0 and 1 of the shares of ranks 0 to 2",
            "bytes": "that is 1 times the bytes of y. Has each chunk gone once round",
        },
    ),
    program.WithoutApply: (
        {"gradients", *COST},
        {"gradients": "back through no Function of yours: is f called by apply"},
    ),
    program.WholeUpBias: (
        {"parts"},
        {"parts": r"holds \(9,\) as up.bias .* all it needs of the weight"},
    ),
    program.PartTooLong: (
        {"parts", "outputs", "gradients"},
        {"parts": r"holds \(4, 6\) as up.weight .* it has 4 of the 9 numbers .* i/n = 3"},
    ),
    program.Transposed: (
        {"parts", "outputs", "gradients"},
        {"parts": r"holds \(6, 3\) as up.weight .* it is transposed"},
    ),
    program.LiesWhenCompared: (
        SEEN,
        {
            "outputs": "is 2 times the MLP's .* but for a factor of 2: which line multiplies",
            "gradients": "is None .* nothing computed on .data or .detach",
        },
    ),
    program.ChangesTheJudge: ({*CHECKS}, {"all_reduces": "calls no all-reduce"}),
}


def is_told(failed, words):
    said = told(failed)
    assert re.search(words, said), said
    assert failed.seen and failed.expected and failed.hint
    lines = feedback.wrapped(str(failed))
    assert len(lines) <= 16 and max(map(len, lines)) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_program_loses_the_checks_it_should_and_is_told_what_fits(given):
    lost, words = WRONG[given]
    found = failures(tried_in_turn(tuple(WRONG), THREE)[given])
    assert {*found} == lost, "\n".join(f"{check}: {each}" for check, each in found.items())
    for check, told_of in words.items():
        is_told(found[check], told_of)


REFUSED = {  # programs without a result to judge, and what every check says
    program.ByTorch: r"ready-made code was called: torch.distributed.all_reduce, tensor_prog",
    program.OfTheLibrary: r"code was called: dlviz.parallel.\w+, tensor_prog.*load\(state",
    program.FunctionsOfTheLibrary: r"called: dlviz.parallel.tensor.conjugate, .*: .*conjugate.g\(s",
    program.HidesErrors: r"rank 0 met ValueError: dst=3 .*tensor_programs.py:\d+: .*and went on",
    program.ReturnsNothing: "on rank 0 forward returns None .* which line returns y",
    program.Detaches: "the output has no backward .* computed on .data or .detach",
    program.AnotherShape: r"the output has the shape \(2, 3\) .* y has a row for each row of x",
    program.NoModule: r"an object of NoModule, which is no nn.Module .* class ...\(nn.Module\)",
}


@pytest.mark.slow
@pytest.mark.parametrize("given", REFUSED)
def test_a_program_without_a_result_to_judge_is_told_why(given):
    is_told(tried_in_turn(tuple(REFUSED), THREE)[given], REFUSED[given])


ENDED = {  # programs that do not come to their end
    program.SendsFirst: (TWO, "deadlock: .*every rank is in a send, which returns only when"),
    program.NotOnTheLast: (TWO, "rank 1 finished.* forward of step 0 rank 1 neither sends nor r"),
    program.NotWritten: (TWO, "raised NotImplementedError, at .* still to be written"),
    program.Exits: (TWO, "raised SystemExit.*Let the function return instead"),
    program.RowsForColumns: (TWO, r"cannot be multiplied .*\(outputs, inputs\).* which dim is tha"),
    program.WithoutGradientOfComm: (TWO, "incorrect number of gradients.*and None for comm"),
    program.WithoutCtx: (TWO, "'NoneType' .* attribute 'comm'.* a Function is called by apply"),
    program.CalledAsAClass: (TWO, "must be Tensor, not CopyToRanks.* CopyToRanks.apply"),
    program.CommInBackward: (TWO, "name 'comm' is not defined.* forward as ctx.comm for backward"),
    program.UpBiasUncut: (TWO, "must match the existing size .* up.bias is cut as the outputs of"),
    program.InEqualChunks: (UNEVEN, "is invalid for input of size 10.*tensor_split makes chunks"),
    program.ForTwoAndFour: (THREE, "src=3 is no rank .* For which numbers of ranks does every"),
}


@pytest.mark.slow
@pytest.mark.parametrize("given", ENDED)
def test_a_program_that_does_not_come_to_its_end_is_told_why(given):
    size, words = ENDED[given]
    with pytest.raises(CheckFailed) as failed:
        attempt(given, size)
    is_told(failed.value, words)


@pytest.mark.slow
def test_each_size_has_its_share_of_the_points():
    sizes = [(2, 3, 4, 8), (4, 2, 4, 12), (3, 2, 6, 9), (1, 2, 3, 4)]
    report = grade("gradients", program.ForTwoAndFour, sizes=sizes)
    assert report.points == 3 and "works on 2 and on 4 ranks" in told(report)


def test_what_sizes_have_in_common_is_told():
    def common(passed, failed):
        return MLPSize.in_common([MLPSize(*each) for each in passed], [MLPSize(*failed)])

    divides = common([(2, 3, 4, 8), (3, 2, 6, 9), (1, 2, 3, 4)], (3, 2, 5, 9))
    assert "where the ranks divide the hidden width. Only the inner width is cut" in divides
    assert common([(2, 3, 4, 8), (2, 3, 5, 8)], (3, 2, 5, 9)) == ""
    assert common([(1, 2, 3, 4)], (2, 3, 4, 8)) == ""
    on_two = [CountedSize(2, 3, 4, 10)], [CountedSize(3, 2, 6, 9), CountedSize(4, 2, 4, 12)]
    assert "on 2 ranks alone" in MLPSize.in_common(*on_two)
    assert CountedSize.in_common(*on_two) == "", "on 2 ranks other algorithms send as much"


def test_no_part_of_a_wrong_order_has_the_bytes_of_y_at_a_size_that_is_graded():
    """Else f behind up would have points there for an all-reduce of z's gradient."""
    sizes = [MLPSize(*each) for each in tensor_checks.SIZES]
    assert [s for s in sizes if s.ranks > 1 and s.inner // s.ranks == s.hidden] == []


@pytest.mark.slow
def test_one_rank_alone_has_no_points():
    assert grade("outputs", program.MLP, sizes=[(1, 2, 3, 4)]).points == 0


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    report = grade("outputs", program.NeverEnds)
    assert re.search(r"not ended after 1 s rank 0 is at tensor_programs.py:\d+: ", told(report))
    assert len(report.failed) == 1 and report.points == 0


# -- f and g ---------------------------------------------------------------------------------------

WRONG_PAIRS = {  # what f and g do where not what they should, and what is said
    "no sum": ({"g_there": program.keep}, "g gives what it gets, as it is .* holds the sum"),
    "f keeps": (
        {"f_back": program.keep},
        "f gives, in backward, what it gets, as .* every rank ne",
    ),
    "f sums twice": ({"f_back": program.twice}, "f gives, in backward, 2 times the sum"),
    "f sums there": ({"f_there": program.add}, "f gives the sum over the ranks .* nothing to add"),
    "f scales": ({"f_there": program.times_ranks}, "f gives 2 times what it gets"),
    "g sums back": ({"g_back": program.add}, "g gives, in backward, the sum .* of y, once"),
    "mean": ({"g_there": program.mean}, "g gives the mean over the ranks .* nothing is divided"),
    "mean back": ({"f_back": program.mean}, "f gives, in backward, the mean .* nothing is divided"),
    "forgets": (
        {"g_there": program.forgets_the_sum},
        "Does g return the tensor that holds the sum",
    ),
    "nothing": ({"g_there": program.returns_nothing}, "g gives no tensor .* forward of g return"),
    "none back": (
        {"f_back": program.returns_nothing},
        "backward, no tensor .* backward of f retur",
    ),
    "float32": ({"g_there": program.in_float32}, "numbers are float64: which line"),
    "in place": ({"g_there": program.in_place}, "g has changed x that it was given .*.clone"),
    "back in place": ({"f_back": program.in_place}, "f has changed the gradient that it was given"),
}


@cache
def tried_functions(size):
    """What each wrong and right pair left, as f and as g."""
    pairs = {name: program.pair(**ways) for name, (ways, _) in WRONG_PAIRS.items()}
    given = [
        (name, each)
        for name, pair in [*pairs.items(), *program.RIGHT_PAIRS.items()]
        for each in pair
    ]
    functions = [each for _, each in given]
    args = functions, [Dealt(drawn(size)) for _ in functions]
    run = launch(program.functions_in_turn, size.ranks, device="cpu", args=args)
    left = [[own[i] for own in run.results] for i in range(len(given))]
    return {given[i][0]: {"f": left[i], "g": left[i + 1]} for i in range(0, len(given), 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_a_wrong_function_is_told_what_it_does_and_the_other_one_is_right(name):
    ways, words = WRONG_PAIRS[name]
    wrong, right = sorted("fg", key=lambda each: not next(iter(ways)).startswith(each))
    left = tried_functions(TWO)[name]
    is_told(failure(wrong, (TWO, left[wrong])), words)
    assert failure(right, (TWO, left[right])) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", program.RIGHT_PAIRS)
def test_right_functions_of_any_kind_get_all_points(name):
    left = tried_functions(TWO)[name]
    assert {each: failure(each, (TWO, left[each])) for each in "fg"} == {"f": None, "g": None}


@pytest.mark.slow
def test_a_function_that_is_called_otherwise_is_told_so():
    with pytest.raises(CheckFailed) as failed:
        attempt_function(program.WithoutArgument, TWO)
    is_told(failed.value, r"takes 2 positional .*forward gets \(ctx, x, comm\), backward")


# -- to look at ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rehearsal_of_f_and_g_shows_whose_numbers_are_in_each_sum():
    done = tensor_checks.rehearse_functions(*program.pair(), ranks=3)
    assert repr(done).splitlines() == [
        "f forward: 1, 10 and 100 became 1, 10 and 100",
        "f backward: 1, 10 and 100 became 111, 111 and 111",
        "g forward: 1, 10 and 100 became 111, 111 and 111",
        "g backward: 1, 10 and 100 became 1, 10 and 100",
    ]
    assert done.right
    wrong = tensor_checks.rehearse_functions(*program.pair(f_back=program.mean), ranks=2)
    assert "f backward: 1 and 10 became 5.5 and 5.5" in repr(wrong) and not wrong.right
    begun = tensor_checks.rehearse_functions(*program.pair(g_there=program.not_written), ranks=2)
    assert "f backward: 1 and 10 became 11 and 11" in repr(begun) and not begun.right
    assert "still to be written" in repr(begun)


@pytest.mark.slow
def test_a_rehearsal_shows_products_and_all_reduces_of_a_paced_step():
    done = tensor_checks.rehearse(program.MLP)
    words = r"4 ranks; rank 0 holds 280 of 1072 numbers and sends 1536 bytes; a step of \d+ ms; the"
    assert done.right and re.match(words, told(done)), repr(done)
    assert (done.numbers, done.nbytes, done.all_reduces) == (280, 1536, 2)
    spans = done.trace.spans
    bars = spans[(spans.rank == 2) & np.isin(spans.kind, ["forward", "backward"])]
    assert bars.kind.tolist() == ["forward"] * 2 + ["backward"] * 4
    there, back = bars.name[:2].tolist(), bars.name[2:].tolist()
    assert there == ["4x16·16x8", "4x8·8x16"]  # x W1, z W2
    assert {*back} == {"16x4·4x8", "4x16·16x8", "8x4·4x16", "4x8·8x16"}  # of W2, z, W1, x
    assert np.allclose(bars.end - bars.start, 0.004)
    assert np.allclose(step_seconds(done.trace, "device"), 6 * 0.004 + 2 * 6 * 0.001)

    wrong = tensor_checks.rehearse(program.WithoutBackwardOfF, ranks=2)
    assert "the gradients are not those of one process" in told(wrong) and not wrong.right
    kept = tensor_checks.rehearse(program.KeepsTheState, ranks=2)
    assert "the gradients are those of one process" in told(kept) and not kept.right
    stuck = tensor_checks.rehearse(program.NotOnTheLast, ranks=2)
    assert len(stuck.trace.spans) and "deadlock" in repr(stuck) and not stuck.right


def test_the_bytes_of_a_paced_run_are_those_that_the_paced_clock_has_in_a_phase():
    """There the wall clock of a phase's end may be read before its last message is sent."""
    way = {"rank": 0, "lane": "compute", "kind": "phase", "step": 0}
    spans = [
        {
            **way,
            "name": "forward",
            "start": 0.0,
            "end": 0.010,
            "wall_start": 0.0,
            "wall_end": 0.010,
        },
        {**way, "name": "backward", "start": 0.01, "end": 0.02, "wall_start": 0.01, "wall_end": 1},
    ]
    message = {"src": 0, "dst": 1, "nbytes": 48, "sent": 0.009, "arrived": 0.01, "received": 0.01}
    message |= {"wall_sent": 0.0102, "wall_received": 0.0103}
    step = MLPStep({}, torch.zeros(1), {}, {}, {"forward": 0.0, "backward": 0.0}, [])
    tried = Parallel(TWO, 0, [Sharded([step])], Trace(spans, [message], meta={"ranks": 2}))
    assert [tried.sent(way, 0).tolist() for way in WAYS] == [[48.0], [0.0]]
