"""Local search: a group moves to another device, or two groups swap theirs, if that is no worse.

After so many attempts in a row without a gain as there are pairs of a group and a device, it starts
again from another random placement. Of placements that do not fit, the one with fewer bytes missing
is better. Where devices are full no group can move, but two can swap.
"""

from __future__ import annotations

from random import Random

from dlviz.counts import check_counts
from dlviz.sim.placement.found import Found
from dlviz.sim.placement.player import Player
from dlviz.sim.placement.sampled import Samples, draw


def moves(player: Player, *, budget: int = 1000, seed: int = 0) -> Found:
    """The best of `budget` placements. Raises ValueError for a budget below 1, and where no sample
    fits."""
    check_counts(budget=budget)
    generator, samples = Random(seed), Samples(player)
    while len(samples.seconds) < budget:
        placement, attempts = draw(player, generator), 0
        best = samples.add(placement)
        while len(samples.seconds) < budget and attempts < len(placement) * player.devices.count:
            attempts += 1
            after = neighbour(player, placement, generator)
            if after == placement:
                continue
            value = samples.add(after)
            if value <= best:
                attempts = 0 if value < best else attempts
                placement, best = after, value
    return samples.found()


def neighbour(player: Player, placement: list[int], generator: Random) -> list[int]:
    """`placement` after a move or a swap, each as likely."""
    after, groups = [*placement], range(len(placement))
    one, other = generator.choice(groups), generator.choice(groups)
    if generator.random() < 0.5:
        after[one] = generator.randrange(player.devices.count)
    else:
        after[one], after[other] = after[other], after[one]
    return after
