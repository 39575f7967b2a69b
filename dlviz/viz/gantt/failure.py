"""What a timeline shows of a run that failed: who waits for whom, from row to row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.gantt.layout import Plan


@dataclass(frozen=True)
class StuckWait:
    """A rank that waits for another for ever: the places of both in the plan's rows, and a
    sentence."""

    tail: int
    head: int
    sentence: str


def stuck_waits(trace: Trace, plan: Plan) -> list[StuckWait]:
    """The cycle of waits in which a run got stuck, by the Trace's `meta["failure"]`."""
    failure = trace.meta.get("failure") or {}
    cycle = failure.get("cycle") or []
    place = {at: number for number, at in enumerate(plan.rows)}
    first = {rank: number for (rank, _), number in reversed(place.items())}
    found = []
    for rank, peer in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        waits = [wait for wait in failure.get("waits", []) if wait["rank"] == rank]
        wait = next((wait for wait in waits if wait["peer"] == peer), None)
        if wait is None or rank not in first or peer not in first:
            continue
        tail = place.get((rank, wait["lane"]), first[rank])
        since = text.brief_moment(wait["since"], plan.unit, plan.size, plan.high - plan.low)
        words = f"rank {rank} waits for rank {peer} in {wait['op']}, since {since}; it never ended"
        found.append(StuckWait(tail, first[peer], words))
    return found
