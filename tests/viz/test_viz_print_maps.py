"""Traffic and curves on paper hold the numbers of those on a page."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.machine import classroom
from dlviz.sim import collective


def test_a_map_on_paper_holds_the_bytes_of_each_pair():
    trace = collective("parameter_server", 4, 2048, classroom(4))
    figure, page = viz.print.traffic(trace), viz.traffic(trace)
    (axes,) = figure.axes
    drawn = axes.collections[0].get_array().astype(float).filled(np.nan)
    np.testing.assert_array_equal(drawn, np.array(page.data[0].z, float))
    words = {text.get_text() for text in axes.texts}
    assert words == {"2.05\nKB"}
    assert "6 of 12 pairs talk." in figure.texts[-1].get_text()


def test_maps_stand_side_by_side_in_one_scale_of_colours():
    traces = {name: collective(name, 4, 8192, classroom(4)) for name in ("ring", "direct")}
    figure = viz.print.traffic(traces)
    left, right = figure.axes
    assert left.get_position().x1 < right.get_position().x0
    assert left.get_position().y0 == right.get_position().y0
    assert left.collections[0].get_clim() == right.collections[0].get_clim()
    assert {"ring", "direct"} <= {text.get_text() for text in figure.texts}


@pytest.mark.parametrize("log", [False, True])
def test_lines_on_paper_are_those_of_a_page(log):
    values = {"a": [3.0, np.nan, 0.5], "b": [1.0, 2.0, -1.0]}
    figure, page = viz.print.curve(values, log=log), viz.curve(values, log=log)
    for line, series in zip(figure.axes[0].lines, page.data, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), series.x)
        np.testing.assert_array_equal(line.get_ydata(), np.array(series.y, float))
        assert line.get_color() == series.line.color
    subtitle = page.layout.title.subtitle.text
    assert subtitle.startswith("2 values are" if log else "1 value is")
    assert subtitle in [text.get_text() for text in figure.texts]
    assert viz.print.curve([1.0]).get_figheight() < 6  # a single point
    with pytest.raises(ValueError, match="x has 1 points and a has 3"):
        viz.print.curve(values, x=[0])


def test_a_logarithmic_x_on_paper_has_the_marks_of_a_page():
    values, x = {"a": [1.0, 2.0], "b": [3.0]}, {"a": [0.4, 9.0], "b": [2.0]}
    figure, page = viz.print.curve(values, x=x, log_x=True), viz.curve(values, x=x, log_x=True)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log" and axes.get_xlim()[0] < 0.4 < 9 < axes.get_xlim()[1]
    marks = [label.get_text() for label in axes.get_xticklabels()]
    assert marks == [*page.layout.xaxis.ticktext]
    for line, series in zip(axes.lines, page.data, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), series.x)
