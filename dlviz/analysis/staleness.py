"""How old the weights are that a gradient is computed with, in updates that it did not see."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import TIE
from dlviz.trace import Table, Trace


def staleness(trace: Trace) -> Table | np.ndarray:
    """Updates between the weights that a gradient was computed with and the update by it.

    Of a run with a server, whose updates say whose gradient they apply (`peer`): a table with
    `rank` (whose gradient) and `staleness`, a row for each applied update in their order. The
    weights are those of the server's last message to that rank, or those that all began with.

    Of a pipeline: an array (stages, microbatches) of the updates of a stage between a microbatch's
    forward through it and its backward, -1 where one of the two was not run. 0 for a schedule that
    flushes; p-1-r on stage r of p in PipeDream, once it is filled. Source: Narayanan et al.,
    PipeDream, SOSP 2019, section 3.3.
    """
    spans = trace.spans
    applied = spans[(spans.kind == "update") & (spans.peer >= 0)]
    return _of_servers(trace, applied) if len(applied) else _of_stages(spans)


def _of_servers(trace: Trace, applied: Table) -> Table:
    """Each gradient's staleness, in the order of the updates of each server."""
    applied = applied[np.lexsort((applied.start, applied.rank))]
    behind = np.zeros(len(applied), np.int64)
    messages = trace.messages
    for server in np.unique(applied.rank):
        rows = np.flatnonzero(applied.rank == server)
        own = applied[rows]
        for worker in np.unique(own.peer):
            of_worker = np.flatnonzero(own.peer == worker)
            sent = messages.sent[(messages.src == server) & (messages.dst == worker)]
            sent = np.append(-np.inf, np.sort(sent))  # at first all begin alike
            last = np.searchsorted(sent, own.start[of_worker]) - 1
            seen = np.searchsorted(own.end, sent[last] + TIE, side="right")
            behind[rows[of_worker]] = of_worker - seen
    return Table({"rank": applied.peer, "staleness": behind})


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
