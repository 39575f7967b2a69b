"""What is placed and on what: groups of operators that stay together, and devices with one link.

Times become whole picoseconds here, so that equal sums are equal and ties are ties.
"""

from __future__ import annotations

import graphlib
import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

from dlviz.counts import check_amounts, check_counts
from dlviz.machine import Link
from dlviz.machine.machine import slow_ranks
from dlviz.machine.topology import moment, require

Row = float | Sequence[float]


@dataclass(frozen=True)
class Graph:
    """Groups of operators: `seconds` of each (a number, or one a device), `parents` (the groups
    whose values it needs), `nbytes` of its value, `weights`: bytes that it holds (None: 0 each).

    Raises ValueError for no groups, columns of unequal length, an amount below 0, an unknown parent
    and a cycle.
    """

    seconds: Sequence[Row]
    parents: Sequence[Sequence[int]]
    nbytes: Sequence[int]
    weights: Sequence[int] | None = None

    def __post_init__(self) -> None:
        groups = len(self.seconds)
        if not groups:
            raise ValueError("Graph: it has no groups: give the seconds of one or more.")
        weights = [0] * groups if self.weights is None else self.weights
        columns = {"parents": self.parents, "nbytes": self.nbytes, "weights": weights}
        for name, column in columns.items():
            if len(column) != groups:
                raise ValueError(
                    f"Graph: {name} has {len(column)} entries and seconds {groups}: give one for "
                    "each group."
                )
        for group in range(groups):
            whose = f"Graph, group {group}: "
            check_amounts(whose, seconds=self.seconds[group])
            for name in ("nbytes", "weights"):
                check_counts(0, whose, **{name: columns[name][group]})
            for parent in self.parents[group]:
                if not isinstance(parent, Integral) or not 0 <= parent < groups:
                    raise ValueError(
                        f"{whose}parent {parent!r} is unknown: the groups are 0 to {groups - 1}."
                    )
        found: dict[str, Any] = {
            "seconds": tuple(map(_row, self.seconds)),
            "parents": tuple(tuple(dict.fromkeys(map(int, own))) for own in self.parents),
            "nbytes": tuple(map(int, self.nbytes)),
            "weights": tuple(map(int, weights)),
        }
        for name, column in found.items():
            object.__setattr__(self, name, column)
        try:
            graphlib.TopologicalSorter(dict(enumerate(found["parents"]))).prepare()
        except graphlib.CycleError as error:
            cycle = " -> ".join(map(str, error.args[1]))
            raise ValueError(
                f"Graph: groups {cycle} are a cycle, so that each needs its own value first: take "
                "one of these parents away."
            ) from None

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Of each group those that need its value."""
        found: list[list[int]] = [[] for _ in self.seconds]
        for group, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(group)
        return tuple(map(tuple, found))

    def in_order(self, key: Sequence[float] | None = None) -> list[int]:
        """All groups, parents first: of those whose parents are through the one with the smallest
        `key` (by default its index; ties: the lower index)."""
        key = range(len(self)) if key is None else key
        missing = [len(own) for own in self.parents]
        ready = [(key[group], group) for group, many in enumerate(missing) if not many]
        heapq.heapify(ready)
        found = []
        while ready:
            _, group = heapq.heappop(ready)
            found.append(group)
            for child in self.children[group]:
                missing[child] -= 1
                if not missing[child]:
                    heapq.heappush(ready, (key[child], child))
        return found


@dataclass(frozen=True)
class Devices:
    """`count` devices, and between any two of them a `link`; `factors`: for each device how many
    times as long it takes; `memory`: bytes of each, or one number for all (None: no limit).

    Raises ValueError for a count below 1, a factor that is not above 0, lists of another length.
    """

    count: int
    link: Link = Link(0, math.inf)
    factors: Sequence[float] | None = None
    memory: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_counts(count=self.count)
        memory = math.inf if self.memory is None else self.memory
        for name, given, zero in (("factors", self.factors, False), ("memory", memory, True)):
            several = isinstance(given, Sequence)
            values = tuple(given) if several else (1.0 if given is None else given,) * self.count
            if len(values) != self.count:
                raise ValueError(
                    f"Devices: {name} has {len(values)} entries and there are {self.count} "
                    "devices: give one for each."
                )
            for device, value in enumerate(values):
                require("Devices", f"{name}[{device}]", value, zero=zero, infinite=zero)
            object.__setattr__(self, name, values)

    def __str__(self) -> str:
        """One line for a figure: `4 devices, a message takes 0.5 s + 2 s a MB, rank 2 takes 3x as
        long`."""
        pace = 1e6 / self.link.bandwidth
        message = f"a message takes {self.link.latency:g} s" + (
            f" + {pace:g} s a MB" if pace else ""
        )
        return ", ".join([f"{self.count} devices", message, *slow_ranks(self.slower)])

    @property
    def room(self) -> tuple[float, ...]:
        """Bytes of each device."""
        return self.memory  # pyright: ignore[reportReturnType] (a tuple, since __post_init__)

    @property
    def slower(self) -> tuple[float, ...]:
        """How many times as long each device takes."""
        return self.factors  # pyright: ignore[reportReturnType]


def of(devices: Devices | int) -> Devices:
    return devices if isinstance(devices, Devices) else Devices(devices)


def seconds_on(graph: Graph, devices: Devices) -> list[tuple[float, ...]]:
    """Of each group its seconds on each device, without the devices' factors. Raises ValueError
    for a group with seconds of more or fewer devices."""
    found = []
    for group, row in enumerate(graph.seconds):
        row = row if isinstance(row, tuple) else (row,) * devices.count
        if len(row) != devices.count:
            raise ValueError(
                f"Graph, group {group}: seconds are those of {len(row)} devices and there are "
                f"{devices.count}: give a number, or one for each device."
            )
        found.append(row)
    return found


def takes(graph: Graph, devices: Devices) -> list[tuple[int, ...]]:
    """Of each group the picoseconds that it takes on each device."""
    return [
        tuple(moment(s * factor) for s, factor in zip(row, devices.slower, strict=True))
        for row in seconds_on(graph, devices)
    ]


def longest(graph: Graph, own: Sequence[int], messages: Sequence[int] | None = None) -> list[int]:
    """Of each group the longest path to an end: `own` of each group on it, its own included, and
    of each value that is passed on its `messages`."""
    found = list(own)
    for group in reversed(graph.in_order()):
        after = max((found[child] for child in graph.children[group]), default=None)
        if after is not None:
            found[group] += after + (messages[group] if messages else 0)
    return found


def _row(row: Any) -> Any:
    return tuple(map(float, row)) if isinstance(row, Iterable) else float(row)
