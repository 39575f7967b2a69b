"""viz.cells, viz.participation and viz.drift: who has what, who was heard when, who went where."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from dlviz import viz
from dlviz.viz import palette
from dlviz.viz.charts.participation import FATES, fates_of


class Played(NamedTuple):
    """The fields of a `federated.Round` that are drawn."""

    number: int
    answered: list[int]
    late: list[int] = []
    taken: list[int] = []
    rejected: dict[int, str] = {}
    lost: list[int] = []
    modelled: bool = False


ROUNDS = [Played(0, [0], late=[2]), Played(1, [0, 1], taken=[2]), Played(2, [1], rejected={0: "x"})]


def test_each_cell_shows_its_number_and_an_empty_one_none():
    figure = viz.cells([[72, 0, 7], [0, 71, 1_000]], rows=["a", "b"], xlabel="label")
    (heat,) = figure.data
    np.testing.assert_array_equal(heat.z, [[72, np.nan, 7], [np.nan, 71, 1_000]])
    words = {(each.x, each.y): each.text for each in figure.layout.annotations}
    assert words == {(0, 0): "72", (2, 0): "7", (1, 1): "71", (2, 1): "1,000"}
    inks = {each.text: each.font.color for each in figure.layout.annotations}
    assert inks["1,000"] == palette.WHITE and inks["7"] == palette.BLACK
    assert heat.customdata[1][2] == "b, 2: 1,000"
    axis = figure.layout.yaxis
    assert [*axis.ticktext] == ["a", "b"] and axis.range[0] > axis.range[1], "the first on top"
    assert figure.layout.xaxis.title.text == "label" and figure.layout.height <= 640


def test_a_wide_table_shows_no_numbers():
    assert not viz.cells(np.ones((2, 17))).layout.annotations
    assert len(viz.cells(np.ones((2, 16))).layout.annotations) == 32


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        ([1, 2], {}, r"shape \(2,\) are not a table"),
        ([[]], {}, r"are not a table"),
        ([[1, -1]], {}, r"values\[0, 1\] is -1"),
        ([[float("nan")]], {}, r"values\[0, 0\] is nan"),
        ([[1, 2]], {"rows": ["a", "b"]}, "2 names do not fit 1 rows"),
        ([[1, 2]], {"columns": ["a"]}, "1 names do not fit 2 columns"),
    ],
)
def test_an_invalid_table_is_refused(values, names, message):
    with pytest.raises(ValueError, match=message):
        viz.cells(values, **names)


def test_every_client_is_marked_in_the_rounds_in_which_something_became_of_it():
    figure = viz.participation(ROUNDS, 4)
    marks = {series.name: sorted(zip(series.x, series.y, strict=True)) for series in figure.data}
    assert marks == {
        FATES["answered"][0]: [(0, 0), (1, 0), (1, 1), (2, 1)],
        FATES["late"][0]: [(0, 2)],
        FATES["taken"][0]: [(1, 2)],
        FATES["rejected"][0]: [(2, 0)],
    }
    assert len({(s.marker.symbol, s.marker.color) for s in figure.data}) == len(figure.data)
    subtitle = figure.layout.title.subtitle.text
    assert subtitle == "Never in the weights: client 3.", "a late update that is taken is heard"
    assert [*figure.layout.yaxis.ticktext] == [f"client {k}" for k in range(4)]


def test_a_late_update_that_is_dropped_is_not_in_the_weights():
    subtitle = viz.participation(ROUNDS[:1], 3).layout.title.subtitle.text
    assert subtitle == "Never in the weights: clients 1, 2."
    assert "at least once" in viz.participation(ROUNDS, 3).layout.title.subtitle.text


def test_times_of_a_model_are_said_to_be_modelled():
    rounds = [each._replace(modelled=True) for each in ROUNDS]
    subtitle = viz.participation(rounds, 4).layout.title.subtitle.text
    assert subtitle == "Never in the weights: client 3. Times are modelled."
    assert "modelled" not in viz.participation(ROUNDS, 4).layout.title.subtitle.text


def test_modelled_and_measured_rounds_are_not_drawn_as_one():
    mixed = [*ROUNDS[:2], ROUNDS[2]._replace(modelled=True)]
    with pytest.raises(ValueError, match="round 2 has modelled times and round 1 measured ones"):
        viz.participation(mixed, 4)


def test_rounds_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="has nothing to draw"):
        fates_of([], 2)
    with pytest.raises(ValueError, match="round 0 names client 2, of clients=2"):
        fates_of(ROUNDS, 2)


def test_clients_are_drawn_from_the_start_and_their_mean_among_them():
    figure = viz.drift({"identical": [[2.0, 0], [4.0, 0]], "two labels": [[0, 3.0], [0, -3.0]]})
    lines = {series.name: series for series in figure.data}
    one = lines["identical"]
    np.testing.assert_allclose(np.abs(one.x), [0, 2, np.nan, 0, 4, np.nan], atol=1e-12)
    np.testing.assert_allclose(np.abs(lines["identical: mean"].x), [3.0])
    np.testing.assert_allclose(lines["two labels: mean"].y, [0.0], atol=1e-12)
    assert lines["what all were sent"].x == (0,) and lines["what all were sent"].y == (0,)
    assert one.line.color != lines["two labels"].line.color
    assert figure.layout.yaxis.scaleanchor == "x", "one scale: lengths compare"
    assert figure.layout.height <= 640


def test_updates_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match=r"shapes \(1, 2\), \(1, 3\) cannot be drawn"):
        viz.drift({"a": [[1.0, 2.0]], "b": [[1.0, 2.0, 3.0]]})
    with pytest.raises(ValueError, match="of none"):
        viz.drift({})
