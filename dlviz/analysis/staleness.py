"""How old the weights are that a gradient is computed with, in updates that it did not see."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from dlviz.analysis.columns import TIE
from dlviz.trace import Table, Trace


def staleness(trace: Trace) -> Table | np.ndarray:
    """Updates between the weights that a gradient was computed with and the update that applies it.

    For a run with a server, whose updates record whose gradient they apply (`peer`): a table with
    `rank` (whose gradient) and `staleness`, a row for each applied update in their order. The
    weights are those of the server's last message to that rank, or the initial ones.

    For ranks that share memory and apply their own gradients: the same table. A rank reads the
    weights when its update begins and has written them when it ends: its next gradient does not see
    updates that others end after that. Exact under a lock; otherwise except for updates that
    overlap.

    For a pipeline: an array (stages, microbatches) of the updates of a stage between a microbatch's
    forward through it and its backward, -1 where one of the two was not run. 0 for a schedule that
    flushes; p-1-r on stage r of p in PipeDream, once it is filled. Source: Narayanan et al.,
    PipeDream, SOSP 2019, section 3.3.
    """
    spans = trace.spans
    applied = (spans.kind == "update") & (spans.peer >= 0)
    if not applied.any():
        return _of_stages(spans)
    shared = (spans.peer == spans.rank)[applied].all()
    return (_of_shared if shared else _of_servers)(trace, np.flatnonzero(applied))


def _of_shared(trace: Trace, applied: np.ndarray) -> Table:
    """Each gradient's staleness, in the order of the updates' start."""
    spans = trace.spans[applied]
    rank = spans.rank.tolist()
    starts, ends = (
        [*zip(spans[side].tolist(), map(_or_never, spans[f"wall_{side}"].tolist()), strict=True)]
        for side in ("start", "end")
    )
    ended = sorted(ends)
    seen: dict[int, int] = {}  # rank: how many updates were in the weights after its last
    found: dict[str, list[int]] = {"rank": [], "staleness": []}
    for row in sorted(range(len(rank)), key=starts.__getitem__):
        before = bisect_right(ended, starts[row])
        found["rank"].append(rank[row])
        found["staleness"].append(before - seen.get(rank[row], 0))
        seen[rank[row]] = before + 1
    return Table(found)


def _of_servers(trace: Trace, applied: np.ndarray) -> Table:
    """Each gradient's staleness, in the order of the updates; `applied` are their spans.

    A server's events are replayed in order. Times of the device clock may coincide, where a
    message or an update takes no time: then the wall clock decides, then the order of recording.
    """
    spans, messages = trace.spans, trace.messages
    servers = np.unique(spans.rank[applied]).tolist()
    rank, peer, start, wall = (
        spans[name].tolist() for name in ("rank", "peer", "start", "wall_start")
    )
    src, dst, sent, wall_sent = (
        messages[name].tolist() for name in ("src", "dst", "sent", "wall_sent")
    )
    sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0))
    span_of = dict(zip(spans.flow[sends].tolist(), sends.tolist(), strict=True))
    events = []  # device time, wall time, row; server; worker; whether it is an update
    for row in applied.tolist():
        events.append((start[row], _or_never(wall[row]), row, rank[row], peer[row], True))
    for number in np.flatnonzero(np.isin(messages.src, servers)).tolist():
        row = span_of.get(number, -1)
        when = sent[number], wall_sent[number]
        if row >= 0:
            when = start[row], wall[row]
        events.append((when[0], _or_never(when[1]), row, src[number], dst[number], False))

    made = dict.fromkeys(servers, 0)  # updates so far
    seen: dict[tuple[int, int], int] = {}  # server, worker: those in the weights sent last
    found: dict[str, list[int]] = {"rank": [], "staleness": []}
    for *_, server, worker, is_update in sorted(events):
        if is_update:
            found["rank"].append(worker)
            found["staleness"].append(made[server] - seen.get((server, worker), 0))
            made[server] += 1
        else:
            seen[server, worker] = made[server]
    return Table(found)


def _or_never(wall: float) -> float:
    """A wall time that can be compared: a simulated trace has none."""
    return -np.inf if np.isnan(wall) else wall


def _of_stages(spans: Table) -> np.ndarray:
    shape = int(spans.stage.max(initial=-1)) + 1, int(spans.microbatch.max(initial=-1)) + 1
    made = np.full((2, *shape), -1)  # updates before the forward and before the backward
    for stage in range(shape[0]):
        own = spans[spans.stage == stage]
        updates = np.sort(own.end[own.kind == "update"])
        for side, kinds in enumerate((["forward"], ["backward", "backward_weight"])):
            runs = own[np.isin(own.kind, kinds) & (own.microbatch >= 0)]
            before = np.searchsorted(updates, runs.start + TIE, side="right")
            made[side, stage, runs.microbatch] = before
    return np.where((made >= 0).all(axis=0), made[1] - made[0], -1)
