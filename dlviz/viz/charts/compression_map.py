"""The method that takes the least time, over the bandwidth of a link and the number of ranks.

ranks |  top 1 %  |        |        tint: the method that wins there
    8 |  ___      | 4 bits | dense  hover: the seconds of each
    2 |     |_____|        |
      +---------------------------- bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlviz.counts import check_amounts
from dlviz.viz.charts.figure import Figure
from dlviz.viz.charts.winner_map import grids, winner_map, winner_style
from dlviz.viz.words import text


def compression_map(
    seconds: Mapping[str, Any],
    *,
    bandwidth: Sequence[float],
    ranks: Sequence[int],
    theme: str = "auto",
    title: str = "Which method takes the least time?",
) -> Figure:
    """Draw the method with the least `seconds`, by name (ranks, bandwidths), of each number of
    `ranks` and each `bandwidth` in bytes a second, in the order in which these are given. Of equal
    ones the first wins; a method's colour is by its place, whether it wins or not.

    Raises ValueError for seconds that do not fit, and for more than 14 methods.
    """
    check_amounts(bandwidth=bandwidth)
    times = grids(seconds, "seconds", ranks, bandwidth, "methods", "bandwidths")
    names = [*seconds]
    links = [f"{text.nbytes(round(each))}/s" for each in bandwidth]
    return winner_map(
        times.argmin(axis=0),
        {name: winner_style(place) for place, name in enumerate(seconds)},
        lambda row, column: [
            f"{ranks[row]} ranks, {links[column]}",
            *quickest(names, times[:, row, column]),
        ],
        ("bandwidth of a link", links),
        ("ranks", [*map(str, ranks)]),
        title=title,
        theme=theme,
    )


def quickest(names: list[str], own: np.ndarray) -> list[str]:
    """The seconds of all methods, the quickest first."""
    order = np.argsort(own, kind="stable").tolist()
    return [f"{text.cut(names[i], 40)}: {text.seconds(float(own[i]))}" for i in order]
