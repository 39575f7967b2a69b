r"""Butterfly all-reduce (recursive doubling): pairs exchange all they have, at doubling distances.

    rank 0   a       a+b          a+b+c+d        step 0: 0 <-> 1, 2 <-> 3
               \ /        \   /
               / \         \ /                   step 1: 0 <-> 2, 1 <-> 3
    rank 1   b       a+b    X     a+b+c+d
                           / \
    rank 2   c       c+d  /   \   a+b+c+d        step k: each rank and the one 2^k off
               \ /
               / \
    rank 3   d       c+d          a+b+c+d

Few steps, but each sends the whole tensor: for short ones. Both ranks of a pair add the same two
sums, and x+y is y+x to the last bit, so all ranks end with the same bits. A number of ranks that is
no power of two is folded first (fold.py).

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005. In PyTorch: torch.distributed.all_reduce.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.collectives.flat import reduced
from dlviz.collectives.fold import fold, staying, unfold


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over a power of two of ranks, step by step: read this one first. `row`, (elements,),
    is changed in place. `all_reduce` folds other numbers of ranks first."""
    distance = 1
    while distance < comm.size:
        partner = comm.rank ^ distance  # the rank whose number differs in that one bit
        arrived = torch.empty_like(row)
        comm.sendrecv(row, partner, arrived, partner)  # apart from row, which is being sent
        row += arrived
        distance *= 2


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: lg n steps, each rank sends lg n * nbytes. Off powers of two lg n' + 2 steps, where n' is
    the largest power of two not above n.
    """
    members = staying(comm.size)
    levels = len(members).bit_length() - 1
    first = int(len(members) < comm.size)
    with reduced(comm, tensor, op) as (row, recv_op):
        if len(row):
            fold(comm, row, recv_op)
            if comm.rank in members:
                _double(comm, row, members, levels, recv_op, first)
            unfold(comm, row, first + levels)


def _double(
    comm: Comm, row: torch.Tensor, members: list[int], levels: int, op: str, first_step: int
) -> None:
    place = members.index(comm.rank)
    partners = [members[place ^ (1 << level)] for level in range(levels)]
    with comm.span("phase", "exchange"):
        # All add to the same row, in turn: `wait` adds.
        receives = [comm.irecv(row, partner, op=op) for partner in partners]
        for step, (partner, arrival) in enumerate(zip(partners, receives, strict=True), first_step):
            comm.label(round=step)
            comm.isend(row, partner).wait()  # sent before anything is added to it
            arrival.wait()
