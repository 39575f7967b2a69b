"""What was sent, and how fast."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import COMPUTE, by_known_rank, of_kinds
from dlviz.counts import check_amounts, check_counts
from dlviz.trace import Trace


def bytes_sent(trace: Trace) -> np.ndarray:
    """Bytes per rank in the messages that it sent; NaN for ranks that were cut away."""
    sent = np.zeros(trace.meta["ranks"], dtype=np.int64)
    np.add.at(sent, trace.messages.src, np.maximum(trace.messages.nbytes, 0))
    return by_known_rank(trace, sent)


def traffic(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages from each of `trace.ranks` (row) to each (column)."""
    ranks, table = trace.meta["ranks"], trace.messages
    sent, count = np.zeros((2, ranks, ranks), np.int64)
    np.add.at(sent, (table.src, table.dst), np.maximum(table.nbytes, 0))
    np.add.at(count, (table.src, table.dst), 1)
    shown = np.ix_(trace.ranks, trace.ranks)
    return sent[shown], count[shown]


def crossings(trace: Trace) -> int:
    """Messages with an action's input from another rank of a pipeline, in a step; the median of
    several steps.

    Activations to the next stage and gradients back, without those that send the ranks the loss:
    2(s-1)m for m microbatches and s stages of which no two neighbours share a rank, (s-1)m with
    only forwards.
    """
    spans = trace.spans
    crossed = (spans.flow >= 0) & (spans.microbatch >= 0) & of_kinds(spans, COMPUTE)
    _, first = np.unique(spans.flow[crossed], return_index=True)
    _, count = np.unique(spans.step[crossed][first], return_counts=True)
    return int(np.median(count)) if len(count) else 0


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes/s: the size of the data over the time, nbytes / seconds.

    Source: nccl-tests, doc/PERFORMANCE.md ("algorithm bandwidth").
    """
    check_amounts(nbytes=nbytes)
    return nbytes / seconds


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes/s: the algorithm bandwidth times what each rank must move, comparable to the speed of
    the link for any number n of ranks.

    all_reduce 2(n-1)/n; reduce_scatter, all_gather and all_to_all (n-1)/n; broadcast and reduce 1.
    `nbytes`: the whole tensor, what an all_gather gathers or a reduce_scatter reduces. Raises
    ValueError for another collective. Source: nccl-tests, doc/PERFORMANCE.md ("bus bandwidth").
    """
    check_counts(ranks=ranks)
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
