"""Methods, servers and bars on paper hold the numbers and the words of those on a page."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from test_viz_losses import CURVES, replicas
from test_viz_spectrum import CROWDED
from test_viz_stability import RUNS, radius
from test_viz_staleness import served

from dlviz import viz


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_methods_on_paper_lie_where_they_do_on_a_page():
    figure, page = viz.print.spectrum(CROWDED, target=0.5), viz.spectrum(CROWDED, target=0.5)
    (axes,) = figure.axes
    marks = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
    drawn = [one for one in page.data if one.mode == "markers"]
    for line, series in zip(marks, drawn, strict=True):
        # in inches there is other room beside the marks, so a column of "never" is as wide alone
        np.testing.assert_allclose(10 ** line.get_ydata(), series.y)
        np.testing.assert_allclose(10 ** line.get_xdata(), series.x, rtol=1e-6)
    assert set(CROWDED.method) <= set(words(figure)) and "10 s" in words(figure)
    assert "never" in [label.get_text() for label in axes.get_xticklabels()]


def test_losses_on_paper_are_those_of_a_page_in_two_panels():
    figure, page = viz.print.losses(CURVES, over=4), viz.losses(CURVES, over=4)
    drawn = [line for axes in figure.axes for line in axes.lines]
    for line, series in zip(drawn, page.data, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), series.x)
        np.testing.assert_array_equal(line.get_ydata(), series.y)
        assert line.get_color() == series.line.color
    left, right = figure.axes
    assert left.get_ylim() == right.get_ylim()
    assert left.get_position().x1 < right.get_position().x0


def test_disagreement_on_paper_is_that_of_a_page():
    traces = {"gossip, ring": replicas(0.1), "ensemble": replicas(0.002)}
    figure, page = viz.print.disagreement(traces), viz.disagreement(traces)
    for line, series in zip(figure.axes[0].lines, page.data, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), series.x)
        np.testing.assert_array_equal(line.get_ydata(), series.y)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "0.01", "0.1"]


def test_staleness_on_paper_is_that_of_a_page():
    traces = {"one": served(), "other": served([1, 2, 3] * 4)}
    figure, page = viz.print.staleness(traces), viz.staleness(traces)
    (axes,) = figure.axes
    bars = {}
    for part in axes.collections:
        assert isinstance(part, PathCollection)
        points = np.concatenate([path.vertices for path in part.get_paths()])
        bars.setdefault(part.get_label(), []).append(points[:, 0].max())
    for bar in page.data:
        if bar.type == "bar":
            assert bar.x[0] in [pytest.approx(end) for end in bars[bar.name]]
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [1, 2] and {" n - 1 = 1", " n - 1 = 2", "one", "other"} == set(words(figure))


def test_a_map_of_stability_on_paper_has_its_runs_and_its_scale():
    figure = viz.print.stability(radius, RUNS, eta=(0.1, 1.2), alpha=(0.0, 1.3))
    axes, side = figure.axes
    runs = {line.get_marker(): tuple(line.get_xydata()[0]) for line in axes.lines}
    assert runs == {"o": (0.5, 0.2), "X": (1.0, 1.2)}
    (line,) = [part for part in axes.collections if [*np.atleast_1d(part.levels)] == [1.0]]
    for path in line.get_paths():
        np.testing.assert_allclose(radius(*path.vertices.T), 1.0, atol=1e-6)
    assert [label.get_text() for label in side.get_yticklabels()][2] == "1"


def test_bars_on_paper_are_as_high_as_the_numbers():
    values = {"a": {"x": 3.0, "y": float("nan")}, "b": {"y": 17_000.0}}
    figure = viz.print.bars(values, ylabel="lost")
    tops = {}
    for part in figure.axes[0].collections:
        points = np.concatenate([path.vertices for path in part.get_paths()])
        tops[part.get_label()] = points[:, 1].max()
    assert tops == {"a": 3.0, "b": 17_000.0} and words(figure) == ["3", "17,000"]
    assert figure.axes[0].get_ylabel() == "lost"
