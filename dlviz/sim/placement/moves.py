"""Local search: a group moves to another device, or two groups swap theirs, if that is no worse.

After so many attempts in a row without a gain as there are pairs of a group and a device, it starts
again from another random placement. Moves alone get stuck where devices are full; swaps do not.
"""

from __future__ import annotations

from random import Random

from dlviz.counts import check_counts
from dlviz.sim.placement.player import Found, Player
from dlviz.sim.placement.sampled import draw


def moves(player: Player, *, budget: int = 1000, seed: int = 0) -> Found:
    """The best of `budget` played placements. Raises ValueError for a budget below 1."""
    check_counts(budget=budget)
    generator, samples = Random(seed), []
    best, least = [], float("inf")
    patience = len(player.graph) * player.devices.count
    while len(samples) < budget:
        now = draw(player, generator)
        seconds = player.seconds(now)
        samples.append(seconds)
        attempts = 0
        while True:
            if seconds < least:
                best, least = now, seconds
            if len(samples) == budget or attempts == patience:
                break
            attempts += 1
            after = _neighbour(player, now, generator)
            if after == now or any(player.missing(after)):
                continue
            samples.append(player.seconds(after))
            if samples[-1] <= seconds:
                attempts = 0 if samples[-1] < seconds else attempts
                now, seconds = after, samples[-1]
    return Found(best, least, least, samples)


def _neighbour(player: Player, placement: list[int], generator: Random) -> list[int]:
    after, groups = [*placement], range(len(placement))
    if not groups:
        return after
    one = generator.choice(groups)
    if generator.random() < 0.5:
        after[one] = generator.randrange(player.devices.count)
    else:
        other = generator.choice(groups)
        after[one], after[other] = after[other], after[one]
    return after
