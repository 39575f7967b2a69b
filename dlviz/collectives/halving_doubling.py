"""Halving-doubling all-reduce: the butterfly's few steps with the ring's few bytes.

Reduce-scatter by recursive halving: a rank and the one 2^k off split the part that both still sum;
each sends one half and adds the other half, which it receives. Then each rank holds one finished
n-th. All-gather by recursive doubling: the same pairs, last first, exchange what they hold. Four
ranks that begin with a, b, c and d in each of four chunks (S is a+b+c+d):

             begin          | halving: 0                  1           | doubling: 2     3
    rank 0   a   a   a   a  |  a+b  a+b   .    .     S    .   .   .   |  S  S  .  .     S S S S
    rank 1   b   b   b   b  |   .    .   a+b  a+b    .    .   S   .   |  .  .  S  S     S S S S
    rank 2   c   c   c   c  |  c+d  c+d   .    .     .    S   .   .   |  S  S  .  .     S S S S
    rank 3   d   d   d   d  |   .    .   c+d  c+d    .    .   .   S   |  .  .  S  S     S S S S

Half of the tensor goes to the neighbour, ever less to ranks further off. A chunk is summed on one
rank and then copied, so all ranks end with the same bits. A number of ranks that is no power of two
is folded first (fold.py).

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005 (Rabenseifner's algorithm). In PyTorch: torch.distributed.all_reduce.
"""

from __future__ import annotations

import torch

from dlviz.cluster import Comm
from dlviz.collectives.flat import chunks_of, flattened, reduced
from dlviz.collectives.fold import fold, staying, unfold


def by_hand(comm: Comm, row: torch.Tensor) -> None:
    """The sum over a power of two of ranks, step by step: read this one first. `row`, (elements,),
    is changed in place. `all_reduce` folds other numbers of ranks first."""
    held = [row]  # what this rank still sums: the whole, a half, a quarter ...
    distance = 1
    while distance < comm.size:  # halving: send one half, add the message to the other
        lower, upper = chunks_of(held[-1], 2)
        # The partner, whose bit is the other one, chooses the other half.
        given, own = (lower, upper) if comm.rank & distance else (upper, lower)
        arrived = torch.empty_like(own)
        comm.sendrecv(given, comm.rank ^ distance, arrived, comm.rank ^ distance)
        own += arrived
        held.append(own)  # doubling needs every part
        distance *= 2
    while distance > 1:  # doubling: the same partners, last first, exchange finished parts
        distance //= 2
        own = held.pop()
        lower, upper = chunks_of(held[-1], 2)
        other = lower if comm.rank & distance else upper
        comm.sendrecv(own, comm.rank ^ distance, other, comm.rank ^ distance)


def all_reduce(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    Cost: 2 lg n steps, each rank sends 2(n-1)/n * nbytes. Off powers of two 2 lg n' + 2 steps,
    where n' is the largest power of two not above n.
    """
    with reduced(comm, tensor, op) as (row, recv_op):
        steps = _reduce_scatter(comm, row, recv_op)
        _all_gather(comm, row, first_step=steps)


def reduce_scatter(comm: Comm, tensor: torch.Tensor, op: str = "sum") -> None:
    """Reduce one chunk of n' on each rank that stays after the fold, in place; all else ends as
    partial sums. Bit k of a rank's place says whether it sums the upper half in step k.

    Cost: lg n steps, each rank sends (n-1)/n * nbytes; a step and nbytes more with a fold.
    """
    with reduced(comm, tensor, op, "reduce_scatter") as (row, recv_op):
        _reduce_scatter(comm, row, recv_op)


def all_gather(comm: Comm, tensor: torch.Tensor) -> None:
    """Copy the chunk that reduce_scatter left on each rank to all ranks, in place.

    Cost: lg n steps, each rank sends (n-1)/n * nbytes; a step and nbytes more with a fold.
    """
    with flattened(comm, tensor, "all_gather") as row:
        _all_gather(comm, row, first_step=0)


def _reduce_scatter(comm: Comm, row: torch.Tensor, op: str) -> int:
    """Returns the number of steps."""
    members = staying(comm.size)
    first_step = int(len(members) < comm.size)
    if len(row):
        fold(comm, row, op)
    with comm.span("phase", "reduce-scatter"):
        halvings = [(rank, given, own) for rank, own, given in _splits(comm, row, members)]
        _exchange(comm, halvings, op, first_step)
    return first_step + len(members).bit_length() - 1


def _all_gather(comm: Comm, row: torch.Tensor, first_step: int) -> None:
    members = staying(comm.size)
    with comm.span("phase", "all-gather"):
        # Roles are exchanged: a rank sends the part that it summed, and receives the other.
        _exchange(comm, _splits(comm, row, members)[::-1], "copy", first_step)
    if len(row):
        unfold(comm, row, first_step + len(members).bit_length() - 1)


def _exchange(
    comm: Comm, pairs: list[tuple[int, torch.Tensor, torch.Tensor]], op: str, first_step: int
) -> None:
    """With each partner in turn: send one part, receive the other. An empty part is not sent."""
    receives = [comm.irecv(into, rank, op=op) if len(into) else None for rank, _, into in pairs]
    sends = []
    for step, ((rank, part, _), arrival) in enumerate(zip(pairs, receives, strict=True)):
        comm.label(round=first_step + step)
        if len(part):
            sends.append(comm.isend(part, rank))
        if arrival is not None:
            arrival.wait()
    for send in sends:
        send.wait()


def _splits(
    comm: Comm, row: torch.Tensor, members: list[int]
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """For each halving the partner, the part that this rank sums and the part that it sends."""
    if comm.rank not in members:
        return []
    n, place = len(members), members.index(comm.rank)
    # Cut as by chunks_of: after the last halving one chunk of n is left.
    bounds = [chunk * len(row) // n for chunk in range(n + 1)]
    first, end, found = 0, n, []
    for level in range(n.bit_length() - 1):
        middle = (first + end) // 2
        lower, upper = row[bounds[first] : bounds[middle]], row[bounds[middle] : bounds[end]]
        partner = members[place ^ (1 << level)]
        if place >> level & 1:
            found.append((partner, upper, lower))
            first = middle
        else:
            found.append((partner, lower, upper))
            end = middle
    return found
