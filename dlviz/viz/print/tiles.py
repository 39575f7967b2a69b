"""An image cut between ranks for paper, in matplotlib: each rank's tile at its place, whose pixels it
holds, before the first message and after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import Patch

from dlviz.analysis.frames import Frame
from dlviz.analysis.tiles import OUTSIDE, Box
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
    spread = {
        rank: (_before(image.own.values(), own, 0), _before(image.own.values(), own, 2))
        for rank, own in image.own.items()
    }
    corners = np.array([
        (top + GAP * down, bottom + GAP * down, left + GAP * right, end + GAP * right)
        for (top, bottom, left, end), (down, right) in
        ((image.held[rank], spread[rank]) for rank in image.held)
    ])  # fmt: skip
    low, high, left, right = corners[:, 0].min(), corners[:, 1].max(), corners[:, 2].min(), corners[:, 3].max()
    shown = [("start", scene.frames[0]), ("in the end", scene.frames[-1])]
    panels = paper.Panels(2, WIDTH, paper.beside([]), 1.0, HEAD, GUTTER)
    tall = panels.wide * (high - low + 1) / (right - left)
    panels = paper.Panels(2, WIDTH, paper.beside([]), tall, HEAD, GUTTER)
    entries = [(f"from rank {rank}", Patch(**paper.look(palette.rank_style(rank)))) for rank in image.own]
    lines = [*text.provenance(scene.trace, "device", text.WHOLE), *scene.caveats]
    figure, foot = paper.sheet(title, lines, entries, panels.body(2), WIDTH, theme)
    for i, (name, frame) in enumerate(shown):
        x, y = panels.at(i, foot + panels.body(2))
        axes = paper.axes(figure, (x, y, panels.wide, tall), theme)
        axes.set(xlim=(left, right), ylim=(high, low - 1), xticks=[], yticks=[])
        paper.write(figure, x, y + tall + 0.08, name, paper.BODY, palette.colors(theme)["ink"], "bold")
        for rank in image.held:
            _tile(axes, scene, frame, rank, spread[rank], theme)
    return figure


def _before(every, own: Box, side: int) -> int:
    """How many blocks begin before this one, along rows (0) or columns (2)."""
    return len({box[side] for box in every if box[side] < own[side]})


def _tile(axes: Axes, scene: TiledScene, frame: Frame, rank: int, spread: tuple[int, int], theme: str) -> None:
    """A rank's tile: its pixels by owner, and a frame around its own block."""
    ink, faint = (palette.colors(theme)[part] for part in ("ink", "faint"))
    (top, bottom, left, right), own = scene.image.held[rank], scene.image.own[rank]
    down, across = (GAP * many for many in spread)
    y, x = np.mgrid[top:bottom, left:right].reshape(2, -1) + np.array([[down], [across]])
    owner = scene.counts[frame.snapshots[rank]]
    for other in scene.image.own:
        held = owner[:, other] > 0
        look = paper.look(palette.rank_style(other))
        axes.add_collection(paper.boxes(f"from rank {other}", x[held], x[held] + 1, y[held], y[held] + 1, look), autolim=False)
    inside = scene.image.place(rank) != OUTSIDE
    empty = inside & (owner.sum(axis=1) == 0)
    squares = [_around(*at, *(each + 1 for each in at)) for at in zip(y[empty], x[empty], strict=True)]
    axes.add_collection(LineCollection(squares, colors=faint, linewidths=0.5))
    block = _around(own[0] + down, own[2] + across, own[1] + down, own[3] + across)
    axes.add_collection(LineCollection([block], colors=ink, linewidths=1.4))
    paper.label(axes, left + across, top + down - 0.25, f"rank {rank}", ink, ha="left", va="bottom")


def _around(top: float, left: float, bottom: float, right: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
