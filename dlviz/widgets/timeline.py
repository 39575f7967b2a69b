"""The Timeline: what every rank and lane did and when, to zoom, search, select and follow.

The state holds columns, not an object for each span, so that 100,000 spans arrive and are drawn
within a second. Spans come by *slot*: the spans of one row and depth, which follow each other, so
that the front end finds those in view by binary search. Times are whole numbers of a quantum that
is a hundred-millionth of the whole or less, each start as its distance from the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from dlviz.analysis.changes import changes
from dlviz.analysis.clocks import clock_of, message_times, span_times
from dlviz.analysis.columns import HOLDERS, WAITING
from dlviz.analysis.hosts import group_numbers
from dlviz.analysis.memory import counts_microbatches, held, held_by_use
from dlviz.analysis.shares import GROUPS, intervals, shares
from dlviz.analysis.stages import chunks_of
from dlviz.analysis.waits import waited_until
from dlviz.metrics import COMPUTE
from dlviz.trace.trace import TOLERANCE
from dlviz.viz import palette
from dlviz.viz.gantt.arrows import ends
from dlviz.viz.gantt.bars import silent
from dlviz.viz.gantt.failure import stuck_waits
from dlviz.viz.gantt.layout import Plan, laid_out
from dlviz.viz.gantt.lost_ranks import losses
from dlviz.viz.gantt.pipeline import critical_of
from dlviz.viz.gantt.visible import Shown, shown
from dlviz.viz.scene import ops
from dlviz.viz.words import text
from dlviz.viz.words.hosts import message_words, names_of
from dlviz.viz.words.idle import idle
from dlviz.viz.words.labels import field_words, forms_of, never_ended, short_forms
from dlviz.viz.words.waits import waits
from dlviz.widgets.source import sources
from dlviz.widgets.view import View, column, indexed, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

FINEST = 1e-6  # of the whole: in a cut Trace shorter idle intervals are left out
NUMBERS = ("rank", "step", "stage", "microbatch", "bucket", "nbytes")


class Timeline(View):
    """The spans of every rank and lane over time, with messages, idle time and memory.

    `step` shows one step of the program; `clock` ("device" or "wall") is the one shown at first, by
    default the Trace's own; the reader may change it for a paced run. `critical` outlines the
    critical path at first. Of more than `max_spans` spans the longest are drawn, and the heading
    says so; idle time and the numbers of a step come from all. Raises ValueError where the Trace
    has no such clock or step.

    Ranks of a host, or of a rack, are grouped under its name. Times of two hosts compare only as
    well as their clocks are known: a message that seems to arrive before it was sent, by no more
    than that, is drawn as immediate, and the heading counts those that took less.

    `beside` is another Trace, drawn below on the same axis, with the changes from this one to it.

    `marks` are the moments that the reader has marked, each {"clock": "device" or "wall", "time":
    seconds, "note": str}; it may be set, and a saved page holds it.
    """

    module = "timeline/index"

    marks = traitlets.List().tag(sync=True)

    def __init__(
        self,
        trace: Trace,
        *,
        beside: Trace | None = None,
        step: int | None = None,
        clock: str | None = None,
        critical: bool = False,
        title: str | None = None,
        theme: str = "auto",
        max_spans: int = 200_000,
    ):
        clock = clock_of(trace, clock)
        self._shown = {"step": step, "clock": clock, "title": title, "critical": critical}
        self._trace = trace
        state = _state(trace, **self._shown, max_spans=max_spans)
        if beside is not None:
            shown = {**self._shown, "clock": clock_of(beside, None)}
            state["beside"] = _state(beside, **shown, max_spans=max_spans)
            state["changes"] = [
                change._asdict() for change in changes(trace, beside, (clock, shown["clock"]))
            ]
        super().__init__(trace, state, theme)

    def saved_state(self) -> dict[str, Any]:
        return {**super().saved_state(), "marks": self.marks}

    def picture(self) -> Figure:
        from dlviz.viz import print

        return print.timeline(self._trace, **self._shown)


def _state(
    trace: Trace, step: int | None, clock: str, title: str | None, critical: bool, max_spans: int
) -> dict[str, Any]:
    spans = trace.spans
    seen = shown(trace, clock, step, max_spans)
    plan, drawn, arrows = seen.plan, seen.drawn, seen.arrows
    counted = (f"{line} Idle time and the numbers of a step count all." for line in seen.lines)
    lines = [*text.provenance(trace, clock), *counted, *seen.hosts]
    order, slots = _slots(plan, drawn)
    place = np.full(len(spans) + 1, -1)
    place[order] = np.arange(len(order))

    other = "device" if clock == "wall" else "wall"
    paced = trace.meta["clock"] == "paced" and np.isfinite(span_times(trace, other)[0][drawn]).all()
    plans = [plan] + ([laid_out(trace, other, seen.spans, arrows)] if paced else [])
    tail, head = ends(trace, plan)
    arrows = arrows[(tail[arrows] >= 0) & (head[arrows] >= 0)]
    table, became = trace.messages, ops(trace)
    chunk, chunks = chunks_of(trace)
    carrier = {side: _carriers(trace, place, table[side]) for side in ("src", "dst")}
    forms = ["\n".join(own) for own in forms_of(trace)]
    fields = spans.fields[order].tolist()
    return {
        "title": text.short(title or "Timeline", 90),
        "lines": lines,
        "details": text.details(trace, clock),
        "above": plan.above,
        "height": plan.height,
        "rows": _rows(trace, plan),
        "rankGroups": names_of(plan.groups),
        "slots": slots,
        "heads": [
            {"level": level, "spans": place[own].tolist()}
            for level, alike in enumerate(plan.shared)
            for own in alike
        ],
        "count": len(order),
        "total": len(seen.spans),
        "short": short_forms(trace),
        "chunks": chunks,
        "shades": _shades(spans.kind[order], chunks),
        "holders": HOLDERS,
        "critical": critical,
        "spans": {
            "row": column(order),
            "kind": indexed(spans.kind[order].tolist(), first=[*palette.KINDS]),
            "label": indexed(np.array(forms, object)[order].tolist()),
            "name": indexed(spans.name[order].tolist()),
            "where": indexed(spans.where[order].tolist()),
            "fields": indexed([field_words(own) for own in fields]),
            "chunk": column(chunk[order]),
            "flow": column(_shown_flow(spans.flow[order], arrows, len(table))),
            **{name: column(spans[name][order]) for name in NUMBERS},
        },
        "unfinished": [at for at, own in enumerate(fields) if never_ended(own)],
        "messages": {
            "shown": len(arrows),
            "row": column(arrows),
            "op": indexed([text.done(became[row]) for row in arrows.tolist()]),
            "tail": column(tail[arrows]),
            "head": column(head[arrows]),
            "sender": column(carrier["src"][arrows]),
            "receiver": column(carrier["dst"][arrows]),
            **{
                name: column(table[name][arrows])
                for name in ("src", "dst", "nbytes", "offset", "count")
            },
        },
        "cycle": [
            {"tail": own.tail, "head": own.head, "summary": own.sentence}
            for own in stuck_waits(trace, plan)
        ],
        "clocks": [_clock(trace, one, step, order, seen, arrows, place) for one in plans],
        "memory": _memory(trace) if step is None else [],
        "groups": {**GROUPS, "waiting": WAITING},
        "sources": sources(trace),
    }


def _rows(trace: Trace, plan: Plan) -> list[dict[str, Any]]:
    """Each row, with what is said in it where it has no span."""
    remarks = silent(trace)
    group = group_numbers(plan.groups)
    return [
        {
            "rank": rank,
            "group": group.get(rank, -1),
            "label": text.row(rank, lane),
            "remark": remarks.get(rank, ""),
            "top": top,
            "height": bottom - top,
        }
        for (rank, lane), (top, bottom) in plan.rows.items()
    ]


def _shades(kinds: np.ndarray, chunks: int) -> dict[str, list[dict[str, str]]]:
    """Where ranks have several chunks, how each kind of action looks in each of them."""
    return {
        kind: [styled(palette.shade(palette.style(kind), chunk, chunks)) for chunk in range(chunks)]
        for kind in COMPUTE
        if chunks > 1 and kind in kinds
    }


def _slots(plan: Plan, drawn: np.ndarray) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The spans `drawn` by slot and start, and each slot: its row, its top and bottom in pixels
    from the top of the first row, and how many spans are in it; `once`, above the rows, where they
    are shown once."""
    row, top, bottom = plan.row[drawn], plan.top[drawn], plan.bottom[drawn]
    order = np.lexsort((plan.end[drawn], plan.start[drawn], -bottom, top, row))
    keys = np.stack([row, top, bottom], axis=1)[order]
    new = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    edges = [0, *new.tolist(), len(order)] if len(order) else []
    slots = []
    for first, after in zip(edges, edges[1:], strict=False):
        number, high, low = keys[first].tolist()
        once = {"once": True} if high < 0 else {}
        slot = {"row": int(number), "count": after - first, "top": high, "bottom": low, **once}
        slots.append(slot)
    return drawn[order], slots


def _clock(
    trace: Trace,
    plan: Plan,
    step: int | None,
    order: np.ndarray,
    seen: Shown,
    arrows: np.ndarray,
    place: np.ndarray,
) -> dict[str, Any]:
    """All that depends on the times of one clock."""
    quantum = 10.0 ** (math.floor(math.log10(plan.high - plan.low)) - 8)

    def whole(times: np.ndarray) -> np.ndarray:
        return np.rint(times / quantum).astype(np.int64)

    def interval(start: np.ndarray, end: np.ndarray) -> dict[str, Any]:
        begin = whole(start - plan.low)
        length = whole(end - plan.low) - begin
        return {"start": column(np.diff(begin, prepend=0)), "length": column(length)}

    waiting = {
        int(place[row]): wait
        for row, wait in waits(trace, clock=plan.clock).items()
        if place[row] >= 0
    }
    least = FINEST * (plan.high - plan.low) if len(seen.left_out) else TOLERANCE
    holes = idle(trace, seen.spans, plan.low, plan.high, clock=plan.clock, least=least)
    level = {at: number for number, at in enumerate(plan.rows)}
    on_row = zip(holes.rank.tolist(), holes.lane.tolist(), strict=True)
    gaps = intervals(trace, seen.left_out, plan.clock, plan.row, least)
    path = critical_of(trace, step, plan.clock).among(order)
    sent, received = message_times(trace, plan.clock)
    known = message_words(trace, plan.clock)
    never = ~np.isfinite(received[arrows])
    got = whole(np.where(never, 0.0, received[arrows] - plan.low))
    return {
        "name": plan.clock,
        "axis": text.TIMES[plan.clock],
        "memory": plan.clock == "device" or trace.meta["clock"] == "wall",
        "low": plan.low,
        "high": plan.high,
        "quantum": quantum,
        **interval(plan.start[order], plan.end[order]),
        "sent": column(whole(sent[arrows] - plan.low)),
        "received": [None if lost else at for at, lost in zip(got.tolist(), never, strict=True)],
        "known": indexed([known[row] for row in arrows.tolist()]),
        "critical": place[path.rows].tolist(),
        "path": {
            "start": column(whole(path.start - plan.low)),
            "end": column(whole(path.end - plan.low)),
        },
        "summary": path.sentences,
        "waits": {
            "span": list(waiting),
            "whom": indexed([wait.whom for wait in waiting.values()]),
            "doing": indexed([wait.doing for wait in waiting.values()]),
            "at": column([int(place[wait.span]) for wait in waiting.values()]),
        },
        "waited": _waited(trace, plan, place, whole),
        "lost": [
            {"rank": one.rank, "at": one.at, "summary": one.sentence}
            for one in losses(trace, plan, step)
        ],
        "idle": {
            "row": column([level[at] for at in on_row]),
            **interval(holes.start, holes.end),
            "why": indexed(holes.why),
            "at": column(place[holes.span]),
            "count": len(holes.start),
        },
        "gaps": {"row": column(gaps[0]), **interval(*gaps[1:]), "count": len(gaps[0])},
        "numbers": _numbers(trace, plan, seen, whole) if len(seen.left_out) else None,
    }


def _waited(
    trace: Trace, plan: Plan, place: np.ndarray, whole: Callable[[np.ndarray], np.ndarray]
) -> dict[str, list[int]]:
    """The shown spans that begin by waiting, and for how long (quanta)."""
    rows, until = waited_until(trace, plan.clock)
    here = place[rows] >= 0
    rows, until = rows[here], until[here]
    length = whole(until - plan.low) - whole(plan.start[rows] - plan.low)
    return {"span": place[rows].tolist(), "length": length.tolist()}


def _numbers(
    trace: Trace, plan: Plan, seen: Shown, whole: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any]:
    """The statistics of the whole and of each step over all spans, in quanta."""
    ranks = sorted({rank for rank, _ in plan.rows})
    found = shares(trace, seen.spans, plan.clock, ranks, plan.high - plan.low)
    part, kind, count, *lengths = ([*of] for of in zip(*found.kinds, strict=True))
    total, least, most = (whole(np.array(length)).tolist() for length in lengths)
    return {
        "steps": found.steps,
        "ranks": found.ranks,
        "seconds": {name: whole(own).tolist() for name, own in found.seconds.items()},
        "kinds": {
            "part": part, "kind": kind, "count": count, "total": total, "min": least, "max": most,
        },
    }  # fmt: skip


def _carriers(trace: Trace, place: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Of each message the place of the shown span that carries it on its rank in `ranks`, or -1."""
    spans, found = trace.spans, np.full(len(ranks), -1)
    rows = np.flatnonzero(spans.flow >= 0)
    rows = rows[spans.rank[rows] == ranks[spans.flow[rows]]]
    found[spans.flow[rows[::-1]]] = place[rows[::-1]]  # the first of several
    return found


def _shown_flow(flow: np.ndarray, arrows: np.ndarray, messages: int) -> np.ndarray:
    """Flows as places among the messages shown."""
    place = np.full(messages + 1, -1)
    place[arrows] = np.arange(len(arrows))
    return place[flow]


def _memory(trace: Trace) -> list[dict[str, Any]]:
    """For each rank that reported its memory: times in seconds, and what it held from then on, in
    bytes or microbatches; where it named several uses, of each of them."""
    counts, found = counts_microbatches(trace), []
    for one in held(trace):
        if not len(one.time):
            continue
        _, levels = held_by_use(trace, one.rank)
        uses = {use: level.tolist() for use, level in levels.items() if len(levels) > 1}
        row = {"rank": one.rank, "time": one.time.tolist(), "held": one.level.tolist()}
        found.append({**row, "counts": counts, "uses": uses})
    return found
