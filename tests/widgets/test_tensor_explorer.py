"""The explorer of tensor parallelism: what it prices, draws and runs, and every control."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import kernel
import node
import numpy as np
import pytest
from explorer_page import LIVE, SETTLED, ExplorerPage, saved_pages

from dlviz.sim.layers import layer_bytes, layer_elements
from dlviz.widgets import TensorExplorer
from dlviz.widgets.blocks import DIMS, PICTURES
from dlviz.widgets.forms import FORMS, SIZES, WAYS, elements, sent
from dlviz.widgets.modules import joined, read

LAYER = {"batch": 64, "inputs": 512, "outputs": 2048}
SMALL = {
    "ranks": 3,
    "batch": 12,
    "inputs": 9,
    "outputs": 15,
}  # which chunks of a ring do not divide


def state(explorer):
    return json.loads(explorer.state)


def price(explorer, form):
    return next(one for one in state(explorer)["prices"] if one["form"] == form)


def test_a_rank_sends_what_the_lecture_counts():
    """X(64, 512) · W(512, 2048) on 4 ranks, float32."""
    explorer = TensorExplorer("data", **LAYER)
    assert price(explorer, "data")["bytes"] == 6_291_456
    assert price(explorer, "partition_output")["bytes"] == 196_608
    assert price(explorer, "partition_output_whole")["bytes"] == 196_608
    assert price(explorer, "reduce_output")["bytes"] == 786_432
    for form in ("data", "partition_output", "reduce_output"):
        own = price(explorer, form)
        assert own["bytes"] == sum(own["ways"]) == layer_bytes(form, *LAYER.values(), ranks=4)
        assert elements(form, **LAYER) == layer_elements(form, *LAYER.values())
    assert "B > C_out = 2,048" in state(explorer)["answer"]
    assert "B > C_in = 512" in state(explorer)["answer"]
    explorer.ranks = 1
    assert {one["bytes"] for one in state(explorer)["prices"]} == {0}


def test_an_mlp_sends_as_its_two_layers_do():
    one, other = (64, 512, 2048), (64, 2048, 512)
    two = {
        "mlp_data": ("data", "data"),
        "mlp": ("partition_output", "reduce_output"),
    }
    for form, layers in two.items():
        sums = [sum(layer_elements(*own)) for own in zip(layers, *zip(one, other), strict=True)]
        assert sum(elements(form, *one)) == sum(sums)
    assert elements("mlp", *one) == (2 * 64 * 512, 2 * 64 * 512, 0)


VALUES = {"B": 64, "C_in": 512, "C_out": 2048}


@pytest.mark.parametrize("form", FORMS)
def test_the_letters_in_the_table_come_to_its_elements(form):
    letters = [
        np.prod([VALUES.get(part) or int(part) for part in product.split("·")])
        for product in FORMS[form].elements
    ]
    assert tuple(letters) == elements(form, **LAYER)


@pytest.mark.parametrize("form", ["data", "mlp"])
def test_the_map_turns_where_two_forms_send_as_much(form):
    explorer = TensorExplorer(form, **LAYER)
    told = state(explorer)["map"]
    mlp = FORMS[form].mlp
    for outputs, best, batch in zip(told["columns"], told["best"], told["threshold"], strict=True):
        every = {name: own for name, own in FORMS.items() if own.mlp == mlp}
        for rows, least in ((batch, {best, told["data"]}), (batch / 2, {best}),
                            (2 * batch, {told["data"]})):  # fmt: skip
            sums = {name: sum(elements(name, 2, 512, outputs)) / 2 * rows for name in every}
            sums[told["data"]] = sum(elements(told["data"], 1, 512, outputs))
            assert least <= {name for name, own in sums.items() if own == min(sums.values())}
    for line in told["lines"]:
        for batch, outputs in line["ends"]:
            here = {"B": batch, "C_in": 512, "C_out": outputs}
            one, other = line["says"].split(" = ")
            assert here[one] == here[other]
    assert len(told["lines"]) == (1 if mlp else 3)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("form", "rows", "form='rows' is unknown: use one of data, partition_output,"),
        ("ranks", 9, "ranks=9 has to be a whole number from 1 to 8"),
        ("ranks", 3, r"outputs=2048 \(C_out\) cannot be split over 3 ranks: each rank needs a whole "
                     r"number of columns of W. Use 1, 2, 4 or 8 ranks, or outputs=2046 or 2049."),
        ("batch", 0, r"batch=0 \(B\) has to be a whole number from 1 to 4096"),
        ("batch", 2.5, r"batch=2.5 \(B\) has to be"),
        ("batch", 3, r"batch=3 \(B\) .* rows of X. Use 1 or 3 ranks, or batch=4."),
        ("inputs", "wide", r"inputs='wide' \(C_in\) has to be"),
        ("outputs", True, r"outputs=True \(C_out\) has to be"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_told_and_changes_nothing_else(name, value, says):
    explorer = TensorExplorer("partition_output", **LAYER)
    before = state(explorer)
    with pytest.raises(ValueError, match=says) as refused:
        TensorExplorer(**{**before["controls"], name: value})
    setattr(explorer, name, value)
    after = state(explorer)
    assert after["error"] == str(refused.value) and after["matrices"] == before["matrices"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before


@pytest.mark.parametrize("form", FORMS)
def test_the_blocks_of_the_ranks_make_up_each_matrix(form):
    for ranks in (1, 3, 8):
        explorer = TensorExplorer(form, ranks, 24, 48, 72)
        sizes = {"batch": 24, "inputs": 48, "outputs": 72}
        rows = state(explorer)["matrices"]
        for matrix in filter(None, rows[0] + rows[1]):
            dims = DIMS[FORMS[form].mlp][matrix["name"].removeprefix("d")]
            assert matrix["shape"] == [sizes[dim] for dim in dims]
            held = np.zeros(matrix["shape"])
            for top, bottom, left, right in matrix["blocks"]:
                held[top:bottom, left:right] += 1
            assert len(matrix["blocks"]) == ranks
            assert (held == (ranks if matrix["cut"] in ("whole", "sum") else 1)).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_collectives_drawn_send_what_the_table_says(form):
    explorer = TensorExplorer(form, **LAYER)
    forward, backward = state(explorer)["matrices"]
    sums = [sum(one.get("bytes", 0) for one in row if one) for row in (forward, backward)]
    ways = sent(form, 4, **LAYER)
    assert sums == [ways[0], ways[1] + ways[2]]
    for cells in PICTURES[form]:  # what a collective moves is the same matrix before and after
        for before, after in zip(cells, cells[1:], strict=False):
            if before and after and before.sign in ("→", "←"):
                assert before.name == after.name and before.cut != after.cut
