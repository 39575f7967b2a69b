"""What a timeline shows of lost ranks: the moment, across their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.gantt.layout import Plan


@dataclass(frozen=True)
class Loss:
    """A rank lost `at` a moment (s): top and bottom of its rows in pixels, and a sentence."""

    rank: int
    at: float
    top: float
    bottom: float
    sentence: str


def losses(trace: Trace, plan: Plan, step: int | None) -> list[Loss]:
    """The losses in the Trace's `meta["lost"]` within the plan's times. Where the plan shows all
    steps, a later loss lies at the end."""
    found = []
    for rank, one in trace.meta.get("lost", {}).items():
        edges = [edge for (own, _), both in plan.rows.items() if str(own) == rank for edge in both]
        at = one["when"] if step is not None else min(max(one["when"], plan.low), plan.high)
        if edges and plan.low <= at <= plan.high:
            when = text.brief_moment(one["when"], plan.unit, plan.size, plan.high - plan.low)
            words = f"rank {rank} {one['how']} at {when}; the run lost it"
            found.append(Loss(int(rank), at, min(edges), max(edges), words))
    return found
