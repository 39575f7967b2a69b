r"""Parameter-server all-reduce: all ranks send their tensor to one, which sums and sends it back.

       1   2   3       gather: the server takes one message at a time and adds it to its own
        \  |  /
         \ | /
           0           the server: n-1 tensors come in and n-1 go out through its single port
         / | \
        /  |  \
       1   2   3       send back: the sum, one message at a time

The server is one of the ranks. It adds the others' tensors in rank order, whatever their order of
arrival, so that a sum repeats to the last bit; the others copy it, so all ranks end with the same
bits.

Source: M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
In PyTorch: torch.distributed.reduce to one rank and broadcast from there; asynchronous servers are
built on torch.distributed.rpc.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm, check_rank, check_tensor
from dlviz.collectives.flat import reduced


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over all ranks at rank 0, step by step: read this one first. `row`, (elements,), is
    changed in place. `all_reduce` does the same with receives posted ahead, at any rank."""
    if comm.rank != 0:
        comm.send(row, 0)
        comm.recv(row, 0)
        return
    for rank in range(1, comm.size):  # one after the other, through one port: the bottleneck
        arrived = torch.empty_like(row)
        comm.recv(arrived, rank)
        row += arrived
    for rank in range(1, comm.size):
        comm.send(row, rank)


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum", server: int = 0) -> None:
    """Reduce `tensor` over all ranks at rank `server`, in place on every rank. All give the same
    shape and dtype. Raises ValueError for a server that is no rank.

    Cost: 2(n-1) steps, the server sends (n-1) * nbytes, each other rank nbytes.
    """
    check_tensor("all_reduce", tensor)
    server = check_rank(comm, "server", server)
    others = [rank for rank in range(comm.size) if rank != server]
    with reduced(comm, tensor, op, root=server) as (row, recv_op):
        if len(row) and comm.rank == server:
            _serve(comm, row, others, recv_op)
        elif len(row):
            _ask(comm, row, server, others)


def _serve(comm: Comm, row: torch.Tensor, others: list[int], op: str) -> None:
    receives = [comm.irecv(row, rank, op=op) for rank in others]
    for step, receive in enumerate(receives):  # in rank order, not in order of arrival
        with comm.span("phase", "gather", round=step):
            receive.wait()
    sends = []
    for step, rank in enumerate(others, start=len(others)):
        with comm.span("phase", "send back", round=step):
            sends.append(comm.isend(row, rank))
    for send in sends:
        send.wait()


def _ask(comm: Comm, row: torch.Tensor, server: int, others: list[int]) -> None:
    turn = others.index(comm.rank)  # when the server takes its tensor, in rank order
    with comm.span("phase", "gather", round=turn):
        comm.isend(row, server).wait()
    with comm.span("phase", "send back", round=len(others) + turn):
        comm.recv(row, server)
