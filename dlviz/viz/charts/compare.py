"""Predicted over measured on one axis: what should happen, and below it what did.

    rank 0 predicted  |F0|F1|      |B0|B1|
           measured   |F0 |F1 |       |B0|B1|      each bar says by how much it differs
    rank 1 predicted     |F0|B0|...

Actions are matched by rank, kind, stage, microbatch and step. Both begin with their first compute.
The measured side is read by the wall clock. The prediction error of the makespan is split along the
measured critical path, behind the (i): how much longer its actions took than predicted, and the
rest, waiting.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.columns import lanes as in_order
from dlviz.analysis.prediction_error import Side, Sides, matched, prediction_error
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, lay_out, microbatch_labels, named_rows
from dlviz.viz.words import text
from dlviz.viz.words.prediction_error import BESIDE, action, causes, named, sentence

if TYPE_CHECKING:
    from dlviz.trace import Trace

NAMES = ("predicted", "measured")
BAR, PAIR = 0.86, 2.35  # a bar's height where rows are 1 apart; from one rank to the next
HIGHEST, BELOW = 640, 96  # pixels: the whole picture, and the part below the ranks
ROW, LEAST = 62, 26  # pixels: a rank at most, and at least if there are many


def compare(
    predicted: Trace,
    measured: Trace,
    *,
    step: int | None = None,
    clock: str | None = None,
    theme: str = "auto",
    title: str | None = None,
) -> Figure:
    """Draw the actions of `measured` below those of `predicted`, rank by rank, from the first one.

    `step` is the measured step, by default the one of median length. `clock` chooses the measured
    columns, by default the wall's. Raises ValueError where either has no forward or backward, and
    for a step or clock that the run lacks.
    """
    sides = matched(predicted, measured, step, clock)
    lines = lines_of(sides, (predicted, measured), step)
    row = rows_of(sides)
    high = max(side.makespan for side in sides)
    unit, size = text.unit(high)
    figure = Figure()
    for place in range(len(sides)):
        figure.add_traces(_bars(sides, place, row, unit, size))
    ink, lowest = palette.colors(theme)["ink"], max(row.values()) + 1.7
    for place, side in enumerate(sides):
        line = {"color": ink, "width": 1.6, "dash": ("dash", "solid")[place]}
        at = side.makespan / size
        figure.add_shape(type="line", x0=at, x1=at, y0=-0.7, y1=lowest, line=line)
    heading = text.heading(title or "Predicted over measured", "<br>".join(map(text.clean, lines)))
    details = [
        f"{name.capitalize()}. {line}" if i == 0 else line
        for name, side, trace in zip(NAMES, sides, (predicted, measured), strict=True)
        for i, line in enumerate(text.details(trace, side.clock))
    ]
    details += causes(prediction_error(sides), sides)
    lay_out(
        figure,
        heading,
        details,
        theme,
        inner=max(min(len(row) * ROW, HIGHEST - heading["margin"]["t"] - BELOW), len(row) * LEAST),
        below=BELOW,
        barmode="overlay",
        bargap=0,
        uniformtext={"minsize": 9, "mode": "hide"},
        legend=palette.LEGEND_BELOW,
        xaxis={
            "title": f"time since the first action began ({unit})",
            "range": [-0.01 * high / size, 1.01 * high / size],
        },
        yaxis=named_rows(names_of(row), lowest, -0.7),
    )
    return figure


def lines_of(sides: Sides, traces: tuple[Trace, Trace], step: int | None) -> list[str]:
    """The lines of a subtitle: where each of `traces` comes from, the actions that only one side
    has, and the prediction error. `step` is the requested one."""
    lines = [
        part
        for name, side, trace in zip(NAMES, sides, traces, strict=True)
        for i, line in enumerate(text.provenance(trace, side.clock))
        for part in textwrap.wrap(
            f"{name}{named(side.step, step)}: {line}" if i == 0 else line,
            BESIDE,
            break_on_hyphens=False,
        )
    ]
    for name, other, side in zip(NAMES, NAMES[::-1], sides, strict=True):
        alone = int((side.other < 0).sum())
        if alone:
            many = "1 action is" if alone == 1 else f"{alone} actions are"
            lines.append(f"{many} {name} and not {other}.")
    return [*lines, *sentence(prediction_error(sides), sides)]


def rows_of(sides: Sides) -> dict[int, float]:
    """The upper row of each rank."""
    ranks = sorted({*sides[0].spans.rank.tolist(), *sides[1].spans.rank.tolist()})
    return {rank: place * PAIR for place, rank in enumerate(ranks)}


def names_of(row: dict[int, float]) -> dict[float, str]:
    """The name beside each row, by its place."""
    return {at + i: f"rank {rank} {name}" if i == 0 else name
            for rank, at in row.items() for i, name in enumerate(NAMES)}  # fmt: skip


def heights(side: Side, row: dict[int, float], place: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle and the height of each action's bar, in rows: lanes of a rank share its row."""
    ranks, lanes = side.spans.rank.tolist(), {}
    for rank, lane in sorted({*zip(ranks, side.spans.lane.tolist(), strict=True)}):
        lanes.setdefault(rank, []).append(lane)
    count = np.array([len(lanes[rank]) for rank in ranks])
    pairs = zip(ranks, side.spans.lane.tolist(), strict=True)
    number = np.array([in_order(lanes[rank]).index(lane) for rank, lane in pairs])
    top = np.array([row[rank] for rank in ranks]) + place - BAR / 2
    return top + BAR * (number + 0.5) / count, BAR / count


def _bars(sides: Sides, place: int, row: dict[int, float], unit: str, size: float) -> list[go.Bar]:
    """A bar series for each kind of one side's actions."""
    side, spans = sides[place], sides[place].spans
    middle, tall = heights(side, row, place)
    texts = [*_hover_texts(sides, place, unit, size)]
    high = max(each.makespan for each in sides)
    labels = microbatch_labels(spans, side.end - side.start, high)
    series = []
    for kind in palette.KINDS:
        rows = np.flatnonzero(spans.kind == kind)
        if not len(rows):
            continue
        style = palette.style(kind) if place else palette.pale(palette.style(kind))
        series.append(
            bar_series(
                style,
                text.kind(kind),
                kind,
                (side.start[rows] / size, (side.end - side.start)[rows] / size),
                (middle[rows], tall[rows]),
                [labels[i] for i in rows.tolist()],
                [texts[i] for i in rows.tolist()],
            )
        )
        series[-1].showlegend = place == 1 or not (sides[1].spans.kind == kind).any()
    return series


def _hover_texts(sides: Sides, place: int, unit: str, size: float) -> Iterator[str]:
    """Each action of a side in words: both times, and their difference."""
    side, other = sides[place], sides[1 - place]
    name, others = NAMES[place], NAMES[1 - place]
    for row, twin in enumerate(side.other.tolist()):
        lines = [f"<b>{action(side.spans, row)}, {name}</b>", _when(side, row, unit, size)]
        if twin < 0:
            lines.append(f"not {others}")
        else:
            one, two = (row, twin) if place else (twin, row)
            late = sides[1].start[one] - sides[0].start[two]
            more = (sides[1].end - sides[1].start)[one] - (sides[0].end - sides[0].start)[two]
            lines.append(f"{others}: {_when(other, twin, unit, size)}")
            lines.append(
                f"measured began {text.seconds(abs(late))} {'later' if late >= 0 else 'earlier'}, "
                f"lasted {text.seconds(abs(more))} {'longer' if more >= 0 else 'shorter'}"
            )
        yield "<br>".join(lines)


def _when(side: Side, row: int, unit: str, size: float) -> str:
    lasted = text.seconds(float(side.end[row] - side.start[row]))
    return f"{lasted} from {text.moment(float(side.start[row]), unit, size)}"
