"""The messages of a timeline as arrows: from which row and moment to which, in every medium.

An arrow leaves and reaches rows at the edges that face each other. Arrows past other rows may cover
labels, and can then be left out. None points back in time: a message between hosts that seems to
arrive before it was sent, within the bound of their clocks, is drawn as arriving immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import message_times

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.gantt.layout import Plan

ARROWS = 150  # messages: more of them would hide the bars


@dataclass(frozen=True)
class Arrows:
    """Messages as arrows from `tails` to `heads`, (messages, 2), in seconds and pixels down, from
    row to row (places `leave` and `reach`); `got` are those that were received."""

    rows: np.ndarray
    tails: np.ndarray
    heads: np.ndarray
    got: np.ndarray
    leave: np.ndarray
    reach: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, chosen: np.ndarray) -> Arrows:
        """The `chosen` arrows."""
        columns = self.rows, self.tails, self.heads, self.got, self.leave, self.reach
        return Arrows(*(column[chosen] for column in columns))

    def fitting(
        self, most: int, advice: str, labels: Callable[[], np.ndarray] | None
    ) -> tuple[Arrows, list[str]]:
        """The arrows to draw, and a remark on the others, with `advice`: none where there are more
        than `most`, else those that leave the `labels` (if given) free."""
        if len(self) > most:
            line = f"{len(self):,} messages are too many for arrows: {advice}."
            return self.only(np.zeros(len(self), bool)), [line]
        return self.beside(labels()) if labels else (self, [])

    def beside(self, labels: np.ndarray) -> tuple[Arrows, list[str]]:
        """The arrows that leave the labels free, (labels, 3) left, right and y, and a remark on the
        others."""
        past = _past_rows(self.leave, self.reach, self.tails, self.heads, labels)
        if not past.any():
            return self, []
        many = f"{past.sum():,} of {len(past):,}" if not past.all() else f"{len(past):,}"
        line = f"{many} messages are left out: arrows past other rows would cover labels."
        return self.only(~past), [line]


def arrows_of(trace: Trace, plan: Plan, rows: np.ndarray) -> Arrows:
    """The messages `rows` as Arrows, without those whose other end is not drawn."""
    sent, received = (column[rows] for column in message_times(trace, plan.clock))
    leave, reach = (column[rows] for column in ends(trace, plan))
    tail, head = _heights(plan, leave, reach)
    got = np.isfinite(received)
    tails = np.stack([sent, tail], axis=1)
    heads = np.stack([np.where(got, np.maximum(received, sent), sent), head], axis=1)
    both = np.flatnonzero(np.isfinite(tails + heads).all(axis=1))
    return Arrows(rows, tails, heads, got, leave, reach).only(both)


def ends(trace: Trace, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The rows that each message leaves and reaches, as places in `plan.rows`; -1 for a rank that
    is not drawn.

    They are the rows of the spans that carry it as their flow, else the rank's first row.
    """
    spans, table = trace.spans, trace.messages
    first = {rank: number for number, (rank, _) in reversed([*enumerate(plan.rows)])}
    tail, head = (
        np.array([first.get(rank, -1) for rank in column.tolist()], np.int64)
        for column in (table.src, table.dst)
    )
    carriers = np.flatnonzero(spans.flow >= 0)
    flow = spans.flow[carriers]
    for end, ranks in ((tail, table.src), (head, table.dst)):
        own = ranks[flow] == spans.rank[carriers]
        end[flow[own]] = plan.row[carriers[own]]
    return tail, head


def _heights(plan: Plan, tail: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where arrows begin and end: at the edges of rows that face each other; NaN for a missing
    row."""
    edges = np.array([*plan.rows.values(), (np.nan, np.nan)]).reshape(-1, 2)
    (tops, bottoms), middles = edges.T, edges.mean(axis=1)
    down = np.sign(head - tail)
    leave = np.select([down > 0, down < 0], [bottoms[tail], tops[tail]], middles[tail])
    reach = np.select([down > 0, down < 0], [tops[head], bottoms[head]], middles[head])
    missing = (tail < 0) | (head < 0)
    return np.where(missing, np.nan, leave), np.where(missing, np.nan, reach)


def _past_rows(
    tail: np.ndarray, head: np.ndarray, tails: np.ndarray, heads: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Which arrows are better left out: all past other rows, if one of them covers a label.

    They lead from row `tail` to row `head` (places) and from `tails` to `heads`, (arrows, 2), x and
    y; a label, (labels, 3), has left, right and y. Between neighbours an arrow covers nothing.
    """
    past = np.abs(head - tail) > 1
    left, right, y = labels.T
    (x1, y1), (x2, y2) = tails[past].T[:, :, None], heads[past].T[:, :, None]
    share = (y - y1) / (y2 - y1)
    x = x1 + (x2 - x1) * share
    covers = (share > 0) & (share < 1) & (left < x) & (x < right)
    return past if covers.any() else np.zeros(len(past), bool)
