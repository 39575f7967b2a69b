"""The timeline for paper, in matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch

from dlviz.analysis.clocks import clock_of
from dlviz.viz import palette, paper
from dlviz.viz.gantt.arrows import ARROWS, arrows_of
from dlviz.viz.gantt.bars import Bars, bars_of, rows_of, silent
from dlviz.viz.gantt.failure import stuck_waits
from dlviz.viz.gantt.layout import Plan
from dlviz.viz.gantt.lost_ranks import Loss, losses
from dlviz.viz.gantt.pipeline import CriticalPath, bubbles, critical_of, outlines
from dlviz.viz.gantt.visible import shown
from dlviz.viz.words import text
from dlviz.viz.words.labels import complete, forms_of, short_forms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

INCH = 128.0  # pixels of `layout`'s rows to an inch
TALLEST = 4.1  # inches: the rows of a timeline
LINE = 0.15  # inches: a line with the name of a host
SMALL = 5.5  # points: a number in a bar that is too narrow for others
EDGE = 0.28  # inches: room for the last number of an axis to stick out

Entries = list[tuple[str, Any]]  # a legend's names and handles


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

    Arguments are those of `viz.timeline`. At most the longest `max_spans` spans are drawn. More
    than 150 messages, or those whose arrows would cover labels, are left out; the subtitle says so.
    Raises ValueError where the Trace has no such clock or step, for an unknown theme, and for less
    than 3 inches.
    """
    clock = clock_of(trace, clock)
    seen = shown(trace, clock, step, max_spans, messages is not False)
    plan, drawn = seen.plan.headed(TALLEST * INCH, LINE * INCH), seen.drawn
    place = _Extent(plan, width)
    path = critical_of(trace, step, clock) if critical else None
    bars = bars_of(trace, plan, drawn)
    labels = _labels(trace, plan, bars, place)
    arrows, omitted = arrows_of(trace, plan, seen.arrows).fitting(
        ARROWS,
        "draw a step, or some ranks, trace.only(rank=...)",
        partial(_words, labels) if messages is None else None,
    )
    lines = [*text.provenance(trace, clock, text.WHOLE), *seen.lines, *seen.hosts]
    lines += [*(path.lines if path else []), *omitted]
    boxes, entries = _bars(plan, bars, width)
    idle, bubble = _bubbles(trace, plan, seen.spans, 72 * width)
    edges, marks = _critical(path.among(drawn), plan, theme) if path else ([], [])
    cycle, stuck = _cycle(trace, plan)
    ends, lost = _lost(losses(trace, plan, step), plan)
    entries += [(words, Patch(visible=False)) for words in short_forms(trace)]
    entries += [*bubble, *marks, *paper.marks(theme, arrows.got), *stuck, *lost]

    sized = place.body + paper.AXIS, width, theme
    figure, foot = paper.sheet(title or "Timeline", lines, entries, *sized)
    axes = _axes(figure, place, foot, f"{text.TIMES[clock]} since the run's start", theme)
    for artist in [*idle, *boxes, *edges, *cycle, *ends]:
        axes.add_artist(artist)
    across = plan.size, 1
    paper.arrows(axes, arrows.tails / across, arrows.heads / across, arrows.got, theme)
    for one in labels:
        paper.label(axes, one.x / plan.size, one.y, one.words, one.ink, one.size)
    _label_empty_rows(axes, trace, plan, theme)
    return figure


@dataclass(frozen=True)
class _Extent:
    """Where the axes of a Plan lie on a sheet of `width` inches; in inches unless stated."""

    plan: Plan
    width: float

    @cached_property
    def names(self) -> dict[float, str]:
        """The names of rows, by how far down they are."""
        rows = rows_of(self.plan).items()
        return {y: paper.cut(name, 0.3 * self.width, paper.BODY) for y, name in rows}

    @property
    def groups(self) -> list[float]:
        """How far down the names of hosts are."""
        return [own.y for own in self.plan.lines]

    @cached_property
    def left(self) -> float:
        return paper.beside([*self.names.values()], (self.names[y] for y in self.groups))

    @property
    def wide(self) -> float:
        return self.width - self.left - paper.MARGIN - EDGE

    @property
    def body(self) -> float:
        """The height."""
        return self._pixels * self.plan.scale(TALLEST * INCH) / INCH

    @property
    def _pixels(self) -> float:
        return self.plan.above + self.plan.height

    @property
    def times(self) -> tuple[float, float]:
        """The times at the left and the right edge (s)."""
        room = (self.plan.high - self.plan.low) * 0.01
        return self.plan.low - room, self.plan.high + room

    @property
    def second(self) -> float:
        """A second, in points."""
        low, high = self.times
        return 72 * self.wide / (high - low)

    @property
    def pixel(self) -> float:
        """A pixel of the Plan, in points."""
        return 72 * self.body / self._pixels


def _axes(figure: Figure, place: _Extent, foot: float, times: str, theme: str) -> Axes:
    """Empty axes with the rows' names and `times`, `foot` inches above the sheet's lower edge."""
    axes = paper.axes(figure, (place.left, foot + paper.AXIS, place.wide, place.body), theme)
    plan = place.plan
    axes.set_xlim(*(at / plan.size for at in place.times))
    axes.set_ylim(plan.height, -plan.above)
    paper.ticks(axes)
    paper.rows(axes, place.names, place.groups, theme)
    axes.grid(axis="x")
    axes.set_xlabel(f"{times} ({plan.unit})", loc="right", **paper.WORDS)
    return axes


def _label_empty_rows(axes: Axes, trace: Trace, plan: Plan, theme: str) -> None:
    """Words in the rows of ranks that recorded nothing, and on axes without a row."""
    faint, beside = palette.colors(theme)["faint"], axes.get_yaxis_transform()
    for rank, label in silent(trace).items():
        paper.label(axes, 0.02, plan.y[rank, ""], label, faint, ha="left", transform=beside)
    if not plan.rows:
        paper.label(axes, 0.5, plan.height / 2, "nothing was recorded", faint, transform=beside)


def _bars(plan: Plan, bars: list[Bars], width: float) -> tuple[list[PathCollection], Entries]:
    """A collection of rectangles for each of `bars`, and the legend's entries.

    A caller's own kinds share a style and an entry. Crowded bars have thinner outlines; a bar that
    is narrower than its outline, or that never ended, is filled to its edge.
    """
    inch = 72 * width / (plan.high - plan.low)
    count = sum(len(own.rows) for own in bars)
    crowd = min(72 * width * len(plan.rows) / (4 * max(count, 1)), 1.0)
    drawn, entries = [], []
    for own in bars:
        look = paper.look(own.style)
        edges = own.begin / plan.size, own.finish / plan.size
        thin = (inch * (own.finish - own.begin) < 2 * look["linewidth"]) | own.open
        boxes = paper.boxes(own.name, *edges, plan.top[own.rows], plan.bottom[own.rows], look, thin)
        boxes.set_linewidth(max(crowd * look["linewidth"], 0.15))
        boxes.set_snap(crowd == 1)
        drawn.append(boxes)
        entries += [(own.name, Patch(**look))] * (own.listed and own.kind in palette.KINDS)
    others = [own.name for own in bars if own.listed and own.kind not in palette.KINDS]
    entries += [(", ".join(others), Patch(**paper.look(palette.OTHER)))] * bool(others)
    return drawn, entries


def _bubbles(
    trace: Trace, plan: Plan, spans: np.ndarray, points: float
) -> tuple[list[PathCollection], Entries]:
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


def _cycle(trace: Trace, plan: Plan) -> tuple[list[FancyArrowPatch], Entries]:
    """The cycle of waits as arrows from row to row at the right edge, and the legend's entry."""
    waits = stuck_waits(trace, plan)
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


def _lost(found: list[Loss], plan: Plan) -> tuple[list[Line2D], Entries]:
    """When ranks were lost: a line across the rows of each, and the legend's entry."""
    look = {"color": palette.VERMILION, "linewidth": 1.4, "marker": "x", "markersize": 5}
    lines = [
        Line2D(
            [own.at / plan.size] * 3,
            [own.top, (own.top + own.bottom) / 2, own.bottom],
            markevery=[1],
            zorder=3.5,
            **look,
        )
        for own in found
    ]
    return lines, [("rank lost", Line2D([], [], **look))] * bool(found)


def _critical(path: CriticalPath, plan: Plan, theme: str) -> tuple[list[LineCollection], Entries]:
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
    """Words in a bar: their middle and half their width (s), pixels down, size in points."""

    words: str
    x: float
    half: float
    y: float
    size: float
    ink: str


def _words(labels: list[Label]) -> np.ndarray:
    """Left, right and y of each label, (labels, 3)."""
    return np.array([(one.x - one.half, one.x + one.half, one.y) for one in labels]).reshape(-1, 3)


def _labels(trace: Trace, plan: Plan, bars: list[Bars], place: _Extent) -> list[Label]:
    """The longest form of each span's label that fits into its bar; a number may be small."""
    forms, found, series = forms_of(trace), [], []
    second, pixel = place.second, place.pixel
    for own in bars:
        wide = (own.finish - own.begin) * second - 2
        tall = (plan.bottom - plan.top)[own.rows] * pixel
        middle = (plan.top + plan.bottom)[own.rows] / 2
        for i in np.flatnonzero(own.labelled).tolist():
            row = int(own.rows[i])
            series.append((plan.top[row], own.kind))
            words, size = _longest(forms[row], wide[i], tall[i])
            half = (36 * paper.length(words, size) + 2) / second if size else 0.0
            x = (own.begin[i] + own.finish[i]) / 2
            found.append(Label(words, x, half, middle[i], size, own.style.ink))
    fitting = complete(series, [one.words for one in found], [one.size > 0 for one in found])
    return [one for one, word in zip(found, fitting, strict=True) if word]


def _longest(forms: tuple[str, ...], wide: float, tall: float) -> tuple[str, float]:
    """The longest form that fits into so many points, and its size; else the shortest, and 0."""
    size = min(paper.LABEL, tall / 1.2)
    choices = [(form, size) for form in forms]
    choices += [(form, SMALL) for form in forms[-1:] if form[-1:].isdigit()]
    if wide > SMALL / 2 and tall > SMALL:
        for form, points in choices:
            words = paper.written(form, 24)
            if 72 * paper.length(words, points) <= wide:
                return words, points
    return paper.written(forms[-1], 24), 0.0
