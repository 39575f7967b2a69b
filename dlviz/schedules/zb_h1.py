"""ZB-H1: 1F1B with each backward split, so that weight gradients fill the idle time.

    rank 0  F0 F1 F2       I0 W0 F3 I1 W1 I2 W2 I3 W3
    rank 1     F0 F1    I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
    rank 2        F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

The previous stage waits only for I. Rank r delays its W by r microbatches: they run where 1F1B
drains. Idle (p-1)*max(F, I, F+I-W) a rank for m >= p, with the memory of 1F1B on rank 0.
Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1, where I is called B.
"""

from __future__ import annotations

from dlviz.schedules import one_f_one_b
from dlviz.schedules.orders import loop, split
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [
        split(one_f_one_b.row(rank, microbatches, warmup=ranks - 1 - rank), lag=rank)
        for rank in range(ranks)
    ]
    return Schedule(rows, loop(ranks), "zb_h1")
