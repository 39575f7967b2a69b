"""Ranks by host and by rack, and how well times of two hosts compare."""

from itertools import permutations

import numpy as np
import pytest
from viz_scenes import on_hosts, ring

from dlviz.analysis.frames import message_frames
from dlviz.analysis.hosts import (
    closer,
    group_numbers,
    impossible,
    message_bounds,
    rank_groups,
    side_by_side,
)
from dlviz.machine import Link, Topology
from dlviz.trace import Trace
from dlviz.trace.hosts import clock_bound, worst_bound

HOSTS = {"a": [0, 3], "b": [1, 4, 5], "c": [2]}


def trace_of(**meta):
    return Trace([{"rank": 5, "kind": "forward", "start": 0.0, "end": 1.0}], meta=meta)


@pytest.mark.parametrize("order", [*permutations(HOSTS)], ids="".join)
def test_hosts_are_groups_in_the_order_of_their_lowest_ranks(order):
    trace = trace_of(hosts={name: HOSTS[name][::-1] for name in order})
    found = rank_groups(trace)
    assert [(own.kind, own.name, own.ranks) for own in found] == [
        ("host", name, ranks) for name, ranks in HOSTS.items()
    ]
    assert side_by_side(trace, range(6)) == [0, 3, 1, 4, 5, 2]
    assert group_numbers(found) == {0: 0, 3: 0, 1: 1, 4: 1, 5: 1, 2: 2}


def test_a_part_of_a_trace_has_the_hosts_of_its_ranks():
    part = trace_of(hosts=HOSTS).only(rank=[1, 3, 5])
    assert [(own.name, own.ranks) for own in rank_groups(part)] == [("b", [1, 5]), ("a", [3])]
    assert [own.ranks for own in rank_groups(part, [2])] == [[2]]


def test_racks_are_groups_where_no_host_is_named():
    link = Link(1e-6, 1e9)
    racks = {"topology": Topology.racks(3, 2, link, link).outline}
    assert [(own.kind, own.name, own.ranks) for own in rank_groups(trace_of(**racks))] == [
        ("rack", "rack 0", [0, 1]),
        ("rack", "rack 1", [2, 3]),
        ("rack", "rack 2", [4, 5]),
    ]
    assert rank_groups(trace_of(**racks, hosts=HOSTS))[0].kind == "host"


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"hosts": {"alone": [*range(6)]}},
        {"topology": Topology.racks(1, 6, Link(0.0, 1e9), Link(0.0, 1e9)).outline},
        {"topology": Topology.tree(6, 3, Link(0.0, 1e9), Link(0.0, 1e9)).outline},
    ],
)
def test_ranks_in_one_place_are_in_no_groups(meta):
    trace = trace_of(**meta)
    assert rank_groups(trace) == []
    assert side_by_side(trace, [4, 0, 2]) == [0, 2, 4]


def test_times_of_two_hosts_compare_to_the_sum_of_their_errors():
    meta = {"ranks": 6, "hosts": HOSTS, "clock_error": {"a": 0.0, "b": 2e-5, "c": 5e-5}}
    bound = clock_bound(meta, np.array([0, 0, 1, 1, 5]), np.array([3, 4, 2, 0, 1]))
    np.testing.assert_allclose(bound, [0.0, 2e-5, 7e-5, 2e-5, 0.0], atol=1e-12)
    assert worst_bound(meta) == pytest.approx(7e-5)
    assert not clock_bound({"ranks": 6}, np.array([0]), np.array([5])).any()


def test_what_is_as_long_as_the_bound_is_not_too_close():
    bounds, took = np.array([2.0, 2.0, 2.0, 0.0]), np.array([1.9, 2.0, -1.9, 0.0])
    assert closer(bounds, took).tolist() == [True, False, True, False]


def test_a_message_cannot_come_early_by_more_than_the_bound():
    """One that takes 0.7 ms, from a host whose clock is 0.8 ms ahead of the other's."""
    hosts = {"host-a": [0, 2], "host-b": [1, 3]}
    for error, count in ((1.1e-4, 0), (0.9e-4, 12)):
        trace = on_hosts(ring(), hosts, {"host-a": 0.0, "host-b": error}, {"host-b": -8e-4})
        assert set(message_bounds(trace)) == {error}  # a ring leads from host to host
        assert (trace.messages.received < trace.messages.sent).sum() == 12
        assert len(impossible(trace, "wall")) == count


def test_frames_are_those_of_the_program_though_a_clock_is_ahead():
    """A clock that is wrong by more than a message and its sequel take, in either direction."""
    hosts = {"host-a": [0, 3], "host-b": [1, 2]}
    plain = message_frames(ring(4, 16, steps=False))
    for ahead in (-1.05e-3, 1.05e-3):
        trace = on_hosts(
            ring(4, 16, steps=False), hosts, {"host-a": 0.0, "host-b": 1.1e-3}, {"host-b": ahead}
        )
        trace.validate()
        assert (trace.messages.received < trace.messages.sent).any()
        rows = [frame.messages for frame in message_frames(trace)]
        assert rows == [frame.messages for frame in plain]
