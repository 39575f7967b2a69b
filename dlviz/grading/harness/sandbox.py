"""A student's code in separate processes, limited to some seconds and half a gigabyte.

Neither `except:` nor a loop in C evades the limits. A run that did not finish is explained in a
few lines, with one hint.
"""

from __future__ import annotations

import faulthandler
import math
import os
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dlviz.cluster import RECEIVES, SENDS, Comm, DeadlockError, Run, RunError, launch, results
from dlviz.grading.harness import plain
from dlviz.grading.harness.feedback import PACKAGE, in_traceback, shown_line
from dlviz.grading.harness.guard import refusing
from dlviz.machine import Machine
from dlviz.trace.recorder import is_inside

SECONDS = 5.0  # that a run may take on an idle machine; a correct one takes some tenths
SHARED = 4  # programs per core above which a run gets more time
LAST = 0.5  # s for the other ranks to write their stacks too
TURN = 0.2  # s between the failures of two ranks, so that the first rank's is reported
PATIENCE = 60.0  # s more until a run that has not even begun is ended
MEMORY = 512 * 2**20  # bytes that a process may allocate beyond those at its start
NEVER_ENDS = (
    "the ranks do not wait for each other, but the run does not end: which loop around that line "
    "never stops, or what takes so long there?"
)
NOT_WRITTEN = "this function is still to be written, in place of its raise."
HINTS = {  # by a phrase of the error
    "NameError": "which cell defines that name? Run it before this one (Run, Run All Above).",
    "NotImplementedError": NOT_WRITTEN,
    "has no tensor": "the first argument is one torch tensor (no list, no array, no number), the "
    "second is the rank.",
    "'Comm' object has no attribute": "the table above the function lists all calls with their "
    "spelling.",
    "exited with code": "a rank ended its process. Let the function return instead.",
    "SystemExit": "sys.exit() ends the process. Let the function return instead.",
    "was killed by": "a rank's process was killed, so the others would wait for ever.",
    "MemoryError": "something grows without limit: which list or tensor does the loop make longer?",
    "can't allocate memory": "something grows without limit: which tensor is that?",
}


class TimeUp(RunError):
    """A run whose ranks were still running when the time was up. `places`: the line of each."""

    def __init__(self, seconds: float, places: list[str], error: RunError):
        summary = [f"rank {rank} is {place}" for rank, place in enumerate(places)]
        super().__init__(
            "\n  ".join([f"the run had not ended after {seconds:g} s", *summary]),
            output=error.output,
            trace=error.trace,
        )
        self.places = places


def run_alone(
    worker: Callable[..., Any],
    ranks: int,
    *args: Any,
    machine: Machine | None = None,
    times: int = 1,
) -> Run:
    """Run `worker(comm, *args)` on ranks, paced if a machine is given; an experiment may take so
    many `times` as long. Raises RunError if it does not finish."""
    seconds = times * limit()
    with TemporaryDirectory(prefix="dlviz-grading-") as folder, warnings.catch_warnings():
        # of unreceived messages, which a check reports, and of a busy machine, which it allows for
        warnings.simplefilter("ignore", RuntimeWarning)
        stacks = [os.path.join(folder, str(rank)) for rank in range(ranks)]
        try:
            given = (stacks, seconds, machine is not None or times > 1, worker, *args)
            with results.finding(plain.find):
                return launch(_bounded, ranks, machine, "cpu", PATIENCE + seconds, args=given)
        except RunError as error:
            if any(map(_stack, stacks)):
                raise TimeUp(seconds, [*map(_place, stacks)], error) from None
            raise


def limit() -> float:
    """The seconds that a run may take now: more if over SHARED programs share each core."""
    return math.ceil(SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / SHARED))


def _bounded(
    comm: Comm,
    stacks: list[str],
    seconds: float,
    at_will: bool,
    worker: Callable[..., Any],
    *args: Any,
) -> Any:
    """`at_will`: the worker's calls are not watched, since that takes time."""
    with open(stacks[comm.rank], "w") as file:
        # neither needs the GIL; all ranks have written their stacks before the first is ended
        faulthandler.dump_traceback_later(seconds, file=file)
        signal.setitimer(signal.ITIMER_REAL, seconds + LAST)
        try:
            _bound_memory()
            with nullcontext() if at_will else refusing():
                left = worker(comm, *args)
            plain.require(left)
            return left
        except Exception:
            time.sleep(TURN * comm.rank)
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()


def _bound_memory() -> None:
    try:
        with open("/proc/self/status") as lines:
            taken = next(int(line.split()[1]) * 1024 for line in lines if "VmData" in line)
    except OSError:  # not Linux: only the time limit applies
        return
    resource.setrlimit(resource.RLIMIT_DATA, (taken + MEMORY, taken + MEMORY))


def _stack(file: str) -> list[str]:
    """The worker's frames, innermost first, that a rank wrote when its time was up."""
    try:
        with open(file) as lines:
            threads = lines.read().split("\n\n")
    except OSError:
        return []
    own = next((text for text in threads if __file__ in text), "")
    return re.findall(r'File "(.+)", line (\d+) in ', own)


def _place(file: str) -> str:
    """A rank's line in the student's code."""
    own = next((":".join(frame) for frame in _stack(file) if not is_inside(frame[0])), "")
    return f"at {shown_line(own)}" if own else "done, or between two lines"


def ended_by(error: RunError, plain: bool = False) -> str:
    """What ended a run, in a few lines. `plain`: the student's function knows of no ranks."""
    # without stacks, dlviz's own lines, and the folders of files
    first = str(error).partition("\n\n")[0]
    if plain:
        first = first.replace("rank 0", "the function")
    first = re.sub(rf", at {re.escape(PACKAGE)}/\S+:\d+: .*", "", first)
    first = re.sub(r"\S+/(?=[^/\s]+:\d+: )", "", first)
    if isinstance(error, DeadlockError | TimeUp):
        return first
    return f"{first.splitlines()[0].rstrip('.')}{in_traceback(error.traceback or '')}"


def why_ended(error: RunError, known: Mapping[str, str] | None = None) -> str:
    """A hint. `known` has those of one assignment, by a phrase of the error."""
    text = str(error).partition("\n\n")[0]
    if isinstance(error, DeadlockError):
        return _why_stuck(error, text)
    if isinstance(error, TimeUp):
        return NEVER_ENDS
    for sign, hint in {**(known or {}), **HINTS}.items():
        if sign in text:
            return hint
    return (
        "start from the line at which it stopped. To watch the run up to there, call rehearse with "
        "that number of ranks in a new cell."
    )


def _why_stuck(error: DeadlockError, text: str) -> str:
    waits = error.waits or []
    if "finished and will send no more" in text:
        return (
            "some ranks were done while others still waited for them: do all ranks send and "
            "receive the same number of messages, or does a `return` or an `except` end one early?"
        )
    if waits and all(wait.op in SENDS for wait in waits):
        return (
            "every rank is in a send, which returns only when the message has been received, and "
            "nobody receives. Which call starts a send and returns immediately?"
        )
    if waits and all(wait.op in RECEIVES for wait in waits):
        if in_transit := _in_transit(error):
            src, dst = in_transit
            waited = next((wait.peer for wait in waits if wait.rank == dst), None)
            return (
                f"messages are in flight that nobody receives: rank {src} has sent one to rank "
                f"{dst}, which waits for one from rank {waited}. From which neighbour does a rank "
                "receive, if it sends to the other one?"
            )
        return "every rank waits for a message, and nobody has sent one: which rank has to begin?"
    return "for one round, write down who sends to whom and who receives from whom: do they match?"


def _in_transit(error: DeadlockError) -> tuple[int, int] | None:
    """Sender and receiver of a message that was sent but not received."""
    if error.trace is None:
        return None
    table = error.trace.messages
    lost = np.flatnonzero(~np.isfinite(table.received))
    return (int(table.src[lost[0]]), int(table.dst[lost[0]])) if len(lost) else None
