"""How a loss falls over batches and over time, from a Trace and the losses of its batches.

    loss   |\\                 batches in the order of completion: when the last rank that
           | \\__              computed on one ended its phase
    target |----\\-------
           |     \\____        reached: the mean of the last few is at the target or below
           +-----|----- s

A loss is that of the whole batch at the weights that its workers had. Methods that give whole
batches to single workers complete them in another order than listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlviz.analysis.columns import times_of
from dlviz.counts import check_amounts, check_counts
from dlviz.trace import Table, Trace

OVER = 16  # batches of a running mean


class Reached(NamedTuple):
    """How fast a run went through its examples, and after how many of them, and seconds, its loss
    reached a target: NaN where it never did."""

    examples_per_second: float
    examples_to_target: float
    seconds: float


def descent(trace: Trace, losses: Sequence[float], clock: str = "wall") -> Table:
    """The `losses` of the batches in the order of completion: `step`, the batch's place in the
    list, `seconds` since the first began, `loss`.

    Batch i is that of the phases with step i on ranks that computed a forward for it; one that no
    rank computed (its worker was lost) is left out. Raises ValueError for a Trace without such
    phases, and for one with more batches than losses.
    """
    _, step, end = _phases(trace, len(losses), clock)
    steps, of = np.unique(step, return_inverse=True)
    done = np.zeros(len(steps))
    np.maximum.at(done, of, end)
    order = np.argsort(done, kind="stable")
    found = np.asarray(losses, dtype=np.float64)[steps[order]]
    return Table({"step": steps[order], "seconds": done[order], "loss": found})


def running_mean(values: np.ndarray, over: int = OVER) -> np.ndarray:
    """The mean of each value and the over-1 before it; NaN where there are fewer."""
    check_counts(over=over)
    mean = np.full(len(values), np.nan)
    if len(values) >= over:
        mean[over - 1 :] = np.lib.stride_tricks.sliding_window_view(values, over).mean(axis=1)
    return mean


def best_so_far(values: np.ndarray) -> np.ndarray:
    """The least of each value and all before it, along the last axis."""
    return np.minimum.accumulate(values, axis=-1)


def to_target(
    trace: Trace,
    losses: Sequence[float],
    target: float,
    *,
    examples: float | Sequence[float],
    over: int = OVER,
    clock: str = "wall",
) -> Reached:
    """What a run took until the mean loss of the last `over` batches was `target` or less.

    `examples`: of every batch, or a list. The rate is that of the time in which every rank had
    batches left: where a slow worker finishes alone, the rest of its run does not count. Raises
    ValueError as `descent`.
    """
    check_amounts(examples=examples)
    table = descent(trace, losses, clock)
    sizes = np.broadcast_to(np.asarray(examples, dtype=np.float64), len(losses))[table.step]
    through = np.cumsum(sizes)
    rank, _, end = _phases(trace, len(losses), clock)
    until = min(end[rank == one].max() for one in np.unique(rank))
    rate = float(sizes[table.seconds <= until].sum() / until)
    low = np.flatnonzero(running_mean(table.loss, over) <= target)
    if not len(low):
        return Reached(rate, np.nan, np.nan)
    return Reached(rate, float(through[low[0]]), float(table.seconds[low[0]]))


def _phases(trace: Trace, batches: int, clock: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rank, step and end (s since the first began) of the phases in which a rank computed on a
    batch. A server has none."""
    spans, start, end = times_of(trace.spans, clock, ["phase"])
    last = int(max(trace.spans.step.max(initial=0), 0)) + 1
    forward = trace.spans[(trace.spans.kind == "forward") & (trace.spans.step >= 0)]
    computed = np.isin(spans.rank * last + spans.step, forward.rank * last + forward.step)
    computed &= spans.step >= 0
    rank, step = spans.rank[computed], spans.step[computed]
    if not len(step):
        raise ValueError(
            "this Trace has no phase with a step in which a rank computed a forward: give that of "
            "a run by one of the strategies."
        )
    if step.max() >= batches:
        raise ValueError(
            f"this Trace has batch {step.max()} and there are {batches} losses: give those of the "
            "same run."
        )
    return rank, step, end[computed] - start[computed].min()
