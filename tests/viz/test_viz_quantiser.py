"""viz.quantiser: mean, spread and decoded values of the draws that are given."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz

VALUES = [0.0, 0.25, 0.5]
DRAWS = [[0.0, 0.0, 0.5], [0.0, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.5, 0.5]]


def test_the_line_is_the_mean_and_the_band_a_standard_deviation_to_either_side():
    unchanged, band, _, line = viz.quantiser(VALUES, DRAWS).data
    assert list(unchanged.x) == list(unchanged.y) == list(line.x) == VALUES
    assert list(line.y) == [0.0, 0.25, 0.5] and list(line.customdata) == [0.0, 0.25, 0.0]
    assert list(band.x) == [*VALUES, *VALUES[::-1]]
    assert list(band.y) == [0.0, 0.5, 0.5, 0.5, 0.0, 0.0]


def test_each_decoded_value_is_a_dot_as_strong_as_it_is_frequent():
    dots = viz.quantiser([1.0, 0.0], [[1, 0], [1, 0], [1, 0], [0, 0]]).data[2]
    assert list(zip(dots.x, dots.y, dots.customdata, strict=True)) == [
        (0.0, 0.0, 1.0), (1.0, 0.0, 0.25), (1.0, 1.0, 0.75),
    ]  # fmt: skip
    one, rare, often = dots.marker.opacity
    assert rare < often < one <= 1


def test_values_in_any_order_are_drawn_from_the_least_to_the_greatest():
    shuffled = viz.quantiser([0.5, 0.0, 0.25], np.array(DRAWS)[:, [2, 0, 1]])
    assert shuffled.data == viz.quantiser(VALUES, DRAWS).data


def test_codes_without_noise_have_no_band_and_several_have_names_and_colours():
    figure = viz.quantiser(VALUES, {"nearest": [0, 0, 0.5], "random": DRAWS})
    names = [series.name for series in figure.data]
    assert names == ["unchanged", "nearest", "nearest", "random", "random", "random"]
    assert [series.name for series in figure.data if series.showlegend] == ["nearest", "random"]
    assert figure.data[2].line.color != figure.data[5].line.color
    assert not any(series.showlegend for series in viz.quantiser(VALUES, DRAWS).data)
    assert viz.quantiser(VALUES, DRAWS).layout.height <= 640


@pytest.mark.parametrize(
    ("values", "decoded", "words"),
    [
        ([], [[]], r"values of shape \(0,\) are no row of numbers: give \(k,\)"),
        ([[1.0]], [[1.0]], r"values of shape \(1, 1\) are no row of numbers"),
        ([1.0, 2.0], [[1.0]], r"decoded has the shape \(1, 1\) and there are 2 values: give \(dra"),
        ([1.0], {"a": np.zeros((0, 1))}, r"a has the shape \(0, 1\) and there are 1 values"),
        ([1.0], {"a": [np.inf]}, "a has inf: give finite numbers"),
        ([np.nan], [1.0], "values has nan: give finite numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(values, decoded, words):
    with pytest.raises(ValueError, match=words):
        viz.quantiser(values, decoded)


def test_names_are_shown_as_written():
    figure = viz.quantiser(VALUES, {"<b>a": DRAWS, "b": DRAWS}, xlabel="<i>")
    assert figure.data[3].name == "&lt;b&gt;a" and figure.layout.xaxis.title.text == "&lt;i&gt;"
