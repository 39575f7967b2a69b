"""Paced runs over a topology: ports and shared links hold messages up as they do on the Machine.

Device times must be those of the same collective played message by message (dlviz.sim), to the
nanosecond, however the wall clock orders what the ranks do. They depend on it where a rank is late
by as long as a message takes: messages take 20 ms here, and a run that was held up is repeated.
"""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest
import torch
from timing import attempts

import dlviz
from dlviz import sim
from dlviz.cluster.pacing.ledger import ENTRIES, Ledger, size
from dlviz.collectives import ALGORITHMS, all_reduce
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.metrics import makespan

pytestmark = pytest.mark.filterwarnings("ignore:the run was up to:RuntimeWarning")

LINK = Link(20e-3, 1e8)  # 20 ms, 10 us a KB
SLOW = Link(20e-3, 2e6)  # 20 ms, 0.5 ms a KB
NETWORKS = {
    "switch": lambda ranks: Topology.switch(ranks, LINK),
    "ring": lambda ranks: Topology.ring(ranks, LINK),
    "racks": lambda ranks: Topology.racks(2, ranks // 2, LINK, SLOW),
    "tree": lambda ranks: Topology.tree(ranks, 2, LINK, SLOW, SLOW),
    "own": lambda ranks: Topology.switch(ranks, [(LINK, SLOW)[rank % 2] for rank in range(ranks)]),
}


def machine(topology: Topology, gamma: float = 0.0) -> Machine:
    return Machine(Device("adder", 1e9, 1e9, 1e9, gamma), topology)


def until(what, worker, topology, *args, gamma=0.0):
    """A run of `worker` of which `what(run)` is true: a rank may be late by a message."""
    options = {"machine": machine(topology, gamma), "args": args}
    for attempt in attempts():
        run = dlviz.launch(worker, ranks=topology.ranks, **options)
        run.trace.validate()
        holds, late = what(run), run.trace.meta["lateness"]["worst"]
        with attempt:
            assert holds, f"late by {late:.3f} s: {messages_of(run.trace)}"
    return run


# -- all-reduces -----------------------------------------------------------------------------------
def one_after_the_other(comm, names, nbytes):
    tensor = torch.ones(nbytes, dtype=torch.uint8)
    for name in names:
        comm.barrier()
        with comm.span("phase", name=name):
            all_reduce(comm, tensor, name)


def messages_of(trace: dlviz.Trace, phase: str | None = None) -> list[tuple]:
    """Who sent what to whom, and when (us from the first send, device time) it left and arrived."""
    rows = [*trace.messages.rows()]
    if phase is not None:
        spans = [span for span in trace.spans.rows() if span.name == phase]
        first, last = min(s.start for s in spans), max(s.end for s in spans)
        rows = [row for row in rows if first <= row.sent < last]
    start = min(row.sent for row in rows)
    return sorted(
        (m.step, m.src, m.dst, m.count, *(round((t - start) * 1e6, 3) for t in (m.sent, m.arrived)))
        for m in rows
    )


def as_played(found: list[tuple], played: list[tuple]) -> bool:
    same = [row[:4] for row in found] == [row[:4] for row in played]
    return same and np.allclose(
        [row[4:] for row in found], [row[4:] for row in played], rtol=0, atol=2e-3
    )


@pytest.mark.parametrize(
    ("network", "ranks"),
    [
        ("racks", 4),
        *(pytest.param(network, ranks, marks=pytest.mark.slow) for network, ranks in (
            ("ring", 5), ("own", 4),
        )),
        *(pytest.param(network, ranks, marks=[pytest.mark.slow, pytest.mark.sweep])
          for network, ranks in (
            ("switch", 4), ("switch", 7), ("switch", 8), ("ring", 8), ("racks", 6), ("racks", 8),
            ("tree", 5), ("tree", 8),
        )),
    ],
)  # fmt: skip
def test_a_paced_all_reduce_takes_what_is_played_message_for_message(network, ranks):
    topology, nbytes = NETWORKS[network](ranks), 4000 * ranks
    names = set(ALGORITHMS)
    played = {
        name: messages_of(sim.collective(name, ranks, nbytes, machine(topology))) for name in names
    }

    for attempt in attempts():
        args = (sorted(names), nbytes)
        run = dlviz.launch(one_after_the_other, ranks, machine=machine(topology), args=args)
        run.trace.validate()
        for name in args[0]:
            if as_played(messages_of(run.trace, name), played[name]):
                names.remove(name)  # and is not run again
        with attempt:
            assert not names, [(name, messages_of(run.trace, name)) for name in names]


def test_a_paced_all_reduce_takes_by_the_wall_clock_about_what_is_played():
    """How near it comes is a benchmark; here only that its wall columns are not something else."""
    topology = NETWORKS["racks"](4)
    seconds = makespan(sim.collective("ring", 4, 16_000, machine(topology)))
    options = {"machine": machine(topology), "args": (["ring"], 16_000)}
    for attempt in attempts():
        run = dlviz.launch(one_after_the_other, 4, **options)
        messages, lateness = run.trace.messages, run.trace.meta["lateness"]["worst"]
        wall = messages.wall_received.max() - messages.wall_sent.min()
        with attempt:
            assert seconds - lateness <= wall <= 1.25 * seconds + len(messages) * lateness


# -- the port of a server --------------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [4, 8])
def test_the_incast_of_a_parameter_server_is_serialised_at_its_port(ranks):
    """p-1 messages that leave at the same moment take (p-1)(alpha + n beta), in rank order."""
    topology, nbytes = Topology.switch(ranks, LINK), 200_000
    each = LINK.latency + nbytes / LINK.bandwidth

    def serial(run):
        found = [row for row in messages_of(run.trace) if row[2] == 0]
        assert [row[1] for row in found] == [*range(1, ranks)]
        return [row[4] for row in found] == [0] * (ranks - 1) and [
            row[5] for row in found
        ] == pytest.approx([each * 1e6 * (turn + 1) for turn in range(ranks - 1)], abs=2e-3)

    until(serial, one_after_the_other, topology, ["parameter_server"], nbytes)


def whoever_comes(comm):
    comm.barrier()
    x = torch.full((1,), float(comm.rank))
    if comm.rank:
        time.sleep(0.002 * (comm.size - comm.rank))  # the last rank is the first by the wall clock
        comm.isend(x, 0).wait()
        return None
    return [comm.recv(x) for _ in range(comm.size - 1)]


@pytest.mark.parametrize("network", ["switch", "tree"])
def test_messages_of_the_same_stamp_are_taken_in_the_order_of_their_sources(network):
    """Of the tree ranks 2 and 3 come later than rank 1: through its next switch."""
    run = until(lambda run: run.results[0] == [1, 2, 3], whoever_comes, NETWORKS[network](4))
    stamps = [row[5] for row in sorted(messages_of(run.trace), key=lambda row: row[1])]
    assert stamps == sorted(stamps)


def up_and_down(comm, nbytes):
    """All send to rank 0 at once, which then sends to all; rank 1 gets a short one after that."""
    comm.barrier()
    x = torch.zeros(nbytes, dtype=torch.uint8)
    if comm.rank == 0:
        for _ in range(comm.size - 1):
            comm.recv(x)
        last = comm.now()
        for request in [comm.isend(x, rank) for rank in range(1, comm.size)]:
            request.wait()
        gone = comm.now() - last
        comm.send(x[:10], 1)
        return gone
    comm.isend(x, 0).wait()
    comm.recv(x, 0)
    if comm.rank == 1:
        comm.recv(x[:10], 0)
    return None


def test_a_server_with_a_fast_link_takes_in_slow_uploads_together_and_is_done_before_they_are():
    nbytes, fast = 10_000, Link(1e-3, 1e8)
    up, down = (link.seconds(nbytes) for link in (SLOW, fast))
    topology = Topology.switch(5, [fast, *[SLOW] * 4])

    def check(run):
        rows = messages_of(run.trace)
        uploads = [row[5] for row in rows if row[2] == 0]
        since = up + 3 * down
        sends = [(since + turn * down, since + turn * down + up) for turn in range(4)]
        short = since + 4 * down, since + up + SLOW.seconds(10)  # at rank 1's port after the first
        wanted = [*[(0, up + turn * down) for turn in range(4)], sends[0], short, *sends[1:]]
        found = [row[4:] for row in sorted(rows, key=lambda row: (row[1] == 0, row[2], row[4]))]
        return sorted(uploads) == pytest.approx(
            [each[1] * 1e6 for each in wanted[:4]], abs=2e-3
        ) and [*np.ravel(found[4:])] == pytest.approx(
            [each * 1e6 for pair in wanted[4:] for each in pair], abs=2e-3
        )

    run = until(check, up_and_down, topology, nbytes)
    assert run.results[0] == pytest.approx(4 * down, abs=1e-9)


# -- a shared link ---------------------------------------------------------------------------------
def late_by_the_wall_clock(comm, soon, nbytes):
    """Rank 1 sends `soon` seconds after rank 0 by the device clock; by the wall clock it is rank 0
    that sends 10 ms after rank 1."""
    comm.barrier()
    x = torch.zeros(nbytes, dtype=torch.uint8)
    if comm.rank == 0:
        with comm.compute("forward", seconds=0.03):
            time.sleep(0.01)
        comm.isend(x, 2).wait()
    elif comm.rank == 1:
        with comm.compute("forward", seconds=0.03 + soon):
            pass
        comm.isend(x, 3).wait()
    else:
        comm.recv(x, comm.rank - 2)


@pytest.mark.parametrize("soon", [0.004, 0.5])
def test_a_shared_link_serves_by_device_time_whoever_is_first_by_the_wall_clock(soon):
    """A message of 20 kB keeps the link for 10 ms: the second one waits for the first."""

    def served(run):
        (_, _, _, _, first, _), (_, _, _, _, second, _) = messages_of(run.trace)
        wall = run.trace.messages.wall_sent[np.argsort(run.trace.messages.src)]
        by_device = pytest.approx((0, max(0.010, soon) * 1e6), abs=2e-3)
        return wall[1] < wall[0] and (first, second) == by_device

    until(served, late_by_the_wall_clock, NETWORKS["racks"](4), soon, 20_000)


def two_ports(comm, nbytes):
    """Rank 0 sends three messages to the other rack at once, rank 1 one."""
    comm.barrier()
    x = torch.zeros(nbytes, dtype=torch.uint8)
    if comm.rank < 2:
        sends = [comm.isend(x, 2 + comm.rank, tag) for tag in range(3 - 2 * comm.rank)]
        for send in sends:
            send.wait()
    else:
        for tag in range(3 if comm.rank == 2 else 1):
            comm.recv(x, comm.rank - 2, tag)


def test_a_link_is_free_while_a_message_still_waits_in_its_senders_port():
    """Rank 0's port takes 21 ms for each of three; rank 1's message crosses after the first one."""

    def between(run):
        sent = {src: [row[4] for row in messages_of(run.trace) if row[1] == src] for src in (0, 1)}
        return sent[0] == pytest.approx([0, 21e3, 42e3], abs=2e-3) and sent[1] == [1000.0]

    until(between, two_ports, NETWORKS["racks"](4), 2000)


def two_hops(comm):
    """Ranks 0 and 1 send to the rank after the next one."""
    comm.barrier()
    x = torch.zeros(1000)
    if comm.rank < 2:
        comm.isend(x, comm.rank + 2).wait()
    elif comm.rank < 4:
        comm.recv(x, comm.rank - 2)


def test_on_a_ring_each_hop_adds_a_latency_and_keeps_its_link():
    """Both go from rank 1 to rank 2: rank 1's message waits until rank 0's has gone over."""
    busy = 4000 / LINK.bandwidth

    def hops(run):
        (_, _, _, _, *first), (_, _, _, _, *second) = messages_of(run.trace)
        seconds = 2 * LINK.latency + busy
        expected = [0, seconds, busy, busy + seconds]
        return first + second == pytest.approx([each * 1e6 for each in expected], abs=2e-3)

    until(hops, two_hops, NETWORKS["ring"](5))


# -- the ledger ------------------------------------------------------------------------------------
@pytest.fixture
def racks(tmp_path):
    """A ledger of two racks of two ranks."""
    topology = NETWORKS["racks"](4)
    links = len(topology.links)
    memory = mmap.mmap(-1, size(4, links))
    with open(tmp_path / "ledger", "w") as lock:
        yield Ledger(memory, 0, 4, links, lock, topology.path)


def test_a_message_is_not_booked_before_the_earliest_time_at_which_it_can_have_come(racks):
    message = racks.enter(0, 2, 20_000, ready=1.0)
    assert message.stamp == pytest.approx(1.030)
    racks.look(message, now=1.029, reader=2)
    assert message.entry == 0 and message.sent != message.sent
    earlier = racks.enter(1, 3, 20_000, ready=0.999)
    racks.look(message, now=1.030, reader=2)
    assert message.entry == -1
    assert (message.sent, message.stamp) == pytest.approx((1.009, 1.039))
    racks.look(earlier, now=1.040, reader=1)
    assert (earlier.sent, earlier.stamp) == pytest.approx((0.999, 1.029))


def test_at_the_same_moment_the_lower_rank_is_served_first(racks):
    """0.1 + 0.2 is 0.3 but for rounding."""
    one, zero = racks.enter(1, 3, 20_000, ready=0.3), racks.enter(0, 2, 20_000, ready=0.1 + 0.2)
    for message in (one, zero):
        racks.look(message, now=1.0, reader=message.src)
    assert (zero.sent, one.sent) == pytest.approx((0.3, 0.31))


def test_the_ledger_has_room_again_when_receivers_have_read(racks):
    messages = [racks.enter(0, 2, 0, ready=0.0) for _ in range(ENTRIES)]
    assert racks.full(0, ()) and not racks.full(1, ())
    assert not racks.full(0, {2}), "a lost rank reads no more"
    racks.look(messages[0], now=np.inf, reader=0)
    assert racks.full(0, ())
    read = type(messages[0])(0, 0, np.nan, messages[0].stamp)  # as its receiver has it
    racks.look(read, now=-np.inf, reader=2)
    assert (read.sent, read.stamp) == (messages[0].sent, messages[0].stamp)
    assert not racks.full(0, ())
    assert racks.enter(0, 2, 0, ready=0.0).entry == ENTRIES
    assert racks.full(0, ())


def sent_ahead(comm, count):
    """Rank 0 sends `count` messages and one that rank 1 takes before them."""
    if comm.rank == 0:
        sends = [comm.isend(torch.tensor([i]), 1, tag=i // count) for i in range(count + 1)]
        for send in sends:
            send.wait()
        return None
    found = torch.zeros(count + 1, dtype=torch.int64)
    for i in (count, *range(count)):
        comm.recv(found[i : i + 1], 0, tag=i // count)
    return found.tolist()


def test_more_messages_than_the_ledger_holds_are_sent_ahead():
    topology = Topology.racks(2, 1, Link(0.0, 1e9), Link(1e-6, 1e9))
    count = ENTRIES + 300
    run = dlviz.launch(sent_ahead, ranks=2, machine=machine(topology), args=(count,))
    assert run.results[1] == [*range(count + 1)]
    assert len(run.trace.messages) == count + 1
    assert np.isfinite(run.trace.messages.sent).all()
