"""viz.spread: the line goes through the medians, every run is drawn, a missing one is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlviz.viz import spread

NONE = math.nan


def test_the_line_goes_through_the_medians_and_each_run_is_a_dot():
    dots, line = spread({"fixed": {8: [5, 1, 3], 16: [2, 8, 4]}}).data
    assert list(line.x) == [8, 16] and list(line.y) == [3, 4]
    assert sorted(zip(dots.x, dots.y, strict=True)) == [
        *((8, 1), (8, 3), (8, 5)),
        *((16, 2), (16, 4), (16, 8)),
    ]
    assert dots.marker.color == line.line.color and line.name == "fixed"


def test_the_order_in_which_x_is_given_does_not_matter_and_both_axes_are_logarithmic():
    figure = spread({"a": {64: [1.0], 8: [2.0]}}, xlabel="batch (images)", ylabel="noise")
    (line,) = figure.data
    assert list(line.x) == [8, 64] and list(line.y) == [2.0, 1.0]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert list(figure.layout.xaxis.ticktext) == ["8", "64"]
    assert figure.layout.xaxis.title.text == "batch (images)"
    assert figure.layout.height <= 640


def test_a_run_without_a_value_counts_as_greater_than_the_others_and_is_counted():
    runs = {512: [60, NONE, 50, 70, NONE], 1024: [NONE, NONE, NONE, 9, 9]}
    figure = spread({"scaled": runs}, missing="never reached it")
    line = figure.data[-1]
    assert line.y[0] == 70 and np.isnan(line.y[1])
    subtitle = figure.layout.title.subtitle.text
    assert "scaled, 512: 2 of 5 runs never reached it" in subtitle
    assert "scaled, 1,024: 3 of 5 runs never reached it" in subtitle
    assert "never" not in (spread({"a": {1: [1]}}).layout.title.subtitle.text or "")


def test_a_mark_a_method_in_a_narrow_range_has_ticks_of_its_own():
    """Bits a value against loss: one x a method, and all losses alike."""
    methods = {"one bit": {1.13: [0.12, 0.13, 0.15]}, "dense": {32: [0.09, 0.1, 0.11]}}
    figure = spread(methods, xlabel="bits a value", ylabel="loss")
    assert [series.y[0] for series in figure.data[1::2]] == [0.13, 0.1]
    assert [*figure.layout.xaxis.ticktext] == ["1.13", "32"]
    assert figure.layout.yaxis.dtick is None
    assert spread({"a": {8: [1.0, 5.0]}}).layout.yaxis.dtick == "D2"


def test_what_a_logarithmic_axis_cannot_show_is_refused():
    with pytest.raises(ValueError, match="value 0 of a cannot stand on a logarithmic axis"):
        spread({"a": {8: [1, 0]}})
    with pytest.raises(ValueError, match="x -8 of a cannot stand"):
        spread({"a": {-8: [1]}})
    with pytest.raises(ValueError, match="a has no run at 8: give one value at least"):
        spread({"a": {8: []}})


def test_names_are_shown_as_written():
    figure = spread({"<b>%{x}</b>": {1: [1.0]}}, xlabel="<i>")
    assert figure.data[0].name == "&lt;b&gt;%{x}&lt;/b&gt;"
    assert figure.layout.xaxis.title.text == "&lt;i&gt;"
