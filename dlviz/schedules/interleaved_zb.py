"""Interleaved zero bubble: the split backward of ZB-H1 with several chunks on a rank.

    rank 0  F0 F1 f0 f1    i0 w0 F2 i1 w1 F3 I0 W0 f2 I1 W1 f3 i2 w2 i3 w3 I2 W2 I3 W3
    rank 1     F0 F1 f0 i0 f1 i1 w0 F2 I0 w1 F3 I1 W0 f2 i2 W1 f3 i3 w2 I2 w3 I3 W2 W3

The order is that of interleaved 1F1B with a warm-up of min(p-1-r + (v-1)g, vm), each backward split
and the W of rank r delayed by r passes. With one chunk it is ZB-H1.
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
