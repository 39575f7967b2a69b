"""What the ranks of a mesh send along each axis in a step of a Transformer, and how long it takes.

    mesh_groups({"dp": 2, "pp": 2, "tp": 2})     dp (0, 4) (1, 5) (2, 6) (3, 7)
                                                 pp (0, 2) (1, 3) (4, 6) (5, 7)
                                                 tp (0, 1) (2, 3) (4, 5) (6, 7)

in a step of m microbatches of T tokens a replica, by the ring, in float32:

    tp   m times: 4 all-reduces of T * h numbers a layer, one beside the embedding, one beside the
         logits, and 3 of T numbers for the loss
    pp   m times activations and m times gradients of T * h numbers between two stages, on each
         tp rank; the gradient of the tied embedding between the first stage and the last
    dp   an all-reduce of a rank's gradients, with a flag for each parameter and a weight

The bytes are those of each message of each rank. The seconds are the planner's, of a plan with 1F1B
and no recomputation: all groups of an axis communicate at the same time, and share a node's uplink
(axes.py). `dlviz.parallel.hybrid` runs what this predicts.

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlviz.counts import check_counts, of_numbers
from dlviz.machine import Machine
from dlviz.sim.axes import axes_of
from dlviz.sim.collective import transfers
from dlviz.sim.planner import Load
from dlviz.sim.transformer_size import TransformerShape

ITEMSIZE = 4  # bytes: float32
TENSORS = 16  # parameters of a layer: q, k, v, projection, up, down and two norms, with biases
Groups = dict[str, list[tuple[int, ...]]]


@dataclass(frozen=True)
class MeshStep:
    """A step of a mesh: for each axis its `groups`, each rank's `sent` bytes and how many of them
    go to another node (`between`); `seconds`: how long an axis's messages are in transit, one call
    after the other; `total`: seconds of the step."""

    groups: Groups
    sent: dict[str, np.ndarray]
    between: dict[str, np.ndarray]
    seconds: dict[str, float]
    total: float


def mesh_groups(axes: Mapping[str, int]) -> Groups:
    """The groups of each axis of a mesh with these lengths, the last axis fastest: ranks that
    differ only in their place along it."""
    lengths = [*axes.values()]
    grid = np.arange(int(np.prod(lengths))).reshape(lengths)
    rows = {
        name: np.moveaxis(grid, place, -1).reshape(-1, length)
        for place, (name, length) in enumerate(axes.items())
    }
    return {name: sorted(map(tuple, found.tolist())) for name, found in rows.items()}


@of_numbers
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

    Raises ValueError where the axes do not use all ranks, for fewer layers than stages, for a
    vocabulary that tp does not divide, and a batch that dp * microbatches does not divide.
    """
    check_counts(layers=layers, hidden=hidden, vocabulary=vocabulary, sequence=sequence)
    check_counts(batch=batch, microbatches=microbatches)
    axes = {name: int(length) for name, length in axes.items()}  # numpy's may overflow
    dp, pp = axes["dp"], axes["pp"]
    _check(axes, machine, layers, vocabulary, batch, microbatches)
    shape = TransformerShape(layers, hidden, 1, vocabulary, sequence)
    on = axes_of(machine.topology, axes, [*axes])
    load = Load(shape, machine, on, batch // (dp * microbatches), "none", ITEMSIZE, False)
    groups = mesh_groups(axes)
    messages = _messages(load, groups, microbatches)
    sent, between = (
        {name: np.sum([_bytes(table, machine, times, out) for table, times in parts], axis=0)
         for name, parts in messages.items()}
        for out in (False, True)
    )  # fmt: skip
    step = load.row("1f1b", microbatches, ITEMSIZE)
    there_and_back = 2 * max(load.borders(pp, 1), default=0.0)
    seconds = {
        "dp": step["dp_exposed"],
        "pp": microbatches * there_and_back + 2 * load.tied(),
        "tp": step["tp_exposed"],
    }
    return MeshStep(groups, sent, between, seconds, step["seconds"])


def _messages(
    load: Load, groups: Groups, calls: int
) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """For each axis the tables of a call's messages, and how often each rank makes the call, for so
    many microbatches."""
    shape, machine, ranks = load.shape, load.machine, load.machine.ranks
    tokens, every = load.microbatch * shape.sequence, np.ones(ranks, np.int64)
    reduces, losses, gradients = (0 * every for _ in range(3))
    runs = load.runs(len(groups["pp"][0]), 1)
    for place, [(blocks, first, last)] in enumerate(runs):
        here = [group[place] for group in groups["pp"]]
        reduces[here] = (4 * blocks + first + last) * calls
        losses[here] = 3 * last * calls
        flags = TENSORS * blocks + (first or last) + first + 2 * last  # one a parameter
        gradients[here] = load.parameters(runs[place]) + flags + 1  # and a weight
    embedding = shape.vocabulary * shape.hidden // len(groups["tp"][0])
    summary = [
        (end, start, 2) for g in groups["pp"] for end in g[-1:] for start in g[:-1]
    ]  # the loss
    block = tokens * shape.hidden
    return {
        "dp": [(_rings(machine, groups["dp"], gradients), every)],
        "pp": [
            (_neighbours(groups["pp"], block), calls * every),
            (_neighbours(groups["pp"], block, -1), calls * every),
            (_ends(groups["pp"], embedding), every),
            (_table(summary), every),
        ],
        "tp": [
            (_rings(machine, groups["tp"], block * every), reduces),
            (_rings(machine, groups["tp"], tokens * every), losses),
        ],
    }


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
    if layers < axes["pp"]:
        raise ValueError(
            f"layers={layers} are fewer than pp={axes['pp']} stages: make the axis shorter."
        )
    for what, many, by, of in (
        ("vocabulary", vocabulary, axes["tp"], "tp"),
        ("batch", batch, axes["dp"] * microbatches, "dp * microbatches"),
    ):
        if many % by:
            raise ValueError(f"{what}={many} is not a multiple of {of}={by}: choose one that is.")


def _table(messages: list[tuple[int, int, int]]) -> np.ndarray:
    """Messages (from, to, numbers of 4 bytes), all in one step."""
    rows = [(0, src, dst, 0, count, "copy") for src, dst, count in messages if count]
    return _array(rows)


def _array(rows: list) -> np.ndarray:
    kind = [("step", "i8"), ("src", "i8"), ("dst", "i8"), ("offset", "i8"), ("count", "i8")]
    return np.array(rows, [*kind, ("op", "U4")])


def _neighbours(groups: list[tuple[int, ...]], count: int, direction: int = 1) -> np.ndarray:
    pairs = [pair for group in groups for pair in zip(group, group[1:], strict=False)]
    return _table([(pair[::direction][0], pair[::direction][1], count) for pair in pairs])


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


def _bytes(table: np.ndarray, machine: Machine, times: np.ndarray, out: bool) -> np.ndarray:
    """Bytes that each rank sends in so many calls; with `out`, only those to other nodes."""
    node = np.array([machine.topology.node(rank) for rank in range(machine.ranks)])
    src, dst = table["src"], table["dst"]
    counted = table["count"] * ITEMSIZE * ((node[src] != node[dst]) | (not out))
    sent = np.zeros(machine.ranks, np.int64)
    np.add.at(sent, src, counted)
    return sent * times
