"""Interleaved 1F1B: a rank holds v small chunks of the model instead of one large one.

    rank 0  F0 F1 f0 f1 F2    b0--- F3 b1--- f2 B0--- f3 B1---    b2---    b3--- B2--- B3---
    rank 1     F0 F1 f0 b0--- f1 b1--- F2 B0--- F3 B1--- f2 b2--- f3 b3--- B2--- B3---

Stage s is on rank s mod p. Microbatches go in groups of g: g of them through a rank's first
chunk, then through its second, ...; in the backward the last chunk comes first. The warm-up is
min(2(p-1-r) + (v-1)g, vm) forwards. A pass takes 1/v of a stage's time, and so do fill and drain:
idle (p-1)/(vm) of the work. The price is v times the messages, and rank r holds up to
min(2(p-1-r) + (v-1)g + 1, vm) chunks.
Source: Narayanan et al., Megatron-LM, SC 2021, section 2.2.2. In PyTorch: ScheduleInterleaved1F1B.
"""

from __future__ import annotations

from dlviz.schedules.action import Action
from dlviz.schedules.orders import check_loop, grouped, loop, stage_passes, weave
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int, chunks: int) -> Schedule:
    check_loop("interleaved", ranks, chunks)
    group = grouped("interleaved", ranks, microbatches)
    rows = []
    for rank in range(ranks):
        warmup = 2 * (ranks - 1 - rank) + (chunks - 1) * group
        rows.append(row(range(rank, ranks * chunks, ranks), microbatches, group, warmup))
    return Schedule(rows, loop(ranks, chunks), "interleaved")


def row(stages: range, microbatches: int, group: int, warmup: int) -> list[Action]:
    """The row of a rank with these stages, after so many forwards of warm-up."""
    forwards = stage_passes("F", stages, microbatches, group)
    backwards = stage_passes("B", reversed(stages), microbatches, group)
    return weave(forwards, backwards, warmup)
