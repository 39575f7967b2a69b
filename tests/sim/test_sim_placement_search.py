"""Searches: none beats all placements, each holds memory, and the lab's figures."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from dlviz.machine import Link
from dlviz.sim import Devices, Graph, count, search, seconds_of
from dlviz.sim.placement import BRANCHES, LAB, METHODS, missing, recurrent
from dlviz.sim.placement.heft import schedule
from dlviz.sim.placement.moves import neighbour
from dlviz.sim.placement.player import player_of

SAMPLING = ("random", "moves")


def linked(count, c, **options):
    return Devices(count, Link(c, math.inf), **options)


def some(seed):
    """A graph of at most six groups on at most three devices: equal ones, with factors, with
    memory, with seconds of their own, with factors and memory."""
    draw = random.Random(seed)
    groups, devices, kind = draw.randint(2, 6), draw.choice([2, 3]), seed % 5
    seconds = [draw.randint(1, 4) for _ in range(groups)]
    if kind == 3:
        seconds = [[draw.randint(1, 4) for _ in range(devices)] for _ in range(groups)]
    graph = Graph(
        seconds,
        [[p for p in range(g) if draw.random() < 0.4] for g in range(groups)],
        [draw.randint(0, 3) for _ in range(groups)],
        [draw.randint(0, 4) for _ in range(groups)],
    )
    options = {}
    if kind in (1, 4):
        options["factors"] = [1, 2, 1][:devices]
    if kind in (2, 4):
        options["memory"] = [draw.randint(6, 12) for _ in range(devices)]
    return graph, Devices(devices, Link(draw.choice([0, 1]), draw.choice([1, 3])), **options)


def best_of_all(graph, devices):
    """The least seconds of all placements that fit, symmetric copies too; None if none fits."""
    everything = product(range(devices.count), repeat=len(graph))
    fitting = (each for each in everything if not missing(graph, each, devices))
    return min((seconds_of(graph, each, devices) for each in fitting), default=None)


@pytest.mark.parametrize("seed", range(40))
def test_exhaustive_finds_what_brute_force_finds_and_no_search_beats_it(seed):
    graph, devices = some(seed)
    best = best_of_all(graph, devices)
    if best is None:
        with pytest.raises(ValueError, match="bytes are missing"):
            search(graph, devices, "exhaustive")
        return
    found = search(graph, devices, "exhaustive")
    assert found.seconds == best == min(found.samples) == found.promised
    assert seed % 5 == 3 or missing(graph, found.placement, devices) == 0
    if seed % 5 in (0, 1):
        assert len(found.samples) == count(len(graph), devices)
    for method in METHODS:
        options = {"budget": 100} if method in SAMPLING else {}
        try:
            other = search(graph, devices, method, **options)
        except ValueError as error:
            assert devices.memory != (math.inf,) * devices.count and "missing" in str(error)
            continue
        assert other.seconds == seconds_of(graph, other.placement, devices) >= best
        assert min(other.samples) == other.seconds


def test_the_best_depends_on_no_devices_number():
    """Two groups of one upward rank on two devices: if the lower device came first, the best of
    six groups would be 9, and 8 with the names of two devices exchanged."""
    graph = Graph([1, 4, 1, 1, 4, 3], [(), (0,), (0,), (1,), (2, 5), (0,)], [1, 1, 1, 1, 1, 50])
    devices = Devices(3, Link(0, 1))
    assert search(graph, devices, "exhaustive").seconds == best_of_all(graph, devices)


def test_branches_on_two_devices():
    found = {
        name: [search(BRANCHES, linked(2, c), name) for c in range(6)]
        for name in ("exhaustive", "greedy", "one")
    }
    assert [each.seconds for each in found["exhaustive"]] == [7, 8, 9, 10, 11, 12]
    assert [each.promised for each in found["greedy"]] == [7, 8, 10, 11, 13, 14]
    assert [each.seconds for each in found["greedy"]] == [7, 8, 11, 11, 16, 14]
    assert {each.seconds for each in found["one"]} == {12}


def test_ten_groups_on_four_devices_have_43947_placements():
    found = search(LAB, linked(4, 1), "exhaustive")
    assert len(found.samples) == count(10, 4) == 43_947
    assert found.seconds == 12


def test_layers_of_a_recurrent_net_lie_each_on_its_device():
    found = search(recurrent(4, 8), linked(4, 2), "layers")
    assert found.placement == [layer for layer in range(4) for _ in range(8)]
    assert (found.promised, found.seconds) == (8, 24)


def test_layers_cut_a_row_where_the_busiest_device_has_least_and_memory_allows():
    row = Graph([1, 2, 3, 4, 5], [(), (0,), (1,), (2,), (3,)], [1] * 5, [4, 1, 1, 1, 1])
    cuts = [([1, 2, 3], [4, 5]), ([1, 2, 3, 4], [5])]
    assert search(row, Devices(2), "layers").promised == min(max(map(sum, cut)) for cut in cuts)
    assert search(row, Devices(2, memory=[4, 9]), "layers").placement == [0, 1, 1, 1, 1]
    slow = search(row, Devices(2, factors=[1, 9]), "layers")
    assert slow.placement == [0] * 5 and slow.promised == 15
    with pytest.raises(ValueError, match="in order, fits 2 devices: 1 bytes are missing"):
        search(row, Devices(2, memory=[3, 7]), "layers")  # device 0 takes nothing, device 1 all


def test_round_robin_takes_devices_in_turn_and_passes_over_a_full_one():
    row = Graph([1] * 5, [()] * 5, [1] * 5, [2] * 5)
    assert search(row, Devices(3), "round_robin").placement == [0, 1, 2, 0, 1]
    assert search(row, Devices(3, memory=[4, 2, 4]), "round_robin").placement == [0, 1, 2, 0, 2]


def test_one_is_the_device_that_is_through_first_and_has_the_memory():
    row = Graph([1, 1], [(), (0,)], [1, 1], [2, 2])
    assert search(row, Devices(3, factors=[3, 1, 2]), "one").placement == [1, 1]
    assert search(row, Devices(2, factors=[3, 1], memory=[4, 3]), "one").placement == [0, 0]
    with pytest.raises(ValueError, match="no device has more than 3: 1 bytes are missing"):
        search(row, Devices(2, memory=3), "one")


PAPER = {  # Topcuoglu et al. 2002, figure 2: seconds on three processors, messages by edge
    "takes": [
        (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
        (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
    ],
    "parents": [
        (), (0,), (0,), (0,), (0,), (0,), (2,), (1, 3, 5), (1, 3, 4), (6, 7, 8),
    ],
    "messages": [
        (), (18,), (12,), (9,), (11,), (14,), (23,), (19, 27, 15), (16, 23, 13), (17, 11, 13),
    ],
}  # fmt: skip


def test_heft_promises_the_papers_80_on_its_ten_tasks():
    graph = Graph(PAPER["takes"], PAPER["parents"], [0] * 10)
    placement, promised = schedule(graph, PAPER["takes"], PAPER["messages"], lambda group: range(3))
    assert promised == 80
    assert placement == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]  # the paper's figure 3a


def test_heft_puts_a_group_into_a_gap_and_greedy_does_not():
    no = 100  # seconds on the wrong device
    row = [[1, no], [no, 1], [5, no], [1, no]]
    graph = Graph(row, [(), (0,), (1,), ()], [0] * 4)
    found = {method: search(graph, Devices(2), method) for method in ("greedy", "heft")}
    assert {each.seconds for each in found.values()} == {7}  # the player goes on meanwhile
    assert (found["heft"].promised, found["greedy"].promised) == (7, 8)


def test_greedy_begins_with_the_most_urgent_group():
    found = search(Graph([1, 1, 2], [()] * 3, [0] * 3), Devices(2), "greedy")
    assert found.placement == [1, 1, 0] and found.promised == found.seconds == 2


def test_greedy_and_heft_look_at_unequal_devices():
    row = Graph([2, 2, 2], [()] * 3, [0] * 3)
    for method in ("greedy", "heft"):
        found = search(row, Devices(2, factors=[1, 4]), method)
        assert found.placement == [0, 0, 0] and found.promised == 6


@pytest.mark.parametrize("method", METHODS)
def test_every_method_holds_memory(method):
    row = Graph([1] * 6, [()] * 6, [1] * 6, [1, 2, 3, 1, 2, 3])
    devices = Devices(2, memory=[6, 12])
    found = search(row, devices, method)
    assert missing(row, found.placement, devices) == 0
    assert found.placement == [1] * 6 if method == "one" else 0 in found.placement
    tight = Devices(2, memory=[5, 12])
    assert missing(row, search(row, tight, method).placement, tight) == 0


@pytest.mark.parametrize("method", METHODS)
def test_what_fits_nowhere_is_refused_with_the_bytes_missing(method):
    pair = Graph([1, 1], [(), (0,)], [1, 1], [4, 9])
    with pytest.raises(ValueError, match="group 1 holds 9 bytes .* more than 7: 2 bytes are miss"):
        search(pair, Devices(3, memory=7), method)
    three = Graph([1] * 3, [()] * 3, [1] * 3, [4] * 3)
    with pytest.raises(ValueError, match="hold 12 bytes .* together 10: 2 bytes are missing"):
        search(three, Devices(2, memory=5), method)
    with pytest.raises(ValueError, match=r" [145] bytes are missing"):  # each fits, and all do not
        search(three, Devices(2, memory=7), method)


def test_exhaustive_counts_the_bytes_that_the_best_packing_lacks():
    three = Graph([1] * 3, [()] * 3, [1] * 3, [4] * 3)
    with pytest.raises(ValueError, match="no placement fits: in the best of all 1 bytes are miss"):
        search(three, Devices(2, memory=[7, 7]), "exhaustive")


def test_exhaustive_refuses_more_placements_than_it_can_play(monkeypatch):
    monkeypatch.setattr("dlviz.sim.placement.exhaustive.MOST", 100)
    with pytest.raises(ValueError, match="10 groups on 4 devices have 43,947 placements, and at"):
        search(LAB, Devices(4), "exhaustive")
    with pytest.raises(ValueError, match="have 1,048,576 placements"):
        search(LAB, Devices(4, factors=[1, 2, 3, 4]), "exhaustive")


@pytest.mark.parametrize("method", SAMPLING)
def test_a_budget_is_held_and_a_seed_repeats_it(method):
    for budget in (1, 7, 200):
        found = search(LAB, linked(4, 1), method, budget=budget, seed=3)
        assert len(found.samples) == budget and found.seconds == min(found.samples)
        assert found == search(LAB, linked(4, 1), method, budget=budget, seed=3)
    assert search(LAB, linked(1, 1), method, budget=20).samples == [21] * 20
    for budget in (0, -1, 1.5):
        with pytest.raises(ValueError, match=f"budget={budget} has to be a whole number, 1 or mor"):
            search(LAB, Devices(2), method, budget=budget)


@pytest.mark.parametrize("method", SAMPLING)
def test_samples_that_do_not_fit_count_and_take_forever(method):
    pair = Graph([1, 1], [(), ()], [1, 1], [3, 3])
    found = search(pair, Devices(2, memory=3), method, budget=50)
    assert found.seconds == 1 and {*found.samples} == {1, math.inf}


def test_where_devices_are_full_two_groups_swap():
    full = Graph([4, 3, 1, 2], [()] * 4, [0] * 4, [1] * 4)
    devices, start, draw = Devices(2, memory=2), [0, 0, 1, 1], random.Random(0)
    after = [neighbour(player_of(full, devices), start, draw) for _ in range(200)]
    fit = {tuple(each) for each in after if not missing(full, each, devices)}
    assert fit == {(0, 0, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (0, 1, 1, 0)}
    assert any(missing(full, each, devices) for each in after)  # the moves


def test_local_search_does_better_than_random_on_many_groups():
    draw = random.Random(5)
    graph = Graph(
        [draw.randint(1, 5) for _ in range(40)],
        [[p for p in range(max(0, g - 6), g) if draw.random() < 0.3] for g in range(40)],
        [1] * 40,
    )
    for seed in range(5):
        times = {m: search(graph, linked(4, 1), m, budget=500, seed=seed) for m in SAMPLING}
        assert times["moves"].seconds < times["random"].seconds


def test_a_method_or_an_option_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match="method='best' is unknown: use one of one, layers, round"):
        search(LAB, Devices(2), "best")
    with pytest.raises(ValueError, match="'greedy' has no option 'budget': it has none"):
        search(LAB, Devices(2), "greedy", budget=3)
    with pytest.raises(ValueError, match="'moves' has no option 'rounds': it has budget, seed"):
        search(LAB, Devices(2), "moves", rounds=3)


def test_a_player_is_made_once_for_a_graph():
    assert player_of(LAB, Devices(4)) is player_of(LAB, Devices(4, factors=[1] * 4))
