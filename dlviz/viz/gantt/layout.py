"""Where the spans of a timeline lie: rows, and strips of those that hold others.

    all ranks     |step 0             |     a step or phase that is the same on all ranks: once
    rank 0        |0 |1 |2 | ////|0 |1|     a row for each rank and lane, as high as it needs
    rank 0 · comm |bucket 0|bucket 1  |     a span that holds others: a strip at the top of its row
                  |--|--|--|--|--|--|-|     and what runs inside it hangs below, so that no bar
                                            hides another
    host-b _______________________________  the ranks of a host, or of a rack, under its name
    rank 1        |0 |1 |2 | ////|0 |1|

This lays out every form of the timeline, on a page, in a widget and in print. Heights are in pixels
from the top of the first row; what is shown once lies above it, at negative heights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import message_times, span_times
from dlviz.analysis.columns import HOLDERS, lanes
from dlviz.analysis.hosts import RankGroup, group_numbers, rank_groups, side_by_side
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

BAR, STRIP = 24.0, 13.0  # pixels: the height of a bar, and of a span that holds others
BETWEEN_LANES, BETWEEN_RANKS = 3.0, 6.0  # pixels; the former also below what is shown once
INSTANT = 6.0  # pixels: the least height of a span of no length inside another one
SMALLEST = 5.0  # pixels: the least height of a bar where many rows share a picture
TALLEST = 640.0  # pixels: a picture, with all its words


@dataclass(frozen=True)
class GroupLine:
    """The line with the name of a group of ranks: its top and bottom, over their rows."""

    group: RankGroup
    top: float
    bottom: float

    @property
    def y(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True)
class Plan:
    """Where everything lies. Times in seconds, heights in pixels from the top of the first row."""

    clock: str
    start: np.ndarray
    end: np.ndarray
    low: float  # the first moment drawn, and
    high: float  # the last
    unit: str  # of the axis, and
    size: float  # its seconds
    rows: dict[tuple[int, str], tuple[float, float]]  # top and bottom of each rank and lane
    row: np.ndarray  # the place of each span's row in `rows`, and the span's own edges
    top: np.ndarray
    bottom: np.ndarray
    shared: list[np.ndarray]  # the spans shown once for all ranks, by level:
    # (spans of a rank, ranks), rows of the Trace
    groups: list[RankGroup]  # of the ranks, where they are on several hosts or in several racks
    lines: list[GroupLine] = field(default_factory=list)  # where each is named, once `headed`

    @property
    def y(self) -> dict[tuple[int, str], float]:
        """The middle of each row."""
        return {at: (top + bottom) / 2 for at, (top, bottom) in self.rows.items()}

    @property
    def above(self) -> float:
        """The height of the strips above the first row."""
        return STRIP * len(self.shared) + BETWEEN_LANES * bool(self.shared)

    @property
    def height(self) -> float:
        """From the top of the first row to the bottom of the last."""
        return max((bottom for _, bottom in self.rows.values()), default=BAR)

    def scale(self, room: float) -> float:
        """The factor by which all heights shrink so that the picture is at most `room` pixels high,
        as long as bars stay visible."""
        return min(max(room / (self.above + self.height), SMALLEST / BAR), 1.0)

    def headed(self, room: float, line: float) -> Plan:
        """The Plan with a line for the name of each group over its rows, `line` pixels high when
        all heights have shrunk so that the picture is at most `room` pixels high."""
        if not self.groups:
            return self
        left = room - line * len(self.groups)
        high = line / self.scale(left)
        place = group_numbers(self.groups)
        rows, lower, lines = {}, [], []
        for (rank, lane), (top, bottom) in self.rows.items():
            lower.append(high * (1 + place[rank]))
            top, bottom = top + lower[-1], bottom + lower[-1]
            rows[rank, lane] = top, bottom
            if place[rank] == len(lines):
                lines.append(GroupLine(self.groups[place[rank]], top - high, top))
        more = np.where(self.top < 0, 0.0, np.array(lower)[self.row])  # but for what is shown once
        return replace(self, rows=rows, lines=lines, top=self.top + more, bottom=self.bottom + more)

    def heads(self) -> list[tuple[int, float, float]]:
        """A span of each strip shown once, and when the strip begins and ends: from the first start
        on any rank to the last end, or to the beginning of the next strip."""
        found = []
        for level in self.shared:
            begin, finish = self.start[level].min(axis=1), self.end[level].max(axis=1)
            finish[:-1] = np.minimum(finish[:-1], np.maximum(begin[1:], begin[:-1]))
            found += zip(level[:, 0].tolist(), begin.tolist(), finish.tolist(), strict=True)
        return found

    def bars(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The bars of the spans `drawn`: rows of the Trace, starts and ends. A strip shown once
        stands for all ranks' spans."""
        heads = self.heads()
        hidden = np.concatenate([level.ravel() for level in self.shared] or [drawn[:0]])
        own = drawn[~np.isin(drawn, hidden)]
        rows = np.append(own, np.array([row for row, _, _ in heads], np.int64))
        begin = np.append(self.start[own], [begin for _, begin, _ in heads])
        finish = np.append(self.end[own], [finish for _, _, finish in heads])
        return rows, begin, finish


def laid_out(trace: Trace, clock: str, drawn: np.ndarray, arrows: np.ndarray) -> Plan:
    """Where the spans `drawn` and the messages `arrows` lie."""
    spans = trace.spans
    start, end = span_times(trace, clock)
    sent, received = message_times(trace, clock)
    times = np.concatenate([start[drawn], end[drawn], sent[arrows], received[arrows]])
    times = times[np.isfinite(times)]
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    high = max(high, low + 1e-6)

    names = _lanes(trace)
    number = {at: place for place, at in enumerate(names)}
    pairs = zip(spans.rank.tolist(), spans.lane.tolist(), strict=True)
    row = np.array([number[at] for at in pairs], np.int64)
    level = spans.depth.astype(np.int64)
    for at in np.unique(row[drawn]):  # in a part of a Trace the outer spans may be left out
        level[row == at] -= level[drawn][row[drawn] == at].min()
    shared = _shared(trace, drawn, row, level, start, end)

    lasting = drawn[end[drawn] > start[drawn]]  # a span of no length may precede its neighbour
    lasting = lasting[level[lasting] >= 0]
    order = lasting[np.lexsort((level[lasting], start[lasting], row[lasting]))]
    here, following = order[:-1], order[1:]  # a span's first child follows it
    holds = np.zeros(len(spans), bool)
    holds[here] = (row[here] == row[following]) & (level[following] > level[here])
    strips = np.zeros(len(names), np.int64)  # how many lie over each other in a row
    np.maximum.at(strips, row[holds], level[holds] + 1)
    rows = _stacked(names, BAR + STRIP * strips)
    edges = np.array([*rows.values()]).reshape(-1, 2)
    highest, lowest = edges[row, 0], edges[row, 1]
    top = np.minimum(highest + STRIP * level, lowest - INSTANT)
    bottom = np.where(holds, top + STRIP, lowest)
    for place, spans_of in enumerate(shared):
        top[spans_of] = STRIP * (place - len(shared)) - BETWEEN_LANES
        bottom[spans_of] = top[spans_of] + STRIP
    unit = text.unit(high - low)
    groups = rank_groups(trace, {rank for rank, _ in names})
    return Plan(clock, start, end, low, high, *unit, rows, row, top, bottom, shared, groups)


def _shared(
    trace: Trace,
    drawn: np.ndarray,
    row: np.ndarray,
    level: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> list[np.ndarray]:
    """The steps and phases that are alike on all ranks, outermost level first, as in Plan.shared.
    Changes `level`: spans inside them move up by a level, and spans shown once are below 0."""
    spans = trace.spans
    own = []
    for rank in np.unique(spans.rank[drawn]).tolist():
        mine = drawn[spans.rank[drawn] == rank]
        lane = lanes(spans.lane[mine].tolist())[0]
        mine = mine[spans.lane[mine] == lane]
        own.append(mine[np.argsort(start[mine], kind="stable")])
    holder = np.isin(spans.kind, HOLDERS)
    shared = []
    while len(own) > 1:
        outermost = [mine[holder[mine] & (level[mine] == 0)] for mine in own]
        keys = {
            tuple(zip(spans.kind[of], spans.name[of], spans.step[of], strict=True))
            for of in outermost
        }
        if len(keys) > 1 or not len(outermost[0]):
            break
        shared.append(np.stack(outermost, axis=1))
        for of in outermost:
            inside = np.flatnonzero((row == row[of[0]]) & (level > 0))
            at = np.searchsorted(start[of], start[inside], side="right") - 1
            within = (at >= 0) & (start[inside] <= end[of[np.maximum(at, 0)]])
            level[inside[within]] -= 1
            level[of] = -1
    return shared


def _lanes(trace: Trace) -> list[tuple[int, str]]:
    """Each (rank, lane) in the order of rows, groups of ranks together. A rank without spans also
    has a row."""
    used: dict[int, set[str]] = {rank: set() for rank in trace.ranks}
    for rank, lane in set(zip(trace.spans.rank.tolist(), trace.spans.lane.tolist(), strict=True)):
        used.setdefault(rank, set()).add(lane)
    return [
        (rank, lane) for rank in side_by_side(trace, used) for lane in lanes(used[rank]) or [""]
    ]


def _stacked(
    names: list[tuple[int, str]], heights: np.ndarray
) -> dict[tuple[int, str], tuple[float, float]]:
    """Top and bottom of rows of these heights, one below the other."""
    places, at, before = {}, 0.0, None
    for (rank, lane), height in zip(names, heights.tolist(), strict=True):
        if before is not None:
            at += BETWEEN_LANES if rank == before else BETWEEN_RANKS
        places[rank, lane] = at, at + height
        at, before = at + height, rank
    return places
