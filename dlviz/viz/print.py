"""Every view for paper: matplotlib figures, to be saved as SVG, PDF or PNG.

    figure = dlviz.viz.print.timeline(run.trace, step=3)
    figure.savefig("step.pdf")

Colours, patterns, rows and strips are those of `viz.timeline` and `viz.messages_grid`. Nothing can
be pointed at on paper, so a label stands wherever it fits. Lengths are inches (paper.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch

from dlviz.analysis.clocks import clock_of, message_times
from dlviz.analysis.contributions import UNKNOWN
from dlviz.analysis.frames import Frame
from dlviz.viz import palette, paper, text
from dlviz.viz.failure import held
from dlviz.viz.labels import forms_of, never_ended
from dlviz.viz.layout import Plan, arrow_heights, ends, past_rows, shown
from dlviz.viz.messages import in_columns
from dlviz.viz.pipeline import Path, bubbles, chunks_of, critical_of, outlines, shades
from dlviz.viz.print_bars import breakdown as breakdown
from dlviz.viz.print_bars import compare as compare
from dlviz.viz.print_bars import timelines as timelines
from dlviz.viz.print_costs import costs as costs
from dlviz.viz.print_maps import curve as curve
from dlviz.viz.print_maps import traffic as traffic
from dlviz.viz.print_pipeline import bubble as bubble
from dlviz.viz.print_pipeline import memory as memory
from dlviz.viz.scene import RULED, Run, Scene
from dlviz.viz.timeline import ARROWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dlviz.trace import Trace

INCH = 128.0  # of the pixels in which `layout` measures rows: as many make an inch
TALLEST = 4.1  # inches: the rows of a timeline
SMALL = 5.5  # points: a number in a bar that is too narrow for others
EDGE = 0.28  # inches: for what the last number of an axis is wider than the axis
CELLS = 0.62  # height of a rank's cells where rows are 1 apart
ROW, HEAD, GUTTER = 0.34, 0.38, 0.18  # inches: a rank's row, the words over a panel, between two
SMALLEST = 0.6  # inches: the width of a panel
PANELS = 4.4  # inches: the height of all panels
LEAST, NARROW = 0.12, 0.04  # inches of a rank's row: for its name beside it, and at least


def timeline(
    trace: Trace,
    *,
    step: int | None = None,
    clock: str | None = None,
    messages: bool | None = None,
    critical: bool = False,
    theme: str = "light",
    title: str | None = None,
    max_spans: int = 20_000,
    width: float = 7.2,
) -> Figure:
    """The spans of every rank and lane over time, and an arrow for each message, `width` inches
    wide.

    Arguments are those of `viz.timeline`. Of more than `max_spans` spans the longest are drawn, and
    more than 150 messages, or those whose arrows would cover labels, are left out; the subtitle
    says so. Raises ValueError where the Trace has no such clock or step, for another theme, and for
    less than 3 inches.
    """
    clock = clock_of(trace, clock)
    seen = shown(trace, clock, step, max_spans, messages is not False)
    plan, drawn, arrows = seen.plan, seen.drawn, seen.arrows
    names = [paper.cut(text.row(*row), 0.3 * width, paper.BODY) for row in plan.rows]
    left = paper.beside([*names, "all ranks"])
    wide = width - left - paper.MARGIN - EDGE
    room = (plan.high - plan.low) * 0.01
    second = 72 * wide / (plan.high - plan.low + 2 * room)  # in points
    body = (plan.above + plan.height) * plan.scale(TALLEST * INCH) / INCH

    path = critical_of(trace, step, clock) if critical else None
    labels = _labels(trace, plan, drawn, second, 72 * body / (plan.above + plan.height))
    lines = [*text.provenance(trace, clock), *seen.lines, *(path.lines if path else [])]
    tails, heads, got, past = _ends(trace, plan, arrows, labels)
    if len(arrows) > ARROWS:
        lines.append(
            f"{len(arrows):,} messages are too many for arrows: draw a step, or some ranks, "
            "trace.only(rank=...)."
        )
        tails, heads, got = tails[:0], heads[:0], got[:0]
    elif messages is None and past.any():
        many = f"{past.sum():,} of {len(past):,}" if not past.all() else f"{len(past):,}"
        lines.append(f"{many} messages are left out: arrows past other rows would cover labels.")
        tails, heads, got = tails[~past], heads[~past], got[~past]
    bars, entries = _bars(trace, plan, drawn, width)
    idle, entry = _bubbles(trace, plan, seen.spans, 72 * width)
    bars, entries = idle + bars, entries + entry
    edges, entry = _critical(path.among(drawn), plan, theme) if path else ([], [])
    cycle, marks = _cycle(trace, plan)
    entries += entry + paper.marks(theme, bool(got.any()), bool((~got).any())) + marks

    figure, foot = paper.sheet(title or "Timeline", lines, entries, body + paper.AXIS, width, theme)
    axes = paper.axes(figure, (left, foot + paper.AXIS, wide, body), theme)
    axes.set_xlim((plan.low - room) / plan.size, (plan.high + room) / plan.size)
    axes.set_ylim(plan.height, -plan.above)
    paper.ticks(axes)
    ticks = [*plan.y.values(), *([-plan.above / 2] if plan.shared else [])]
    axes.set_yticks(ticks, [*names, "all ranks"][: len(ticks)], **paper.WORDS)
    axes.grid(axis="x")
    times = f"{text.TIMES[clock]} since the run's start ({plan.unit})"
    axes.set_xlabel(times, loc="right", **paper.WORDS)
    for collection in [*bars, *edges]:
        axes.add_collection(collection, autolim=False)
    paper.arrows(axes, tails / (plan.size, 1), heads / (plan.size, 1), got, theme)
    for arrow in cycle:
        axes.add_patch(arrow)
    for one in labels:
        paper.label(axes, one.x / plan.size, one.y, one.words, one.ink, one.size)

    faint, across = palette.colors(theme)["faint"], axes.get_yaxis_transform()
    for rank in sorted(set(trace.ranks) - set(trace.spans.rank.tolist())):
        told, y = f"rank {rank} recorded nothing", plan.y[rank, ""]
        paper.label(axes, 0.02, y, told, faint, ha="left", transform=across)
    if not plan.rows:
        paper.label(axes, 0.5, plan.height / 2, "nothing was recorded", faint, transform=across)
    return figure


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

    A panel shows the cells of every rank's watched buffer after the messages of its round, a stripe
    for each rank whose contribution a cell holds; cells sent have a solid frame, those received a
    dashed one. Arguments are those of `viz.messages_grid`. Raises ValueError for a buffer that was
    not watched, for another theme, for less than 3 inches and for fewer than one column or frame.
    """
    for name, value in (("columns", columns), ("max_frames", max_frames)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r} leaves no panel to draw: use 1 or more.")
    scene = Scene(trace, step, buffer)
    shown = scene.frames[:max_frames]
    ranks = max(len(scene.rows), 3)
    room = PANELS - paper.AXIS
    most = in_columns(len(shown), ranks, room, LEAST, HEAD)
    while most > 1 and not most * (SMALLEST + GUTTER) <= width - 1:  # an inch for ranks' names
        most -= 1
    columns = min(columns or most, len(shown))
    lines = [*text.provenance(trace, "device"), *scene.notes]
    if len(shown) < len(scene.frames):
        lines.append(f"The first {len(shown)} of {len(scene.frames)} pictures are shown.")

    down = -(-len(shown) // columns)
    high = max(min(ranks * ROW, room / down - HEAD), ranks * NARROW)
    body = down * (high + HEAD)
    entries = _legend(scene, shown, theme)
    heading = title or "Messages, all rounds"
    figure, foot = paper.sheet(heading, lines, entries, body + paper.AXIS, width, theme)
    every = max(1, round(LEAST * len(scene.rows) / high))  # so that names do not touch
    names = ["" if row % every else f"rank {rank}" for row, rank in enumerate(scene.rows)]
    left = paper.beside(names)
    wide = (width - left - paper.MARGIN + GUTTER) / columns - GUTTER
    if wide < SMALLEST:
        raise ValueError(
            f"columns={columns!r} leave {max(wide, 0):.1f} inches to a panel, which needs "
            f"{SMALLEST:g}: use fewer columns, or a larger width than {width:g}."
        )
    ink, faint = (palette.colors(theme)[name] for name in ("ink", "faint"))
    for i, frame in enumerate(shown):
        line, column = divmod(i, columns)
        x = left + column * (wide + GUTTER)
        y = foot + paper.AXIS + body - (line + 1) * (high + HEAD)
        axes = paper.axes(figure, (x, y, wide, high), theme)
        axes.set_yticks(range(len(names)), names if column == 0 else [], **paper.WORDS)
        _panel(axes, scene, frame, theme)
        paper.write(figure, x, y + high + 0.16, frame.name, paper.BODY, ink, "bold")
        told = paper.cut(scene.summary(frame), wide, paper.LABEL)
        paper.write(figure, x, y + high + 0.03, told, paper.LABEL, faint)
        if i + columns < len(shown) or not scene.arrays:
            axes.set_xticks([])
    if scene.arrays:
        beyond = " (arrows beyond it: not from or to its cells)" if scene.strays else ""
        told = paper.written(scene.title) + beyond
        paper.write(figure, left, foot + 0.1, told, paper.BODY, ink)
    return figure


def _panel(axes: Axes, scene: Scene, frame: Frame, theme: str) -> None:
    """One frame: the cells and whose contributions they hold, its messages over them."""
    right = max(sum(scene.aside), scene.length) if scene.strays else scene.length
    axes.set_xlim(-0.02 * scene.length, 1.02 * right)
    axes.set_ylim(max(len(scene.rows), 3) - 0.5, -0.5)
    paper.ticks(axes, whole=True)
    axes.add_collection(_empty(scene, theme), autolim=False)
    axes.grid(visible=not scene.arrays, axis="y")  # else the cells show where a rank's row is
    slot = CELLS / max(scene.trace.meta["ranks"], 1)
    for source, runs in _held(scene, frame).items():
        name, style = _source(source)
        row = np.array([scene.place[run.rank] for run in runs], float)
        top = row - CELLS / 2 + (0 if source == UNKNOWN else source * slot)
        bottom = top + (CELLS if source == UNKNOWN else slot)
        edges = np.array([run.low for run in runs]), np.array([run.high for run in runs])
        boxes = paper.boxes(name, *edges, top, bottom, paper.look(style))
        axes.add_collection(boxes, autolim=False)
        for run, middle in zip(runs, ((top + bottom) / 2).tolist(), strict=True):
            if run.unknown or run.counts[source] > 1:
                mark = "?" if run.unknown else f"×{run.counts[source]}"
                paper.label(axes, (run.low + run.high) / 2, middle, mark, style.ink, paper.MARK)

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


def _held(scene: Scene, frame: Frame) -> dict[int, list[Run]]:
    """The stretches of cells that hold something of each rank, and those of which one can't say, as
    UNKNOWN's."""
    held: dict[int, list[Run]] = {}
    for run in scene.runs(frame):
        sources = [rank for rank, count in enumerate(run.counts) if count > 0]
        for source in [UNKNOWN] if run.unknown else sources:
            held.setdefault(source, []).append(run)
    return held


def _source(rank: int) -> tuple[str, palette.Style]:
    """Name and style of what a rank contributed."""
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
    """How the cells that a message took, and those that it reached, are framed."""
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
    return entries + paper.marks(theme, bool(got.any()), bool((~got).any()))


def _bars(
    trace: Trace, plan: Plan, drawn: np.ndarray, width: float
) -> tuple[list[PathCollection], list[tuple[str, Any]]]:
    """One collection of rectangles for each kind of the spans `drawn`, and the legend's entries.

    Kinds of a caller's own, which share a style, share a collection. Where bars are crowded their
    outlines get thinner, and one that is narrower than its outline, or that never ended, is all of
    its fill's colour.
    """
    drawn, begin, finish = plan.bars(drawn)
    points = 72 * width / (plan.high - plan.low) * (finish - begin)
    crowd = min(72 * width * len(plan.rows) / (4 * max(len(drawn), 1)), 1.0)
    never = np.array([never_ended(own) for own in trace.spans.fields[drawn].tolist()], bool)
    kinds = trace.spans.kind[drawn]
    own = sorted(set(kinds.tolist()) - set(palette.KINDS))
    groups = [(kind, palette.KINDS[kind], kinds == kind) for kind in palette.KINDS]
    groups.append((", ".join(own), palette.OTHER, np.isin(kinds, own)))
    chunk, chunks = chunks_of(trace)
    place = np.zeros(len(trace.spans), np.int64)
    place[drawn] = np.arange(len(drawn))
    bars, entries = [], []
    for group, base, chosen in groups:
        for name, style, here, listed in shades(base, group, drawn[chosen], chunk, chunks):
            look, at = paper.look(style), place[here]
            edges = begin[at] / plan.size, finish[at] / plan.size
            thin = (points[at] < 2 * look["linewidth"]) | never[at]
            boxes = paper.boxes(name, *edges, plan.top[here], plan.bottom[here], look, thin)
            boxes.set_linewidth(max(crowd * look["linewidth"], 0.15))
            boxes.set_snap(crowd == 1)
            bars.append(boxes)
            lasting = bool((finish[at] > begin[at]).any())  # else nothing of it is seen
            entries += [(name, Patch(**look))] * (listed and lasting)
    return bars, entries


def _bubbles(
    trace: Trace, plan: Plan, spans: np.ndarray, points: float
) -> tuple[list[PathCollection], list[tuple[str, Any]]]:
    """A pipeline's idle time, if it has any, and the legend's entry."""
    found = bubbles(trace, plan, spans, points)
    if found is None or not len(found.start):
        return [], []
    at = zip(found.rank.tolist(), found.lane.tolist(), strict=True)
    edges = np.array([plan.rows[row] for row in at])
    look = paper.look(palette.style("idle"))
    times = found.start / plan.size, found.end / plan.size
    boxes = paper.boxes("idle", *times, edges[:, 0], edges[:, 1], look)
    return [boxes], [("idle", Patch(**look))]


def _cycle(trace: Trace, plan: Plan) -> tuple[list[FancyArrowPatch], list[tuple[str, Any]]]:
    """Who waits for whom for ever, as arrows from row to row at the right edge, and the legend's
    entry."""
    waits = held(trace, plan)
    if not waits:
        return [], []
    middles = [*plan.y.values()]
    look = {"color": palette.VERMILION, "linewidth": 1.4}
    arrows = []
    for i, own in enumerate(waits):
        at = (plan.high - (plan.high - plan.low) * 0.02 * (i + 1)) / plan.size
        both = (at, middles[own.tail]), (at, middles[own.head])
        size = {"mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
        arrows.append(FancyArrowPatch(*both, arrowstyle="-|>", zorder=3.5, **size, **look))
    return arrows, [("waits for ever", Line2D([], [], marker=">", markersize=4, **look))]


def _critical(
    path: Path, plan: Plan, theme: str
) -> tuple[list[LineCollection], list[tuple[str, Any]]]:
    """The critical path: a bold outline around its spans, and a line from each to the next."""
    if not len(path.rows):
        return [], []
    boxes, lines = outlines(path, plan)
    strokes = [corners / (plan.size, 1) for corners in (*boxes, *lines)]
    colors, looks = palette.colors(theme), []
    for color, width, over in (("paper", 2.6, 0.8), ("ink", 1.4, 1.0)):
        look = {"colors": colors[color], "linewidths": width, "alpha": over, "zorder": 2.5}
        looks.append(LineCollection(strokes, **look))
    return looks, [("critical path", Line2D([], [], color=colors["ink"], linewidth=1.4))]


@dataclass(frozen=True)
class Label:
    """Words in a bar: their middle and half the width they need (s), pixels down, points."""

    words: str
    x: float
    half: float
    y: float
    size: float
    ink: str


def _labels(
    trace: Trace, plan: Plan, drawn: np.ndarray, second: float, pixel: float
) -> list[Label]:
    """The longest form of each span's label that fits into its bar; a number may be small. `second`
    and `pixel` are points."""
    forms, kinds = forms_of(trace), trace.spans.kind.tolist()
    rows, begin, finish = plan.bars(drawn)
    wide = (finish - begin) * second - 2
    tall = (plan.bottom - plan.top)[rows] * pixel
    found = []
    for i in np.flatnonzero((wide > SMALL / 2) & (tall > SMALL)).tolist():
        row = int(rows[i])
        size = min(paper.LABEL, tall[i] / 1.2)
        choices = [(form, size) for form in forms[row]]
        choices += [(form, SMALL) for form in forms[row][-1:] if form[-1:].isdigit()]
        for form, points in choices:
            words = paper.written(form, 24)
            length = 72 * paper.length(words, points)
            if length <= wide[i]:
                x, y = (begin[i] + finish[i]) / 2, (plan.top[row] + plan.bottom[row]) / 2
                ink = palette.style(kinds[row]).ink
                found.append(Label(words, x, (length / 2 + 2) / second, y, points, ink))
                break
    return found


def _ends(
    trace: Trace, plan: Plan, rows: np.ndarray, labels: list[Label]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where the arrow of each of the messages `rows` begins and ends, (messages, 2), in seconds and
    pixels; whether it was received, and whether it is better left out (`past_rows`). Without those
    whose other end is not drawn."""
    sent, received = (column[rows] for column in message_times(trace, plan.clock))
    tail, head = (column[rows] for column in ends(trace, plan))
    leave, reach = arrow_heights(plan, tail, head)
    got = np.isfinite(received)
    begin = np.stack([sent, leave], axis=1)
    end = np.stack([np.where(got, received, sent), reach], axis=1)
    drawn = np.isfinite(begin + end).all(axis=1)
    words = np.array([(one.x - one.half, one.x + one.half, one.y) for one in labels])
    tail, head, begin, end = (column[drawn] for column in (tail, head, begin, end))
    past = past_rows(tail, head, begin, end, words.reshape(-1, 3))
    return begin, end, got[drawn], past
