"""The automatic choice of an all-reduce."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlviz
from dlviz.cluster.measure.link import REPEATS, LinkCost
from dlviz.collectives import all_reduce, auto
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim import collective_seconds

SIZES = (4, 4096, 1 << 20)  # bytes


def choices(comm):
    found = [(auto.choose(comm, nbytes), nbytes) for nbytes in SIZES]
    for _ in range(3):
        tensor = torch.full((1000,), float(comm.rank))
        all_reduce(comm, tensor, "auto", "avg")
    return found, auto.link_of(comm), tensor[0].item()


def test_one_rank_measures_nothing():
    run = dlviz.launch(lambda comm: auto.choose(comm, 8), ranks=1)
    assert run.results == ["ring"] and len(run.trace.messages) == 0


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_choose_what_the_link_measured_once_prices_lowest(ranks):
    run = dlviz.launch(choices, ranks=ranks)
    chosen, link, mean = run.results[0]
    assert run.results == [run.results[0]] * ranks
    assert mean == (ranks - 1) / 2
    assert 0 <= link.alpha < 0.1 and 0 <= link.beta < 1e-6 and 0 < link.gamma < 1e-6
    for name, nbytes in chosen:
        costs = link.alpha, link.beta, link.gamma
        prices = {each: collective_seconds(each, ranks, nbytes, *costs) for each in auto.CANDIDATES}
        assert prices[name] <= min(prices.values()) * (1 + link.error)
        dearer = auto.CANDIDATES[: auto.CANDIDATES.index(name)]
        assert all(prices[each] > min(prices.values()) * (1 + link.error) for each in dearer)
    measured = run.trace.spans[run.trace.spans.name == "measure the link"]
    assert sorted(measured.rank.tolist()) == list(range(ranks)), "once for each rank"
    between = {(0, 1), (1, 0)}
    messages = run.trace.messages[run.trace.messages.step == -1]  # of no all-reduce's round
    assert set(zip(messages.src.tolist(), messages.dst.tolist(), strict=True)) == between
    assert len(messages) == 2 * len(link.sizes) * (REPEATS + 1)


class Four:
    """A group of four ranks, as far as a choice needs it."""

    size = 4


@pytest.mark.parametrize(
    "error, nbytes, name",
    [
        (0.00, 2**26, "halving_doubling"),
        (0.02, 2**26, "ring"),
        (0.02, 2**18, "butterfly"),
    ],
)
def test_prices_closer_than_the_error_of_the_fit_choose_the_ring(error, nbytes, name):
    group = Four()
    auto._measured[group] = LinkCost(80e-6, 0.18e-9, 0.02e-9, error, (), ())
    assert auto.choose(group, nbytes) == name


def on_a_machine(comm):
    small, big = (auto.choose(comm, nbytes) for nbytes in (8, 10**8))
    return auto.link_of(comm), small, big


@pytest.mark.filterwarnings("ignore:the run was up to:RuntimeWarning")
def test_on_a_paced_run_the_measured_link_is_the_machines():
    device = Device("adder", 1e9, 1e9, 1e9, gamma=2e-10)
    machine = Machine(device, Topology.switch(3, Link(1e-3, 1e8)))
    for link, small, big in dlviz.launch(on_a_machine, ranks=3, machine=machine).results:
        costs = link.alpha, link.beta, link.gamma
        assert np.allclose(costs, (1e-3, 1e-8, 2e-10), rtol=1e-6, atol=0) and link.error < 1e-6
        assert (small, big) == ("direct", "ring")


def two_groups(comm):
    half = comm.split(comm.rank % 2)
    tensor = torch.ones(4)
    all_reduce(half, tensor, "auto")
    all_reduce(half, tensor, "auto")
    return tensor[0].item()


def test_each_group_measures_its_own_link():
    run = dlviz.launch(two_groups, ranks=4)
    assert run.results == [4.0] * 4
    assert (run.trace.spans.name == "measure the link").sum() == 4
