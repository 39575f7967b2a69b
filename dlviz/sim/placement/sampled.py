"""Random search: as many placements as the budget has, and the best of them.

What a search that learns has to beat on the same budget.
"""

from __future__ import annotations

from random import Random

from dlviz.counts import check_counts
from dlviz.sim.placement.player import Found, Player, Room


def random(player: Player, *, budget: int = 1000, seed: int = 0) -> Found:
    """The best of `budget` placements drawn by `draw`. Raises ValueError for a budget below 1."""
    check_counts(budget=budget)
    generator, samples = Random(seed), []
    best, least = [], float("inf")
    for _ in range(budget):
        placement = draw(player, generator)
        samples.append(player.seconds(placement))
        if samples[-1] < least:
            best, least = placement, samples[-1]
    return Found(best, least, least, samples)


def draw(player: Player, generator: Random) -> list[int]:
    """A placement that fits: each group, the heaviest first, on any of the devices with room for
    it. Without limits of memory all placements are equally likely."""
    room, placement = Room(player), [0] * len(player.graph)
    for group in player.heaviest:
        placement[group] = generator.choice(room.devices(group))
        room.place(group, placement[group])
    return placement
