"""Which times of a Trace a figure reads: those of the device clock or of the wall clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.columns import CLOCKS

if TYPE_CHECKING:
    from dlviz.trace import Trace


def clock_of(trace: Trace, clock: str | None = None) -> str:
    """The clock to draw: `clock`, or else the Trace's own.

    Raises ValueError where the Trace has no such times.
    """
    timed = bool(np.isfinite(trace.spans.wall_start).any()) or not len(trace.spans)
    if clock is None:
        clock = "wall" if trace.meta["clock"] == "wall" and timed else "device"
    if clock not in ("device", "wall"):
        raise ValueError(f"clock={clock!r} is not a clock of a Trace: use 'device' or 'wall'.")
    if clock == "wall" and not timed:
        raise ValueError(
            f"clock='wall' cannot be drawn: this {trace.meta['clock']} Trace has no wall times. "
            "Use clock='device'."
        )
    return clock


def shared(traces: Mapping[str, Trace], what: Callable[[Trace], Any], name: str) -> Any:
    """The value of `what` that all Traces share. Raises ValueError where it differs."""
    found = {key: what(trace) for key, trace in traces.items()}
    (first, common), *others = found.items()
    for key, own in others:
        if own != common:
            raise ValueError(
                f"{first!r} and {key!r} cannot share one scale: they differ in their {name}."
            )
    return common


def span_times(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every span, in seconds."""
    start, end = CLOCKS[clock]
    return trace.spans[start], trace.spans[end]


def message_times(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """When each message was sent and when it was received, in seconds; NaN where it never was.

    A paced run's messages leave immediately, before their sender has waited for its device time: by
    the wall clock one counts as sent when the span that sends it begins.
    """
    spans, table = trace.spans, trace.messages
    if clock != "wall":
        return table.sent, table.received
    if trace.meta["clock"] != "paced":
        return table.wall_sent, table.wall_received
    carriers = np.flatnonzero(spans.flow >= 0)
    carriers = carriers[spans.rank[carriers] == table.src[spans.flow[carriers]]]
    begun = np.full(len(table), np.inf)
    np.minimum.at(begun, spans.flow[carriers], spans.wall_start[carriers])
    sent = np.where(np.isfinite(begun), np.maximum(table.wall_sent, begun), table.wall_sent)
    return sent, np.maximum(table.wall_received, sent)
