"""Where the spans and messages of a timeline lie: rows, strips, and both ends of each arrow.

A row for each rank and lane. A span that holds others is a strip along the top of its row; what
runs inside it hangs below the strip, so that no bar hides another. Every form of the timeline, on
a page, in a widget and in print, is laid out by this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.viz import text
from dlviz.viz.clocks import message_times, span_times
from dlviz.viz.steps import spans_in

if TYPE_CHECKING:
    from dlviz.trace import Trace

BAR, GAP = 0.84, 0.4  # height of a bar where rows are 1 apart; more room between ranks


@dataclass(frozen=True)
class Plan:
    """Where everything lies. Times in seconds, heights in rows from the top."""

    clock: str
    start: np.ndarray
    end: np.ndarray
    low: float  # the first moment drawn, and
    high: float  # the last
    unit: str  # of the axis, and
    size: float  # its seconds
    y: dict[tuple[int, str], float]
    top: np.ndarray
    bottom: np.ndarray
    pixels: float  # between two rows


def laid_out(trace: Trace, clock: str, drawn: np.ndarray, arrows: np.ndarray) -> Plan:
    """Where the spans `drawn` and the messages `arrows` lie."""
    spans = trace.spans
    start, end = span_times(trace, clock)
    sent, received = message_times(trace, clock)
    times = np.concatenate([start[drawn], end[drawn], sent[arrows], received[arrows]])
    times = times[np.isfinite(times)]
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    high = max(high, low + 1e-6)

    y = rows(trace)
    row = np.array([y[at] for at in zip(spans.rank.tolist(), spans.lane.tolist(), strict=True)])
    depth = spans.depth.copy()
    for at in np.unique(row[drawn]):  # in a part of a Trace the outer spans may be left out
        depth[row == at] -= depth[drawn][row[drawn] == at].min()
    deepest = int(depth[drawn].max(initial=0))
    pixels = max(min(40 + 19 * deepest, 1000 / max(len(y), 1)), 22)
    strip = min(19 / pixels, BAR / (deepest + 1))
    top = row - BAR / 2 + strip * depth

    lasting = drawn[end[drawn] > start[drawn]]  # one of no length may stand before its neighbour
    order = lasting[np.lexsort((depth[lasting], start[lasting], row[lasting]))]
    here, following = order[:-1], order[1:]  # a span's first child follows it
    holds = np.zeros(len(spans), bool)
    holds[here] = (row[here] == row[following]) & (depth[following] > depth[here])
    bottom = np.where(holds, top + strip, row + BAR / 2)
    return Plan(clock, start, end, low, high, *text.unit(high - low), y, top, bottom, pixels)


def shown(
    trace: Trace, clock: str, step: int | None, most: int, messages: bool = True
) -> tuple[Plan, np.ndarray, np.ndarray, list[str]]:
    """What a timeline shows of `step` (of all where it is None): where everything lies, the rows of
    at most `most` spans and of the messages that spans of the step carry, and what is to be said.
    Without what has no times by `clock`."""
    start, end = span_times(trace, clock)
    drawn = spans_in(trace, step)
    arrows = np.arange(len(trace.messages) if messages else 0)
    if step is not None:
        arrows = np.intersect1d(arrows, trace.spans.flow[drawn])
    drawn = drawn[np.isfinite(end - start)[drawn]]
    arrows = arrows[np.isfinite(message_times(trace, clock)[0][arrows])]
    plan = laid_out(trace, clock, drawn, arrows)
    drawn, cut = _longest(plan, drawn, most)
    return plan, drawn, arrows, cut


def _longest(plan: Plan, drawn: np.ndarray, most: int) -> tuple[np.ndarray, list[str]]:
    """The longest `most` of the spans `drawn`, all of them where they are not more, and what is to
    be said of that."""
    if len(drawn) <= most:
        return drawn, []
    first = np.argsort((plan.start - plan.end)[drawn], kind="stable")[:most]
    return np.sort(drawn[first]), [f"The longest {most:,} of {len(drawn):,} spans are drawn."]


def rows(trace: Trace) -> dict[tuple[int, str], float]:
    """How far from the top each (rank, lane) is drawn. A rank without spans has a row as well."""
    used: dict[int, set[str]] = {rank: set() for rank in trace.ranks}
    for rank, lane in zip(trace.spans.rank.tolist(), trace.spans.lane.tolist(), strict=True):
        used.setdefault(rank, set()).add(lane)
    places, at = {}, 0.0
    for rank in sorted(used):
        for lane in text.lanes(used[rank]) or [""]:
            places[rank, lane] = at
            at += 1
        at += GAP if len(used[rank]) > 1 else 0
    return places


def ends(trace: Trace, y: dict[tuple[int, str], float]) -> tuple[np.ndarray, np.ndarray]:
    """The rows that each message leaves and reaches; NaN for a rank that is not drawn.

    They are those of the spans that carry it as their flow, else the rank's first.
    """
    spans, table = trace.spans, trace.messages
    first: dict[int, float] = {}
    for (rank, _), at in y.items():
        first.setdefault(rank, at)
    tail, head = (
        np.array([first.get(rank, np.nan) for rank in column.tolist()], float)
        for column in (table.src, table.dst)
    )
    carriers = np.flatnonzero(spans.flow >= 0)
    for span, flow in zip(carriers.tolist(), spans.flow[carriers].tolist(), strict=True):
        at = int(spans.rank[span]), spans.lane[span]
        if table.src[flow] == at[0]:
            tail[flow] = y[at]
        if table.dst[flow] == at[0]:
            head[flow] = y[at]
    return tail, head
