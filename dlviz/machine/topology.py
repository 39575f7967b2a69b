"""How ranks are connected: the links between them, and which of them a message crosses.

    switch   every rank on one switch               ring    each rank linked to the next
    racks    nodes of ranks, fast inside,           tree    switches of switches: `radix` ranks
             one slower link out of each                    or switches under each

A message of n bytes takes latency + n / bandwidth (the alpha-beta model). Every rank has a port,
full duplex. A link that several pairs of ranks share, such as the one out of a node, carries one
message at a time in each direction; `Path.shared` names those that a message crosses.

On a switch each rank may have its own link, of latency L and bandwidth B. A message crosses its
sender's and its receiver's at the same time (cut-through):

    it arrives, at the earliest, after    max(L_src + n / B_src, L_dst + n / B_dst)
    its sender's port is busy for         L_src + n / B_src
    its receiver's port is busy for       L_dst + n / B_dst

Messages between the same two ranks arrive in the order in which they were sent.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlviz.counts import SLOWEST, check_amounts, check_counts, closed_form

PICOSECONDS = 1e12  # in a second
USUAL = 1e6  # bytes of the message that links are compared by


def moment(seconds: float) -> int:
    """A time in whole picoseconds: times that differ only by rounding are the same moment."""
    return round(seconds * PICOSECONDS)


@dataclass(frozen=True)
class Link:
    """What a message takes: latency + nbytes / bandwidth (s, bytes/s; bandwidth may be inf)."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        require("Link", "latency", self.latency, zero=True, infinite=False)
        require("Link", "bandwidth", self.bandwidth, zero=False, infinite=True)
        if self.bandwidth < 1 / SLOWEST:
            raise ValueError(
                f"Link: bandwidth={self.bandwidth!r} has to be bytes per second, at least "
                f"{1 / SLOWEST:g}: for {self.bandwidth:g} s/byte give {1 / self.bandwidth:g}."
            )

    @closed_form
    def seconds(self, nbytes: float) -> float:
        check_amounts(nbytes=nbytes)
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Path:
    """From one rank's port to another's: its latency (s), its bandwidth (bytes/s), and the
    `shared` links that other pairs of ranks use as well, each as (link id, Link). `ends` are the
    sender's and the receiver's links where ranks have their own: latency and bandwidth are then the
    worse of the two."""

    latency: float
    bandwidth: float
    shared: tuple[tuple[int, Link], ...] = ()
    ends: tuple[Link, Link] | None = None

    def seconds(self, nbytes: float) -> float:
        """The shortest time from a message's departure to its arrival at the receiver's port."""
        return max(self.sending(nbytes), self.taking(nbytes))

    def sending(self, nbytes: float) -> float:
        """How long a message occupies its sender's port."""
        return self._port(0, nbytes)

    def taking(self, nbytes: float) -> float:
        """How long a message occupies its receiver's port."""
        return self._port(1, nbytes)

    def _port(self, end: int, nbytes: float) -> float:
        link = self.ends[end] if self.ends else self
        return link.latency + nbytes / link.bandwidth


@dataclass(frozen=True)
class Topology:
    """Made by `switch`, `ring`, `racks` or `tree`; ranks are numbered from 0.

    A hierarchy: `sizes[0]` ranks make a group, `sizes[1]` groups a larger one and so on, and two
    ranks whose smallest common group is of level k reach each other over `levels[k]`. `own`: the
    link of each rank where they differ; closed forms and planners, which know one link a level,
    then price every message by the largest latency and the smallest bandwidth, those of `levels`.
    """

    kind: str
    ranks: int
    sizes: tuple[int, ...]
    levels: tuple[Link, ...]
    own: tuple[Link, ...] | None = None

    def __str__(self) -> str:
        shape = {"ring": "in a ring", "racks": f"in {-(-self.ranks // self.sizes[0])} racks"}
        return shape.get(self.kind, f"on a {self.kind}")

    @staticmethod
    def switch(ranks: int, link: Link | Sequence[Link]) -> Topology:
        """Every rank reaches every other over `link`; pairs share nothing but ports. `link` may
        also be a list, a link for each rank: a message then crosses its sender's and its
        receiver's. Raises ValueError unless there is one for each rank."""
        ranks = count("Topology.switch", "ranks", ranks)
        if isinstance(link, Link):
            return Topology("switch", ranks, (ranks,), (link,))
        own = _check_links("Topology.switch", link, ranks)
        slowest = Link(max(each.latency for each in own), min(each.bandwidth for each in own))
        return Topology("switch", ranks, (ranks,), (slowest,), own if len({*own}) > 1 else None)

    @staticmethod
    def ring(ranks: int, link: Link) -> Topology:
        """Rank r is linked to r+1 and r-1 by `link`; messages take the shorter direction, each hop
        adding a latency, and that through rank r+1 where both are equally long."""
        ranks = count("Topology.ring", "ranks", ranks)
        return Topology("ring", ranks, (ranks,), (link,))

    @staticmethod
    def racks(nodes: int, ranks_per_node: int, inside: Link, between: Link) -> Topology:
        """Two ranks of a node reach each other over `inside`, ranks of two nodes over `between`,
        which all ranks of a node share: one link out of each node and one into it."""
        nodes = count("Topology.racks", "nodes", nodes)
        size = count("Topology.racks", "ranks_per_node", ranks_per_node)
        return Topology("racks", nodes * size, (size, nodes), (inside, between))

    @staticmethod
    def tree(ranks: int, radix: int, link: Link, *levels: Link) -> Topology:
        """`radix` ranks under a switch, `radix` switches under the next and so on: ranks under one
        switch of level 0 reach each other over `link`, those joined at level k over `levels[k-1]`,
        of which every switch of level k-1 has one up and one down. ValueError if too many."""
        ranks = count("Topology.tree", "ranks", ranks)
        radix = count("Topology.tree", "radix", radix)
        levels = (link, *levels)
        if radix ** len(levels) < ranks:
            raise ValueError(
                f"Topology.tree: {ranks} ranks do not fit under {len(levels)} levels of radix "
                f"{radix}, which hold {radix ** len(levels)}: give a link for each level."
            )
        return Topology("tree", ranks, (radix,) * len(levels), levels)

    @property
    def links(self) -> tuple[Link, ...]:
        """Every link that pairs of ranks share, one for each direction; a link's id is its place.

        Ring: first each rank's to the next, then each rank's to the previous one. Racks and trees:
        each group's uplink, then its downlink, level by level.
        """
        if self.kind == "ring":
            many = {1: 0, 2: 2}.get(self.ranks, 2 * self.ranks)
            return self.levels * many
        return tuple(
            link
            for level, link in enumerate(self.levels[1:])
            for _ in range(2 * self._groups(level))
        )

    def path(self, src: int, dst: int) -> Path:
        """The path of a message from `src` to `dst`; to itself it has no links. Raises ValueError
        for an unknown rank."""
        src, dst = self._rank(src), self._rank(dst)
        if src == dst:
            return Path(0.0, math.inf)
        if self.kind == "ring":
            return self._round(src, dst)
        if self.own:
            ends = self.own[src], self.own[dst]
            worst = max(end.latency for end in ends), min(end.bandwidth for end in ends)
            return Path(*worst, ends=ends)
        top, shared, first = 0, [], 0
        while src // self._size(top) != dst // self._size(top):
            up, down = (2 * (rank // self._size(top)) for rank in (src, dst))
            top += 1
            link = self.levels[top]
            shared += [(first + up, link), (first + down + 1, link)]
            first += 2 * self._groups(top - 1)
        bandwidth = min(link.bandwidth for link in self.levels[: top + 1])
        return Path(self.levels[top].latency, bandwidth, tuple(shared))

    @property
    def outline(self) -> dict[str, Any]:
        """What a picture needs: the kind and, level by level, how many ranks a group holds; where
        ranks have their own links, the ranks whose link is `slow`: slower than most ranks'."""
        sizes = [self._size(level) for level in range(len(self.sizes))]
        found: dict[str, Any] = {"kind": self.kind, "sizes": sizes}
        if self.own:
            usual = self._usual.seconds(USUAL)
            slow = [rank for rank, link in enumerate(self.own) if link.seconds(USUAL) > usual]
            found["slow"] = slow
        return found

    @property
    def odd_links(self) -> list[str]:
        """A figure's words on ranks whose link is not the usual one: `rank 3's link is 10x slower`;
        ranks with the same link are named together."""
        ranks: dict[Link, list[int]] = {}
        for rank, link in enumerate(self.own or ()):
            if link != self._usual:
                ranks.setdefault(link, []).append(rank)
        return [
            f"rank {of[0]}'s link {_compared(link, self._usual)}"
            if len(of) == 1
            else f"each link of ranks {', '.join(map(str, of))} {_compared(link, self._usual)}"
            for link, of in ranks.items()
        ]

    @property
    def _usual(self) -> Link:
        """The most frequent link; of equally frequent ones the fastest."""
        many = Counter(self.own)
        return min(many, key=lambda link: (-many[link], link.seconds(USUAL)))

    def node(self, rank: int) -> int:
        """The number of the rank's node (racks) or lowest switch (tree); 0 if there is only one."""
        rank = self._rank(rank)
        return 0 if self.kind == "ring" else rank // self.sizes[0]

    def _round(self, src: int, dst: int) -> Path:
        link, ahead = self.levels[0], (dst - src) % self.ranks
        if 2 * ahead <= self.ranks:
            ids = [(src + hop) % self.ranks for hop in range(ahead)]
        else:
            hops = range(self.ranks - ahead)
            ids = [self.ranks + (src - hop) % self.ranks for hop in hops]
        return Path(link.latency * len(ids), link.bandwidth, tuple((i, link) for i in ids))

    def _size(self, level: int) -> int:
        return math.prod(self.sizes[: level + 1])

    def _groups(self, level: int) -> int:
        return -(-self.ranks // self._size(level))

    def _rank(self, rank: int) -> int:
        if not 0 <= rank < self.ranks:
            raise ValueError(
                f"rank {rank} is not in this topology: it has ranks 0 to {self.ranks - 1}."
            )
        return rank


def _check_links(whose: str, links: Any, ranks: int) -> tuple[Link, ...]:
    """`links` as a tuple. Raises ValueError unless they are a Link for each rank."""
    if not isinstance(links, Sequence) or isinstance(links, str):
        raise ValueError(
            f"{whose}: link={links!r} has to be a Link, or a list of one for each rank."
        )
    for rank, link in enumerate(links):
        if not isinstance(link, Link):
            raise ValueError(f"{whose}: link[{rank}]={link!r} has to be a Link.")
    if len(links) != ranks:
        raise ValueError(
            f"{whose}: {len(links)} links do not fit {ranks} ranks: give one for each rank, or one "
            "Link for all."
        )
    return tuple(links)


def _compared(link: Link, usual: Link) -> str:
    """`is 10x slower`, or its seconds where latency and bandwidth differ by different factors."""
    ratios = {
        _ratio(link.latency, usual.latency),
        _ratio(usual.bandwidth, link.bandwidth),
    } - {None}
    if len(ratios) == 1:
        (ratio,) = ratios
        if ratio is not None and 0 < ratio < math.inf:
            return f"is {ratio:g}x slower" if ratio > 1 else f"is {1 / ratio:g}x faster"
    return f"takes {link.latency * 1e3:g} ms + {1e9 / link.bandwidth:g} ms a MB"


def _ratio(one: float, other: float) -> float | None:
    """How many times as large; None where both are 0 or both infinite."""
    if one == other and (one == 0 or math.isinf(one)):
        return None
    return round(one / other, 9) if other else math.inf


def count(whose: str, name: str, value: Any) -> int:
    """`value` as an int of at least 1. Raises ValueError in `whose` name."""
    if value is None:  # not an argument left out
        raise ValueError(f"{whose}: {name}=None has to be a whole number, 1 or more.")
    check_counts(1, f"{whose}: ", **{name: value})
    return operator.index(value)


def require(whose: str, name: str, value: Any, zero: bool, infinite: bool) -> None:
    """Raises ValueError unless `value` is a number above 0 (or 0, or infinite, where allowed)."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (value > 0 or (zero and value == 0)) and (infinite or value < math.inf):
        return
    law = ("0 or more" if zero else "above 0") + ("" if infinite else " and finite")
    raise ValueError(f"{whose}: {name}={value!r} has to be a number, {law}.")
