"""ZB-V: two chunks a rank in the shape of a V, so that the loss is back on rank 0 soon.

    rank 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3
    rank 1     F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3

Stages 0 to p-1 go down the ranks, p to 2p-1 come back up: the last stage is on rank 0, where the
first backward begins. With F = I = W nothing is idle between a rank's first action and its last,
and a rank holds 2p chunks at most, as 1F1B's fullest does.
Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6. In PyTorch:
ScheduleZBVZeroBubble.
"""

from __future__ import annotations

from dlviz.schedules.action import Action
from dlviz.schedules.orders import numbered, vee
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [_row(rank, ranks, microbatches) for rank in range(ranks)]
    return Schedule(rows, vee(ranks), "zbv")


def _row(rank: int, p: int, microbatches: int) -> list[Action]:
    """The row for as many microbatches as fill the pipe, 2p-1 at least, less those not there."""
    m = max(2 * p - 1, microbatches)
    (F0, I0, W0), (F1, I1, W1) = (
        [(stage, kind) for kind in "FIW"] for stage in (rank, 2 * p - 1 - rank)
    )
    steps = [F0] * (2 * (p - rank) - 1)  # until the first microbatch is back
    steps += [F1, F0] * rank
    steps += [F1, I1, W1] * (p - rank)
    steps += [F0, I0, W0, F1, I1, W1] * (m - 2 * p + 1 + rank)
    steps += [I0, W0, F1, I1, W1] * (p - 1 - rank)
    steps += [I0, I1] * rank  # W is put off, so that others get their gradients
    steps += [I0, W0] * (p - rank)
    steps += [W1] * rank + [W0] * rank
    return [action for action in numbered(steps) if action.microbatch < microbatches]
