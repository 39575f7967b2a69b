"""What a timeline shows of a pipeline beyond its spans: chunks, bubbles, the critical path.

    rank 0  |F0|F1|\\\\\\\\|B0  |       each further stage of a rank, a chunk, is a lighter shade,
    rank 1     |F0|B0  |\\\\|B1  |      idle time a hatched bubble that says what ended it, and the
                                        critical path has a bold outline from span to span

Every form of the timeline draws these three: on a page, in a widget and in print.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.columns import COMPUTE
from dlviz.analysis.path import path_of_step
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.viz.words.hosts import path_lines
from dlviz.viz.words.idle import ExplainedIdle, idle

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.gantt.layout import Plan

LISTED = 3  # chunks: with more, a legend lists the first and the last
FINEST = 0.5  # pixels: shorter bubbles are left out
LITTLE = 0.005  # of a run: a smaller part off the critical path is not mentioned


def shades(
    style: palette.Style, name: str, rows: np.ndarray, chunk: np.ndarray, chunks: int
) -> Iterator[tuple[str, palette.Style, np.ndarray, bool]]:
    """The spans `rows` of one kind by chunk: name, style, rows, and whether a legend lists them
    (the first and the last of many chunks)."""
    for number in np.unique(chunk[rows]).tolist():
        title = text.kind(name)
        title = f"{title}, chunk {number}" if number else title
        listed = chunks <= LISTED or number in (0, chunks - 1)
        yield title, palette.shade(style, number, chunks), rows[chunk[rows] == number], listed


def lighter_chunk(chunks: int) -> tuple[str, palette.Style]:
    """The legend's words for the lighter shades of a rank's further chunks, and the lightest."""
    what = "chunk 1" if chunks == 2 else f"chunks 1 to {chunks - 1}"
    return f"lighter: {what}", palette.shade(palette.style("forward"), chunks - 1, chunks)


def bubbles(trace: Trace, plan: Plan, drawn: np.ndarray, pixels: float) -> ExplainedIdle | None:
    """The idle time that the spans `drawn` leave in a picture `pixels` wide; None where they are
    not a pipeline's."""
    spans = trace.spans
    actions = np.isin(spans.kind[drawn], COMPUTE)
    if not (actions & (spans.stage[drawn] >= 0) & (spans.microbatch[drawn] >= 0)).any():
        return None
    found = idle(trace, drawn, plan.low, plan.high, clock=plan.clock)
    seen = np.flatnonzero((found.end - found.start) * pixels >= FINEST * (plan.high - plan.low))
    why = [found.why[i] for i in seen.tolist()]
    rank, lane, start, end = (
        column[seen] for column in (found.rank, found.lane, found.start, found.end)
    )
    return ExplainedIdle(rank, lane, start, end, why, found.span[seen])


@dataclass(frozen=True)
class CriticalPath:
    """The critical path: segments of spans (rows) in the order of time, in seconds, and the lines
    of a subtitle about it."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    lines: list[str]

    @property
    def sentences(self) -> str:
        return " ".join(self.lines)

    def among(self, drawn: np.ndarray) -> CriticalPath:
        """The part in the spans `drawn`."""
        seen = np.isin(self.rows, drawn)
        return replace(self, rows=self.rows[seen], start=self.start[seen], end=self.end[seen])


def critical_of(trace: Trace, step: int | None, clock: str) -> CriticalPath:
    """The critical path of `step` (None: of all steps), over what has times by `clock`."""
    rows, start, end, whole = path_of_step(trace, step, clock)
    if not len(rows):
        return CriticalPath(rows, start, end, ["There is no critical path."])
    worked, count = float((end - start).sum()), len(np.unique(rows))
    lines = [
        f"Critical path (bold): {'1 span' if count == 1 else f'{count:,} spans'}, together "
        f"{text.seconds(worked)} of {text.seconds(whole)}"
        f"{f' ({worked / whole:.0%})' if whole else ''}."
    ]
    rest, what = whole - worked, "run" if step is None else "step"
    others = f"The rest, {text.seconds(rest)}, is messages and gaps. " * (rest > LITTLE * whole)
    lines.append(f"{others}Were one of these spans longer, the {what} would be longer.")
    return CriticalPath(rows, start, end, [*lines, *path_lines(trace, rows, start, end)])


def outlines(path: CriticalPath, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box around each run of segments on one row without a gap, (boxes, 5, 2), and
    the line from each box to the next, (boxes - 1, 2, 2): seconds across, rows down."""
    left, right = path.start, path.end
    top, bottom = plan.top[path.rows], plan.bottom[path.rows]
    apart = (
        (top[1:] != top[:-1]) | (bottom[1:] != bottom[:-1]) | (left[1:] > right[:-1] + TOLERANCE)
    )
    first = np.flatnonzero(np.append(True, apart))
    right = right[np.append(first[1:] - 1, len(path.rows) - 1)]
    left, top, bottom = left[first], top[first], bottom[first]
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    boxes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    down, middle = np.sign(top[1:] - top[:-1]), (top + bottom) / 2
    leaves = np.select([down > 0, down < 0], [bottom[:-1], top[:-1]], middle[:-1])
    reaches = np.select([down > 0, down < 0], [top[1:], bottom[1:]], middle[1:])
    tails, heads = np.stack([right[:-1], leaves], axis=-1), np.stack([left[1:], reaches], axis=-1)
    return boxes, np.stack([tails, heads], axis=1)
