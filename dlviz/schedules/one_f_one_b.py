"""1F1B: rank r runs p-1-r forwards, then one forward and one backward in turn.

    rank 0  F0 F1 F2             B0--- F3 B1---    B2---    B3---
    rank 1     F0 F1       B0--- F2 B1--- F3 B2---    B3---
    rank 2        F0 B0--- F1 B1--- F2 B2--- F3 B3---

Idle as GPipe, (p-1)(F+B) a rank, but rank r holds min(p-r, m) microbatches at most, not m.
Source: Narayanan et al., PipeDream, SOSP 2019, section 3.2, and "PipeDream-Flush" in
Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, section 3.2.
In PyTorch: Schedule1F1B.
"""

from __future__ import annotations

from dlviz.schedules.action import Action
from dlviz.schedules.orders import loop, stage_passes, weave
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = [row(rank, microbatches, warmup=ranks - 1 - rank) for rank in range(ranks)]
    return Schedule(rows, loop(ranks), "1f1b")


def row(rank: int, microbatches: int, warmup: int) -> list[Action]:
    """The row of a rank with one stage, after so many forwards of warm-up."""
    forwards, backwards = (stage_passes(kind, [rank], microbatches) for kind in "FB")
    return weave(forwards, backwards, warmup)
