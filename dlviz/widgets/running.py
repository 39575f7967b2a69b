"""A run on real ranks that a widget starts: it reports its progress and can be stopped.

    "Run it"                         the run goes on in a thread: widget and cells answer meanwhile
    "Stop"; an interrupt of the      the ranks are gone within a second, and the widget says so
    kernel; other controls

Runs of one process take turns, since two at a time would disturb each other's times.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import traitlets

from dlviz.trace import Trace
from dlviz.viz.words import text
from dlviz.widgets.requests import Answer, answer_requests, sentence
from dlviz.widgets.view import View, compact

Progress = Callable[[str | None, int, int], None]  # what a run does, how far it is, of how much
Found = tuple[dict[str, Any], Trace]  # what the front end shows of a run, and its Trace

WAIT = "wait"  # reported by a run that waits for its turn
TURN = 0.1  # s between two looks at whether a run that waits for its turn was stopped

_turn = threading.Lock()
_running: set[Attempt] = set()


class Stopped(Exception):
    """The reader has stopped the run."""


class Attempt:
    """One run of a widget, from its start to its end."""

    def __init__(self, widget: Runner, work: Callable[[Progress], Found]):
        self.widget, self.work = widget, work
        self.cold = "dlviz.cluster" not in sys.modules  # PyTorch has to be loaded first
        self.stopped = False

    def progress(self, what: str | None, done: int, total: int) -> None:
        """Called by the run many times a second. Raises Stopped once the run has to end."""
        if self.stopped:
            raise Stopped
        self.widget.progress(self, what, done, total)

    def wait(self) -> None:
        """Wait for the turn."""
        while not _turn.acquire(timeout=TURN):
            self.progress(WAIT, 0, 0)


class Runner(View):
    """A widget that runs on real ranks what its controls say.

    `run()` does what its button does, and returns when the run has ended; `stop()` ends a run.
    `doing` shows front ends how far the run is, as JSON; "" while there is none.
    """

    doing = traitlets.Unicode("").tag(sync=True)

    clock: ClassVar[str] = "paced"  # of its runs

    _attempt: Attempt | None = None  # in progress
    _run: dict[str, Any] | None = None  # what the last one found, or why it found nothing
    _measured: Trace | None = None
    _ran = 0

    def __init__(self, trace: Trace, state: dict[str, Any], theme: str):
        self._lock = threading.RLock()  # over what front end and run change
        super().__init__(trace, state, theme)
        answer_requests(self, self.requests(), self._lock)

    def requests(self) -> dict[str, Callable[..., Answer]]:
        """What front ends may ask for, and what answers it."""
        return {"run": self._start, "stop": self.stop}

    def work(self) -> Callable[[Progress], Found]:
        """The run that the present controls ask for. ValueError where none is possible."""
        raise NotImplementedError

    def show(self) -> None:
        """Send the front end the whole state again."""
        raise NotImplementedError

    def set_state(self, sync_data: dict[str, Any]) -> None:
        with self._lock:
            super().set_state(sync_data)

    def run(self) -> None:
        """Run what is chosen on real ranks, paced, and show what was measured."""
        attempt = self._begin()
        if attempt:
            self._carry_out(attempt)

    def stop(self) -> None:
        """End the run in progress, if there is one."""
        with self._lock:
            if self._attempt:
                self._end(self._attempt, {"stopped": "The run was interrupted."})

    def progress(self, attempt: Attempt, what: str | None, done: int, total: int) -> None:
        """Show the front end how far a run is."""
        doing: dict[str, Any] = {"says": doing_words(what, done, total, attempt.cold, self.clock)}
        if what and total:
            doing["share"] = done / total
        summary = compact(doing)
        with self._lock:
            if attempt is self._attempt and summary != self.doing:
                self.doing = summary

    def forget(self) -> None:
        """Drop what the last run found, since the controls changed; end a run in progress."""
        with self._lock:
            self._run = self._measured = None
            self.halt()

    def halt(self) -> None:
        """End a run in progress: a control was changed."""
        with self._lock:
            current, self._attempt = self._attempt, None
            if current:
                current.stopped = True
                self._run = {"stopped": "The run was stopped: a control was changed."}
                self._measured = None
                self.doing = ""

    def saved_state(self) -> dict[str, Any]:
        return {**super().saved_state(), "doing": ""}

    def _start(self) -> None:
        attempt = self._begin()
        if attempt:
            _hear_interrupts()
            threading.Thread(target=self._carry_out, args=(attempt,), daemon=True).start()

    def _begin(self) -> Attempt | None:
        """Begin a run and show that; None where one is in progress or none is possible."""
        with self._lock:
            if self._attempt:
                return None
            try:
                attempt = Attempt(self, self.work())
            except ValueError as error:
                self._run, self._measured = {"error": sentence(error)}, None
                self._ran += 1
                self.show()
                return None
            self._attempt = attempt
            self.progress(attempt, None, 0, 0)
            self.show()
            return attempt

    def _carry_out(self, attempt: Attempt) -> None:
        """Run it and show what was measured, or why nothing was."""
        found: dict[str, Any] = {"stopped": "The run was interrupted."}
        trace = None
        _running.add(attempt)
        try:
            attempt.wait()
            try:
                attempt.progress(None, 0, 0)
                found, trace = attempt.work(attempt.progress)
            finally:
                _turn.release()
        except Stopped:
            pass
        except Exception as error:  # any error is shown where the reader looks
            found = {"error": sentence(error)}
        finally:
            _running.discard(attempt)
            self._end(attempt, found, trace)

    def _end(self, attempt: Attempt, run: dict[str, Any], trace: Trace | None = None) -> None:
        """Show how a run ended, unless that was shown already."""
        with self._lock:
            attempt.stopped = True
            if attempt is not self._attempt:
                return
            self._attempt, self._run, self._measured = None, run, trace
            self._ran += 1
            self.show()
            self.doing = ""


def doing_words(what: str | None, done: int, total: int, cold: bool, clock: str = "paced") -> str:
    """What a run does now."""
    if what == WAIT:
        return "Waiting for another widget's run to end …"
    if what:
        return f"Running on real ranks, {clock}: {what} {min(done + 1, total)} of {total} …"
    loading = "Loading PyTorch for this kernel's first run, then starting the ranks"
    summary = loading if cold else "Starting the ranks"
    return f"{summary}: {done} of {total} have started …" if done else f"{summary} …"


def late_words(late: float, bound: float, ranks: int, factor: float = 1.0) -> str:
    """That a paced run was `late` s late, and why; "" up to `bound`. Written in the widget's time,
    a second of which took `factor` s."""
    if late <= bound:
        return ""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    cause = "other programs slowed it: run it again"
    if ranks > cores:
        many = f"{cores} core{'s' * (cores > 1)}"
        cause = f"its {ranks} ranks share {many}: run it again, or fewer"
    return f"The run was {text.seconds(late / factor)} late, since {cause}."


def _hear_interrupts() -> None:
    """Have an interrupt of the kernel end the runs in progress. Between two cells it would do
    nothing, and it may come to any thread: the loop of the main thread has to be woken."""
    if "ipykernel.kernelbase" not in sys.modules:
        return
    from ipykernel.kernelbase import Kernel

    if not Kernel.initialized():
        return
    loop: Any = Kernel.instance().io_loop

    def stop() -> None:
        for attempt in [*_running]:
            attempt.widget.stop()

    def hear() -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # no cell runs
            loop.asyncio_loop.add_signal_handler(signal.SIGINT, stop)

    loop.add_callback(hear)
