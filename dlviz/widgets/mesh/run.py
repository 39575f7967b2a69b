"""What the explorer of meshes prices and runs: the Transformer of lab 10 on up to 8 ranks.

    between nodes   a link `slower` times as slow as those inside: latency and seconds a byte
    a step          16 sequences, cut by dp into rows, and these into 4 microbatches

No torch before a run.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any

from dlviz.analysis.axes import axes
from dlviz.analysis.steps import seconds_between_ends
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim.mesh import MeshStep, mesh_step
from dlviz.trace import Trace
from dlviz.widgets.control import one_of
from dlviz.widgets.running import Found, Progress, late_words

if TYPE_CHECKING:
    import torch

AXES = ("dp", "pp", "tp")
TITLES = {"dp": "data", "pp": "pipeline", "tp": "tensor"}
LENGTHS = (1, 2, 4)  # of an axis: the model has 4 layers and 4 heads, the batch 16 sequences
NODES = (1, 2, 4)
SLOWER = (1, 2, 5, 10, 20)
RANKS = 8  # at most
STEPS = 3  # of a run
LATE = 0.1  # s that a run may be late
SIZES = {"layers": 4, "hidden": 64, "vocabulary": 128, "sequence": 64}
HEADS = 4
BATCH, MICROBATCHES = 16, 4
DEVICE = Device("explorer", flops=4e8, memory=1e9, memory_bandwidth=1e10)
INSIDE = Link(latency=2e-3, bandwidth=5e7)


def check(values: dict[str, Any]) -> None:
    """Raises ValueError for invalid values."""
    one_of("slower", values["slower"], SLOWER)
    if values["order"] not in ORDERS:
        raise ValueError(
            f"order={values['order']!r} is not a placement: name dp, pp and tp once each, with "
            "commas between, the axis whose ranks are neighbours last."
        )
    ranks = ranks_of(values)
    if ranks > RANKS:
        raise ValueError(
            f"dp * pp * tp = {ranks} ranks are more than {RANKS}: make an axis shorter."
        )
    if ranks % values["nodes"]:
        raise ValueError(
            f"nodes={values['nodes']} cannot share {ranks} rank{'s' * (ranks > 1)} evenly: use "
            "fewer nodes, or a longer axis."
        )


ORDERS = tuple(map(",".join, permutations(AXES)))


def ranks_of(values: dict[str, Any]) -> int:
    return values["dp"] * values["pp"] * values["tp"]


def machine_of(ranks: int, nodes: int, slower: float) -> Machine:
    between = Link(INSIDE.latency * slower, INSIDE.bandwidth / slower)
    return Machine(DEVICE, Topology.racks(nodes, ranks // nodes, INSIDE, between), None)


@lru_cache(maxsize=1000)
def predicted(order: str, dp: int, pp: int, tp: int, nodes: int, slower: float) -> MeshStep:
    lengths = {"dp": dp, "pp": pp, "tp": tp}
    machine = machine_of(dp * pp * tp, nodes, slower)
    return mesh_step(
        {name: lengths[name] for name in order.split(",")},
        machine,
        **SIZES,
        batch=BATCH,
        microbatches=MICROBATCHES,
    )


def placements(
    dp: int, pp: int, tp: int, nodes: int, slower: Collection[int] = SLOWER
) -> dict[str, Any]:
    """The figures of each order of the axes; its seconds at each of SLOWER, None at those not in
    `slower`."""
    found = {}
    for order in ORDERS:
        steps = {slow: predicted(order, dp, pp, tp, nodes, slow) for slow in slower}
        one = next(iter(steps.values()))
        at_each = [steps.get(slow) for slow in SLOWER]
        found[order] = {
            "groups": one.groups,
            "sent": {axis: one.sent[axis].tolist() for axis in AXES},
            "between": {axis: one.between[axis].tolist() for axis in AXES},
            "seconds": {axis: [step and step.seconds[axis] for step in at_each] for axis in AXES},
            "total": [step and step.total for step in at_each],
        }
    return found


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Train on real ranks, paced: what the front end shows, its step by the device clock, and the
    Trace."""
    from dlviz.cluster import launch
    from dlviz.parallel import hybrid

    machine = machine_of(ranks_of(values), values["nodes"], values["slower"])
    lengths = {axis: values[axis] for axis in AXES}
    done = launch(
        hybrid.train,
        machine.ranks,
        machine,
        args=(model(), batches()),
        kwargs={**lengths, "order": values["order"].split(","), "microbatches": MICROBATCHES},
        progress=progress,
    )
    return found(done.trace, done.results[0]["losses"]), done.trace


def model() -> torch.nn.Module:
    """The Transformer without values: each rank draws its own."""
    import torch

    from dlviz.models import Transformer

    with torch.device("meta"):
        return Transformer(
            SIZES["layers"], SIZES["hidden"], HEADS, SIZES["vocabulary"], SIZES["sequence"]
        )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import torch

    shape = (STEPS, BATCH, SIZES["sequence"] + 1)
    given = torch.randint(SIZES["vocabulary"], shape, generator=torch.Generator().manual_seed(0))
    return [(tokens[:, :-1], tokens[:, 1:]) for tokens in given]


def found(trace: Trace, losses: list[float]) -> dict[str, Any]:
    """What a run measured: bytes that each rank sent in a step, and seconds."""
    last = axes(trace, step=STEPS - 1)
    none = [0] * trace.meta["ranks"]
    summary = [f"The median of {STEPS} steps; last loss {losses[-1]:.4g}."]
    return {
        "sent": {axis: last[axis].sent.tolist() if axis in last else none for axis in AXES},
        "between": {axis: last[axis].between.tolist() if axis in last else none for axis in AXES},
        "total": seconds_between_ends(trace),
        "late": late_words(trace.meta["lateness"]["worst"], LATE, trace.meta["ranks"]),
        "summary": summary,
    }
