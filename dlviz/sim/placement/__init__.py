"""Which device runs which operators: a graph of groups, where each one runs, and how long it takes.

    graph.py       Graph and Devices                  player.py      one placement played: its Trace
    bounds.py      what no placement beats, ranks     search.py      a method by its name
    examples.py    the graphs of the lab

A method a file: `fixed` (one, layers, round_robin) looks at no message, `greedy` and `heft` build
one placement and promise its seconds, `exhaustive`, `sampled` (random) and `moves` play many.

A placement is a list with the device of each group. Source: A. Mirhoseini et al., "Device placement
optimization with reinforcement learning", 2017.
"""

from dlviz.sim.placement.bounds import bounds, count, upward_ranks
from dlviz.sim.placement.examples import BRANCHES, LAB, recurrent
from dlviz.sim.placement.found import Found
from dlviz.sim.placement.graph import Devices, Graph
from dlviz.sim.placement.player import missing, play, seconds_of
from dlviz.sim.placement.search import METHODS, search

__all__ = [
    "BRANCHES",
    "LAB",
    "METHODS",
    "Devices",
    "Found",
    "Graph",
    "bounds",
    "count",
    "missing",
    "play",
    "recurrent",
    "search",
    "seconds_of",
    "upward_ranks",
]
