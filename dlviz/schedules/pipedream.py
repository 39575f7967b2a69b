"""PipeDream: 1F1B that never flushes; each backward is followed at once by an update.

PICTURE

The order is that of 1F1B. In between, the weights change: a microbatch whose forward saw some
version needs that version again in its backward, so a rank keeps (stashes) one for each microbatch
in flight, p-r versions at most on rank r. The bubble is there only once, at the start and the end
of the training; the price is that gradients are those of old weights.
Source: Narayanan et al., PipeDream, SOSP 2019, section 3.3 (weight stashing).
"""

from __future__ import annotations

from dlviz.schedules import one_f_one_b
from dlviz.schedules.orders import loop
from dlviz.schedules.schedule import Schedule


def make(ranks: int, microbatches: int) -> Schedule:
    rows = one_f_one_b.make(ranks, microbatches).actions
    return Schedule(rows, loop(ranks), "pipedream", flushes=False)
