"""Every placement, up to renaming equal devices: the best that there is, on few groups.

Of devices that are equal (memory, and seconds of every group) a group may begin only the first that
is still unused: ten groups on four equal devices have 43,947 placements instead of 4^10, 1,048,576.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence

from dlviz.sim.placement.bounds import up_to_renaming
from dlviz.sim.placement.found import Found
from dlviz.sim.placement.player import Player

MOST = 2_000_000  # about a minute


def exhaustive(player: Player) -> Found:
    """The best of all placements that fit; of equally good ones the first. Raises ValueError where
    there are more than MOST, and where none fits."""
    groups, room = len(player.graph), player.devices.room
    kinds = [*zip(room, zip(*player.takes, strict=True), strict=True)]
    many = up_to_renaming(groups, kinds)
    if many > MOST:
        raise ValueError(
            f"{groups} groups on {len(room)} devices have {many:,} placements, and at most "
            f"{MOST:,} are played: make fewer groups, or try another method."
        )
    best, least, samples = [], math.inf, []
    for placement in placements(player.weights, kinds, room):
        seconds = player.seconds(placement)
        samples.append(seconds)
        if seconds < least:
            best, least = placement, seconds
    if not samples:
        anywhere = placements(player.weights, kinds, [math.inf] * len(room))
        missing = min(sum(player.missing(placement)) for placement in anywhere)
        raise ValueError(
            f"no placement fits: in the best of all {missing:g} bytes are missing. Give devices "
            "more memory, or make groups smaller."
        )
    return Found([*best], least, least, samples)


def placements(
    weights: Sequence[int], kinds: Sequence[Hashable], room: Sequence[float]
) -> Iterator[tuple[int, ...]]:
    """All placements of groups of `weights` bytes that fit into `room`, in lexicographic order; of
    those that differ only by the names of devices of one kind the first."""
    devices = range(len(kinds))
    equal = [[one for one in devices[:each] if kinds[one] == kinds[each]] for each in devices]
    before = [own[-1] if own else None for own in equal]  # the equal device that comes first
    heads: list[tuple[int, ...]] = [()]
    while heads:
        head = heads.pop()
        if len(head) == len(weights):
            yield head
            continue
        used = {None, *head}
        for device in reversed(devices):
            if device in used or before[device] in used:
                held = sum(weights[group] for group, at in enumerate(head) if at == device)
                if held + weights[len(head)] <= room[device]:
                    heads.append((*head, device))
