"""How rows cross from data parallel convolutions to dense layers that are cut, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dlviz.cluster import Comm
from dlviz.collectives.direct import to_all
from dlviz.sim.convolution import blocks

CROSSINGS = ("all", "one", "slices")


class Crossing(NamedTuple):
    """The rows that cross together: `own`, of this rank's shard, and how many of each rank."""

    own: slice
    counts: list[int]


def parts_of(crossing: str, counts: Sequence[int], rank: int) -> list[Crossing]:
    """The crossings of shards that have `counts` rows, as rank `rank` sees them, those of no row
    left out."""
    everyone, found = range(len(counts)), []
    for turn in everyone if crossing != "all" else [0]:
        if crossing == "all":
            own = [(0, count) for count in counts]
        elif crossing == "one":
            own = [(0, counts[r] if r == turn else 0) for r in everyone]
        else:  # from rank to rank another slice, as the first ones of a shard may be a row longer
            own = [blocks(counts[r], len(counts))[(turn + r) % len(counts)] for r in everyone]
        found.append(Crossing(slice(*own[rank]), [end - first for first, end in own]))
    return [part for part in found if any(part.counts)]


def gather(comm: Comm, name: str, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The rows of all ranks in rank order: of rank r `counts[r]`, of this one `own`.

    Cost: a rank sends its rows K-1 times."""
    whole = own.new_empty(sum(counts), *own.shape[1:])
    parts = [*whole.split(counts)]
    parts[comm.rank].copy_(own)
    with _recorded(comm, "all_gather", name, "forward", whole):
        to_all(comm, [own] * comm.size, parts)
    return whole


def scatter(
    comm: Comm, name: str, partial: torch.Tensor, counts: list[int], own: torch.Tensor
) -> None:
    """Put into `own` this rank's rows of the sum of all ranks' `partial`, `counts[r]` of which are
    rank r's.

    Cost: a rank sends each other one's rows once."""
    parts, others = [*partial.split(counts)], [r for r in range(comm.size) if r != comm.rank]
    own.copy_(parts[comm.rank])
    with _recorded(comm, "reduce_scatter", name, "backward", partial):
        sends = [comm.isend(parts[rank], rank) for rank in others if parts[rank].numel()]
        for rank in others if own.numel() else ():
            comm.recv(own, rank, op="sum")  # not posted ahead: it would be held until it is added
        for send in sends:
            send.wait()


def _recorded(comm: Comm, collective: str, name: str, direction: str, tensor: torch.Tensor) -> Any:
    fields = {"group": comm.name, "nbytes": tensor.nbytes, "collective": collective}
    return comm.span("collective", name, direction=direction, layer="crossing", **fields)
