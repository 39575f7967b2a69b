"""The record of a run: the Trace, the Recorder that writes it, and its Chrome/Perfetto file."""

from dlviz.trace.recorder import Recorder
from dlviz.trace.table import Table, TraceError
from dlviz.trace.trace import Trace

__all__ = ["Recorder", "Table", "Trace", "TraceError"]
