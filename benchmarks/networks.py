"""Paced all-reduces over networks by the wall clock against the same ones simulated.

The device times of a paced run are those of the simulated one by construction; here only the wall
columns count, which are clock readings. A message takes 1 ms or more. The peer is the simulation.

Where all ranks end at the same moment, an all-reduce is run several times in a row, as nccl-tests
does: eight ranks that end together on two cores read their clocks one after the other, the last of
them about 1 ms late. That happens once, however long they ran; the remark gives the error of a
single all-reduce.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.table import Row, take_turns
from dlviz import launch, metrics, sim
from dlviz.collectives import all_reduce
from dlviz.machine import Link, Machine, Topology, classroom

LINK, SLOW = Link(1e-3, 1e8), Link(2e-3, 2e7)  # 1 ms and 10 us a KB; 2 ms and 50 us a KB
NBYTES = 240_000
IN_A_ROW = 10
CASES = [  # and how many in a row
    ("ring", "switch of 4", Topology.switch(4, LINK), IN_A_ROW),
    ("parameter_server", "switch of 6", Topology.switch(6, LINK), 1),
    ("direct", "switch of 8", Topology.switch(8, LINK), IN_A_ROW),
    ("butterfly", "switch of 8", Topology.switch(8, LINK), IN_A_ROW),
    ("ring", "ring of 6", Topology.ring(6, LINK), IN_A_ROW),
    ("ring", "racks of 2 x 4", Topology.racks(2, 4, LINK, SLOW), IN_A_ROW),
    ("hierarchical", "racks of 2 x 4", Topology.racks(2, 4, LINK, SLOW), IN_A_ROW),
    ("halving_doubling", "tree of 8", Topology.tree(8, 2, LINK, SLOW, SLOW), IN_A_ROW),
    ("tree", "tree of 8", Topology.tree(8, 2, LINK, SLOW, SLOW), IN_A_ROW),
]


def reduce(comm: Any, algorithm: str, times: int) -> None:
    """`times` all-reduces of NBYTES, after one that makes the connections."""
    tensor = torch.ones(NBYTES, dtype=torch.uint8)
    all_reduce(comm, tensor, algorithm)
    comm.barrier()
    with comm.span("phase", "measured"):
        for _ in range(times):
            all_reduce(comm, tensor, algorithm)


def measured(algorithm: str, machine: Machine, times: int) -> float:
    """Seconds from the first rank's start to the last rank's end, by the wall columns, for one of
    `times` all-reduces."""
    run = launch(reduce, ranks=machine.ranks, machine=machine, args=(algorithm, times))
    spans = run.trace.spans
    ours = spans.name == "measured"
    return float(spans.wall_end[ours].max() - spans.wall_start[ours].min()) / times


def rows() -> list[Row]:
    runs = {}
    for algorithm, where, topology, times in CASES:
        machine = Machine(classroom(topology.ranks).device, topology)
        for count in {times, 1}:
            runs[algorithm, where, count] = partial(measured, algorithm, machine, count)
    took = take_turns(runs)
    found = []
    for algorithm, where, topology, times in CASES:
        machine = Machine(classroom(topology.ranks).device, topology)
        played = metrics.makespan(sim.collective(algorithm, topology.ranks, NBYTES, machine))
        ours = median(took[algorithm, where, times])
        alone = median(took[algorithm, where, 1]) / played - 1
        remark = f"{times} in a row; one alone {alone:+.2%}" if times > 1 else ""
        name = f"paced {algorithm}, {where}"
        found.append(Row(name, ours, played, ours / played, within=0.03, remark=remark))
    return found
