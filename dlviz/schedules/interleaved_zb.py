"""Interleaved zero bubble: the split backward of ZB-H1 with several chunks on a rank.

PICTURE

The order is that of interleaved 1F1B with a warm-up of min(p-1-r + (v-1)g, vm), each backward split
and the W of rank r put off by r visits. With one chunk it is ZB-H1.
Source: torch.distributed.pipelining, ScheduleInterleavedZeroBubble, after Qi et al., Zero Bubble
Pipeline Parallelism, ICLR 2024 (its "ZB1P").
"""

from __future__ import annotations

from dlviz.schedules import interleaved
from dlviz.schedules.orders import grouped, loop, split
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int, chunks: int) -> Schedule:
    group = grouped("interleaved_zb", ranks, microbatches)
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * chunks, ranks)
        warmup = ranks - 1 - rank + (chunks - 1) * group
        rows.append(split(interleaved.row(stages, microbatches, group, warmup), lag=rank))
    return Schedule(rows, loop(ranks, chunks), "interleaved_zb")
