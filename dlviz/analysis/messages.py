"""What was sent, and how fast."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import COMPUTE, by_known_rank, calls, of_kinds
from dlviz.counts import check_amounts, check_counts, closed_form
from dlviz.trace import Trace

_PARTS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1}  # of (n-1)/n


def bytes_sent(trace: Trace) -> np.ndarray:
    """Bytes per rank in the messages that it sent, and in the backend's collectives
    (`collective_bytes`); NaN for ranks that were cut away."""
    return by_known_rank(trace, message_bytes(trace) + collective_bytes(trace))


def message_bytes(trace: Trace) -> np.ndarray:
    """Bytes per rank in the messages of the Trace alone."""
    sent = np.zeros(trace.meta["ranks"], dtype=np.int64)
    np.add.at(sent, trace.messages.src, np.maximum(trace.messages.nbytes, 0))
    return sent


def collective_bytes(trace: Trace) -> np.ndarray:
    """Bytes per rank in the backend's collectives (`comm.all_reduce`, `comm.broadcast`, ...), whose
    messages are not in the Trace: what each rank sends by the algorithm as which `dlviz.sim` prices
    them, a ring, or a binomial tree for those with a root.

    NaN for the members of a call of which the Trace does not tell the root, or how many they are:
    in a group other than the world of which `Trace.only` has cut ranks away.
    """
    spans, world = trace.spans, trace.meta["ranks"]
    sent = np.zeros(world)
    for call in calls(spans):
        everyone = spans.group[call[0]] == "world"
        members = list(range(world)) if everyone else sorted(spans.rank[call].tolist())
        known = everyone or "only" not in trace.meta
        root = (spans.fields[call[0]] or {}).get("root")
        for row in call:
            rank, op = spans.rank[row], spans.name[row]
            times = _times_sent(op, members, rank, root) if known else np.nan
            sent[rank] += times * spans.nbytes[row] if spans.nbytes[row] > 0 else 0.0
    return sent if np.isnan(sent).any() else np.rint(sent).astype(np.int64)


def _times_sent(op: str, members: list[int], rank: int, root: int | None) -> float:
    """How many times its tensor a rank sends; of a gather or scatter, that of all ranks."""
    n, op = len(members), op.removesuffix("_object")
    if op in _PARTS:
        return _PARTS[op] * (n - 1) / n
    if root not in members:
        return np.nan
    place = (members.index(rank) - members.index(root)) % n
    below = min(place & -place or n, n - place)  # ranks in its part of the tree, itself too
    if op == "reduce":
        return float(place > 0)
    if op == "gather":
        return below / n if place else 0.0
    if op == "scatter":
        return (below - 1) / n
    children = (place + (1 << k) for k in range(n.bit_length()) if place % (2 << k) == 0)
    return float(sum(child < n for child in children))


def traffic(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages from each of `trace.ranks` (row) to each (column), without the backend's
    collectives (`collective_bytes`)."""
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


@closed_form
def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes/s: the size of the data over the time, nbytes / seconds; of arrays an array.

    Raises ValueError for a negative size, and a time that is not above 0.
    Source: nccl-tests, doc/PERFORMANCE.md ("algorithm bandwidth").
    """
    check_amounts(nbytes=nbytes, seconds=seconds)
    if not seconds:
        raise ValueError(f"seconds={seconds!r} has to be above 0: measure a longer time.")
    return nbytes / seconds


@closed_form
def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes/s: the algorithm bandwidth times what each rank must move, comparable to the speed of
    the link for any number n of ranks.

    all_reduce 2(n-1)/n; reduce_scatter, all_gather and all_to_all (n-1)/n; broadcast and reduce 1.
    `nbytes`: the whole tensor, what an all_gather gathers or a reduce_scatter reduces. Arrays and
    errors are those of `algorithm_bandwidth`; another collective raises ValueError too.

    Source: nccl-tests, doc/PERFORMANCE.md ("bus bandwidth").
    """
    check_counts(ranks=ranks)
    factors = {op: parts * (ranks - 1) / ranks for op, parts in _PARTS.items()}
    factors |= {"broadcast": 1.0, "reduce": 1.0}
    if collective not in factors:
        raise ValueError(
            f"collective={collective!r} has no bus bandwidth here: use {', '.join(factors)}."
        )
    return algorithm_bandwidth(nbytes, seconds) * factors[collective]
