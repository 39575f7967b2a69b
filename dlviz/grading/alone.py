"""A student's code in processes of its own, which end it after some seconds or half a gigabyte.

Nothing in such a process can put the end off: neither `except:` nor a loop in C. Why a run did not
come to its end is told in a few lines, with one hint.
"""

from __future__ import annotations

import math
import os
import re
import resource
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlviz.cluster import Comm, DeadlockError, Run, RunError, RunTimeout, launch
from dlviz.cluster.waits import RECEIVES, SENDS
from dlviz.grading.feedback import in_traceback

SECONDS = 5.0  # that a run may take where nothing else runs; one without a fault takes some tenths
SHARED = 4
MEMORY = 512 * 2**20  # bytes that a process may take beyond those that it starts with
HINTS = {  # by what stands in the message
    "NotImplementedError": "this function is still to be written, in place of its raise.",
    "has no tensor": "the tensor comes first, then the rank.",
    "'Comm' object has no attribute": "the table above the function lists the calls that there "
    "are, spelled as they are to be written.",
    "exited with code": "a rank ended its process. Let the function return instead.",
    "SystemExit": "sys.exit() ends the process. Let the function return instead.",
    "was killed by": "a rank's process was killed, so the others would wait for ever.",
    "MemoryError": "something grows without end: which list or tensor does the loop make longer?",
    "can't allocate memory": "something grows without end: which tensor is that?",
}


def run_alone(worker: Callable[..., Any], ranks: int, *args: Any) -> Run:
    """Run `worker(comm, *args)` on ranks. Raises RunError where it does not come to its end."""
    with warnings.catch_warnings():  # of a message never received: a check tells of that
        warnings.simplefilter("ignore", RuntimeWarning)
        return launch(_bounded, ranks, device="cpu", timeout=limit(), args=(worker, *args))


def limit() -> float:
    """The seconds that a run may take now: more where over SHARED programs want each core."""
    return math.ceil(SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / SHARED))


def _bounded(comm: Comm, worker: Callable[..., Any], *args: Any) -> Any:
    try:
        with open("/proc/self/status") as lines:
            taken = next(int(line.split()[1]) * 1024 for line in lines if "VmData" in line)
    except OSError:  # no Linux: the limit of time alone holds it
        return worker(comm, *args)
    resource.setrlimit(resource.RLIMIT_DATA, (taken + MEMORY, taken + MEMORY))
    return worker(comm, *args)


def ended_by(error: RunError) -> str:
    """What ended a run, in a few lines."""
    first = _first(error)
    if isinstance(error, RunTimeout):
        seconds, places = re.findall(r"timeout=(\S+) s", first)[0], first.partition("\n")[2]
        return f"the run had not ended after {seconds} s\n{places}"
    if isinstance(error, DeadlockError):
        return first
    return f"{first.splitlines()[0].rstrip('.')}{in_traceback(error.traceback or '')}"


def stopped_at(error: RunTimeout) -> str:
    """Where the first rank was when the time was up: "at cell line 3: while True:"."""
    return next(iter(re.findall(r"^  rank 0 is (at .*)", _first(error), re.M)), "at no known line")


def _first(error: RunError) -> str:
    """The message without stacks and without the folders of files."""
    return re.sub(r"\S+/(?=[^/\s]+:\d+: )", "", str(error).partition("\n\n")[0])


def why_ended(error: RunError, known: Mapping[str, str] | None = None) -> str:
    """A hint. `known` has those of one assignment, by what stands in the message."""
    text = str(error).partition("\n\n")[0]
    if isinstance(error, DeadlockError):
        return _why_stuck(error, text)
    if isinstance(error, RunTimeout):
        return (
            "the ranks are busy or asleep, and wait for no message: does the code at that line "
            "ever come to an end?"
        )
    for sign, hint in {**(known or {}), **HINTS}.items():
        if sign in text:
            return hint
    return (
        "start from the line at which it stopped. To watch it get there, call rehearse with that "
        "number of ranks in a cell of your own."
    )


def _why_stuck(error: DeadlockError, text: str) -> str:
    waits = error.waits or []
    if "finished and will send no more" in text:
        return (
            "some ranks were done while others still waited for them: do all ranks send and "
            "receive the same number of messages?"
        )
    if waits and all(wait.op in SENDS for wait in waits):
        return (
            "every rank is in a send, which returns only when the receiver has taken the message, "
            "and nobody receives. Which call starts a send and returns at once?"
        )
    if waits and all(wait.op in RECEIVES for wait in waits):
        if under_way := _under_way(error):
            src, dst = under_way
            waited = next((wait.peer for wait in waits if wait.rank == dst), None)
            return (
                f"messages are under way that nobody receives: rank {src} has sent one to rank "
                f"{dst}, which waits for one from rank {waited}. From which neighbour does a rank "
                "receive, if it sends to the other one?"
            )
        return "every rank waits for a message, and nobody has sent one: who has to begin?"
    return "for one round write down who sends to whom and who receives from whom: do they match?"


def _under_way(error: DeadlockError) -> tuple[int, int] | None:
    """Sender and receiver of a message that was sent and not received."""
    if error.trace is None:
        return None
    table = error.trace.messages
    lost = np.flatnonzero(~np.isfinite(table.received))
    return (int(table.src[lost[0]]), int(table.dst[lost[0]])) if len(lost) else None
