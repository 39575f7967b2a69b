"""A method of placement by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dlviz.sim.placement.exhaustive import exhaustive
from dlviz.sim.placement.fixed import layers, one, round_robin
from dlviz.sim.placement.found import Found
from dlviz.sim.placement.graph import Devices, Graph
from dlviz.sim.placement.greedy import greedy
from dlviz.sim.placement.heft import heft
from dlviz.sim.placement.moves import moves
from dlviz.sim.placement.player import player_of
from dlviz.sim.placement.sampled import random

METHODS: dict[str, Callable[..., Found]] = {
    method.__name__: method
    for method in (one, layers, round_robin, greedy, heft, exhaustive, random, moves)
}


def search(graph: Graph, devices: Devices, method: str, **options: Any) -> Found:
    """Where `method`, one of METHODS, puts the groups of `graph`; every method holds the devices'
    memory. `random` and `moves` take a `budget` of placements played, and a `seed`.

    Raises ValueError for an unknown method or option, a budget below 1, and where the method finds
    no placement that fits, with the bytes that are missing.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown: use one of {', '.join(METHODS)}.")
    taken = [*inspect.signature(METHODS[method]).parameters][1:]
    for name in options.keys() - taken:
        raise ValueError(
            f"method {method!r} has no option {name!r}: it has {', '.join(taken) or 'none'}."
        )
    player = player_of(graph, devices)
    player.check_fits()
    return METHODS[method](player, **options)
