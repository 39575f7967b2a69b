"""launch: run a worker on fresh ranks and bring back their results, their output and the Trace."""

from __future__ import annotations

import math
import multiprocessing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dlviz.cluster import start, torchrun
from dlviz.cluster.arguments import check, choose_device, pack
from dlviz.cluster.supervise import Supervisor
from dlviz.machine import Machine
from dlviz.trace import Trace


@dataclass
class Run:
    """What a run left behind: `results` and `output` by rank, its `trace`, its wall time in
    `seconds`."""

    results: list[Any]
    output: list[str]
    trace: Any  # a Trace; None under torchrun on ranks other than 0
    seconds: float

    def __repr__(self) -> str:
        if self.trace is None:
            return f"Run(one rank of several, {self.seconds:.2f} s)"
        spans, messages = len(self.trace.spans), len(self.trace.messages)
        ranks = len(self.results)
        return f"Run({ranks} ranks, {self.seconds:.2f} s, {spans} spans, {messages} messages)"


def launch(
    worker: Callable[..., Any],
    ranks: int = 4,
    machine: Machine | None = None,
    device: str = "auto",
    timeout: float = 60.0,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
) -> Run:
    """Run `worker(comm, *args, **kwargs)` on `ranks` fresh processes and return when all are done.

    The worker may be defined in a notebook cell. With a `machine` the run is paced: the math and
    the messages are real, each operation takes what the machine says. `device` is "auto", "cpu" or
    "cuda"; `timeout` in seconds covers the whole run. Raises ValueError or TypeError for an
    argument that cannot be used, RankError if a rank raises or dies, DeadlockError if ranks wait
    for each other for ever, RunTimeout when the time is up, RunInterrupted (a KeyboardInterrupt)
    when it is interrupted; each bears the Trace up to then.

    Under torchrun the ranks are there already: `ranks` must be their number, each process is one of
    them, and rank 0's Run holds all results and the Trace, any other's its own result alone.
    """
    if start.inside_rank:
        raise RuntimeError(
            "launch was called inside a rank: a rank cannot start ranks; call launch where the run "
            "begins, or split the ranks there are with comm.split."
        )
    if multiprocessing.current_process().daemon:
        raise RuntimeError(
            "launch was called in a daemonic process, such as a Pool's, which may start no "
            "processes: call it in the main process, or in a Process that is no daemon."
        )
    kwargs = {} if kwargs is None else kwargs
    check(worker, ranks, machine, device, timeout, args, kwargs)
    began = perf_counter()
    if torchrun.started_this():
        results, trace = torchrun.join_run(worker, ranks, machine, device, timeout, args, kwargs)
        return Run(results, [""] * len(results), trace, perf_counter() - began)
    job = pack(worker, args, kwargs)
    with Supervisor(int(ranks), machine, choose_device(device, ranks), timeout) as supervisor:
        results, output, trace = supervisor.run(job)
        seconds = perf_counter() - began
    _warn(trace)
    return Run(results, output, trace, seconds)


def _warn(trace: Trace) -> None:
    if trace.meta.get("warning"):
        warnings.warn(trace.meta["warning"], RuntimeWarning, stacklevel=3)
    if trace.meta["outcome"] == "unreceived":
        rows = [
            row for row in trace.messages.rows() if row.received is None or math.isnan(row.received)
        ]
        more = f" (and {len(rows) - 1} more such)" if len(rows) > 1 else ""
        warnings.warn(
            f"rank {rows[0].src} sent rank {rows[0].dst} a message that it never received{more}",
            RuntimeWarning,
            stacklevel=3,
        )
