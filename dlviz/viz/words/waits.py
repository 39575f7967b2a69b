"""Whom each wait waited for, and what filled it, in words: `analysis.waits` has the numbers.

The activity that took most of a wait is named with its seconds, as "mostly" if that is more than
half of the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis import waits as analysis
from dlviz.analysis.columns import HOLDERS
from dlviz.analysis.waits import BEFORE, LITTLE, SENT, UNRECORDED, Activity, Filled
from dlviz.viz.words import text
from dlviz.viz.words.hosts import unsure

if TYPE_CHECKING:
    from dlviz.trace import Trace

ABSENT = {
    SENT: "in transit",
    BEFORE: "not yet recording (starting up?)",
    UNRECORDED: "without a recorded span",
}


@dataclass(frozen=True)
class ExplainedWait:
    """A wait: its seconds, for whom, what that rank or lane was doing, and in which span (its row
    in `trace.spans`, -1 if unknown)."""

    seconds: float
    whom: str
    doing: str
    span: int

    def __str__(self) -> str:
        return f"waited {text.seconds(self.seconds)} for {self.whom}; {self.doing}"


def waited_for(trace: Trace, *, clock: str | None = None) -> dict[int, str]:
    """Each wait (by its row in `trace.spans`) in words: how long, for whom, what that rank did."""
    return {row: str(wait) for row, wait in waits(trace, clock=clock).items()}


def waits(trace: Trace, *, clock: str | None = None) -> dict[int, ExplainedWait]:
    """Each wait for a rank, or for another lane of the same rank, by its row in `trace.spans`."""
    found, all_waits = {}, analysis.waits(trace, clock=clock)
    ranks, peers = trace.spans.rank[[*all_waits]], [wait.rank for wait in all_waits.values()]
    took = np.array([wait.seconds for wait in all_waits.values()])
    sure = unsure(trace, ranks, np.array(peers, np.int64), took)
    for (row, wait), known in zip(all_waits.items(), sure, strict=True):
        if wait.lane is None:
            whom = subject = f"rank {wait.rank}"
        else:
            whom = f"its own lane {wait.lane}"
            subject = f"lane {wait.lane} of rank {wait.rank}"
        doing = clause(subject, wait.filled)
        found[row] = ExplainedWait(wait.seconds, whom, doing + known, wait.filled.span)
    return found


def clause(subject: str, filled: Filled) -> str:
    """What filled an interval, for how much of it, and what came last."""
    took, whole, doing = filled.took, filled.whole, _doing(filled.activity)
    sent = filled.activity.kind == "" and filled.activity.peer == SENT
    who = f"the message of {subject} was" if sent else f"{subject} was"
    if took >= (1 - LITTLE) * whole:
        return f"{who} already {doing}" if sent else f"{who} {doing}"
    (part, unit), (all_of_it, of) = text.seconds(took).split(), text.seconds(whole).split()
    share = f"for {part if unit == of else f'{part} {unit}'} of {all_of_it} {of}"
    words = f"{who} mostly {doing}, {share}" if took > whole / 2 else f"{who} {doing} {share}"
    if filled.last is None:
        return words
    other = _doing(filled.last)
    if sent:
        return f"{words}; before that, {subject} was {other}"
    left = filled.last.kind == "" and filled.last.peer == SENT
    return f"{words}, then {'its message was in transit' if left else other}"


@lru_cache(10_000)
def _doing(activity: Activity) -> str:
    kind, name, peer, microbatch = activity
    if not kind:
        return ABSENT[peer]
    if kind == "wait":
        whom = f" for rank {peer}" if peer >= 0 else f" {name}" if name else ""
        return f"itself waiting{whom}"
    if kind in HOLDERS:
        return "between two operations" + (f" of {name}" if name else "")
    if name:
        return f"in {text.kind(kind)} {name}"
    return f"in {text.kind(kind)} {microbatch}" if microbatch >= 0 else f"in {text.kind(kind)}"
