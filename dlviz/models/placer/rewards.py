"""What a placement is worth: minus the root of the seconds that it takes.

The root keeps the first placements, some of which take very long, from outweighing all others. One
that does not fit into memory cannot be played: a fixed time stands for it.
"""

from __future__ import annotations

import math

import torch

from dlviz.counts import check_amounts
from dlviz.machine.topology import PICOSECONDS
from dlviz.sim.placement import Devices, Graph
from dlviz.sim.placement.player import player_of
from dlviz.sim.placement.sampled import Samples


class Rewards:
    """The rewards of placements of `graph` on `devices`; `samples` holds the seconds of each."""

    def __init__(self, graph: Graph, devices: Devices, unfit: float | None):
        check_amounts(unfit=unfit)
        player = player_of(graph, devices)
        player.check_fits()
        self.samples = Samples(player)
        if unfit is None:  # one group at a time, on its slowest device, and every message
            work = sum(map(max, player.takes))
            unfit = (work + (devices.count - 1) * sum(player.messages)) / PICOSECONDS
        self._unfit = unfit

    def __call__(self, placements: torch.Tensor) -> torch.Tensor:
        """-sqrt(seconds) of each of `placements` (k, groups), as (k,)."""
        found = []
        for placement in placements.tolist():
            _, seconds = self.samples.add(placement)
            found.append(-math.sqrt(seconds if seconds < math.inf else self._unfit))
        return torch.tensor(found, dtype=torch.float64)
