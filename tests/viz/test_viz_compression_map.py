"""viz.compression_map: a cell has the colour of the method that takes the least time there."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.viz import palette

RANKS, LINKS = [2, 4, 8], [1e6, 1e7, 1e8, 1e9]
SECONDS = {
    "dense": np.full((3, 4), 1.0),
    "one bit": np.array([[0.5, 0.5, 2, 2], [0.5, 0.5, 0.5, 2], [0.1, 0.1, 0.1, 0.1]]),
    "slow": np.full((3, 4), 3.0),
}


def drawn(**options):
    return viz.compression_map(SECONDS, bandwidth=LINKS, ranks=RANKS, **options)


def color_at(heat, row, column):
    """The colour that plotly gives a cell."""
    share = (heat.z[row][column] - heat.zmin) / (heat.zmax - heat.zmin)
    return next(color for at, color in heat.colorscale[::-1] if at <= share)


def test_a_cell_has_the_colour_of_the_method_that_wins_there():
    figure = drawn()
    heat, *key = figure.data
    np.testing.assert_array_equal(heat.z, [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    colors = {series.name: series.marker.color for series in key}
    assert [*colors] == ["dense", "one bit"]  # what wins nowhere has no entry
    assert color_at(heat, 0, 3) == colors["dense"] != colors["one bit"] == color_at(heat, 0, 0)


def test_a_method_keeps_its_colour_where_others_win_and_fourteen_differ():
    alone = {"dense": np.full((3, 4), 9.0), "one bit": SECONDS["one bit"]}
    heat, key = viz.compression_map(alone, bandwidth=LINKS, ranks=RANKS).data
    assert key.marker.color == drawn().data[2].marker.color == color_at(heat, 0, 3)
    many = {str(i): np.roll(np.arange(14.0), i)[None] for i in range(14)}
    heat, *key = viz.compression_map(many, bandwidth=[1e6] * 14, ranks=[2]).data
    colors = {int(series.name): series.marker.color for series in key}
    assert len({*colors.values()}) == 14
    assert [color_at(heat, 0, i) for i in range(14)] == [colors[i] for i in heat.z[0]]
    with pytest.raises(ValueError, match="15 methods have no colours of their own: give 1 to 14"):
        viz.compression_map({str(i): [[1]] for i in range(15)}, bandwidth=[1], ranks=[2])


def test_of_equal_times_the_first_method_wins():
    same = {"a": [[1.0]], "b": [[1.0]]}
    assert viz.compression_map(same, bandwidth=[1e6], ranks=[2]).data[1].name == "a"


def test_the_axes_name_links_and_ranks_and_a_hover_has_all_methods_the_quickest_first():
    figure = drawn()
    assert [*figure.layout.xaxis.ticktext] == ["1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s"]
    assert [*figure.layout.yaxis.ticktext] == ["2", "4", "8"]
    words = figure.data[0].customdata[0][3].split("<br>")
    assert words == ["<b>2 ranks, 1 GB/s</b>", "dense: 1 s", "one bit: 2 s", "slow: 3 s"]
    wide = viz.compression_map({"a": np.ones((1, 33))}, bandwidth=np.geomspace(1, 9, 33), ranks=[2])
    assert len(wide.layout.xaxis.ticktext) <= 8 and wide.layout.height <= 640


def test_a_name_stands_on_cells_that_its_method_wins_if_it_fits():
    places = {each.text: (each.x, each.y) for each in drawn().layout.annotations}
    assert places == {"one bit": (1.5, 2), "dense": (2.5, 0)}
    narrow = {"a method of a long name": [[0, *[2.0] * 39]], "b": np.ones((1, 40))}
    figure = viz.compression_map(narrow, bandwidth=[1e6] * 40, ranks=[2])
    assert [each.text for each in figure.layout.annotations] == ["b"]
    assert drawn().layout.annotations[0].font.color == palette.BLACK


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({}, "0 methods have no colours"),
        ({"a": [1.0]}, r"the seconds of a have the shape \(1,\): give one for each of 1 numbers"),
        ({"a": [[np.nan]]}, "a: seconds=.* has to be a finite number"),
    ],
)
def test_what_does_not_fit_is_refused(seconds, words):
    with pytest.raises(ValueError, match=words):
        viz.compression_map(seconds, bandwidth=[1e6], ranks=[2])
    with pytest.raises(ValueError, match="ranks=0 has to be a whole number"):
        viz.compression_map({"a": [[1]]}, bandwidth=[1e6], ranks=[0])
    with pytest.raises(ValueError, match="bandwidth=.* has to be a finite number"):
        viz.compression_map({"a": [[1]]}, bandwidth=[-1], ranks=[2])
