"""How long placements really take."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.machine import Link
from dlviz.models.operator_graph import OperatorGraph
from dlviz.parallel.placement.devices import devices_of
from dlviz.parallel.placement.placed_model import PlacedModel


def measure(
    comm: Comm,
    module: nn.Module,
    operators: OperatorGraph,
    placements: Sequence[Sequence[int]],
    batch: torch.Tensor,
    *,
    repeats: int = 5,
    link: Link | None = None,
) -> list[list[float]]:
    """Seconds of the forward of `batch` by each of `placements`, `repeats` times: from the first
    start to the end on the last rank, by the processors' clock, also where a run is paced. A worker
    for `launch`; `operators` is `graph_of` the module. On every rank the same."""
    check_counts(repeats=repeats)
    devices = devices_of(comm, link)
    starts, ends = torch.empty(2, len(placements), repeats, dtype=torch.float64)
    for row, placement in enumerate(placements):
        placed = PlacedModel(comm, module, operators, placement, devices)
        for column in range(repeats):
            comm.start_line()
            starts[row, column] = time.monotonic()
            placed.run(batch)
            comm.hold()
            ends[row, column] = time.monotonic()
    comm.all_reduce(starts, "min")
    comm.all_reduce(ends, "max")
    return (ends - starts).tolist()
