"""viz.order: names in the predicted and in the measured order, and lines between them."""

from __future__ import annotations

import pytest

from dlviz import viz
from dlviz.viz import palette

PREDICTED = {"tp 2": 0.2, "pp 2": 0.3, "dp 2": 0.4}
MEASURED = {"tp 2": 0.21, "pp 2": 0.5, "dp 2": 0.41}


def test_a_line_joins_the_places_of_a_name_and_is_marked_where_two_are_swapped():
    figure = viz.order(PREDICTED, MEASURED)
    lines = {line.name: (line.y, line.line.color) for line in figure.data}
    right, wrong = palette.MARKS["accent"], palette.MARKS["wrong"]
    assert lines == {"tp 2": ((0, 0), right), "pp 2": ((1, 2), wrong), "dp 2": ((2, 1), wrong)}
    low, high = figure.layout.yaxis.range
    assert low > high, "the least is on top"


def test_each_side_has_its_own_numbers():
    found = viz.order(PREDICTED, MEASURED).layout.annotations
    words = {(each.x, each.y): each.text for each in found}
    assert words[0, 1] == "pp 2  <b>300 ms</b>" and words[1, 2] == "pp 2  <b>500 ms</b>"
    assert len(words) == 6


def test_the_subtitle_counts_pairs_and_ties():
    figure = viz.order(PREDICTED, {**MEASURED, "pp 2": 0.42})
    subtitle = figure.layout.title.subtitle.text
    assert subtitle == "2 of 2 pairs come in the predicted order; 1 more is a tie, within 5 %."
    wrong = palette.MARKS["wrong"]
    assert wrong not in [line.line.color for line in figure.data], "a tie is no swap"


def test_a_chart_without_a_number_is_refused():
    with pytest.raises(ValueError, match="there is no number to draw"):
        viz.order({}, {})
