"""One placement played: every Trace obeys the rules, and takes no less than the bounds."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dlviz.analysis.path import critical_path
from dlviz.machine import Link
from dlviz.sim import Devices, Graph, bounds, count, play, seconds_of, upward_ranks
from dlviz.sim.placement import BRANCHES, LAB, missing, recurrent

CHAIN = Graph([1, 2, 3], [(), (0,), (1,)], [1, 1, 1], [10, 20, 30])
FREE = Link(0, math.inf)


def graph(draw, groups, devices):
    """A random graph; unless `devices` is None, with seconds of their own on each of so many."""

    def row():
        return draw.randint(0, 4) / 2

    seconds = [[row() for _ in range(devices)] if devices else row() for _ in range(groups)]
    parents = [[p for p in range(g) if draw.random() < 0.4] for g in range(groups)]
    nbytes = [draw.randint(0, 3) for _ in range(groups)]
    return Graph(seconds, parents, nbytes)


def some(seed):
    """A graph, devices and a placement for each of many seeds: awkward ones too."""
    draw = random.Random(seed)
    own, link = draw.randint(1, 4), Link(draw.choice([0, 0.1, 1]), draw.choice([0.7, 2, math.inf]))
    made = graph(draw, draw.randint(1, 9), draw.choice([None, own]))
    factors = draw.choice([None, [draw.choice([1, 1.5, 3]) for _ in range(own)]])
    return made, Devices(own, link, factors), [draw.randrange(own) for _ in made.seconds]


def on(trace, rank, lane):
    """The spans of a lane, in order."""
    spans = trace.spans[(trace.spans.rank == rank) & (trace.spans.lane == lane)]
    return spans[np.lexsort((spans.end, spans.start))]


def obeys(made, devices, placement, trace):
    """Asserts every rule of the player from the Trace alone."""
    trace.validate()
    close, eps = pytest.approx, 1e-9
    compute = trace.spans[trace.spans.lane == "compute"]
    start = dict(zip(compute.stage.tolist(), compute.start.tolist(), strict=True))
    end = dict(zip(compute.stage.tolist(), compute.end.tolist(), strict=True))
    assert compute.rank.tolist() == placement and sorted(start) == [*range(len(made))]
    for group, device in enumerate(placement):  # seconds
        row = made.seconds[group]
        seconds = (row[device] if isinstance(row, tuple) else row) * devices.slower[device]
        assert end[group] - start[group] == close(seconds)
    for device in range(devices.count):  # one thing at a time
        for lane in ("compute", "send", "recv"):
            spans = on(trace, device, lane)
            assert all(a <= b + eps for a, b in zip(spans.end[:-1], spans.start[1:], strict=True))
    needed = {
        (parent, placement[group]) for group, own in enumerate(made.parents) for parent in own
    }
    needed = {(group, to) for group, to in needed if placement[group] != to}
    table = trace.messages
    sent = [*zip(table.tag.tolist(), table.dst.tolist(), strict=True)]
    assert len(sent) == len(needed) and {*sent} == needed  # once to each device that needs it
    cost = [devices.link.seconds(made.nbytes[group]) for group, _ in sent]
    arrived = dict(zip(sent, table.arrived.tolist(), strict=True))
    arrived |= {(group, device): end[group] for group, device in enumerate(placement)}
    left = dict(zip(sent, table.sent.tolist(), strict=True))
    ranks = upward_ranks(made, devices)
    urgent = {group: (-round(rank, 9), group) for group, rank in enumerate(ranks)}
    for device in range(devices.count):
        mine = [key for key in sent if placement[key[0]] == device]
        free = 0.0  # each port sends in the order of ends, of one value by the consumers' rank
        for group, to in sorted(mine, key=lambda key: (left[key], arrived[key])):
            assert left[group, to] == close(max(free, end[group]), abs=eps)
            free = left[group, to] + cost[sent.index((group, to))]
        for (one, to), (other, too) in pairwise(sorted(mine, key=left.__getitem__)):
            first, then = (
                min(urgent[c] for c in made.children[g] if placement[c] == at)
                for g, at in ((one, to), (other, too))
            )
            assert one != other or first < then or cost[sent.index((one, to))] == 0
            assert end[one] <= end[other] + eps
        theirs = [key for key in sent if key[1] == device]
        stamp = {key: left[key] + cost[sent.index(key)] for key in theirs}
        free = 0.0  # and takes them in the order of arrival
        for key in sorted(theirs, key=lambda key: (arrived[key], stamp[key])):
            taken = max(stamp[key], free + cost[sent.index(key)])
            assert arrived[key] == close(taken, abs=eps)
            free = arrived[key]
        own = [group for group in range(len(made)) if placement[group] == device]
        ready = {
            g: max([0.0, *(arrived[parent, device] for parent in made.parents[g])]) for g in own
        }
        for group in own:
            assert start[group] >= ready[group] - eps
            busy = [(start[g], end[g]) for g in own if g != group]
            waited = sum(max(0, min(b, start[group]) - max(a, ready[group])) for a, b in busy)
            assert waited == close(start[group] - ready[group], abs=eps)  # it was busy meanwhile
            for other in own:
                if ready[other] < start[group] - eps and start[other] > start[group] + eps:
                    assert urgent[group] < urgent[other]


@pytest.mark.parametrize("seed", range(150))
def test_every_trace_obeys_the_rules_and_takes_no_less_than_the_bounds(seed):
    made, devices, placement = some(seed)
    trace = play(made, placement, devices)
    obeys(made, devices, placement, trace)
    seconds = seconds_of(made, placement, devices)
    assert seconds == max(trace.spans.end)
    path, work = bounds(made, devices)
    assert seconds >= path - 1e-9 and seconds >= work - 1e-9


def test_what_a_group_waited_for_is_its_flow():
    trace = play(BRANCHES, [0, 0, 0, 1, 1, 0], Devices(2, Link(4, math.inf)))
    compute = trace.spans[trace.spans.lane == "compute"]
    assert compute.flow.tolist() == [-1, -1, -1, 0, 0, 2]
    assert trace.messages.tag.tolist() == [0, 3, 4]
    assert trace.spans.end.max() == 16
    path = critical_path(trace)
    assert [trace.spans.name[row] for row in path.span][:2] == ["group 0", "group 3"]


def test_a_recurrent_net_by_layers():
    net, by_layer = recurrent(4, 8), [layer for layer in range(4) for _ in range(8)]
    times = [seconds_of(net, by_layer, Devices(4, Link(c, math.inf))) for c in (0, 0.25, 2)]
    assert times == [4 + 8 - 1, 11.75, 24]
    assert seconds_of(net, [0] * 32, Devices(4)) == 32
    # at 2 s a message the port waits for nothing: 3 layers x (1 + 2), 8 messages, a cell
    assert times[2] == 3 * (1 + 2) + (8 - 1) * 2 + 1


def test_a_value_goes_once_to_a_device_however_many_need_it():
    fan = Graph([1, 1, 1, 1], [(), (0,), (0,), (0,)], [8, 0, 0, 0])
    trace = play(fan, [0, 1, 1, 1], Devices(2, Link(0, 4)))
    assert len(trace.messages) == 1 and trace.messages.nbytes.sum() == 8
    assert seconds_of(fan, [0, 1, 1, 1], Devices(2, Link(0, 4))) == 1 + 2 + 3


def test_renaming_equal_devices_changes_no_time():
    for seed in range(60):
        made, devices, placement = some(seed)
        devices = Devices(devices.count, devices.link)
        if any(isinstance(row, tuple) for row in made.seconds):
            continue
        names = random.Random(seed).sample(range(devices.count), devices.count)
        renamed = [names[device] for device in placement]
        assert seconds_of(made, renamed, devices) == seconds_of(made, placement, devices)


def test_sums_that_are_equal_are_ties():
    row = Graph([0.1, 0.2, 0.3, 0.4], [(), (0,), (), (1, 2)], [1, 1, 1, 1])
    assert upward_ranks(row, 2) == [0.7, 0.6, 0.7, 0.4]  # 0.1 + 0.2 + 0.4 and 0.3 + 0.4
    assert seconds_of(row, [0, 0, 1, 0], Devices(2)) == 0.7


def test_upward_ranks_and_bounds_of_unequal_devices():
    assert upward_ranks(CHAIN, 3) == [6, 5, 3]
    assert upward_ranks(CHAIN, Devices(2, factors=[1, 3])) == [12, 10, 6]  # the mean
    assert bounds(CHAIN, 2) == (6, 3)
    assert bounds(CHAIN, Devices(2, factors=[1, 3])) == (6, 6 / (1 + 1 / 3))
    own = Graph([[1, 9], [8, 2]], [(), (0,)], [1, 1])
    assert bounds(own, 2) == (3, 1.5)
    assert bounds(LAB, 4) == (11, 21 / 4)


def stirling(groups, kinds):
    """Partitions of `groups` into `kinds` sets that are not empty."""
    if groups == 0 or kinds == 0:
        return int(groups == kinds)
    return kinds * stirling(groups - 1, kinds) + stirling(groups - 1, kinds - 1)


def test_placements_up_to_renaming_are_counted_by_stirling_numbers():
    for groups in range(1, 11):
        for devices in range(1, 6):
            assert count(groups, devices) == sum(stirling(groups, k + 1) for k in range(devices))
    assert count(10, 4) == 43_947
    assert count(3, Devices(2, factors=[1, 2])) == 2**3
    assert count(3, Devices(3, memory=[5, 5, 9])) == 14  # 2 x 3^3 = 27 + 1 alone on the third, / 2
    assert count(0, 4) == 1


def test_memory_is_in_the_trace_and_is_held():
    devices = Devices(2, memory=[30, 40])
    memory = play(CHAIN, [0, 0, 1], devices).memory
    assert memory.nbytes.tolist() == [30, 30] and memory.what.tolist() == ["parameters"] * 2
    assert missing(CHAIN, [0, 0, 1], devices) == 0 and missing(CHAIN, [1, 0, 0], devices) == 20
    with pytest.raises(ValueError, match="device 0 hold 50 bytes and it has 30: 20 bytes are miss"):
        play(CHAIN, [1, 0, 0], devices)
    with pytest.raises(ValueError, match="20 bytes are missing"):
        seconds_of(CHAIN, [1, 0, 0], devices)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ([0, 1], "placement has 2 devices and the graph 3 groups"),
        ([0, 1, 0, 1], "placement has 4 devices and the graph 3 groups"),
        ([0, 2, 1], r"placement\[1\]=2 is not a device: they are 0 to 1"),
        ([0, -1, 1], r"placement\[1\]=-1 is not a device"),
        ([0, None, 1], r"placement\[1\]=None is not a device"),
        ([0, 1.0, 1], r"placement\[1\]=1.0 is not a device"),
        ([0, True, 1], r"placement\[1\]=True is not a device"),
    ],
)
def test_a_placement_that_is_not_one_is_refused(placement, said):
    for player in (play, seconds_of):
        with pytest.raises(ValueError, match=said):
            player(CHAIN, placement, Devices(2))


def test_a_placement_of_numpy_is_one():
    placement: Any = np.array([0, 1, 1])
    assert seconds_of(CHAIN, placement, Devices(2)) == 6


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (([], [], []), "no groups"),
        (([1, 1], [()], [1, 1]), "parents has 1 entries and seconds 2"),
        (([1, 1], [(), ()], [1]), "nbytes has 1 entries and seconds 2"),
        (([1], [()], [1], [1, 1]), "weights has 2 entries and seconds 1"),
        (([1, -1], [(), ()], [1, 1]), "group 1: seconds=-1 has to be a finite number, 0 or more"),
        (([1, [1, -2]], [(), ()], [1, 1]), r"group 1: seconds=\[1, -2\] has to be"),
        (([math.nan], [()], [1]), "group 0: seconds=nan has to be"),
        (([1], [()], [-1]), "group 0: nbytes=-1 has to be a whole number, 0 or more"),
        (([1], [()], [1], [0.5]), "group 0: weights=0.5 has to be a whole number, 0 or more"),
        (([1, 1], [(), (2,)], [1, 1]), "group 1: parent 2 is unknown: the groups are 0 to 1"),
        (([1, 1], [(), (-1,)], [1, 1]), "group 1: parent -1 is unknown"),
        (([1], [(0,)], [1]), "groups 0 -> 0 are a cycle"),
        (([1, 1, 1], [(), (2,), (1,)], [1, 1, 1]), "groups (1 -> 2 -> 1|2 -> 1 -> 2) are a cycle"),
    ],
)
def test_a_graph_that_is_not_one_is_refused(columns, said):
    with pytest.raises(ValueError, match=said):
        Graph(*columns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 0}, "count=0 has to be a whole number, 1 or more"),
        ({"count": 2, "factors": [1]}, "factors has 1 entries and there are 2 devices"),
        ({"count": 2, "factors": [1, 0]}, r"factors\[1\]=0 has to be a number, above 0"),
        ({"count": 2, "memory": [1, 2, 3]}, "memory has 3 entries and there are 2 devices"),
        ({"count": 2, "memory": -1}, r"memory\[0\]=-1 has to be a number, 0 or more"),
    ],
)
def test_devices_that_are_not_any_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Devices(**options)


def test_seconds_of_another_number_of_devices_are_refused():
    own = Graph([1, [1, 2]], [(), (0,)], [1, 1])
    with pytest.raises(ValueError, match="group 1: seconds are those of 2 devices and there are 3"):
        seconds_of(own, [0, 1], Devices(3))
    assert seconds_of(own, [0, 1], Devices(2)) == 3


def test_groups_may_come_in_any_order():
    backwards = Graph([3, 2, 1], [(1,), (2,), ()], [1, 1, 1])
    assert backwards.in_order() == [2, 1, 0] and seconds_of(backwards, [0, 1, 0], Devices(2)) == 6


def test_devices_say_what_they_are():
    devices = Devices(4, Link(0.5, 5e5), [1, 1, 3, 1])
    assert str(devices) == "4 devices, a message takes 0.5 s + 2 s a MB, rank 2 takes 3x as long"
    assert play(CHAIN, [0, 0, 0], Devices(2)).meta["machine"] == "2 devices, a message takes 0 s"
    assert Devices(2) == Devices(2, FREE, [1, 1], math.inf)
