r"""Direct all-reduce: every rank sends its tensor to every other, and each sums all of them.

    0 ---- 1      one step, n-1 messages from each rank: to the next rank first, then the one
    | \  / |      after it, so that no two send to the same rank at the same time. No rank waits
    |  \/  |      for another's sum: fastest for short tensors and few ranks, otherwise the most
    |  /\  |      bytes.
    | /  \ |
    3 ---- 2

Each rank adds all tensors in rank order, whatever their order of arrival: so all ranks end with the
same bits. all_to_all sends each rank its own chunk instead of the tensor.

Source: the crossbar of the lectures; J. Bruck et al., "Efficient algorithms for all-to-all
communications in multiport message-passing systems", 1997. In PyTorch:
torch.distributed.all_to_all_single.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster import REDUCE, Comm, check_tensor
from dlviz.collectives.flat import chunks_of, flattened, reduced


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over all ranks, step by step: read this one first. `row`, (elements,), is changed in
    place. `all_reduce` adds in rank order, so that all ranks end with the same bits."""
    sends = [comm.isend(row.clone(), rank) for rank in _others(comm)]  # a copy: row changes below
    for rank in _others(comm):
        arrived = torch.empty_like(row)
        comm.recv(arrived, rank)
        row += arrived
    for send in sends:
        send.wait()


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: one step, each rank sends (n-1) * nbytes; it holds n-1 tensors besides its own.
    """
    with reduced(comm, tensor, op) as (row, recv_op):
        if not len(row):
            return
        # The row starts at the neutral element: this rank's own tensor waits for its turn.
        own = row.clone()
        row.fill_(_neutral(recv_op, row.dtype))
        with comm.span("phase", "exchange", round=0):
            receives = {rank: comm.irecv(row, rank, op=recv_op) for rank in _others(comm)}
            sends = [comm.isend(own, rank) for rank in _others(comm)]
            for rank in range(comm.size):  # x+y+z may be another float than z+y+x
                if rank == comm.rank:
                    REDUCE[recv_op](row, own)
                else:
                    receives[rank].wait()
            comm.snapshot()  # this rank may be the last to add
            for send in sends:
                send.wait()


def all_to_all(comm: Comm, tensor: torch.Tensor) -> None:
    """Chunk d of rank s becomes chunk s of rank d, in place on every rank. Raises ValueError for a
    tensor that does not divide into n equal chunks.

    Cost: one step, each rank sends (n-1)/n * nbytes.
    """
    check_tensor("all_to_all", tensor)
    if tensor.numel() % comm.size:
        raise ValueError(
            f"a tensor of {tensor.numel()} elements cannot be exchanged by {comm.size} ranks: use "
            f"a multiple of {comm.size}."
        )
    with flattened(comm, tensor, "all_to_all") as row:
        if not len(row):
            return
        with comm.span("phase", "exchange", round=0):
            # Chunks arrive outside the row, whose own are still in transit.
            mine, theirs = chunks_of(row, comm.size), chunks_of(row.clone(), comm.size)
            for own, other in zip(mine, to_all(comm, mine, theirs), strict=True):
                own.copy_(other)


def to_all(
    comm: Comm, parts: Sequence[torch.Tensor], rows: Sequence[torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Send part r to rank r: what each rank sent here, and this rank's own part. `rows` are of the
    sizes of what comes: their receives are posted ahead, and no empty part is sent. Without them a
    receiver learns each size from the message's header (`comm.probe`).

    Cost: one step, each rank sends its parts for the others.
    """
    others = _others(comm)
    before = others[::-1]  # the previous rank sends here first
    arrived = [*(parts if rows is None else rows)]
    arrived[comm.rank] = parts[comm.rank]
    receives = []
    if rows is not None:
        receives = [comm.irecv(rows[rank], rank) for rank in before if rows[rank].numel()]
        others = [rank for rank in others if parts[rank].numel()]
    sends = [comm.isend(parts[rank], rank) for rank in others]
    for receive in receives:
        receive.wait()
    for rank in before if rows is None else ():
        arrived[rank] = comm.probe(rank)
        comm.recv(arrived[rank], rank)
    for send in sends:
        send.wait()
    return arrived


def _others(comm: Comm) -> list[int]:
    """The other ranks, from the next one on."""
    return [(comm.rank + shift) % comm.size for shift in range(1, comm.size)]


def _neutral(op: str, dtype: torch.dtype) -> float:
    """The neutral element: with it a reduction changes nothing."""
    if op in ("sum", "product"):
        return float(op == "product")
    if dtype == torch.bool:
        return op == "min"
    if dtype.is_floating_point:
        return torch.inf if op == "min" else -torch.inf
    limits = torch.iinfo(dtype)
    return limits.max if op == "min" else limits.min
