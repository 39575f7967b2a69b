"""The cut of a convolution that takes the least time, over its width and the size of its images.

H = W |      H 8     |  N 2, H 4      tint: the cut that wins there
   56 |  ____________|                hover: the seconds of each
    7 |    C 4, F 2
      +--------------------- C = F
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlviz.viz.charts.compression_map import quickest
from dlviz.viz.charts.figure import Figure
from dlviz.viz.charts.winner_map import grids, winner_map, winner_style


def cut_map(
    seconds: Mapping[str, Any],
    *,
    channels: Sequence[int],
    sizes: Sequence[int],
    theme: str = "auto",
    title: str = "Which cut takes the least time?",
) -> Figure:
    """Draw the cut with the least `seconds`, by name (sizes, channels), of each number of
    `channels`, which is that of filters too, and each of the `sizes`, height and width of the
    images, in the order in which these are given. Of equal ones the first wins; a cut's colour is
    by its place, whether it wins or not.

    Raises ValueError for seconds that do not fit, and for more than 14 cuts.
    """
    times = grids(seconds, "seconds", sizes, channels, "cuts", "channels", ("sizes", "sizes"))
    return winner_map(
        times.argmin(axis=0),
        {name: winner_style(place) for place, name in enumerate(seconds)},
        lambda row, column: [
            f"{channels[column]} channels and filters, {sizes[row]} x {sizes[row]}",
            *quickest([*seconds], times[:, row, column]),
        ],
        ("channels and filters, C = F", [*map(str, channels)]),
        ("H = W", [*map(str, sizes)]),
        title=title,
        theme=theme,
    )
