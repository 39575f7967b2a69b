"""Greedy list scheduling: group by group, the most urgent first, on the device where it ends first.

    arrival of a value on another device    its end + latency + bytes / bandwidth
    start on a device                       when its inputs are there and the device is free

The ports are left out: as if messages never waited for each other. So what it promises can be less
than what is played.
"""

from __future__ import annotations

from dlviz.sim.placement.found import Found, FreeMemory, found
from dlviz.sim.placement.player import Player


def greedy(player: Player) -> Found:
    """Groups in order of upward rank (ties: the lower index), each on the device with room on which
    it ends first (ties: the lower device)."""
    graph, room = player.graph, FreeMemory(player)
    free = [0] * player.devices.count
    placement, ends = [0] * len(graph), [0] * len(graph)
    for group in graph.in_order([-rank for rank in player.ranks]):

        def end_on(device: int, group: int = group) -> int:
            start = free[device]
            for parent in graph.parents[group]:
                away = placement[parent] != device
                start = max(start, ends[parent] + (player.messages[parent] if away else 0))
            return start + player.takes[group][device]

        device = min(room.devices(group), key=end_on)
        ends[group] = free[device] = end_on(device)
        placement[group] = device
        room.place(group, device)
    return found(player, placement, max(ends))
