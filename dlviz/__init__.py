"""dlviz: see distributed training happen.

A worker runs on real ranks, or a schedule is simulated; either produces a `Trace`. Metrics turn a
Trace into numbers, views into figures. `import dlviz` is light: torch, plotly, pandas and
ipywidgets load when a name that needs them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlviz import (
        cluster,
        collectives,
        datasets,
        federated,
        machine,
        metrics,
        models,
        parallel,
        patterns,
        schedules,
        sim,
        trace,
        viz,
        widgets,
    )
    from dlviz.cluster import (
        Comm,
        DeadlockError,
        RankError,
        RankLost,
        Run,
        RunError,
        RunInterrupted,
        RunTimeout,
        launch,
    )
    from dlviz.sim import Costs, simulate
    from dlviz.trace import Trace

__version__ = "0.1.0"

_HOME = {  # public name -> the module it lives in
    **dict.fromkeys(
        ("launch", "Run", "RunError", "RankError", "DeadlockError", "RunTimeout")
        + ("RunInterrupted", "RankLost", "Comm"),
        "dlviz.cluster",
    ),
    "Trace": "dlviz.trace",
    "simulate": "dlviz.sim",
    "Costs": "dlviz.sim",
}
_SUBMODULES = (
    "cluster", "collectives", "datasets", "federated", "machine", "metrics", "models", "parallel",
    "patterns", "schedules", "sim", "trace", "viz", "widgets",
)  # fmt: skip

__all__ = [
    "Comm", "Costs", "DeadlockError", "RankError", "RankLost", "Run", "RunError",
    "RunInterrupted", "RunTimeout", "Trace", "launch", "simulate",
    "cluster", "collectives", "datasets", "federated", "machine", "metrics", "models", "parallel",
    "patterns", "schedules", "sim", "trace", "viz", "widgets",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return import_module(f"dlviz.{name}")
    raise AttributeError(f"module 'dlviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """Add the cell magic `%%ranks N` to a notebook: `%load_ext dlviz`."""
    from dlviz.magic import load_ipython_extension as load

    load(ipython)
