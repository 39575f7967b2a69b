"""The network between hosts is measured, and used: in which order a reduction goes, and how."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import measured_on_hosts
import namespaces
import numpy as np
import pytest
from measured_on_hosts import ELEMENTS, everything
from namespaces import several_hosts

import dlviz
from dlviz.cluster import measure_network
from dlviz.cluster.measure.link import LinkCost
from dlviz.cluster.measure.network import NetworkCost, ranks_a_host
from dlviz.collectives import auto
from dlviz.machine import Link, Topology
from dlviz.metrics import makespan
from dlviz.sim import collective

TORCHRUN = Path(sys.executable).with_name("torchrun")
RATE = 12.5e6  # bytes/s: 100 Mbit/s
CARRIED = 1448 / 1514  # of a frame, with its header, what TCP carries
LIMIT = 240  # s


@pytest.fixture(scope="module")
def measured():
    """What each rank of two hosts returned, and the messages of all."""
    namespaces.need(namespaces.why_not())
    how = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=a-run")
    command = (*how, "--rdzv-endpoint=host-a:29500", measured_on_hosts.__file__)
    with several_hosts(rate="100mbit") as hosts:
        runs = [host.start(TORCHRUN, *command, **namespaces.ENVIRON) for host in hosts]
        said = [run.communicate(timeout=LIMIT) for run in runs]
        assert [run.returncode for run in runs] == [0, 0], said
        found = [hosts[r // 2].file(f"/tmp/measured-{r}").read_bytes() for r in range(4)]
    (results, messages), *others = map(pickle.loads, found)
    assert [own for (own,) in others] == results[1:]
    return results, messages


@pytest.fixture(scope="module")
def here():
    """The same of four ranks on this host."""
    return dlviz.launch(everything, 4).results


@pytest.mark.slow
@pytest.mark.sweep
def test_a_group_knows_which_of_its_ranks_are_on_which_host(measured):
    for rank, own in enumerate(measured[0]):
        assert own["hosts"] == [[0, 1], [2, 3]]
        assert own["of groups"] == ([[0], [1]], [[0, 1]])
        assert own["not in a row"] == [[0, 2], [1, 3]], rank


@pytest.mark.slow
@pytest.mark.sweep
def test_all_ranks_of_two_hosts_measure_the_same_racks(measured):
    topology = measured[0][0]["topology"]
    assert all(own["topology"] == topology for own in measured[0])
    assert (topology.kind, topology.sizes) == ("racks", (2, 2))
    inside, between = topology.levels
    # Which is longer is this machine's affair: its two hosts have no wire, and share its cores.
    assert 0 < inside.latency < 0.1 and 0 < between.latency < 0.1
    assert inside.bandwidth > 4 * between.bandwidth
    # Of two pairs at once: what one pair gets alone, for both, would be twice as much. The quickest
    # of the rounds counts, so other work on this machine has to come to all of them.
    assert between.bandwidth == pytest.approx(CARRIED * RATE, rel=0.15)


@pytest.mark.slow
@pytest.mark.sweep
def test_auto_chooses_by_what_was_measured_and_alike_on_all_ranks(measured):
    results, _ = measured
    network = results[0]["link"]
    assert isinstance(network, NetworkCost) and (network.hosts, network.ranks) == (2, 2)
    for own in results:
        assert own["choices"] == results[0]["choices"] and own["link"] == network
    assert results[0]["choices"][-1] == "hierarchical"


@pytest.mark.slow
@pytest.mark.sweep
def test_reductions_on_two_hosts_are_those_on_one(measured, here):
    for there, own in zip(measured[0], here, strict=True):
        for what in ("hierarchical", "auto", "in a host"):
            assert there[what] == own[what]
    assert measured[0][0]["hierarchical"] == [10.0 * i for i in range(ELEMENTS)]


@pytest.mark.slow
@pytest.mark.sweep
def test_the_hierarchical_all_reduce_sends_one_tensor_out_of_each_host(measured):
    out = dict.fromkeys((0, 1), 0)
    for src, dst, nbytes, group in measured[1]:
        if group == "world/7" and src // 2 != dst // 2:
            out[src // 2] += nbytes
    assert out == {0: 4 * ELEMENTS, 1: 4 * ELEMENTS}


@pytest.mark.slow
@pytest.mark.sweep
def test_the_backends_collectives_of_one_hosts_ranks_go_by_its_memory(measured):
    assert [own["by gloo"] for own in measured[0]] == [False] * 4


@pytest.mark.slow
@pytest.mark.sweep
def test_hosts_with_unequal_ranks_are_no_racks_but_auto_goes_on(measured):
    for own in measured[0][:3]:
        says, choice, total = own["uneven"]
        assert (
            "are on the hosts [[0, 1], [2]]: a network of racks needs equally many ranks on" in says
        )
        assert choice in auto.CANDIDATES and total == 3000


def test_on_one_host_the_network_is_a_switch(here):
    for own in here:
        assert own["hosts"] == [[0, 1, 2, 3]] and own["topology"] == here[0]["topology"]
        assert own["topology"].kind == "switch" and own["topology"].ranks == 4
        assert isinstance(own["link"], LinkCost)
        assert own["uneven"] is None or own["uneven"][0] == ""
    assert dlviz.launch(measure_network, 1).results == [Topology.switch(1, Link(0.0, np.inf))]


@pytest.mark.parametrize(
    ("hosts", "each"),
    [
        ([[0, 1], [2, 3]], 2),
        ([[0], [1], [2]], 1),
        ([[0, 1, 2]], 3),
        ([[0, 1], [2]], None),
        ([[0], [1, 2]], None),
        ([[0, 2], [1, 3]], None),
        ([[2, 3], [0, 1]], None),
    ],
)
def test_racks_hold_as_many_ranks_each_one_after_the_other(hosts, each):
    assert ranks_a_host(hosts) == each


class OnHosts:
    """A group of two hosts' ranks, as far as a choice needs it."""

    def __init__(self, size):
        self.size = size


def network(ranks):
    inside = LinkCost(5e-5, 2**-31, 1e-10, 0.0, (), ())
    return NetworkCost(2, ranks, inside, LinkCost(3e-4, 2**-27, 1e-10, 0.0, (), ()))


@pytest.mark.parametrize("nbytes", [8, 1 << 13, 1 << 16, 1 << 24])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_on_hosts_auto_takes_what_takes_least_when_played_on_both_links(ranks, nbytes):
    group, found = OnHosts(2 * ranks), network(ranks)
    auto._measured[group] = found
    machine = found.machine
    assert machine.topology.levels == (Link(5e-5, 2**31), Link(3e-4, 2**27))
    names = ("hierarchical", *auto.CANDIDATES)
    prices = {name: makespan(collective(name, group.size, nbytes, machine)) for name in names}
    assert prices[auto.choose(group, nbytes)] == min(prices.values())
    if ranks == 3 and nbytes == 1 << 24:
        assert auto.choose(group, nbytes) == "hierarchical"


def test_one_link_prices_all_where_hosts_have_unequal_ranks():
    group = OnHosts(5)
    auto._measured[group] = network(None)
    assert auto.choose(group, 1 << 24) == "ring"
