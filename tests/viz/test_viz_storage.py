"""Layer storage: the bars are as long as the bytes, the formula's four in a row, saved below."""

from __future__ import annotations

import pandas
import pytest

from dlviz.viz import storage

COLUMNS = ["kind", "weights", "outputs", "weight_gradients", "output_gradients", "kept"]


def table(layers: int = 2) -> pandas.DataFrame:
    rows = [("Linear", 1000 * i, 2000, 1000 * i, 3000, 500) for i in range(1, layers + 1)]
    return pandas.DataFrame(rows, columns=COLUMNS, index=[f"<b>{i}" for i in range(layers)])


def test_a_layers_four_bars_follow_each_other_and_saved_starts_at_0():
    *four, saved = storage(table()).data
    for layer, ends in enumerate([[1, 3, 4, 7], [2, 4, 6, 9]]):
        begin = 0.0
        for bar, end in zip(four, ends, strict=True):
            assert (bar.base[layer], bar.base[layer] + bar.x[layer]) == (begin, end)
            begin = bar.base[layer] + bar.x[layer]
    assert list(saved.base) == [0, 0] and list(saved.x) == [0.5, 0.5]


def test_bars_of_a_layer_do_not_overlap_those_of_another():
    for layers in (1, 3):
        figure = storage(table(layers))
        edges = set()
        for bar in (figure.data[0], figure.data[4]):
            for y in bar.y:
                edges.add((y - bar.width[0] / 2, y + bar.width[0] / 2))
        ordered = sorted(edges)
        assert all(a[1] <= b[0] for a, b in zip(ordered, ordered[1:], strict=False))


def test_the_totals_are_stated_and_names_are_shown_as_written():
    figure = storage(table())
    subtitle = figure.layout.title.subtitle.text
    assert "= 16 KB in all" in subtitle and "saves 1 KB" in subtitle
    assert figure.layout.yaxis.ticktext[0] == "&lt;b&gt;0 Linear"
    assert "1,000 bytes" in figure.data[0].customdata[0]
    assert figure.layout.xaxis.title.text == "size (KB)"


@pytest.mark.parametrize("layers", [1, 5, 20])
def test_a_figure_of_many_layers_is_no_higher_than_a_notebook_shows(layers):
    assert storage(table(layers)).layout.height <= 640


def test_no_layer_is_refused():
    with pytest.raises(ValueError, match="^the table has no layer"):
        storage(table(0))
