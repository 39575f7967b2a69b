"""A layer's cost under every cut: elements counted one by one on whole tensors, seconds by hand;
and the shares of known nets."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlviz.machine import Device, Link, Machine, Topology, classroom
from dlviz.sim import (
    LayerShape,
    channel_filter_words,
    collective_seconds,
    convolution_cuts,
    convolution_share,
    cut_name,
    layer_cost,
    net_costs,
    net_layers,
    segmented_share,
    switch_cost,
)

DEVICE = Device("even", flops=1e6, memory=1e9, memory_bandwidth=1e9)
CUTS = [cut for ranks in (1, 2, 4, 6, 8) for cut in convolution_cuts(ranks)]


def machine(ranks, latency=0.0, bandwidth=4e9):
    return Machine(DEVICE, Topology.switch(ranks, Link(latency, bandwidth)), step=None)


def on(cut, **link):
    return machine(math.prod(cut.values()), **link)


def held(whole, cut, *dims):
    """Each rank's block of a tensor: dim number i is cut by the `dims[i]`, one after the other."""
    found = []
    for spot in product(*map(range, cut.values())):
        at, block = dict(zip(cut, spot, strict=True)), whole
        for number, names in enumerate(dims):
            for name in names:
                if name in cut:
                    block = np.array_split(block, cut[name], number)[at[name]]
        found.append({*block.ravel().tolist()})
    return found


@st.composite
def layers(draw):
    sizes = [draw(st.integers(1, 7)) for _ in range(5)]
    window = [draw(st.integers(1, most)) for most in (4, 2, 2)]
    padding = draw(st.integers(0, 3))
    if window[2] * (window[0] - 1) + 1 > min(sizes[3:]) + 2 * padding:
        window[0] = 1
    kernel, stride, dilation = window
    return LayerShape(*sizes, kernel, stride, padding, dilation)


def read(layer, cut, gathered):
    """What each rank's outputs read: the span of rows and columns, of its samples and channels."""
    spans = []
    for length, outputs, dim in (
        (layer.height, layer.outputs[0], "H"), (layer.width, layer.outputs[1], "W"),
    ):  # fmt: skip
        own = []
        for rows in held(np.arange(outputs), cut, dim):
            taps = [r * layer.stride - layer.padding + layer.dilation * k
                    for r in rows for k in range(layer.kernel)]  # fmt: skip
            span = range(min(taps, default=0), max(taps, default=-1) + 1)
            own.append([row for row in span if 0 <= row < length])
        spans.append(own)
    whole = np.arange(math.prod(layer.input)).reshape(layer.input)
    wide = held(whole, cut, "N", "C")
    assert all(block <= more for block, more in zip(gathered, wide, strict=True))
    return [
        {*whole[:, :, rows][..., columns].ravel().tolist()} & own
        for rows, columns, own in zip(*spans, wide, strict=True)
    ]


@given(layers(), st.sampled_from(CUTS))
def test_the_halo_is_counted_pixel_by_pixel(layer, cut):
    whole = np.arange(math.prod(layer.input)).reshape(layer.input)
    gathered = held(whole, cut, "N", "C", "H", "W")
    wanted = read(layer, cut, gathered)
    spots = [dict(zip(cut, spot, strict=True)) for spot in product(*map(range, cut.values()))]
    sent = [
        [len(mine & theirs) * (a.get("F") == b.get("F")) * (a is not b)
         for b, theirs in zip(spots, wanted, strict=True)]
        for a, mine in zip(spots, gathered, strict=True)
    ]  # fmt: skip
    parts = layer_cost(layer, cut, on(cut)).parts
    assert parts["halo of x"][1] == np.sum(sent, axis=1).max()
    assert parts["halo of dx"][1] == np.sum(sent, axis=0).max()
    weights = held(np.arange(layer.weights).reshape(layer.filters, layer.channels, -1), cut, *"FC")
    biases = held(np.arange(layer.filters), cut, "F")
    kept = layer_cost(layer, cut, on(cut), keep_gathered=True).memory
    assert kept == 4 * max(
        2 * (len(w) + len(b)) + len(x) for w, b, x in zip(weights, biases, wanted, strict=True)
    )


@given(layers(), st.sampled_from([c for c in CUTS if math.prod(c.values()) == 8]), st.data())
def test_a_change_of_cut_moves_what_a_rank_has_and_does_not_keep(layer, before, data):
    cut = data.draw(st.sampled_from([c for c in CUTS if math.prod(c.values()) == 8]))
    whole = np.arange(math.prod(layer.input)).reshape(layer.input)
    old = held(whole, before, "N", "FC", "H", "W")
    new = held(whole, cut, "N", "CF", "H", "W")
    found = switch_cost(layer, before, cut, machine(8)).parts
    assert found["x"][1] == max(len(a - b) for a, b in zip(old, new, strict=True))
    assert found["dx"][1] == max(len(b - a) for a, b in zip(old, new, strict=True))


def test_channels_and_filters_that_change_places_move_nothing():
    layer = LayerShape(2, 8, 8, 4, 4)
    for before, cut, free in (
        ({"C": 2, "F": 2}, {"F": 2, "C": 2}, True), ({"C": 2, "F": 2}, {"C": 2, "F": 2}, False),
        ({"C": 4}, {"C": 4}, True), ({"C": 4}, {"F": 4}, True), ({"F": 4}, {"C": 4}, True),
    ):  # fmt: skip
        assert (switch_cost(layer, before, cut, machine(4)).words == 0) == free, (before, cut)
    one = switch_cost(layer, {"N": 2}, {"H": 2}, machine(2)).parts
    assert one["x"][1] == one["dx"][1] == 2 * 8 * 16 * (2 - 1) / 2**2  # (p-1)/p² of the tensor


@pytest.mark.parametrize(("p_f", "p_c"), [(1, 1), (4, 1), (1, 4), (2, 2), (4, 2)])
def test_words_and_seconds_of_the_collectives_are_the_closed_forms(p_f, p_c):
    layer, cut = LayerShape(4, 8, 16, 6, 6, padding=1, bias=False), {"N": 2, "C": p_c, "F": p_f}
    link = Link(1e-3, 1e6)
    parts = layer_cost(layer, cut, machine(2 * p_c * p_f, link.latency, link.bandwidth)).parts
    forward = channel_filter_words(2, 8, 16, 6, 6, p_f, p_c)
    assert parts["gather x"][1] + parts["reduce-scatter y"][1] == forward
    assert parts["gather dy"][1] + parts["reduce-scatter dx"][1] == forward
    assert parts["all-reduce dw"][1] == segmented_share(2, p_f * p_c) * layer.weights
    whole = 2 * 8 / p_c * 36 * 4  # bytes of the gathered x
    seconds = collective_seconds("all_gather", p_f, whole, link.latency, 1 / link.bandwidth)
    assert parts["gather x"][0] == parts["gather x again"][0] == seconds


def test_x_kept_gathered_is_larger_and_not_gathered_again():
    layer, cut = LayerShape(1, 8, 4, 6, 6, padding=1), {"F": 4}
    again, kept = (layer_cost(layer, cut, machine(4), keep_gathered=k) for k in (False, True))
    assert again.parts["gather x again"] == again.parts["gather x"] != (0, 0)
    assert kept.parts["gather x again"] == (0, 0)
    parameters = 2 * (9 * 8 + 1)  # of one filter, and their gradients
    assert again.memory == 4 * (parameters + 8 // 4 * 36)
    assert kept.memory == 4 * (parameters + 8 * 36)


def test_the_interior_hides_the_halo_and_the_rest_waits():
    layer, cut = LayerShape(1, 1, 1, 8, 8, padding=1), {"H": 2}
    forward = 2 * 9 * 32 / 1e6  # 2 FLOP for each multiplication of 4 rows
    inside = forward / 2  # two rows of four read no other's, and no padding
    for latency, exposed in ((inside / 2, 0.0), (inside * 3, inside * 2)):
        parts = layer_cost(layer, cut, machine(2, latency, math.inf)).parts
        assert parts["forward"][0] == pytest.approx(forward)
        assert parts["halo of x"] == (pytest.approx(exposed), 8)
    assert parts["backward"][0] == pytest.approx(2 * forward)
    assert parts["halo of dx"][0] == pytest.approx(inside)  # the backward of two rows hides two
    first = layer_cost(layer, cut, machine(2, 1.0), first=True).parts
    assert first["backward"][0] == pytest.approx(forward)
    assert first["halo of dx"] == first["reduce-scatter dx"] == (0, 0)


def test_ranks_of_a_node_share_its_uplink():
    racks = Topology.racks(2, 2, Link(0.0, 4e9), Link(0.0, 4e6))
    layer = LayerShape(4, 1, 1, 4, 4)
    shared, alone = (
        switch_cost(layer, {"N": 4}, {"H": 4}, Machine(DEVICE, topology, step=None)).seconds / 2
        for topology in (racks, Topology.switch(4, Link(0.0, 4e6)))
    )
    assert shared == pytest.approx(4 * 4 * 1e-6)  # four messages of four elements leave a node
    assert alone == pytest.approx(3 * 4 * 1e-6)


def test_two_images_keep_two_of_eight_ranks_busy_and_all_where_rows_are_cut_too():
    layer = LayerShape(2, 16, 16, 64, 64, padding=1)
    alone = layer_cost(layer, {}, on({})).seconds
    by_sample, spatial = (
        layer_cost(layer, cut, on(cut, bandwidth=math.inf)).seconds
        for cut in ({"N": 8}, {"N": 2, "H": 4})
    )
    assert (alone / by_sample, alone / spatial) == (2, 8)


def test_groups_are_not_split_by_a_cut_of_the_channels():
    layer = LayerShape(1, 8, 12, 4, 4, padding=1, groups=2)
    four = {"C": 4}
    with pytest.raises(ValueError, match="groups=2 are split by the cut C 4: each rank needs"):
        layer_cost(layer, four, machine(4))
    flops = 2 * layer.multiplications / 1e6
    # Of 12 filters in 3 blocks, the first has 4 of the first group: twice its share on 6 ranks.
    for cut, times in (({"C": 2}, 1), ({"F": 2}, 1), ({"H": 2}, 1), ({"F": 3, "C": 2}, 2)):
        forward = layer_cost(layer, cut, on(cut)).parts["forward"][0]
        assert forward * math.prod(cut.values()) == pytest.approx(times * flops)
    found = net_costs([layer], [four, {"N": 4}], machine(4))
    assert np.isinf(found.seconds).tolist() == [[True, False]] and found.switches.shape == (0, 2, 2)


def test_every_cut_of_so_many_ranks_is_listed_once():
    assert convolution_cuts(1) == [{}]
    assert convolution_cuts(4, "NH") == [{"N": 4}, {"N": 2, "H": 2}, {"H": 4}]
    eight = convolution_cuts(8)
    assert len({tuple(cut.items()) for cut in eight}) == len(eight) == 40
    assert {math.prod(cut.values()) for cut in eight} == {8}
    assert [cut_name(cut) for cut in convolution_cuts(4, "CF")] == [
        "C 4",
        "C 2, F 2",
        "F 2, C 2",
        "F 4",
    ]
    assert cut_name({}) == cut_name({"N": 1}) == "whole"


@pytest.mark.parametrize(
    ("net", "multiplications", "parameters", "whole"),
    [
        ("alexnet", 91.8, 4.0, 61_100_840),
        ("alexnet_2012", 91.9, 3.8, 60_965_224),
        ("small_alexnet", 93.3, 2.6, 270_682),
    ],
)
def test_convolutions_multiply_most_and_hold_little(net, multiplications, parameters, whole):
    found = net_layers(net).values()
    shares = convolution_share(found)
    assert [round(100 * share, 1) for share in shares] == [multiplications, parameters]
    assert sum(layer.parameters for layer in found) == whole
    dense = sum(layer.parameters for layer in found if layer.dense)
    assert {"alexnet": 58_631_144, "small_alexnet": 263_562}.get(net, dense) == dense


def test_a_net_s_layers_fit_each_other():
    assert len(net_layers("resnet50")) == 50
    for net in ("alexnet", "alexnet_2012", "small_alexnet", "resnet50"):
        found = [*net_layers(net, 7).values()]
        for one, other in zip(found, found[1:], strict=False):
            assert one.filters == other.channels and other.samples == 7
            assert one.outputs[0] >= other.height  # pooled between them


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: net_layers("vgg"), "net='vgg' is not known: use 'alexnet', "),
        (lambda: LayerShape(1, 4, 4, 8, 8, groups=3), "groups=3 do not divide channels=4"),
        (lambda: LayerShape(1, 1, 1, 2, 9), "kernel=3 with dilation=1 spans 3 rows"),
        (lambda: convolution_share([]), "shapes has no layer"),
        (lambda: convolution_cuts(4, "NX"), "a layer has no dim 'X': cut N, H, W, C, F"),
        (lambda: layer_cost(LayerShape(1, 1, 1, 4, 4), {"K": 4}, classroom(4)), "no dim 'K'"),
        (lambda: layer_cost(LayerShape(1, 1, 1, 4, 4), {"H": 0}, classroom(4)), "H=0 has to be"),
        (
            lambda: layer_cost(LayerShape(1, 1, 1, 4, 4), {"H": 2}, classroom(4)),
            "cut={'H': 2} is for 2 ranks and the machine has 4: change a dim, or the machine.",
        ),
    ],
)
def test_what_is_no_layer_or_no_cut_of_it_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
