"""Views: each `name(trace, ...)` gives a plotly Figure and does nothing else."""

from dlviz.viz.breakdown import breakdown
from dlviz.viz.contributions import decode, encode
from dlviz.viz.curve import curve
from dlviz.viz.frames import Frame, message_frames
from dlviz.viz.messages import messages, messages_grid
from dlviz.viz.tables import timeline_table
from dlviz.viz.timeline import timeline
from dlviz.viz.waits import waited_for

__all__ = [
    "Frame",
    "breakdown",
    "curve",
    "decode",
    "encode",
    "message_frames",
    "messages",
    "messages_grid",
    "timeline",
    "timeline_table",
    "waited_for",
]
