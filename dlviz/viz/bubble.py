"""The bubble chart: how much of a pipeline's time is idle, against its size.

    ratio  |  \\  o                       a line is a closed form, a ring a simulation,
           |    \\ ___o                   a diamond a run, by the wall clock
           |         ---o___ <> o
           +------------------------- microbatches, ranks or chunks

Bubble *ratio* is idle / busy, bubble *fraction* idle / total. Symbols: p ranks, m microbatches, v
chunks. The closed forms (`metrics.bubble_formula`) hold where all stages cost the same and messages
take no time; what a mark lies above its line is what that leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.clocks import clock_of, span_times
from dlviz.viz import palette, text
from dlviz.viz.costs import dash_of
from dlviz.viz.figure import Figure

if TYPE_CHECKING:
    from dlviz.trace import Trace

SIZES = {"ranks": "p", "microbatches": "m", "chunks": "v"}
ONE = {"ranks": "rank", "microbatches": "microbatch", "chunks": "chunk"}
MEASURES = {"ratio": "bubble ratio: idle / busy", "fraction": "bubble fraction: idle / total"}
MARKS = {  # what a mark is -> plotly's symbol and matplotlib's, and whether it is filled
    "simulated": ("circle-open", "o", False),
    "measured": ("diamond", "D", True),
    "measured, late": ("diamond-open", "D", False),  # a paced run whose wall times mislead
    "paced, device time": ("square-open", "s", False),
}
REACH = 2  # times the size of a lone point: how far its line goes
FORMULA = "The closed form holds where all stages cost the same and messages take no time."


@dataclass(frozen=True)
class Point:
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
        """The bubble ratio by the closed form, at these sizes or its own; NaN if it has none."""
        p, m, v = (getattr(self, name) if name not in sizes else sizes[name] for name in SIZES)
        if self.schedule not in metrics.CHUNKED:
            v = self.chunks
        return metrics.bubble_formula(self.schedule, p, m, *self.costs) / (m * v * sum(self.costs))


@dataclass(frozen=True)
class Group:
    """Points that differ in the size on the axis alone (and in their clock), and their line."""

    label: str
    points: list[Point]
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

    `traces` is a Trace, several, or either by name; one without a name bears that of its schedule.
    `against` is "microbatches", "ranks" or "chunks", which are counted in the spans; `measure` is
    "ratio" or "fraction". What ran is read by its wall clock if `clock` does not say "device". A
    schedule without a closed form gets no line. Raises ValueError for a Trace in which no rank
    computes, and for another `against`, `measure`, clock or theme.
    """
    groups, lines, details = grouped(traces, against, measure, clock)
    colors = palette.colors(theme)
    series: list[go.Scatter] = []
    for place, group in enumerate(groups):
        color, dash = dash_of(place)
        shared: dict[str, Any] = {"name": text.cut(group.label, 40), "legendgroup": str(place)}
        if np.isfinite(group.ratio).any():
            series.append(
                go.Scatter(
                    x=group.x,
                    y=in_measure(group.ratio, measure),
                    mode="lines",
                    line={"color": color, "dash": dash, "width": 2},
                    meta=[text.cut(group.label, 40), SIZES[against]],
                    hovertemplate="%{meta[0]}, formula<br>%{meta[1]} = %{x}: %{y:.4f}"
                    "<extra></extra>",
                    **shared,
                )
            )
        named = bool(np.isfinite(group.ratio).any())
        for origin, (symbol, _, filled) in MARKS.items():
            points = [point for point in group.points if point.origin == origin]
            if not points:
                continue
            edge = {"color": colors["ink"] if filled else color, "width": 1 if filled else 2}
            series.append(
                go.Scatter(
                    x=[getattr(point, against) for point in points],
                    y=[getattr(point, measure) for point in points],
                    mode="markers",
                    marker={
                        "symbol": symbol,
                        "size": 9 if filled else size_of(place),
                        "color": color,
                        "line": edge,
                    },
                    customdata=[told(point) for point in points],
                    hovertemplate="%{customdata}<extra></extra>",
                    showlegend=not named,
                    **shared,
                )
            )
            named = True
    for origin in origins(groups):
        marker = {"symbol": MARKS[origin][0], "size": 9, "color": colors["ink"]}
        key = {"name": origin, "mode": "markers", "marker": marker, "hoverinfo": "skip"}
        series.append(go.Scatter(x=[None], y=[None], **key))

    heading = text.heading(title or "The bubble", "<br>".join(map(text.clean, lines)))
    figure = Figure(series)
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 60},
        height=heading["margin"]["t"] + 400,
        legend=palette.LEGEND_LINES,
        xaxis={"title": f"{against} ({SIZES[against]})", "tickformat": "d", **_whole(groups)},
        yaxis={"title": MEASURES[measure], "rangemode": "tozero"},
    )
    text.inform(figure, details)
    return figure


def points(traces: Any, clock: str | None = None) -> Iterator[tuple[Point, Trace, str]]:
    """Each of `traces` as a Point, with the columns it was read from. Raises ValueError."""
    for name, trace in _each(traces):
        read = clock
        if read is None:
            read = "device" if trace.meta["clock"] == "simulated" else "wall"
        read = clock_of(trace, read)
        schedule = str(trace.meta.get("schedule", "")) or name
        label = text.named(name or schedule) or "a run"
        spans = trace.only(kind=metrics.COMPUTE).spans
        ratio = metrics.bubble_ratio(trace, read)
        if not np.isfinite(ratio):
            raise ValueError(
                f"{label!r} has no bubble: no rank of its Trace has a forward or a backward that "
                "takes time."
            )
        held = {*zip(spans.rank.tolist(), spans.stage.tolist(), strict=True)}
        stages = np.bincount([rank for rank, _ in held])
        origin = "simulated" if trace.meta["clock"] == "simulated" else "measured"
        if origin == "measured" and trace.meta["clock"] == "paced" and read == "device":
            origin = "paced, device time"
        elif origin == "measured" and trace.meta["warning"]:
            origin = "measured, late"
        found = Point(
            label,
            schedule,
            origin,
            len(trace.ranks),
            len({*spans.microbatch.tolist()}),
            int(stages.max()),
            ratio,
            metrics.bubble_fraction(trace, read),
            _costs(trace),
        )
        yield found, trace, read


def grouped(
    traces: Any, against: str, measure: str, clock: str | None
) -> tuple[list[Group], list[str], list[str]]:
    """The Groups of a chart, in the order given, the lines of its subtitle and the details behind
    its (i). Raises ValueError."""
    for what, value, known in (("against", against, SIZES), ("measure", measure, MEASURES)):
        if value not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"{what}={value!r} is not on the chart: use {names}.")
    found = [*points(traces, clock)]
    if not found:
        raise ValueError("traces has no Trace in it: give one or more.")
    others = [name for name in SIZES if name != against]
    groups: dict[tuple, list[Point]] = {}
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
        laid.append(Group(", ".join([key[0], *said]), members, x, line))
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
    """Bubble ratios as what `measure` asks for: a fraction is idle / (idle + busy)."""
    return ratio if measure == "ratio" else ratio / (1 + ratio)


def origins(groups: list[Group]) -> list[str]:
    """The MARKS that the groups need, in their order."""
    used = {point.origin for group in groups for point in group.points}
    return [origin for origin in MARKS if origin in used]


def size_of(place: int) -> int:
    """A mark's size in pixels: marks of several schedules in one place are rings in each other."""
    return 8 + 3 * (place % 4)


def told(point: Point) -> str:
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


def _costs(trace: Trace) -> tuple[float, float, float]:
    """The mean device seconds of a visit: F, I and W (a whole backward as I alone)."""
    spans = trace.spans
    start, end = span_times(trace, "device")

    def mean(kind: str) -> float:
        rows = spans.kind == kind
        return float((end - start)[rows].mean()) if rows.any() else 0.0

    split = mean("backward_input"), mean("backward_weight")
    return mean("forward"), *(split if any(split) else (mean("backward"), 0.0))


def _whole(groups: list[Group]) -> dict[str, Any]:
    """Marks of an axis at whole numbers alone."""
    high = max(int(group.x[-1]) for group in groups)
    return {"dtick": 1} if high <= 12 else {}
