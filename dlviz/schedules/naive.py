"""Naive model parallelism: one microbatch in the pipe at a time, so one rank computes at a time.

    rank 0  F0                   B0--- F1                   B1---
    rank 1     F0          B0---          F1          B1---
    rank 2        F0 B0---                   F1 B1---

Idle: all but 1/p of every rank's time. The other schedules improve on it.
Source: the "under-utilization" picture of Huang et al., GPipe, NeurIPS 2019, figure 2(b).
"""

from __future__ import annotations

from dlviz.schedules.orders import loop, stage_passes, weave
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = []
    for rank in range(ranks):
        forwards, backwards = (stage_passes(kind, [rank], microbatches) for kind in "FB")
        rows.append(weave(forwards, backwards, warmup=0))
    return Schedule(rows, loop(ranks), "naive")
