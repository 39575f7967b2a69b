"""What a trace comes to: makespan, bubble, bytes, memory, bandwidth; a number or one per rank.

Every metric of time takes `clock`: "device" reads the columns start and end, "wall" wall_start and
wall_end (what is called measured is always the wall). Times are in seconds, sizes in bytes, an
array has one entry for each rank of the run. A rank is *busy* while a forward or backward span is
open on any of its lanes (the union: two lanes at once count once); an update is work, but it is
outside the bubble, whose window is a step: the first compute of any rank to the last.

    busy     |F0|F1|      |B0|B1|     bubble ratio    = mean idle / mean busy   (p-1)/m for GPipe
    window   |<--------------->|      bubble fraction = idle / total      (p-1)/(m+p-1) for GPipe
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from dlviz.trace import Table, Trace

COMPUTE = ("forward", "backward", "backward_input", "backward_weight")
UPDATE = ("update",)
COMMUNICATION = ("send", "recv", "collective", "wait")
OTHER = ("compress", "data", "lock")
_CLOCKS = {"device": ("start", "end"), "wall": ("wall_start", "wall_end")}
_TIE = 1e-9  # seconds: a release and a start closer than this are one moment


def makespan(trace: Trace, clock: str = "device") -> float:
    """Seconds from the first start to the last end of any span; 0.0 without spans."""
    _, start, end = _times(trace.spans, clock)
    return float(end.max() - start.min()) if len(start) else 0.0


def step_seconds(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds of each step: from the first start to the last end of the spans that bear it.

    One entry per step, in the steps' order; spans without a step count as none.
    """
    _, start, end = _times(trace.spans, clock)
    steps, of = np.unique(trace.spans.step, return_inverse=True)
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, end)
    return (last - first)[steps >= 0]


def busy(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which a forward or backward span is open on any lane of it."""
    return _open(trace, COMPUTE, clock)


def bubble_ratio(trace: Trace, clock: str = "device") -> float:
    """Mean idle / mean busy over the ranks, in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/m. NaN where no rank
    computes. Source: Narayanan et al., SC 2021, section 2.2 (bubble time / ideal time).
    """
    return _median([window / mean - 1 for window, mean in _steps(trace, clock)])


def bubble_fraction(trace: Trace, clock: str = "device") -> float:
    """Idle / total rank-seconds in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/(m+p-1). NaN where no
    rank computes. Source: Huang et al., GPipe, NeurIPS 2019, section 2.3.
    """
    return _median([1 - mean / window for window, mean in _steps(trace, clock)])


def exposed_communication(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which it communicates or waits for that, and does not compute.

    A send, recv, collective or wait is open on some lane, and no forward, backward or update on
    any. Communication inside a compute span of the same lane therefore counts as hidden.
    """
    work = COMPUTE + UPDATE
    exposed = _open(trace, work + COMMUNICATION, clock) - _open(trace, work, clock)
    return np.maximum(exposed, 0.0)  # the difference of two sums may be -1e-16


def overlap(trace: Trace, clock: str = "device") -> float:
    """The part of all ranks' communication that hides behind compute, 0 to 1.

    1 - exposed / total, total being the seconds in which a rank has a communication span open.
    NaN where no rank communicates.
    """
    total = _open(trace, COMMUNICATION, clock).sum()
    return float(1 - exposed_communication(trace, clock).sum() / total) if total else float("nan")


def breakdown(trace: Trace, clock: str = "device") -> dict[str, np.ndarray]:
    """Where each rank's makespan went: seconds per rank, by what it did; they add up to it.

    `compute` is busy; `update` the optimizer outside of it; `communication` the exposed part;
    `other` compressing, loading data and holding a lock outside of all these; `idle` the rest.
    """
    rows, kinds, before = {}, (), 0.0
    for name, more in (
        ("compute", COMPUTE),
        ("update", UPDATE),
        ("communication", COMMUNICATION),
        ("other", OTHER),
    ):
        kinds += more
        until = _open(trace, kinds, clock)
        rows[name], before = np.maximum(until - before, 0.0), until
    return {**rows, "idle": np.maximum(makespan(trace, clock) - before, 0.0)}


def bytes_sent(trace: Trace) -> np.ndarray:
    """Bytes per rank in the messages that it sent."""
    sent = np.zeros(trace.meta["ranks"], dtype=np.int64)
    np.add.at(sent, trace.messages.src, np.maximum(trace.messages.nbytes, 0))
    return sent


def peak_memory(trace: Trace) -> np.ndarray:
    """Bytes per rank: the most that it held at once, summed over what it held them for.

    A memory row says how many bytes of `what` a rank holds from then on; rows of one rank and time
    are one change.
    """
    memory = trace.memory
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    what = _codes(memory.what)
    order = np.lexsort((memory.time, what, memory.rank))
    rank, what, held = memory.rank[order], what[order], np.maximum(memory.nbytes[order], 0)
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = (rank[1:] == rank[:-1]) & (what[1:] == what[:-1])
    change = held - np.where(follows, np.roll(held, 1), 0)

    back = np.lexsort((memory.time[order], rank))
    rank, time, change = rank[back], memory.time[order][back], change[back]
    for r, rows in _by_rank(rank, len(peak)):
        level = np.cumsum(change[rows])
        settled = np.append(np.diff(time[rows]) > 0, True)
        peak[r] = level[settled].max(initial=0)
    return peak


def peak_in_flight(trace: Trace, clock: str = "device") -> np.ndarray:
    """Per rank, the most microbatches whose activations it held at once.

    A microbatch (of a stage, so a chunk counts by itself) is in flight from the start of its first
    forward to the end of its last backward, or backward_weight where the backward is split. One
    that is never released stays in flight. Spans without a microbatch count as one per stage.
    """
    spans, start, end = _times(trace.spans, clock)
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    forward = spans.kind == "forward"
    release = (spans.kind == "backward") | (spans.kind == "backward_weight")
    key = _codes(zip(*(spans[name].tolist() for name in _MICROBATCH), strict=True))
    held = int(key.max(initial=-1)) + 1
    opened, closed = np.full(held, np.inf), np.full(held, -np.inf)
    owner = np.zeros(held, dtype=np.int64)
    owner[key] = spans.rank
    np.minimum.at(opened, key[forward], start[forward])
    np.maximum.at(closed, key[release], end[release])

    taken, freed = np.isfinite(opened), np.isfinite(opened) & np.isfinite(closed)
    rank = np.concatenate([owner[taken], owner[freed]])
    time = np.concatenate([opened[taken], closed[freed] - _TIE])
    change = np.concatenate([np.ones(taken.sum(), int), -np.ones(freed.sum(), int)])
    order = np.lexsort((time, rank))
    for r, rows in _by_rank(rank[order], len(peak)):
        peak[r] = np.cumsum(change[order][rows]).max(initial=0)
    return peak


_MICROBATCH = ("rank", "step", "stage", "microbatch")


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes/s: the size of the data over the time, nbytes / seconds.

    Source: nccl-tests, doc/PERFORMANCE.md ("algorithm bandwidth").
    """
    return nbytes / seconds


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes/s: the algorithm bandwidth times what each rank must move, so that it compares with the
    speed of the link whatever the number n of ranks.

    all_reduce 2(n-1)/n; reduce_scatter, all_gather and all_to_all (n-1)/n; broadcast and reduce 1.
    `nbytes` is the whole tensor: what an all_gather gathers, what a reduce_scatter reduces. Raises
    ValueError for another collective. Source: nccl-tests, doc/PERFORMANCE.md ("bus bandwidth").
    """
    share = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "all_to_all": share,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    if collective not in factors:
        raise ValueError(
            f"collective={collective!r} has no bus bandwidth here: use {', '.join(factors)}."
        )
    return algorithm_bandwidth(nbytes, seconds) * factors[collective]


def _times(
    spans: Table, clock: str, kinds: Collection[str] | None = None
) -> tuple[Table, np.ndarray, np.ndarray]:
    """The spans of `kinds` with their starts and ends by `clock`. Raises ValueError."""
    if clock not in _CLOCKS:
        raise ValueError(f"clock={clock!r} is none: use 'device' or 'wall'.")
    if kinds is not None:
        spans = spans[_of_kinds(spans, kinds)]
    start, end = (spans[name] for name in _CLOCKS[clock])
    if np.isnan(start).any() or np.isnan(end).any():
        raise ValueError(
            f"clock={clock!r}: the trace has spans without {' and '.join(_CLOCKS[clock])}; "
            f"use clock={'device' if clock == 'wall' else 'wall'!r}."
        )
    return spans, start, end


def _of_kinds(spans: Table, kinds: Collection[str]) -> np.ndarray:
    return np.fromiter((kind in kinds for kind in spans.kind.tolist()), bool, len(spans))


def _open(trace: Trace, kinds: Collection[str], clock: str) -> np.ndarray:
    """Seconds per rank in which a span of `kinds` is open: the length of their union."""
    spans, start, end = _times(trace.spans, clock, kinds)
    return _union(spans.rank, start, end, trace.meta["ranks"])


def _union(rank: np.ndarray, start: np.ndarray, end: np.ndarray, ranks: int) -> np.ndarray:
    order = np.lexsort((start, rank))
    rank, start, end = rank[order], start[order], end[order]
    seconds = np.zeros(ranks)
    for r, rows in _by_rank(rank, ranks):
        reached = np.maximum.accumulate(end[rows])
        begin = start[rows].copy()
        begin[1:] = np.maximum(begin[1:], reached[:-1])
        seconds[r] = np.maximum(reached - begin, 0).sum()
    return seconds


def _steps(trace: Trace, clock: str) -> Iterator[tuple[float, float]]:
    """Of each step: the seconds from its first compute to its last, and the mean rank's busy."""
    spans, start, end = _times(trace.spans, clock, COMPUTE)
    ranks = trace.ranks
    order = np.argsort(spans.step, kind="stable")
    edges = np.flatnonzero(np.diff(spans.step[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        window = end[rows].max() - start[rows].min()
        seconds = _union(spans.rank[rows], start[rows], end[rows], trace.meta["ranks"])
        if seconds.any():
            yield float(window), float(seconds[ranks].mean())


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def _by_rank(rank: np.ndarray, ranks: int) -> Iterator[tuple[int, slice]]:
    """Each rank that has rows, with its rows in columns sorted by rank."""
    edges = np.searchsorted(rank, np.arange(ranks + 1)).tolist()
    return (
        (r, slice(a, b)) for r, (a, b) in enumerate(zip(edges, edges[1:], strict=False)) if a < b
    )


def _codes(values) -> np.ndarray:
    """Equal values as equal numbers, counted from 0."""
    seen: dict = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)
