"""Ranks that torchrun has started: `launch` joins them instead of starting its own.

    torchrun --standalone --nproc-per-node=4 script.py

Every process runs the script and so calls `launch`; each call is one rank of the run. They meet in
a folder whose name all of them can work out. torchrun watches over the processes: a rank that
raises ends them all. It does not see deadlocks, so those last until `timeout`, when each rank
writes its stacks and exits.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from dlviz.cluster.control.board import EPOCH, Board
from dlviz.cluster.pacing.ledger import bytes_of
from dlviz.cluster.parent.arguments import choose_device
from dlviz.cluster.parent.start import shared_memory
from dlviz.cluster.process import Process
from dlviz.cluster.rank import Job, Place, join, packed, run
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
) -> tuple[list[Any], Trace | None]:
    """Be one rank of a run. Rank 0 gets all results and the Trace, any other its own result."""
    global _launched
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if ranks != size:
        raise ValueError(
            f"ranks={ranks} is not what torchrun started: it started {size}; make the two the same."
        )
    if int(os.environ.get("LOCAL_WORLD_SIZE", size)) != size:
        raise ValueError(
            f"torchrun started {size} ranks on several hosts, which is not supported yet: use "
            "--nnodes=1."
        )
    if dist.is_initialized():
        raise RuntimeError(
            "torch.distributed has a process group already: launch makes its own, so leave out "
            "init_process_group or call destroy_process_group first."
        )
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    folder = os.path.join(shared_memory(), f"dlviz-{os.getppid()}-{attempt:04x}{_launched:04x}")
    _launched += 1
    ledger = bytes_of(machine, size)
    faulthandler.dump_traceback_later(min(timeout, 1e6), exit=True)
    try:
        _meet(folder, rank, size, ledger)
        chosen = choose_device(device, ranks)
        place = Place(folder, rank, size, ledger, chosen, machine)
        process, comm = join(place)
        process.announce = lambda name: None
        over = threading.Event()
        server = _serve(process, over)
        process.own_threads.add(server.ident or 0)
        returned = run(Job(worker, args, kwargs, {}), process, comm)
        result = packed(process, returned, leave=False)
        with open(os.path.join(folder, f"rank-{rank}"), "wb") as file:
            pickle.dump((result, process.rows()), file)
        process.gloo.barrier().wait()
        over.set()
        server.join()
        process.pipes.close()
        if rank:
            return [pickle.loads(result)], None
        found = []
        for other in range(size):
            with open(os.path.join(folder, f"rank-{other}"), "rb") as file:
                found.append(pickle.load(file))
        meta = {**collect.clock_of(machine), "outcome": "completed", "device": chosen}
        rows = [each for _, each in found]
        trace = collect.build(rows, size, process.board.get(0, EPOCH), meta)
        return [pickle.loads(each) for each, _ in found], trace
    finally:
        faulthandler.cancel_dump_traceback_later()
        gc.enable()  # a paced run goes without
        if dist.is_initialized():
            dist.destroy_process_group()
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


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


def _meet(folder: str, rank: int, size: int, ledger: int) -> None:
    """Rank 0 makes the folder and its board, the others wait for them."""
    ready = os.path.join(folder, "ready")
    if rank == 0:
        os.mkdir(folder, 0o700)
        Board(os.path.join(folder, "board"), size, ledger, create=True).close()
        open(ready, "w").close()
    while not os.path.exists(ready):
        time.sleep(0.005)
