"""Why a rank did nothing, in words: `analysis.idle` has the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis import idle as analysis
from dlviz.schedules.action import CODES
from dlviz.trace.trace import TOLERANCE
from dlviz.viz.words.hosts import unsure
from dlviz.viz.words.waits import clause

if TYPE_CHECKING:
    from dlviz.trace import Table, Trace


@dataclass(frozen=True)
class ExplainedIdle:
    """Intervals in which a rank's own lane has no span but steps and phases, by column.

    `start` and `end` in seconds; `why` in words; `span` is the row of what the rank whose message
    ended the interval was doing meanwhile, -1 where unknown or where no message ended it.
    """

    rank: np.ndarray
    lane: np.ndarray
    start: np.ndarray
    end: np.ndarray
    why: list[str]
    span: np.ndarray


def idle(
    trace: Trace,
    drawn: np.ndarray,
    low: float,
    high: float,
    *,
    clock: str | None = None,
    least: float = TOLERANCE,
) -> ExplainedIdle:
    """The idle intervals of `analysis.idle`, each with its reason."""
    found = analysis.idle(trace, drawn, low, high, clock=clock, least=least)
    why, span = [], np.full(len(found.start), -1)
    sure = unsure(trace, found.rank, found.source, found.end - found.start)
    lost = trace.meta.get("lost", {})
    ends = zip(found.after.tolist(), found.source.tolist(), found.filled, strict=True)
    for place, (after, source, filled) in enumerate(ends):
        own = lost.get(str(found.rank[place]))
        if filled is None and after < 0 and own and own["when"] <= found.end[place]:
            why.append(f"rank {found.rank[place]} {own['how']}; the run lost it")
        elif filled is None:
            why.append("between two operations" if after >= 0 else "nothing left to do")
        else:
            meanwhile = clause(f"rank {source}", filled) + sure[place]
            who = _who(trace.spans, after)
            why.append(f"{who}until a message came from rank {source}; {meanwhile}")
            span[place] = filled.span
    return ExplainedIdle(found.rank, found.lane, found.start, found.end, why, span)


def _who(spans: Table, row: int) -> str:
    """The action of a pipeline that had to wait, in words; "" for another span."""
    kind, stage, microbatch = spans.kind[row], spans.stage[row], spans.microbatch[row]
    if kind not in CODES or stage < 0 or microbatch < 0:
        return ""
    return f"{stage}{CODES[kind]}{microbatch} waited "
