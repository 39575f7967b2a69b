"""Receives with a deadline: what has come by then is taken, nothing else, and nobody hangs."""

from __future__ import annotations

import math
import mmap
import os
import random
import signal
import time
from dataclasses import dataclass, field

import pytest
import torch

from dlviz import DeadlockError, RankLost, launch, viz
from dlviz.cluster.pacing.horizon import Horizon, size
from dlviz.machine import Device, Link, Machine, Topology

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")

ALPHA, BETA = 1e-3, 1e-6  # s, s/byte
CLOSE = 1e-9
DEVICE = Device("test", flops=1e9, memory=1e9, memory_bandwidth=1e9)


def paced(ranks):
    return Machine(DEVICE, Topology.switch(ranks, Link(ALPHA, 1 / BETA)), None)


def number(value=-1.0):
    return torch.full((1,), float(value))


def take(comm, src=None, tag=0, **deadline):
    """Whose message was received, what it held, and when, by the run's clock."""
    tensor = number()
    return comm.recv(tensor, src, tag, **deadline), tensor.item(), comm.now()


# -- on the wall clock -----------------------------------------------------------------------------
def on_the_wall(comm):
    """Rank 0 receives; rank 2 sends nothing before it is told to."""
    if comm.rank == 1:
        comm.isend(number(1), 0).wait()
        comm.isend(number(2), 0, tag=1)
        comm.barrier()
        return None
    if comm.rank == 2:
        comm.barrier()
        comm.recv(number(), 0)
        comm.send(number(3), 0)
        return None
    found = {"soon": take(comm, 1, deadline=comm.now() + 20)}
    comm.barrier()
    found["there"] = take(comm, [1, 2], tag=1, deadline=comm.now() - 1)
    found["nothing"] = take(comm, deadline=0)
    start = comm.now()
    found["late"] = take(comm, deadline=start + 0.1)
    found["directed"] = take(comm, 2, deadline=start + 0.2)
    comm.send(number(), 2)
    found["thrown away"] = take(comm)
    return found, start


def test_a_receive_returns_what_has_come_by_its_deadline_and_none_when_that_is_over():
    run = launch(on_the_wall, 3, timeout=60)
    found, start = run.results[0]
    assert {name: each[:2] for name, each in found.items()} == {
        "soon": (1, 1.0),
        "there": (1, 2.0),  # a deadline that is past takes what is there
        "nothing": (None, -1.0),
        "late": (None, -1.0),
        "directed": (None, -1.0),
        "thrown away": (2, 3.0),
    }
    assert found["late"][2] >= start + 0.1 and found["directed"][2] >= start + 0.2
    run.trace.validate()
    assert run.trace.meta["outcome"] == "completed"
    waits = [*run.trace.only(rank=0, kind="wait").spans.rows()]
    assert [row.name for row in waits] == ["until a deadline"] * 3
    assert waits[0].end < start + 0.1 <= waits[1].end and start + 0.2 <= waits[2].end


def refused(comm):
    found = []
    for deadline in (math.nan, math.inf, -math.inf, "1", True):
        try:
            comm.recv(number(), deadline=deadline)
        except ValueError as error:
            found.append(str(error))
    return found


def test_a_deadline_is_a_finite_number():
    (found, _) = launch(refused, 2).results
    for told, value in zip(found, ("nan", "inf", "-inf", "'1'", "True"), strict=True):
        assert told.startswith(f"recv: deadline={value} has to be a finite number, seconds of the")


# -- on the device clock ---------------------------------------------------------------------------
def of_three(comm):
    """Rank 1 sends at 10 ms, rank 2 at 40 ms, whose process takes longer than its device; then both
    wait for rank 0."""
    comm.barrier()
    start = comm.now()
    if comm.rank:
        with comm.compute("forward", seconds=0.01 if comm.rank == 1 else 0.04):
            time.sleep(0.15 if comm.rank == 1 else 0.0)
        comm.isend(number(comm.rank), 0).wait()
        comm.recv(number(), 0)
        comm.isend(number(comm.rank), 0, tag=1).wait()
        return None
    found = [take(comm, deadline=start + 0.02)]  # by the wall clock rank 1 has not sent it
    found.append(take(comm, deadline=start + 0.03))
    found.append(take(comm, 2, deadline=start + 0.035))
    found.append(take(comm))
    now = comm.now()
    found.append(take(comm, tag=1, deadline=now + 0.6))  # both wait for this rank
    for rank in (1, 2):
        comm.isend(number(), rank).wait()
    found += [take(comm, [2], tag=1, deadline=now + 20), take(comm, [1], tag=1)]
    return [(src, value, when - start) for src, value, when in found], now - start


def test_on_a_paced_run_the_device_clock_alone_decides_what_has_come():
    run = launch(of_three, 3, machine=paced(3), timeout=60)
    found, now = run.results[0]
    assert [each[:2] for each in found] == [
        (1, 1.0), (None, -1.0), (None, -1.0), (2, 2.0), (None, -1.0), (2, 2.0), (1, 1.0),
    ]  # fmt: skip
    one = ALPHA + 4 * BETA
    when = [each[2] for each in found]
    assert when[:5] == pytest.approx([0.01 + one, 0.03, 0.035, 0.04 + one, now + 0.6], abs=CLOSE)
    run.trace.validate()
    assert run.trace.meta["outcome"] == "completed"
    rows = [*run.trace.only(rank=0, kind="wait").spans.rows()]
    waits = [row for row in rows if row.name == "until a deadline"]
    assert [row.end - waits[0].start for row in waits] == pytest.approx(
        [0.02 - one, 0.025 - one, now + 0.59 - one], abs=CLOSE
    )
    lasted = waits[2].wall_end - waits[2].wall_start  # the others have long come as far
    assert lasted == pytest.approx(0.6, abs=0.25)
    text = viz.timeline(run.trace).to_json()
    assert "until a deadline" in text


def at_the_same_time(comm, offset):
    """All send rank 0 1000 bytes at once; its port takes them one after the other."""
    comm.barrier()
    start = comm.now()
    if comm.rank:
        comm.isend(torch.zeros(250), 0).wait()
        return None
    x, found = torch.zeros(250), []
    for n in range(1, comm.size):
        deadline = start + n * (ALPHA + 1000 * BETA) + offset
        found += [comm.recv(x, deadline=deadline), comm.recv(x, deadline=deadline)]
    late = comm.size - 1 - len({*found} - {None})
    later = [comm.recv(x) for _ in range(late)]
    return found, later


@pytest.mark.parametrize("offset", [0.0, -1e-6])
def test_what_the_port_has_taken_in_at_the_deadline_is_in_time_and_what_it_takes_is_late(offset):
    run = launch(at_the_same_time, 4, machine=paced(4), args=(offset,), timeout=60)
    in_time, late = ([1, 2, 3], []) if offset == 0 else ([None, 1, 2], [3])
    expected = [src for each in in_time for src in (each, None)], late
    assert run.results[0] == expected
    assert run.trace.meta["outcome"] == "completed"


def woken(comm):
    """Rank 3 wakes 2, which wakes 1, which sends to 0, each late by the wall clock; then ranks 1
    and 2 wait in a collective, and 3 for its message to be taken."""
    comm.barrier()
    start = comm.now()
    if comm.rank == 0:
        found = [take(comm, deadline=start + 0.02), take(comm, deadline=start + 0.05)]
        when = comm.now()
        late = take(comm, tag=1)
        comm.barrier()
        return [each[0] for each in (*found, late)], when - start
    if comm.rank < 3:
        comm.recv(number(), comm.rank + 1)
    with comm.compute("forward", seconds=0.002):
        time.sleep(0.06)
    comm.isend(number(), comm.rank - 1).wait()
    if comm.rank == 3:
        comm.send(number(), 0, tag=1)
    comm.barrier()


def test_ranks_that_wake_each_other_are_waited_for_and_those_that_wait_for_this_one_are_not():
    run = launch(woken, 4, machine=paced(4), timeout=60)
    found, when = run.results[0]
    assert found == [1, None, 3]
    assert when == pytest.approx(0.05, abs=CLOSE)


ROUNDS, LIMIT, CLIENTS = 6, 0.03, 4


def seconds(client, number):
    """What a client computes in a round: some longer than the limit, no two as long."""
    return random.Random(f"{client} {number}").uniform(0.005, 0.05)


def rounds(comm):
    """Clients answer what the server sends; it takes in what comes by its limit, and throws away
    what is of a round before. How long their processes take is another matter."""
    comm.barrier()
    if comm.rank:
        clock, x = random.Random(comm.rank), number()
        while True:
            comm.recv(x, 0)
            round_ = int(x)
            if round_ < 0:
                return None
            with comm.compute("forward", seconds=seconds(comm.rank, round_)):
                time.sleep(clock.choice([0.0, 0.0, 0.02]))
            comm.isend(x.clone(), 0)
    answered, started, x = [], [], number()
    owed = [0] * comm.size
    for round_ in range(ROUNDS):
        for client in range(1, comm.size):
            comm.isend(number(round_), client).wait()
            owed[client] += 1
        started.append(comm.now())
        answered.append([])
        while (src := comm.recv(x, deadline=started[-1] + LIMIT)) is not None:
            owed[src] -= 1
            if int(x) == round_:
                answered[-1].append(src)
    while any(owed):
        owed[comm.recv(x)] -= 1
    for client in range(1, comm.size):
        comm.isend(number(), client).wait()
    return answered, started


def who_answers(started):
    """By hand: a client goes on with the next round when it has both answered and been asked."""
    one = ALPHA + 4 * BETA
    free, arrivals = [0.0] * (CLIENTS + 1), []
    for number, start in enumerate(started):
        for client in range(1, CLIENTS + 1):
            asked = start - (CLIENTS - client) * one
            free[client] = max(free[client], asked) + seconds(client, number)
            arrivals.append((free[client] + one, client, number))
    port, taken = 0.0, []
    for stamp, client, number in sorted(arrivals):
        port = max(stamp, port + one)
        taken.append((port, client, number))
    return [
        [client for at, client, of in taken if of == number and at <= start + LIMIT]
        for number, start in enumerate(started)
    ]


def test_rounds_with_a_deadline_are_the_closed_form_whatever_the_processes_take():
    run = launch(rounds, CLIENTS + 1, machine=paced(CLIENTS + 1), timeout=60)
    answered, started = run.results[0]
    one = ALPHA + 4 * BETA
    gaps = [b - a for a, b in zip(started, started[1:], strict=False)]
    assert gaps == pytest.approx([LIMIT + CLIENTS * one] * (ROUNDS - 1), abs=CLOSE)
    assert answered == who_answers(started)
    assert {len(each) for each in answered} - {0, CLIENTS}  # some are late, some are not
    assert run.trace.meta["outcome"] == "completed"


# -- others that wait for each other, or are lost --------------------------------------------------
def two_of_three(comm):
    if comm.rank:
        comm.recv(number(), 3 - comm.rank)
    return comm.recv(number(), deadline=comm.now() + 0.2)


@pytest.mark.parametrize("machine", [None, paced(3)], ids=["wall", "paced"])
def test_a_deadlock_of_others_is_named_all_the_same(machine):
    with pytest.raises(DeadlockError) as caught:
        launch(two_of_three, 3, machine=machine, timeout=60)
    assert sorted(caught.value.cycle) == [1, 2]
    assert [wait.rank for wait in caught.value.waits] == [1, 2]


def all_wait(comm):
    x = number()
    if comm.rank == 0:
        found = comm.recv(x, deadline=comm.now() + 1.0)  # long enough for two looks of the watchdog
        for rank in (1, 2):
            comm.send(x, rank)
        return found
    comm.recv(x, 0)
    return "freed"


@pytest.mark.parametrize("machine", [None, paced(3)], ids=["wall", "paced"])
def test_a_rank_that_all_wait_for_is_in_no_deadlock_before_its_deadline(machine):
    assert launch(all_wait, 3, machine=machine, timeout=60).results == [None, "freed", "freed"]


def one_is_lost(comm):
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 2:
        comm.recv(number(), 0)
        return None
    found = []
    for src in (1, [2, 1]):
        try:
            found.append(comm.recv(number(), src, deadline=comm.now() + 30))
        except RankLost as error:
            found.append(f"lost {error.rank}")
    found.append(comm.recv(number(), deadline=comm.now() + 0.05))
    comm.send(number(), 2)
    return found


@pytest.mark.parametrize("machine", [None, paced(3)], ids=["wall", "paced"])
def test_a_lost_source_is_told_before_the_deadline_and_does_not_keep_others_waiting(machine):
    run = launch(one_is_lost, 3, machine=machine, timeout=60, may_lose=(1,))
    assert run.results[0] == ["lost 1", "lost 1", None]


# -- how far the others have come ------------------------------------------------------------------
@dataclass
class Lane:
    bound: float = math.inf


@dataclass
class Wait:
    left: float | None = None
    until: float | None = None


@dataclass
class Take(Wait):
    slot: int = 1
    peer: int = 0


@dataclass
class Ranks:
    """Three ranks that look at each other, each with a lane; messages take `latency` at least."""

    latency: float = 0.001
    lanes: list[list[Lane]] = field(default_factory=lambda: [[Lane()] for _ in range(3)])

    def __post_init__(self):
        memory = mmap.mmap(-1, size(3))
        self.rows = [
            Horizon(memory, 0, 3, rank, lanes, lambda src: self.latency)
            for rank, lanes in enumerate(self.lanes)
        ]

    def at(self, rank, *clocks):
        self.lanes[rank][:] = [Lane(clock) for clock in clocks]
        self.rows[rank].moved()

    def passed(self, limit, rank=0, lost=()):
        return self.rows[rank].passed(limit, self.lanes[rank][0], lost)


@pytest.fixture
def ranks():
    """All at 0.5 s of their device's clock."""
    found = Ranks()
    for rank in range(3):
        found.at(rank, 0.5)
    return found


def test_a_rank_that_is_awake_has_to_come_so_far_that_its_message_would_be_late(ranks):
    ranks.at(1, 0.6)
    ranks.at(2, 0.599)
    assert ranks.passed(0.5999) and not ranks.passed(0.6)  # at the same moment is in time
    ranks.at(2, 0.8, 0.599 + 2e-12)  # its slower lane counts
    assert ranks.passed(0.6) and not ranks.passed(0.61)
    assert ranks.passed(0.7, lost=(1, 2))
    for rank in (1, 2):
        ranks.rows[rank].leave()
    assert ranks.passed(1e9)


def test_a_rank_that_sleeps_sends_nothing_until_it_has_something_to_read(ranks):
    ranks.at(2, 2.0)
    ranks.rows[1].sleep(Wait(), 0)
    assert ranks.passed(1.0)
    ranks.rows[2].sent[1] += 1  # it was written to and has not read it
    assert not ranks.passed(1.0)
    ranks.rows[1].hear({2: 1})  # it has read it and is about to look
    assert not ranks.passed(1.0)
    ranks.rows[1].sleep(Wait(), 1)
    assert ranks.passed(1.0)
    ranks.rows[1].wake()
    assert not ranks.passed(1.0)


def test_what_this_rank_has_not_read_may_be_in_time(ranks):
    for rank in (1, 2):
        ranks.at(rank, 2.0)
    ranks.rows[1].sent[0] += 1
    assert not ranks.passed(1.0)
    ranks.rows[0].hear({1: 1})
    assert ranks.passed(1.0)


def test_a_rank_that_goes_on_by_itself_sends_then(ranks):
    ranks.at(2, 2.0)
    ranks.rows[1].sleep(Wait(until=0.9), 0)
    assert ranks.passed(0.9005) and not ranks.passed(0.902)
    ranks.rows[1].wake()
    ranks.rows[1].sleep(Wait(left=0.1), 0)  # it looks now and then: it counts as awake
    assert not ranks.passed(0.9005)


def test_of_two_whose_messages_take_no_time_the_lower_rank_is_over_first(ranks):
    ranks.latency = 0.0
    ranks.at(2, 2.0)
    for rank in (0, 1):
        ranks.rows[rank].sleep(Wait(until=0.9), 0)
    assert ranks.passed(0.9, rank=0) and not ranks.passed(0.9, rank=1)


def test_a_sender_rests_only_while_its_receiver_does(ranks):
    ranks.rows[1].sleep(Take(peer=2), 0)
    ranks.at(2, 2.0)
    assert not ranks.passed(1.0)  # rank 2 may take it at any time, and it goes on at 0.5 s
    ranks.rows[2].sleep(Wait(), 0)
    assert ranks.passed(1.0)
    ranks.rows[2].wake()
    ranks.rows[1].sleep(Take(peer=0), 0)  # it waits for the rank that asks
    assert ranks.passed(1.0)


def test_a_rank_with_another_lane_at_work_does_not_rest_and_waits_for_that_one(ranks):
    ranks.at(2, 2.0)
    ranks.at(1, 0.5, 3.0)
    ranks.rows[1].sleep(Wait(), 0)
    assert not ranks.passed(1.0)
    ranks.at(1, 2.0)
    assert ranks.passed(1.0)
    ranks.at(0, 0.5, 0.7)
    assert not ranks.passed(1.0)
