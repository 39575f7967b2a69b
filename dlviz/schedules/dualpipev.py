"""DualPipeV: a V as ZB-V, and in the steady state a forward and a backward at the same time.

PICTURE

One's messages then hide behind the other's math: an overlap takes `overlapped` seconds, less than
F + B on a machine where that is so. Idle (p-1)(F&B + B - 3W) on the rank that idles most, for
m >= 2p. W are put off only where the pipe fills and drains.
Source: DeepSeek-AI, DualPipe (github.com/deepseek-ai/DualPipe, "DualPipeV"), after Qi et al.,
Pipeline Parallelism with Controllable Memory, NeurIPS 2024. In PyTorch: ScheduleDualPipeV.
"""

from __future__ import annotations

from dlviz.schedules.action import Action
from dlviz.schedules.orders import numbered, vee
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
    steps = [F0] * (2 * (p - 1 - rank))
    steps += [F0, F1] * (rank + 1)
    steps += [I1, W, F1] * (p - 1 - rank)
    main = [(F0, B1), (F1, B0)] * (m - 2 * p + rank + 1)
    if rank == p - 1:
        main[:1] = [F0, B1]  # in turn: the backward of the first microbatch need not wait
    steps += main
    steps += [B1, (F1, B0)] * (p - 1 - rank)
    steps += ([B1, B0] * (rank + 1))[: rank + 1]
    steps += ([I1, I0] * (rank + 1))[rank + 1 :]
    steps += [W, I0] * (p - 1 - rank)
    steps += [W] * (rank + 1)
    return numbered(steps)
