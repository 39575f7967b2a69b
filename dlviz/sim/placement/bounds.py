"""What no placement beats, how many placements there are, and how urgent a group is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from dlviz.counts import check_counts, of_numbers
from dlviz.machine.topology import PICOSECONDS, moment
from dlviz.sim.placement.graph import Devices, Graph, longest, of, seconds_on, takes


def bounds(graph: Graph, devices: Devices | int) -> tuple[float, float]:
    """(critical path, work / devices) in s: no placement takes less than either.

    Messages are left out, and each group counts as on the device where it takes least. Devices with
    factors f do as much as sum(1 / f) devices without.
    """
    devices = of(devices)
    path = longest(graph, [min(row) for row in takes(graph, devices)])
    work = sum(moment(min(row)) for row in seconds_on(graph, devices))
    rate = sum(1 / factor for factor in devices.slower)
    return max(path) / PICOSECONDS, work / PICOSECONDS / rate


def upward_ranks(graph: Graph, devices: Devices | int) -> list[float]:
    """Of each group its own seconds and those of the longest path from it to an end, messages left
    out. On unequal devices a group's seconds are their mean."""
    devices = of(devices)
    return [rank / devices.count / PICOSECONDS for rank in urgency(graph, takes(graph, devices))]


def urgency(graph: Graph, taken: list[tuple[int, ...]]) -> list[int]:
    """The upward ranks in picoseconds, times the number of devices: whole numbers."""
    return longest(graph, [sum(row) for row in taken])


@of_numbers
def count(groups: int, devices: Devices | int) -> int:
    """How many placements of `groups` there are, up to renaming equal devices: those of one factor
    and memory. Of ten groups on four equal devices 43,947, the sum of the Stirling numbers S(10, k)
    for k = 1 to 4."""
    devices = of(devices)
    check_counts(0, groups=groups)
    return up_to_renaming(groups, [*zip(devices.slower, devices.room, strict=True)])


def up_to_renaming(groups: int, kinds: Sequence[Hashable]) -> int:
    """The placements of `groups` on devices of these `kinds`, up to renaming those of one kind."""
    sizes = [*Counter(kinds).values()]
    states = Counter({(0,) * len(sizes): 1})  # devices in use, of each kind
    for _ in range(groups):
        after: Counter[tuple[int, ...]] = Counter()
        for used, placements in states.items():
            for kind, size in enumerate(sizes):
                after[used] += placements * used[kind]
                if used[kind] < size:
                    one_more = (*used[:kind], used[kind] + 1, *used[kind + 1 :])
                    after[one_more] += placements
        states = after
    return states.total()
