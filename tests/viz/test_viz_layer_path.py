"""viz.layer_path and viz.cut_map: a cell is a layer's seconds, the line the path, the marks what a
change of cut takes; the winner is the quickest cut."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.viz import palette

SECONDS = [[1.0, 2.0], [100.0, 2.0], [3.0, np.inf]]
SWITCHES = [[[0, 0.5], [1, 0]], [[0, 1], [0.25, 0]]]
NAMES = {"layers": ["conv1", "conv2", "<b>"], "cuts": ["N 2", "C 2"]}


def drawn(**options):
    return viz.layer_path(SECONDS, SWITCHES, [0, 1, 0], **NAMES | options)


def test_a_cell_is_as_dark_as_many_times_the_layer_s_quickest_cut_takes():
    cells = drawn().data[0]
    shades = [[0, 1, 0], [np.log10(2), 0, np.nan]]  # 10 times or more is 1
    np.testing.assert_allclose(np.array(cells.z, float), shades)
    assert (cells.zmin, cells.zmax) == (0, 1)
    assert [*cells.colorbar.ticktext] == ["1", "3", "10 or more"]


def test_the_line_goes_through_the_path_and_marks_the_changes_that_take_time():
    figure = drawn()
    _, line, marks = figure.data
    assert [*zip(line.x, line.y, strict=True)] == [(0, 0), (1, 1), (2, 0)]
    assert line.line.color == palette.MARKS["chosen"]
    assert [*zip(marks.x, marks.y, strict=True)] == [(0.5, 0.5), (1.5, 0.5)]
    assert marks.customdata[1] == "<b>conv2 to &lt;b&gt;</b><br>C 2 to N 2: 250 ms"
    assert [(note.x, note.text) for note in figure.layout.annotations] == [
        (0.5, "500 ms"), (1.5, "250 ms"),
    ]  # fmt: skip
    words = "6.75 s a step: 6 s in layers, 750 ms for changes of the cut"
    assert figure.layout.title.subtitle.text == words
    still = viz.layer_path(SECONDS, SWITCHES, [0, 0, 0])
    assert not len(still.data[2].x) and not still.layout.annotations


def test_a_hover_has_the_change_from_every_cut_before_the_least_first():
    first, second = drawn().data[0].customdata
    assert first[0] == "<b>conv1, N 2</b><br>1 s, 1 times its quickest cut"
    assert second[1].split("<br>")[1:] == [
        "2 s, 1 times its quickest cut", "from C 2: 0 ms", "from N 2: 500 ms",
    ]  # fmt: skip
    assert second[2] == "<b>&lt;b&gt;, C 2</b><br>this cut does not suit the layer"


def test_fifty_layers_have_no_words_on_their_edges_and_fit_a_notebook():
    figure = viz.layer_path(np.ones((50, 25)), np.ones((49, 25, 25)), [0, 1] * 25)
    assert not figure.layout.annotations and figure.layout.height <= 660
    assert figure.data[0].customdata[3][7].endswith("from 13 others: more")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], [], []), "seconds of shape .* and switches of .* do not fit"),
        (([[1, 2]], [[[1]]], [0]), r"switches of \(1, 1, 1\) do not fit"),
        (([[1, 2]], np.ones((0, 2, 2)), [2]), r"path=\[2\] has to name one of 2 cuts for 1 layers"),
        (([[1, 2]], np.ones((0, 2, 2)), [0, 0]), r"path=\[0, 0\] has to name"),
    ],
)
def test_what_is_no_path_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        viz.layer_path(*arguments)
    with pytest.raises(ValueError, match="1 names do not fit 2 cuts"):
        drawn(cuts=["one"])


def test_the_winner_of_a_width_and_a_size_is_the_quickest_cut():
    seconds = {"H 4": [[1, 3], [1, 1]], "C 4": [[2, 2], [2, 1]], "N 4": np.full((2, 2), 9)}
    heat, *key = viz.cut_map(seconds, channels=[8, 512], sizes=[7, 56]).data
    np.testing.assert_array_equal(heat.z, [[0, 1], [0, 0]])
    assert [series.name for series in key] == ["H 4", "C 4"]
    assert heat.customdata[0][1].split("<br>") == [
        "<b>512 channels and filters, 7 x 7</b>", "C 4: 2 s", "H 4: 3 s", "N 4: 9 s",
    ]  # fmt: skip
    axes = viz.cut_map(seconds, channels=[8, 512], sizes=[7, 56]).layout
    assert [*axes.xaxis.ticktext, *axes.yaxis.ticktext] == ["8", "512", "7", "56"]


def test_seconds_that_do_not_fit_the_sizes_are_refused():
    with pytest.raises(
        ValueError, match=r"the seconds of H 4 .* for each of 2 sizes and 1 channels"
    ):
        viz.cut_map({"H 4": [[1.0]]}, channels=[8], sizes=[7, 56])
    with pytest.raises(ValueError, match="sizes=0 has to be a whole number, 1 or more"):
        viz.cut_map({"H 4": [[1.0]]}, channels=[8], sizes=[0])
