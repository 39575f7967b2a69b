"""Which part of a receive, and of a backend's collective, is waiting: ports and entries say."""

from __future__ import annotations

import numpy as np
import pytest
from timing import attempts

import dlviz
from dlviz.analysis.waits import waited_until
from dlviz.collectives import ALGORITHMS
from dlviz.machine import classroom
from dlviz.sim import collective
from dlviz.trace import Trace


@pytest.mark.parametrize(("name", "ranks"), [*zip(ALGORITHMS, (2, 3, 4, 5, 6, 7, 8), strict=True)])
def test_the_simulator_starts_a_receive_when_its_message_is_moved(name, ranks):
    """Its receives wait not at all; one that was posted at 0 waits until where the simulator
    begins it."""
    trace = collective(name, ranks, 4096, classroom(ranks))
    assert not len(waited_until(trace, "device")[0])
    received = np.flatnonzero(trace.spans.kind == "recv")
    begun = trace.spans.start[received].copy()
    trace.spans.start[received] = -1.0
    rows, until = waited_until(trace, "device")
    assert rows.tolist() == received.tolist()
    np.testing.assert_allclose(until, begun, atol=1e-9)


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
        dict(rank=0, kind="recv", peer=1, flow=0, start=0.0, end=2.0),
        dict(rank=0, kind="recv", peer=2, flow=1, start=2.0, end=4.0),
        dict(rank=1, kind="recv", peer=0, flow=2, start=2.0, end=6.0),
        dict(rank=2, kind="recv", peer=0, flow=3, start=2.0, end=8.0),
        dict(rank=0, kind="wait", name="for lane comm", start=8.0, end=9.0),
    ]
    for own in spans:
        own |= {"wall_start": own["start"], "wall_end": own["end"]}
    return Trace(spans, messages, meta={"clock": "paced", "ranks": 3})


def test_a_server_never_waits_and_its_clients_wait_until_it_sends_to_them():
    rows, until = waited_until(server(), "device")
    assert dict(zip(rows.tolist(), until.tolist(), strict=True)) == {2: 4.0, 3: 6.0}


def test_by_the_wall_clock_a_message_is_moved_from_when_it_was_sent():
    sent = {"wall_sent": [0.0, 0.0, 4.0, 4.0], "wall_received": [2.0, 4.0, 6.0, 8.0]}
    rows, until = waited_until(server(**sent), "wall")
    assert dict(zip(rows.tolist(), until.tolist(), strict=True)) == {2: 4.0, 3: 4.0}


def test_a_message_that_is_there_before_it_is_asked_for_is_not_waited_for():
    trace = Trace(
        [dict(rank=1, kind="recv", peer=0, flow=0, start=3.0, end=3.5)],
        {"src": [0], "dst": [1], "sent": [0.0], "arrived": [3.5], "received": [3.5]},
        meta={"clock": "paced", "ranks": 2},
    )
    assert not len(waited_until(trace, "device")[0])


def test_a_receive_of_no_known_message_waits_only_where_the_run_was_ended_in_it():
    spans = [dict(rank=rank, kind="recv", peer=0, start=1.0, end=3.0) for rank in (0, 1)]
    spans[1]["fields"] = {"unfinished": True}
    rows, until = waited_until(Trace(spans, meta={"ranks": 2}), "device")
    assert (rows.tolist(), until.tolist()) == ([1], [3.0])
    assert not len(waited_until(Trace(), "device")[0])


def test_a_backends_collective_waits_for_the_last_rank_of_its_group():
    calls = [(0, "world", 0, 0.0), (1, "world", 0, 2.0), (2, "world", 0, 5.0)]
    calls += [(0, "pair", 0, 7.0), (1, "pair", 0, 6.5), (0, "world", 1, 9.0)]
    spans = [
        dict(rank=rank, kind="collective", group=group, sequence=number, start=start, end=10.0)
        for rank, group, number, start in calls
    ]
    spans.append(dict(rank=2, kind="collective", name="bucket 0", start=9.0, end=10.0))
    rows, until = waited_until(Trace(spans, meta={"ranks": 3}), "device")
    assert dict(zip(rows.tolist(), until.tolist(), strict=True)) == {0: 5.0, 1: 5.0, 4: 7.0}


def late_sender(comm):
    import torch

    tensor = torch.ones(8)
    if comm.rank == 0:
        with comm.compute("forward", seconds=0.02):
            pass
        comm.send(tensor, 1)
    else:
        comm.recv(tensor, 0)
    comm.all_reduce(tensor)


@pytest.mark.slow
def test_a_real_receive_waits_until_its_sender_has_computed():
    trace = dlviz.launch(late_sender, ranks=2, machine=classroom(2)).trace
    spans, (rows, until) = trace.spans, waited_until(trace, "device")
    (row,) = [row for row in rows.tolist() if spans.kind[row] == "recv"]
    computed = spans.end[spans.kind == "forward"]
    assert until[rows == row] == pytest.approx(computed, rel=1e-6)
    assert spans.start[row] < computed - 0.01 and computed < spans.end[row]


def test_the_waits_of_a_million_spans_are_found_in_a_second():
    import time

    ranks, each = 8, 125_000
    rank = np.repeat(np.arange(ranks), each)
    end = np.tile(np.arange(1, each + 1) * 1e-3, ranks)
    kinds = np.tile(np.array(["recv", "forward"] * (each // 2), object), ranks)
    flow = np.where(kinds == "recv", np.cumsum(kinds == "recv") - 1, -1)
    received = kinds == "recv"
    messages = {
        "src": (rank[received] + 1) % ranks,
        "dst": rank[received],
        "sent": end[received] - 5e-4,
        "arrived": end[received],
        "received": end[received],
    }
    spans = {"rank": rank, "kind": kinds, "start": end - 1e-3, "end": end, "flow": flow}
    spans["lane"] = np.full(len(rank), "compute", object)
    trace = Trace(spans, messages, meta={"clock": "paced", "ranks": ranks})
    for attempt in attempts():
        began = time.process_time()
        rows, until = waited_until(trace, "device")
        took = time.process_time() - began
        with attempt:
            assert took < 4  # some 1 s on a quiet machine
    assert len(rows) == received.sum()
    np.testing.assert_allclose(until, trace.spans.end[rows] - 5e-4)
