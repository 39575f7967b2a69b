"""Data parallelism on more ranks: the closed form of one step.

    compute         |forward|-----backward-----|           c
    communication                 |t|t|t|t|  t  |           one all-reduce of t a bucket
    overlap                       |<---------->|
    a step          |<------------------------->|           c + t + max(0, (k-1) t - overlap)

All of k buckets but the last may hide behind the rest of the backward, which ends before the last
one can leave. The kind of scaling says what grows with the n ranks:

    strong       nothing: the ranks share one batch, c/n seconds each
    weak         the batch: each rank has its own, c seconds (mini-batch weak scaling)
    model_weak   the model: n times as many FLOPs and parameters on one batch, c seconds each and an
                 all-reduce of n times as many bytes

Source: Li et al., "PyTorch Distributed", VLDB 2020, for the overlap; Amdahl 1967 and Gustafson 1988
for the kinds of scaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlviz.counts import check_amounts, check_counts, closed_form, of_numbers
from dlviz.machine.topology import count, require
from dlviz.sim.costs import collective_seconds

SCALINGS = ("strong", "weak", "model_weak")
RANKS = tuple(2**power for power in range(11))  # to 1,024


@closed_form
def data_parallel_seconds(
    ranks: int,
    compute: float,
    nbytes: float,
    alpha: float,
    beta: float,
    algorithm: str = "ring",
    buckets: int = 1,
    overlap: float = 0.0,
    scaling: str = "strong",
) -> float:
    """Seconds of a step of data parallelism: c + t + max(0, (buckets - 1) t - overlap).

    c is a rank's part of the `compute` seconds that one rank takes for the whole batch: its share
    ("strong"), or all ("weak", and "model_weak", where `nbytes` grow with the ranks). t is one
    all-reduce of nbytes / buckets, `alpha` s and `beta` s/byte a message; `overlap` the seconds of
    a rank's backward that all buckets but the last may hide behind. The buckets are equal. Numbers
    may be arrays: they are broadcast, and so are the seconds. ValueError for invalid values.
    """
    own, t = _parts(ranks, compute, nbytes, alpha, beta, algorithm, buckets, scaling)
    require("data parallelism", "overlap", overlap, zero=True, infinite=False)
    return own + t + max(0.0, (buckets - 1) * t - overlap)


class Scaled(NamedTuple):
    """A step on some ranks: its seconds of compute, of communication, and in all; work per second
    relative to one rank; communication / computation."""

    compute: float
    communication: float
    step: float
    speedup: float
    ratio: float


def scaled(
    ranks: int,
    nbytes: float,
    compute: float,
    alpha: float,
    beta: float,
    overlap: float = 0.0,
    scaling: str = "strong",
    algorithm: str = "ring",
    buckets: int = 1,
) -> Scaled:
    """`data_parallel_seconds` and its parts. `overlap`, 0 to 1, is the part of a rank's compute
    behind which all buckets but the last may hide. ValueError for invalid values."""
    own, t = _parts(ranks, compute, nbytes, alpha, beta, algorithm, buckets, scaling)
    check_amounts(overlap=overlap)
    if overlap > 1:
        raise ValueError(f"overlap={overlap!r} is not a part of the compute: use 0 to 1.")
    step = data_parallel_seconds(
        ranks, compute, nbytes, alpha, beta, algorithm, buckets, overlap * own, scaling
    )
    speedup = compute / step * (1 if scaling == "strong" else ranks)
    return Scaled(own, buckets * t, step, speedup, buckets * t / own)


class Curve(NamedTuple):
    """A line of `viz.scaling`: how a step scales over `ranks`, with one bucket or several."""

    scaling: str
    buckets: int
    ranks: Sequence[int]
    speedup: Sequence[float]
    ratio: Sequence[float]
    memory: Sequence[float]  # bytes of a rank, of weights and activations


@of_numbers
def scaling_curves(
    compute: float,
    nbytes: float,
    alpha: float,
    beta: float,
    *,
    algorithm: str = "ring",
    buckets: int = 1,
    overlap: float = 0.0,
    activations: float = 0.0,
    ranks: Sequence[int] = RANKS,
) -> dict[str, Curve]:
    """How a step scales, by the three kinds of scaling, without overlap (one bucket) and, for more
    `buckets`, with it: the lines of `viz.scaling`.

    `compute` and `overlap` (the part of it, 0 to 1, behind which all buckets but the last may hide)
    are those of one rank with the whole batch, `nbytes` those of its gradients, `activations` the
    bytes that it saves from forward to backward. A rank's memory is parameters and gradients, which
    ranks do not share, and activations, which shrink with its shard. ValueError for invalid values.
    """
    check_counts(buckets=buckets)
    require("scaling_curves", "activations", activations, zero=True, infinite=False)
    curves = {}
    for scaling in SCALINGS:
        for many in dict.fromkeys((1, buckets)):
            hidden = overlap if many > 1 else 0.0
            found = [
                scaled(n, nbytes, compute, alpha, beta, hidden, scaling, algorithm, many)
                for n in ranks
            ]
            curves[TITLES[scaling] + f", {many} buckets overlapped" * (many > 1)] = Curve(
                scaling,
                many,
                ranks,
                [one.speedup for one in found],
                [one.ratio for one in found],
                [_memory(n, nbytes, activations, scaling) for n in ranks],
            )
    return curves


TITLES = {"strong": "strong", "weak": "batch-weak", "model_weak": "model-weak"}


def _memory(ranks: int, nbytes: float, activations: float, scaling: str) -> float:
    """Bytes of parameters, gradients and activations on one rank."""
    if scaling == "strong":
        return 2 * nbytes + activations / ranks
    return 2 * nbytes * (ranks if scaling == "model_weak" else 1) + activations


def _parts(
    ranks: int,
    compute: float,
    nbytes: float,
    alpha: float,
    beta: float,
    algorithm: str,
    buckets: int,
    scaling: str,
) -> tuple[float, float]:
    """A rank's seconds of compute, and those of the all-reduce of one bucket."""
    if scaling not in SCALINGS:
        raise ValueError(
            f"scaling={scaling!r} is not known: use {', '.join(map(repr, SCALINGS[:-1]))} or "
            f"{SCALINGS[-1]!r}."
        )
    require("data parallelism", "compute", compute, zero=False, infinite=False)
    count("data parallelism", "buckets", buckets)
    check_amounts(nbytes=nbytes)
    grown = ranks if scaling == "model_weak" else 1
    t = collective_seconds(algorithm, ranks, grown * nbytes / buckets, alpha, beta)
    return (compute / ranks if scaling == "strong" else compute), t
