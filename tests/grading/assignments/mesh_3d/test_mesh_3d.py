"""What is no row of wrong.toml: other meshes and limits, objects that lie, and rehearsals."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import pytest
from courses import Assignment
from judging import judged
from programs import held_to_rows
from rows import rows

from dlviz import launch
from dlviz.grading.assignments.mesh_3d import checks as mesh_checks
from dlviz.grading.assignments.mesh_3d import plans as mesh_plans
from dlviz.grading.assignments.mesh_3d.plans import Chosen, PlanSize, plan_table
from dlviz.grading.assignments.mesh_3d.run import MeshSize, grouped
from dlviz.grading.harness.feedback import CheckFailed

globals().update(held_to_rows("mesh_3d"))
ROWS = {row.what: row for row in rows("mesh_3d")}
SOLUTION = ROWS["the solution"]
CUBE = MeshSize(2, 2, 2)


def right(cell):
    """The solution, and other right programs of a cell."""
    own = [row for row in ROWS.values() if not row.loses and cell in row.cells]
    return pytest.mark.parametrize("row", [SOLUTION, *own], ids=str)


def refusal(check, left):
    """What the check says of what a program left, in one line."""
    with pytest.raises(CheckFailed) as failed:
        check.judge(left)
    return " ".join(str(failed.value).split())


# -- a step ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sweep
@right("train_step")
def test_right_programs_are_right_on_every_mesh(row):
    sizes = [(1, 2, 2), (2, 1, 2), (3, 1, 1), (2, 2, 1)]
    for check in ("sums", "gradients", "loss", "neighbours"):
        report = judged(row.check(check), row.programs(check), sizes)
        assert report.failure is None and report.points == report.most, str(report)


def test_two_of_equal_length_in_common_are_told():
    common = MeshSize.in_common([CUBE], [MeshSize(1, 3, 2)])
    assert "all axes are equally long" in common
    assert MeshSize.in_common([CUBE, MeshSize(1, 3, 2)], [MeshSize(2, 2, 1)]) == ""


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_groups_that_are_asked_for_are_those_of_comm_mesh():
    sizes = [MeshSize(1, 3, 2), MeshSize(3, 2, 1), MeshSize(2, 1, 3, "tp dp pp")]

    def of_meshes(comm, meshes):
        made = [(axes, comm.split(0).mesh(**axes)) for axes in meshes]
        return [{axis: [*getattr(mesh, axis).members] for axis in axes} for axes, mesh in made]

    run = launch(of_meshes, 6, device="cpu", args=([s.axes for s in sizes],))
    for size, *found in zip(sizes, *run.results, strict=True):
        assert found == [
            {axis: [*size.group(rank, axis)] for axis in size.axes} for rank in range(6)
        ]


@pytest.mark.slow
def test_groups_of_two_are_right_on_the_cube_alone():
    row = ROWS["groups of two, by bits of the rank"]
    report = judged(row.check("groups"), row.programs("groups"))
    assert (report.points, [*report.passed]) == (0.75, [CUBE])


def test_what_groups_returns_is_judged_as_plain_numbers():
    """An object of the student's would answer there that it is equal to anything."""

    class Knows(list):
        def __eq__(self, other):
            return True

    class Axis(str):
        pass

    left = grouped(None, lambda rank, sizes: {Axis(a): Knows([9]) for a in sizes}, CUBE.axes)
    assert {type(each) for own in left.got for each in (*own, *own.values())} == {str, list}
    assert "has on dp the group [9]" in refusal(mesh_checks.check_groups, (CUBE, left))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("groups by places: those that differ on one axis alone", [1]),
        ("groups that begin with the rank that asks", []),
        ("one group, and not one for each axis", []),
    ],
)
def test_the_partner_of_rank_5_is_shown_for_right_groups_of_any_kind_alone(what, shown):
    cells = Assignment("mesh_3d").source.cells
    (code,) = [each.source for each in cells if "my_partner.compare(" in each.source]
    (groups,), opened = ROWS[what].programs("groups"), []
    my_partner = SimpleNamespace(compare=opened.append)
    exec(code, {"mesh_checks": mesh_checks, "groups": groups, "my_partner": my_partner})
    assert opened == shown
    (groups,) = SOLUTION.programs("groups")
    row = groups(5, {"dp": 2, "pp": 2, "tp": 2})["dp"]
    assert [rank for rank in row if rank != 5] == [1]


# -- plans -----------------------------------------------------------------------------------------

LARGE = PlanSize(32, 2)
JUST = PlanSize(24, 1.444868096)  # what the best plan needs
table_of = cache(plan_table)


def chosen(choose, size):
    """What a function chooses in this process."""
    table = table_of(size.devices)
    return Chosen(size, table, mesh_plans._choose(None, choose, table, size.limit))


@pytest.mark.parametrize("size", [PlanSize(8, 8), LARGE, JUST, PlanSize(64, 1)], ids=str)
@right("choose")
def test_a_right_choice_is_right_with_any_limit(row, size):
    (choose,) = row.programs("plan")
    mesh_checks.check_plan.judge(chosen(choose, size))


def test_a_plan_that_fits_into_the_device_need_not_fit_into_the_limit():
    table = table_of(32)
    over = next(
        row for row in table if row["fits"] and row["memory"] > 16e9 and row["seconds"] > 0.6
    )
    said = refusal(mesh_checks.check_plan, Chosen(LARGE, table, over))
    assert "the column fits assumes the device's whole memory" in said


def test_what_choose_returns_is_judged_as_plain_values():
    """An object of the student's would answer there that it is equal to anything."""

    class Knows:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    row = dict.fromkeys(mesh_plans.NAMED, Knows())
    left = chosen(lambda table, memory: row, LARGE)
    assert "which line returns the row itself" in refusal(mesh_checks.check_plan, left)


# -- to look at ------------------------------------------------------------------------------------


def rehearsed(what, **axes):
    return mesh_checks.rehearse(*ROWS[what].programs("sums"), **axes)


@pytest.mark.slow
def test_a_rehearsal_shows_the_bytes_of_each_axis_of_a_paced_step():
    done = rehearsed("the solution")
    assert done.right, repr(done)
    assert done.nbytes == {"dp": 10240.0, "pp": 14336.0, "tp": 16384.0}
    said = " ".join(str(done).split())
    assert "rank 0 sends 10240 bytes along dp, 14336 bytes along pp and 16384 bytes" in said
    spans = done.trace.spans
    for rank in (0, 7):
        bars = spans[(spans.rank == rank) & (spans.kind == "forward")]
        assert bars.name[:2].tolist() == ["64x16·16x16", "64x16·16x16"]
    wrong = rehearsed("gradients averaged over tp too", dp=1, pp=1, tp=2)
    said = " ".join(str(wrong).split())
    assert "the gradients are not those of one process, the sums do not all stay" in said
    assert not wrong.right
    stuck = rehearsed("waits for the gradient before it hands on", dp=1, pp=2, tp=1)
    assert "deadlock" in repr(stuck) and not stuck.right
