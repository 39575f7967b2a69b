"""The bars of a timeline by their look, in plotly and in print, and who recorded nothing.

    |/////////|recv|    a span that begins by waiting is two bars, the first of which looks like any
                        wait; the longer one has the label

`layout` says where bars lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.columns import never_ended
from dlviz.analysis.stages import chunks_of
from dlviz.analysis.waits import waited_until
from dlviz.viz import palette
from dlviz.viz.gantt.pipeline import shades
from dlviz.viz.words import text
from dlviz.viz.words.hosts import short

if TYPE_CHECKING:
    from dlviz.trace import Trace
    from dlviz.viz.gantt.layout import Plan


@dataclass(frozen=True)
class Bars:
    """Bars of one look, in rows of the Trace and seconds: `labelled` bars show the label of their
    span, `open` ones have no end since their span never ended. Only `listed` ones are in the
    legend."""

    kind: str
    name: str
    style: palette.Style
    rows: np.ndarray
    begin: np.ndarray
    finish: np.ndarray
    labelled: np.ndarray
    open: np.ndarray
    listed: bool


def bars_of(trace: Trace, plan: Plan, drawn: np.ndarray) -> list[Bars]:
    """The spans `drawn` as Bars: kinds in the palette's order, then a caller's own; each chunk of a
    pipeline has its shade."""
    whole, begin, finish = plan.bars(drawn)
    waiting, until = waited_until(trace, plan.clock)
    waits = np.full(len(trace.spans), -np.inf)
    waits[waiting] = until
    apart = np.clip(waits[whole], begin, finish)
    first = np.flatnonzero(apart > begin)  # those that begin by waiting, and
    rest = np.flatnonzero((apart < finish) | (begin == finish))  # those that do something
    longer = apart - begin > finish - apart
    lost = np.array([never_ended(own) for own in trace.spans.fields[whole].tolist()], bool)
    rows = np.append(whole[first], whole[rest])
    kinds = np.append(np.full(len(first), "wait", object), trace.spans.kind[whole[rest]])
    columns = (
        rows,
        np.append(begin[first], apart[rest]),
        np.append(apart[first], finish[rest]),
        np.append(longer[first], ~longer[rest]),
        np.append(lost[first] & (apart == finish)[first], lost[rest]),
    )

    found = []
    chunk, chunks = chunks_of(trace)
    known = [kind for kind in palette.KINDS if kind in {*kinds.tolist()}]
    for name in known + sorted(set(kinds.tolist()) - set(known)):
        here = np.flatnonzero(kinds == name)
        for title, style, at, listed in shades(
            palette.style(name), name, here, chunk[rows], chunks
        ):
            own, since, until, labelled, lost = (column[at] for column in columns)
            seen = listed and bool((until > since).any())
            found.append(Bars(name, title, style, own, since, until, labelled, lost, seen))
    return found


def silent(trace: Trace) -> dict[int, str]:
    """The text in the row of each rank that recorded nothing; its lane is ""."""
    ranks = sorted(set(trace.ranks) - set(trace.spans.rank.tolist()))
    lost = trace.meta.get("lost", {})
    return {
        rank: f"rank {rank} is lost, with all that it had recorded"
        if str(rank) in lost
        else f"rank {rank} recorded nothing"
        for rank in ranks
    }


def rows_of(plan: Plan) -> dict[float, str]:
    """Names of rows, of groups of ranks, and of what is shown once, by how far down they are."""
    names = {y: text.row(*at) for at, y in plan.y.items()}
    names |= {own.y: short(own.group.name) for own in plan.lines}
    return {-plan.above / 2: "all ranks", **names} if plan.shared else names
