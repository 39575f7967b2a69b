"""The messages round by round for paper, as small panels, in matplotlib.

start       round 1     round 2        in a panel the cells of every rank's watched buffer, and
|0|0|0|     |0|0|02|    |0|012|02|     the messages that led to them
|1|1|1|     |01|1|1|    |01|1|012|
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlviz.analysis.contributions import UNKNOWN
from dlviz.analysis.frames import Frame
from dlviz.counts import check_counts
from dlviz.viz import palette, paper
from dlviz.viz.scene import RULED, CellRange, Scene
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dlviz.trace import Trace

CELLS = 0.62  # height of a rank's cells where rows are 1 apart
ROW, HEAD, GUTTER = 0.34, 0.38, 0.18  # inches: a rank's row, the words over a panel, between two
SMALLEST = 0.6  # inches: the width of a panel
PANELS = 4.4  # inches: the height of all panels
LEAST, NARROW = 0.12, 0.04  # inches of a rank's row: for its name beside it, and at least


def messages(
    trace: Trace,
    *,
    step: int | None = None,
    buffer: str | None = None,
    theme: str = "light",
    title: str | None = None,
    columns: int | None = None,
    max_frames: int = 24,
    width: float = 7.2,
) -> Figure:
    """The messages round by round as small panels, `columns` side by side on `width` inches.

    A panel shows the cells of every rank's watched buffer after the messages of its round, with a
    stripe for each rank whose contribution a cell holds; sent cells have a solid frame, received
    ones a dashed one. `step`, `buffer` and `max_frames` are those of `viz.messages`. Raises
    ValueError for a buffer that was not watched, an unknown theme, less than 3 inches, and fewer
    than one column or frame.
    """
    check_counts(columns=columns, max_frames=max_frames)
    return panels(Scene(trace, step, buffer), title, theme, columns, max_frames, width)


def panels(
    scene: Scene,
    title: str | None,
    theme: str,
    columns: int | None = None,
    max_frames: int = 24,
    width: float = 7.2,
) -> Figure:
    """`messages` of a scene."""
    shown = scene.frames[:max_frames]
    ranks = max(scene.high, 3)
    room = PANELS - paper.AXIS
    most = _columns(len(shown), ranks, width)
    columns = min(columns or most, len(shown))
    lines = [*text.provenance(scene.trace, "device", text.WHOLE), *scene.caveats]
    if len(shown) < len(scene.frames):
        lines.append(f"The first {len(shown)} of {len(scene.frames)} pictures are shown.")

    high = max(min(ranks * ROW, room / -(-len(shown) // columns) - HEAD), ranks * NARROW)
    names = _names(scene, high)
    left = paper.beside([names[y] for y in scene.place.values()], scene.group_names.values())
    grid = paper.Panels(columns, width, left, high, HEAD, GUTTER)
    body, heading = grid.body(len(shown)), title or "Messages, all rounds"
    entries = _legend(scene, shown, theme)
    figure, foot = paper.sheet(heading, lines, entries, body + paper.AXIS, width, theme)
    if grid.wide < SMALLEST:
        raise ValueError(
            f"columns={columns!r} leave {max(grid.wide, 0):.1f} inches to a panel, which needs "
            f"{SMALLEST:g}: use fewer columns, or a larger width than {width:g}."
        )
    for i, frame in enumerate(shown):
        x, y = grid.at(i, foot + paper.AXIS + body)
        axes = paper.axes(figure, (x, y, grid.wide, high), theme)
        shown_names = dict.fromkeys(names, "") if i % columns else names
        paper.rows(axes, shown_names, [*scene.group_names], theme)
        _panel(axes, scene, frame, theme)
        _head(figure, x, y + high, frame.name, scene.summary(frame), grid.wide, theme)
        if i + columns < len(shown) or not scene.arrays:
            axes.set_xticks([])
    if scene.arrays:
        label = paper.written(scene.title) + scene.beyond
        paper.write(figure, left, foot + 0.1, label, paper.BODY, palette.colors(theme)["ink"])
    return figure


def _head(
    figure: Figure, x: float, y: float, name: str, summary: str, wide: float, theme: str
) -> None:
    """The words over a panel, whose upper edge is at `y`."""
    ink, faint = (palette.colors(theme)[name] for name in ("ink", "faint"))
    paper.write(figure, x, y + 0.16, name, paper.BODY, ink, "bold")
    paper.write(figure, x, y + 0.03, paper.cut(summary, wide, paper.LABEL), paper.LABEL, faint)


def _names(scene: Scene, high: float) -> dict[float, str]:
    """The names of rows on a panel `high` inches high, as many as fit without touching."""
    every = max(1, round(LEAST * scene.high / high))
    ranks = ["" if row % every else f"rank {rank}" for row, rank in enumerate(scene.rows)]
    return dict(zip(scene.place.values(), ranks, strict=True)) | scene.group_names


def _columns(panels: int, ranks: float, width: float) -> int:
    """How many panels to put side by side, 3 to 6, so that rows of panels have room for the names
    of ranks; fewer on a narrow sheet."""
    for columns in range(3, 7):
        down = -(-panels // columns)
        if (PANELS - paper.AXIS) / down - HEAD >= ranks * LEAST:
            break
    return int(max(min(columns, (width - 1) // (SMALLEST + GUTTER)), 1))  # an inch for names


def _panel(axes: Axes, scene: Scene, frame: Frame, theme: str) -> None:
    """One frame: the cells and whose contributions they hold, its messages over them."""
    right = max(sum(scene.aside), scene.length) if scene.strays else scene.length
    axes.set_xlim(-0.02 * scene.length, 1.02 * right)
    axes.set_ylim(max(scene.high, 3) - 0.5, -0.5)
    paper.ticks(axes, whole=True)
    axes.add_collection(_empty(scene, theme), autolim=False)
    axes.grid(visible=not scene.arrays, axis="y")  # else the cells show where a rank's row is
    slot = CELLS / max(scene.trace.meta["ranks"], 1)
    for source, ranges in _held(scene, frame).items():
        name, style = _source(source)
        row = np.array([scene.place[one.rank] for one in ranges], float)
        top = row - CELLS / 2 + (0 if source == UNKNOWN else source * slot)
        bottom = top + (CELLS if source == UNKNOWN else slot)
        edges = np.array([one.low for one in ranges]), np.array([one.high for one in ranges])
        boxes = paper.boxes(name, *edges, top, bottom, paper.look(style))
        axes.add_collection(boxes, autolim=False)
        for one, middle in zip(ranges, ((top + bottom) / 2).tolist(), strict=True):
            if one.unknown or one.counts[source] > 1:
                mark = "?" if one.unknown else f"×{one.counts[source]}"
                paper.label(axes, (one.low + one.high) / 2, middle, mark, style.ink, paper.MARK)

    table, rows = scene.trace.messages, np.array(frame.messages, int)
    got, placed = np.isfinite(table.received[rows]), table.offset[rows] >= 0
    src, dst = (
        np.array([scene.place[rank] for rank in column[rows].tolist()], float)
        for column in (table.src, table.dst)
    )
    low, end = table.offset[rows], table.offset[rows] + table.count[rows]
    outlines = _outlines(theme)
    for name, row, chosen in (("cells sent", src, placed), ("cells received", dst, placed & got)):
        left, right, middle = low[chosen], end[chosen], row[chosen]
        boxes = paper.boxes(
            name, left, right, middle - CELLS / 2, middle + CELLS / 2, outlines[name]
        )
        axes.add_collection(boxes, autolim=False)
    x, lean = np.array(scene.across(frame)), np.sign(dst - src) * CELLS / 2
    tails, heads = np.stack([x, src + lean], axis=1), np.stack([x, dst - lean], axis=1)
    paper.arrows(axes, tails, heads, got, theme)


def _held(scene: Scene, frame: Frame) -> dict[int, list[CellRange]]:
    """By rank, the ranges of cells with its contribution; under UNKNOWN, those that cannot be
    decoded."""
    held: dict[int, list[CellRange]] = {}
    for one in scene.ranges(frame):
        sources = [rank for rank, count in enumerate(one.counts) if count > 0]
        for source in [UNKNOWN] if one.unknown else sources:
            held.setdefault(source, []).append(one)
    return held


def _source(rank: int) -> tuple[str, palette.Style]:
    """Name and style of a rank's contribution."""
    if rank == UNKNOWN:
        return "not a sum of contributions", palette.UNDECODED
    return f"from rank {rank}", palette.rank_style(rank)


def _empty(scene: Scene, theme: str) -> LineCollection:
    """The cells of each rank's buffer, empty."""
    lines = []
    for rank, place in scene.frames[0].snapshots.items():
        middle, length = scene.place[rank], len(scene.arrays[place])
        top, bottom = middle - CELLS / 2, middle + CELLS / 2
        marks = range(length) if length <= RULED else scene.bounds[scene.bounds < length].tolist()
        lines += [[(mark, top), (mark, bottom)] for mark in [*marks, length]]
        lines += [[(0, edge), (length, edge)] for edge in (top, bottom)]
    return LineCollection(lines, colors=palette.colors(theme)["faint"], linewidths=0.4, alpha=0.6)


def _outlines(theme: str) -> dict[str, dict[str, Any]]:
    """The frames of the cells that a message took and of those that it reached."""
    solid = {"facecolor": "none", "edgecolor": palette.colors(theme)["ink"], "linewidth": 1.3}
    return {"cells sent": solid, "cells received": {**solid, "linestyle": (0, (1.5, 1))}}


def _legend(scene: Scene, shown: list[Frame], theme: str) -> list[tuple[str, Any]]:
    """The entries for what the frames `shown` hold."""
    sources = {source for frame in shown for source in _held(scene, frame)}
    entries = []
    for source in sorted(sources, key=lambda source: (source == UNKNOWN, source)):
        name, style = _source(source)
        entries.append((name, Patch(**paper.look(style))))
    table, rows = scene.trace.messages, [row for frame in shown for row in frame.messages]
    got, placed = np.isfinite(table.received[rows]), table.offset[rows] >= 0
    drawn = {"cells sent": placed.any(), "cells received": (placed & got).any()}
    entries += [(name, Patch(**look)) for name, look in _outlines(theme).items() if drawn[name]]
    return entries + paper.marks(theme, got)
