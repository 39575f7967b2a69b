"""GPipe: all forwards, then all backwards.

    rank 0  F0 F1 F2 F3                   B0--- B1--- B2--- B3---
    rank 1     F0 F1 F2 F3          B0--- B1--- B2--- B3---
    rank 2        F0 F1 F2 F3 B0--- B1--- B2--- B3---

Idle (p-1)(F+B) a rank, whatever m: (p-1)/m of the work. A rank holds all m microbatches.
Source: Huang et al., GPipe, NeurIPS 2019, section 2.3. In PyTorch: ScheduleGPipe.
"""

from __future__ import annotations

from dlviz.schedules.orders import loop, stage_passes
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [
        stage_passes("F", [rank], microbatches) + stage_passes("B", [rank], microbatches)
        for rank in range(ranks)
    ]
    return Schedule(rows, loop(ranks), "gpipe")
