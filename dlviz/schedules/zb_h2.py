"""ZB-H2: twice the warm-up of ZB-H1, so that even while the pipe fills no rank is idle.

    rank 0  F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
    rank 1     F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
    rank 2        F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5

Rank r runs 2(p-1-r) forwards first and delays its W by 2r microbatches: the picture becomes a
parallelogram, in which a rank is idle only before its first action and after its last. With
F = I = W there is no bubble inside; a rank holds up to 2p-1 microbatches.
Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2; ranks start the next
step without waiting for each other, so T is the longest span of a rank.
"""

from __future__ import annotations

from dlviz.schedules import one_f_one_b
from dlviz.schedules.orders import loop, split
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [
        split(one_f_one_b.row(rank, microbatches, warmup=2 * (ranks - 1 - rank)), lag=2 * rank)
        for rank in range(ranks)
    ]
    return Schedule(rows, loop(ranks), "zb_h2")
