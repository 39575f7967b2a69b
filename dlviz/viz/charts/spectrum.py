"""The spectrum of methods: how fast each goes through examples, and how many of them it needs.

    examples/s |   / o asynchronous /        |
               |  /                /         |
               | /   o synchronous/          | o never got there
               +----------------------------- examples to target

Both axes logarithmic, so that points of one time to target,

    seconds to target = examples to target / examples per second,

lie on a line that rises by one to one. The less time, the farther to the upper left. A method that
never got to the target is shown beyond the right border, at its speed. Of several seeds a bar goes
from the fewest to the most examples.

The upward axis is a method's hardware performance, the other its statistical performance: Zhang and
Re, "DimmWitted: A Study of Main-Memory Statistical Analytics", VLDB 2014, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, lay_out
from dlviz.viz.placing import Box, placed
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    import pandas

WIDE, INNER = 700.0, 400.0  # pixels of the axes in a notebook
CHARACTER, TYPE, GAP = 6.8, 15.0, 11.0  # pixels: a label's character, its height, gap to its point
ABOVE = 16  # pixels: of the labels on the lines of time
NEVER = 0.14  # of the width: the column of those that never got there
TIMES = 7  # lines at most
ACROSS, UPWARD = (
    "examples to target (statistical performance)",
    "examples / s (hardware performance)",
)


class SpectrumPlan(NamedTuple):
    """The chart, in decades (log10) of both quantities."""

    points: np.ndarray  # (methods, 2)
    x: tuple[float, float]
    y: tuple[float, float]
    border: float  # methods beyond it never got to the target; x[1] where all did
    times: list[tuple[float, np.ndarray]]  # seconds; both ends (2, 2), the upper one last
    labels: np.ndarray  # (methods, 2): from a point to the middle of its label, in units of `size`
    ranges: np.ndarray  # (methods, 2): the fewest and the most examples; NaN without


def spectrum(
    table: pandas.DataFrame,
    *,
    target: float,
    over: int = 16,
    theme: str = "auto",
    title: str = "How fast, and how far with each example",
) -> Figure:
    """Draw the methods of `table`, as `viz.spectrum_table` made it with `target` and `over`, or
    `viz.compared_table`, whose medians have a bar from the fewest to the most.

    Raises ValueError for a table without rows, and for a speed or number not above 0.
    """
    check_counts(over=over)
    names = named(table)
    plan = laid_out(table, (WIDE, INNER), (CHARACTER, TYPE, GAP))
    figure = Figure(_times(plan, theme))
    for i, (name, look) in enumerate(palette.methods(names).items()):
        mark: Any = _point(table.iloc[i], name, look, plan.points[i], theme)
        if np.isfinite(plan.ranges[i, 0]):
            fewest, most = np.abs(10 ** plan.ranges[i] - mark.x[0])
            mark.error_x = {"type": "data", "symmetric": False, "array": [most],
                            "arrayminus": [fewest], "color": look.color, "thickness": 1.4,
                            "width": 4}  # fmt: skip
        figure.add_trace(mark)
        _label(figure, name, plan.points[i], plan.labels[i], theme)
    colors = palette.colors(theme)
    for seconds, (_, (x, y)) in plan.times:
        outside = y == plan.y[1]
        figure.add_annotation(
            text=text.seconds(seconds),
            x=x,
            y=y,
            xanchor="center" if outside else "right",
            yanchor="bottom" if outside else "top",
            xshift=0 if outside else -4,
            showarrow=False,
            font={"size": 11, "color": colors["faint"]},
        )
    if plan.border < plan.x[1]:
        line = {"color": colors["faint"], "width": 1.2, "dash": "dot"}
        figure.add_shape(type="line", x0=10**plan.border, x1=10**plan.border, y0=0, y1=1,
                         yref="paper", line=line)  # fmt: skip
    heading = text.heading(title, text.wrap(summary(table, target, over), text.LINE))
    lay_out(
        figure,
        heading,
        [],
        theme,
        inner=INNER + ABOVE,
        below=60,
        margin={"t": heading["margin"]["t"] + ABOVE},
        showlegend=False,
        xaxis={"title": ACROSS, **_axis(*x_ticks(plan), plan.x)},
        yaxis={"title": UPWARD, **_axis(*decades(*plan.y), plan.y)},
    )
    return figure


def named(table: pandas.DataFrame) -> list[str]:
    """The names that readers know. Raises ValueError where the table cannot be drawn."""
    if not len(table):
        raise ValueError("the table has no method: give what viz.spectrum_table returns.")
    for column in ("examples_per_second", "examples_to_target", "seconds"):
        values = table[column].to_numpy(dtype=np.float64)
        missing = np.isnan(values) & (column != "examples_per_second")
        wrong = ~(missing | (np.isfinite(values) & (values > 0)))
        if wrong.any():
            raise ValueError(
                f"{column} {values[wrong][0]:g} of {table.method.iloc[int(np.argmax(wrong))]} "
                "cannot stand on a logarithmic axis: use a number above 0."
            )
    return [text.named(name) for name in table.method]


def summary(table: pandas.DataFrame, target: float, over: int) -> str:
    """What the target is, what the lines are, and how late the runs were."""
    words = f"Target: a mean loss of {target:g} or less over the last {over} batches"
    words += (
        ". Bars: from the fewest to the most of the seeds."
        if "fewest" in table
        else ", by the wall clock."
    )
    words += " Lines: equal time to target; upper left is less."
    late = float(table.late.max())
    return words + (f" The runs were up to {text.seconds(late)} late." if late == late else "")


def laid_out(
    table: pandas.DataFrame, size: tuple[float, float], type_: tuple[float, float, float]
) -> SpectrumPlan:
    """Where everything lies on axes of `size`; `type_` is the width of a character, the height of a
    line, and the gap beside a point."""
    with np.errstate(divide="ignore"):
        points = np.log10(table[["examples_to_target", "examples_per_second"]].to_numpy(float))
    there = np.isfinite(points[:, 0])
    ranges = np.full((len(table), 2), np.nan)
    if "fewest" in table:
        ranges = np.log10(table[["fewest", "most"]].to_numpy(float))
        ranges[~there] = np.nan
    across = np.append(points[there, 0], ranges[np.isfinite(ranges)])
    low, border = _around(across if len(across) else np.array([3.0]))
    high = border if there.all() else low + (border - low) / (1 - NEVER)
    points[~there, 0] = (border + high) / 2
    ranges = np.minimum(ranges, high)
    y = _around(points[:, 1])
    times = [(each, _line(each, (low, border), y)) for each in _seconds((low, border), y)]
    character, line, gap = type_
    scale = np.array(size) / (high - low, y[1] - y[0])
    at = (points - (low, y[0])) * scale
    names = [text.named(name) for name in table.method]
    sizes = np.array([(character * len(name), line) for name in names])
    edge = (border - low) * float(scale[0])
    taken: list[Box] = [] if there.all() else [(edge - gap / 9, 0.0, edge + gap / 9, size[1])]
    for (_, level), (fewest, most) in zip(at.tolist(), (ranges - low) * scale[0], strict=True):
        if np.isfinite(fewest):
            taken.append((float(fewest), level - gap / 9, float(most), level + gap / 9))
    for seconds, ends in times:
        if ends[1, 1] < y[1]:  # its label lies at the right border
            right, top = ((ends[1] - (low, y[0])) * scale).tolist()
            wide = character * len(text.seconds(seconds))
            taken.append((right - wide, top - line, right, top))
    labels = placed(at, sizes, (0.0, 0.0, *size), gap, taken) - at
    return SpectrumPlan(points, (low, high), y, border, times, labels, ranges)


def x_ticks(plan: SpectrumPlan) -> tuple[list[float], list[str]]:
    """Ticks of the examples to target, and one of the column beyond."""
    places, names = decades(plan.x[0], plan.border)
    if plan.border < plan.x[1]:
        places, names = [*places, 10 ** ((plan.border + plan.x[1]) / 2)], [*names, "never"]
    return places, names


def decades(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten."""
    powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    places = [part * 10.0**power for power in powers for part in (1, 2, 5)]
    places = [place for place in places if low <= np.log10(place) <= high]
    return places, [f"{place:,.10g}" for place in places]


def _around(values: np.ndarray) -> tuple[float, float]:
    """A range of at least half a decade, with room beside all values."""
    low, high = float(values.min()), float(values.max())
    room = max(0.16 * (high - low), (0.5 - (high - low)) / 2, 0.1)
    return low - room, high + room


def _seconds(x: tuple[float, float], y: tuple[float, float]) -> list[float]:
    """Times whose lines cross the axes: 1, 2 and 5 times the powers of ten, or fewer."""
    low, high = x[0] - y[1], x[1] - y[0]
    inside = 0.06 * (high - low)  # a line across a corner says nothing
    places, _ = decades(low + inside, high - inside)
    return places[:: -(-len(places) // TIMES)] if places else []


def _line(seconds: float, x: tuple[float, float], y: tuple[float, float]) -> np.ndarray:
    """The ends of x - y = log10(seconds) on the edges of the axes."""
    shift = float(np.log10(seconds))
    low, high = max(x[0], y[0] + shift), min(x[1], y[1] + shift)
    top = y[1] if high < x[1] else high - shift  # exactly, however it is rounded
    return np.array([(low, max(low - shift, y[0])), (high, top)])


def _times(plan: SpectrumPlan, theme: str) -> list[go.Scatter]:
    look = {"color": palette.colors(theme)["grid"], "width": 1.6}
    return [
        go.Scatter(
            x=10 ** ends[:, 0],
            y=10 ** ends[:, 1],
            name=f"{text.seconds(seconds)} to target",
            mode="lines",
            line=look,
            hoverinfo="skip",
        )
        for seconds, ends in plan.times
    ]


def _point(
    row: Any, name: str, look: palette.MethodLook, point: np.ndarray, theme: str
) -> go.Scatter:
    edge = {"color": look.color if look.turn else palette.colors(theme)["ink"]}
    words = [f"<b>{text.cut(name, 50)}</b>", f"{row.examples_per_second:,.0f} examples / s"]
    if np.isfinite(row.seconds):
        quotient = row.examples_to_target / row.examples_per_second
        words.append(f"{row.examples_to_target:,.0f} examples to target")
        words.append(f"target after {text.seconds(row.seconds)}, read off the run")
        words.append(f"examples to target / examples per second: {text.seconds(quotient)}")
    else:
        words.append("never got to the target")
    return go.Scatter(
        x=[10 ** point[0]],
        y=[10 ** point[1]],
        name=text.cut(name, 40),
        mode="markers",
        marker={
            "color": look.color,
            "symbol": look.symbol + "-open" * bool(look.turn),
            "size": 12,
            "line": {**edge, "width": 2 if look.turn else 1},
        },
        **hover(["<br>".join(words)]),
    )


def _label(figure: go.Figure, name: str, point: np.ndarray, beside: np.ndarray, theme: str) -> None:
    """The name beside its point, with a line where it lies farther off."""
    right, up = beside.tolist()
    wide, high = CHARACTER * len(name), TYPE
    far = abs(right) - wide / 2 > 1.5 * GAP or abs(up) - high / 2 > 1.5 * GAP
    line = {"ax": right, "ay": -up, "arrowhead": 0, "arrowwidth": 0.9, "standoff": 7,
            "arrowcolor": palette.colors(theme)["faint"]}  # fmt: skip
    where = line if far else {"xshift": right, "yshift": up}
    figure.add_annotation(
        text=text.cut(name, 40),
        x=point[0],
        y=point[1],
        showarrow=far,
        borderpad=0,
        bgcolor=palette.colors(theme)["paper"],
        **where,
    )


def _axis(places: list[float], names: list[str], limits: tuple[float, float]) -> dict[str, Any]:
    return {"type": "log", "range": [*limits], "tickvals": places, "ticktext": names,
            "showgrid": False}  # fmt: skip
