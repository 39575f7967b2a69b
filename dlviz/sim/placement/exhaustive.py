"""Every placement, up to renaming equal devices: the best that there is, on few groups.

Of devices that are equal (memory, and seconds of every group) a group may begin only the first that
is still unused: ten groups on four equal devices have 43,947 placements instead of 4^10, 1,048,576.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlviz.sim.placement.player import Found, Player

MOST = 2_000_000  # about a minute


def exhaustive(player: Player) -> Found:
    """The best of all placements that fit; of equally good ones the first. Raises ValueError where
    there are more than MOST, and where none fits."""
    best, least, samples = None, float("inf"), []
    for placement in placements(player):
        seconds = player.seconds(placement)
        samples.append(seconds)
        if len(samples) > MOST:
            raise ValueError(
                f"{len(player.graph)} groups on {player.devices.count} devices have more than "
                f"{MOST:,} placements: group more operators, or try another method."
            )
        if seconds < least:
            best, least = placement, seconds
    if best is None:
        raise ValueError(
            "no placement fits: however the groups are packed, some device lacks memory. Give "
            "devices more, or make groups smaller."
        )
    return Found([*best], least, least, samples)


def placements(player: Player) -> Iterator[tuple[int, ...]]:
    """All that fit, in lexicographic order; of those alike but for the names of equal devices the
    first."""
    room, devices = player.devices.room, range(player.devices.count)
    columns = zip(*player.takes, strict=True) if player.takes else ((),) * len(devices)
    kinds = [*zip(room, columns, strict=True)]
    earlier = [[other for other in range(each) if kinds[other] == kinds[each]] for each in devices]
    before = [own[-1] if own else None for own in earlier]  # the equal device that is used first
    heads: list[tuple[int, ...]] = [()]
    while heads:
        head = heads.pop()
        if len(head) == len(player.graph):
            yield head
            continue
        used = {None, *head}
        for device in reversed(devices):
            if device in used or before[device] in used:
                held = player.weights[len(head)]
                held += sum(w for w, at in zip(player.weights, head) if at == device)
                if held <= room[device]:
                    heads.append((*head, device))
