"""What a run sends and waits for along each axis of its mesh, from the groups in its Trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from worked_traces import stages_that_communicate

import dlviz
from dlviz import collectives, metrics
from dlviz.analysis.axes import axes
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.trace import Trace

FAST, SLOW = Link(0.0, 1e9), Link(0.0, 1e8)
TWO_NODES = Topology.racks(2, 4, FAST, SLOW)
FOUR_NODES = Topology.racks(4, 2, FAST, SLOW)


def test_axes_and_their_groups_are_named_by_the_messages_the_neighbours_axis_last():
    trace = stages_that_communicate()
    trace.validate()
    found = axes(trace)
    assert [*found] == ["dp", "pp", "tp"]
    assert found["dp"].groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert found["pp"].groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert found["tp"].groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert axes(Trace()) == {}


def test_each_message_is_of_one_axis_and_one_direction():
    trace = stages_that_communicate()
    found = axes(trace)
    first, last = np.array([1, 1, 0, 0] * 2), np.array([0, 0, 1, 1] * 2)
    assert found["tp"].sent.tolist() == [4 * 60] * 8
    assert found["tp"].forward.tolist() == found["tp"].backward.tolist() == [2 * 60] * 8
    assert found["pp"].sent.tolist() == [2 * 40] * 8
    assert found["pp"].forward.tolist() == (2 * 40 * first).tolist()
    assert found["pp"].backward.tolist() == (2 * 40 * last).tolist()
    assert found["dp"].sent.tolist() == [200] * 8
    assert not (found["dp"].forward + found["dp"].backward).any()
    assert (sum(axis.sent for axis in found.values()) == metrics.bytes_sent(trace)).all()


@pytest.mark.parametrize(
    "topology, crossing",
    [
        (TWO_NODES, {"dp": 200, "pp": 0, "tp": 0}),
        (FOUR_NODES, {"dp": 200, "pp": 80, "tp": 0}),
        (Topology.racks(8, 1, FAST, SLOW), {"dp": 200, "pp": 80, "tp": 240}),
        (Topology.switch(8, FAST), {"dp": 0, "pp": 0, "tp": 0}),
        (None, {"dp": 0, "pp": 0, "tp": 0}),
    ],
)
def test_what_goes_between_nodes_follows_from_the_placement(topology, crossing):
    found = axes(stages_that_communicate(), topology)
    assert {name: axis.between.tolist() for name, axis in found.items()} == {
        name: [nbytes] * 8 for name, nbytes in crossing.items()
    }


def test_seconds_of_an_axis_are_exposed_where_its_rank_does_not_compute():
    found = axes(stages_that_communicate())
    first, last = np.array([1, 1, 0, 0] * 2), np.array([0, 0, 1, 1] * 2)
    assert found["tp"].seconds.tolist() == found["tp"].exposed.tolist() == [4.0] * 8
    assert found["pp"].seconds.tolist() == (11 * first + 4.5 * last).tolist()  # 7 + 4
    assert found["pp"].exposed.tolist() == found["pp"].seconds.tolist()
    assert found["dp"].seconds.tolist() == [2.0] * 8
    assert found["dp"].exposed.tolist() == (2 * first + 1 * last).tolist()  # until 24.5 it computes


def test_one_step_is_separated_from_the_others():
    later = stages_that_communicate(step=3)
    assert axes(later, step=3)["tp"].sent.tolist() == [240] * 8
    with pytest.raises(ValueError, match="step=0 has no span in this Trace: its steps are 3 to 3"):
        axes(later, step=0)


# -- a run ---------------------------------------------------------------------------------------
def communicate(comm):
    """On each mesh of 8 ranks an all-reduce of 240 float32 over the last axis, one by the backend
    over the second, and over the first a message onward; step n is mesh n."""
    for step, names in enumerate([("dp", "pp", "tp"), ("tp", "dp", "pp")]):
        mesh = comm.mesh(**dict.fromkeys(names, 2))
        slow, middle, fast = (getattr(mesh, name) for name in names)
        tensor = torch.ones(240)
        with comm.span("step", step=step):
            collectives.all_reduce(fast, tensor)
            middle.all_reduce(tensor)
            if slow.rank == 0:
                slow.send(tensor[:7], 1)
            else:
                slow.recv(tensor[:7], 0)


def test_a_run_on_two_meshes_says_what_each_placement_sends_between_nodes():
    machine = Machine(Device("d", 1e12, 1e12, 1e12), TWO_NODES, step=0.001)
    trace = dlviz.launch(communicate, 8, machine=machine).trace
    trace.validate()
    onward = [28] * 4 + [0] * 4
    for step, names in enumerate([("dp", "pp", "tp"), ("tp", "dp", "pp")]):
        found = axes(trace, step=step)
        assert tuple(found) == names
        slow, middle, fast = found.values()
        assert fast.sent.tolist() == [960] * 8  # 2(n-1)/n of 960, n = 2
        assert middle.sent.tolist() == [0] * 8 and (middle.seconds > 0).all()
        assert slow.sent.tolist() == onward
        assert slow.between.tolist() == onward  # the nodes are those of the run's own machine
        assert not (fast.between + middle.between).any()
        assert fast.groups == ((0, 1), (2, 3), (4, 5), (6, 7))
        assert (fast.seconds > 0).all() and (slow.seconds[4:] > 0).all()
