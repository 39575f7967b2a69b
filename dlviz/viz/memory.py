"""What each rank held over time: a strip for each rank, all to one scale, its peak marked.

    rank 0   __|~~~|__..4.|~~|___     the strip's height is the most that any rank held
    rank 1   ___|~|_____

A simulated pipeline counts microbatches (of a stage) whose activations are held, a real run bytes:
the axis says which. It is `trace.memory` that is drawn, and its times are those of the device, or
of the wall where nothing was paced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette, text
from dlviz.viz.clocks import clock_of

if TYPE_CHECKING:
    from dlviz.trace import Trace

STRIP = 0.8  # height of a full strip where rows are 1 apart
CHANGES = 4000  # of one rank: of more the highest of each stretch of time is drawn


@dataclass(frozen=True)
class Held:
    """What one rank held: `level` (bytes, or microbatches) from each `time` (s) on."""

    rank: int
    time: np.ndarray
    level: np.ndarray

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))


def memory(
    trace: Trace,
    *,
    what: str | None = "activations",
    theme: str = "light",
    title: str | None = None,
) -> go.Figure:
    """Draw how much of `what` each rank held over time, in steps, and the most it ever held.

    `what` is a name in `trace.memory`, or None for all of them together. Raises ValueError for a
    name that the Trace has not, and for another theme.
    """
    rows = held(trace, what)
    colors = palette.colors(theme)
    style = palette.style("forward")
    most = max((one.peak for one in rows), default=0)
    low, high = window(trace, rows)
    unit, size = text.unit(high - low)
    series = []
    for place, one in enumerate(rows):
        time, level = steps(one, high)
        hover = [
            f"<b>rank {one.rank}</b><br>{amount(trace, int(n))} from {text.moment(at, unit, size)}"
            for at, n in zip(time.tolist(), level.tolist(), strict=True)
        ]
        floor = np.full(2, place + STRIP / 2)
        base = {"x": [low / size, high / size], "y": floor, "showlegend": False}
        line = {"color": colors["grid"], "width": 1}
        series.append(go.Scatter(mode="lines", line=line, hoverinfo="skip", **base))
        series.append(
            go.Scatter(
                x=time / size,
                y=height(level, place, most),
                mode="lines",
                name=text.cut(what or "memory"),
                showlegend=False,
                line={"color": style.edge if theme == "light" else style.color, "width": 1.4},
                fill="tonexty",
                fillcolor=style.color + "99",
                customdata=hover,
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure = go.Figure(series)
    for place, one in enumerate(rows):
        if one.peak:
            top = float(height(np.array([one.peak]), place, most)[0])
            dash = {"color": colors["faint"], "width": 1, "dash": "dot"}
            across = {"x0": low / size, "x1": high / size, "y0": top, "y1": top}
            figure.add_shape(type="line", line=dash, layer="below", **across)
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", y=place, showarrow=False, xshift=6,
            text=text.clean(f"peak {short(trace, one.peak)}"), font={"size": 11},
        )  # fmt: skip
    if not most:
        note = {"showarrow": False, "font": {"color": colors["faint"], "size": 12}}
        figure.add_annotation(text="no memory was recorded", **note)

    clock = clock_of(trace, None)
    lines = [text.subtitle(trace, clock), text.clean(scale(trace, most))]
    heading = text.heading(title or "Memory held by each rank", "<br>".join(lines))
    room = (high - low) * 0.01
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 56, "r": 96},
        height=heading["margin"]["t"] + 56 + max(len(rows) * 46, 240),
        xaxis={
            "title": f"{text.TIMES[clock]} since the run's start ({unit})",
            "range": [(low - room) / size, (high + room) / size],
        },
        yaxis={
            "title": axis(trace, what),
            "tickvals": list(range(len(rows))),
            "ticktext": [f"rank {one.rank}" for one in rows],
            "range": [len(rows) - 0.45, -0.55],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
        },
    )
    text.inform(figure, text.details(trace, clock))
    return figure


def held(trace: Trace, what: str | None) -> list[Held]:
    """What each rank of the Trace held of `what`, or of everything. Raises ValueError."""
    table = trace.memory
    names = [*dict.fromkeys(table.what.tolist())]
    if what is not None and names and what not in names:
        known = ", ".join(map(repr, names))
        raise ValueError(f"what={what!r} is not in this Trace's memory: it has {known}.")
    if what is not None:
        table = table[table.what == what]
    found = []
    for rank in trace.ranks:
        mine = table[table.rank == rank]
        order = np.argsort(mine.time, kind="stable")
        time, total = mine.time[order], np.zeros(len(order))
        for name in dict.fromkeys(mine.what.tolist()):
            own = mine.what[order] == name
            level = np.maximum(mine.nbytes[order][own], 0)
            total[own] += np.diff(level, prepend=0)
        total = np.cumsum(total)
        settled = np.append(np.diff(time) > TOLERANCE, True)[: len(time)]  # else it is one change
        found.append(Held(rank, time[settled], total[settled]))
    return found


def steps(one: Held, until: float) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a rank's steps, from 0 up to its first change until `until`."""
    time, level = one.time, one.level
    if len(time) > CHANGES:
        edges = np.linspace(time[0], time[-1], CHANGES + 1)[:-1]
        first = np.unique(np.searchsorted(time, edges))
        time, level = time[first], np.maximum.reduceat(level, first)
    before = np.append(0, level)[: len(level)]
    corners = np.stack([before, level], axis=1).ravel()
    return np.append(np.repeat(time, 2), until), np.append(corners, np.append(0, level)[-1])


def height(level: np.ndarray, place: int, most: int) -> np.ndarray:
    """Where a level lies in the strip of row `place`, rows counted downwards."""
    return place + STRIP / 2 - STRIP * level / max(most, 1)


def window(trace: Trace, rows: list[Held]) -> tuple[float, float]:
    """The first and the last moment of the Trace's spans and memory, seconds."""
    times = np.concatenate([trace.spans.start, trace.spans.end, *(one.time for one in rows)])
    times = times[np.isfinite(times)]
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    return low, max(high, low + 1e-6)


def counts(trace: Trace) -> bool:
    """Whether the Trace counts microbatches, as that of a simulated schedule does, not bytes."""
    return trace.meta["clock"] == "simulated" and "microbatches" in trace.meta


def amount(trace: Trace, number: int) -> str:
    """A level in words: 3 microbatches, 1.5 MiB."""
    if not counts(trace):
        return text.nbytes(number)
    return "1 microbatch" if number == 1 else f"{number} microbatches"


def short(trace: Trace, number: int) -> str:
    """The same where there is little room."""
    return str(number) if counts(trace) else text.nbytes(number)


def axis(trace: Trace, what: str | None) -> str:
    """The title of the axis of what is held."""
    name = "activations in flight" if what == "activations" else what or "all that is held"
    return f"{text.cut(name, 30)} ({'microbatches' if counts(trace) else 'bytes'})"


def scale(trace: Trace, most: int) -> str:
    """What a strip's height means."""
    chunks = counts(trace) and trace.meta.get("chunks", 1) != 1
    each = ", in each of a rank's stages by itself" if chunks else ""
    return f"A full strip is {amount(trace, most)}{each}; the dotted line is a rank's peak."
