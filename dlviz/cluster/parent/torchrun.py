"""Ranks that torchrun has started: `launch` joins them instead of starting its own.

    torchrun --standalone --nproc-per-node=4 script.py

Every process runs the script and so calls `launch`; each call is one rank of the run. They meet in
a folder whose name all of them can work out. torchrun watches over the processes: a rank that
raises ends them all. It does not see deadlocks, so those last until `timeout`, when each rank
writes its stacks and exits.

On several hosts (`--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host:port`) it is as without
torchrun: see cluster/hosts.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import torch.distributed as dist

from dlviz.cluster.control.board import EPOCH, Board
from dlviz.cluster.hosts import join as hosts
from dlviz.cluster.pacing.ledger import bytes_of
from dlviz.cluster.parent.arguments import choose_device
from dlviz.cluster.parent.start import shared_memory
from dlviz.cluster.process import Process
from dlviz.cluster.rank import Place, WorkerCall, join, packed, run
from dlviz.cluster.recording import collect
from dlviz.cluster.stuck.watch import TICK
from dlviz.machine import Machine
from dlviz.trace import Trace

_launched = 0  # runs that this process has joined


def started_this() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def join_run(
    worker: Callable[..., Any],
    ranks: int,
    machine: Machine | None,
    device: str,
    timeout: float,
    args: tuple,
    kwargs: dict[str, Any],
) -> tuple[list[Any], list[str], Trace | None]:
    """Be one rank of a run. Rank 0 gets all results and the Trace, any other its own result; what
    was printed is there where the run is on several hosts."""
    global _launched
    rank = int(os.environ["RANK"])
    _check(ranks)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    folder = os.path.join(shared_memory(), f"dlviz-{os.getppid()}-{attempt:04x}{_launched:04x}")
    run = f"{attempt} {_launched}"
    _launched += 1
    if os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        return hosts.join_run(folder, run, worker, machine, device, timeout, args, kwargs)
    call = WorkerCall(worker, args, kwargs, {})
    return _join_here(call, folder, rank, ranks, machine, device, timeout)


def _join_here(
    call: WorkerCall,
    folder: str,
    rank: int,
    ranks: int,
    machine: Machine | None,
    device: str,
    timeout: float,
) -> tuple[list[Any], list[str], Trace | None]:
    """The same where all ranks are on this host."""
    faulthandler.dump_traceback_later(min(timeout, 1e6), exit=True)
    try:
        _meet(folder, rank, ranks, machine)
        chosen = choose_device(device, ranks)
        place = Place(folder, rank, ranks, bytes_of(machine, ranks), chosen, machine)
        result, process = _work(place, call)
        if rank:
            return [pickle.loads(result)], [""], None
        return _gather(folder, ranks, machine, chosen, process.board.get(0, EPOCH))
    finally:
        faulthandler.cancel_dump_traceback_later()
        gc.enable()  # a paced run goes without
        if dist.is_initialized():
            dist.destroy_process_group()
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def check_may_lose(may_lose: Collection[int]) -> None:
    """Raise where ranks are to be lost."""
    if may_lose:
        raise ValueError(
            f"may_lose={may_lose!r} cannot be kept under torchrun, which ends all ranks when one "
            "dies: run the script by python, so that launch starts the ranks."
        )


def _check(ranks: int) -> None:
    """Raise where this is no place for a run of so many ranks."""
    size = int(os.environ["WORLD_SIZE"])
    if ranks != size:
        raise ValueError(
            f"ranks={ranks} is not what torchrun started: it started {size}; make the two the same."
        )
    if dist.is_initialized():
        raise RuntimeError(
            "torch.distributed has a process group already: launch makes its own, so leave out "
            "init_process_group or call destroy_process_group first."
        )


def _work(place: Place, call: WorkerCall) -> tuple[bytes, Process]:
    """Make the call as one of the ranks and leave what came of it in the folder: this rank's
    result, once all have done so."""
    process, comm = join(place)
    process.announce = lambda name: None
    over = threading.Event()
    server = _serve(process, over)
    process.own_threads.add(server.ident or 0)
    result = packed(process, run(call, process, comm), leave=False)
    with open(os.path.join(place.folder, f"rank-{place.rank}"), "wb") as file:
        pickle.dump((result, process.rows()), file)
    process.gloo.barrier().wait()
    over.set()
    server.join()
    process.pipes.close()
    return result, process


def _gather(
    folder: str, ranks: int, machine: Machine | None, device: str, epoch: int
) -> tuple[list[Any], list[str], Trace]:
    """All results, no outputs, and the Trace."""
    found = []
    for rank in range(ranks):
        with open(os.path.join(folder, f"rank-{rank}"), "rb") as file:
            found.append(pickle.load(file))
    meta = {**collect.clock_of(machine), "outcome": "completed", "device": device}
    trace = collect.build([rows for _, rows in found], ranks, epoch, meta)
    return [pickle.loads(result) for result, _ in found], [""] * ranks, trace


def _serve(process: Process, over: threading.Event) -> threading.Thread:
    """Start a thread that takes messages while all others compute, since no parent asks for it. It
    ends when the run is over."""

    def serve() -> None:
        while not over.wait(TICK):
            if process.waiting.wanted:
                process.serve()

    thread = threading.Thread(target=serve, name="dlviz", daemon=True)
    thread.start()
    return thread


def _meet(folder: str, rank: int, ranks: int, machine: Machine | None) -> None:
    """Rank 0 makes the folder and its board, the others wait for them."""
    ready = os.path.join(folder, "ready")
    if rank == 0:
        os.mkdir(folder, 0o700)
        ledger = bytes_of(machine, ranks)
        Board(os.path.join(folder, "board"), ranks, ledger, create=True).close()
        open(ready, "w").close()
    while not os.path.exists(ready):
        time.sleep(0.005)
