"""All-reduce written by hand, one algorithm a file, with send and receive alone."""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.collectives import parameter_server, ring

ALGORITHMS = {"ring": ring.all_reduce, "parameter_server": parameter_server.all_reduce}

__all__ = ["ALGORITHMS", "all_reduce", "parameter_server", "ring"]


def all_reduce(comm: Comm, tensor: torch.Tensor, algorithm: str = "ring") -> None:
    """Sum `tensor` over all ranks of `comm`, in place on every rank, by one of `ALGORITHMS`.

    Any number of ranks, any shape, contiguous or not, any dtype that can be added. All ranks give
    the same shape and dtype, and end with the same bits. ValueError for an algorithm that there is
    not.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm={algorithm!r} is no all_reduce: use one of {', '.join(ALGORITHMS)}."
        )
    ALGORITHMS[algorithm](comm, tensor)
