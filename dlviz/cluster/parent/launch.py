"""launch: run a worker on fresh ranks and bring back their results, their output and the Trace."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from dlviz.cluster.parent import start, torchrun
from dlviz.cluster.parent.arguments import (
    check,
    check_may_lose,
    check_seed,
    choose_device,
    pack_worker,
)
from dlviz.cluster.parent.inherited import Inherited, inherit
from dlviz.cluster.parent.output import Progress, ProgressCallback
from dlviz.cluster.parent.remote import Lost
from dlviz.cluster.parent.supervise import Supervisor
from dlviz.cluster.parent.warn import warn
from dlviz.machine import Machine

OF_A_TRACE = ("spans", "messages", "memory", "buffers", "meta", "ranks", "only")


@dataclass(eq=False)  # a run is itself alone
class Run:
    """What a run left behind: `results` and `output` by rank, its `trace`, its wall time in
    `seconds`, and the ranks it has `lost`, each with `when` (s from the run's start) and `how`;
    their result is None. It stands for its Trace: `run.spans` is `run.trace.spans`, and metrics,
    views and widgets take it."""

    results: list[Any]
    output: list[str]
    trace: Any  # a Trace; None under torchrun on ranks other than 0
    seconds: float
    lost: dict[int, Lost] = field(default_factory=dict)

    @property
    def late(self) -> bool:
        """Whether the run was paced and late, so that its wall-clock times are not reliable."""
        return self.trace is not None and bool(self.trace.meta["warning"])

    def __getattr__(self, name: str) -> Any:
        trace = vars(self).get("trace")
        if name in OF_A_TRACE and trace is not None:
            return getattr(trace, name)
        raise AttributeError(f"a Run has no {name!r}: it has results, output, trace and seconds.")

    def __repr__(self) -> str:
        if self.trace is None:
            return f"Run(one rank of several, {self.seconds:.2f} s)"
        spans, messages = len(self.trace.spans), len(self.trace.messages)
        ranks = len(self.results)
        lost = f", {len(self.lost)} lost" if self.lost else ""
        return f"Run({ranks} ranks{lost}, {self.seconds:.2f} s, {spans} spans, {messages} messages)"


def launch(
    worker: Callable[..., Any],
    ranks: int = 4,
    machine: Machine | None = None,
    device: str = "auto",
    timeout: float = 60.0,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    may_lose: Collection[int] = (),
    progress: Callable[[str | None, int, int], None] | None = None,
    seed: int | None = None,
    seed_by_rank: bool = False,
) -> Run:
    """Run `worker(comm, *args, **kwargs)` on `ranks` fresh processes and return when all are done.

    The worker may be defined in a notebook cell. With a `machine` the run is paced: the math and
    the messages are real, each operation takes what the machine says. `device` is "auto", "cpu" or
    "cuda"; `timeout` in seconds covers the whole run. Raises ValueError or TypeError for an
    argument that cannot be used, RankError if a rank raises or dies, DeadlockError if ranks wait
    for each other for ever, RunTimeout when the time is up, RunInterrupted (a KeyboardInterrupt)
    when it is interrupted; each carries the Trace up to then.

    The run survives the exit, exception or kill of the ranks in `may_lose`, whose processes end,
    as do those of them that are still at work when the time is up and all others have finished.
    Whoever sends to a lost rank (and waits for that), receives from it or calls a collective with
    it gets RankLost, which it may catch, and so does, as in a ring, whoever would wait for ever for
    ranks that have got it; a receive from any source goes on with the rest. What such a rank had
    sent is received, but messages longer than about 4 KB may have gone with its memory.
    `comm.lost` says who is lost; `comm.together` has those that are left call collectives.

    Before the worker begins, `seed` seeds the generators of torch, numpy and random on each rank,
    all alike, or with `seed_by_rank` seed + rank. Without a `seed` one is drawn from this process's
    torch generator, so that `torch.manual_seed` here decides what ranks draw; the Trace's meta has
    it (under torchrun each rank's is its own process's, and in no meta). Ranks also take over the
    default dtype, deterministic algorithms, formats of printed tensors, levels of logging and its
    handlers to stderr and stdout, and filters of warnings.

    A rank ends as Python does: it waits for the threads that the worker has started and that are no
    daemons, then calls what is registered with `atexit` (after an exception too). A thread that
    still runs 5 s after the last worker has returned, or when the time is up, is named in a
    warning, and the results are there all the same. The `__cause__` of a RankError is the rank's
    exception, where that can be pickled.

    `progress` is called many times a second, in place of bars and of a warning that the run was
    late (see `Run.late`): with the name of the ranks' bar, how far the last rank is, and of how
    much; with None, how many ranks have started, and of how many; with "MB of results", how many
    have come, and of how many. What it raises ends the run. With it `launch` may be called in any
    thread. Under torchrun it is not called.

    Under torchrun every process calls it, `ranks` must be their number, and each rank has the
    arguments and the environment of its process. All is as above in rank 0's process, where ranks
    print too; any other's Run holds its own result and `lost` alone, its errors their first line,
    rank, exit code and cycle. On several hosts the Trace's meta has `hosts` (their ranks by name)
    and `clock_error` (s that its times of a host may be wrong by); such a run is not paced, loses
    no rank and shares no memory between hosts.
    """
    _refuse_inside()
    kwargs = {} if kwargs is None else kwargs
    check(worker, ranks, machine, device, timeout, args, kwargs)
    check_may_lose(may_lose, int(ranks))
    check_seed(seed)
    inherited = inherit(seed, seed_by_rank)
    more = machine, device, timeout, args, kwargs, may_lose, inherited
    if torchrun.started_this():
        began = perf_counter()
        results, output, trace, lost = torchrun.join_run(worker, int(ranks), *more)
        run = Run(results, output, trace, perf_counter() - began, lost)
    else:
        shown = Progress() if progress is None else ProgressCallback(progress)
        run = _run(shown, worker, int(ranks), *more)
    if run.trace is not None and progress is None:
        warn(run.trace)
    return run


def _refuse_inside() -> None:
    if start.inside_rank:
        raise RuntimeError(
            "launch was called inside a rank: a rank cannot start ranks; call launch where the run "
            "begins, or split the existing ranks with comm.split."
        )
    if multiprocessing.current_process().daemon:
        raise RuntimeError(
            "launch was called in a daemonic process, such as a Pool's, which cannot start "
            "processes: call it in the main process, or in a Process that is not daemonic."
        )


def _run(
    progress: Progress,
    worker: Callable[..., Any],
    ranks: int,
    machine: Machine | None,
    device: str,
    timeout: float,
    args: tuple,
    kwargs: dict[str, Any],
    may_lose: Collection[int],
    inherited: Inherited,
) -> Run:
    began = perf_counter()
    job = pack_worker(worker, args, kwargs, inherited)
    device = choose_device(device, ranks)
    with Supervisor(ranks, machine, device, timeout, progress, frozenset(may_lose)) as supervisor:
        supervisor.started, supervisor.seed = began, inherited.seed
        results, output, trace = supervisor.run(dict.fromkeys(range(ranks), job))
        return Run(results, output, trace, perf_counter() - began, supervisor.lost)
