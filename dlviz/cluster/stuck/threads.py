"""Which threads of a rank can still do something of their own accord."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from dlviz.cluster.stuck.stacks import Called, stacks

# Where threads of libraries sit while they have nothing to do; only other threads wake them up.
RESTING = {
    (os.path.join("tqdm", "_monitor.py"), "run"),
    (os.path.join("futures", "thread.py"), "_worker"),
    (os.path.join("multiprocessing", "queues.py"), "_feed"),
}


def awake(found: Mapping[int, Sequence[Called]]) -> set[int]:
    """The threads (their idents) that run, sleep, or wait for something other than work to do;
    `found` are the stacks of all."""
    return {thread for thread, calls in found.items() if not _rests(calls)}


def join_all(leave: threading.Event, waits: Callable[[], None]) -> list[str]:
    """Wait, as Python does at its end, for the threads that are no daemons, until `leave` is set;
    the names of those that are still running. Calls `waits` once, where it has to wait."""
    left, is_first = [], True
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        while thread.is_alive() and thread.ident in awake(stacks()):
            if leave.is_set():
                left.append(thread.name)
                break
            if is_first:
                waits()
                is_first = False
            thread.join(0.05)
    return left


def _rests(calls: Sequence[Called]) -> bool:
    for (path, _), function in calls:
        if path != threading.__file__:
            file = os.sep.join(path.rsplit(os.sep, 2)[-2:])
            return (file, function.rpartition(".")[2]) in RESTING
    return False
