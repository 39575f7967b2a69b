"""The pace of a rank: on the wall clock everything takes what it takes, on a paced run what the
Machine says.

`NoPace` and `Pace` (paced.py) answer the same questions, so that nothing else asks which of the two
it has: a device's, and those of each of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan as NAN
from time import perf_counter_ns
from typing import Any, NamedTuple

from dlviz.cluster.pacing.ledger import Departure
from dlviz.trace.recorder import Recorder, Span, WallPace

GONE = Departure(-1, -1, NAN, NAN)  # when a message leaves: when it is sent


class Earliest(NamedTuple):
    """The choice of a receive from several ranks: the message that it takes, or None if its
    deadline is `over`, or it looks again after `left` seconds (None: when something arrives). On a
    paced run it goes on by itself at device time `until`."""

    message: Any
    over: bool = False
    left: float | None = None
    until: float | None = None


class NoDevice:
    """The device of a rank on the wall clock."""

    epoch = 0
    defers = False  # a synchronous sender's message is taken when its bytes are
    expect = None  # called with each header that arrives

    def lane(self, name: str) -> NoPace:
        return NoPace(self)

    def serve_with(self, waiting: Any) -> None:
        """Sleep as `waiting` does."""

    def full(self) -> bool:
        """Whether too many of this rank's messages are in transit for one more."""
        return False

    def take_stock(self) -> None:
        """Make room for messages to this rank."""

    def finish(self) -> None:
        """Wait until all that this rank has sent has left its port."""

    def booked(self, departure: Departure) -> tuple[float, float]:
        """When a message was sent and had arrived (device seconds)."""
        return NAN, NAN

    def read_times(self) -> None:
        """Complete the times of what has been recorded."""

    def report(self) -> dict[str, Any]:
        """How late the run was."""
        return {}


class NoPace(WallPace):
    """The pace of a lane on the wall clock."""

    span = Span
    time = None  # device seconds
    ahead = NAN  # the device time of a receive that is posted now

    def __init__(self, device: Any):
        self._device = device

    def begin(self, ahead: float = 0.0) -> None:
        """The lane's first operation starts now."""

    def settle(self) -> None:
        """Sleep until the wall clock has reached the lane's time, before its next operation."""

    pay = settle

    def wait_until(self, seconds: float | None) -> None:
        """What the lane waits for can be used from that device time on."""

    def restart(self, ahead: float = 0.0) -> None:
        """What follows starts now, however long its setup took."""

    def now(self) -> float:
        """Seconds from the run's start."""
        return (perf_counter_ns() - self._device.epoch) * 1e-9

    def idles(self, idle: Callable[[], bool] | None = None) -> None:
        """The lane sends nothing while `idle()`; by default while its thread has ended."""

    def stir(self) -> None:
        """What `idle()` says has changed."""

    def compute(
        self, recorder: Recorder, kind: str, name: str | None, seconds: float | None, fields: Any
    ) -> Any:
        """The span of an operation."""
        return recorder.open(kind, name, fields, whole=False)

    def depart(self, peer: int, nbytes: int) -> Departure:
        """A message is ready to be sent."""
        return GONE

    def sent(self, departure: Departure) -> None:
        """A send was waited for."""

    def taken(self, departure: Departure, when: float) -> None:
        """A synchronous send was waited for; its message was taken at device time `when`."""

    def arrived(self, header: Any) -> tuple[float | None, float | None]:
        """A message was waited for: when this rank's port had it, and when the lane goes on."""
        return None, None

    def reduced(self, nbytes: int) -> None:
        """A message was added to what was there."""

    def earliest(self, come: Callable[[], Sequence[Any]], deadline: float | None) -> Earliest:
        """The first to be delivered of those that have `come()` from several ranks, by the deadline
        if there is one."""
        first = min(come(), key=lambda header: header.wall, default=None)
        if first is not None or deadline is None:
            return Earliest(first)
        left = deadline - self.now()
        return Earliest(None, over=left <= 0, left=max(left, 0.0))

    def collective(self, start: Any, op: str, members: Sequence[int], nbytes: int) -> None:
        """One of the backend's own collectives is over, that began at the latest rank's `start`."""
