"""Making and simulating a large schedule, against torch's making and spacing of the same one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from benchmarks import making
from benchmarks.table import Row, compare, take_turns

MOST = 0.6  # seconds
MOST_MEMORY = 1000.0  # MB


def seconds(call: Callable[[], None]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def peak_memory(name: str) -> float:
    """MB of a fresh Python that makes the schedule once."""
    run = [sys.executable, "-m", "benchmarks.making", name]
    return float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def rows() -> list[Row]:
    making.ours(), making.torchs()  # imports
    times = take_turns(
        {"ours": lambda: seconds(making.ours), "peer": lambda: seconds(making.torchs)}
    )
    own, peer = peak_memory("ours"), peak_memory("peer")
    what = f"{making.ACTIONS:,} actions made and simulated"
    return [
        compare(what, times["ours"], times["peer"], target=10.0, most=MOST),
        Row(f"{what}: memory", own, peer, peer / own, 1.0, "MB", most=MOST_MEMORY),
    ]
