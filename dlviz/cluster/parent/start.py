"""Starting ranks: fresh processes from a fork server that has torch loaded already (spawned where
there is none).

A fork server starts four ranks in a tenth of a second where spawning takes seconds, and forking it
is safe where forking a notebook's kernel, with its threads, is not.
"""

from __future__ import annotations

import atexit
import fcntl
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import types
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dlviz.cluster.parent.interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
# What ranks would otherwise load one by one, some tens of ms each.
PRELOADED = [
    "dlviz.cluster.rank",
    "dlviz.collectives",
    "dlviz.parallel.data.ddp",
    "dlviz.parallel.model",
    "dlviz.parallel.pipeline",
    "dlviz.parallel.tensor",
    "dlviz.parallel.hybrid",
    "dlviz.federated.rounds",
    "dlviz.models",
    "dlviz.grading.harness.check",
    "dlviz.grading.harness.guard",
    "dlviz.metrics",
    "dlviz.viz",
    # What torch loads when it first makes an optimizer, goes backward from given gradients, or
    # takes gradients under vmap, which takes as long as torch itself; and at its first update.
    "torch._dynamo",
    "torch.profiler._cupti_monitor",
    "dlviz.cluster.parent.huge_pages",  # of all that is above
]
LONGEST = 60  # characters of a folder in which a socket may lie, whose whole path has 107 at most
MARK = "DLVIZ_FORK_SERVER"  # in the environment of the fork server, which imports this package too
ENDING = {signal.SIGINT, signal.SIGTERM}  # what ends a program from outside, often as a group
context: Any = multiprocessing.get_context(METHOD)
inside_rank = False  # set in a rank's process
_lock = threading.Lock()
_owner = os.getpid()  # a process that was forked has no fork server of its own


def is_waiter() -> bool:
    """Whether torchrun has started this process and another one of this host starts the ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"


def warm_up() -> None:
    """Start the fork server, which loads torch while this process goes on."""
    if METHOD != "forkserver" or is_waiter():
        return
    os.register_at_fork(after_in_child=_in_a_fork)
    context.set_forkserver_preload(PRELOADED)
    starting_up = getattr(multiprocessing.current_process(), "_inheriting", False)  # spawned
    if MARK in os.environ:
        atexit.register(_remove_folder, os.getpid())
    elif multiprocessing.parent_process() is None and not starting_up:
        with starting():
            pass
        atexit.register(end_server)


def _in_a_fork() -> None:
    """In a process that was forked: the fork server belongs to its parent. One that the fork server
    forked takes SIGINT and SIGTERM as any process does."""
    global context
    context = multiprocessing.get_context("spawn")
    if MARK in os.environ:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


@contextmanager
def starting() -> Iterator[None]:
    """Around the start of processes: the fork server runs. It hides `__main__`, so that a script
    without a main guard is not run again in each, and marks the environment for the fork server,
    should it start now."""
    with _lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        os.environ[MARK] = "1"
        try:
            if context.get_start_method() == "forkserver":
                _serve()
            yield
        finally:
            del os.environ[MARK]
            sys.modules["__main__"] = main


def program() -> types.ModuleType:
    """The `__main__` of this process, which `starting` hides."""
    with Interrupts(), _lock:  # one that came before the lock's release would leave it held
        return sys.modules["__main__"]


def _serve() -> None:
    """Start the fork server where it does not run. What ends this process, and perhaps its whole
    group, is blocked in it from its first instruction on: an interrupt while it loads torch would
    show its traceback in the notebook, and a process that SIGTERM interrupts has ranks to end."""
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # where it starts one it unblocks SIGINT
    _make_folder()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _make_folder() -> None:
    """Give multiprocessing a folder for its socket. The fork server removes it when it ends, which
    it does with this process however that ends; where it is killed too, a later launch does."""
    config = multiprocessing.current_process()._config  # pyright: ignore[reportAttributeAccessIssue]
    if config.get("tempdir") is None:
        home = tempfile.gettempdir()
        within = home if len(home) <= LONGEST else shared_memory()
        folder = config["tempdir"] = tempfile.mkdtemp(prefix=f"dlviz-{os.getpid()}-", dir=within)
        handle = os.open(folder, os.O_RDONLY)  # for the life of this process: see `_locked`
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def end_server() -> None:
    """End the fork server of this process, which would go on loading torch before it notices that
    this process has gone; not while it has children to report."""
    from multiprocessing import forkserver

    server = forkserver._forkserver
    pid = server._forkserver_pid  # pyright: ignore[reportAttributeAccessIssue]
    if pid is None or os.getpid() != _owner or multiprocessing.active_children():
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _remove_folder(_owner)


def _remove_folder(owner: int) -> None:
    """In the fork server, or for it, when it ends: remove the folder of its socket."""
    from multiprocessing import forkserver

    address = forkserver._forkserver._forkserver_address  # pyright: ignore[reportAttributeAccessIssue]
    folder = os.path.dirname(address or "")
    if os.getpid() == owner and os.path.basename(folder).startswith("dlviz-"):
        shutil.rmtree(folder, ignore_errors=True)


def shared_memory() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


@contextmanager
def run_folder() -> Iterator[str]:
    """A folder in shared memory for one run, removed at the end. Folders of launching processes
    that were killed are removed too."""
    for home in {shared_memory(), tempfile.gettempdir()}:
        _sweep(home)
    folder = tempfile.mkdtemp(prefix=f"dlviz-{os.getpid()}-", dir=shared_memory())
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(on_disk(folder), ignore_errors=True)


def on_disk(folder: str) -> str:
    """Where a run stores files that are too large for shared memory."""
    return os.path.join(tempfile.gettempdir(), os.path.basename(folder) + "-files")


def _sweep(home: str) -> None:
    for name in os.listdir(home):
        match = re.fullmatch(r"dlviz-(\d+)-\w+(-files)?", name)
        folder = os.path.join(home, name)
        if match and not _alive(int(match[1])):
            try:
                with _locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                pass  # another container's run, or gone already


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the folder, for as long as this process lives at most; OSError where another one does.
    Containers may share /dev/shm and not know each other's process numbers."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
