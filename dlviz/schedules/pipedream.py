"""PipeDream: 1F1B that never flushes; each backward is followed immediately by an update.

    rank 0  F0 F1 F2             B0--u F3 B1--u    B2--u    B3--u
    rank 1     F0 F1       B0--u F2 B1--u F3 B2--u    B3--u
    rank 2        F0 B0--u F1 B1--u F2 B2--u F3 B3--u

The order is that of 1F1B; after each backward comes an update (u). So the weights change while a
microbatch is in flight. Its backward needs the version that its forward saw: a rank stashes one for
each microbatch in flight, at most p-r versions on rank r. Fill and drain happen once in the whole
training; the price is that gradients are those of old weights.
Source: Narayanan et al., PipeDream, SOSP 2019, section 3.3 (weight stashing).
"""

from __future__ import annotations

from dlviz.schedules import one_f_one_b
from dlviz.schedules.orders import loop
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = one_f_one_b.make(ranks, microbatches).actions
    return Schedule(rows, loop(ranks), "pipedream", flushes=False)
