"""DualPipeV: a V as in ZB-V, and in the steady state a forward and a backward at the same time.

    rank 0  F0 F1 F2 f0 i0 w0 f1 F3&b1---    f2&B0--- b2---    f3&B1--- b3--- I2 W2 I3 W3
    rank 1     F0 f0 F1 f1 F2 b0--- f2&B0--- F3&b1--- f3&B1--- b2--- B2---    i3 I3 w3 W3

The messages of one then hide behind the math of the other: an overlap takes F&B, less than F + B on
a machine where that works. W is delayed only while the pipe fills and drains. For m >= 2p and
F = I >= W the rank with the most idle time idles (p-1)(F&B + B - 3W); it holds up to 2p+1 chunks.
Source: DeepSeek-AI, github.com/deepseek-ai/DualPipe, "DualPipeV", after Sea AI Lab's "cut-in-half".
In PyTorch: ScheduleDualPipeV.
"""

from __future__ import annotations

from dlviz.schedules.action import Action
from dlviz.schedules.orders import Both, Step, numbered, vee
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    if microbatches < 2 * ranks:
        raise ValueError(
            f"microbatches={microbatches} do not fill the {2 * ranks} stages of dualpipev on "
            f"ranks={ranks}: use {2 * ranks} microbatches or more."
        )
    rows = [_row(rank, ranks, microbatches) for rank in range(ranks)]
    return Schedule(rows, vee(ranks), "dualpipev")


def _row(rank: int, p: int, m: int) -> list[Action]:
    (F0, B0, I0), (F1, B1, I1) = (
        [(stage, kind) for kind in "FBI"] for stage in (rank, 2 * p - 1 - rank)
    )
    W = (-1, "W")  # of the oldest I
    steps: list[Step | Both] = [F0] * (2 * (p - 1 - rank))
    steps += [F0, F1] * (rank + 1)
    steps += [I1, W, F1] * (p - 1 - rank)
    # On the last rank the first backward need not wait for a forward.
    steps += [F0, B1] if rank == p - 1 else [Both(F0, B1)]
    steps += [Both(F1, B0)] + [Both(F0, B1), Both(F1, B0)] * (m - 2 * p + rank)
    steps += [B1, Both(F1, B0)] * (p - 1 - rank)
    steps += ([B1, B0] * (rank + 1))[: rank + 1]
    steps += ([I1, I0] * (rank + 1))[rank + 1 :]
    steps += [W, I0] * (p - 1 - rank)
    steps += [W] * (rank + 1)
    return numbered(steps)
