"""A placement learned: 1,000 samples of the table on the lab's ten groups and four devices.

The peer of the time is its limit.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

from benchmarks.placement import DEVICES
from benchmarks.table import Row, take_turns
from dlviz.models.placer import learn
from dlviz.sim.placement import LAB

SAMPLES, MOST = 1000, 2.0  # s


def seconds() -> float:
    start = perf_counter()
    learn(LAB, DEVICES, samples=SAMPLES)
    return perf_counter() - start


def rows() -> list[Row]:
    ours = median(take_turns({"table": seconds}, 3)["table"])
    what = f"placement: {SAMPLES:,} samples of the table"
    return [Row(what, ours, MOST, MOST / ours, 1.0, most=MOST)]
