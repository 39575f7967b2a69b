"""The bubble chart: how much of a pipeline's time is idle, against its size.

    ratio  |  \\  o                       a line is a closed form, a ring a simulation,
           |    \\ ___o                   a diamond a run, by the wall clock
           |         ---o___ <> o
           +------------------------- microbatches, ranks or chunks

Bubble *ratio* is idle / busy, bubble *fraction* idle / total. Symbols: p ranks, m microbatches, v
chunks. The closed forms (`metrics.bubble_ratio_formula`) hold where all stages cost the same and
messages take no time; how far a mark lies above its line shows what they leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.bubble import FORMULAS, bubble_ratio_formula, fraction_of, pass_seconds
from dlviz.analysis.clocks import clock_of
from dlviz.analysis.stages import pipeline_size
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    from dlviz.trace import Trace

SIZES = {"ranks": "p", "microbatches": "m", "chunks": "v"}
ONE = {"ranks": "rank", "microbatches": "microbatch", "chunks": "chunk"}
MEASURES = {"ratio": "bubble ratio: idle / busy", "fraction": "bubble fraction: idle / total"}
MARKS = {  # origin of a mark -> plotly's symbol and matplotlib's, and whether it is filled
    "simulated": ("circle-open", "o", False),
    "measured": ("diamond", "D", True),
    "measured, late": ("diamond-open", "D", False),  # a paced run whose wall times mislead
    "paced, device time": ("square-open", "s", False),
}
REACH = 2  # times the size of a lone point: how far its line goes
FORMULA = "The closed form holds where all stages cost the same and messages take no time."


@dataclass(frozen=True)
class BubblePoint:
    """The bubble of one Trace. `origin` is one of MARKS, `costs` the mean seconds of F, I and W."""

    name: str
    schedule: str
    origin: str
    ranks: int
    microbatches: int
    chunks: int
    ratio: float
    fraction: float
    costs: tuple[float, float, float]

    def formula(self, **sizes: int) -> float:
        """The bubble ratio by the closed form, at `sizes` or its own; NaN if there is none."""
        if self.schedule not in FORMULAS:
            return float("nan")
        p, m, v = (getattr(self, name) if name not in sizes else sizes[name] for name in SIZES)
        if self.schedule not in metrics.CHUNKED:
            v = self.chunks
        return bubble_ratio_formula(self.schedule, p, m, v, *self.costs)


@dataclass(frozen=True)
class BubbleCurve:
    """Points that differ only in the size on the axis (and in their clock), and their line."""

    label: str
    points: list[BubblePoint]
    x: np.ndarray
    ratio: np.ndarray  # by the closed form, NaN where there is none


def bubble(
    traces: Trace | Iterable[Trace] | Mapping[str, Trace | Iterable[Trace]],
    *,
    against: str = "microbatches",
    measure: str = "ratio",
    clock: str | None = None,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw the bubble of each of `traces` against a size: marks, and the closed form as a line.

    `traces` is a Trace, several, or either by name; without a name, a Trace has its schedule's.
    `against` is "microbatches", "ranks" or "chunks", which are counted in the spans; `measure` is
    "ratio" or "fraction". A real run is read by its wall clock unless `clock` is "device". A
    schedule without a closed form gets no line. Raises ValueError for a Trace in which no rank
    computes, and for an unknown `against`, `measure`, clock or theme.
    """
    groups, lines, details = grouped(traces, against, measure, clock)
    ink = palette.colors(theme)["ink"]
    figure = Figure()
    for place, group in enumerate(groups):
        figure.add_traces(_series(group, place, against, measure, ink))
    for origin in origins(groups):
        marker = {"symbol": MARKS[origin][0], "size": 9, "color": ink}
        key = {"name": origin, "mode": "markers", "marker": marker, "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(x=[None], y=[None], **key))
    lay_out(
        figure,
        text.heading(title or "The bubble", "<br>".join(map(text.clean, lines))),
        details,
        theme,
        inner=340,
        below=60,
        legend=palette.LEGEND_LINES,
        xaxis={"title": f"{against} ({SIZES[against]})", "tickformat": "d", **_whole(groups)},
        yaxis={"title": MEASURES[measure], "rangemode": "tozero"},
    )
    return figure


def _series(
    group: BubbleCurve, place: int, against: str, measure: str, ink: str
) -> list[go.Scatter]:
    """The line of one group, and a series of marks for each origin; the first is in the legend."""
    color, dash = palette.line(place)
    label = text.cut(group.label, 40)
    shared: dict[str, Any] = {"name": label, "legendgroup": str(place)}
    series = []
    if np.isfinite(group.ratio).any():
        series.append(
            go.Scatter(
                x=group.x,
                y=in_measure(group.ratio, measure),
                mode="lines",
                line={"color": color, "dash": dash, "width": 2},
                meta=[label, SIZES[against]],
                hovertemplate="%{meta[0]}, formula<br>%{meta[1]} = %{x}: %{y:.4f}<extra></extra>",
                **shared,
            )
        )
    for origin in origins([group]):
        points = [point for point in group.points if point.origin == origin]
        symbol, _, filled = MARKS[origin]
        edge = {"color": ink if filled else color, "width": 1 if filled else 2}
        size = 9 if filled else size_of(place)
        series.append(
            go.Scatter(
                x=[getattr(point, against) for point in points],
                y=[getattr(point, measure) for point in points],
                mode="markers",
                marker={"symbol": symbol, "size": size, "color": color, "line": edge},
                **hover([hover_text(point) for point in points]),
                showlegend=not series,
                **shared,
            )
        )
    return series


def points(traces: Any, clock: str | None = None) -> Iterator[tuple[BubblePoint, Trace, str]]:
    """Each of `traces` as a BubblePoint, its Trace, and the clock it was read by. Raises
    ValueError."""
    for name, trace in _each(traces):
        read = clock
        if read is None:
            read = "device" if trace.meta["clock"] == "simulated" else "wall"
        read = clock_of(trace, read)
        schedule = str(trace.meta.get("schedule", "")) or name
        label = text.named(name or schedule) or "a run"
        ratio = metrics.bubble_ratio(trace, read)
        if not np.isfinite(ratio):
            raise ValueError(
                f"{label!r} has no bubble: no rank of its Trace has a forward or a backward that "
                "takes time."
            )
        origin = "simulated" if trace.meta["clock"] == "simulated" else "measured"
        if origin == "measured" and trace.meta["clock"] == "paced" and read == "device":
            origin = "paced, device time"
        elif origin == "measured" and trace.meta["warning"]:
            origin = "measured, late"
        found = BubblePoint(
            label,
            schedule,
            origin,
            *pipeline_size(trace),
            ratio,
            metrics.bubble_fraction(trace, read),
            pass_seconds(trace),
        )
        yield found, trace, read


def grouped(
    traces: Any, against: str, measure: str, clock: str | None
) -> tuple[list[BubbleCurve], list[str], list[str]]:
    """The curves of a chart in the given order, the lines of its subtitle, and the details behind
    its (i). Raises ValueError."""
    for what, value, known in (("against", against, SIZES), ("measure", measure, MEASURES)):
        if value not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"{what}={value!r} is not on the chart: use {names}.")
    found = [*points(traces, clock)]
    if not found:
        raise ValueError("traces has no Trace in it: give one or more.")
    others = [name for name in SIZES if name != against]
    groups: dict[tuple, list[BubblePoint]] = {}
    for point, _, _ in found:
        key = (point.name, *(getattr(point, name) for name in others))
        groups.setdefault(key, []).append(point)
    vary = [i for i, _ in enumerate(others, 1) if len({key[i] for key in groups}) > 1]
    sizes = [getattr(point, against) for point, _, _ in found]
    low, high = min(sizes), max(sizes)
    if low == high:
        low, high = max(1, low // REACH), max(2, high * REACH)
    x = np.unique(np.linspace(low, high, 200).round().astype(int))
    laid = []
    for key, members in groups.items():
        said = [_count(key[i], others[i - 1]) for i in vary]
        exact = next((point for point in members if point.origin == "simulated"), members[0])
        line = np.array([exact.formula(**{against: size}) for size in x.tolist()])
        laid.append(BubbleCurve(", ".join([key[0], *said]), members, x, line))
    read = text.merged((trace, read) for _, trace, read in found)
    lines = [line for trace, clock in read for line in text.provenance(trace, clock)]
    details = [line for trace, clock in read for line in text.details(trace, clock)]
    fixed = [_count(getattr(found[0][0], name), name) for i, name in enumerate(others, 1)
             if i not in vary]  # fmt: skip
    if any(np.isfinite(group.ratio).any() for group in laid):
        fixed.append("lines: the closed form")
        details.append(FORMULA)
    lines += [", ".join(fixed)] * bool(fixed)
    return laid, lines, details


def in_measure(ratio: np.ndarray, measure: str) -> np.ndarray:
    """Bubble ratios in the `measure`: a fraction is idle / (idle + busy)."""
    return ratio if measure == "ratio" else fraction_of(ratio)


def origins(groups: list[BubbleCurve]) -> list[str]:
    """The MARKS that the groups need, in their order."""
    used = {point.origin for group in groups for point in group.points}
    return [origin for origin in MARKS if origin in used]


def size_of(place: int) -> int:
    """A mark's size in pixels: marks of several schedules at one point are concentric rings."""
    return 8 + 3 * (place % 4)


def hover_text(point: BubblePoint) -> str:
    """What a mark says on hover."""
    sizes = ", ".join(_count(getattr(point, name), name) for name in SIZES)
    lines = [
        f"<b>{text.wrap(point.name)}, {point.origin}</b>",
        sizes,
        f"ratio {point.ratio:.4f}, fraction {point.fraction:.4f}",
    ]
    ideal = point.formula()
    if np.isfinite(ideal) and ideal > 0:
        more = point.ratio / ideal - 1
        where = (
            "on it" if abs(more) < 5e-5 else f"{abs(more):.2%} {'above' if more > 0 else 'below'}"
        )
        lines.append(f"formula: ratio {ideal:.4f}, {where}")
    return "<br>".join(lines)


def _count(number: int, name: str) -> str:
    return f"{number} {ONE[name] if number == 1 else name}"


def _each(traces: Any) -> Iterator[tuple[str, Trace]]:
    named = traces.items() if isinstance(traces, Mapping) else [("", traces)]
    for name, given in named:
        for trace in [given] if hasattr(given, "spans") else given:
            yield str(name), trace


def _whole(groups: list[BubbleCurve]) -> dict[str, Any]:
    """Ticks of an axis at whole numbers only."""
    high = max(int(group.x[-1]) for group in groups)
    return {"dtick": 1} if high <= 12 else {}
