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
from dlviz.grading import feedback, mesh_checks, mesh_plans
from dlviz.grading.feedback import CheckFailed
from dlviz.grading.mesh_model import Widths
from dlviz.grading.mesh_plans import Chosen, PlanSize, plan_table
from dlviz.grading.mesh_run import STEPS, Meshed, MeshSize, attempt, refuse
from dlviz.parallel.tensor.conjugate import f, g

CHECKS = ("neighbours", "sums", "gradients", "loss")
POINTS = {"groups": 3, "neighbours": 2, "sums": 4, "gradients": 4, "loss": 1, "plan": 4}
CUBE = MeshSize(2, 2, 2)
STAGES, SPLIT = MeshSize(1, 2, 2), MeshSize(2, 1, 2)
MESHES = (CUBE, MeshSize(1, 3, 2), MeshSize(2, 1, 2, "tp dp pp"))  # of groups

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
    run = launch(program.in_turn, size.ranks, device="cpu", args=(programs, size, Widths()))
    found = {}
    for number, given in enumerate(programs):
        left = [own[number] for own in run.results]
        try:
            refuse(size, left)
            found[given] = Meshed(size, Widths(), number, left, run.trace, STEPS * number)
        except CheckFailed as failed:
            found[given] = failed
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
    found = tried_in_turn(program.RIGHT, size)
    assert {given: failures(tried) for given, tried in found.items()} == dict.fromkeys(found, {})


def test_two_of_equal_length_in_common_are_told():
    common = MeshSize.in_common([CUBE], [MeshSize(1, 3, 2)])
    assert "all axes are equally long" in common
    assert MeshSize.in_common([CUBE, MeshSize(1, 3, 2)], [MeshSize(2, 2, 1)]) == ""


# -- wrong programs --------------------------------------------------------------------------------

WRONG = {  # the checks that each loses, and what it is told
    program.OverAllRanks: (
        {"sums", "gradients"},
        {
            "sums": "bytes of sums go along no single axis: between .* which axis do they lie on",
            "gradients": "is the mean over all ranks .* mixes up gradients of different weights",
        },
    ),
    program.OverTpToo: (
        {"sums", "gradients"},
        {
            "sums": "ranks 0 and 1 of tp send 1728 bytes .* 768 bytes: .* parts of different weigh",
            "gradients": "is the mean over tp too .* parts of different columns, no copies",
        },
    ),
    program.OverPpInsteadOfDp: (
        {"sums", "gradients"},
        {"sums": "0 and 4 of dp send 0 bytes .* a copy in each replica, which has seen other rows"},
    ),
    program.AcrossReplicas: (
        {"neighbours", "gradients", "loss"},
        {"neighbours": "differs from it on dp and pp .* another replica works on other rows"},
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
            "sums": "0 and 2 of pp send 0 bytes .* 448 bytes.* a share of one gradient",
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
            "sums": "of pp send 960 bytes .* only what both stages have is added over pp",
            "gradients": "is the sum over the stages .* the stages have different blocks",
        },
    ),
    program.DividesTwice: (
        {"gradients", "loss"},
        {
            "gradients": "is 1/2 of what it should be .* something is divided twice",
            "loss": "0.5 times the mean over all 12 tokens: by what is it divided",
        },
    ),
    program.NeverDivides: (
        {"gradients", "loss"},
        {"gradients": "is 6 times what .* a sum over tokens: what turns it into their mean"},
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
            "sums": "of dp send 512 bytes .* Which gradients are averaged over them, and which are",
            "gradients": "of embedding on rank 0 is that of replica 0 alone",
        },
    ),
    program.WithoutF: (
        {"sums", "gradients"},
        {
            "sums": "of tp send 384 bytes .* f the gradients of x backwards: are both called",
            "gradients": "something else .* f the gradients of x backwards",
        },
    ),
    program.WithoutG: (
        {"sums", "gradients", "loss"},
        {"sums": "of tp send 384 bytes .* g adds the shares of y forwards"},
    ),
    program.OnTheWrongAxis: (
        {"sums", "gradients", "loss"},
        {"sums": "of dp send 1728 bytes .* What else goes along dp"},
    ),
    program.LossOfTheReplica: (
        {"loss"},
        {"loss": "each replica has the loss of its own rows. Which axis brings them together"},
    ),
    program.LossOnTheLastStage: (
        {"loss"},
        {"loss": "rank 0 returns the loss 0 .* the last stage alone has the loss"},
    ),
    program.LossOverPpToo: ({"loss"}, {"loss": "that is 0.5 times the mean over all 12 tokens"}),
    program.ReturnsNothing: ({"loss"}, {"loss": "rank 0 returns None .* which line returns the l"}),
}
REFUSED = {  # programs without a result to judge, and what every check says
    program.ByTorch: r"ready-made code was called: torch.distributed.all_reduce, mesh_programs",
    program.OfTheLibrary: r"code was called: dlviz.parallel.naive, .*average_gradients\(self.mesh",
    program.HidesErrors: r"rank 0 met ValueError: dst=5 is no rank of .*, and went on",
}


@pytest.mark.slow
@pytest.mark.parametrize("given", [*WRONG, *REFUSED])
def test_a_wrong_program_loses_the_checks_it_should_and_is_told_what_fits(given):
    tried = tried_in_turn((*program.RIGHT, *WRONG, *REFUSED), CUBE)[given]
    if given in REFUSED:
        is_told(tried, REFUSED[given])
        return
    lost, words = WRONG[given]
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
    program.NextRank: (STAGES, "deadlock: .*do they match"),
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
    program.first_axis_fastest: (3, "on dp the group .* where the first axis varies fastest"),
    program.distance_off_by_one: (3, "as far apart as the axes behind it have places"),
    program.starts_with_itself: (3, "where does the group of this rank begin"),
    program.always_dp_pp_tp: (
        1,
        "on a mesh of tp=2, dp=2, pp=1, .* where the first axis varies fastest",
    ),
    program.one_list: (3, r"gets \[0, 1\] .* a dict with the keys dp, pp and tp"),
    program.without_itself: (3, "a rank is a member of its own group"),
    program.twos: (2, "on a mesh of dp=1, pp=3, tp=2, .* a group has as many ranks as its axis"),
}


@cache
def tried_groups():
    """What each function left on each mesh of six ranks or less, and on eight."""
    given, found = (*program.RIGHT_GROUPS, *WRONG_GROUPS), {}
    for size in MESHES:
        run = launch(program.groups_in_turn, size.ranks, device="cpu", args=(given, [size]))
        for number, each in enumerate(given):
            left = [own[number][0] for own in run.results]
            found.setdefault(each, []).append(failure("groups", (size, left)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("given", WRONG_GROUPS)
def test_wrong_groups_are_told_by_rank_and_axis(given):
    times, words = WRONG_GROUPS[given]
    failed = [each for each in tried_groups()[given] if each is not None]
    assert len(failed) == times, [told(each) for each in failed]
    is_told(failed[0], words)


@pytest.mark.slow
def test_right_groups_of_any_kind_get_all_points():
    found = tried_groups()
    assert [found[each] for each in program.RIGHT_GROUPS] == [[None] * len(MESHES)] * 3


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
WRONG_CHOICES = {  # what is said of each
    program.fastest: "GB on its .* the fastest plan of all, and a run of it ends with",
    program.least_memory: "s a step .* the plan with the least memory. Memory that is left over",
    program.smallest_bubble: "with the smallest bubble. A step waits for the all-reduces of tp",
    program.place_of_the_row: r"choose returns '\d+' .* which line returns the row itself",
}


def chosen(given, size):
    """What the check says of a choice, made in this process."""
    table = plan_table(size.devices)
    return failure("plan", Chosen(size, table, mesh_plans._choose(None, given, table, size.limit)))


@pytest.mark.parametrize("size", [SMALL, LARGE, PlanSize(64, 1)], ids=str)
def test_right_choices_of_any_kind_get_all_points(size):
    told = {given: chosen(given, size) for given in program.RIGHT_CHOICES}
    assert told == dict.fromkeys(program.RIGHT_CHOICES)


@pytest.mark.parametrize("given", WRONG_CHOICES)
def test_a_wrong_choice_is_told_what_it_is(given):
    is_told(chosen(given, LARGE), WRONG_CHOICES[given])


def test_a_plan_that_fits_into_the_device_need_not_fit_into_the_limit():
    table = plan_table(32)
    over = next(
        row for row in table if row["fits"] and row["memory"] > 16e9 and row["seconds"] > 0.6
    )
    is_told(failure("plan", Chosen(LARGE, table, over)), "the column fits goes by all the memory")
    is_told(chosen(program.by_the_column_fits, LARGE), "GB on its fullest rank")


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
