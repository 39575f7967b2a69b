"""How old the weights are that a gradient is computed with."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import TIE
from dlviz.trace import Trace


def staleness(trace: Trace) -> np.ndarray:
    """Updates of a stage between a microbatch's forward through it and its backward, the update by
    that backward left out: (stages, microbatches), -1 where one of the two was not run.

    0 for a schedule that flushes; p-1-r on stage r of p in PipeDream, once it is filled. Source:
    Narayanan et al., PipeDream, SOSP 2019, section 3.3.
    """
    spans = trace.spans
    shape = int(spans.stage.max(initial=-1)) + 1, int(spans.microbatch.max(initial=-1)) + 1
    made = np.full((2, *shape), -1)  # updates before the forward and before the backward
    for stage in range(shape[0]):
        own = spans[spans.stage == stage]
        updates = np.sort(own.end[own.kind == "update"])
        for side, kinds in enumerate((["forward"], ["backward", "backward_weight"])):
            runs = own[np.isin(own.kind, kinds) & (own.microbatch >= 0)]
            before = np.searchsorted(updates, runs.start + TIE, side="right")
            made[side, stage, runs.microbatch] = before
    return np.where((made >= 0).all(axis=0), made[1] - made[0], -1)
