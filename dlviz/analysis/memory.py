"""What each rank holds at once: bytes, and microbatches in flight."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import TIE, by_rank, codes, times_of
from dlviz.trace import Trace

ROUNDED = 1e-12  # of the last time: the same where times are so large that they are less exact
_MICROBATCH = ("rank", "step", "stage", "microbatch")


def peak_memory(trace: Trace) -> np.ndarray:
    """Bytes per rank: the most that it held at once, summed over what it held them for.

    A memory row says how many bytes of `what` a rank holds from then on; rows of one rank and time
    are one change.
    """
    memory = trace.memory
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    what = codes(memory.what)
    order = np.lexsort((memory.time, what, memory.rank))
    rank, what, held = memory.rank[order], what[order], np.maximum(memory.nbytes[order], 0)
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = (rank[1:] == rank[:-1]) & (what[1:] == what[:-1])
    change = held - np.where(follows, np.roll(held, 1), 0)

    back = np.lexsort((memory.time[order], rank))
    rank, time, change = rank[back], memory.time[order][back], change[back]
    for r, rows in by_rank(rank, len(peak)):
        level = np.cumsum(change[rows])
        settled = np.append(np.diff(time[rows]) > 0, True)
        peak[r] = level[settled].max(initial=0)
    return peak


def peak_in_flight(trace: Trace, clock: str = "device") -> np.ndarray:
    """Per rank, the most microbatches whose activations it held at once.

    A microbatch (of a stage, so a chunk counts by itself) is in flight from the start of its first
    forward to the end of its last backward, or backward_weight where the backward is split. One
    that is never released stays in flight; but where nothing is trained, no span being a backward,
    nothing is kept for later and a microbatch is in flight for as long as its forward. Spans
    without a microbatch count as one per stage.
    """
    spans, start, end = times_of(trace.spans, clock)
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    forward = spans.kind == "forward"
    release = (spans.kind == "backward") | (spans.kind == "backward_weight")
    if not (release | (spans.kind == "backward_input")).any():
        release = forward
    key = codes(zip(*(spans[name].tolist() for name in _MICROBATCH), strict=True))
    held = int(key.max(initial=-1)) + 1
    opened, closed = np.full(held, np.inf), np.full(held, -np.inf)
    owner = np.zeros(held, dtype=np.int64)
    owner[key] = spans.rank
    np.minimum.at(opened, key[forward], start[forward])
    np.maximum.at(closed, key[release], end[release])

    taken, freed = np.isfinite(opened), np.isfinite(opened) & np.isfinite(closed)
    rank = np.concatenate([owner[taken], owner[freed]])
    moment = max(TIE, ROUNDED * np.abs(end).max(initial=0.0))
    time = np.concatenate([opened[taken], closed[freed] - moment])
    change = np.concatenate([np.ones(taken.sum(), int), -np.ones(freed.sum(), int)])
    order = np.lexsort((time, rank))
    for r, rows in by_rank(rank[order], len(peak)):
        peak[r] = np.cumsum(change[order][rows]).max(initial=0)
    return peak
