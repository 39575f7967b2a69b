"""How a step scales over ranks: speed-up, communication / computation, and the memory of a rank.

    speed-up  |        ____ ---  strong        ratio      both axes logarithmic, over the same ranks
              |   ___/........... ratio                   lines: the closed form, without overlap
              | /  ....                                   (solid) and with it (dashed)
              +------------------ ranks                   points: runs, by the wall clock
    memory    |-----___________

Communication and computation are those of a rank: at a ratio of 1 to 3, a step without overlap
takes 4/3 of its computation, and 4 ranks give 3 times the speed of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.viz import palette
from dlviz.viz.charts.costs import size_of
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    from dlviz.trace import Trace

Runs = Mapping[int, "Trace"]
TOP, BOTTOM = (0.36, 1.0), (0.0, 0.21)  # the two panels' shares of the height
_DASH = ("solid", "dash")  # without overlap, with it


class Point(NamedTuple):
    """The result of a run on `ranks` ranks, in the quantities of `curves`."""

    ranks: int
    seconds: float  # of a step, the median
    speedup: float
    ratio: float


def scaling(
    traces: Runs | Mapping[str, Runs],
    *,
    curves: Mapping[str, Any],
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw `curves` (of `dlviz.sim.scaling_curves`) over the ranks, and over them the runs of
    `traces`, by their number of ranks.

    `traces` belong to the first curve, or are given by curve: {"batch-weak": {1: ..., 2: ...}}. A
    run's step is the median of its steps, by the wall clock (of a simulated Trace by the device
    clock); its speed-up is over the run on 1 rank. {} draws only the curves. Raises ValueError for
    an unknown curve, and for runs of which none is on 1 rank.
    """
    found = {name: points(runs, curves[name].scaling) for name, runs in named(traces, curves)}
    figure = Figure(_lines(curves, theme))
    for name, own in found.items():
        figure.add_traces(_marks(name, own, curves, theme))
    figure.add_traces(_key(curves, found, theme))
    summary = " ".join(["Lines: closed form.", *_summary(dict(named(traces, curves)))])
    heading = text.heading(title or "Scaling of data parallelism", text.wrap(summary, text.LINE))
    ranks = sorted({n for curve in curves.values() for n in curve.ranks})
    ticks = {"type": "log", "tickvals": ranks, "ticktext": [f"{n:,}" for n in ranks]}
    own = [point for of in found.values() for point in of]
    ratios = [value for curve in curves.values() if curve.buckets == 1 for value in curve.ratio]
    times = [value for curve in curves.values() for value in curve.speedup]
    right = {"anchor": "x", "overlaying": "y", "side": "right", "showgrid": False}
    lay_out(
        figure,
        heading,
        [line for _, runs in named(traces, curves) for line in text.details(_last(runs), "wall")],
        theme,
        inner=430,
        below=110,
        legend={**palette.LEGEND_BELOW, "font": {"size": 11}, "itemwidth": 40},
        xaxis={**ticks, "anchor": "y"},
        xaxis2={**ticks, "anchor": "y3", "matches": "x", "title": {"text": "ranks", "standoff": 2}},
        yaxis={"domain": TOP, **_tens("speed-up", [*ranks, *times], _plain)},
        yaxis2={
            **right,
            **_tens("communication / computation", [*ratios, *(p.ratio for p in own)], _plain),
        },
        yaxis3={
            "domain": BOTTOM,
            "anchor": "x2",
            **_tens(
                "memory of a rank",
                [value for curve in curves.values() for value in curve.memory],
                size_of,
                most=3,
            ),
        },
    )
    return figure


def named(traces: Runs | Mapping[str, Runs], curves: Mapping[str, Any]) -> list[tuple[str, Runs]]:
    """Runs by the name of their curve. Raises ValueError for an unknown curve."""
    flat = any(not isinstance(name, str) for name in traces)
    given: Mapping[str, Runs] = {next(iter(curves)): traces} if flat else traces  # pyright: ignore
    for name in given:
        if name not in curves:
            known = ", ".join(map(repr, curves))
            raise ValueError(f"{name!r} is not a curve: its runs belong to one of {known}.")
    return [(name, dict(sorted(runs.items()))) for name, runs in given.items()]


def points(runs: Runs, mode: str) -> list[Point]:
    """The result of each run. Raises ValueError where none is on 1 rank."""
    if 1 not in runs:
        raise ValueError(
            f"the runs are on {', '.join(map(str, runs))} ranks: a speed-up needs the run on 1 "
            "rank as well."
        )
    steps = {n: _step(trace) for n, trace in runs.items()}
    return [
        Point(
            n,
            steps[n],
            steps[1] / steps[n] * (1 if mode == "strong" else n),
            metrics.communication_ratio(trace, _clock(trace)),
        )
        for n, trace in runs.items()
    ]


def _clock(trace: Trace) -> str:
    return "device" if trace.meta["clock"] == "simulated" else "wall"


def _step(trace: Trace) -> float:
    """Seconds a step; those of the whole run where no span has a step."""
    if (trace.spans.step >= 0).any():
        return metrics.seconds_per_step(trace, _clock(trace))
    return metrics.makespan(trace, _clock(trace))


def _last(runs: Runs) -> Trace:
    return runs[max(runs)]


def _summary(runs: Mapping[str, Runs]) -> list[str]:
    """What the points are: their clock, on how many ranks, and how late they were."""
    summary = []
    for name, own in runs.items():
        clock = text.ORIGINS[_last(own).meta["clock"]]
        late = [
            trace.meta["lateness"]["worst"] for trace in own.values() if "lateness" in trace.meta
        ]
        ranks = ", ".join(map(str, own))
        summary.append(f"Points of {name}: {clock} on {ranks} ranks")
        if _clock(_last(own)) == "wall":
            summary[-1] += ", by the wall clock"
        if late:
            summary[-1] += f", up to {text.seconds(max(late))} late"
        summary[-1] += "."
    return summary


def _lines(curves: Mapping[str, Any], theme: str) -> list[go.Scatter]:
    """The ideal, each curve's speed-up, and once for each scaling its ratio and its memory."""
    ranks = sorted({n for curve in curves.values() for n in curve.ranks})
    ideal = {"color": palette.colors(theme)["grid"], "width": 9}
    series = [
        go.Scatter(x=ranks, y=ranks, name="as many times as ranks", mode="lines", line=ideal,
                   hoverinfo="skip")
    ]  # fmt: skip
    for name, curve in curves.items():
        whole = curve.buckets == 1
        line = _line(name, "speed-up", curve, curve.speedup, _DASH[not whole], _times, curves)
        series.append(line.update(showlegend=whole))
        if whole:
            line = _line(name, "ratio", curve, curve.ratio, "dot", _ratio, curves)
            series.append(line.update(yaxis="y2", showlegend=False))
            line = _line(name, "memory", curve, curve.memory, "solid", size_of, curves)
            series.append(line.update(xaxis="x2", yaxis="y3", showlegend=False))
    return series


def _line(
    name: str,
    what: str,
    curve: Any,
    values: Sequence[float],
    dash: str,
    said: Callable[[float], str],
    curves: Mapping[str, Any],
) -> go.Scatter:
    """A line that a click on its scaling in the legend hides."""
    at = [(n, value) for n, value in zip(curve.ranks, values, strict=True) if value > 0]
    return go.Scatter(
        x=[n for n, _ in at],
        y=[value for _, value in at],
        name=text.cut(name, 40),
        legendgroup=curve.scaling,
        mode="lines",
        line={"color": _color(curve, curves), "dash": dash, "width": 2.2},
        **hover([_words(name, what, n, said(value)) for n, value in at]),
    )


def _key(
    curves: Mapping[str, Any], found: Mapping[str, list[Point]], theme: str
) -> list[go.Scatter]:
    """The legend's entries for what dashes and marks mean, in ink."""
    ink = palette.colors(theme)["ink"]
    overlapped = any(curve.buckets > 1 for curve in curves.values())
    entries = [("speed-up", "lines", "solid", "circle")]
    entries += [("speed-up with overlap", "lines", "dash", "circle")] * overlapped
    entries += [("communication / computation", "lines", "dot", "circle")]
    for name in found:
        mark = _symbol(curves[name])
        entries.append((f"runs, {text.cut(name, 40)}", "markers", "solid", mark))
        entries.append(("their ratio", "markers", "solid", mark + "-open"))
    return [
        go.Scatter(
            x=[None],
            y=[None],
            name=name,
            mode=mode,
            line={"color": ink, "dash": dash, "width": 2},
            marker={"color": ink, "symbol": symbol, "size": 9},
            hoverinfo="skip",
        )
        for name, mode, dash, symbol in entries
    ]


def _marks(name: str, own: list[Point], curves: Mapping[str, Any], theme: str) -> list[go.Scatter]:
    """The runs: a filled mark for the speed-up, an open one for the ratio."""
    edge, color = palette.colors(theme)["ink"], _color(curves[name], curves)
    symbol = _symbol(curves[name])
    marks = []
    for what, said, axis in (("speedup", _times, "y"), ("ratio", _ratio, "y2")):
        drawn = [(point, getattr(point, what)) for point in own if getattr(point, what) > 0]
        open_ = "-open" * (what == "ratio")
        line = {"color": color if open_ else edge, "width": 2 if open_ else 1.2}
        shown = "speed-up" if what == "speedup" else what
        marks.append(
            go.Scatter(
                x=[point.ranks for point, _ in drawn],
                y=[value for _, value in drawn],
                yaxis=axis,
                name=f"{text.cut(name, 40)}: {shown} of runs",
                legendgroup=curves[name].scaling,
                showlegend=False,
                mode="markers",
                marker={"color": color, "symbol": symbol + open_, "size": 10, "line": line},
                **hover(
                    [
                        _words(f"{name}, run", shown, point.ranks, said(value))
                        + f"<br>a step takes {text.seconds(point.seconds)}"
                        for point, value in drawn
                    ]
                ),
            )
        )
    return marks


def _words(name: str, what: str, ranks: int, value: str) -> str:
    many = "1 rank" if ranks == 1 else f"{ranks:,} ranks"
    return f"<b>{text.cut(name, 50)}</b><br>{what} on {many}: {value}"


def _symbol(curve: Any) -> str:
    return "circle" if curve.buckets == 1 else "square"


def _color(curve: Any, curves: Mapping[str, Any]) -> str:
    """One hue for each scaling."""
    scalings = [*dict.fromkeys(each.scaling for each in curves.values())]
    return palette.LINES[scalings.index(curve.scaling) % len(palette.LINES)]


def _times(value: float) -> str:
    return f"{value:.3g} times as fast as 1 rank"


def _ratio(value: float) -> str:
    return f"{value:.3g}"


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def _tens(
    title: str, values: list[float], said: Callable[[float], str], most: int = 7
) -> dict[str, Any]:
    """A logarithmic axis of `values`, with at most `most` ticks at powers of ten."""
    drawn = [value for value in values if 0 < value < np.inf] or [1.0]
    low, high = np.log10(min(drawn)), np.log10(max(drawn))
    powers = np.arange(np.ceil(low - 1e-9), np.floor(high + 1e-9) + 1)
    places = 10.0 ** powers[:: max(1, -(-len(powers) // most))]
    room = 0.05 * (high - low) + 0.05
    return {
        "title": {"text": title, "standoff": 6},
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": places.tolist(),
        "ticktext": [said(place) for place in places.tolist()],
    }
