"""What algorithms cost over the size of a message, and from which size on which is cheapest.

    seconds  |  ring ______________________/      both axes logarithmic; a diamond where one
             |  ____________________--o---/       algorithm takes over from another as the cheapest
             |  butterfly          /
             +---------------------------- bytes

The two bandwidths are those of nccl-tests. The algorithm bandwidth is size / time: what a user of
the collective sees. The bus bandwidth multiplies it by what each rank must move at least, for an
all-reduce 2(n-1)/n: it compares with the speed of the link for any number n of ranks. It does not
measure what went over the link: an algorithm that sends more than it must shows a low bus
bandwidth on a link that is full all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.crossovers import cheapest, crossovers
from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

TENS = (10.0, 100.0, 1e3, 1e6)  # steps between the ticks of an axis
MARKS = 9  # ticks at most, on an axis
SHOWN = {"seconds": "time", "algorithm": "algorithm bandwidth", "bus": "bus bandwidth"}
DEFINITIONS = {
    "seconds": "",
    "algorithm": "Algorithm bandwidth: size / time.",
    "bus": "Bus bandwidth: size / time × 2(n-1)/n, the least that each of n ranks must move. "
    "An algorithm that moves more shows a lower bus bandwidth on the same link.",
}


def costs(
    nbytes: Sequence[float],
    seconds: Mapping[str, Sequence[float]],
    *,
    measured: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    show: str = "seconds",
    ranks: int | None = None,
    link: float | None = None,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw the predicted `seconds` of each algorithm over `nbytes`, and where the cheapest changes.

    `nbytes` ascend. `measured` has (bytes, seconds) points of an algorithm, drawn beside its line.
    `show` is "seconds", "algorithm" (bandwidth, bytes/s) or "bus" (that of an all-reduce, which
    needs `ranks`). Seconds have a logarithmic axis, a bandwidth a linear one from 0, on which
    `link` is a line: what a link carries (bytes/s). Raises ValueError for an unknown `show`, a bus
    bandwidth without ranks, a link beside seconds, and unless sizes and seconds are equally many
    positive numbers.
    """
    _check_form(show, ranks, link)
    sizes = np.asarray(nbytes, dtype=np.float64)
    lines, marks = _lines_of(sizes, seconds), _marks_of(measured or {})

    def height(size: np.ndarray, took: np.ndarray) -> np.ndarray:
        if show == "bus":
            return metrics.bus_bandwidth("all_reduce", ranks or 1, size, took)  # pyright: ignore
        return took if show == "seconds" else metrics.algorithm_bandwidth(size, took)  # pyright: ignore

    said = text.seconds if show == "seconds" else _rate
    crossed = crossovers(sizes, lines)
    series = _series(sizes, lines, marks, crossed, height, said, theme)
    drawn = np.concatenate([np.zeros(0), *(np.asarray(line.y) for line in series)])
    sentences = [*filter(None, [DEFINITIONS[show]]), *winners(crossed, lines)]
    subtitle = "<br>".join(text.wrap(line, text.LINE) for line in sentences)
    heading = text.heading(title or "Cost over size", subtitle)
    figure = Figure(series)
    if link is not None:
        _draw_link(figure, link, theme)
    scale: dict[str, Any] = {"type": "log", **ticks(drawn, TENS, said)}
    if show != "seconds":
        scale = even(max([*drawn.tolist(), link or 0.0, 1e-9]))
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=340,
        below=60,
        legend=palette.LEGEND_LINES,
        xaxis={"title": "size", "type": "log", **ticks(sizes, TENS, size_of)},
        yaxis={"title": SHOWN[show], **scale},
    )
    return figure


def _lines_of(sizes: np.ndarray, seconds: Mapping[str, Sequence[float]]) -> dict[str, np.ndarray]:
    """The seconds of each algorithm, by its name in the chart."""
    lines = {text.named(name): np.asarray(values, np.float64) for name, values in seconds.items()}
    for name, values in lines.items():
        _check(name, sizes, values)
    return lines


def _marks_of(measured: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, np.ndarray]:
    """The measured points of each algorithm, (points, 2), by its name in the chart."""
    marks = {text.named(name): np.array(at, float).reshape(-1, 2) for name, at in measured.items()}
    for name, points in marks.items():
        _check(f"{name}, measured", *points.T)
    return marks


def _draw_link(figure: Figure, link: float, theme: str) -> None:
    """What a link carries, as a horizontal line."""
    figure.add_hline(
        link, line={"color": palette.colors(theme)["ink"], "width": 1.5, "dash": "dot"},
        annotation={"text": f"the link: {_rate(link)}", "font": {"size": 11}},
        annotation_position="bottom left",
    )  # fmt: skip


def _series(
    sizes: np.ndarray,
    lines: Mapping[str, np.ndarray],
    marks: Mapping[str, np.ndarray],
    crossed: list[tuple[float, str, str]],
    height: Callable[[np.ndarray, np.ndarray], np.ndarray],
    said: Callable[[float], str],
    theme: str,
) -> list[go.Scatter]:
    """The cheapest at each size as a broad line, over it each algorithm's line and measured points,
    and a diamond where the cheapest changes."""
    series = []
    if lines:
        best = height(sizes, np.min(list(lines.values()), axis=0))
        series.append(_cheapest(sizes, best, theme))
    for i, (name, values) in enumerate(lines.items()):
        series.append(_line(name, i, sizes, height(sizes, values), said))
    for name, points in marks.items():
        i = [*lines, *marks].index(name)
        series.append(_points(name, i, points, height(*points.T), said, theme))
    if crossed:
        at = np.array([size for size, _, _ in crossed])
        took = [np.interp(size, sizes, lines[after]) for size, _, after in crossed]
        series.append(_diamonds(crossed, at, height(at, np.array(took)), theme))
    return series


def _check_form(show: str, ranks: int | None, link: float | None) -> None:
    if show not in SHOWN:
        raise ValueError(f"show={show!r} is unknown: use one of {', '.join(map(repr, SHOWN))}.")
    check_counts(ranks=ranks)
    if show == "bus" and (ranks is None or ranks < 2):
        raise ValueError(f"show='bus' depends on the number of ranks, not {ranks!r}: give 2 or up.")
    if link is not None and (show == "seconds" or not 0 < link < np.inf):
        raise ValueError(
            f"link={link!r} cannot be drawn: give bytes per second, above 0, beside a bandwidth "
            "(show='algorithm' or 'bus')."
        )


def ticks(values: np.ndarray, steps: Sequence[float], said: Callable[[float], str]) -> dict:
    """Ticks of a logarithmic axis at the powers of the first of `steps` that gives few enough."""
    places = np.zeros(0)
    for step in steps if len(values) else ():
        low, high = np.log([np.min(values), np.max(values)]) / np.log(step)
        places = step ** np.arange(np.ceil(low - 1e-9), np.floor(high + 1e-9) + 1)
        if len(places) <= MARKS:
            break
    return {"tickvals": places.tolist(), "ticktext": [said(place) for place in places.tolist()]}


def even(top: float) -> dict[str, Any]:
    """A linear axis of bandwidths from 0 to above `top`, with ticks up to its end."""
    size = 10.0 ** np.floor(np.log10(top))
    step = next(size * part for part in (0.2, 0.5, 1.0, 2.0) if top <= 6 * size * part)
    places = (np.arange(np.ceil(top / step) + 1) * step).tolist()
    labels = ["0", *map(_rate, places[1:])]
    return {"tickvals": places, "ticktext": labels, "range": [0, 1.04 * places[-1]]}


def _check(name: str, sizes: np.ndarray, values: np.ndarray) -> None:
    if len(values) != len(sizes):
        raise ValueError(
            f"{name} has {len(values)} seconds and there are {len(sizes)} sizes: give one for each."
        )
    for what, numbers in (("size", sizes), ("seconds of " + name, values)):
        wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
        if len(wrong):
            raise ValueError(
                f"{what} {wrong[0]:g} cannot stand on a logarithmic axis: use numbers above 0."
            )


def _cheapest(sizes: np.ndarray, best: np.ndarray, theme: str) -> go.Scatter:
    line = {"color": palette.colors(theme)["grid"], "width": 11}
    return go.Scatter(x=sizes, y=best, name="the cheapest", mode="lines", line=line,
                      hoverinfo="skip")  # fmt: skip


def _line(
    name: str, place: int, x: np.ndarray, y: np.ndarray, said: Callable[[float], str]
) -> go.Scatter:
    color, dash = palette.line(place)
    return go.Scatter(
        x=x,
        y=y,
        name=text.cut(name),
        mode="lines",
        line={"color": color, "dash": dash, "width": 2.2},
        **hover(_hover_texts(name, x, y, said)),
    )


def _points(
    name: str,
    place: int,
    points: np.ndarray,
    y: np.ndarray,
    said: Callable[[float], str],
    theme: str,
) -> go.Scatter:
    color, _ = palette.line(place)
    edge = {"color": palette.colors(theme)["ink"], "width": 1.2}
    return go.Scatter(
        x=points[:, 0],
        y=y,
        name=f"{text.cut(name)}, measured",
        mode="markers",
        marker={"color": color, "symbol": place % 24, "size": 10, "line": edge},
        **hover(_hover_texts(f"{name}, measured", points[:, 0], y, said)),
    )


def _diamonds(
    crossed: list[tuple[float, str, str]], at: np.ndarray, y: np.ndarray, theme: str
) -> go.Scatter:
    colors = palette.colors(theme)
    return go.Scatter(
        x=at,
        y=y,
        name="another is cheapest",
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": colors["paper"],
                "line": {"color": colors["ink"], "width": 2}},
        **hover([f"from {size_of(at)} on <b>{text.cut(after)}</b><br>below it {text.cut(before)}"
                    for at, before, after in crossed]),
    )  # fmt: skip


def _hover_texts(
    name: str, x: np.ndarray, y: np.ndarray, said: Callable[[float], str]
) -> list[str]:
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return [
        f"<b>{text.cut(name, 40)}</b><br>{size_of(size)}: {said(value)}" for size, value in pairs
    ]


def winners(crossed: list[tuple[float, str, str]], lines: Mapping[str, np.ndarray]) -> list[str]:
    """Which is cheapest from which size on, in a sentence."""
    if not lines:
        return []
    first = crossed[0][1] if crossed else [*lines][cheapest(np.array([*lines.values()]))[0]]
    parts = [f"then {after} from {size_of(size)}" for size, _, after in crossed]
    return [", ".join([f"Cheapest: {first}", *parts]) + "."]


def size_of(nbytes: float) -> str:
    """A size in words, to the byte where it is small."""
    return text.nbytes(round(nbytes))


def _rate(value: float) -> str:
    """Bytes a second in words, in powers of ten like nccl-tests: 1.2 GB/s."""
    scale, name = next(
        ((s, n) for s, n in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s")) if value >= s),
        (1.0, "B/s"),
    )
    return f"{value / scale:.3g} {name}"
