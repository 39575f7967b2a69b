"""Loss curves: what is drawn are the numbers given, each run in a line of its own."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.viz import curve


def test_a_list_is_one_line_against_its_steps():
    figure = curve([3.0, 2.0, 1.5])
    (line,) = figure.data
    assert list(line.x) == [0, 1, 2] and list(line.y) == [3.0, 2.0, 1.5]
    assert not line.showlegend


def test_several_runs_differ_in_colour_and_dash_and_are_named():
    runs = {f"run {i}": np.arange(5) + i for i in range(12)}
    figure = curve(runs, x=[0, 10, 20, 30, 40], ylabel="loss (nats)")
    assert [line.name for line in figure.data] == list(runs)
    assert len({(line.line.color, line.line.dash) for line in figure.data}) == 12
    assert all(list(line.x) == [0, 10, 20, 30, 40] for line in figure.data)
    assert figure.layout.yaxis.title.text == "loss (nats)"


def test_values_that_cannot_be_drawn_leave_gaps_and_are_counted():
    given = [1.0, np.nan, 0.0, np.inf, 0.5]
    figure = curve(given, log=True)
    np.testing.assert_array_equal(np.isnan(figure.data[0].y), [False, True, True, True, False])
    assert "3 values are not finite or not above 0" in figure.layout.title.subtitle.text
    assert figure.layout.yaxis.type == "log"
    assert given[2] == 0.0
    assert "1 value is not finite" in curve([1.0, np.inf]).layout.title.subtitle.text


def test_nothing_to_draw_is_an_empty_figure():
    assert len(curve({}).data) == 0
    assert len(curve([]).data[0].y) == 0


def test_an_x_of_another_length_is_refused():
    with pytest.raises(ValueError, match="x has 2 points and ring has 3: give one x for each"):
        curve({"ring": [1, 2, 3]}, x=[0, 1])


def test_names_are_shown_as_written():
    name = "<b>%{x}</b>"
    figure = curve({name: [1.0], "b": [2.0]}, xlabel="<i>")
    assert figure.data[0].name == "&lt;b&gt;%{x}&lt;/b&gt;"
    assert name not in figure.to_json() and "%{x}</b>" not in figure.data[0].hovertemplate
    assert figure.layout.xaxis.title.text == "&lt;i&gt;"


def test_each_line_may_have_an_x_of_its_own():
    figure = curve({"a": [1.0, 2.0], "b": [3.0]}, x={"a": [4, 8], "b": [1]})
    assert [list(line.x) for line in figure.data] == [[4, 8], [1]]
    assert figure.layout.hovermode == "closest", "no x that all have"
    with pytest.raises(ValueError, match="x has 0 points and b has 1: give one x for each"):
        curve({"a": [1.0], "b": [3.0]}, x={"a": [4]})


def test_a_logarithmic_x_is_marked_at_powers_of_2_and_leaves_out_what_is_not_above_0():
    figure = curve([1.0, 2.0, 3.0, 4.0], x=[0, 0.4, 4, 9], log_x=True)
    axis = figure.layout.xaxis
    assert axis.type == "log" and [*axis.ticktext] == ["0.5", "1", "2", "4", "8"]
    assert "1 value is not finite or not above 0" in figure.layout.title.subtitle.text
    np.testing.assert_array_equal(np.isnan(figure.data[0].y), [True, False, False, False])
    wide = curve([1.0, 2.0], x=[1, 1e5], log_x=True).layout.xaxis
    assert [*wide.ticktext] == ["1", "10", "100", "1000", "10000", "100000"]


def test_of_several_runs_of_a_method_the_median_is_drawn_and_their_range_is_a_band():
    runs = [[1.0, 5.0], [2.0, 3.0], [9.0, 4.0]]
    figure = curve({"five": runs, "one": [1.0, 2.0]})
    band, line, other = figure.data
    assert list(line.y) == [2.0, 4.0] and list(other.y) == [1.0, 2.0]
    assert list(band.x) == [0, 1, 1, 0] and list(band.y) == [9.0, 5.0, 3.0, 1.0]
    assert band.fillcolor.startswith(line.line.color) and not band.showlegend
    assert "the median of 3 runs" in figure.layout.title.subtitle.text
    with pytest.raises(ValueError, match="give one x for each value"):
        curve({"five": runs}, x=[0, 1, 2])
