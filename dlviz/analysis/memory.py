"""What each rank holds at a time: bytes, and microbatches in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlviz.analysis.clocks import clock_of
from dlviz.analysis.columns import TIE, by_known_rank, by_rank, codes, times_of
from dlviz.trace import Table, Trace
from dlviz.trace.trace import TOLERANCE

ROUNDED = 1e-12  # of the last time: the tolerance where times are so large that they are less exact
_MICROBATCH = ("rank", "step", "stage", "microbatch")


@dataclass(frozen=True)
class Held:
    """What one rank held: `level` (bytes or microbatches) from each `time` (s) on."""

    rank: int
    time: np.ndarray
    level: np.ndarray

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))


def held(trace: Trace, what: str | None = None) -> list[Held]:
    """What each rank of the Trace held of `what`, or of everything. Raises ValueError.

    A memory row says how many bytes of `what` a rank holds from then on; rows of one rank and time
    are one change.
    """
    table = trace.memory
    names = [*dict.fromkeys(table.what.tolist())]
    if what is not None and names and what not in names:
        known = ", ".join(map(repr, names))
        raise ValueError(f"what={what!r} is not in this Trace's memory: it has {known}.")
    if what is not None:
        table = table[table.what == what]
    found = []
    for rank in trace.ranks:
        time, levels = _levels(table[table.rank == rank])
        found.append(Held(rank, time, sum(levels.values(), np.zeros(len(time), np.int64))))
    return found


def held_by_use(
    trace: Trace, rank: int, points: int | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What one rank held of each use: the times (s) of all changes, and the bytes (or microbatches)
    of each use from then on. Of more than `points` changes, those at which it held the most in each
    of as many intervals."""
    time, levels = _levels(trace.memory[trace.memory.rank == rank])
    if points is None or len(time) <= points:
        return time, levels
    total = sum(levels.values(), np.zeros(len(time), np.int64))
    first = _first(time, points)
    ends = [*first[1:].tolist(), len(time)]
    chosen = np.array(
        [at + total[at:end].argmax() for at, end in zip(first.tolist(), ends, strict=True)]
    )
    return time[first], {use: level[chosen] for use, level in levels.items()}


@dataclass(frozen=True)
class Peak:
    """The most that a rank held, `total`, what it was by use (`together`), and the most that it
    held of `each` use, at whatever moment: bytes or microbatches."""

    total: int
    together: dict[str, int]
    each: dict[str, int]


def peak_by_use(trace: Trace, rank: int, step: int | None = None) -> Peak:
    """The peak of `rank`, in the whole run or while its spans of a step went on. Raises ValueError
    for a step of which the rank has no span."""
    time, levels = _levels(trace.memory[trace.memory.rank == rank])
    if step is not None:
        spans, start, end = times_of(trace.spans, clock_of(trace))
        own = (spans.rank == rank) & (spans.step == step)
        if not own.any():
            raise ValueError(f"rank {rank} has no span of step {step}: use another step, or None.")
        first = max(int(np.searchsorted(time, start[own].min(), "right")) - 1, 0)  # held before
        last = int(np.searchsorted(time, end[own].max(), "right"))
        levels = {use: level[first:last] for use, level in levels.items()}
    if not any(map(len, levels.values())):
        return Peak(0, {}, {})
    at = int(np.sum([*levels.values()], axis=0).argmax())
    together = {use: int(level[at]) for use, level in levels.items()}
    most = {use: int(level.max()) for use, level in levels.items()}
    return Peak(sum(together.values()), together, most)


def _levels(rows: Table) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The times of the changes in one rank's rows, and what it held of each use from then on."""
    order = np.argsort(rows.time, kind="stable")
    time, what, nbytes = rows.time[order], rows.what[order], np.maximum(rows.nbytes[order], 0)
    settled = np.append(np.diff(time) > TOLERANCE, True)[: len(time)]  # others are one change
    levels = {}
    for use in dict.fromkeys(rows.what.tolist()):
        last = np.maximum.accumulate(np.where(what == use, np.arange(len(time)), -1))
        levels[use] = np.where(last < 0, 0, nbytes[last])[settled].astype(np.int64)
    return time[settled], levels


def peak_memory(trace: Trace) -> np.ndarray:
    """Bytes per rank: the most that it held at a time, summed over all uses; NaN for ranks that
    were cut away, and where no memory was recorded. Raises ValueError for a simulated schedule,
    whose memory is counted in microbatches."""
    if counts_microbatches(trace):
        raise ValueError(
            "the memory of a simulated schedule is counted in microbatches: use peak_in_flight."
        )
    if not len(trace.memory):
        return np.full(trace.meta["ranks"], np.nan)
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    for one in held(trace):
        peak[one.rank] = one.peak
    return by_known_rank(trace, peak)


def counts_microbatches(trace: Trace) -> bool:
    """Whether the Trace's memory counts microbatches, not bytes: that of a simulated schedule."""
    return trace.meta["clock"] == "simulated" and "microbatches" in trace.meta


def window(trace: Trace) -> tuple[float, float]:
    """The first and the last moment of the Trace's spans and memory, seconds."""
    times = np.concatenate([trace.spans.start, trace.spans.end, trace.memory.time])
    times = times[np.isfinite(times)]
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    return low, max(high, low + 1e-6)


def highest(one: Held, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and levels of what a rank held: of more than `points` changes, the highest level of
    each of as many intervals."""
    time, level = one.time, one.level
    if len(time) <= points:
        return time, level
    first = _first(time, points)
    return time[first], np.maximum.reduceat(level, first)


def _first(time: np.ndarray, points: int) -> np.ndarray:
    """The place of the first change in each of `points` intervals that has one."""
    edges = np.linspace(time[0], time[-1], points + 1)[:-1]
    return np.unique(np.searchsorted(time, edges))


def peak_in_flight(trace: Trace, clock: str = "device") -> np.ndarray:
    """Per rank, the most microbatches whose activations it held at a time.

    A microbatch (of a stage, so each chunk counts) is in flight from the start of its first forward
    to the end of its last backward, or backward_weight where the backward is split. One that is
    never released stays in flight; but in a run without any backward nothing is saved, and a
    microbatch is in flight only during its forward. Spans without a microbatch count as one per
    stage. NaN for ranks that were cut away.
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
    return by_known_rank(trace, peak)
