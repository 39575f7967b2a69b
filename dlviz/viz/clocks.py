"""Which times of a Trace a figure reads: those of the device or those of the wall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlviz.trace import Trace


def clock_of(trace: Trace, clock: str | None) -> str:
    """The columns to draw: those asked for, else those that the Trace's own clock fills.

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


def span_times(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every span, in seconds."""
    spans = trace.spans
    return (spans.wall_start, spans.wall_end) if clock == "wall" else (spans.start, spans.end)


def message_times(trace: Trace, clock: str) -> tuple[np.ndarray, np.ndarray]:
    """When each message was sent and when it was received, in seconds; NaN where it never was."""
    table = trace.messages
    return (
        (table.wall_sent, table.wall_received) if clock == "wall" else (table.sent, table.received)
    )
