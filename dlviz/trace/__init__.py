"""What a run leaves: the Trace, the Recorder that writes it, and its Chrome/Perfetto file."""

from typing import Any

from dlviz.trace.table import Table, TraceError
from dlviz.trace.trace import Trace

__all__ = ["Recorder", "Table", "Trace", "TraceError"]


def __getattr__(name: str) -> Any:
    if name == "Recorder":
        from dlviz.trace.recorder import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
