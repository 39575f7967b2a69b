"""Checks of a student's training step on a mesh: what was seen, what was expected, one hint.

    groups(rank, sizes)                            the ranks of a rank's group on each axis
    train_step(comm, mesh, part, tokens, targets)  a step along dp, pp and tp (run.py)
    choose(table, memory)                          the best plan under a limit (plans.py)

A step runs on real ranks and is judged by its gradients and by the mesh positions of the sender
and receiver of each message in its Trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from dlviz.grading.assignments.mesh_3d.hints import (
    GROUP,
    why_across,
    why_gradient,
    why_group,
    why_loss,
    why_sum,
)
from dlviz.grading.assignments.mesh_3d.model import Widths, part_of
from dlviz.grading.assignments.mesh_3d.plans import check_plan, plan_table
from dlviz.grading.assignments.mesh_3d.run import (
    AXES,
    Grouped,
    Meshed,
    MeshSize,
    Program,
    attempt,
    attempt_groups,
)
from dlviz.grading.assignments.mesh_3d.variations import same
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, listed, number, passes
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import step_seconds

__all__ = [
    "check_gradients",
    "check_groups",
    "check_loss",
    "check_neighbours",
    "check_plan",
    "check_sums",
    "plan_table",
    "rehearse",
]
RATE = 8e6  # FLOP/s of a rank in a rehearsal
MESSAGE = 0.0005  # s that a message takes in a rehearsal
SIZES = ((2, 2, 2), (2, 1, 2), (1, 2, 2))


def steps(programs: Sequence[Program], sizes: Sequence[MeshSize]) -> Mapping[MeshSize, Any]:
    return at_each(sizes, lambda size: attempt(programs[0], size))


step_check = partial(check, size=MeshSize, sizes=SIZES, run=steps)


@check(
    "the groups of every rank are those of comm.mesh",
    points=3,
    size=MeshSize,
    sizes=((2, 2, 2), (1, 3, 2), (2, 3, 4), (2, 1, 2, "tp dp pp")),
    run=lambda programs, sizes: at_each(
        sizes, lambda size: (size, attempt_groups(programs[0], size))
    ),
)
def check_groups(tried: tuple[MeshSize, Grouped]) -> None:
    """groups(rank, sizes) has, for each axis, the ranks of mesh.<axis> in their order."""
    size, found = tried[0], []
    for rank, own in enumerate(tried[1].got):
        if isinstance(own, str) or {*own} != {*size.axes}:
            raise CheckFailed(
                f"{size}, rank {rank} gets {own!s:.80}",
                f"a dict with the keys {listed([*size.axes])}",
                "groups returns one list of ranks for each axis of sizes, under its name.",
            )
        found.append(own)
    for rank, axis in product(range(size.ranks), size.axes):
        seen, wanted = found[rank][axis], [*size.group(rank, axis)]
        if seen != wanted:
            raise CheckFailed(
                f"{size}, rank {rank} has on {axis} the group {seen!r:.60}",
                f"{wanted}, as mesh.{axis}.members says",
                why_group(size, found, rank, axis) if seen else GROUP,
            )


@dataclass(frozen=True)
class Stages(MeshSize):
    """A mesh for the check of what the stages send on."""

    @property
    def trivial(self) -> bool:
        return self.pp == 1


@check(
    "each stage hands on to its neighbour in its own replica",
    points=2,
    size=Stages,
    sizes=((2, 2, 2), (1, 2, 2)),
    run=steps,
)
def check_neighbours(tried: Meshed) -> None:
    """In the Trace whole activations go from (d, 0, t) to (d, 1, t), once, and their gradients
    back, once; no others are sent."""
    size = tried.size
    wanted = {
        pair: 1
        for rank in range(size.ranks)
        for pair in ((rank, other) for other in size.group(rank, "pp"))
        if pair[0] != pair[1]
    }
    if tried.handed_on == wanted:
        return
    seen = {pair: n for pair, n in tried.handed_on.items() if wanted.get(pair) != n}
    for (src, dst), count in seen.items():
        own, other = size.place(src), size.place(dst)
        apart = [axis for axis in AXES if own[axis] != other[axis]]
        raise CheckFailed(
            f"{size}, rank {src} sends {number(count, 'time')} activations or their gradient to "
            f"rank {dst}, which differs from it on {listed(apart)}",
            "one message to the next or the previous stage, in the same replica and with the same "
            "number on tp",
            _why_neighbour(apart),
        )
    src, dst = next(pair for pair in wanted if pair not in tried.handed_on)
    raise CheckFailed(
        f"{size}, rank {src} sends rank {dst} neither activations nor a gradient",
        "activations forward, their gradient backward",
        "which line sends, which one receives, and on which stage does each of them run?",
    )


def _why_neighbour(apart: Sequence[str]) -> str:
    if "dp" in apart:
        return (
            "another replica works on other rows: its loss knows nothing of these activations. In "
            "which group are the stages of one replica?"
        )
    if "tp" in apart:
        return (
            "the values are right, since y is whole on every rank of tp, yet the message leaves "
            "the group of pp: a rank and its neighbour have the same number on tp."
        )
    return "once in each direction is enough: which message is sent again?"


@step_check("each sum stays in its group", points=4)
def check_sums(tried: Meshed) -> None:
    """In the Trace no sum except the loss's leaves the group of one axis, and each group moves
    2(n-1) times the bytes of its tensors: tp the activations of f and g, dp gradients, pp the
    embedding's."""
    size = tried.size
    across = [(ranks, nbytes) for (axis, ranks), nbytes in tried.summed.items() if axis == "across"]
    if across:  # the first of those that span most axes, independent of message order
        ranks, nbytes = max(sorted(across), key=lambda each: len(size.apart(each[0])))
        raise CheckFailed(
            f"{size}, {nbytes:.0f} bytes of sums go along more than one axis: between ranks "
            f"{listed([str(rank) for rank in ranks])}",
            "each sum stays in a group of mesh.dp, of mesh.pp or of mesh.tp",
            why_across(size, ranks),
        )
    for key, seen, wanted in tried.odd_sums():
        axis, ranks = key
        raise CheckFailed(
            f"{size}, the ranks {listed([str(rank) for rank in ranks])} of {axis} send "
            f"{seen:.0f} bytes for sums",
            f"{wanted:.0f} bytes: 2(n-1) times those of the tensors that {axis} adds up",
            why_sum(tried, key, seen > wanted),
        )


@step_check("all ranks end with the gradients of one process", points=4)
def check_gradients(tried: Meshed) -> None:
    """After each of two steps, with an update between them, every gradient is that of one
    process of plain torch with all rows."""
    size = tried.size
    for step, reference in enumerate(tried.reference):
        for rank, own in enumerate(tried.left):
            at = size.place(rank)
            right = part_of(reference.gradients, size.pp, at["pp"], size.tp, at["tp"])
            wrong = [name for name in right if not same(own.gradients[step].get(name), right[name])]
            if wrong:
                summary = min(wrong, key=lambda name: name == "embedding")
                what, hint = why_gradient(tried, step, rank, wrong)
                raise CheckFailed(
                    f"{size}, in step {step} the gradient of {summary} on rank {rank} is {what} "
                    f"(wrong: {', '.join(wrong)})",
                    "the gradients of one process with the rows of all replicas",
                    hint,
                )


@step_check("every rank returns the mean loss of all rows", points=1)
def check_loss(tried: Meshed) -> None:
    """Every rank returns the loss of one process with the given weights."""
    wanted = tried.reference[0].loss
    for rank, own in enumerate(tried.left):
        seen = own.losses[0]
        if not isinstance(seen, float) or not abs(seen - wanted) < 1e-9 * abs(wanted):
            raise CheckFailed(
                f"{tried.size}, rank {rank} returns "
                f"{seen if isinstance(seen, str) else f'the loss {seen:.6g}'}",
                f"{wanted:.6g}, the mean over the tokens of all replicas, on every rank",
                why_loss(tried, rank, seen)
                if isinstance(seen, float)
                else "which line returns the loss, a number or a tensor of one?",
            )


@dataclass(repr=False)
class MeshRehearsal(Rehearsal):
    """A rehearsed step: the bytes that rank 0 sends along each axis."""

    nbytes: dict[str, float] = field(default_factory=dict)


def rehearse(program: Callable[..., Any], dp: int = 2, pp: int = 2, tp: int = 2) -> Rehearsal:
    """Run a paced step: products take the time of their FLOPs."""
    size = MeshSize(dp, pp, tp)
    topology = Topology.switch(size.ranks, Link(MESSAGE, float("inf")))
    machine = Machine(replace(classroom(size.ranks).device, flops=RATE), topology, step=None)
    widths = Widths(rows=8, tokens=8, hidden=16, inner=32, vocabulary=48)
    try:
        tried = attempt(program, size, widths, machine)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, size.ranks)
    checks = (check_gradients, check_loss, check_neighbours, check_sums)
    right = [passes(each.judge, tried) for each in checks]
    nbytes = {axis: tried.bytes_along(axis, 0) for axis in AXES}
    summary = (
        f"{number(size.ranks, 'rank')}; rank 0 sends "
        + listed([f"{each:.0f} bytes along {axis}" for axis, each in nbytes.items()])
        + f"; a step of {1000 * step_seconds(tried.trace, 'device')[0]:.0f} ms; "
        f"the gradients are {'those' if right[0] else 'not those'} of one process, "
        f"the sums {'stay' if right[3] else 'do not all stay'} in their groups"
    )
    return MeshRehearsal(tried.trace.only(step=0), summary, all(right), nbytes)
