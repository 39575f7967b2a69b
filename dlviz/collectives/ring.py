"""Ring all-reduce: every rank sends to the next one only, a chunk of 1/n of the tensor at a time.

The tensor, flattened, is cut into n chunks. In the reduce-scatter every rank passes a chunk on in
each of n-1 steps and adds the one it gets to its own; then rank r holds the whole sum of chunk r+1.
In the all-gather these finished chunks go round once more. Three ranks that begin with a, b and c
in every chunk (S is a+b+c):

             begin     | reduce-scatter: 0       1           | all-gather: 2       3
    rank 0   a   a   a |  a    a    a+c     a    S    a+c    |  S    S    a+c    S    S    S
    rank 1   b   b   b |  a+b  b    b       a+b  b    S      |  a+b  S    S      S    S    S
    rank 2   c   c   c |  c    b+c  c       S    b+c  c      |  S    b+c  S      S    S    S

A chunk is summed along one path and then copied, so all ranks end with the same bits.

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", Journal of Parallel and Distributed Computing, 2009. In PyTorch:
torch.distributed.all_reduce, reduce_scatter_tensor and all_gather_into_tensor.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.collectives.flat import chunked


def all_reduce(comm: Comm, tensor: torch.Tensor) -> None:
    """Sum `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: 2(n-1) steps, each rank sends 2(n-1)/n * nbytes.
    """
    with chunked(tensor, comm.size) as chunks:
        _reduce_scatter(comm, chunks)
        _all_gather(comm, chunks, first_step=comm.size - 1)


def reduce_scatter(comm: Comm, tensor: torch.Tensor) -> None:
    """Sum chunk r+1 (modulo n) over all ranks, in place on rank r; its other chunks end as partial
    sums.

    Cost: n-1 steps, each rank sends (n-1)/n * nbytes.
    """
    with chunked(tensor, comm.size) as chunks:
        _reduce_scatter(comm, chunks)


def all_gather(comm: Comm, tensor: torch.Tensor) -> None:
    """Copy chunk r+1 (modulo n) of every rank r to all ranks, in place: where reduce_scatter left
    the sums.

    Cost: n-1 steps, each rank sends (n-1)/n * nbytes.
    """
    with chunked(tensor, comm.size) as chunks:
        _all_gather(comm, chunks, first_step=0)


def _reduce_scatter(comm: Comm, chunks: list[torch.Tensor]) -> None:
    with comm.span("phase", "reduce-scatter"):
        _pass_on(comm, chunks, first=comm.rank, op="add", first_step=0)


def _all_gather(comm: Comm, chunks: list[torch.Tensor], first_step: int) -> None:
    with comm.span("phase", "all-gather"):
        _pass_on(comm, chunks, first=comm.rank + 1, op="copy", first_step=first_step)


def _pass_on(comm: Comm, chunks: list[torch.Tensor], first: int, op: str, first_step: int) -> None:
    """n-1 steps round the ring. The first sends chunk `first`; each receives the chunk before the
    one it sends, and the next step sends that. A chunk without elements is not sent."""
    n = comm.size
    left, right = (comm.rank - 1) % n, (comm.rank + 1) % n
    order = [chunks[(first - step) % n] for step in range(n)]
    # A message that finds its receive posted moves at once, so all are posted before the first.
    receives = [comm.irecv(part, left, op=op) if part.numel() else None for part in order[1:]]
    sends = []
    for step, (part, receive) in enumerate(zip(order, receives, strict=False), first_step):
        comm.label(round=step)
        if part.numel():
            sends.append(comm.isend(part, right))
        if receive is not None:
            receive.wait()
    for send in sends:
        send.wait()
