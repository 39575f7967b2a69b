"""Which links the messages of a mesh's axes cross, and how many axes share a link.

    dp=2, pp=2, tp=2 on nodes of 4        order dp, pp, tp: the last one's ranks are neighbours

    node 0   0 1 2 3     tp 0-1 2-3   pp 0-2 1-3        stride 1 and 2: inside
    node 1   4 5 6 7     tp 4-5 6-7   pp 4-6 5-7
             | | | |     dp 0-4 1-5 2-6 3-7             stride 4: 4 groups share a node's uplink

An axis of n ranks and stride d has its groups in blocks of n d consecutive ranks. It stays inside
nodes of g ranks if these blocks divide the nodes; else min(g, d) of its groups use a node's uplink
at the same time, and each has that part of its bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dlviz.machine import Topology
from dlviz.sim.costs import collective_seconds

AXES = ("dp", "pp", "tp")


@dataclass(frozen=True)
class Axis:
    """An axis of `length` ranks, `stride` apart, on a topology of switches or racks. Of its groups
    that share a link one in `turns` communicates at a time."""

    topology: Topology
    length: int
    stride: int
    turns: int = 1

    def hop(self, place: int) -> tuple[float, float]:
        """Latency (s) and seconds a byte from rank `place` of the axis to the next, cyclically,
        while all its groups send."""
        here = place % self.length * self.stride
        there = (place + 1) % self.length * self.stride
        return self._link_cost(here, there)

    @cached_property
    def slowest(self) -> tuple[float, float]:
        """Latency and seconds a byte of the slowest of all hops."""
        if self.length == 1:
            return 0.0, 0.0
        hops = {self.hop(place) for place in range(self.length)}
        return max(hop[0] for hop in hops), max(hop[1] for hop in hops)

    def all_reduce(self, nbytes: float, gamma: float = 0.0) -> float:
        """Seconds of a ring all-reduce of `nbytes` on each group."""
        alpha, beta = self.slowest
        return collective_seconds("ring", self.length, nbytes, alpha, beta, gamma)

    def sent(self, nbytes: float) -> float:
        """Bytes that a rank sends in an all-reduce of `nbytes`."""
        return 2 * (self.length - 1) / self.length * nbytes

    def by_turns(self, other: Axis) -> Axis:
        """This axis where its groups at different places of `other` communicate one after the
        other, if they share a link that is the slower for it."""
        if other.stride >= self.stride:
            return self
        sharing = min(math.prod(self.topology.sizes[:-1]), self.stride)  # a link of the top level
        found = replace(self, turns=min(other.length, max(1, sharing // other.stride)))
        return found if found.slowest[1] < self.slowest[1] else self

    def _link_cost(self, here: int, there: int) -> tuple[float, float]:
        alpha = beta = 0.0
        below = 1  # ranks that share a link of this level
        for fan_out, link in zip(self.topology.sizes, self.topology.levels, strict=True):
            share = max(1.0, min(below, self.stride) / self.turns)
            alpha, beta = link.latency, max(beta, share / link.bandwidth)
            below *= fan_out
            if self._inside(here, there, below):
                break
        return alpha, beta

    def _inside(self, here: int, there: int, size: int) -> bool:
        """Whether the hop stays in one group of `size` ranks wherever the axis lies."""
        block = self.length * self.stride
        if size % block == 0:
            return True
        aligned = block % size == 0 and size % self.stride == 0
        return aligned and here // size == there // size


def axes_of(
    topology: Topology, lengths: Mapping[str, int], order: Sequence[str]
) -> dict[str, Axis]:
    """The axes of a mesh by name; the last of `order` varies fastest. Raises ValueError for a ring,
    whose axes do not share a single link, for an order that does not name each axis once, and for
    a mesh of more ranks than the topology."""
    if sorted(order) != sorted(lengths):
        raise ValueError(f"order={tuple(order)} has to name each of {', '.join(lengths)} once.")
    total = math.prod(lengths.values())
    if topology.kind == "ring" and topology.ranks > 1:
        raise ValueError("a ring has no nodes to place axes on: use Topology.switch or racks.")
    if total > topology.ranks:
        raise ValueError(
            f"the mesh {dict(lengths)} has {total} ranks and the machine joins {topology.ranks}: "
            "use fewer, or a larger machine."
        )
    found, stride = {}, 1
    for name in reversed(order):
        found[name] = Axis(topology, lengths[name], stride)
        stride *= lengths[name]
    return found
