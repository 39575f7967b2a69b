"""The checks of a training step on a mesh: right programs get all points, each wrong one loses
those it should and gets a hint that fits."""

from __future__ import annotations

import re
from functools import cache, partial
from types import SimpleNamespace

import mesh_programs as program
import pytest
import torch
from courses import Assignment

from dlviz import launch
from dlviz.collectives import all_reduce
from dlviz.grading.assignments.mesh_3d import checks as mesh_checks
from dlviz.grading.assignments.mesh_3d import plans as mesh_plans
from dlviz.grading.assignments.mesh_3d.model import Widths
from dlviz.grading.assignments.mesh_3d.plans import Chosen, PlanSize, plan_table
from dlviz.grading.assignments.mesh_3d.run import (
    STEPS,
    Given,
    Meshed,
    MeshSize,
    attempt,
    grouped,
    refuse,
)
from dlviz.grading.harness import feedback
from dlviz.grading.harness.feedback import CheckFailed
from dlviz.parallel.tensor.conjugate import f, g

CHECKS = ("neighbours", "sums", "gradients", "loss")
POINTS = {"groups": 3, "neighbours": 2, "sums": 4, "gradients": 4, "loss": 1, "plan": 4}
CUBE = MeshSize(2, 2, 2)
STAGES, SPLIT = MeshSize(1, 2, 2), MeshSize(2, 1, 2)

MESH = Assignment("mesh_3d")
solution = cache(partial(MESH.solution, torch=torch, all_reduce=all_reduce, f=f, g=g))


def told(said):
    return " ".join(str(said).split())


def failure(check, tried):
    """What the check says of a run; None where it is right."""
    try:
        getattr(mesh_checks, f"check_{check}").judge(tried)
    except CheckFailed as failed:
        return failed
    return None


def failures(tried):
    found = {check: failure(check, tried) for check in CHECKS}
    return {check: failed for check, failed in found.items() if failed is not None}


def is_told(failed, words):
    said = told(failed)
    assert re.search(words, said), said
    assert failed.seen and failed.expected and failed.hint
    lines = feedback.wrapped(str(failed))
    assert len(lines) <= 16 and max(map(len, lines)) <= feedback.WIDTH


# -- many programs in one run ----------------------------------------------------------------------


@cache
def tried_in_turn(programs, size):
    """What each program left, or the CheckFailed that refuses it."""
    given = [Given.drawn(size, Widths()) for _ in programs]
    args = (programs, size.axes, Widths(), [each.dealt(size) for each in given])
    run = launch(program.in_turn, size.ranks, device="cpu", timeout=300, args=args)
    found = {}
    for number, each in enumerate(programs):
        left = [own[number] for own in run.results]
        try:
            refuse(size, left)
            first = STEPS * number
            found[each] = Meshed(size, Widths(), given[number], left, run.trace, first)
        except CheckFailed as failed:
            found[each] = failed
    return found


# -- right programs --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_solution_gets_all_points_on_eight_ranks(capsys):
    assert mesh_checks.check_groups(solution("groups"), sizes=[(2, 2, 2)]) == POINTS["groups"]
    for name in CHECKS:
        check = getattr(mesh_checks, f"check_{name}")
        assert check.points == POINTS[name]
    tried = attempt(solution("train_step"), CUBE)
    assert failures(tried) == {}
    assert mesh_checks.check_sums(solution("train_step"), sizes=[(1, 2, 2)]) == POINTS["sums"]
    said = told(capsys.readouterr().out)
    assert said.count("Right, ") == 2 and "at dp x pp x tp = 1x2x2." in said


@pytest.mark.slow
@pytest.mark.parametrize("size", [STAGES, SPLIT, MeshSize(3, 1, 1), MeshSize(2, 2, 1)], ids=str)
def test_right_programs_of_every_kind_get_all_points(size):
    others = WRONG_WITHOUT_STAGES if size == SPLIT else ()
    found = tried_in_turn((*program.RIGHT, *others), size)
    assert {given: failures(found[given]) for given in program.RIGHT} == dict.fromkeys(
        program.RIGHT, {}
    )


def test_two_of_equal_length_in_common_are_told():
    common = MeshSize.in_common([CUBE], [MeshSize(1, 3, 2)])
    assert "all axes are equally long" in common
    assert MeshSize.in_common([CUBE, MeshSize(1, 3, 2)], [MeshSize(2, 2, 1)]) == ""


# -- wrong programs --------------------------------------------------------------------------------

WRONG = {  # the checks that each loses, and what it is told
    program.OverAllRanks: (
        {"sums", "gradients"},
        {
            "sums": "go along no single axis: between .* differ on dp, pp and tp.* which axis do",
            "gradients": "is the mean over all ranks .* mixes up gradients of different weights",
        },
    ),
    program.OverTpToo: (
        {"sums", "gradients"},
        {
            "sums": "ranks 0 and 1 of tp send 3008 bytes .* 1920 bytes: .* parts of different w",
            "gradients": "is the mean over tp too .* parts of different columns, no copies",
        },
    ),
    program.OverPpInsteadOfDp: (
        {"sums", "gradients"},
        {
            "sums": "0 and 4 of dp send 0 bytes .* nothing goes along dp, on which every",
            "gradients": "is the mean over the stages .* the stages have different blocks",
        },
    ),
    program.AcrossReplicas: (
        {"neighbours", "gradients", "loss"},
        {
            "neighbours": "differs from it on dp and pp .* another replica works on other rows",
            "gradients": "to another rank than the neighbour on pp: mend that first",
            "loss": "the last stage gets activations of other rows than its targets",
        },
    ),
    program.AcrossTp: (
        {"neighbours"},
        {"neighbours": "differs from it on pp and tp .* the values are right, since y is whole"},
    ),
    program.SendsTwice: (
        {"neighbours"},
        {"neighbours": "sends 2 times activations .* which message is sent again"},
    ),
    program.ForgetsTheTie: (
        {"sums", "gradients"},
        {
            "sums": "0 and 2 of pp send 0 bytes .* 576 bytes.* a share of one gradient",
            "gradients": "of embedding on rank 0 is the share of the first stage .* sum of both sh",
        },
    ),
    program.AveragesTheTie: (
        {"gradients"},
        {"gradients": "of embedding on rank 0 is half of .* are added, not averaged"},
    ),
    program.SumsAllOverPp: (
        {"sums", "gradients"},
        {
            "sums": "of pp send 1088 bytes .* only what both stages have is added over pp",
            "gradients": "is the sum over the stages .* the stages have different blocks",
        },
    ),
    program.DividesTwice: (
        {"gradients", "loss"},
        {
            "gradients": "is 1/2 of what it should be .* something is divided twice",
            "loss": "that is 1/2 of the mean over all 30 tokens: by what is it divided",
        },
    ),
    program.NeverDivides: (
        {"gradients", "loss"},
        {"gradients": "is 15 times what .* a sum over tokens: what turns it into a mean"},
    ),
    program.SumsTheGradients: (
        {"gradients"},
        {"gradients": "is 2 times what it should be .* averaged, not added up"},
    ),
    program.WithoutAverage: (
        {"sums", "gradients"},
        {"gradients": "is that of replica 0 alone .* Over which axis are the gradients averaged"},
    ),
    program.EmbeddingOfTheReplica: (
        {"sums", "gradients"},
        {
            "sums": "of dp send 512 bytes .* the embedding is not averaged over the replicas",
            "gradients": "of embedding on rank 0 is that of replica 0 alone",
        },
    ),
    program.WithoutF: (
        {"sums", "gradients"},
        {
            "sums": "of tp send 960 bytes .* each rank goes on with what its own columns give",
            "gradients": "another network .* the gradients of x are not added over tp",
        },
    ),
    program.WithoutG: (
        {"sums", "gradients", "loss"},
        {"sums": "of tp send 960 bytes .* the shares of y are not added over tp"},
    ),
    program.OnTheWrongAxis: (
        {"sums", "gradients", "loss"},
        {"sums": "of dp send 3008 bytes .* f and g work along dp, where the rows are other ones"},
    ),
    program.LossOfTheReplica: (
        {"loss"},
        {"loss": "each replica has the loss of its own rows. Which axis brings them together"},
    ),
    program.LossOnTheLastStage: (
        {"loss"},
        {"loss": "rank 0 returns the loss 0 .* the last stage alone has the loss"},
    ),
    program.LossOverPpToo: ({"loss"}, {"loss": "that is 1/2 of the mean over all 30 tokens"}),
    program.DividesByAllRanks: (
        {"gradients"},
        {"gradients": "is 1/4 of what it should be .* over dp is divided by all 8 ranks"},
    ),
    program.SendsXBack: (
        {"gradients"},
        {"gradients": "goes back from something that is no gradient: activations arrive in its"},
    ),
    program.HandsOnX: (
        {"gradients", "loss"},
        {"gradients": "gets what this one has begun with", "loss": "what this one has begun with"},
    ),
    program.EmbeddingOverTpToo: (
        {"sums", "gradients"},
        {
            "sums": "of tp send 2496 bytes .* as many bytes more as the embedding has",
            "gradients": "of embedding on rank 0 is 2 times .* only the embedding is too large",
        },
    ),
    program.ReturnsNothing: ({"loss"}, {"loss": "rank 0 returns None .* which line returns the l"}),
}
WRONG_WITHOUT_STAGES = {  # the same, of programs that go wrong on one stage too
    program.SumsACopy: (
        {"gradients"},
        {"gradients": "is 1/2 of that of replica 0 alone .* it gets: is that p.grad itself"},
    ),
    program.LossPerRow: (
        {"gradients", "loss"},
        {
            "gradients": "is 3 times what .* divided by the 5 rows of a replica. A row has 3 token",
            "loss": "that is 3 times the mean over all 30 tokens",
        },
    ),
    program.LossPerToken: (
        {"gradients", "loss"},
        {"gradients": "is 5 times what .* divided by the 3 tokens of a row. A replica has 5 rows"},
    ),
    program.ResidualInTheSum: (
        {"gradients", "loss"},
        {
            "gradients": "of another network .* y goes into the sum over tp too, and is in it once",
            "loss": "computes something else: y goes into the sum over tp too",
        },
    ),
    program.FRoundTheResidual: (
        {"gradients"},
        {"gradients": "that comes back past the block: f adds this one over tp too"},
    ),
    program.ForgetsTheResidual: (
        {"gradients", "loss"},
        {
            "gradients": "the block's output takes the place of y",
            "loss": "computes something else: the block's output takes the place of y",
        },
    ),
    program.SwapsFAndG: (
        {"gradients", "loss"},
        {"gradients": "f and g have changed places", "loss": "f and g have changed places"},
    ),
    program.NothingOverTp: (
        {"sums", "gradients", "loss"},
        {"sums": "of tp send 0 bytes .* neither forwards nor backwards is anything added over tp"},
    ),
    program.AddsGradientsUp: (
        {"gradients"},
        {"gradients": "is 1 of this step's and 1 of that of the step before .* what of yours k"},
    ),
    program.InFloat32: (
        {"gradients", "loss"},
        {"gradients": "right to some digits .* makes float32", "loss": "some digits are lost"},
    ),
    program.HalfOfTheReplicas: (
        {"gradients"},
        {"gradients": "own replica, here 0, counts 1/2 of what each other one does.* what chang"},
    ),
}
REFUSED = {  # programs without a result to judge, and what every check says
    program.ByTorch: r"ready-made code was called: torch.distributed.all_reduce, mesh_programs",
    program.OfTheLibrary: r"code was called: dlviz.parallel.naive, .*average_gradients\(self.mesh",
    program.HidesErrors: r"rank 0 met ValueError: dst=5 is no rank of .*, and went on",
}


@pytest.mark.slow
@pytest.mark.parametrize("given", [*WRONG, *WRONG_WITHOUT_STAGES, *REFUSED])
def test_a_wrong_program_loses_the_checks_it_should_and_is_told_what_fits(given):
    if given in WRONG_WITHOUT_STAGES:
        tried = tried_in_turn((*program.RIGHT, *WRONG_WITHOUT_STAGES), SPLIT)[given]
    else:
        tried = tried_in_turn((*program.RIGHT, *WRONG, *REFUSED), CUBE)[given]
    if given in REFUSED:
        is_told(tried, REFUSED[given])
        return
    lost, words = (WRONG | WRONG_WITHOUT_STAGES)[given]
    found = failures(tried)
    assert {*found} == lost, "\n".join(f"{check}: {each}" for check, each in found.items())
    for check, told_of in words.items():
        is_told(found[check], told_of)


@pytest.mark.slow
def test_right_programs_beside_them_get_all_points_on_eight_ranks():
    found = tried_in_turn((*program.RIGHT, *WRONG, *REFUSED), CUBE)
    assert {given: failures(found[given]) for given in program.RIGHT} == dict.fromkeys(
        program.RIGHT, {}
    )


ENDED = {  # programs that do not come to their end
    program.NextRank: (STAGES, "0 sends activations .* to rank 1, .* on tp. .* on pp alone: in"),
    program.ReceivesFirst: (STAGES, "deadlock: .*every rank waits for a message, and nobody has"),
    program.SendsBehindTheLast: (
        SPLIT,
        "dst=1 is no rank of .* of mesh.pp are numbered",
    ),
    program.NoLeaf: (STAGES, "NoneType.* Is x.grad read before it, or was x never a leaf"),
    program.NotWritten: (SPLIT, "raised NotImplementedError, at .* still to be written"),
    program.AnotherShape: (STAGES, "message mismatch.* both of the shape of part.empty"),
}


@pytest.mark.slow
@pytest.mark.parametrize("given", ENDED)
def test_a_program_that_does_not_come_to_its_end_is_told_why(given):
    size, words = ENDED[given]
    with pytest.raises(CheckFailed) as failed:
        attempt(given, size)
    is_told(failed.value, words)


# -- groups ----------------------------------------------------------------------------------------

WRONG_GROUPS = {  # the number of meshes on which each is wrong, and what is said
    program.first_axis_fastest: (4, "on dp the group .* where the first axis varies fastest"),
    program.distance_off_by_one: (4, "neighbours on dp are 8 apart here. .* have places: pp times"),
    program.starts_with_itself: (4, "every group begins with the rank that asks"),
    program.always_dp_pp_tp: (1, "where the axes come as dp, pp, tp. Here they come as tp, dp, pp"),
    program.places: (4, "these are the places on the axis, and the same for all ranks"),
    program.of_rank_0: (4, "these are the groups of rank 0, whoever asks"),
    program.itself_alone: (4, "that is the rank alone: who differs from it on the axis"),
    program.same_place: (4, "these have the same number on the axis"),
    program.swapped_axes: (4, "the groups of dp and pp have changed places"),
    program.one_list: (4, r"gets \[0, 1\] .* a dict with the keys dp, pp and tp"),
    program.without_itself: (4, "a rank is a member of its own group, and here it is left out"),
    program.twos: (3, "on a mesh of dp=1, pp=3, tp=2, .* a group has as many ranks as its axis"),
}


@cache
def told_of_groups(given):
    """What the check says of a function on each of its meshes; it is called in this process."""
    return [
        failure("groups", (size, grouped(None, given, size.axes)))
        for size in (MeshSize(*each) for each in mesh_checks.check_groups.sizes)
    ]


@pytest.mark.parametrize("given", WRONG_GROUPS)
def test_wrong_groups_are_told_by_rank_and_axis(given):
    times, words = WRONG_GROUPS[given]
    failed = [each for each in told_of_groups(given) if each is not None]
    assert len(failed) == times, [told(each) for each in failed]
    is_told(failed[0], words)


@pytest.mark.parametrize("given", program.RIGHT_GROUPS)
def test_right_groups_of_any_kind_get_all_points(given):
    assert told_of_groups(given) == [None] * 4


@pytest.mark.slow
def test_the_groups_that_are_asked_for_are_those_of_comm_mesh():
    sizes = [MeshSize(1, 3, 2), MeshSize(3, 2, 1), MeshSize(2, 1, 3, "tp dp pp")]
    run = launch(program.groups_of_meshes, 6, device="cpu", args=([s.axes for s in sizes],))
    for size, *found in zip(sizes, *run.results, strict=True):
        assert found == [
            {axis: [*size.group(rank, axis)] for axis in size.axes} for rank in range(6)
        ]


def test_what_groups_returns_is_judged_as_plain_numbers():
    """An object of the student's would answer there that it is equal to anything."""

    class Knows(list):
        def __eq__(self, other):
            return True

    class Axis(str):
        pass

    left = grouped(None, lambda rank, sizes: {Axis(a): Knows([9]) for a in sizes}, CUBE.axes)
    assert {type(each) for own in left.got for each in (*own, *own.values())} == {str, list}
    is_told(failure("groups", (CUBE, left)), r"has on dp the group \[9\]")


@pytest.mark.slow
def test_the_partner_of_rank_5_is_shown_for_right_groups_of_any_kind_alone():
    (code,) = [each.source for each in MESH.source.cells if "my_partner.compare(" in each.source]
    for groups, shown in (
        (program.groups_by_places, [1]),
        (program.starts_with_itself, []),
        (program.one_list, []),
    ):
        opened = []
        my_partner = SimpleNamespace(compare=opened.append)
        exec(code, {"mesh_checks": mesh_checks, "groups": groups, "my_partner": my_partner})
        assert opened == shown
    row = program.groups(5, {"dp": 2, "pp": 2, "tp": 2})["dp"]
    assert [rank for rank in row if rank != 5] == [1]


# -- plans -----------------------------------------------------------------------------------------

SMALL, LARGE = PlanSize(8, 8), PlanSize(32, 2)
JUST = PlanSize(24, 1.444868096)  # what the best plan needs
WRONG_CHOICES = {  # of so many sizes each is right on, and what is said of it on the first
    program.fastest: (0, "GB on its .* the fastest plan of all, also of those"),
    program.by_the_column_fits: (0, "GB on its .* the fastest plan of all, also of those"),
    program.least_memory: (0, "s a step .* smallest memory .* Memory that is left over buys"),
    program.most_memory: (0, "s a step .* with the largest memory. A step waits for other things"),
    program.slowest: (0, "s a step .* with the largest seconds .* Is the fastest plan the one"),
    program.smallest_bubble: (0, "with the smallest bubble. A step waits for other things too"),
    program.least_compute: (0, "with the smallest compute_seconds.* which column has the time of"),
    program.below_the_limit: (2, "a plan that needs just the limit fits too"),
    program.in_gib: (2, "so many GiB it would be. The limit is given in bytes"),
    program.place_of_the_row: (0, r"choose returns \d+ .* which line returns the row itself"),
}


table_of = cache(plan_table)


def chosen(given, size):
    """What the check says of a choice, made in this process."""
    table = table_of(size.devices)
    return failure("plan", Chosen(size, table, mesh_plans._choose(None, given, table, size.limit)))


@pytest.mark.parametrize("size", [SMALL, LARGE, JUST, PlanSize(64, 1)], ids=str)
def test_right_choices_of_any_kind_get_all_points(size):
    told = {given: chosen(given, size) for given in program.RIGHT_CHOICES}
    assert told == dict.fromkeys(program.RIGHT_CHOICES)


@pytest.mark.parametrize("given", WRONG_CHOICES)
def test_a_wrong_choice_is_told_what_it_is(given):
    right, words = WRONG_CHOICES[given]
    found = [chosen(given, PlanSize(*size)) for size in mesh_plans.SIZES]
    assert found.count(None) == right
    is_told(next(filter(None, found)), words)


def test_a_plan_that_fits_into_the_device_need_not_fit_into_the_limit():
    table = table_of(32)
    over = next(
        row for row in table if row["fits"] and row["memory"] > 16e9 and row["seconds"] > 0.6
    )
    is_told(failure("plan", Chosen(LARGE, table, over)), "the column fits goes by all the memory")


def test_what_choose_returns_is_judged_as_plain_values():
    """An object of the student's would answer there that it is equal to anything."""

    class Knows:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    row = dict.fromkeys(mesh_plans.NAMED, Knows())
    is_told(chosen(lambda table, memory: row, LARGE), "which line returns the row itself")


@pytest.mark.slow
def test_a_choice_is_graded_in_a_process_of_its_own(capsys):
    assert mesh_checks.check_plan(solution("choose"), sizes=[(8, 4)]) == POINTS["plan"]
    assert "at devices x GB = 8x4." in told(capsys.readouterr().out)
    with pytest.raises(CheckFailed) as failed:
        mesh_plans.attempt_choice(program.of_all_ranks, SMALL)
    is_told(failed.value, "the function raised .*In which unit is the limit.* that of one rank")


# -- to look at ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rehearsal_shows_the_bytes_of_each_axis_of_a_paced_step():
    done = mesh_checks.rehearse(program.Step)
    assert done.right, repr(done)
    assert done.nbytes == {"dp": 10240.0, "pp": 14336.0, "tp": 16384.0}
    assert "rank 0 sends 10240 bytes along dp, 14336 bytes along pp and 16384 bytes" in told(done)
    spans = done.trace.spans
    for rank in (0, 7):
        bars = spans[(spans.rank == rank) & (spans.kind == "forward")]
        assert bars.name[:2].tolist() == ["64x16·16x16", "64x16·16x16"]
    wrong = mesh_checks.rehearse(program.OverTpToo, dp=1, pp=1, tp=2)
    assert "the gradients are not those of one process, the sums do not all stay" in told(wrong)
    assert not wrong.right
    stuck = mesh_checks.rehearse(program.ReceivesFirst, dp=1, pp=2, tp=1)
    assert "deadlock" in repr(stuck) and not stuck.right
