"""What a rank holds, by kind, as few rows of the Trace's memory as show how it rises and falls.

    bytes        x         a row (o) for each change, in all or of a kind, by more than a 128th of
               .   .  o    the most so far, and (x) for what was higher than the rows beside it, so
        o . . o     .. o   that peaks are exact

Rows of one rank have times of their own, since rows of one time count as one change: on a paced run
all that is computed at one moment of the device follows within some nanoseconds.
"""

from __future__ import annotations

from dlviz.cluster.recording.log import Log, MemoryEvent

SHARE = 128  # of the highest level so far: smaller changes are left out
APART = 2  # ns between two rows, more than times that count as equal


class Levels:
    """Writes levels into `log`, which leaves out rows that others state meanwhile; what they stated
    before ends with the first one."""

    def __init__(self, log: Log):
        self._log = log
        self._written = {event.what: event.nbytes for event in log.memory}  # the last of each
        self._total = self._highest = 0
        self._passed: tuple[int, dict[str, int], int, float | None] | None = None
        self._wall, self._time = 0, -1.0

    def see(self, total: int, by_kind: dict[str, int], row: bool = False) -> None:
        """The rank holds `total` bytes now; `row`: write it, however small the change."""
        self._highest = max(self._highest, total)
        changes = [total - self._total, *(n - self._written.get(k, 0) for k, n in by_kind.items())]
        if row or max(map(abs, changes)) * SHARE > self._highest:
            if self._passed is not None and self._passed[0] > max(self._total, total):
                self._write(*self._passed[1:])
            self._write(by_kind, *self._log.now())
            self._total, self._passed = total, None
        elif total > (self._total if self._passed is None else self._passed[0]):
            self._passed = total, {**by_kind}, *self._log.now()

    def _write(self, by_kind: dict[str, int], wall: int, time: float | None) -> None:
        self._wall = max(wall, self._wall + APART)
        if time is not None:
            time = self._time = max(time, self._time + APART * 1e-9)
        for what, nbytes in {**dict.fromkeys(self._written, 0), **by_kind}.items():
            if nbytes != self._written.get(what, 0):
                self._written[what] = nbytes
                self._log.memory.append(MemoryEvent(what, nbytes, self._wall, time))
