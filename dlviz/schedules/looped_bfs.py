"""Looped breadth-first: every microbatch through a rank's first chunk before any enters its second.

    rank 0  F0 F1 F2 F3 f0 f1 f2 f3          b3--- b2--- b1--- b0--- B3--- B2--- B1--- B0---
    rank 1     F0 F1 F2 F3 f0 f1 f2 f3 b3--- b2--- b1--- b0--- B3--- B2--- B1--- B0---

GPipe with chunks: idle (p-1)/(vm) of the work as interleaved 1F1B, and all vm chunks in flight. A
chunk's weights are needed for one interval of time, which suits sharded data parallelism.
Source: Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, section 4. In PyTorch:
ScheduleLoopedBFS, whose backwards take the microbatches from the last to the first.
"""

from __future__ import annotations

from dlviz.schedules.orders import check_loop, loop, stage_passes
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int, chunks: int) -> Schedule:
    check_loop("looped_bfs", ranks, chunks)
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * chunks, ranks)
        forwards, backwards = (stage_passes(kind, stages, microbatches) for kind in "FB")
        rows.append(forwards + backwards[::-1])
    return Schedule(rows, loop(ranks, chunks), "looped_bfs")
