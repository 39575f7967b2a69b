"""Placements that look at no message: all on one device, layer by layer, in turn.

Each believes that its devices never wait: it promises the work of the busiest one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, pairwise

from dlviz.sim.placement.found import Found, FreeMemory, found
from dlviz.sim.placement.player import Player


def one(player: Player) -> Found:
    """Every group on the device that is through first (ties: the lower number), among those whose
    memory is enough."""
    weight, room = sum(player.weights), player.devices.room
    fitting = [device for device, free in enumerate(room) if weight <= free]
    if not fitting:
        raise ValueError(
            f"the groups hold {weight} bytes and no device has more than {max(room):g}: "
            f"{weight - max(room):g} bytes are missing. Use more devices."
        )
    best = min(fitting, key=lambda device: sum(row[device] for row in player.takes))
    return _promising(player, [best] * len(player.graph))


def round_robin(player: Player) -> Found:
    """Groups in turn, parents first, each on the next device that has room for it."""
    room, count, device = FreeMemory(player), player.devices.count, -1
    placement = [0] * len(player.graph)
    for group in player.graph.in_order():
        device = min(room.devices(group), key=lambda each: (each - device - 1) % count)
        placement[group] = device
        room.place(group, device)
    return _promising(player, placement)


def layers(player: Player) -> Found:
    """Model distribution: the groups in order, parents first, cut into one run a device, so that
    the busiest device has as little work as memory allows."""
    order, room = player.graph.in_order(), player.devices.room
    held = [0, *accumulate(player.weights[group] for group in order)]
    ends = range(len(order) + 1)
    busiest: list[float] = [0.0, *(math.inf for _ in order)]  # of the first groups, until now
    cuts = []
    for device, free in enumerate(room):
        work = [0, *accumulate(player.takes[group][device] for group in order)]
        best, cut = [*busiest], [*ends]
        for end in ends:
            for first in range(end - 1, -1, -1):  # groups first to end on this device
                own = work[end] - work[first]
                if own >= best[end] or held[end] - held[first] > free:
                    break
                if max(own, busiest[first]) < best[end]:
                    best[end], cut[end] = max(own, busiest[first]), first
        busiest = best
        cuts.append(cut)
    if busiest[-1] == math.inf:
        first = 0  # of the groups that are left when each device in turn takes what fits
        for free in room:
            first = bisect_right(held, held[first] + free) - 1
        raise ValueError(
            f"no cut of the groups, in order, fits {len(room)} devices: {held[-1] - held[first]:g} "
            "bytes are missing. Give devices more memory, or try another method."
        )
    borders = [len(order)]
    for cut in reversed(cuts):
        borders.append(cut[borders[-1]])
    placement = [0] * len(order)
    for device, (first, end) in enumerate(pairwise(reversed(borders))):
        for group in order[first:end]:
            placement[group] = device
    return _promising(player, placement)


def _promising(player: Player, placement: list[int]) -> Found:
    work = [0] * player.devices.count
    for device, row in zip(placement, player.takes, strict=True):
        work[device] += row[device]
    return found(player, placement, max(work))
