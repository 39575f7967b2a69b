"""What runs in a rank's process: join the others, run the worker, report, stay until the end."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import fcntl
import gc
import linecache
import logging
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

import torch
import torch.distributed as dist

from dlviz.cluster import program
from dlviz.cluster.control import Control
from dlviz.cluster.control.board import EPOCH, Board
from dlviz.cluster.control.one_host import OneHost
from dlviz.cluster.errors import RankLost
from dlviz.cluster.hosts.network import Network
from dlviz.cluster.hosts.ranks import SeveralHosts, choose_by_host
from dlviz.cluster.messages.comm import Comm
from dlviz.cluster.messages.requests import PeerLost
from dlviz.cluster.parent import start
from dlviz.cluster.parent.inherited import Inherited
from dlviz.cluster.process import Process
from dlviz.cluster.recording import exceptions
from dlviz.cluster.recording.results import pack
from dlviz.cluster.stuck.threads import join_all
from dlviz.cluster.stuck.waits import name_cells
from dlviz.cluster.transport import Transport
from dlviz.cluster.transport.choose import choose
from dlviz.cluster.transport.devices import DeviceTransport
from dlviz.cluster.transport.nccl import Nccl, have_own
from dlviz.cluster.warm import warm_up
from dlviz.machine import Machine
from dlviz.trace.recorder import PACKAGE, is_inside

WORLD = 1  # the group number of the communicator of all ranks
LAST = 5e-3  # s
RESERVE = 8 * 2**20  # bytes set aside for the report of a rank that has no memory left
GLOO_SAYS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@dataclass(frozen=True)
class Place:
    """Where a rank is to join: its run's folder, its number, and what the run is on."""

    folder: str
    rank: int
    ranks: int
    ledger: int  # bytes
    device: str
    machine: Machine | None
    may_lose: frozenset[int] = frozenset()
    network: Network | None = None  # where the run is on several hosts

    @property
    def stacks(self) -> str:
        """The file for its stacks: when it crashes, and when it gets SIGUSR1."""
        return os.path.join(self.folder, f"stacks-{self.rank}")


@dataclass(frozen=True)
class WorkerCall:
    """What every rank does. `cells` are the sources of notebook cells, for tracebacks."""

    worker: Any
    args: tuple
    kwargs: dict[str, Any]
    cells: dict[str, list[str]]
    inherited: Inherited | None = None


@dataclass(frozen=True)
class Failure:
    """An exception that ended a rank's worker, as text; `when` is perf_counter_ns."""

    summary: str  # "ValueError: no such thing"
    traceback: str
    lost_peer: bool  # it says that another rank has gone, and is a consequence of that
    when: int
    exitcode: int | None = None  # of sys.exit
    error: exceptions.Links = field(default_factory=list)


def main(place: Place, control: Any, output: Any, environ: dict[str, str]) -> None:
    """Entry of a rank's process. `control` is its Connection to the parent, `output` takes what it
    prints, `environ` is the parent's environment. Does not return: the parent ends this process."""
    _settle(place, output)
    os.environ.clear()
    os.environ.update(environ)
    try:
        parcel = control.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
    channel = ControlChannel(control)
    listener = threading.Thread(target=channel.listen, name="dlviz", daemon=True)
    listener.start()
    try:
        program.settle(channel.fetch)
        call: WorkerCall = program.loads(parcel)
        del parcel  # as large as the model in it, of which a worker may need a part
        for name, lines in call.cells.items():
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        process, comm = join(place)
        process.announce = channel.send
        process.own_threads.add(listener.ident or 0)
        channel.process = process
        result = run(call, process, comm)  # held: large tensors are fetched from this process
        parcel = packed(process, result)
    except BaseException as error:
        channel.failed(error)
    else:
        flush()
        rows, state = process.rows(), process.state(finished=True)
        channel.send("done", parcel, rows, state, process.left_running)
    listener.join()


def _settle(place: Place, output: Any) -> None:
    """Make this process a rank's: a group of its own, tied to the parent, its output captured."""
    _forget_exits()
    gc.freeze()  # a collection would copy, page by page, what the fork server has loaded
    start.inside_rank = True
    multiprocessing.current_process().daemon = False  # it may have children: a DataLoader's
    os.setpgid(0, 0)  # they end with it; and an interrupt is for the parent alone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that came before
    signal.pthread_sigmask(signal.SIG_UNBLOCK, start.ENDING)  # the fork server blocks them
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _die_with_parent()
    _adopt()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    stacks = open(place.stacks, "w")  # noqa: SIM115 (open for the rank's life)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)


def _forget_exits() -> None:
    """What the fork server has registered for its end is not for this process's."""
    atexit._clear()
    finalize: Any = weakref.finalize
    for each in finalize._registry.values():
        each.atexit = False
    finalize._registered_with_atexit = False
    atexit.register(logging.shutdown)


def _die_with_parent() -> None:
    """Have the system kill this process and its children when the parent has gone, even while a
    loop in C holds the interpreter so that no thread can notice (Linux; elsewhere the listener)."""
    parent = multiprocessing.parent_process()
    if sys.platform == "linux" and parent is not None:
        set_signal = 10  # F_SETSIG
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(parent.sentinel, set_signal, signal.SIGKILL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, os.O_ASYNC)


def _adopt() -> None:
    """Have the system make what this process starts its own child again when the process between
    has ended, so that the parent finds it and ends it (Linux)."""
    if sys.platform == "linux":
        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def join(place: Place) -> tuple[Process, Comm]:
    """Connect to the other ranks; returns when all are connected."""
    _schedule(paced=place.machine is not None)
    store = _join_group(place)
    board = Board(os.path.join(place.folder, "board"), place.ranks, place.ledger)
    control = _control(place, board, store)
    process = Process(place.folder, place.rank, store, control, _device(place), place.machine)
    process.waiting.may_lose = place.may_lose
    process.gloo = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))

    def sync() -> None:
        process.gloo.barrier().wait()

    process.transport = _transport(process, store, place, sync)
    comm = Comm(process, tuple(range(place.ranks)), WORLD, "world")
    if place.machine is not None:
        warm_up(process, place.ranks)
    if place.rank == 0:
        board.put(0, EPOCH, perf_counter_ns())
    sync()
    control.share_epoch(process.gloo)
    process.pacing.epoch = board.get(0, EPOCH)
    if place.machine is not None:
        comm.recorder.lane.pace.run_begins()
        gc.disable()  # a collection would show as the device's lateness
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # recorded objects stay: no need to scan them often
    return process, comm


def _control(place: Place, board: Board, store: Any) -> Control:
    if place.network is not None:
        return SeveralHosts(place.folder, place.rank, board, store, place.network)
    return OneHost(place.folder, place.rank, board)


def _schedule(paced: bool) -> None:
    """Set how this process shares the cores with the other ranks."""
    torch.set_num_threads(1)
    if not paced and hasattr(os, "SCHED_BATCH"):
        # A thread that a message wakes must not push aside its sender, which may hold a lock of
        # gloo's: gloo would spin on it for a time slice. (Paced sleeps must end sharply instead.)
        with suppress(OSError):  # a container may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _join_group(place: Place) -> Any:
    """Make torch's process group of all ranks; the store in which they find each other."""
    if place.network is not None:
        return place.network.join_group(place.rank)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    path = os.path.join(place.folder, "store")
    store = dist.FileStore(path, place.ranks)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group(
        "gloo", store=store, rank=place.rank, world_size=place.ranks, timeout=timedelta(days=1)
    )
    return store


def _device(place: Place) -> torch.device:
    device = torch.device(place.device)
    if device.type == "cuda":
        first = 0 if place.network is None else place.network.here.ranks[0]
        device = torch.device("cuda", (place.rank - first) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def _transport(process: Process, store: Any, place: Place, sync: Callable[[], None]) -> Transport:
    """The transport of this run; all ranks call it. On GPUs NCCL, where each rank has one of its
    own and none may be lost, for a communicator does not outlive its ranks."""
    rank, ranks, device = place.rank, place.ranks, process.device
    parts = place.folder, rank, process.board, process.gloo, sync
    here = place.network
    host = choose(*parts) if here is None else choose_by_host(*parts, here)
    if device.type != "cuda" or not have_own(store, rank, ranks, device) or place.may_lose:
        return host
    nccl = Nccl(store, rank, ranks, device)
    return DeviceTransport(host, nccl, rank, process.pipes, process.waiting)


def run(call: WorkerCall, process: Process, comm: Comm) -> Any:
    """Run the worker until it and the threads it started are done; returns its result."""
    if call.inherited is not None:
        call.inherited.settle(process.rank)
    result = call.worker(comm, *call.args, **call.kwargs)
    if process.machine is not None:
        time.sleep(LAST)  # others reach their last operation, which what is left must not delay
    process.own_threads.add(threading.get_ident())  # from here on it waits for the others alone
    for lane in list(process.lanes):
        lane.close()
    process.left_running = join_all(process.leaves, lambda: process.announce("returned"))
    process.own_threads.discard(threading.get_ident())
    atexit._run_exitfuncs()
    process.settle()
    if process.recorder.on:
        process.log.snapshot()
    return result


def packed(process: Process, result: Any) -> bytes:
    """The result, pickled; TypeError where that cannot be."""
    alone = process.control.reaches(range(process.board.ranks))  # on one host, its parent's
    folder = None if process.transport.reaches else process.folder
    try:
        return pack(result, alone, folder)
    except OSError:  # there is no room for it
        raise
    except Exception as error:
        raise TypeError(
            f"rank {process.rank} returned a {type(result).__name__} that cannot be sent back "
            f"({error}): return tensors, numbers, lists or dicts."
        ) from None


class ControlChannel:
    """From a rank to its parent and back, for whichever thread."""

    def __init__(self, control: Any):
        self.process: Process | None = None  # once it has joined the others
        self._reserve = mmap.mmap(-1, RESERVE)
        self._control = control
        self._lock, self._fetching = threading.Lock(), threading.Lock()
        self._fetched: SimpleQueue[bytes] = SimpleQueue()

    def send(self, *message: Any) -> None:
        packed = pickle.dumps(message)
        with self._lock:
            self._control.send_bytes(packed)

    def fetch(self, name: str) -> bytes:
        """What the program has by that name; see `program.answer`."""
        with self._fetching:
            self.send("program", name)
            return self._fetched.get()

    def failed(self, error: BaseException) -> None:
        """Report the exception that ended the worker, even where it is out of memory; then do what
        is registered for the end, which may take for ever."""
        self._reserve.close()
        if self.process is not None and self.process.rank in self.process.waiting.may_lose:
            self.process.recorder.lane.pace.pay()  # it is lost at that time of its device
        failure = describe(error)
        flush()
        rows = state = None
        if self.process is not None:
            rows, state = self.process.rows(), self.process.state(finished=True)
        self.send("failed", failure, rows, state)
        atexit._run_exitfuncs()
        flush()
        self.send("exited")

    def listen(self) -> None:
        """Answer the parent's questions; end with it when it has gone."""
        while True:
            try:
                data = self._control.recv_bytes()
            except (EOFError, OSError):
                os.killpg(os.getpid(), signal.SIGKILL)
            if data.startswith(b"program"):
                self._fetched.put(data.removeprefix(b"program"))
                continue
            question = data.decode()
            if question == "rows":
                flush()
            answer = None if self.process is None else getattr(self.process, question)()
            if question != "serve":
                self.send(question, answer)


def describe(error: BaseException) -> Failure:
    exception = traceback.TracebackException.from_exception(error)
    summary = "".join(exception.format_exception_only()).strip()
    frames = list(exception.stack)
    while frames and frames[0].filename == __file__:
        del frames[0]
    if isinstance(error, ValueError | PeerLost | RankLost):  # end at the caller's line
        last = [is_inside(frame.filename) for frame in frames]
        if last and frames[-1].filename.startswith(PACKAGE) and not all(last):
            del frames[len(last) - last[::-1].index(False) :]
    exception.stack = traceback.StackSummary.from_list(frames)
    exitcode = None
    if isinstance(error, SystemExit):
        exitcode = error.code if isinstance(error.code, int) else int(error.code is not None)
    lines = name_cells("".join(exception.format()).rstrip())
    when = perf_counter_ns()
    return Failure(summary, lines, _lost_peer(error), when, exitcode, exceptions.pack(error))


def _lost_peer(error: BaseException) -> bool:
    """Whether the error, or one that led to it, says that a connection to another rank broke."""
    seen: set[int] = set()
    onward: BaseException | None = error
    while onward is not None and id(onward) not in seen:
        if isinstance(onward, RankLost):  # the run knows, and goes on
            return False
        broke = isinstance(onward, RuntimeError) and any(it in str(onward) for it in GLOO_SAYS)
        if broke or isinstance(onward, PeerLost):
            return True
        seen.add(id(onward))
        onward = onward.__cause__ or onward.__context__
    return False


def flush() -> None:
    """Pass on what this process printed, C code included."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the worker closed it, or put something else in its place
    ctypes.CDLL(None).fflush(None)
