"""Views: each `name(trace, ...)` gives a plotly Figure and does nothing else.

Those in `dlviz.viz.print` give a matplotlib Figure, for paper.
"""

from importlib import import_module
from typing import Any

from dlviz.analysis.contributions import decode, encode
from dlviz.analysis.frames import Frame, message_frames
from dlviz.viz.breakdown import breakdown
from dlviz.viz.bubble import bubble
from dlviz.viz.compare import compare
from dlviz.viz.costs import costs, crossovers
from dlviz.viz.curve import curve
from dlviz.viz.memory import memory
from dlviz.viz.messages import messages, messages_grid
from dlviz.viz.tables import bubble_table, compare_table, memory_table, timeline_table
from dlviz.viz.timeline import timeline
from dlviz.viz.timelines import timelines
from dlviz.viz.traffic import traffic, traffic_table
from dlviz.viz.waits import waited_for

__all__ = [
    "Frame",
    "breakdown",
    "bubble",
    "bubble_table",
    "compare",
    "compare_table",
    "costs",
    "crossovers",
    "curve",
    "decode",
    "encode",
    "memory",
    "memory_table",
    "message_frames",
    "messages",
    "messages_grid",
    "timeline",
    "timeline_table",
    "timelines",
    "traffic",
    "traffic_table",
    "waited_for",
]


def __getattr__(name: str) -> Any:
    if name == "print":  # loads matplotlib, which the others do without
        return import_module("dlviz.viz.print")
    raise AttributeError(f"module 'dlviz.viz' has no attribute {name!r}")
