"""The explorer of convolutions: what it predicts of each cut, its boxes, and a run beside it."""

from __future__ import annotations

import json
from itertools import product
from types import SimpleNamespace

import kernel
import node
import numpy as np
import pytest
from timing import changed_within

from dlviz.parallel.convolution.distribution import Distribution
from dlviz.sim import convolution_cuts, cut_name, layer_cost, net_layers
from dlviz.widgets import ConvolutionExplorer
from dlviz.widgets.convolution import cuts
from dlviz.widgets.convolution.explorer import KERNELS, SIZES, WIDTHS
from dlviz.widgets.convolution.run import LARGEST, cut_down


def state(explorer):
    explorer.settle()
    return json.loads(explorer.state)


def test_a_control_is_answered_immediately_and_loads_no_torch():
    changes = [{"h": 8}, {"layer": "resnet_last"}, {"c": 4}, {"bandwidth": 1e9}, {"samples": 64}]
    changed_within(0.05, "widgets.ConvolutionExplorer()", changes)


@pytest.mark.parametrize("name", [name for name in cuts.LAYERS if name != cuts.OWN])
def test_rows_are_those_of_the_closed_form_and_the_best_of_all_cuts_is_among_them(name):
    explorer = ConvolutionExplorer(name, 2, n=1, h=2, f=3, bandwidth=1e9)
    own, *others = state(explorer)["rows"]
    _, net, layer = cuts.LAYERS[name]
    machine, layer = cuts.machine_of(explorer._now, 6), net_layers(net, 2)[layer]
    every = {cut_name(cut): layer_cost(layer, cut, machine, keep_gathered=True)
             for cut in convolution_cuts(6)}  # fmt: skip
    for row in (own, *others):
        found = every[row["name"]]
        assert row["seconds"] == pytest.approx(found.seconds) == pytest.approx(sum(row["parts"]))
        assert (row["words"], row["memory"]) == (found.words, found.memory)
    seconds = [row["seconds"] for row in others]
    assert own["name"] == "H 2, F 3" and seconds == sorted(seconds)
    assert min(own["seconds"], seconds[0]) == min(one.seconds for one in every.values())
    assert {"N 6", "H 6", "C 6", "F 6"} <= {row["name"] for row in others}


def test_the_other_cuts_come_once_the_reader_pauses():
    explorer = ConvolutionExplorer("resnet_first", 2, n=2, h=4)
    before = json.loads(explorer.state)
    assert not before["settled"] and "faster" not in before["answer"]
    after = state(explorer)
    assert after["settled"] and len(after["rows"]) > len(before["rows"])
    assert after["answer"].endswith("No cut of 8 ranks is faster.")
    explorer.n, explorer.h = 8, 1
    assert "6 of 8 ranks compute nothing." in state(explorer)["answer"]
    explorer.n = 1
    assert state(explorer)["answer"] == "One rank takes 1.42 s a step."


@pytest.mark.parametrize("cut", [(3, 2, 1, 2, 2), (1, 1, 3, 1, 4), (2, 1, 1, 1, 1)])
def test_blocks_are_those_of_the_ranks_that_run_and_are_drawn_apart(cut):
    values = dict(zip(cuts.DIMS, cut, strict=True))
    explorer = ConvolutionExplorer(
        "own", 4, channels=7, filters=5, size=13, kernel=5, stride=2, **values
    )
    ranks = int(np.prod(cut))
    mesh = SimpleNamespace(**{name: SimpleNamespace(size=size) for name, size in values.items()})
    layer = Distribution(**{dim: name for name, dim in cuts.DIMS.items()})
    for tensor in state(explorer)["tensors"]:
        of, shape = getattr(layer, tensor["name"]), tensor["shape"]
        for rank, block in enumerate(tensor["blocks"]):
            due = [[part.start, part.stop] for part in of.block(mesh, shape, rank)]
            assert [*zip(block[::2], block[1::2], strict=True)] == [
                tuple(ends) for ends in due[: len(block) // 2]
            ]
        dims = tensor["shape"][:2] if tensor["name"] == "w" else tensor["shape"]
        seen = np.zeros(dims, int)
        for block in tensor["blocks"]:
            seen[tuple(slice(*ends) for ends in zip(block[::2], block[1::2], strict=True))] += 1
        assert (seen == (ranks // (cut[3] * cut[4]) if tensor["name"] == "w" else 1)).all()
    x, w, y = state(explorer)["tensors"]
    assert ("halos travel" in x["moves"]) == (cut[1] * cut[2] > 1)
    assert ("gathered" in x["moves"]) == (cut[4] > 1)
    assert ("summed and" in y["moves"]) == (cut[3] > 1) and y["shape"][2:] == [7, 7]
    drawn = node.run("convolution/boxes.js", "return m.placedIn(v[0], 900, 190);", [x, w, y])
    for place, one in enumerate(drawn):
        assert {sheet["rank"] for sheet in one["sheets"]} == set(range(ranks))
        assert len({(sheet["x"], sheet["y"]) for sheet in one["sheets"]}) == ranks
        for sheet in one["sheets"]:
            assert 300 * place < sheet["x"] and sheet["x"] + sheet["width"] < 300 * (place + 1)
            assert 25 < sheet["y"] and sheet["y"] + sheet["height"] <= 190 - 15


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("layer", "vgg", "layer='vgg' is unknown: use one of alexnet_first"),
        ("samples", 0, "samples=0 has to be a whole number from 1"),
        ("h", 64, "2 × 64 × 1 × 1 × 1 are 128 ranks, and 64 can be shown"),
        ("f", 1.5, "f=1.5 has to be a whole number"),
        ("alpha", -1, "alpha=-1 has to be a number, 0 or more"),
        ("bandwidth", 0, "bandwidth=0 has to be a number, above 0"),
        ("kernel", 12, "kernel=12 has to be a whole number from 1 to 11."),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = ConvolutionExplorer()
    before = state(explorer)
    assert says in kernel.ask(explorer, "change", values={name: value})["error"]
    assert says in state(explorer)["error"] and state(explorer)["rows"] == before["rows"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before
    with pytest.raises(ValueError):
        ConvolutionExplorer(**{name: value})


def test_every_layer_can_be_cut_down_and_each_dim_stays_as_long_as_it_has_parts():
    names = dict(zip(("N", "H", "W", "C", "F"), cuts.DIMS, strict=True))
    for ends in product((1, WIDTHS[-1]), (1, WIDTHS[-1]), (SIZES[0], SIZES[-1]), KERNELS):
        sizes = dict(zip(("channels", "filters", "size", "kernel"), ends, strict=True))
        for dim in names:
            values = {"layer": "own", "samples": 256, "stride": 1, **sizes}
            layer = cut_down(cuts.layer_of(values), {dim: 8})
            assert layer.multiplications <= LARGEST
            whole = cuts.idle(cuts.layer_of(values), {dim: 8})
            assert cuts.idle(layer, {dim: 8}) == whole


RUNS = [
    {"n": 1, "h": 2, "c": 2},
    {"n": 2, "h": 1, "w": 1, "f": 2},
    {"n": 1, "h": 1, "w": 3},
    {"n": 5, "h": 1},  # of 4 images
]


@pytest.mark.slow
@pytest.mark.parametrize("cut", RUNS, ids=str)
def test_a_run_takes_sends_and_holds_what_is_predicted_and_is_shown_again(cut):
    explorer = ConvolutionExplorer("own", 4, channels=16, filters=32, size=28, alpha=0.0, **cut)
    explorer.run()
    run, row = state(explorer)["run"], state(explorer)["rows"][0]
    assert run["predicted"] == row and run["sizes"] == ""
    assert run["seconds"] == pytest.approx(row["seconds"], rel=0.05)
    assert row["words"] * 0.95 <= run["words"] < row["words"] + 8  # rings have uneven chunks
    assert row["memory"] <= run["memory"] < 1.35 * row["memory"]
    explorer.stride = 2
    assert state(explorer)["run"] is None and explorer.measured is None
    explorer.stride = 1
    assert state(explorer)["run"] == run
    page = json.loads(explorer.saved_state()["pages"])[0]
    assert page["state"]["run"] == run


@pytest.mark.slow
def test_a_large_layer_is_cut_down_and_says_so():
    explorer = ConvolutionExplorer("alexnet_first", 64, n=1, h=1)
    explorer.run()
    run = state(explorer)["run"]
    assert run["sizes"] == "2 × 3 × 224 × 224, 64 filters of 11 × 11"
    assert f"The layer was cut down to {run['sizes']}." in run["summary"]
    assert run["seconds"] == pytest.approx(run["predicted"]["seconds"])


def test_more_ranks_than_can_be_run_say_so():
    explorer = ConvolutionExplorer(n=8, h=2)
    assert state(explorer)["long"] == "8 ranks can be run here: choose as many, or fewer."
    explorer.run()
    assert state(explorer)["run"]["error"] == state(explorer)["long"]
