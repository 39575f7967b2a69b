"""All-reduce written by hand with sends and receives, one algorithm per file."""

from __future__ import annotations

import torch

from dlviz.cluster import Comm, check_tensor, rehearsed
from dlviz.collectives import (
    auto,
    butterfly,
    direct,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    sparse,
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
    "parameter_server", "ring", "sparse", "tree", "trials",
]  # fmt: skip


def all_reduce(comm: Comm, tensor: torch.Tensor, algorithm: str = "ring", op: str = "sum") -> None:
    """Reduce `tensor` over all ranks of `comm`, in place on every rank, by one of `ALGORITHMS`, or
    by "auto", the cheapest of them on the link, which the group's first call measures.

    `op` is "sum", "avg", "max", "min" or "product". Any number of ranks, any shape, contiguous or
    not, any dtype that can be added; an average needs floating point. All ranks give the same shape
    and dtype, and end with the same bits. Raises ValueError for an unknown algorithm or op, and
    where two ranks give different shapes or dtypes: it names both.
    """
    check_tensor("all_reduce", tensor)
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
        all_reduce(comm, torch.ones(2 * comm.size), name, "avg")


def trials(comm: Comm, algorithm: str, nbytes: int, repeats: int = 1) -> None:
    """All-reduce a float32 tensor of `nbytes` bytes `repeats` times; each is a step, which all
    ranks begin together. A worker for `launch`: `metrics.step_seconds` gives the times.
    """
    check_counts(nbytes=nbytes, repeats=repeats)
    tensor = torch.ones(nbytes // 4)
    for step in range(repeats):
        comm.barrier()
        with comm.span("step", step=step):
            all_reduce(comm, tensor, algorithm, "avg")  # of ones: unchanged
