"""The matrices of layers that ranks share for paper, as small panels, in matplotlib.

At the beginning     product of up        all-reduce of Y      a panel is a moment: the rounds of a
[ ] [0  ] |   |      [ ] [0  ] |0  |      ...                  collective are one
[ ] [  1] |   |      [ ] [  1] |  1|
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import Patch

from dlviz.viz import palette, paper
from dlviz.viz.blocks import Blocks, brief
from dlviz.viz.charts import matrices as drawn
from dlviz.viz.passes import MatrixBlock, Moment
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

ROW, HEAD, GUTTER = 0.34, 0.56, 0.3  # inches: a rank's row, the words over a panel, between two
PANELS = 7.0  # inches: the height of all panels


def matrices(
    trace: Trace,
    *,
    step: int | None = None,
    layers: Sequence[str] | None = None,
    theme: str = "light",
    title: str = drawn.TITLE,
    columns: int = 2,
    width: float = 7.2,
) -> Figure:
    """Who holds which part of which matrix, `columns` panels side by side on `width` inches.
    Arguments and errors are those of `viz.matrices`."""
    blocks = Blocks(trace, step, layers)
    moments = blocks.whole()
    down = -(-len(moments) // columns)
    high = min(len(blocks.ranks) * ROW, PANELS / down - HEAD)
    names = [f"rank {rank}" for rank in blocks.ranks]
    looks = drawn.looks(blocks)
    entries = [(name, Patch(**paper.look(style))) for name, style in looks]
    entries += paper.marks(theme, np.ones(sum(len(one.messages) for one in moments), bool))
    panels = paper.Panels(columns, width, paper.beside(names), high, HEAD, GUTTER)
    body, lines = panels.body(len(moments)), text.provenance(trace, "device", text.WHOLE)
    figure, foot = paper.sheet(title, lines, entries, body, width, theme)
    ink, faint = (palette.colors(theme)[part] for part in ("ink", "faint"))
    for i, moment in enumerate(moments):
        x, y = panels.at(i, foot + body)
        axes = paper.axes(figure, (x, y, panels.wide, high), theme)
        axes.set_xticks([])
        axes.set_yticks(range(len(names)), [] if i % columns else names, **paper.WORDS)
        axes.set(xlim=(-0.05, blocks.lefts[-1]), ylim=(len(names) - 0.5, -0.5))
        _panel(axes, blocks, moment, theme)
        paper.write(figure, x, y + high + 0.32, moment.title, paper.BODY, ink, "bold")
        for place, matrix in enumerate(blocks.columns):
            middle = blocks.lefts[place] + blocks.sizes[place][0] / 2
            name = ("d" if moment.backward else "") + brief(matrix.names[0])
            paper.label(axes, middle, -0.62, name, faint, paper.MARK, va="bottom")
    return figure


def _panel(axes: Axes, blocks: Blocks, moment: Moment, theme: str) -> None:
    """One moment: the outlines of all matrices, the blocks that ranks hold, and the messages."""
    colors = palette.colors(theme)
    frames = [
        _corners(blocks, place, blocks.outline(place), row)
        for row in range(len(blocks.ranks))
        for place in range(len(blocks.columns))
    ]
    axes.add_collection(LineCollection(frames, colors=colors["faint"], linewidths=0.4))
    made = []
    for row, rank in enumerate(blocks.ranks):
        for place, held in enumerate(moment.held):
            if rank not in held:
                continue
            style = drawn.style_of(blocks, held, rank)
            left, right, top, bottom = np.array([blocks.box(place, held[rank], row)]).T
            box = paper.boxes(f"rank {rank}", left, right, top, bottom, paper.look(style))
            axes.add_collection(box, autolim=False)
            if place in moment.made:
                made.append(_corners(blocks, place, held[rank], row))
    axes.add_collection(LineCollection(made, colors=colors["ink"], linewidths=1.1, zorder=3))
    if moment.messages:
        table, rows = blocks.trace.messages, {rank: i for i, rank in enumerate(blocks.ranks)}
        x = np.array(blocks.lanes(moment))
        src, dst = (
            np.array([rows[rank] for rank in end[list(moment.messages)].tolist()], float)
            for end in (table.src, table.dst)
        )
        lean = np.sign(dst - src) * drawn.LEAN
        tails, heads = np.stack([x, src + lean], axis=1), np.stack([x, dst - lean], axis=1)
        paper.arrows(axes, tails, heads, np.ones(len(x), bool), theme)


def _corners(blocks: Blocks, place: int, block: MatrixBlock, row: int) -> list[tuple[float, float]]:
    left, right, top, bottom = blocks.box(place, block, row)
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
