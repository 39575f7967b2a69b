"""What a training step of a convolution costs under each cut of its dims, and what a change of
the cut between two layers costs.

    {"N": 2, "H": 4}    2 parts of the samples x 4 of the rows: 8 ranks, of which those of the last
                        dim are neighbours. N, H and W come first; C and F in the order given

x has its channels cut over C and then F, y over F and then C: after {"C": 2, "F": 2} nothing moves
for {"F": 2, "C": 2}, in which the two change places. A step, on the rank of the largest block:

    forward     gather x over F; convolve, while the halo of x travels; reduce-scatter y over C
    backward    gather dy over C; dw and dx, while the halo of dx travels back; reduce-scatter dx
                over F; all-reduce dw over the ranks of N, H and W, which hold the same weights

The forward takes 2 FLOP for each multiplication, dw and dx as many each. Only outputs that read a
rank's own pixels alone are computed while the halo travels, and so are their gradients. Blocks,
halos and what moves between two cuts are counted element by element, for every rank; collectives
are rings. Pooling, normalisation, the loss and the update take no time.

Source: N. Dryden et al., "Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained
Parallelism", IPDPS 2019, sections IV and V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from dlviz.counts import check_counts, of_numbers
from dlviz.machine import Machine, Topology
from dlviz.sim.axes import Axis, axes_of
from dlviz.sim.convolution import ITEMSIZE
from dlviz.sim.costs import collective_seconds
from dlviz.sim.layer_shapes import LayerShape

DIMS = ("N", "H", "W", "C", "F")
Cut = Mapping[str, int]
Bounds = tuple[np.ndarray, np.ndarray]  # of each rank: the first, and the end (exclusive)
Block = tuple[Bounds, ...]  # of samples, channels or filters, rows, columns


@dataclass(frozen=True)
class LayerCost:
    """A training step of a layer: `parts`, (seconds, elements that a rank sends) of each part of
    it; `memory`, the bytes that a rank holds for it until its backward: weights, their gradients,
    and its input. A halo's seconds are those for which the computation waits."""

    parts: dict[str, tuple[float, float]]
    memory: float

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.parts.values())

    @property
    def words(self) -> float:
        return sum(words for _, words in self.parts.values())


class NetCosts(NamedTuple):
    """Of each layer of a net under each cut `seconds` and `memory` in bytes, (layers, cuts); and
    `switches`, the seconds from each cut of a layer to each of the next, (layers - 1, cuts, cuts).
    A layer that a cut does not suit takes infinitely long."""

    seconds: np.ndarray
    switches: np.ndarray
    memory: np.ndarray


@of_numbers
def convolution_cuts(ranks: int, dims: Sequence[str] = DIMS) -> list[dict[str, int]]:
    """Every cut of a layer over `ranks` ranks by these `dims`; where C and F are both cut, in both
    orders. Raises ValueError for fewer than 1 rank, and another dim."""
    check_counts(ranks=ranks)
    found = []
    for parts in _products(ranks, len(dims)):
        cut = _ordered(dict(zip(dims, parts, strict=True)))
        found.append(cut)
        if {"C", "F"} <= cut.keys():
            turned = {dim: parts for dim, parts in cut.items() if dim != "C"}
            found.append(turned | {"C": cut["C"]})
    return found


def cut_name(cut: Cut) -> str:
    """A cut in words: `N 2, H 4`."""
    return ", ".join(f"{dim} {parts}" for dim, parts in _ordered(cut).items()) or "whole"


def layer_cost(
    layer: LayerShape,
    cut: Cut,
    machine: Machine,
    *,
    first: bool = False,
    keep_gathered: bool = False,
) -> LayerCost:
    """A training step of `layer` under `cut` on the ranks of `machine`, in float32. The `first`
    layer of a net has no dx. x is gathered over F once more for dw, or `keep_gathered` until then.

    Raises ValueError for a cut of another number of ranks or of unknown dims, for groups that a cut
    of the channels splits, and for a machine whose ranks are on a ring."""
    own = _places(cut, machine)
    whole = keep_gathered or own.cut.get("F", 1) == 1
    x, y = own.input(layer), own.output(layer)
    gathered = (x[0], own.bounds(layer.channels, "C"), *x[2:])
    read = (*gathered[:2], *_read(layer, y))  # with the halo
    weights = _weights(layer, own)
    if weights is None:
        raise ValueError(
            f"groups={layer.groups} are split by the cut {cut_name(cut)}: each rank needs the "
            "channels of whole groups. Cut F instead, or C into parts that divide the groups."
        )
    parameters = weights + _lengths(y[1]) * layer.bias
    flops = 2 * weights * _elements((y[0], *y[2:]))
    halo = _shared(gathered, read) * own.alike("F")
    on = _axes(machine.topology, own.cut)
    gather_x = _collective("all_gather", on["F"], _elements(gathered))
    parts = {
        "gather x": gather_x,
        **_convolved(machine, "forward", "halo of x", halo, flops, own.inside(layer)),
        "reduce-scatter y": _collective("reduce_scatter", on["C"], _elements(y)),
        "gather dy": _collective("all_gather", on["C"], _elements(y)),
        "gather x again": (0.0, 0.0) if whole else gather_x,
        **_convolved(
            machine, "backward", "halo of dx", halo.T * (not first), flops * (2 - first),
            own.inside(layer),
        ),
        "reduce-scatter dx": (0.0, 0.0)
        if first
        else _collective("reduce_scatter", on["F"], _elements(gathered)),
        "all-reduce dw": _collective("all_reduce", on["NHW"], parameters),
    }  # fmt: skip
    held = 2 * parameters + _elements(read if whole else x)
    return LayerCost(parts, float(held.max()) * ITEMSIZE)


def switch_cost(layer: LayerShape, before: Cut, cut: Cut, machine: Machine) -> LayerCost:
    """What it takes to bring the input of `layer` from the cut of the layer before it to its own
    `cut`, and its gradient back. Raises ValueError as `layer_cost`."""
    moved = _moved(layer, [_places(before, machine)], [_places(cut, machine)])[0, 0]
    parts = {
        name: (float(_travels(machine.topology, own).max()), float(own.sum(axis=1).max()))
        for name, own in (("x", moved), ("dx", moved.T))
    }
    return LayerCost(parts, 0.0)


def net_costs(
    layers: Sequence[LayerShape],
    candidates: Sequence[Cut],
    machine: Machine,
    *,
    keep_gathered: bool = False,
) -> NetCosts:
    """The costs of each of the `layers` under each of the `candidates`, for `cheapest_path`. Raises
    ValueError as `layer_cost`, but for groups that a cut splits."""
    own: dict[tuple[LayerShape, bool], list[tuple[float, float]]] = {}  # nets repeat their layers
    switches: dict[tuple[int, ...], np.ndarray] = {}
    places = [_places(cut, machine) for cut in candidates]
    keys = [(layer, number == 0) for number, layer in enumerate(layers)]
    for layer, first in keys:
        if (layer, first) not in own:
            own[layer, first] = [
                _cost(layer, cut, machine, first, keep_gathered) for cut in candidates
            ]
        if layer.input not in switches and not first:
            moved = _moved(layer, places, places)
            there, back = (_travels(machine.topology, x) for x in (moved, moved.swapaxes(2, 3)))
            switches[layer.input] = there.max(axis=2) + back.max(axis=2)
    costs = np.array([own[key] for key in keys])
    between = np.array([switches[layer.input] for layer, first in keys if not first])
    shape = len(layers) - 1, len(candidates), len(candidates)
    return NetCosts(costs[..., 0], between.reshape(shape), costs[..., 1])


def _cost(
    layer: LayerShape, cut: Cut, machine: Machine, first: bool, keep_gathered: bool
) -> tuple[float, float]:
    """Seconds and memory."""
    if _weights(layer, _places(cut, machine)) is None:
        return math.inf, 0.0
    found = layer_cost(layer, cut, machine, first=first, keep_gathered=keep_gathered)
    return found.seconds, found.memory


@of_numbers
def cut_seconds(
    candidates: Sequence[Cut],
    machine: Machine,
    *,
    samples: int,
    channels: Sequence[int],
    sizes: Sequence[int],
    kernel: int = 3,
) -> dict[str, np.ndarray]:
    """Seconds of a layer of as many filters as channels under each of the `candidates`, by name
    (sizes, channels), for images of these `sizes`, which the layer's padding keeps. Raises
    ValueError as `layer_cost`."""
    shapes = [
        LayerShape(samples, width, width, size, size, kernel, padding=kernel // 2)
        for size in sizes
        for width in channels
    ]
    form = len(sizes), len(channels)
    return {
        cut_name(cut): np.reshape([layer_cost(each, cut, machine).seconds for each in shapes], form)
        for cut in candidates
    }


class _Places:
    """Where the blocks of each rank lie under a cut."""

    def __init__(self, cut: dict[str, int]):
        self.cut, self.ranks = cut, math.prod(cut.values())
        spots = np.indices([*cut.values()]).reshape(len(cut), self.ranks)
        self._at = dict(zip(cut, spots, strict=True))

    def bounds(self, length: int, dims: str) -> Bounds:
        """Each rank's block of a dim of `length` that these dims of the cut divide, the first one
        first."""
        low, high = np.zeros(self.ranks, np.int64), np.full(self.ranks, length)
        for dim in dims:
            parts, at = self.cut.get(dim, 1), self._at.get(dim, 0)
            least, more = np.divmod(high - low, parts)
            low = low + at * least + np.minimum(at, more)
            high = low + least + (at < more)
        return low, high

    def input(self, layer: LayerShape, channels: str = "CF") -> Block:
        """Of x; as the layer before leaves it, its `channels` are cut by F and then C."""
        dims = zip(layer.input, ("N", channels, "H", "W"), strict=True)
        return tuple(self.bounds(*each) for each in dims)

    def output(self, layer: LayerShape) -> Block:
        """Of y before the sum over C."""
        sizes = layer.samples, layer.filters, *layer.outputs
        return tuple(self.bounds(*each) for each in zip(sizes, "NFHW", strict=True))

    def inside(self, layer: LayerShape) -> np.ndarray:
        """The share of each rank's outputs that read its own pixels alone."""
        share = np.ones(self.ranks)
        for dim, name in ((2, "H"), (3, "W")):
            if name in self.cut:
                (low, high), (held, end) = self.output(layer)[dim], self.input(layer)[dim]
                first = -(-(held + layer.padding) // layer.stride)
                last = (end + layer.padding - layer.span) // layer.stride + 1
                own = np.minimum(last, high) - np.maximum(first, low)
                share *= np.maximum(own, 0) / np.maximum(high - low, 1)
        return share

    def alike(self, dim: str) -> np.ndarray:
        """Which ranks have the same place along a dim, (ranks, ranks)."""
        at = self._at.get(dim, np.zeros(self.ranks))
        return at[:, None] == at


def _places(cut: Cut, machine: Machine) -> _Places:
    own = _ordered(cut)
    if math.prod(own.values()) != machine.ranks:
        raise ValueError(
            f"cut={dict(cut)!r} is for {math.prod(own.values())} ranks and the machine has "
            f"{machine.ranks}: change a dim, or the machine."
        )
    return _Places(own)


def _ordered(cut: Cut) -> dict[str, int]:
    """The dims that are cut, N, H and W first. Raises ValueError."""
    if unknown := {*cut} - {*DIMS}:
        raise ValueError(f"a layer has no dim {sorted(unknown)[0]!r}: cut {', '.join(DIMS)}.")
    check_counts(1, f"cut={dict(cut)!r}: ", **cut)
    images = {dim: cut[dim] for dim in "NHW" if dim in cut}
    return {dim: int(parts) for dim, parts in (images | dict(cut)).items() if parts > 1}


def _products(ranks: int, many: int) -> Iterator[tuple[int, ...]]:
    """All lists of `many` whole numbers whose product is `ranks`."""
    if many == 1:
        yield (ranks,)
    elif many:
        for first in (each for each in range(ranks, 0, -1) if ranks % each == 0):
            yield from ((first, *rest) for rest in _products(ranks // first, many - 1))


def _read(layer: LayerShape, y: Block) -> tuple[Bounds, Bounds]:
    """The rows and columns that each rank's outputs read, clipped to the image."""
    found = []
    for (low, high), length in ((y[2], layer.height), (y[3], layer.width)):
        first = low * layer.stride - layer.padding
        end = np.where(high > low, first + (high - low - 1) * layer.stride + layer.span, first)
        found.append((np.clip(first, 0, length), np.clip(end, 0, length)))
    return found[0], found[1]


def _weights(layer: LayerShape, own: _Places) -> np.ndarray | None:
    """Elements of w on each rank: its filters of its channels, or of those groups of which it has
    the channels; None where these are no whole groups."""
    channels, filters = own.bounds(layer.channels, "C"), own.bounds(layer.filters, "F")
    inputs, outputs = layer.channels // layer.groups, layer.filters // layer.groups  # of a group
    if layer.groups == 1:
        return _lengths(filters) * _lengths(channels) * layer.kernel**2
    if (channels[0] % inputs).any():
        return None
    low, high = (edge // inputs * outputs for edge in channels)
    rows = np.minimum(filters[1], high) - np.maximum(filters[0], low)
    return np.maximum(rows, 0) * inputs * layer.kernel**2


def _moved(layer: LayerShape, before: list[_Places], after: list[_Places]) -> np.ndarray:
    """The elements of the layer's input that go from each rank to each other one, from each cut to
    each other one: (before, after, from, to)."""
    old = np.array([each.input(layer, "FC") for each in before])  # (cuts, dims, 2, ranks)
    new = np.array([each.input(layer) for each in after])
    held, wanted = old[:, None].transpose(2, 3, 0, 1, 4), new[None].transpose(2, 3, 0, 1, 4)
    return _shared(held, wanted)


def _shared(held: Any, wanted: Any) -> np.ndarray:
    """The elements that each rank holds of what another one wants, (..., from, to); 0 of its own.
    `held` and `wanted` are bounds (..., ranks) of each dim."""
    found = 1 - np.eye(held[0][0].shape[-1], dtype=np.int64)
    for (low, high), (first, end) in zip(held, wanted, strict=True):
        last = np.minimum(high[..., :, None], end[..., None, :])
        found = found * np.maximum(last - np.maximum(low[..., :, None], first[..., None, :]), 0)
    return found


def _lengths(bounds: Bounds) -> np.ndarray:
    return bounds[1] - bounds[0]


def _elements(block: Block) -> np.ndarray:
    return np.prod([_lengths(bounds) for bounds in block], axis=0)


def _convolved(
    machine: Machine, name: str, what: str, halo: np.ndarray, flops: np.ndarray, inside: np.ndarray
) -> dict[str, tuple[float, float]]:
    """The ranks' `flops`, the share `inside` of them while the `halo` travels."""
    travels, compute = _travels(machine.topology, halo), flops / machine.device.flops
    waits = np.maximum(travels - compute * inside, 0)
    exposed = float((compute + waits).max() - compute.max())
    words = float(halo.sum(axis=1).max())
    return {name: (float(compute.max()), 0.0), what: (exposed, words)}


def _collective(how: str, axis: Axis, elements: np.ndarray) -> tuple[float, float]:
    """Seconds of a ring over the largest of the ranks' `elements`, and how many a rank sends."""
    if axis.length == 1:
        return 0.0, 0.0
    most, turns = float(elements.max()), 2 if how == "all_reduce" else 1
    seconds = collective_seconds(how, axis.length, most * ITEMSIZE, *axis.slowest)
    return seconds, turns * (axis.length - 1) / axis.length * most


def _axes(topology: Topology, cut: Mapping[str, int]) -> dict[str, Axis]:
    """Of C and of F, and one of all ranks that hold the same weights."""
    images = math.prod(parts for dim, parts in cut.items() if dim in "NHW")
    lengths = {"NHW": images, "C": 1, "F": 1, **{d: n for d, n in cut.items() if d in "CF"}}
    order = ["NHW", *(["F", "C"] if [*cut][-1:] == ["C"] else ["C", "F"])]
    return axes_of(topology, lengths, order)


def _travels(topology: Topology, moved: np.ndarray) -> np.ndarray:
    """Seconds until each rank has sent and received its messages of `moved` elements, (..., from,
    to), one after the other on its port and on links that it shares."""
    latency, per_byte, shared = _paths(topology)
    sent = moved > 0
    taken = np.where(sent, latency + moved * ITEMSIZE * per_byte, 0.0)
    found = np.maximum(taken.sum(axis=-1), taken.sum(axis=-2))
    for uses, alpha, beta in shared:
        own = sent & uses
        busy = np.where(own, alpha + moved * ITEMSIZE * beta, 0.0).sum(axis=(-2, -1))
        waits = own.any(axis=-1) | own.any(axis=-2)
        found = np.where(waits, np.maximum(found, busy[..., None]), found)
    return found


@lru_cache(maxsize=64)
def _paths(
    topology: Topology,
) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, float, float]]]:
    """Latency and seconds a byte from each rank to each, and of each link that pairs share those
    pairs, its latency and its seconds a byte."""
    ranks = topology.ranks
    latency, per_byte = np.zeros((2, ranks, ranks))
    links = topology.links
    uses = np.zeros((len(links), ranks, ranks), bool)
    for src, dst in permutations(range(ranks), 2):
        path = topology.path(src, dst)
        latency[src, dst], per_byte[src, dst] = path.latency, 1 / path.bandwidth
        uses[[number for number, _ in path.shared], src, dst] = True
    shared = [
        (own, link.latency, 1 / link.bandwidth) for own, link in zip(uses, links, strict=True)
    ]
    return latency, per_byte, shared
