"""Starting ranks: fresh processes from a fork server that has torch loaded already (spawned where there is none).

A fork server starts four ranks in a tenth of a second where spawning takes seconds, and forking it is safe where
forking a notebook's kernel, with its threads, is not.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import types
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
context = multiprocessing.get_context(METHOD)
MARK = "DLVIZ_FORK_SERVER"
_lock = threading.Lock()


def warm_up() -> None:
    """Start the fork server, which loads torch while this process goes on."""
    if METHOD != "forkserver" or MARK in os.environ or multiprocessing.parent_process() is not None:
        return
    from multiprocessing import forkserver

    context.set_forkserver_preload(["dlviz.cluster.rank"])
    os.environ[MARK] = (
        "1"  # tells the server, which imports this package too, that it is the server
    )
    try:
        with without_main():
            forkserver.ensure_running()
    finally:
        del os.environ[MARK]


@contextmanager
def without_main() -> Iterator[None]:
    """Hide `__main__` while processes start, so that a script without a main guard is not run again in each."""
    with _lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def run_folder() -> str:
    """A new folder in shared memory for one run; folders of processes that are gone are removed on the way."""
    home = (
        "/dev/shm"
        if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK)
        else tempfile.gettempdir()
    )
    for name in os.listdir(home):
        match = re.fullmatch(r"dlviz-(\d+)-[0-9a-f]+", name)
        if match and not _alive(int(match[1])):
            shutil.rmtree(os.path.join(home, name), ignore_errors=True)
    folder = os.path.join(home, f"dlviz-{os.getpid()}-{secrets.token_hex(4)}")
    os.mkdir(folder, 0o700)
    return folder


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
