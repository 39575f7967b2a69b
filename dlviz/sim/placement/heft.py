"""HEFT, heterogeneous earliest finish time: greedy with messages in its ranks, and with insertion.

    rank of a group    its mean seconds + max over children (message + rank of the child)
    start on a device  in the first idle interval that is long enough, once its inputs are there

Like `greedy` it leaves out the ports. Source: H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-
effective and low-complexity task scheduling for heterogeneous computing", 2002, section 4.1.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

from dlviz.sim.placement.found import Found, FreeMemory, found
from dlviz.sim.placement.graph import Graph
from dlviz.sim.placement.player import Player


def heft(player: Player) -> Found:
    """Each group, by falling rank, on the device with room on which it ends first (ties: the lower
    device)."""
    graph, room = player.graph, FreeMemory(player)
    messages = [[player.messages[parent] for parent in own] for own in graph.parents]
    placement, promised = schedule(graph, player.takes, messages, room.devices, room.place)
    return found(player, placement, promised)


def schedule(
    graph: Graph,
    takes: Sequence[Sequence[int]],
    messages: Sequence[Sequence[int]],
    devices: Callable[[int], Sequence[int]],
    placed: Callable[[int, int], None] = lambda group, device: None,
) -> tuple[list[int], int]:
    """HEFT's placement, and the end that it promises. `takes[group][device]` and `messages[group]`,
    one for each of its parents, are times in any unit; `devices(group)` are those that may run it,
    `placed(group, device)` hears which one does."""
    count = len(takes[0])
    after = [0] * len(graph)
    ranks = [0] * len(graph)  # times the number of devices: whole numbers
    for group in reversed(graph.in_order()):
        ranks[group] = sum(takes[group]) + after[group]
        for parent, message in zip(graph.parents[group], messages[group], strict=True):
            after[parent] = max(after[parent], count * message + ranks[group])

    busy: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # (start, end) in order
    placement, ends = [0] * len(graph), [0] * len(graph)
    for group in graph.in_order([-rank for rank in ranks]):
        inputs = [*zip(graph.parents[group], messages[group], strict=True)]
        best: tuple[int, int, int] | None = None  # end, device, start
        for device in devices(group):
            ready = 0
            for parent, message in inputs:
                ready = max(ready, ends[parent] + (message if placement[parent] != device else 0))
            start = _first_gap(busy[device], ready, takes[group][device])
            option = start + takes[group][device], device, start
            best = option if best is None else min(best, option)
        assert best is not None, "devices() names at least one"
        ends[group], placement[group], start = best
        insort(busy[placement[group]], (start, ends[group]))
        placed(group, placement[group])
    return placement, max(ends)


def _first_gap(busy: list[tuple[int, int]], ready: int, lasts: int) -> int:
    """The first time from `ready` on at which a device that is `busy` is idle for so long."""
    for start, end in busy:
        if ready + lasts <= start:
            break
        ready = max(ready, end)
    return ready
