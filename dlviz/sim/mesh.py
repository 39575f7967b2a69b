"""What the ranks of a mesh send along each axis in a step of a Transformer, and when it is over.

    mesh_groups({"dp": 2, "pp": 2, "tp": 2})     dp (0, 4) (1, 5) (2, 6) (3, 7)
                                                 pp (0, 2) (1, 3) (4, 6) (5, 7)
                                                 tp (0, 1) (2, 3) (4, 5) (6, 7)

of a step, for m microbatches of T tokens a replica, by the ring, in float32:

    tp   m times: 4 all-reduces of T * h numbers a layer, one beside the embedding, one beside the
         logits, and 3 of T numbers for the loss
    pp   m times activations and m times gradients of T * h numbers between two stages, on each
         tp rank; the gradient of the tied embedding between the first stage and the last
    dp   an all-reduce of the gradients that a rank holds, with a flag a parameter and a weight

All groups of an axis communicate at the same time, so that ranks of a node share its way out.
Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 3. `dlviz.parallel.hybrid` does what this predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlviz.machine import Machine
from dlviz.schedules import make
from dlviz.sim.collective import Messages, transfers
from dlviz.sim.engine import Costs, simulate

ITEMSIZE = 4  # bytes: float32
TENSORS = 16  # parameters of a layer: q, k, v, projection, up, down and two norms, with biases
Groups = dict[str, list[tuple[int, ...]]]


@dataclass(frozen=True)
class MeshStep:
    """A step of a mesh: of each axis `groups`, the `sent` bytes of each rank and those of them that
    go to another node (`between`); `seconds` of an axis is what its messages take on their way, one
    call after the other, and `total` what the step takes (s)."""

    groups: Groups
    sent: dict[str, np.ndarray]
    between: dict[str, np.ndarray]
    seconds: dict[str, float]
    total: float


def mesh_groups(axes: Mapping[str, int]) -> Groups:
    """The groups of each axis of a mesh with these lengths, the last axis fastest: ranks that
    differ in nothing but their place along it."""
    lengths = [*axes.values()]
    grid = np.arange(int(np.prod(lengths))).reshape(lengths)
    rows = {
        name: np.moveaxis(grid, place, -1).reshape(-1, length)
        for place, (name, length) in enumerate(axes.items())
    }
    return {name: sorted(map(tuple, found.tolist())) for name, found in rows.items()}


def mesh_step(
    axes: Mapping[str, int],
    machine: Machine,
    *,
    layers: int,
    hidden: int,
    vocabulary: int,
    sequence: int,
    batch: int,
    microbatches: int,
) -> MeshStep:
    """A step of a Transformer on the ranks of `machine` as a mesh of `axes`: the lengths of dp, pp
    and tp, slowest first. `batch` is the sequences of all replicas.

    The pipeline is 1F1B; a stage takes the products with its weights at the device's FLOP/s, as a
    paced run does, in which attention's own two cost nothing, and then the all-reduces of tp.
    Gradients are averaged after the flush. Raises ValueError where the axes are not all the
    ranks, or do not divide layers, vocabulary or batch.
    """
    dp, pp, tp = (axes[name] for name in ("dp", "pp", "tp"))
    _check(axes, machine, layers, vocabulary, batch, microbatches)
    own, tokens = layers // pp, batch // (dp * microbatches) * sequence
    groups = mesh_groups(axes)
    first = np.zeros(machine.ranks, bool)
    last = first.copy()
    for group in groups["pp"]:
        first[group[0]] = last[group[-1]] = True

    block, calls = tokens * hidden, microbatches
    reduce = _rings(machine, groups["tp"], np.full(machine.ranks, block))
    stages = (4 * own + first + last) * calls  # all-reduces of T * h numbers on each rank
    loss = _rings(machine, groups["tp"], np.where(last, tokens, 0))
    shards = _parameters(own, hidden, vocabulary, sequence, tp, first, last)
    gradients = _rings(machine, groups["dp"], shards)
    forth, back = _neighbours(groups["pp"], block), _neighbours(groups["pp"], block, -1)
    tied = _ends(groups["pp"], vocabulary // tp * hidden)
    told = [(end, start, 2) for g in groups["pp"] for end in g[-1:] for start in g[:-1]]  # the loss
    plan = {
        "dp": [(gradients, 1)],
        "pp": [(forth, calls), (back, calls), (tied, 1), (_table(told), 1)],
        "tp": [(reduce, stages), (loss, 3 * calls)],
    }
    took = {name: [_seconds(table, machine) for table, _ in own] for name, own in plan.items()}
    sent, between = (
        {name: np.sum([_bytes(table, machine, times, out) for table, times in parts], axis=0)
         for name, parts in plan.items()}
        for out in (False, True)
    )  # fmt: skip

    one, small = took["tp"]
    compute = 2 * tokens * own * 12 * hidden**2 / tp
    logits = 2 * tokens * hidden * vocabulary / tp
    ends = [(stage == 0, stage == pp - 1) for stage in range(pp)]
    rate = machine.device.flops
    forward = [(compute + logits * z) / rate + one * (2 * own + a) + small * 3 * z for a, z in ends]
    backward = [2 * (compute + logits * z) / rate + one * (2 * own + z) for _, z in ends]
    costs = Costs(forward=forward, backward=backward, latency=max(took["pp"][:2]))
    flush = simulate(make("1f1b", pp, microbatches), costs)
    after = sum(took["pp"][2:])
    seconds = {
        "dp": took["dp"][0],
        "pp": calls * sum(took["pp"][:2]) + after,
        "tp": int(stages.max()) * one + 3 * calls * small,
    }
    total = float(flush.spans.end.max()) + after + took["dp"][0]
    return MeshStep(groups, sent, between, seconds, total)


def _check(
    axes: Mapping[str, int],
    machine: Machine,
    layers: int,
    vocabulary: int,
    batch: int,
    microbatches: int,
) -> None:
    shown = " x ".join(f"{name}={length}" for name, length in axes.items())
    if int(np.prod([*axes.values()])) != machine.ranks:
        raise ValueError(f"{shown} is not {machine.ranks} ranks: change an axis, or the machine.")
    for what, many, by, of in (
        ("layers", layers, axes["pp"], "pp"),
        ("vocabulary", vocabulary, axes["tp"], "tp"),
        ("batch", batch, axes["dp"] * microbatches, "dp * microbatches"),
    ):
        if many % by:
            raise ValueError(f"{what}={many} is no multiple of {of}={by}: choose one that is.")


def _parameters(
    layers: int,
    hidden: int,
    vocabulary: int,
    sequence: int,
    tp: int,
    first: np.ndarray,
    last: np.ndarray,
) -> np.ndarray:
    """Numbers that each rank gives to the average: its parameters, a flag for each, a weight."""
    block = (12 * hidden**2 + 7 * hidden) // tp + 6 * hidden + TENSORS
    embedding = (first | last) * (vocabulary // tp * hidden + 1)
    return (
        layers * block + embedding + first * (sequence * hidden + 1) + last * 2 * (hidden + 1) + 1
    )


def _table(messages: list[tuple[int, int, int]]) -> np.ndarray:
    """Messages (from, to, numbers of 4 bytes), all at once."""
    rows = [(0, src, dst, 0, count, "copy") for src, dst, count in messages if count]
    return _array(rows)


def _array(rows: list) -> np.ndarray:
    kind = [("step", "i8"), ("src", "i8"), ("dst", "i8"), ("offset", "i8"), ("count", "i8")]
    return np.array(rows, [*kind, ("op", "U4")])


def _neighbours(groups: list[tuple[int, ...]], count: int, way: int = 1) -> np.ndarray:
    pairs = [pair for group in groups for pair in zip(group, group[1:], strict=False)]
    return _table([(pair[::way][0], pair[::way][1], count) for pair in pairs])


def _ends(groups: list[tuple[int, ...]], count: int) -> np.ndarray:
    pairs = [(group[0], group[-1]) for group in groups if len(group) > 1]
    return _table(
        [each for low, high in pairs for each in ((low, high, count), (high, low, count))]
    )


def _rings(machine: Machine, groups: list[tuple[int, ...]], counts: np.ndarray) -> np.ndarray:
    """The rings of all groups, each over its own count of numbers."""
    tables = []
    for group in groups:
        count = int(counts[group[0]])
        if len(group) == 1 or not count:
            continue
        table = transfers("ring", len(group), count, machine)  # of elements
        members = np.array(group)
        table["src"], table["dst"] = members[table["src"]], members[table["dst"]]
        tables.append(table)
    if not tables:
        return _array([])
    joined = np.concatenate(tables)
    return joined[np.argsort(joined["step"], kind="stable")]


def _scaled(table: np.ndarray) -> np.ndarray:
    table = table.copy()
    for name in ("offset", "count"):
        table[name] *= ITEMSIZE
    return table


def _seconds(table: np.ndarray, machine: Machine) -> float:
    """When the last of these messages has been received."""
    if not len(table):
        return 0.0
    messages = Messages(_scaled(table), machine.ranks, machine)
    messages.play()
    return float((messages.received + messages.adding).max())


def _bytes(table: np.ndarray, machine: Machine, times: int | np.ndarray, out: bool) -> np.ndarray:
    """Bytes that each rank sends in so many calls; of these, where `out`, to other nodes."""
    node = np.array([machine.topology.node(rank) for rank in range(machine.ranks)])
    src, dst = table["src"], table["dst"]
    counted = table["count"] * ITEMSIZE * ((node[src] != node[dst]) | (not out))
    sent = np.zeros(machine.ranks, np.int64)
    np.add.at(sent, src, counted)
    return sent * times
