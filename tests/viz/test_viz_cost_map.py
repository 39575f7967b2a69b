"""viz.cost_map: which form sends least over rows and shape, and what runs sent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas
import pytest

from dlviz import viz
from dlviz.sim import layer_bytes
from dlviz.viz import palette

price = partial(layer_bytes, ranks=4)
LAYERS = [(64, 512, 2048), (64, 2048, 512), (4096, 512, 2048)]
RUNS = pandas.DataFrame(
    [(form, *layer, price(form, *layer)) for layer in LAYERS for form in palette.FORMS],
    columns=["form", "batch", "inputs", "outputs", "nbytes"],
)


def named(figure) -> dict:
    return {one.name: one for one in figure.data}


def test_a_form_fills_the_part_of_the_map_in_which_it_sends_least():
    drawn = named(viz.cost_map(price))
    parts = {form: drawn[title] for form, (title, *_) in palette.FORMS.items()}
    for form, part in parts.items():
        assert (part.contours.operation, part.contours.value) == (">", 0.0)  # plotly fills the rest
        assert part.fillcolor == palette.pale(palette.Style(palette.FORMS[form][1])).color
        for row, ratio in enumerate(part.y):
            inputs = round((2**20 / ratio) ** 0.5)
            for column, batch in enumerate(part.x):
                sent = {each: price(each, int(batch), inputs, 2**20 // inputs) for each in parts}
                least = min(sent.values())
                if list(sent.values()).count(least) == 1 and abs(part.z[row, column]) > 1e-3:
                    assert (part.z[row, column] < 0) == (sent[form] == least), (form, ratio, batch)


def test_the_lines_are_those_at_which_a_batch_has_as_many_rows_as_the_layer_inputs_or_outputs():
    figure = viz.cost_map(price)
    drawn = named(figure)
    for name, power in (("B = C_out", 0.5), ("B = C_in", -0.5)):
        line = drawn[name]
        np.testing.assert_allclose(line.x, 1024 * np.asarray(line.y) ** power, rtol=2e-3)
        assert name in [each.text for each in figure.layout.annotations]
    assert drawn["B = C_out"].line.dash != drawn["B = C_in"].line.dash
    crossing = np.searchsorted(drawn["B = C_out"].y, 4.0 - 1e-9)
    assert drawn["B = C_out"].x[crossing] == 2048 and drawn["B = C_in"].x[crossing] == 512


def test_a_name_lies_in_the_part_that_its_form_fills():
    figure = viz.cost_map(price)
    names = {each.text: (10**each.x, 10**each.y) for each in figure.layout.annotations}
    for form, (title, *_) in palette.FORMS.items():
        batch, ratio = names[title]
        inputs = round((2**20 / ratio) ** 0.5)
        sent = {e: price(e, round(batch), inputs, 2**20 // inputs) for e in palette.FORMS}
        assert min(sent, key=sent.get) == form


def test_a_mark_is_the_form_that_sent_least_in_real_runs_with_its_bytes():
    drawn = named(viz.cost_map(price, RUNS))
    found = {form: drawn[f"{title} sent least"] for form, (title, *_) in palette.FORMS.items()}
    places = {form: [*zip(mark.x, mark.y, mark.text, strict=True)] for form, mark in found.items()}
    assert places == {
        "data": [(4096, 4.0, "6.29 MB")],
        "partition_output": [(64, 4.0, "197 KB")],
        "reduce_output": [(64, 0.25, "197 KB")],
    }
    symbols = {mark.marker.symbol for mark in found.values()}
    assert len(symbols) == 3
    (words,) = found["data"].customdata
    assert "reduce output: 50.3 MB" in str(words) and "B = 4,096, 512 → 2,048" in str(words)


def test_what_ran_decides_a_mark_and_not_the_price():
    odd = RUNS.assign(nbytes=[2, 1, 3] * 3)
    drawn = named(viz.cost_map(price, odd))
    assert len(drawn["partition output sent least"].x) == 3
    assert "data parallel sent least" not in drawn


def test_the_map_is_no_higher_than_a_notebook_shows():
    assert viz.cost_map(price, RUNS).layout.height <= 640


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": (64, 64)}, r"batch=\(64, 64\) is not a range from 1 up"),
        ({"batch": (0, 64)}, r"batch=\(0, 64\) is not a range from 1 up"),
        ({"widest": 1}, "widest=1 shapes no layers of 1048576 weights"),
        ({"weights": 100}, "widest=64 shapes no layers of 100 weights"),
        ({"weights": 2**18, "runs": RUNS}, "the run of 512 inputs and 2048 outputs has 1,048,576"),
    ],
)
def test_invalid_ranges_and_runs_of_other_layers_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        viz.cost_map(price, **options)


def test_on_paper_regions_lines_and_marks_lie_where_they_do_on_a_page():
    page, figure = named(viz.cost_map(price, RUNS)), viz.print.cost_map(price, RUNS)
    (axes,) = figure.axes
    lines = {tuple(line.get_xdata()): line for line in axes.lines if line.get_marker() == "None"}
    assert {tuple(page[name].x) for name in ("B = C_out", "B = C_in")} == set(lines)
    marks = {tuple(map(tuple, x.get_xydata())) for x in axes.lines if x.get_marker() != "None"}
    assert marks == {((4096, 4.0),), ((64, 4.0),), ((64, 0.25),)}
    filled = {palette.pale(palette.Style(hue)).color for _, hue, _ in palette.FORMS.values()}
    assert len(filled) == len(axes.collections) == 3
    words = [text.get_text().strip() for text in axes.texts]
    assert {"data parallel", "B = C_in", "197 KB", "6.29 MB"} <= set(words)
