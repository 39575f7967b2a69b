"""The hierarchy: as much as possible inside a node, so that little crosses the slow link.

    inside    ring reduce_scatter: local rank l of each node holds shard l+1 of the node's sum
    across    ring all_reduce of each shard, over the ranks of all nodes that hold it
    inside    ring all_gather of the finished shards

There are as many shards as the smallest node has ranks, s. In a larger node local rank s+i first
gives its tensor to local rank i (modulo s), which adds it, and finally gets the result back.

Source: the two-level scheme of NCCL and of X. Jia et al., "Highly scalable deep learning training
system with mixed-precision", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlviz.patterns.pattern import Transfer, check_size
from dlviz.patterns.ring import rounds


def all_reduce(
    ranks: int, length: int, nodes: Sequence[Sequence[int]] | None = None
) -> list[Transfer]:
    """`nodes`: the ranks of each node; without it all ranks are one node. With m nodes and
    shards of 1/s, 2(s-1) + 2(m-1) steps, and two for each rank that a node folds into another."""
    check_size(ranks, length)
    nodes = [range(ranks)] if nodes is None else nodes
    if sorted(rank for node in nodes for rank in node) != list(range(ranks)) or not all(nodes):
        raise ValueError(
            f"nodes={[list(node) for node in nodes]} does not hold {ranks} ranks: name each of 0 "
            f"to {ranks - 1} once."
        )
    s, m = min(map(len, nodes)), len(nodes)
    folds = max(-(-(len(node) - s) // s) for node in nodes)
    bounds = [shard * length // s for shard in range(s + 1)]
    found: list[Transfer] = []
    for node in nodes:
        for extra, rank in enumerate(node[s:]):
            holder, turn = node[extra % s], extra // s
            last = folds + 2 * (s - 1) + 2 * (m - 1) + turn
            if length:
                found.append(Transfer(turn, rank, holder, 0, length, "sum"))
                found.append(Transfer(last, holder, rank, 0, length, "copy"))
        scatter = rounds(node[:s], 0, length, start=0, first_step=folds, op="sum")
        back = folds + (s - 1) + 2 * (m - 1)
        gather = rounds(node[:s], 0, length, start=1, first_step=back, op="copy")
        found += scatter + gather
    for local in range(s):
        shard = (local + 1) % s
        offset, size = bounds[shard], bounds[shard + 1] - bounds[shard]
        across = [node[local] for node in nodes]
        first = folds + s - 1
        found += rounds(across, offset, size, start=0, first_step=first, op="sum")
        found += rounds(across, offset, size, start=1, first_step=first + m - 1, op="copy")
    return sorted(found)
