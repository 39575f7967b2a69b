"""Predicted over measured on one axis: what was to happen, and below it what did.

    rank 0 predicted  |F0|F1|      |B0|B1|
           measured   |F0 |F1 |       |B0|B1|      each bar knows by how much it differs
    rank 1 predicted     |F0|B0|...

Actions are matched by rank, kind, stage, microbatch and step. Both begin with their first compute.
What is measured is read by the wall clock. The gap of the makespans is told along the measured
critical path: what its actions took longer than predicted, and what is left, which is waiting.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz import metrics
from dlviz.analysis.clocks import clock_of, span_times
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette, text
from dlviz.viz.figure import Figure
from dlviz.viz.labels import LETTERS, hover

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace

NAMES = ("predicted", "measured")
BAR, PAIR = 0.86, 2.35  # a bar's height where rows are 1 apart; from one rank to the next
HIGHEST, LEAST = 420, 26  # pixels: all ranks, and one of many at least
BESIDE = 106  # characters of a subtitle's line, which begins right of the rows' names
LABELLED = 4000  # bars: of more none bears a label


@dataclass(frozen=True)
class Side:
    """The actions of one Trace: spans, when they began and ended since the first one did (s) by
    `clock`, and which row of the other side is the same action (-1: none)."""

    name: str
    spans: Table
    start: np.ndarray
    end: np.ndarray
    other: np.ndarray
    clock: str = "device"

    @property
    def makespan(self) -> float:
        return float(self.end.max(initial=0.0))


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

    `step` is the measured step, by default the one whose length is the median. `clock` chooses the
    measured columns, by default the wall's. Raises ValueError where either has no forward or
    backward, and for a step or clock that the run has not.
    """
    sides, lines = matched(predicted, measured, step, clock)
    ranks = sorted({*sides[0].spans.rank.tolist(), *sides[1].spans.rank.tolist()})
    row = {rank: place * PAIR for place, rank in enumerate(ranks)}
    high = max(side.makespan for side in sides)
    unit, size = text.unit(high)
    figure = Figure()
    for place in range(len(sides)):
        figure.add_traces(_bars(sides, place, row, unit, size))
    colors = palette.colors(theme)
    for place, side in enumerate(sides):
        line = {"color": colors["ink"], "width": 1.6, "dash": ("dash", "solid")[place]}
        at = side.makespan / size
        figure.add_shape(type="line", x0=at, x1=at, y0=-0.7, y1=max(row.values()) + 1.7, line=line)
    heading = text.heading(title or "Predicted over measured", "<br>".join(map(text.clean, lines)))
    rows = [(rank, name, row[rank] + i) for rank in ranks for i, name in enumerate(NAMES)]
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": 96},
        height=heading["margin"]["t"] + 96 + len(ranks) * max(min(62, HIGHEST / len(ranks)), LEAST),
        barmode="overlay",
        bargap=0,
        uniformtext={"minsize": 9, "mode": "hide"},
        legend=palette.LEGEND_BELOW,
        xaxis={
            "title": f"time since the first action began ({unit})",
            "range": [-0.01 * high / size, 1.01 * high / size],
        },
        yaxis={
            "tickvals": [y for _, _, y in rows],
            "ticktext": [f"rank {rank} {name}" if name == NAMES[0] else name
                         for rank, name, _ in rows],
            "range": [max(row.values()) + 1.7, -0.7],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 6,
            "fixedrange": True,
        },
    )  # fmt: skip
    text.inform(
        figure,
        [
            f"{side.name.capitalize()}. {line}" if i == 0 else line
            for side, trace in zip(sides, (predicted, measured), strict=True)
            for i, line in enumerate(text.details(trace, side.clock))
        ],
    )
    return figure


def matched(
    predicted: Trace, measured: Trace, step: int | None, clock: str | None
) -> tuple[tuple[Side, Side], list[str]]:
    """Both sides, matched, and the lines of a subtitle. Raises ValueError."""
    read = clock
    if read is None:
        read = "device" if measured.meta["clock"] == "simulated" else "wall"
    clocks = clock_of(predicted, None), clock_of(measured, read)
    chosen, note = step_of(measured, step, clocks[1], "the measured Trace")
    traces = (
        actions_of(predicted, None, "the predicted Trace"),
        actions_of(measured, chosen, "the measured Trace"),
    )
    keys = _keys(traces[0], traces[1])
    where = [{key: row for row, key in enumerate(own)} for own in keys]
    sides = []
    for place, (trace, read) in enumerate(zip(traces, clocks, strict=True)):
        start, end = span_times(trace, read)
        other = np.array([where[1 - place].get(key, -1) for key in keys[place]])
        first = start.min()
        sides.append(Side(NAMES[place], trace.spans, start - first, end - first, other, read))
    lines = [
        part
        for side, which, trace in zip(sides, ("", note), (predicted, measured), strict=True)
        for i, line in enumerate(text.provenance(trace, side.clock))
        for part in textwrap.wrap(
            f"{side.name}{which}: {line}" if i == 0 else line, BESIDE, break_on_hyphens=False
        )
    ]
    both = sides[0], sides[1]
    path = np.unique(metrics.critical_path(traces[1], clocks[1]).span)
    lines += [*_missing(both), *sentence(gap(both, path), both)]
    return both, lines


@dataclass(frozen=True)
class Gap:
    """By how many seconds measured took longer than predicted (less: negative), what of it because
    the actions on its critical path lasted longer, what because they waited longer, and the one
    that lasted longest beyond its prediction (its row; -1: none was predicted)."""

    seconds: float
    lasted: float
    waited: float
    worst: int
    most: float


def gap(sides: tuple[Side, Side], path: np.ndarray) -> Gap:
    """The Gap between the sides, along the `path` of rows of what was measured."""
    one, other = sides
    rows = path[other.other[path] >= 0]
    took = (other.end - other.start)[rows]
    more = took - (one.end - one.start)[other.other[rows]]
    total = other.makespan - one.makespan
    lasted = float(more.sum())
    order = np.argsort(more * np.sign(lasted or 1.0))
    worst = int(rows[order[-1]]) if len(rows) else -1
    return Gap(total, lasted, total - lasted, worst, float(more[order[-1]]) if len(rows) else 0.0)


def sentence(found: Gap, sides: tuple[Side, Side]) -> list[str]:
    """The Gap in a sentence, in lines."""

    def longer(seconds: float) -> str:
        if abs(seconds) < TOLERANCE:
            return "as long"
        return f"{text.seconds(abs(seconds))} {'longer' if seconds > 0 else 'less'}"

    whole = sides[0].makespan
    share = f" ({abs(found.seconds) / whole:.1%})" if whole else ""
    takes = (
        f"{longer(found.seconds)}{share} than" if abs(found.seconds) >= TOLERANCE else "as long as"
    )
    told = (
        f"The measured step takes {takes} the predicted one: on its critical path the actions take "
        f"{longer(found.lasted)} and the waits take {longer(found.waited)}"
    )
    if abs(found.most) >= TOLERANCE:
        told += f"; {action(sides[1].spans, found.worst)} differs most ({longer(found.most)})"
    return textwrap.wrap(told + ".", BESIDE, break_on_hyphens=False)


def action(spans: Table, row: int) -> str:
    """An action in words: 2B3 on rank 2."""
    kind = spans.kind[row]
    stage, microbatch = int(spans.stage[row]), int(spans.microbatch[row])
    short = f"{stage if stage >= 0 else ''}{LETTERS[kind]}{microbatch if microbatch >= 0 else ''}"
    return f"{short} on rank {spans.rank[row]}"


def step_of(trace: Trace, step: int | None, clock: str, name: str) -> tuple[int | None, str]:
    """The step to draw, and the words that name it where there are several. Raises ValueError."""
    known = np.unique(trace.only(kind=metrics.COMPUTE).spans.step)
    if step is not None:
        if step not in known.tolist():
            told = ", ".join(map(str, known[known >= 0].tolist())) or "none"
            raise ValueError(f"step={step!r} has no action in {name}: it has {told}.")
        return step, f", step {step}"
    if len(known) < 2:
        return None, ""
    lengths = []
    for one in known.tolist():
        start, end = span_times(trace.only(kind=metrics.COMPUTE, step=one), clock)
        lengths.append(float(end.max() - start.min()))
    middle = int(known[np.argsort(lengths)[(len(lengths) - 1) // 2]])
    return middle, f", step {middle} (of median length)"


def actions_of(trace: Trace, step: int | None, name: str) -> Trace:
    """The forwards and backwards of a Trace. Raises ValueError where it has none."""
    actions = trace.only(kind=metrics.COMPUTE, step=step)
    if not len(actions.spans):
        raise ValueError(f"{name} has no forward and no backward: there is nothing to compare.")
    return actions


def _keys(predicted: Trace, measured: Trace) -> tuple[list[tuple], list[tuple]]:
    """What names each action on either side. A step counts where both sides tell it."""
    names = ["rank", "kind", "stage", "microbatch"]
    if (predicted.spans.step >= 0).any() and (measured.spans.step >= 0).any():
        names.append("step")
    one, other = (
        [*zip(*(trace.spans[name].tolist() for name in names), strict=True)]
        for trace in (predicted, measured)
    )
    return one, other


def _missing(sides: tuple[Side, Side]) -> list[str]:
    lines = []
    for side, other in (sides, sides[::-1]):
        alone = int((side.other < 0).sum())
        if alone:
            many = "1 action is" if alone == 1 else f"{alone} actions are"
            lines.append(f"{many} {side.name} and not {other.name}.")
    return lines


def heights(side: Side, row: dict[int, float], place: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle and the height of each action's bar, in rows: lanes of a rank share its row."""
    ranks, lanes = side.spans.rank.tolist(), {}
    for rank, lane in sorted({*zip(ranks, side.spans.lane.tolist(), strict=True)}):
        lanes.setdefault(rank, []).append(lane)
    count = np.array([len(lanes[rank]) for rank in ranks])
    pairs = zip(ranks, side.spans.lane.tolist(), strict=True)
    number = np.array([text.lanes(lanes[rank]).index(lane) for rank, lane in pairs])
    top = np.array([row[rank] for rank in ranks]) + place - BAR / 2
    return top + BAR * (number + 0.5) / count, BAR / count


def _bars(
    sides: tuple[Side, Side], place: int, row: dict[int, float], unit: str, size: float
) -> list[go.Bar]:
    """A bar series for each kind of one side's actions."""
    side, spans = sides[place], sides[place].spans
    middle, tall = heights(side, row, place)
    told = [*_told(sides, place, unit, size)]
    labels = [str(one) if one >= 0 else "" for one in spans.microbatch.tolist()]
    if len(labels) * 2 > LABELLED:
        labels = [""] * len(labels)
    series = []
    for kind in palette.KINDS:
        rows = np.flatnonzero(spans.kind == kind)
        if not len(rows):
            continue
        style = palette.style(kind) if place else palette.pale(palette.style(kind))
        series.append(
            go.Bar(
                name=text.kind(kind),
                legendgroup=kind,
                showlegend=place == 1 or not (sides[1].spans.kind == kind).any(),
                orientation="h",
                base=side.start[rows] / size,
                x=(side.end - side.start)[rows] / size,
                y=middle[rows],
                width=tall[rows],
                marker=style.marker(),
                text=[labels[i] for i in rows.tolist()],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": style.ink, "size": 11},
                **hover([told[i] for i in rows.tolist()]),
            )
        )
    return series


def _told(sides: tuple[Side, Side], place: int, unit: str, size: float) -> Iterator[str]:
    """Each action of a side in words: both times, and the gap."""
    side, other = sides[place], sides[1 - place]
    for row, twin in enumerate(side.other.tolist()):
        lines = [f"<b>{action(side.spans, row)}, {side.name}</b>", _when(side, row, unit, size)]
        if twin < 0:
            lines.append(f"not {other.name}")
        else:
            one, two = (row, twin) if place else (twin, row)
            late = sides[1].start[one] - sides[0].start[two]
            more = (sides[1].end - sides[1].start)[one] - (sides[0].end - sides[0].start)[two]
            lines.append(f"{other.name}: {_when(other, twin, unit, size)}")
            lines.append(
                f"measured began {text.seconds(abs(late))} {'later' if late >= 0 else 'earlier'}, "
                f"lasted {text.seconds(abs(more))} {'longer' if more >= 0 else 'shorter'}"
            )
        yield "<br>".join(lines)


def _when(side: Side, row: int, unit: str, size: float) -> str:
    lasted = text.seconds(float(side.end[row] - side.start[row]))
    return f"{lasted} from {text.moment(float(side.start[row]), unit, size)}"
