"""The cheapest path through a net equals the least of all paths, with a limit on memory too."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz.machine import Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.sim import best_single, cheapest_path, convolution_cuts, cut_name, net_costs, net_layers

AMOUNTS = st.integers(0, 30).map(lambda amount: math.inf if amount == 30 else amount)


@st.composite
def nets(draw):
    """Costs, switches and memory of a few layers, each with its own number of cuts."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))

    def numbers(size, of=AMOUNTS):
        return draw(st.lists(of, min_size=size, max_size=size))

    switches = [[numbers(b) for _ in range(a)] for a, b in zip(counts, counts[1:], strict=False)]
    whole = st.integers(0, 9)
    return [numbers(n) for n in counts], switches, [numbers(n, whole) for n in counts]


def every_path(costs, switches, memory):
    """Cost, memory and path, all of them."""
    for path in product(*(range(len(row)) for row in costs)):
        total = sum(row[cut] for row, cut in zip(costs, path, strict=True))
        steps = zip(switches, path, path[1:], strict=False)
        total += sum(rows[a][b] for rows, a, b in steps)
        yield total, sum(row[cut] for row, cut in zip(memory, path, strict=True)), [*path]


@settings(max_examples=300)
@given(nets(), st.one_of(st.none(), st.floats(-0.2, 1)))
def test_the_cheapest_path_is_the_least_of_all(net, share):
    """With a limit between the least memory and that of the cheapest path, or below both."""
    found = [each for each in every_path(*net) if math.isfinite(each[0])]
    if not found:
        with pytest.raises(ValueError, match="no path has a finite cost"):
            cheapest_path(*net)
        return
    least, free, limit = min(held for _, held, _ in found), min(found)[1], None
    if share is not None:
        limit = max(0, round(least + share * (free - least + 1)))
        if limit < least:
            missing = f"{least - limit} bytes are missing; give {least} or more"
            with pytest.raises(ValueError, match=missing):
                cheapest_path(*net, limit)
            return
    fitting = [each for each in found if limit is None or each[1] <= limit]
    cost, path = cheapest_path(*net, limit)
    assert cost == min(fitting)[0]
    assert [total for total, _, own in fitting if own == path] == [cost]


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_the_best_single_cut_is_the_least_of_the_paths_that_keep_theirs(layers, cuts, data):
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    costs, switches = (
        draw.integers(0, 9, (layers, cuts)),
        draw.integers(0, 9, (layers - 1, cuts, cuts)),
    )
    single = [each for each in every_path(costs, switches, costs) if len({*each[2]}) == 1]
    cost, place = best_single(costs, switches)
    assert cost == min(single)[0] and [place] * layers in [path for *_, path in single]
    assert cheapest_path(costs, switches)[0] <= cost


def through(net):
    """Seconds of the path of two images on eight ranks, the best single cut's, and the cuts."""
    device, link = DEVICES["laptop core"].device, LINKS["10 Gb Ethernet"].link
    found = net_costs(
        [*net_layers(net, 2).values()],
        cuts := [cut for cut in convolution_cuts(8) if cut.get("N", 1) <= 2],
        Machine(device, Topology.switch(8, link), step=None),
    )
    cost, path = cheapest_path(found.seconds, found.switches)
    single, place = best_single(found.seconds, found.switches)
    return cost, single, cut_name(cuts[place]), [cut_name(cuts[own]) for own in path], found


@pytest.mark.parametrize(
    ("net", "spatial", "best", "gain"),
    [("alexnet", 1, "C 4, F 2", 1.12), ("resnet50", 11, "N 2, C 4", 1.51)],
)
def test_the_first_layers_are_cut_by_rows_and_the_last_by_channels_and_filters(
    net, spatial, best, gain
):
    cost, single, name, path, _ = through(net)
    assert path[:spatial] == ["N 2, H 4"] * spatial
    assert path[-1] == "C 4, F 2"
    assert not any("H" in cut or "W" in cut for cut in path[len(path) // 2 :])
    assert name == best and single / cost == pytest.approx(gain, abs=0.005)


def test_less_memory_takes_longer():
    *_, found = through("alexnet")
    free, path = cheapest_path(found.seconds, found.switches)
    used = sum(found.memory[layer, cut] for layer, cut in enumerate(path))
    assert cheapest_path(*found, limit=used) == (free, path)
    least = found.memory.min(axis=1).sum()
    assert least < used and cheapest_path(*found, limit=least)[0] > free


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], []), "costs of the shapes .* are no path: give each layer one or more"),
        (([[1], []], [[[1]]]), "are no path"),
        (([[1], [2]], []), r"switches have the shapes \[\], and costs .* need \[\(1, 1\)\]"),
        (([[1]], [], [[1, 2]], 3), r"memory have the shapes \[\(2,\)\]"),
        (([[-1]], []), "costs.0.=.* has to hold numbers, 0 or more, or inf"),
        (([[1], [1]], [[[math.nan]]]), "switches.0.=.* has to hold numbers"),
        (([[1]], [], None, 3), "limit=3 limits nothing: give memory= as well"),
        (([[1]], [], [[1]], -1), "limit=-1 has to be a finite number"),
    ],
)
def test_what_is_no_net_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        cheapest_path(*arguments)
