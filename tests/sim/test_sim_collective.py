"""Collectives played message by message: against the closed forms and against paced runs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import attempts

import dlviz
from dlviz import patterns, sim
from dlviz.collectives import ALGORITHMS, all_reduce
from dlviz.machine import Device, Link, Machine, Topology, classroom
from dlviz.metrics import bytes_sent, makespan
from dlviz.patterns import Transfer
from dlviz.sim.collective import PATTERNS, Messages, fewest_elements, transfers

ALPHA, BETA, GAMMA = 10e-6, 1e-9, 0.1e-9
LINK = Link(ALPHA, 1 / BETA)
FLAT = [*PATTERNS]


def machine(topology: Topology, gamma: float = GAMMA) -> Machine:
    return Machine(Device("adder", 1e9, 1e9, 1e9, gamma), topology)


def switch(ranks: int, gamma: float = GAMMA) -> Machine:
    return machine(Topology.switch(ranks, LINK), gamma)


def both(name: str, ranks: int, nbytes: int, gamma: float = GAMMA) -> tuple[float, float]:
    """Seconds played and by the closed form."""
    trace = sim.collective(name, ranks, nbytes, switch(ranks, gamma))
    return makespan(trace), sim.collective_seconds(name, ranks, nbytes, ALPHA, BETA, gamma)


# -- against the closed forms ----------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", [name for name in FLAT if name != "parameter_server"])
def test_on_powers_of_two_the_closed_form_is_what_is_played(name, ranks):
    played, priced = both(name, ranks, 1 << 20)
    assert played == pytest.approx(priced, abs=1e-9)


EXACT = (
    "ring", "all_reduce", "direct", "reduce_scatter", "all_gather", "broadcast", "gather",
    "scatter", "all_to_all",
)  # fmt: skip


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 12])
@pytest.mark.parametrize("name", EXACT)
def test_it_is_for_any_ranks_that_divide_the_bytes(name, ranks):
    played, priced = both(name, ranks, 99_999 * ranks)
    assert played == pytest.approx(priced, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(
    ranks=st.integers(1, 20),
    units=st.integers(0, 3000),
    gamma=st.sampled_from([0.0, GAMMA, 3 * BETA]),
    name=st.sampled_from(FLAT),
)
def test_elsewhere_the_closed_form_is_the_bound_that_it_is_said_to_be(ranks, units, gamma, name):
    nbytes = units * ranks * (1 << (ranks.bit_length() - 1))
    played, priced = both(name, ranks, nbytes, gamma)
    if nbytes == 0:
        assert played == 0
    elif name in EXACT:
        assert played == pytest.approx(priced, abs=1e-9)
    elif name == "halving_doubling":
        assert played >= priced - 1e-9
    else:
        assert played <= priced + 1e-9


@pytest.mark.parametrize("gamma", [0.0, GAMMA])
def test_a_server_hides_all_additions_but_the_last_behind_the_next_message(gamma):
    played, priced = both("parameter_server", 5, 1 << 20, gamma)
    assert played == pytest.approx(priced - 3 * (1 << 20) * gamma, abs=1e-9)


def test_a_fold_off_powers_of_two_is_held_up_by_ranks_that_run_ahead():
    played, priced = both("halving_doubling", 3, 1 << 20)
    assert played - priced == pytest.approx(ALPHA + (1 << 19) * BETA, abs=1e-9)


@pytest.mark.parametrize(
    "topology",
    [Topology.racks(4, 1, LINK, Link(1e-4, 1e8)), Topology.racks(1, 4, LINK, LINK),
     Topology.switch(6, LINK), Topology.ring(5, LINK)],
)  # fmt: skip
def test_the_hierarchys_closed_form_is_exact_where_nothing_is_shared(topology):
    nbytes = 60_000
    trace = sim.collective("hierarchical", topology.ranks, nbytes, machine(topology))
    priced = sim.collective_seconds("hierarchical", topology.ranks, nbytes, topology, gamma=GAMMA)
    assert makespan(trace) == pytest.approx(priced, abs=1e-9)


def test_a_hierarchy_is_played_near_its_closed_form_where_nodes_share_their_uplink():
    for nodes, size in ((2, 2), (2, 4), (4, 2), (3, 3)):
        topology = Topology.racks(nodes, size, LINK, Link(1e-4, 1e8))
        nbytes = nodes * size * 1000
        trace = sim.collective("hierarchical", topology.ranks, nbytes, machine(topology))
        priced = sim.collective_seconds("hierarchical", nodes * size, nbytes, topology, gamma=GAMMA)
        assert makespan(trace) == pytest.approx(priced, rel=0.3)


# -- against paced runs ----------------------------------------------------------------------------
LATE_OR_NOT = pytest.mark.filterwarnings("ignore:the run was up to:RuntimeWarning")


def after_a_barrier(comm, algorithm, length, op="sum"):
    tensor = torch.ones(length, dtype=torch.uint8)
    comm.barrier()
    with comm.span("phase", algorithm):
        all_reduce(comm, tensor, algorithm, op)


def one_after_the_other(comm, length):
    for algorithm in ALGORITHMS:
        after_a_barrier(comm, algorithm, length)


def times(trace: dlviz.Trace, algorithm: str = "") -> list[tuple]:
    """Every message, or those of one algorithm of several, and when (device time, to the
    nanosecond) it was sent, arrived, received."""
    messages = trace.messages
    if algorithm:
        spans = trace.spans[trace.spans.name == algorithm]
        own = [
            (messages.src == rank) & (messages.sent >= start) & (messages.sent < end)
            for rank, start, end in zip(spans.rank, spans.start, spans.end, strict=True)
        ]
        messages = messages[np.any(own, axis=0)]
    start = messages.sent.min()
    return sorted(
        (
            (m.src, m.dst, m.step, m.count, m.op),
            tuple(round((t - start) * 1e9) for t in (m.sent, m.arrived, m.received)),
        )
        for m in messages.rows()
    )


def close(found: list[tuple], expected: list[tuple]) -> bool:
    return [key for key, _ in found] == [key for key, _ in expected] and np.allclose(
        [at for _, at in found], [at for _, at in expected], rtol=0, atol=2
    )


def assert_as_played(algorithm: str, nbytes: int, paced: Machine) -> None:
    """A run takes what is played. Device times depend on how busy this machine is only where a
    rank is late by a message, some 10 ms."""
    played = times(sim.collective(algorithm, paced.ranks, nbytes, paced))
    args = (algorithm, nbytes)
    for attempt in attempts():
        trace = dlviz.launch(after_a_barrier, ranks=paced.ranks, machine=paced, args=args).trace
        with attempt:
            assert close(times(trace), played), (times(trace), played)


def adders(ranks: int) -> Machine:
    return Machine(Device("adder", 1e9, 1e9, 1e9, 2e-9), Topology.switch(ranks, Link(0.01, 1e9)))


@cache
def all_on_four() -> dlviz.Trace:
    """Of every algorithm in one run."""
    return dlviz.launch(one_after_the_other, 4, machine=adders(4), args=(120_000,)).trace


@LATE_OR_NOT
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_paced_run_takes_what_is_played_message_for_message(algorithm):
    found = times(all_on_four(), algorithm)
    assert [key for key, _ in found], "its messages"
    played = times(sim.collective(algorithm, 4, 120_000, adders(4)))
    if not close(found, played):
        assert_as_played(algorithm, 120_000, adders(4))


@LATE_OR_NOT
@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_so_does_one_of_three_ranks(algorithm):
    assert_as_played(algorithm, 120_000, adders(3))


@LATE_OR_NOT
def test_the_larger_of_two_takes_as_long_as_their_sum():
    paced, args = adders(4), ("butterfly", 100_000, "max")
    played = [at for _, at in times(sim.collective("butterfly", 4, 100_000, paced))]
    for attempt in attempts():
        found = times(dlviz.launch(after_a_barrier, 4, machine=paced, args=args).trace)
        assert {op for (*_, op), _ in found} == {"max"}
        with attempt:
            assert np.allclose([at for _, at in found], played, rtol=0, atol=2), (found, played)


RACKS = Machine(
    Device("adder", 1e9, 1e9, 1e9), Topology.racks(2, 2, Link(5e-3, 1e9), Link(10e-3, 1e8))
)


@LATE_OR_NOT
def test_a_paced_ring_over_racks_takes_what_is_played_message_for_message():
    assert_as_played("ring", 40_000, RACKS)


@LATE_OR_NOT
@pytest.mark.parametrize(("algorithm", "across"), [("hierarchical", 80_000), ("ring", 120_000)])
def test_a_hierarchy_spares_the_link_between_racks(algorithm, across):
    """2 tensors where the ring takes 3: of n ranks on 2 racks 4(n-1)/n."""
    run = dlviz.launch(after_a_barrier, ranks=4, machine=RACKS, args=(algorithm, 40_000))
    for messages in (run.trace.messages, sim.collective(algorithm, 4, 40_000, RACKS).messages):
        crossing = (messages.src < 2) != (messages.dst < 2)
        assert messages.nbytes[crossing].sum() == across


@LATE_OR_NOT
def test_the_machine_says_which_ranks_are_a_node():
    """Five ranks under switches of two: nodes of 2, 2 and 1, so that two ranks are taken in."""
    link = Link(1e-3, 1e9)
    paced = Machine(Device("adder", 1e9, 1e9, 1e9), Topology.tree(5, 2, link, link, link))
    run = dlviz.launch(after_a_barrier, ranks=5, machine=paced, args=("hierarchical", 3000))
    played = sim.collective("hierarchical", 5, 3000, paced)
    assert [key for key, _ in times(run.trace)] == [key for key, _ in times(played)]
    assert {(m.src, m.dst) for m in played.messages.rows() if m.step == 0} == {(1, 0), (3, 2)}


# -- the Trace -------------------------------------------------------------------------------------
TOPOLOGIES = {
    "switch": lambda n: Topology.switch(n, LINK),
    "ring": lambda n: Topology.ring(n, LINK),
    "racks": lambda n: Topology.racks(-(-n // 3), 3, LINK, Link(1e-4, 1e8)),
    "tree": lambda n: Topology.tree(n, 2, LINK, LINK, Link(1e-4, 3e8), LINK),
    "own": lambda n: Topology.switch(
        n, [(LINK, Link(1e-4, 1e8), Link(1e-6, 1e10))[r % 3] for r in range(n)]
    ),
}


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from([*FLAT, "hierarchical"]),
    ranks=st.integers(1, 16),
    units=st.integers(0, 60),
    topology=st.sampled_from([*TOPOLOGIES]),
)
def test_a_played_trace_is_valid_and_holds_the_patterns_messages(name, ranks, units, topology):
    nbytes, on = units * ranks, machine(TOPOLOGIES[topology](ranks))
    trace = sim.collective(name, ranks, nbytes, on)
    trace.validate()
    if name == "hierarchical":
        nodes: dict[int, list[int]] = {}
        for rank in range(ranks):
            nodes.setdefault(on.topology.node(rank), []).append(rank)
        pattern = patterns.hierarchical.all_reduce(ranks, nbytes, list(nodes.values()))
    else:
        pattern = PATTERNS[name](ranks, nbytes)
    assert pattern == [
        Transfer(m.step, m.src, m.dst, m.offset, m.count, m.op) for m in trace.messages.rows()
    ]
    assert (trace.messages.nbytes == trace.messages.count).all()
    assert bytes_sent(trace).tolist() == patterns.elements_sent(pattern, ranks)
    adds = sum(t.op == "sum" for t in pattern)
    assert len(trace.spans) == 2 * len(pattern) + adds
    assert trace.meta["clock"] == "simulated" and trace.meta["ranks"] == ranks


@settings(deadline=None, max_examples=80)
@given(
    name=st.sampled_from([*FLAT, "hierarchical"]),
    ranks=st.integers(1, 16),
    units=st.integers(0, 60),
    gamma=st.sampled_from([0.0, GAMMA, 3 * BETA]),
    topology=st.sampled_from([*TOPOLOGIES]),
)
def test_whole_steps_and_single_events_play_alike(name, ranks, units, gamma, topology):
    nbytes, on = units * ranks, machine(TOPOLOGIES[topology](ranks), gamma)
    rows = [tuple(row) for row in sim.collective(name, ranks, nbytes, on).messages.rows()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Messages, "play_steps", lambda self: False)
        single = sim.collective(name, ranks, nbytes, on)
    assert [tuple(row) for row in single.messages.rows()] == rows


def test_the_ring_on_any_topology_and_a_short_tensor_are_played_in_whole_steps(monkeypatch):
    """Or 1,024 ranks would take long."""
    monkeypatch.setattr(Messages, "play_events", lambda self: pytest.fail("single events"))
    for topology in TOPOLOGIES.values():
        for nbytes in (5, 12, 100_001):
            sim.collective("ring", 12, nbytes, machine(topology(12)))
    for name in ("tree", "butterfly", "halving_doubling", "parameter_server"):
        sim.collective(name, 16, 1600, switch(16))


def test_simultaneous_messages_at_a_port_queue_there():
    trace = sim.collective("parameter_server", 3, 1000, classroom(3))
    first, second = (m for m in trace.messages.rows() if m.dst == 0)
    one = 0.5e-3 + 1000e-9
    assert (first.sent, second.sent) == (0, 0)
    assert (first.arrived, second.arrived) == pytest.approx((one, 2 * one))


@pytest.mark.parametrize("whole_steps", [True, False])
def test_a_server_with_a_fast_link_takes_in_slow_uploads_together(whole_steps, monkeypatch):
    if not whole_steps:
        monkeypatch.setattr(Messages, "play_steps", lambda self: False)
    slow, fast = Link(1e-2, 1e6), Link(1e-4, 1e8)
    on = machine(Topology.switch(5, [fast, *[slow] * 4]), 0.0)
    rows = [*sim.collective("parameter_server", 5, 10_000, on).messages.rows()]
    up, down = 1e-2 + 1e-2, 1e-4 + 1e-4  # s a message at a client's port, and at the server's
    arrived = [row.arrived for row in rows if row.dst == 0]
    assert arrived == pytest.approx([up + turn * down for turn in range(4)], abs=1e-12)
    back = [(row.sent, row.arrived) for row in rows if row.src == 0]
    since = up + 3 * down
    assert back == [
        pytest.approx((since + turn * down, since + turn * down + up), abs=1e-12)
        for turn in range(4)
    ]
    crawling = machine(Topology.switch(5, [slow, *[fast] * 4]), 0.0)
    rows = [*sim.collective("parameter_server", 5, 10_000, crawling).messages.rows()]
    arrived = [row.arrived for row in rows if row.dst == 0]
    assert arrived == pytest.approx([turn * up for turn in range(1, 5)], abs=1e-12)


@pytest.mark.parametrize("name", [*FLAT])
def test_among_ranks_with_equal_links_a_slow_one_elsewhere_changes_no_digit(name):
    plain = sim.collective(name, 6, 6006, switch(6)).messages.rows()
    own = machine(Topology.switch(7, [*[LINK] * 6, Link(1.0, 1e3)]))
    assert [*sim.collective(name, 6, 6006, own).messages.rows()] == [*plain]


def test_a_message_does_not_overtake_one_sent_earlier_between_the_same_ranks():
    """Rank 0 has sent the second, a short one, long before rank 1 has taken in the first."""
    own = machine(Topology.switch(2, [Link(0.0, 1e9), Link(0.0, 1e6)]))
    table = np.zeros(2, transfers("ring", 2, 2, own).dtype)
    table["src"], table["dst"], table["op"] = 0, 1, "copy"
    table["step"], table["count"] = [0, 1], [10_000, 100]
    messages = Messages(table, 2, own)
    messages.play()
    assert messages.sent == pytest.approx([0, 1e-5])
    assert messages.arrived == pytest.approx([1e-2, 1e-2 + 1e-4])


def test_simultaneous_messages_at_a_shared_link_take_turns_for_their_bytes():
    """In a ring of two racks one message crosses at a time; direct sends two together."""
    topology = Topology.racks(2, 2, Link(0.0, 1e9), Link(1e-3, 1e6))
    rows = [*sim.collective("direct", 4, 1000, machine(topology)).messages.rows()]
    leaving = sorted(m.sent for m in rows if m.src < 2 <= m.dst)
    assert np.diff(leaving).min() >= 1e-3 * (1 - 1e-9)


def test_a_message_that_waits_in_its_senders_port_does_not_keep_the_link_from_others():
    """Four ranks of a rack send to all of the other: each port takes 1 ms a message, the link
    10 us."""
    topology = Topology.racks(2, 4, Link(0.0, 1e9), Link(1e-3, 1e8))
    rows = [*sim.collective("direct", 8, 1000, machine(topology, 0.0)).messages.rows()]
    leaving = [m.sent for m in rows if m.src < 4 <= m.dst]
    assert max(leaving) < 3e-3 + 16 * 10e-6 + 4 * 1e-6


def test_a_machine_too_small_and_an_unknown_algorithm_are_refused():
    with pytest.raises(ValueError, match="ranks=5 do not fit on a machine of 4: use 1 to 4"):
        sim.collective("ring", 5, 8, classroom(4))
    with pytest.raises(ValueError, match="algorithm='star' has no pattern: use one of ring, par"):
        sim.collective("star", 4, 8, classroom(4))


@pytest.mark.slow
def test_a_thousand_ranks_send_two_million_messages_round_the_ring():
    """In seconds and below 2 GB, as there is no object for each of them; here every 4th rank."""
    trace = sim.collective("ring", 256, 1 << 20, switch(256, gamma=0.0))
    assert len(trace.messages) == 2 * 255 * 256 and len(trace.spans) == 4 * 255 * 256
    priced = sim.collective_seconds("ring", 256, 1 << 20, ALPHA, BETA)
    assert makespan(trace) == pytest.approx(priced, abs=1e-9)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_on_the_fewest_elements_every_chunk_is_one_and_takes_as_long_as_a_large_one(ranks):
    racks = Topology.racks(2, 4, LINK, LINK)
    expected = {"ring": ranks, "halving_doubling": 1 << (ranks.bit_length() - 1), "tree": 1}
    expected["hierarchical"] = 2 * (ranks - 4) if ranks > 4 else ranks  # of the smaller node
    for name, few in expected.items():
        assert fewest_elements(name, ranks, racks) == few
        if name == "hierarchical":
            continue
        grown = machine(Topology.racks(2, 4, *[Link(ALPHA, 1 / (1000 * BETA))] * 2), 1000 * GAMMA)
        small = sim.collective(name, ranks, few, grown)
        assert small.messages.count.max() == max(1, few // ranks) or name != "ring"
        large = sim.collective(name, ranks, 1000 * few, machine(racks))
        assert makespan(small) == pytest.approx(makespan(large))
