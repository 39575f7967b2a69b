"""launch: run a worker on fresh ranks, watch over them, and bring back results, output and Trace.

The parent starts one process per rank and then sits in one loop: it prints what the ranks print, draws
their progress, notices a rank that fails or dies, and looks at who waits for whom. Whatever happens, no process,
descriptor or file is left when `launch` returns or raises.
"""

from __future__ import annotations

import linecache
import math
import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for
from time import perf_counter, perf_counter_ns
from typing import Any

import cloudpickle
import torch

from dlviz.cluster import collect
from dlviz.cluster.board import ACTIVITY, EPOCH, WAITING, Board
from dlviz.cluster.errors import DeadlockError, RankError, RunTimeout
from dlviz.cluster.output import Output, Progress
from dlviz.cluster.rank import Job, Place, main
from dlviz.cluster.start import context, run_folder, without_main
from dlviz.cluster.waits import RankState, deadlocked, find_cycle, show_line
from dlviz.machine import Machine
from dlviz.trace import Trace

TICK = 0.05  # s between two looks at the ranks
GRACE = 1.0  # s given to the other ranks to tell what they know after one has failed
BYTES_PER_RANK = 100 * 2**20  # memory that a rank takes beyond what it shares with the fork server


@dataclass
class Run:
    """What a run left behind: `results` and `output` by rank, its `trace`, and its wall time in `seconds`."""

    results: list[Any]
    output: list[str]
    trace: Trace
    seconds: float

    def __repr__(self) -> str:
        spans, messages = len(self.trace.spans), len(self.trace.messages)
        return f"Run({len(self.results)} ranks, {self.seconds:.2f} s, {spans} spans, {messages} messages)"


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

    The worker may be defined in a notebook cell. With a `machine` the run is paced: the math and the messages are
    real, each operation takes what the machine says. `device` is "auto", "cpu" or "cuda"; `timeout` in seconds
    covers the whole run. Raises ValueError or TypeError for an argument that cannot be used, RankError if a rank
    raises or dies, DeadlockError if ranks wait for each other for ever, RunTimeout when the time is up.
    """
    _check(worker, ranks, machine, device, timeout)
    job = _pack(worker, args, kwargs or {})
    with Supervisor(ranks, machine, _device(device, ranks), timeout) as supervisor:
        return supervisor.run(job)


@dataclass
class Rank:
    """What the parent knows of one rank."""

    process: Any
    control: Any
    output: Any
    rows: dict[str, Any] | None = None
    state: RankState | None = None
    result: bytes | None = None
    failure: tuple[str, str, str, bool] | None = None  # exception, its text, traceback, lost a peer
    stacks: str = ""
    told: bool = True  # has answered the question that was asked last

    @property
    def finished(self) -> bool:
        return self.result is not None or self.failure is not None


@dataclass
class Look:
    """One look at the ranks that wait."""

    asked: list[int]
    activity: list[int]
    stuck: list[int] = field(default_factory=list)


class Supervisor:
    """One run, seen from the parent. A context manager: leaving it ends every process and removes every file."""

    def __init__(self, ranks: int, machine: Machine | None, device: str, timeout: float):
        self.size = ranks
        self.machine = machine
        self.device = device
        self.timeout = timeout
        self.started = perf_counter()
        self.ranks: list[Rank] = []
        self.output = Output(ranks)
        self.progress = Progress()
        self._look: Look | None = None
        self._last_look: Look | None = None
        self._next_look = 0.0
        self._lost_since: float | None = None

    def __enter__(self) -> Supervisor:
        self.folder = run_folder()
        links = 0 if self.machine is None else len(self.machine.topology.links)
        try:
            self.board = Board(os.path.join(self.folder, "board"), self.size, links, create=True)
            with without_main():
                for number in range(self.size):
                    self._start(number, links)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, number: int, links: int) -> None:
        mine, its = context.Pipe()
        reader, writer = context.Pipe(duplex=False)
        stacks = os.path.join(self.folder, f"stacks-{number}") if hasattr(signal, "SIGUSR1") else ""
        place = Place(self.folder, number, self.size, links, self.device, self.machine, stacks)
        process = context.Process(
            target=main, args=(place, its, writer), name=f"rank {number}", daemon=True
        )
        self.ranks.append(Rank(process, mine, reader, stacks=stacks))
        process.start()
        its.close()
        writer.close()

    def __exit__(self, *error: object) -> None:
        for rank in self.ranks:
            if rank.process.pid is not None and rank.process.exitcode is None:
                rank.process.kill()
        for rank in self.ranks:
            if rank.process.pid is not None:
                rank.process.join()
                rank.process.close()
            rank.control.close()
            rank.output.close()
        self.progress.close()
        if hasattr(self, "board"):
            self.board.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- the loop ------------------------------------------------------------------------------
    def run(self, job: bytes) -> Run:
        for rank in self.ranks:
            try:
                rank.control.send_bytes(job)
            except OSError:
                pass  # it has died already; the loop will say how
        while not all(rank.result is not None for rank in self.ranks):
            self._turn(TICK)
            self._judge()
        self._drain()
        for rank in self.ranks:
            rank.control.send_bytes(b"release")
        self._drain_output()
        results = [self._unpack(number) for number in range(self.size)]
        trace = self._trace("completed")
        self._warn(trace)
        return Run(results, self.output.texts(), trace, perf_counter() - self.started)

    def _turn(self, timeout: float) -> None:
        """Take in what the ranks say and print for up to `timeout` seconds."""
        sources: dict[Any, Callable[[], None]] = {}
        for number, rank in enumerate(self.ranks):
            if not rank.output.closed:
                sources[rank.output] = lambda number=number: self._read_output(number)
            if not rank.control.closed:
                sources[rank.control] = lambda number=number: self._read_message(number)
            if not rank.finished:
                sources[rank.process.sentinel] = lambda: None
        for ready in wait_for(list(sources), timeout):
            sources[ready]()
        self.progress.show(self.board, self.size)

    def _read_output(self, number: int) -> None:
        rank = self.ranks[number]
        data = os.read(rank.output.fileno(), 1 << 16)
        if data:
            self.output.add(number, data)
        else:
            rank.output.close()

    def _read_message(self, number: int) -> None:
        rank = self.ranks[number]
        try:
            what, *rest = pickle.loads(rank.control.recv_bytes())
        except (EOFError, OSError):
            rank.control.close()
            return
        if what == "progress":
            self.progress.begin(rest[0])
        elif what == "state":
            rank.state, rank.told = rest[0], True
        elif what == "rows":
            rank.rows, rank.told = rest[0], True
        elif what == "done":
            rank.result, rank.rows, rank.state = rest
        elif what == "failed":
            rank.failure, rank.rows, rank.state = tuple(rest[:4]), rest[4], rest[5]

    def _judge(self) -> None:
        """Raise if the run cannot complete."""
        failed = [number for number, rank in enumerate(self.ranks) if rank.failure is not None]
        dead = [
            number
            for number, rank in enumerate(self.ranks)
            if not rank.finished and rank.process.exitcode is not None and not rank.control.closed
            and not rank.control.poll()
        ]  # fmt: skip
        dead += [
            number
            for number, rank in enumerate(self.ranks)
            if not rank.finished and rank.control.closed and number not in dead
        ]
        origin = [number for number in failed if not self.ranks[number].failure[3]]
        if dead:
            raise self._death(dead[0])
        if origin:
            raise self._failure(origin[0])
        if failed:
            self._lost_since = self._lost_since or perf_counter()
            if perf_counter() - self._lost_since > GRACE:
                raise self._failure(failed[0])
        self._look_for_deadlock()
        if perf_counter() - self.started > self.timeout:
            raise self._timeout()

    # -- deadlock ------------------------------------------------------------------------------
    def _activity(self) -> list[int]:
        return [self.board.get(number, ACTIVITY) for number in range(self.size)]

    def _look_for_deadlock(self) -> None:
        """Ask the ranks that wait what they wait for, and raise once two looks find the same ranks stuck."""
        if self._look is not None:
            self._finish_look(self._look)
            return
        if perf_counter() < self._next_look:
            return
        waiting = [
            number
            for number, rank in enumerate(self.ranks)
            if not rank.finished and self.board.get(number, WAITING) > 0
        ]
        if waiting:
            self._look = Look(waiting, self._activity())
            self._ask(waiting, b"state")
        self._next_look = perf_counter() + 2 * TICK

    def _finish_look(self, look: Look) -> None:
        if not all(self.ranks[number].told or self.ranks[number].finished for number in look.asked):
            return
        self._look = None
        now = self._activity()
        quiet = [number for number in look.asked if now[number] == look.activity[number]]
        states = {number: self.ranks[number].state for number in quiet}
        for number, rank in enumerate(self.ranks):
            if rank.finished and rank.state is not None:
                states[number] = rank.state
        known = {number: state for number, state in states.items() if state is not None}
        look.stuck = deadlocked(known)
        before = self._last_look
        self._last_look = look
        if not look.stuck:
            self._next_look = perf_counter() + (
                4 * TICK if before is None or before.activity != now else 10 * TICK
            )
        elif before is not None and before.stuck == look.stuck and before.activity == now:
            raise self._deadlock(look.stuck, known)

    def _ask(self, numbers: list[int], question: bytes) -> None:
        for number in numbers:
            rank = self.ranks[number]
            if not rank.finished and not rank.control.closed:
                rank.told = False
                try:
                    rank.control.send_bytes(question)
                except OSError:
                    rank.told = True

    def _ask_all(self, question: bytes) -> None:
        """Ask every rank that has not finished, and wait a moment for the answers."""
        unfinished = [number for number, rank in enumerate(self.ranks) if not rank.finished]
        self._ask(unfinished, question)
        until = perf_counter() + GRACE
        while perf_counter() < until:
            waiting = [
                number
                for number in unfinished
                if not self.ranks[number].told
                and not self.ranks[number].control.closed
                and self.ranks[number].process.exitcode is None
            ]
            if not waiting:
                break
            self._turn(TICK)

    # -- failures ------------------------------------------------------------------------------
    def _gather(self, **details: Any) -> dict[str, Any]:
        """What every error carries: the waits, the output and the Trace up to the failure."""
        self._ask_all(b"state")
        self._ask_all(b"rows")
        self._drain()
        waits = [
            wait
            for rank in self.ranks
            if rank.state is not None and not rank.state.finished
            for wait in rank.state.waits
        ]
        return {
            "waits": waits or None,
            "output": self.output.texts(),
            "trace": self._trace("failed"),
            **details,
        }

    def _failure(self, number: int) -> RankError:
        kind, text, lines, _ = self.ranks[number].failure or ("", "", "", False)
        message = f"rank {number} raised {kind}: {text}"
        return RankError(
            f"{message}\n\n{lines}".rstrip(),
            **self._gather(rank=number, traceback=lines, exitcode=None),
        )

    def _death(self, number: int) -> RankError:
        process = self.ranks[number].process
        process.join(GRACE)
        code = process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = (
                "; the system kills a process so when memory runs out"
                if code == -signal.SIGKILL
                else ""
            )
            message = f"rank {number} was killed by {name} before its worker returned{hint}"
        else:
            message = f"rank {number} exited with code {code} before its worker returned"
        return RankError(message, **self._gather(rank=number, exitcode=code))

    def _deadlock(self, stuck: list[int], states: dict[int, RankState]) -> DeadlockError:
        now = perf_counter_ns()
        cycle = find_cycle(stuck, states)
        lines = [
            wait.describe(now)
            for number in stuck
            for wait in states[number].waits
            if wait.op != "lane"
        ]
        done = [number for number, rank in enumerate(self.ranks) if rank.result is not None]
        if done:
            lines.append(
                f"rank{'s' * (len(done) > 1)} {', '.join(map(str, done))} finished and will send no more"
            )
        if cycle and len(cycle) > 1:
            lines.append(
                "cycle: " + " waits for ".join(f"rank {number}" for number in [*cycle, cycle[0]])
            )
        who = (
            "no rank"
            if len(stuck) + len(done) == self.size
            else f"none of ranks {', '.join(map(str, stuck))}"
        )
        details = self._gather(cycle=cycle)
        details["waits"] = [wait for number in stuck for wait in states[number].waits]
        return DeadlockError(f"deadlock: {who} can go on\n  " + "\n  ".join(lines), **details)

    def _timeout(self) -> RunTimeout:
        for rank in self.ranks:
            if not rank.finished and rank.stacks:
                os.kill(rank.process.pid, signal.SIGUSR1)
        details = self._gather()
        stacks = [self._stack(number) for number in range(self.size)]
        now = perf_counter_ns()
        lines = []
        for number, rank in enumerate(self.ranks):
            if rank.finished:
                lines.append(f"rank {number} finished")
                continue
            waits = [] if rank.state is None else rank.state.waits
            lines += [wait.describe(now) for wait in waits if wait.op != "lane"]
            if not waits:
                lines.append(f"rank {number} is {stacks[number][0]}")
        details["traceback"] = "\n".join(
            f"rank {n}\n{text}" for n, (_, text) in enumerate(stacks) if text
        )
        return RunTimeout(
            f"the run took longer than timeout={self.timeout:g} s\n  "
            + "\n  ".join(lines)
            + "\n\n"
            + details["traceback"],
            **details,
        )

    def _stack(self, number: int) -> tuple[str, str]:
        """Where a rank is, in a phrase, and its stacks as faulthandler wrote them."""
        path = self.ranks[number].stacks
        if not path or not os.path.exists(path):
            return "somewhere that it could not tell", ""
        frames, kept = [], []
        for line in open(path).read().splitlines():
            kept.append(line)
            parts = line.strip().split('"')
            if len(parts) == 3 and parts[0] == "File ":
                place = f"{parts[1]}:{parts[2].split()[2]}"
                text = show_line(place).partition(": ")[2]
                if text:
                    kept.append(f"    {text}")
                if f"dlviz{os.sep}cluster" not in parts[1] and "threading.py" not in parts[1]:
                    frames.append(place)
        return (f"at {show_line(frames[0])}" if frames else "in a thread of its own"), "\n".join(
            kept
        )

    # -- taking things in ----------------------------------------------------------------------
    def _drain(self) -> None:
        """Take in what has been said and printed already."""
        while wait_for([rank.output for rank in self.ranks if not rank.output.closed], 0):
            self._turn(0)

    def _drain_output(self) -> None:
        until = perf_counter() + GRACE
        while perf_counter() < until and not all(rank.output.closed for rank in self.ranks):
            for ready in wait_for(
                [rank.output for rank in self.ranks if not rank.output.closed], TICK
            ):
                self._read_output(
                    next(n for n, rank in enumerate(self.ranks) if rank.output is ready)
                )
        self.output.flush()

    def _unpack(self, number: int) -> Any:
        try:
            return pickle.loads(self.ranks[number].result or b"")
        except BaseException as error:
            raise RankError(
                f"rank {number} returned something that cannot be read back here ({type(error).__name__}: {error}): "
                "return tensors, numbers, lists or dicts",
                **self._gather(rank=number),
            ) from None

    def _trace(self, outcome: str) -> Trace:
        reports = [rank.rows for rank in self.ranks if rank.rows is not None]
        clock, machine, tolerance = "wall", "this machine", 0.0
        if self.machine is not None:
            clock, machine, tolerance = "paced", str(self.machine), self.machine.step
        epoch = self.board.get(0, EPOCH)
        meta = {
            "clock": clock,
            "outcome": outcome,
            "machine": machine,
            "tolerance": tolerance,
            "device": self.device,
        }
        return collect.build(reports, self.size, epoch, meta)

    def _warn(self, trace: Trace) -> None:
        if trace.meta.get("warning"):
            warnings.warn(trace.meta["warning"], RuntimeWarning, stacklevel=4)
        if trace.meta["outcome"] == "unreceived":
            rows = [
                row
                for row in trace.messages.rows()
                if row.received is None or math.isnan(row.received)
            ]
            warnings.warn(
                f"rank {rows[0].src} sent rank {rows[0].dst} a message that it never received"
                f"{f' (and {len(rows) - 1} more such)' if len(rows) > 1 else ''}",
                RuntimeWarning,
                stacklevel=4,
            )


# -- arguments -----------------------------------------------------------------------------------
def _check(worker: Any, ranks: Any, machine: Any, device: Any, timeout: Any) -> None:
    if not callable(worker):
        raise TypeError(
            f"worker={worker!r} cannot be called: give a function whose first argument is the Comm."
        )
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise ValueError(f"ranks={ranks!r} is no number of ranks: use a whole number from 1 up.")
    if machine is not None and not isinstance(machine, Machine):
        raise TypeError(
            f"machine={machine!r} is no Machine: use dlviz.machine.classroom({ranks}), or None."
        )
    if machine is not None and machine.ranks != ranks:
        raise ValueError(
            f"machine has {machine.ranks} ranks and the run has ranks={ranks}: make the two the same."
        )
    if (
        not isinstance(timeout, int | float)
        or isinstance(timeout, bool)
        or not 0 < timeout < math.inf
    ):
        raise ValueError(
            f"timeout={timeout!r} is no time to wait: use a number of seconds above 0."
        )
    most = most_ranks()
    if ranks > most:
        raise ValueError(
            f"ranks={ranks} are more than this machine can hold: it has memory for about {most}; use fewer."
        )


def most_ranks() -> int:
    """How many ranks the memory that is free now can hold."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        free = 8 * 2**30
    return max(1, min(free // BYTES_PER_RANK, 256))


def _device(device: str, ranks: int) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={device!r} is not known: use 'auto', 'cpu' or 'cuda'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device='cuda' is not to be had here: torch finds no GPU; use 'cpu' or 'auto'."
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() and torch.cuda.device_count() >= ranks else "cpu"
    return device


def _pack(worker: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> bytes:
    cells = {
        name: entry[2]
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and entry[1] is None
    }
    try:
        worker_alone = cloudpickle.dumps(worker)
    except Exception as error:
        raise TypeError(
            f"the worker {getattr(worker, '__name__', worker)!r} cannot be sent to the ranks ({error}): it, or something "
            "it uses, cannot be pickled; make that inside the worker instead."
        ) from None
    del worker_alone
    try:
        return cloudpickle.dumps(Job(worker, tuple(args), dict(kwargs), dict(os.environ), cells))
    except Exception as error:
        raise TypeError(
            f"args or kwargs cannot be sent to the ranks ({error}): pass things that can be pickled, or make them inside "
            "the worker."
        ) from None
