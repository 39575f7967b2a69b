"""The graphs of the lab; every value has 1 byte, so that Link(c, inf) makes a message cost c s."""

from __future__ import annotations

from dlviz.counts import check_counts
from dlviz.sim.placement.graph import Graph

BRANCHES = Graph(  # a stem, four branches, and what joins them
    seconds=[1, 4, 3, 2, 1, 1],
    parents=[(), (0,), (0,), (0,), (0,), (1, 2, 3, 4)],
    nbytes=[1] * 6,
)
LAB = Graph(
    seconds=[1, 3, 2, 2, 4, 1, 3, 2, 2, 1],
    parents=[(), (0,), (0,), (0,), (1,), (1, 2), (2, 3), (4, 5), (5, 6), (7, 8)],
    nbytes=[1] * 10,
)


def recurrent(layers: int, steps: int) -> Graph:
    """A recurrent net unrolled over time, a cell a second: group `layer * steps + step` needs the
    layer below in the same step and its own layer in the step before."""
    check_counts(layers=layers, steps=steps)
    cells = [(layer, step) for layer in range(layers) for step in range(steps)]
    parents = [
        [layer * steps + step - back for back, there in ((steps, layer), (1, step)) if there]
        for layer, step in cells
    ]
    return Graph([1] * len(cells), parents, [1] * len(cells))
