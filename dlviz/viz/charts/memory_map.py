"""The first stage of ZeRO with which a model fits into a rank's memory, over ranks and model size.

ranks |  stage 0  | 1 | 2 |  stage 3   |      tint: the first that fits
   64 |                   |   too large       hover: the bytes of each
    8 |           |   |   |
      +------------------------------- parameters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlviz.counts import check_amounts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure
from dlviz.viz.charts.winner_map import grids, winner_map, winner_style
from dlviz.viz.words import text

TOO_LARGE = "too large for all"


def memory_map(
    nbytes: Mapping[str, Any],
    *,
    parameters: Sequence[float],
    ranks: Sequence[int],
    memory: float,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw the first of `nbytes`, bytes a rank by stage (ranks, parameters), that is at most
    `memory` bytes, of each number of `ranks` and of `parameters`, in the order in which these are
    given. A stage's colour is by its place, whether it is first anywhere or not.

    Raises ValueError for bytes that do not fit the axes, and for more than 14 stages.
    """
    check_amounts(parameters=parameters, memory=memory)
    held = grids(nbytes, "bytes", ranks, parameters, "stages", "model sizes")
    looks = {name: winner_style(place) for place, name in enumerate(nbytes)}
    names = [*looks]
    fits = np.concatenate([held <= memory, np.ones_like(held[:1], dtype=bool)])
    sizes = [text.count(float(each)) for each in parameters]
    return winner_map(
        fits.argmax(axis=0),
        {**looks, TOO_LARGE: palette.Style(palette.KINDS["phase"].color)},
        lambda row, column: [
            f"{sizes[column]} parameters, {ranks[row]} rank{'s' * (ranks[row] > 1)}",
            *(
                f"{text.cut(name, 40)}: {text.nbytes(round(own))}{', fits' * (own <= memory)}"
                for name, own in zip(names, held[:, row, column].tolist(), strict=True)
            ),
        ],
        ("parameters of the model", sizes),
        ("ranks", [*map(str, ranks)]),
        title=title or f"The first stage that fits into {text.nbytes(round(memory))} a rank",
        theme=theme,
    )
