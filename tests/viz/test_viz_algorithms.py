"""Every all-reduce, run on real ranks and watched: its pictures are its steps, and end in sums."""

from __future__ import annotations

import json
import warnings

import pytest
import torch

import dlviz
from dlviz import viz
from dlviz.collectives import ALGORITHMS, all_reduce
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.sim import collective
from dlviz.viz.scene import Scene
from dlviz.widgets import MessagePlayer

pytestmark = pytest.mark.slow

LENGTH = 24
FAST, SLOW = Link(1e-3, 1e9), Link(2e-3, 1e8)
MACHINES = {
    3: Machine(classroom(1).device, Topology.ring(3, FAST)),
    4: Machine(classroom(1).device, Topology.racks(2, 2, FAST, SLOW)),
    8: Machine(classroom(1).device, Topology.tree(8, 2, FAST, FAST, SLOW)),
}


def watched(comm, algorithm):
    tensor = torch.tensor(viz.encode(comm.rank, comm.size, LENGTH), dtype=torch.float64)
    comm.watch(tensor)
    all_reduce(comm, tensor, algorithm)


def pairs():
    """Each algorithm on one machine: one on that of eight ranks, three on each of the others; all
    of them in the sweep."""
    for i, algorithm in enumerate(ALGORITHMS):
        for j, ranks in enumerate(MACHINES):
            wide = () if j == (2 if i == 2 else i % 2) else pytest.mark.sweep
            yield pytest.param(algorithm, ranks, marks=wide)


@pytest.mark.parametrize(("algorithm", "ranks"), [*pairs()])
def test_a_picture_for_each_round_and_every_rank_once_in_the_end(algorithm, ranks):
    machine = MACHINES[ranks]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a late run shows the same messages
        trace = dlviz.launch(watched, ranks=ranks, machine=machine, args=(algorithm,)).trace
    steps = sorted({*collective(algorithm, ranks, LENGTH, machine).messages.step.tolist()})
    names = [frame.name for frame in Scene(trace).frames]
    assert names == ["start", *(f"round {i} of {len(steps)}" for i in range(1, len(steps) + 1))]
    assert not any(Scene(trace).losses(number) for number in range(len(names)))
    for place in Scene(trace).frames[-1].snapshots.values():
        assert (viz.decode(trace.buffers[place]["array"], ranks) == 1).all()

    state = json.loads(MessagePlayer(trace).state)
    assert state["topology"] == machine.topology.outline
    assert len(viz.messages(trace).frames) == len(names)
    assert len(viz.print.messages(trace).axes) >= len(names)
    assert "pairs talk" in viz.traffic(trace).layout.title.subtitle.text
