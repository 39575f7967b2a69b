"""Pipelined inference: forwards only.

    rank 0  F0 F1 F2 F3
    rank 1     F0 F1 F2 F3
    rank 2        F0 F1 F2 F3

m microbatches take m+p-1 forwards: the first result comes after p, then one per forward.
In PyTorch: a schedule's `eval`.
"""

from __future__ import annotations

from dlviz.schedules.orders import loop, stage_passes
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [stage_passes("F", [rank], microbatches) for rank in range(ranks)]
    return Schedule(rows, loop(ranks), "inference")
