"""An image cut between ranks for paper, in matplotlib: each rank's tile at its place, and whose
pixels it holds, before the first message and after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import Patch

from dlviz.analysis.tiles import OUTSIDE
from dlviz.viz import palette, paper
from dlviz.viz.tiles import TiledScene
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 1.6  # cells between two tiles
HEAD, GUTTER, WIDTH = 0.3, 0.3, 7.2  # inches: the words over a panel, between two, of the sheet


def tiles(scene: TiledScene, title: str, theme: str = "light") -> Figure:
    """The tiles at the start and in the end, side by side. Raises ValueError for an unknown
    theme."""
    image = scene.image
    moved = image.apart(GAP)
    corners = np.array([np.add(image.held[rank], np.repeat(moved[rank], 2)) for rank in moved])
    (top, _, left, _), (_, bottom, _, right) = corners.min(0), corners.max(0)
    wide = paper.Panels(2, WIDTH, paper.beside([]), 1.0, HEAD, GUTTER).wide
    tall = wide * (bottom - top + 1) / (right - left)
    panels = paper.Panels(2, WIDTH, paper.beside([]), tall, HEAD, GUTTER)
    looks = {rank: paper.look(palette.rank_style(rank)) for rank in image.own}
    entries = [(f"from rank {rank}", Patch(**look)) for rank, look in looks.items()]
    lines = [*text.provenance(scene.trace, "device", text.WHOLE), *scene.caveats]
    figure, foot = paper.sheet(title, lines, entries, panels.body(2), WIDTH, theme)
    ink = palette.colors(theme)["ink"]
    for i, frame in enumerate((scene.frames[0], scene.frames[-1])):
        x, y = panels.at(i, foot + panels.body(2))
        axes = paper.axes(figure, (x, y, panels.wide, tall), theme)
        axes.set(xlim=(left, right), ylim=(bottom, top - 1), xticks=[], yticks=[])
        paper.write(figure, x, y + tall + 0.08, frame.name, paper.BODY, ink, "bold")
        for rank, place in frame.snapshots.items():
            _tile(axes, scene, rank, scene.counts[place], moved[rank], looks, theme)
    return figure


def _tile(
    axes: Axes,
    scene: TiledScene,
    rank: int,
    owners: np.ndarray,
    moved: tuple[float, float],
    looks: dict[int, Any],
    theme: str,
) -> None:
    """A rank's tile: its pixels by owner, empty cells, and a frame around its own block."""
    ink, faint = (palette.colors(theme)[part] for part in ("ink", "faint"))
    (top, bottom, left, right), own = scene.image.held[rank], scene.image.own[rank]
    y, x = np.mgrid[top:bottom, left:right].reshape(2, -1) + np.array(moved)[:, None]
    for other, look in looks.items():
        held = owners[:, other] > 0
        boxes = paper.boxes(
            f"rank {other}", x[held], x[held] + 1, y[held], y[held] + 1, look | {"linewidth": 0.2}
        )
        axes.add_collection(boxes, autolim=False)
    empty = (scene.image.place(rank) != OUTSIDE) & (owners <= 0).all(axis=1)
    squares = [_corners(y, y + 1, x, x + 1) for y, x in zip(y[empty], x[empty], strict=True)]
    axes.add_collection(LineCollection(squares, colors=faint, linewidths=0.5))
    block = _corners(*np.add(own, np.repeat(moved, 2)))
    axes.add_collection(LineCollection([block], colors=ink, linewidths=1.4))
    at = left + moved[1], top + moved[0] - 0.3
    paper.label(axes, *at, f"rank {rank}", ink, ha="left", va="bottom")


def _corners(top: float, bottom: float, left: float, right: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
