"""Tree all-reduce: sums climb a binomial tree to one rank, the total comes down the same tree.

Ranks are counted from the root on. In step k of the reduce a rank whose lowest set bit is bit k
sends its sum to the rank without that bit, and is done. Seven ranks:

    step 0   1 -> 0   3 -> 2   5 -> 4   (6 has no partner)
    step 1   2 -> 0   6 -> 4
    step 2   4 -> 0

The broadcast is the reverse. All ranks copy the root's total and end with the same bits. gather and
scatter pass the chunks of a whole subtree along the same tree.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005. In PyTorch: torch.distributed.reduce, broadcast, gather and scatter.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm, check_rank, check_tensor, renamed
from dlviz.collectives.flat import flattened, reduced


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over all ranks, step by step: read this one first. `row`, (elements,), is changed in
    place. `all_reduce` does the same from any root."""
    bits = [1 << step for step in range(_height(comm.size))]
    for bit in bits:  # up: a rank whose bit is set sends its sum, and is done
        if comm.rank & bit:
            comm.send(row, comm.rank - bit)
            break
        if comm.rank + bit < comm.size:
            arrived = torch.empty_like(row)
            comm.recv(arrived, comm.rank + bit)
            row += arrived
    for bit in reversed(bits):  # down: a rank that has sent gets the total back
        if comm.rank % (2 * bit) == bit:
            comm.recv(row, comm.rank - bit)
        elif comm.rank % bit == 0 and comm.rank + bit < comm.size:
            comm.send(row, comm.rank + bit)


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: 2 ceil(lg n) steps, all ranks together send 2(n-1) * nbytes, rank 0 ceil(lg n) * nbytes.
    """
    with reduced(comm, tensor, op) as (row, recv_op):
        if len(row):
            _reduce(comm, row, 0, recv_op)
            _broadcast(comm, row, 0, first_step=_height(comm.size))


@renamed("root", "dst")
def reduce(comm: Comm, tensor: torch.Tensor, dst: int = 0, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on rank `dst`; the others end with partial sums.
    Raises ValueError for a `dst` that is no rank.

    Cost: ceil(lg n) steps, each rank but the root `dst` sends nbytes.
    """
    check_tensor("reduce", tensor)
    root = check_rank(comm, "dst", dst)
    with reduced(comm, tensor, op, "reduce", root) as (row, recv_op):
        if len(row):
            _reduce(comm, row, root, recv_op)


@renamed("root", "src")
def broadcast(comm: Comm, tensor: torch.Tensor, src: int = 0) -> None:
    """Copy `tensor` of rank `src` to all ranks, in place. Raises ValueError for a `src` that is no
    rank.

    Cost: ceil(lg n) steps, each rank but the root `src` receives nbytes.
    """
    check_tensor("broadcast", tensor)
    root = check_rank(comm, "src", src)
    with flattened(comm, tensor, "broadcast", root) as row:
        if len(row):
            _broadcast(comm, row, root, first_step=0)


def gather(comm: Comm, tensor: torch.Tensor) -> None:
    """Copy chunk r of every rank r to rank 0, in place; the others end with those of their subtree.

    Cost: ceil(lg n) steps, rank 0 receives (n-1)/n * nbytes.
    """
    with flattened(comm, tensor, "gather") as row, comm.span("phase", "gather"):
        for step in range(_height(comm.size)):
            comm.label(round=step)
            bit = 1 << step
            if comm.rank & bit:
                _send(comm, _subtree(row, comm.rank, bit, comm.size), comm.rank - bit)
                return  # its parent has the whole subtree now
            if comm.rank + bit < comm.size:
                child = comm.rank + bit
                _receive(comm, _subtree(row, child, bit, comm.size), child)


def scatter(comm: Comm, tensor: torch.Tensor) -> None:
    """Copy chunk r of rank 0 to every rank r, in place; inner ranks of the tree also hold the
    chunks that they pass on.

    Cost: ceil(lg n) steps, rank 0 sends (n-1)/n * nbytes.
    """
    with flattened(comm, tensor, "scatter") as row, comm.span("phase", "scatter"):
        for step, bit in enumerate(_downward(comm.size)):
            comm.label(round=step)
            if comm.rank % (2 * bit) == bit:
                _receive(comm, _subtree(row, comm.rank, bit, comm.size), comm.rank - bit)
            elif comm.rank % bit == 0 and comm.rank + bit < comm.size:
                child = comm.rank + bit
                _send(comm, _subtree(row, child, bit, comm.size), child)


def _reduce(comm: Comm, row: torch.Tensor, root: int, op: str) -> None:
    n, place = comm.size, (comm.rank - root) % comm.size  # the root's place is 0
    with comm.span("phase", "reduce"):
        for step in range(_height(n)):
            comm.label(round=step)
            bit = 1 << step
            if place & bit:
                comm.isend(row, (comm.rank - bit) % n).wait()
                return
            if place + bit < n:
                comm.irecv(row, (comm.rank + bit) % n, op=op).wait()


def _broadcast(comm: Comm, row: torch.Tensor, root: int, first_step: int) -> None:
    n, place = comm.size, (comm.rank - root) % comm.size
    sends = []
    with comm.span("phase", "broadcast"):
        for step, bit in enumerate(_downward(n), first_step):
            comm.label(round=step)
            if place % (2 * bit) == bit:
                comm.irecv(row, (comm.rank - bit) % n).wait()
            elif place % bit == 0 and place + bit < n:
                # The highest bit came first: the largest subtree needs the most further steps.
                sends.append(comm.isend(row, (comm.rank + bit) % n))
        for send in sends:
            send.wait()


def _send(comm: Comm, part: torch.Tensor, dst: int) -> None:
    if len(part):  # with fewer elements than ranks some chunks are empty
        comm.isend(part, dst).wait()


def _receive(comm: Comm, part: torch.Tensor, src: int) -> None:
    if len(part):
        comm.irecv(part, src).wait()


def _subtree(row: torch.Tensor, rank: int, bit: int, n: int) -> torch.Tensor:
    """The chunks of `rank` and the ranks below it, which it sends in the step of `bit`."""
    end = min(rank + bit, n)
    return row[rank * len(row) // n : end * len(row) // n]


def _downward(n: int) -> list[int]:
    """The bits of a rank's number, highest first."""
    return [1 << step for step in reversed(range(_height(n)))]


def _height(n: int) -> int:
    return (n - 1).bit_length()  # ceil(lg n)
