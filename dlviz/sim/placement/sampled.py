"""Random search: as many placements as the budget has, and the best of them.

What a search that learns has to beat on the same budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from dlviz.counts import check_counts
from dlviz.sim.placement.found import Found
from dlviz.sim.placement.player import Player


class Samples:
    """Placements tried one by one: the `seconds` of each as played, inf for one that does not fit,
    and the best until now."""

    def __init__(self, player: Player):
        self.player, self.seconds = player, []
        self._best, self._least = [], (math.inf, math.inf)

    def add(self, placement: Sequence[int]) -> tuple[float, float]:
        """(bytes missing, seconds) of one more: the smaller is the better one."""
        missing = sum(self.player.missing(placement))
        found = missing, math.inf if missing else self.player.seconds(placement)
        self.seconds.append(found[1])
        if found < self._least:
            self._best, self._least = [*placement], found
        return found

    def found(self) -> Found:
        """The best. Raises ValueError if no sample fits, with the fewest bytes missing."""
        missing, seconds = self._least
        if missing:
            raise ValueError(
                f"none of {len(self.seconds)} placements fits: in the best of them {missing:g} "
                "bytes are missing. Raise the budget, or give devices more memory."
            )
        return Found(self._best, seconds, seconds, self.seconds)


def random(player: Player, *, budget: int = 1000, seed: int = 0) -> Found:
    """The best of `budget` placements, all equally likely. Raises ValueError for a budget below 1,
    and where no sample fits."""
    check_counts(budget=budget)
    generator, samples = Random(seed), Samples(player)
    for _ in range(budget):
        samples.add(draw(player, generator))
    return samples.found()


def draw(player: Player, generator: Random) -> list[int]:
    """Any placement, whether it fits or not."""
    return [generator.randrange(player.devices.count) for _ in player.takes]
