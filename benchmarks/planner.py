"""Every plan for a Transformer of 8.3 B parameters, on 512 and on 4,096 devices; the published run
of it on 512, tp 8 x dp 64 at 15.1 PFLOP/s, beside the planner's prediction.

The peer of a time is its limit. The planner counts math at the device's peak, so that its
rate lies above the published one, which is stated. Source: M. Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from time import perf_counter

from benchmarks.table import Row, take_turns
from dlviz.machine import Link, Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.sim import TransformerShape, plans

MOST = 2.0  # seconds, for 512 devices
SHAPE = TransformerShape(72, 3072, 32, 51200, 1024)
PUBLISHED = 15.1e15


def machine(devices: int) -> Machine:
    """Nodes of 16 V100, with 8 EDR adapters out of each."""
    edr = LINKS["InfiniBand EDR"].link
    between = Link(edr.latency, 8 * edr.bandwidth)
    topology = Topology.racks(devices // 16, 16, LINKS["NVLink 2"].link, between)
    return Machine(DEVICES["V100 SXM2 32GB"].device, topology, step=None)


def seconds(devices: int) -> float:
    start = perf_counter()
    plans(SHAPE, machine(devices), devices, devices)
    return perf_counter() - start


def rows() -> list[Row]:
    found = []
    for devices, runs in take_turns({n: partial(seconds, n) for n in (512, 4096)}, 3).items():
        ours, target = median(runs), 1.0 if devices == 512 else None
        most = MOST if devices == 512 else None
        what = f"planner: every plan of {devices:,} devices"
        found.append(Row(what, ours, MOST, MOST / ours, target, most=most))
    fitting = [row for row in plans(SHAPE, machine(512), 512, 512) if row["fits"]]
    theirs = [row for row in fitting if (row["dp"], row["tp"]) == (64, 8)]
    place = fitting.index(theirs[0]) + 1
    recomputed = next(row for row in theirs if row["recompute"] == "full")
    for what, row in (("best", theirs[0]), ("recomputed", recomputed)):
        remark = f"plan {place} of {len(fitting)} that fit" if row is theirs[0] else ""
        rate = SHAPE.flops(512) / row["seconds"]
        title = f"planner: tp 8 x dp 64, {what} (PFLOP/s)"
        found.append(
            Row(title, rate / 1e15, PUBLISHED / 1e15, rate / PUBLISHED, unit="", remark=remark)
        )
    return found
