"""All-reduce written by hand, one algorithm a file, with send and receive alone."""

from __future__ import annotations

import torch

from dlviz.cluster import Comm, rehearsed
from dlviz.collectives import (
    auto,
    butterfly,
    direct,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    tree,
)
from dlviz.counts import check_counts

ALGORITHMS = {
    "ring": ring.all_reduce,
    "parameter_server": parameter_server.all_reduce,
    "tree": tree.all_reduce,
    "butterfly": butterfly.all_reduce,
    "halving_doubling": halving_doubling.all_reduce,
    "direct": direct.all_reduce,
    "hierarchical": hierarchical.all_reduce,
}

__all__ = [
    "ALGORITHMS", "all_reduce", "auto", "butterfly", "direct", "halving_doubling", "hierarchical",
    "parameter_server", "ring", "tree", "trials",
]  # fmt: skip


def all_reduce(comm: Comm, tensor: torch.Tensor, algorithm: str = "ring", op: str = "sum") -> None:
    """Reduce `tensor` over all ranks of `comm`, in place on every rank, by one of `ALGORITHMS` or
    by "auto", the one of them that costs least on the link as measured at the group's first call.

    `op` is "sum", "average" or "max". Any number of ranks, any shape, contiguous or not, any dtype
    that can be added; an average needs floating point. All ranks give the same shape and dtype, and
    end with the same bits. ValueError for an algorithm or an op that there is not, and where
    another rank gives another shape or dtype: it names both.
    """
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm={algorithm!r} is no all_reduce: use one of {', '.join(ALGORITHMS)}, auto."
        )
    if algorithm == "auto":
        algorithm = auto.choose(comm, tensor.nbytes)
    ALGORITHMS[algorithm](comm, tensor, op)


@rehearsed
def _rehearsal(comm: Comm) -> None:
    for name in ALGORITHMS:
        all_reduce(comm, torch.ones(2 * comm.size), name, "average")


def trials(comm: Comm, algorithm: str, nbytes: int, repeats: int = 1) -> None:
    """All-reduce a tensor of `nbytes` bytes, float32, `repeats` times; each time is a step, which
    all ranks begin together. A worker for `launch`: `metrics.step_seconds` tells how long it took.
    """
    check_counts(nbytes=nbytes, repeats=repeats)
    tensor = torch.ones(nbytes // 4)
    for step in range(repeats):
        comm.barrier()
        with comm.span("step", step=step):
            all_reduce(comm, tensor, algorithm, "average")  # of ones: they stay
