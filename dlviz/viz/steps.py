"""Which step of the program a span or a message belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlviz.trace import Trace


def spans_in(trace: Trace, step: int | None) -> np.ndarray:
    """The rows of the spans of `step`, of all spans where it is None. ValueError if it has none."""
    if step is None:
        return np.arange(len(trace.spans))
    rows = np.flatnonzero(trace.spans.step == step)
    if not len(rows):
        known = trace.spans.step[trace.spans.step >= 0]
        told = f"{known.min()} to {known.max()}" if len(known) else "none"
        raise ValueError(f"step={step!r} has no span in this Trace: its steps are {told}.")
    return rows


def messages_in(trace: Trace, step: int | None) -> np.ndarray:
    """The rows of the messages of `step`, of all messages where it is None.

    A message is of the step of the spans that carry it: inside a collective its own `step` counts
    the collective's rounds. Where these spans bear no step, its own counts.
    """
    if step is None:
        return np.arange(len(trace.messages))
    spans, of = trace.spans, trace.messages.step.copy()
    carriers = (spans.flow >= 0) & (spans.step >= 0)
    of[spans.flow[carriers]] = spans.step[carriers]
    return np.flatnonzero(of == step)
