"""Ring all-reduce: every rank sends only to the next one, a chunk of 1/n of the tensor at a time.

The flattened tensor is cut into n chunks. In each of the n-1 steps of the reduce-scatter every rank
passes a chunk on and adds the one it receives to its own; then rank r holds the whole sum of chunk
r+1. In the all-gather these finished chunks go round once more. Three ranks that begin with a, b
and c in every chunk (S is a+b+c):

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

from collections.abc import Sequence

import torch

from dlviz.cluster import Comm
from dlviz.collectives.flat import chunks_of, flattened, reduced


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over all ranks, step by step: read this one first. `row`, (elements,), is changed in
    place. `all_reduce` does the same with receives posted ahead."""
    n, left, right = comm.size, (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    chunks = chunks_of(row, n)
    for step in range(n - 1):  # reduce-scatter: pass on the sum so far, add the one received
        given, own = chunks[(comm.rank - step) % n], chunks[(comm.rank - step - 1) % n]
        arrived = torch.empty_like(own)
        comm.sendrecv(given, right, arrived, left)  # both together: a ring of sends would deadlock
        own += arrived
    for step in range(n - 1):  # all-gather: pass on the finished chunk received last
        given, own = chunks[(comm.rank - step + 1) % n], chunks[(comm.rank - step) % n]
        comm.sendrecv(given, right, own, left)


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: 2(n-1) steps, each rank sends 2(n-1)/n * nbytes.
    """
    everybody = range(comm.size)
    with reduced(comm, tensor, op) as (row, recv_op):
        chunks = chunks_of(row, comm.size)
        with comm.span("phase", "reduce-scatter"):
            once_round(comm, everybody, chunks, start=0, op=recv_op, first_step=0)
        with comm.span("phase", "all-gather"):
            once_round(comm, everybody, chunks, start=1, op="copy", first_step=comm.size - 1)


def reduce_scatter(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce chunk r+1 (modulo n) over all ranks, in place on rank r; its other chunks end as
    partial sums.

    Cost: n-1 steps, each rank sends (n-1)/n * nbytes.
    """
    with (
        reduced(comm, tensor, op, "reduce_scatter") as (row, recv_op),
        comm.span("phase", "reduce-scatter"),
    ):
        once_round(comm, range(comm.size), chunks_of(row, comm.size), 0, recv_op, first_step=0)


def all_gather(comm: Comm, tensor: torch.Tensor) -> None:
    """Copy chunk r+1 (modulo n) of every rank r to all ranks, in place: where reduce_scatter left
    the sums.

    Cost: n-1 steps, each rank sends (n-1)/n * nbytes.
    """
    with flattened(comm, tensor, "all_gather") as row, comm.span("phase", "all-gather"):
        once_round(comm, range(comm.size), chunks_of(row, comm.size), 1, "copy", first_step=0)


def once_round(
    comm: Comm,
    members: Sequence[int],
    chunks: list[torch.Tensor],
    start: int,
    op: str,
    first_step: int,
) -> None:
    """n-1 steps round the ring of n `members`, with n chunks. Member i begins with chunk
    i + `start`; each receives the chunk before the one it sends, and sends it in the next step. An
    empty chunk is not sent."""
    n, place = len(members), members.index(comm.rank)
    left, right = members[place - 1], members[(place + 1) % n]
    # Backwards: a chunk received from the left goes to the right in the next step.
    order = [chunks[(place + start - step) % n] for step in range(n)]
    # A message with a posted receive moves immediately, so all are posted first.
    receives = [comm.irecv(part, left, op=op) if part.numel() else None for part in order[1:]]
    sends = []
    for step, (part, arrival) in enumerate(zip(order, receives, strict=False), first_step):
        comm.label(round=step)
        if part.numel():
            sends.append(comm.isend(part, right))
        if arrival is not None:
            arrival.wait()  # the next step sends this chunk
    for send in sends:  # only now: no step writes to a chunk that was already sent
        send.wait()
