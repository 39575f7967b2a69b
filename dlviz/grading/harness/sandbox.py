"""A student's code in processes of its own, which end it after some seconds or half a gigabyte.

Neither `except:` nor a loop in C puts that end off. Why a run did not come to its end is told in a
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

SECONDS = 5.0  # that a run may take where nothing else runs; one without a fault takes some tenths
SHARED = 4  # programs that may want each core before a run gets more time
LAST = 0.5  # s in which the others say where they are, too
TURN = 0.2  # s between the failures of two ranks, so that of several the first rank's is told
PATIENCE = 60.0  # s more until a run is ended that has not even begun
MEMORY = 512 * 2**20  # bytes that a process may take beyond those that it starts with
NEVER_ENDS = (
    "nothing is stuck, and yet there is no end: which loop around that line goes on for ever, or "
    "what takes so long there?"
)
NOT_WRITTEN = "this function is still to be written, in place of its raise."
HINTS = {  # by what stands in the message
    "NameError": "which cell defines that name? Run it before this one (Run, Run All Above).",
    "NotImplementedError": NOT_WRITTEN,
    "has no tensor": "the first argument is one torch tensor (no list, no array, no number), the "
    "second is the rank.",
    "'Comm' object has no attribute": "the table above the function lists the calls that there "
    "are, spelled as they are to be written.",
    "exited with code": "a rank ended its process. Let the function return instead.",
    "SystemExit": "sys.exit() ends the process. Let the function return instead.",
    "was killed by": "a rank's process was killed, so the others would wait for ever.",
    "MemoryError": "something grows without end: which list or tensor does the loop make longer?",
    "can't allocate memory": "something grows without end: which tensor is that?",
}


class TimeUp(RunError):
    """A run whose ranks were still at work when the time was up. `places` says where each was."""

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
    """Run `worker(comm, *args)` on ranks, paced where a machine is given; one that is no check may
    take so many `times` as long. Raises RunError where it does not come to its end."""
    seconds = times * limit()
    with TemporaryDirectory(prefix="dlviz-grading-") as folder, warnings.catch_warnings():
        # of a message never received, and of a busy machine: a check tells of the one, and minds
        # the other
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
    """The seconds that a run may take now: more where over SHARED programs want each core."""
    return math.ceil(SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / SHARED))


def _bounded(
    comm: Comm,
    stacks: list[str],
    seconds: float,
    at_will: bool,
    worker: Callable[..., Any],
    *args: Any,
) -> Any:
    """`at_will`: nobody looks what the worker calls, which takes its time."""
    with open(stacks[comm.rank], "w") as file:
        # neither needs the GIL; and all have said where they are before the first is ended
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
    except OSError:  # no Linux: the limit of time alone holds it
        return
    resource.setrlimit(resource.RLIMIT_DATA, (taken + MEMORY, taken + MEMORY))


def _stack(file: str) -> list[str]:
    """The frames of the worker, innermost first, that a rank wrote when its time was up."""
    try:
        with open(file) as lines:
            threads = lines.read().split("\n\n")
    except OSError:
        return []
    own = next((text for text in threads if __file__ in text), "")
    return re.findall(r'File "(.+)", line (\d+) in ', own)


def _place(file: str) -> str:
    """Where in the student's code a rank was."""
    own = next((":".join(frame) for frame in _stack(file) if not is_inside(frame[0])), "")
    return f"at {shown_line(own)}" if own else "done, or between two lines"


def ended_by(error: RunError, plain: bool = False) -> str:
    """What ended a run, in a few lines. `plain`: it was a call that knows of no ranks."""
    # without stacks, without lines that are dlviz's own, and without the folders of files
    first = str(error).partition("\n\n")[0]
    if plain:
        first = first.replace("rank 0", "the function")
    first = re.sub(rf", at {re.escape(PACKAGE)}/\S+:\d+: .*", "", first)
    first = re.sub(r"\S+/(?=[^/\s]+:\d+: )", "", first)
    if isinstance(error, DeadlockError | TimeUp):
        return first
    return f"{first.splitlines()[0].rstrip('.')}{in_traceback(error.traceback or '')}"


def why_ended(error: RunError, known: Mapping[str, str] | None = None) -> str:
    """A hint. `known` has those of one assignment, by what stands in the message."""
    text = str(error).partition("\n\n")[0]
    if isinstance(error, DeadlockError):
        return _why_stuck(error, text)
    if isinstance(error, TimeUp):
        return NEVER_ENDS
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
            "receive the same number of messages, or does a `return` or an `except` end one early?"
        )
    if waits and all(wait.op in SENDS for wait in waits):
        return (
            "every rank is in a send, which returns only when the receiver has taken the message, "
            "and nobody receives. Which call starts a send and returns at once?"
        )
    if waits and all(wait.op in RECEIVES for wait in waits):
        if in_transit := _in_transit(error):
            src, dst = in_transit
            waited = next((wait.peer for wait in waits if wait.rank == dst), None)
            return (
                f"messages are under way that nobody receives: rank {src} has sent one to rank "
                f"{dst}, which waits for one from rank {waited}. From which neighbour does a rank "
                "receive, if it sends to the other one?"
            )
        return "every rank waits for a message, and nobody has sent one: who has to begin?"
    return "for one round write down who sends to whom and who receives from whom: do they match?"


def _in_transit(error: DeadlockError) -> tuple[int, int] | None:
    """Sender and receiver of a message that was sent and not received."""
    if error.trace is None:
        return None
    table = error.trace.messages
    lost = np.flatnonzero(~np.isfinite(table.received))
    return (int(table.src[lost[0]]), int(table.dst[lost[0]])) if len(lost) else None
