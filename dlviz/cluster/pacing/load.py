"""Who used the processors during a run: its ranks, or other programs.

A paced run that is late had to wait for a processor. What all processors did is the system's
own count (Linux: /proc/stat), what a rank did is its process's; the difference is other programs'.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field


def processors() -> int:
    """How many of them the ranks may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def busy() -> float:
    """Seconds that all processors of the machine have worked; NaN where the system does not say."""
    try:
        with open("/proc/stat") as counts:
            user, nice, system, _, _, irq, softirq, steal = map(int, counts.readline().split()[1:9])
    except (OSError, ValueError):
        return math.nan
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def queued() -> float:
    """Seconds that this thread has been ready to run and had no processor, since it began; 0 where
    the system does not say (Linux: schedstat)."""
    try:
        with open("/proc/thread-self/schedstat") as counts:
            return int(counts.readline().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass
class Use:
    """Of the time since it was made: seconds, this process's on processors, all programs'."""

    began: tuple[float, float, float] = field(default_factory=lambda: _now())

    def report(self) -> dict[str, float]:
        """The three numbers by name."""
        passed = (now - then for now, then in zip(_now(), self.began, strict=True))
        return dict(zip(("elapsed", "own", "all"), passed, strict=True))


def share_of_others(uses: list[dict[str, float]]) -> float | None:
    """The share of the machine's processors that other programs had, by the ranks' reports; None if
    unknown."""
    elapsed, every = (max((use[of] for use in uses), default=math.nan) for of in ("elapsed", "all"))
    others = (every - sum(use["own"] for use in uses)) / ((os.cpu_count() or 1) * elapsed or 1)
    return None if math.isnan(others) else round(min(max(others, 0.0), 1.0), 3)


def _now() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), busy()
