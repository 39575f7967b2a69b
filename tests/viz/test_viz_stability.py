"""viz.stability and viz.bars: a map of the radius with runs on it, and bars side by side."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from dlviz import viz

RUNS = pandas.DataFrame({"eta": [0.5, 1.0], "alpha": [0.2, 1.2], "settled": [True, False]})


def radius(eta: float, alpha: float) -> float:
    return 2 * alpha + eta


def test_the_map_holds_the_radius_at_each_pair_and_the_line_is_where_it_is_1():
    figure = viz.stability(radius, eta=(0.1, 0.7), alpha=(0.0, 0.5))
    tints, line = figure.data
    etas, alphas = np.meshgrid(tints.x, tints.y)
    np.testing.assert_allclose(tints.customdata, 2 * alphas + etas)
    np.testing.assert_allclose(tints.z, np.clip(2 * alphas + etas, 0.5, 1.5), atol=1e-4)
    assert (tints.x[0], tints.x[-1], tints.y[0], tints.y[-1]) == (0.1, 0.7, 0.0, 0.5)
    assert (line.contours.operation, line.contours.value) == ("=", 1.0)
    np.testing.assert_array_equal(line.z, tints.customdata)
    low, high = tints.contours.start, tints.contours.end
    (middle,) = {share for share, _ in tints.colorscale if 0 < share < 1}
    assert low + middle * (high - low) == pytest.approx(1.0)  # where blue turns to orange
    assert figure.layout.height <= 640


def test_runs_lie_at_their_numbers_by_what_became_of_them():
    settled, blew_up = viz.stability(radius, RUNS).data[2:]
    assert (settled.name, [*settled.x], [*settled.y]) == ("a run that settled", [0.5], [0.2])
    assert (blew_up.name, [*blew_up.x], [*blew_up.y]) == ("a run that blew up", [1.0], [1.2])
    assert settled.marker.symbol != blew_up.marker.symbol


@pytest.mark.parametrize("eta", [(1.0, 1.0), (-1.0, 1.0), (0.0, float("inf"))])
def test_an_invalid_range_is_refused(eta):
    with pytest.raises(ValueError, match="is not a range from 0 up"):
        viz.stability(radius, eta=eta)
    with pytest.raises(ValueError, match="alpha=.* is not a range from 0 up"):
        viz.stability(radius, alpha=eta)


def test_bars_are_as_high_as_the_numbers_and_a_thing_without_one_has_none():
    values = {"synchronous": {0: 0.1, 1: 0.2}, "synchronous, 1 backup": {1: 17_000.0, 2: 0.3}}
    figure = viz.bars(values, xlabel="label", ylabel="error")
    one, other = figure.data
    assert list(one.x) == list(other.x) == ["0", "1", "2"]
    np.testing.assert_array_equal(one.y, [0.1, 0.2, np.nan])
    np.testing.assert_array_equal(other.y, [np.nan, 17_000.0, 0.3])
    assert list(other.text) == ["", "17,000", "0.3"]
    assert figure.layout.xaxis.title.text == "label" and figure.layout.showlegend
    assert (one.marker.color, one.marker.pattern.shape) != (
        other.marker.color,
        other.marker.pattern.shape,
    )
    assert figure.layout.height <= 640
    many = viz.bars({"a": dict.fromkeys(range(30), 1.0)})
    assert many.data[0].text is None and not many.layout.showlegend


def test_bars_of_nothing_are_refused():
    with pytest.raises(ValueError, match="there is no number to draw"):
        viz.bars({"a": {}})
