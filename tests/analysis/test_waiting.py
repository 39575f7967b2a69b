"""A receive is waiting until its message is moved: when that is, the ports of both ranks say."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.analysis.waiting import moved_since, moving
from dlviz.collectives import ALGORITHMS
from dlviz.machine import classroom
from dlviz.sim import collective
from dlviz.trace import Trace


@pytest.mark.parametrize(("name", "ranks"), [*zip(ALGORITHMS, (2, 3, 4, 5, 6, 7, 8), strict=True)])
def test_a_message_is_moved_from_when_the_simulator_gives_it_both_ports(name, ranks):
    trace = collective(name, ranks, 4096, classroom(ranks))
    received = trace.only(kind="recv").spans
    since = moved_since(trace, "device")
    assert len(received) == len(since) > 0
    np.testing.assert_allclose(since[received.flow], received.start, atol=1e-9)


def server(**times) -> Trace:
    """What two clients and the server, rank 0, of a paced parameter server record: each message
    takes 2 s, and a receive is one span from its call to its end."""
    messages = {
        "src": [1, 2, 0, 0],
        "dst": [0, 0, 1, 2],
        "sent": [0.0, 0.0, 4.0, 4.0],
        "arrived": [2.0, 4.0, 6.0, 8.0],
        "received": [2.0, 4.0, 6.0, 8.0],
        **times,
    }
    spans = [
        dict(rank=0, kind="wait", peer=1, flow=0, start=0.0, end=2.0),
        dict(rank=0, kind="wait", peer=2, flow=1, start=2.0, end=4.0),
        dict(rank=1, kind="recv", peer=0, flow=2, start=2.0, end=6.0),
        dict(rank=2, kind="recv", peer=0, flow=3, start=2.0, end=8.0),
        dict(rank=0, kind="wait", peer=1, name="send", start=4.0, end=6.0),
        dict(rank=0, kind="wait", name="for lane comm", start=8.0, end=9.0),
    ]
    return Trace(spans, messages, meta={"clock": "paced", "ranks": 3})


def test_a_server_is_never_waiting_and_its_clients_are_until_it_sends_to_them():
    rows, since, kinds = moving(server(), "device")
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert since.tolist() == [0.0, 2.0, 4.0, 6.0, 4.0]
    assert kinds.tolist() == ["recv"] * 4 + ["send"]


def test_a_message_that_is_there_before_it_is_asked_for_is_not_waited_for():
    trace = Trace(
        [dict(rank=1, kind="recv", peer=0, flow=0, start=3.0, end=3.5)],
        {"src": [0], "dst": [1], "sent": [0.0], "arrived": [3.5], "received": [3.5]},
        meta={"clock": "paced", "ranks": 2},
    )
    rows, since, _ = moving(trace, "device")
    assert (rows.tolist(), since.tolist()) == ([0], [3.0])


def test_nothing_is_moved_where_nothing_was_sent():
    trace = server(arrived=[np.nan] * 4, received=[np.nan] * 4)
    assert moved_since(trace, "device").tolist() == [0.0, 0.0, 4.0, 4.0]
    empty = moving(Trace(), "device")
    assert [part.tolist() for part in empty] == [[], [], []]
