"""How far the clocks of two hosts are apart, by rounds of ping-pong.

    here    t0 ----.              .---> t3        t1 - t0 = delay there + offset
                    \\            /               t2 - t3 = offset - delay back
    there            `-> t1  t2 -'

The offset (there less here) is taken as ((t1 - t0) + (t2 - t3)) / 2, which is exact if both delays
are equal. As neither is negative, the error is at most half of the round trip, (t3 - t0) - (t2 -
t1): the shortest of many rounds is the best. Between two readings, before and after a run, the
offset lies on the line through both: clocks drift.

Times are integers, nanoseconds of perf_counter.

Source: D. L. Mills, "Internet time synchronization: the Network Time Protocol", IEEE Transactions
on Communications 39(10), 1991.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

DRIFT = 1e-3  # a clock that gains more than this, in s a second, was stepped


class PingPong(NamedTuple):
    """One round: sent here, received there, sent there, received here."""

    t0: int
    t1: int
    t2: int
    t3: int


class Reading(NamedTuple):
    """The other clock less this one, a bound on the error, and when it was read (here)."""

    offset: int
    error: int
    when: int

    def later(self, when: int) -> Reading:
        """The same at a later time, to which the clock may have drifted."""
        drift = ceil(DRIFT * (when - self.when))
        return self._replace(error=self.error + drift, when=when)


def read(rounds: Iterable[PingPong]) -> Reading:
    """The reading of the shortest of the rounds."""
    t0, t1, t2, t3 = min(rounds, key=_round_trip)
    offset = ((t1 - t0) + (t2 - t3)) // 2
    return Reading(offset, -(-_round_trip(PingPong(t0, t1, t2, t3)) // 2) + 1, (t0 + t3) // 2)


def _round_trip(each: PingPong) -> int:
    return (each.t3 - each.t0) - (each.t2 - each.t1)


@dataclass(frozen=True)
class ClockLine:
    """The other clock between two readings. `to_here` turns its times into this one's; they are
    wrong by `error` at most, where the clock has drifted evenly."""

    before: Reading
    after: Reading

    def to_here(self, there: int) -> int:
        unmoved = there - self.before.offset  # as if it had not drifted since
        passed = unmoved - self.before.when
        return unmoved - round(passed * self._gain / (1 + self._gain))

    @property
    def error(self) -> int:
        """A step of the clock between the readings is added: its time is unknown."""
        worst = max(self.before.error, self.after.error)
        return worst + self.moved if self.stepped else worst

    @property
    def moved(self) -> int:
        """By how much the readings differ."""
        return abs(self.after.offset - self.before.offset)

    @property
    def stepped(self) -> bool:
        """Whether the readings differ by more than drift and their errors explain."""
        most = DRIFT * (self.after.when - self.before.when)
        return self.moved > self.before.error + self.after.error + most

    @property
    def _gain(self) -> float:
        lasted = self.after.when - self.before.when
        return (self.after.offset - self.before.offset) / lasted if lasted > 0 else 0.0
