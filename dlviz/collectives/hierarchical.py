"""Hierarchical all-reduce: mostly inside a node, so that few bytes cross the slow link.

    node 0:  0  1        inside    ring reduce-scatter: each rank of a node holds one shard of the
             |  |                  node's sum
    node 1:  2  3        across    ring all-reduce of each shard over the ranks that hold it
                         inside    ring all-gather of the finished shards

Two nodes exchange one tensor across the link between them, however many ranks each has. There are
s shards, as many as the smallest node has ranks; in a larger node local rank s+i first sends its
tensor to local rank i (modulo s), and gets the result back at the end. A chunk is summed along one
path and then copied, so all ranks end with the same bits.

Source: the two-level scheme of NCCL and of X. Jia et al., "Highly scalable deep learning training
system with mixed-precision", 2018. In PyTorch: the process groups of a two-dimensional DeviceMesh.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster import Comm, check_tensor
from dlviz.collectives.flat import chunks_of, reduced
from dlviz.collectives.ring import once_round


def all_reduce(
    comm: Comm,
    tensor: torch.Tensor,
    op: str = "sum",
    nodes: Sequence[Sequence[int]] | None = None,
) -> None:
    """Reduce `tensor` over all ranks, in place on every rank. All give the same shape and dtype.

    `nodes` lists the ranks of each node, the same on every rank; by default the nodes of the run's
    Machine, or else the hosts of the ranks, `comm.hosts`. Raises ValueError where it does not name
    each rank once.

    Cost: with m nodes of s ranks 2(s-1) + 2(m-1) steps, each rank sends
    (2(s-1)/s + 2(m-1)/(s*m)) * nbytes. Two more steps, and nbytes back, for each rank that is
    folded in a larger node.
    """
    check_tensor("all_reduce", tensor)
    nodes = _nodes(comm) if nodes is None else nodes
    if not _holds(nodes, comm.size):
        raise ValueError(
            f"nodes={nodes!r} does not hold {comm}: name each of 0 to {comm.size - 1} once."
        )
    s, m = min(map(len, nodes)), len(nodes)
    folds = -(-max(len(node) - s for node in nodes) // s)
    mine = next(list(node) for node in nodes if comm.rank in node)
    local = mine.index(comm.rank)
    with reduced(comm, tensor, op) as (row, recv_op):
        if not len(row):
            return
        last = folds + 2 * (s - 1) + 2 * (m - 1)
        if local >= s:
            # Modulo s: the ranks that go on share those that sit out evenly.
            _sit_out(comm, row, mine[local % s], local // s - 1, last)
            return
        # s ranks of each node go on: every shard needs a holder on every node.
        folded = list(enumerate(mine[s + local :: s]))
        for turn, rank in folded:
            with comm.span("phase", "fold", round=turn):
                comm.irecv(row, rank, op=recv_op).wait()
        _three_rings(comm, row, mine[:s], [node[local] for node in nodes], recv_op, folds)
        sends = []
        for turn, rank in folded:
            with comm.span("phase", "unfold", round=last + turn):
                sends.append(comm.isend(row, rank))
        for send in sends:
            send.wait()


def _three_rings(
    comm: Comm, row: torch.Tensor, inside: list[int], across: list[int], op: str, first_step: int
) -> None:
    s, m = len(inside), len(across)
    shards = chunks_of(row, s)
    # The ring's reduce-scatter leaves shard i+1 on rank i: that one goes across.
    chunks = chunks_of(shards[(inside.index(comm.rank) + 1) % s], m)
    with comm.span("phase", "reduce-scatter inside"):
        once_round(comm, inside, shards, start=0, op=op, first_step=first_step)
    with comm.span("phase", "all-reduce across"):
        step = first_step + s - 1
        once_round(comm, across, chunks, start=0, op=op, first_step=step)
        # start=1: after the first round rank i holds the finished chunk i+1.
        once_round(comm, across, chunks, start=1, op="copy", first_step=step + m - 1)
    with comm.span("phase", "all-gather inside"):
        step = first_step + s - 1 + 2 * (m - 1)
        once_round(comm, inside, shards, start=1, op="copy", first_step=step)


def _sit_out(comm: Comm, row: torch.Tensor, holder: int, turn: int, last: int) -> None:
    with comm.span("phase", "fold", round=turn):
        comm.isend(row, holder).wait()
    with comm.span("phase", "unfold", round=last + turn):
        comm.irecv(row, holder).wait()


def _holds(nodes: Sequence[Sequence[int]], ranks: int) -> bool:
    try:
        found = sorted(rank for node in nodes for rank in node)
        return found == [*range(ranks)] and all(map(len, nodes))
    except TypeError:  # these are no lists of numbers
        return False


def _nodes(comm: Comm) -> list[list[int]]:
    machine = comm.machine
    if machine is None:
        return comm.hosts
    nodes: dict[int, list[int]] = {}
    for rank, member in enumerate(comm.members):
        nodes.setdefault(machine.topology.node(member), []).append(rank)
    return list(nodes.values())
