"""A lane: a thread of a rank that works through what is submitted to it while the rank's own
program goes on.

DDP's communication lane is one: during backward it all-reduces the buckets that are ready, in
order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dlviz.cluster.memory import watched
from dlviz.trace.recorder import LaneSpans


class Handle:
    """Something submitted to a lane. `wait()` returns its result, or raises what it raised."""

    def __init__(
        self, comm: Any, function: Callable[..., Any], args: tuple, spans: LaneSpans | None = None
    ):
        submitter = comm.recorder.lane
        self._spans = spans  # those of the lane, which the thread that waits is to record
        self._comm = comm
        self._function = function
        self._args = args
        self._context = submitter.context  # its spans carry the submitter's step
        self._origin = submitter.place(2)
        # device time at which it was submitted (paced runs)
        self._ready = self._end = submitter.pace.time
        self._over = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._waited = False

    def run(self) -> None:
        lane = self._comm.recorder.lane
        lane.context, lane.origin = self._context, self._origin
        lane.pace.wait_until(self._ready)
        try:
            with watched():
                self._result = self._function(self._comm, *self._args)
        except BaseException as error:  # for the thread that waits
            self._error = error
        self._end = lane.pace.time
        self._over.set()

    def wait(self, **fields: Any) -> Any:
        """Wait until the lane has done it; recorded as a `wait` with `fields` (bucket=3, say)."""
        waiting, lane = self._comm.waiting, self._comm.recorder.lane
        with self._comm.span("wait", f"for lane {self._comm.name.rpartition('.')[2]}", **fields):
            if self._spans is not None and not self._over.is_set():
                with self._comm.recorder.writing_to(self._spans):
                    self.run()
            lane.pace.pay()  # what comes before the wait ends at its own time
            if not self._over.is_set():
                waiting.register("lane", lane, None)
                lane.pace.idles(lambda: not self._over.is_set())
                self._over.wait()
                lane.pace.idles()
                waiting.unregister()
            lane.pace.wait_until(self._end)
            lane.pace.settle()
        self._waited = True
        if self._error is not None:
            raise self._error
        return self._result

    def settle(self) -> None:
        """Have the lane no longer work on it, whatever it raises, so that its tensors can be freed;
        what only a wait would begin does not begin."""
        if self._spans is None or self._over.is_set():
            with suppress(Exception):
                self.wait()

    def unseen(self) -> BaseException | None:
        """The error it raised, unless somebody has waited for it."""
        return None if self._waited else self._error


class Lane:
    """Made by `comm.lane(name)`. `comm` is the lane's own communicator, for use inside what is
    submitted. It is one of `lanes` of its rank until it is closed."""

    def __init__(self, comm: Any, name: str, lanes: list[Lane]):
        self.comm = comm
        self._lanes = lanes
        self._submitted = self._finished = 0
        self._jobs: queue.SimpleQueue[Handle | None] = queue.SimpleQueue()
        self._failed: list[Handle] = []
        self._name = name
        self._spans: Any = None  # until its thread has opened it
        opened = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(opened,), name=name, daemon=True)
        self._thread.start()
        opened.wait()
        self.ident = self._thread.ident
        lanes.append(self)

    @property
    def idle(self) -> bool:
        return self._submitted == self._finished

    def submit(self, function: Callable[..., Any], *args: Any) -> Handle:
        """Run `function(lane.comm, *args)` on the lane after all that was submitted before."""
        handle = Handle(self.comm, function, args)
        self._submitted += 1
        self._spans.pace.stir()
        self._jobs.put(handle)
        return handle

    @property
    def at_once(self) -> bool:
        """Whether the thread that waits for the next job can do it itself: the lane is idle, and
        has neither a clock nor a stream of its own."""
        return self.idle and self.comm.machine is None and self.comm.device.type == "cpu"

    def at_wait(self, function: Callable[..., Any], *args: Any) -> Handle:
        """`submit` for what is waited for next. The thread that waits does it, recorded on this
        lane, where it can: waking the lane's thread would take longer than a short all-reduce."""
        if not self.at_once:
            return self.submit(function, *args)
        return Handle(self.comm, function, args, self._spans)

    def close(self) -> None:
        """End the thread once it has done what was submitted; raises the error of a job that nobody
        waited for."""
        self._jobs.put(None)
        self._thread.join()
        self._lanes.remove(self)
        for error in filter(None, map(Handle.unseen, self._failed)):
            raise error

    def _work(self, opened: threading.Event) -> None:
        self._spans = self.comm.recorder.open_lane(self._name)
        self._spans.pace.idles(lambda: self.idle)
        opened.set()
        while True:
            job = self._jobs.get()
            if job is None:
                self._spans.pace.pay()  # it may have had nothing to do for long: that is not late
                return
            job.run()
            if job.unseen():
                self._failed.append(job)
            self._finished += 1
            self._spans.pace.stir()
            if self._jobs.empty():
                self.comm.hold()  # nothing to send next: the wall clock may catch up
