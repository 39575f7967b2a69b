"""What runs in a rank's process: join the others, run the worker, report, and stay until all are done."""

from __future__ import annotations

import gc
import linecache
import os
import pickle
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter_ns
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from dlviz.cluster.board import EPOCH, Board
from dlviz.cluster.comm import Comm, PeerLost
from dlviz.cluster.process import Process
from dlviz.machine import Machine

WORLD = 1  # the group number of the communicator of all ranks


@dataclass(frozen=True)
class Place:
    """Where a rank is to join: its run's folder, its number, and what the run is on."""

    folder: str
    rank: int
    ranks: int
    links: int
    device: str
    machine: Machine | None
    stacks: str  # file to which it writes its stacks when it gets SIGUSR1


@dataclass(frozen=True)
class Job:
    """What every rank does. `cells` are the sources of notebook cells, for tracebacks."""

    worker: Any
    args: tuple
    kwargs: dict[str, Any]
    environ: dict[str, str]
    cells: dict[str, list[str]]


def main(place: Place, control: Any, output: Any) -> None:
    """Entry of a rank's process. `control` is its Connection to the parent, `output` takes what it prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _print_to(output)
    report = Report(control)
    try:
        job: Job = pickle.loads(control.recv_bytes())
    except EOFError:
        os._exit(1)
    except BaseException as error:
        report.failed(error, None)
        _stay(control)
        return
    os.environ.update(job.environ)
    for name, lines in job.cells.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    try:
        process, comm = join(place)
    except BaseException as error:
        report.failed(error, None)
        _stay(control)
        return
    process.announce = lambda name: report.say("progress", name)
    listener = threading.Thread(
        target=_listen, args=(control, report, process), name="dlviz", daemon=True
    )
    listener.start()
    process.own_threads.add(listener.ident or 0)
    run(job, process, comm, report)
    _flush()
    report.released.wait()
    os._exit(0)


def join(place: Place) -> tuple[Process, Comm]:
    """Connect to the other ranks; returns when all are connected."""
    if place.stacks:
        import faulthandler

        faulthandler.register(signal.SIGUSR1, file=open(place.stacks, "w"), all_threads=True)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    board = Board(os.path.join(place.folder, "board"), place.ranks, place.links)
    store = dist.FileStore(os.path.join(place.folder, "store"), place.ranks)
    dist.init_process_group(
        "gloo", store=store, rank=place.rank, world_size=place.ranks, timeout=timedelta(days=1)
    )
    ledger = os.path.join(place.folder, "ledger")
    device = torch.device(place.device)
    if device.type == "cuda":
        device = torch.device("cuda", place.rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    process = Process(place.rank, place.ranks, board, store, device, place.machine, ledger)
    process.gloo = dist.group.WORLD._get_backend(torch.device("cpu"))
    comm = Comm(process, tuple(range(place.ranks)), WORLD, "world")
    comm._group = process.gloo
    process.gloo.barrier().wait()
    if place.rank == 0:
        board.put(0, EPOCH, perf_counter_ns())
    process.gloo.barrier().wait()
    if process.clock is not None:
        process.clock.epoch = board.get(0, EPOCH)
        gc.collect()
        gc.disable()  # a collection of ours would show as the device's lateness
    return process, comm


def run(job: Job, process: Process, comm: Comm, report: Report) -> None:
    """Run the worker and report its result or its failure."""
    try:
        result = job.worker(comm, *job.args, **job.kwargs)
        for lane in list(process.lanes):
            lane.close()
        comm.hold()
        if process.recorder.on:
            process.snapshot()
    except BaseException as error:
        report.failed(error, process)
        return
    try:
        packed = cloudpickle.dumps(result)
    except BaseException as error:
        report.failed(
            TypeError(
                f"rank {process.rank} returned a {type(result).__name__} that cannot be sent back ({error}): return "
                "tensors, numbers, lists or dicts"
            ),
            process,
        )
        return
    report.say("done", packed, process.rows(), process.state(finished=True))


class Report:
    """What a rank tells its parent, from whichever thread."""

    def __init__(self, control: Any):
        self.released = threading.Event()
        self._control = control
        self._lock = threading.Lock()

    def say(self, *message: Any) -> None:
        packed = pickle.dumps(message)
        with self._lock:
            self._control.send_bytes(packed)

    def failed(self, error: BaseException, process: Process | None) -> None:
        """Send the exception as text, without dlviz's own frames at either end."""
        rows = state = None
        try:
            kind, text = _what(error)
            lines = _user_traceback(error)
            if process is not None:
                rows, state = process.rows(), process.state(finished=True)
            self.say("failed", kind, text, lines, isinstance(error, PeerLost), rows, state)
        except MemoryError:
            self.say("failed", "MemoryError", "out of memory", "", False, None, None)


def _what(error: BaseException) -> tuple[str, str]:
    if isinstance(error, SystemExit):
        return "SystemExit", f"called sys.exit({error.code!r})"
    return type(error).__name__, str(error)


def _user_traceback(error: BaseException) -> str:
    trace = traceback.TracebackException.from_exception(error)
    own = os.path.join("dlviz", "cluster", "rank.py")
    trace.stack = traceback.StackSummary.from_list(
        [frame for frame in trace.stack if not frame.filename.endswith(own)]
    )
    return "".join(trace.format())


def _listen(control: Any, report: Report, process: Process) -> None:
    """Answer the parent's questions; leave with it when it has gone."""
    while True:
        try:
            question = control.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)
        if question == b"release":
            report.released.set()
            return
        if question == b"state":
            report.say("state", process.state(finished=report.released.is_set()))
        elif question == b"rows":
            report.say("rows", process.rows())


def _stay(control: Any) -> None:
    """A rank that failed before it joined waits for the parent to end the run."""
    try:
        control.recv_bytes()
    except (EOFError, OSError):
        pass


def _print_to(output: Any) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
