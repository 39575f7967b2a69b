"""Pictures of placements: figures by geometry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dlviz import viz
from dlviz.machine import Link
from dlviz.sim.placement import BRANCHES, LAB, Devices, Graph, play, recurrent, search
from dlviz.viz import palette
from dlviz.viz.operator_graph import layout

DEVICES = Devices(3, Link(1, math.inf))
PLACEMENT = [0, 1, 0, 2, 1, 0, 2, 1, 0, 0]


SKIPPED = Graph([1, 1, 1], [(), (0,), (0, 1)], [1, 1, 1])


@pytest.mark.parametrize("graph", [LAB, BRANCHES, recurrent(4, 8), SKIPPED])
def test_a_layout_has_parents_to_the_left_and_no_two_groups_at_one_place(graph):
    places = layout(graph.parents)
    assert len(set(places)) == len(graph)
    for group, parents in enumerate(graph.parents):
        assert all(places[parent][0] < places[group][0] for parent in parents)
        assert places[group][0] == max((places[p][0] + 1 for p in parents), default=0)


def test_a_layout_of_a_cycle_is_refused():
    with pytest.raises(ValueError, match="they have a cycle"):
        layout([(), (2,), (1,)])


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_groups_have_their_devices_colour_in_the_graph_and_on_the_timeline(theme):
    trace = play(LAB, PLACEMENT, DEVICES)
    figure: Any = viz.placement(trace, LAB.parents, theme=theme)
    for device in range(3):
        nodes, bars = (
            next(one for one in figure.data if one.type == kind and one.name == f"device {device}")
            for kind in ("scatter", "bar")
        )
        own = [str(group) for group, there in enumerate(PLACEMENT) if there == device]
        assert sorted(nodes.text) == own and nodes.legendgroup == bars.legendgroup
        assert nodes.marker.color == bars.marker.color == palette.rank_style(device).color
        assert len(bars.base) == len(own)
        assert set(np.floor(bars.y)) == {device}


def test_arrows_between_devices_are_broken_and_as_many_as_values_that_change_device():
    figure: Any = viz.placement(play(LAB, PLACEMENT, DEVICES), LAB.parents)
    broken = next(one for one in figure.data if one.name == "a message")
    between = sum(
        PLACEMENT[parent] != PLACEMENT[child]
        for child, own in enumerate(LAB.parents)
        for parent in own
    )
    assert len(broken.x) == 4 * between and broken.line.dash == "dash"
    sends = [one for one in figure.data if one.type == "bar" and one.name == "sends"]
    messages = {(parent, PLACEMENT[child]) for child, own in enumerate(LAB.parents)
                for parent in own if PLACEMENT[parent] != PLACEMENT[child]}  # fmt: skip
    assert sum(len(one.base) for one in sends) == len(messages)
    assert sum(one.showlegend for one in sends) == 1


@pytest.mark.parametrize(
    ("graph", "placement", "devices"),
    [(LAB, PLACEMENT, DEVICES), (BRANCHES, [0, 0, 0, 1, 1, 0], Devices(2, Link(4, math.inf)))],
)
def test_the_critical_path_is_framed_from_the_start_to_the_end_messages_too(
    graph, placement, devices
):
    trace = play(graph, placement, devices)
    figure: Any = viz.placement(trace, graph.parents)
    frames = sorted((frame.x0, frame.x1) for frame in figure.layout.shapes)
    until = 0.0
    for start, end in frames:
        assert start <= until + 1e-9, "a gap"
        until = max(until, end)
    assert until == trace.spans.end.max()
    assert all(frame.xref == "x2" and frame.yref == "y2" for frame in figure.layout.shapes)


def test_parents_of_another_graph_are_refused():
    with pytest.raises(ValueError, match="forward spans of 10 groups and parents are given for 6"):
        viz.placement(play(LAB, PLACEMENT, DEVICES), BRANCHES.parents)


def test_the_best_so_far_falls_and_one_placement_is_a_level_line():
    runs = [search(LAB, DEVICES, "random", budget=40, seed=seed).samples for seed in range(5)]
    runs[0][0] = math.inf  # did not fit
    greedy = [search(LAB, DEVICES, "greedy").samples]
    figure: Any = viz.best_so_far({"random": runs, "greedy": greedy})
    line = next(one for one in figure.data if one.name == "random" and one.fill is None)
    best = np.minimum.accumulate(np.array(runs), axis=1)
    drawn = np.array(line.y, dtype=float)
    assert drawn[1:] == pytest.approx(np.median(best, axis=0)[1:])
    assert [*line.x] == [*range(1, 41)]
    level = next(one for one in figure.data if one.name == "greedy")
    assert [*level.x] == [1, 40] and [*level.y] == [greedy[0][0]] * 2
    band = next(one for one in figure.data if one.fill == "toself")
    assert min(band.y) == best.min()


@pytest.mark.parametrize("runs", [[], [[]], [[1.0], [1.0, 2.0]]])
def test_runs_without_samples_or_of_unequal_length_are_refused(runs):
    with pytest.raises(ValueError, match=r"samples\['random'\] has runs of"):
        viz.best_so_far({"random": runs})


def test_probabilities_are_shown_from_the_first_update_to_the_last():
    values = np.random.default_rng(0).dirichlet(np.ones(3), (21, 5))
    figure: Any = viz.probabilities(values, moments=3)
    assert len(figure.data) == 3
    for place, update in enumerate((0, 10, 20)):
        assert np.array_equal(np.array(figure.data[place].z), values[update])
    assert [figure.layout[axis].title.text for axis in ("xaxis", "xaxis2", "xaxis3")] == [
        "after 0 updates", "after 10 updates", "after 20 updates",
    ]  # fmt: skip
    domains = [figure.layout[axis].domain for axis in ("xaxis", "xaxis2", "xaxis3")]
    assert domains[0][0] == 0 and domains[-1][1] == pytest.approx(1)
    assert all(one[1] < other[0] for one, other in zip(domains, domains[1:], strict=False))


@pytest.mark.parametrize(
    ("values", "moments", "says"),
    [
        (np.ones((2, 3)), 4, r"values of shape \(2, 3\)"),
        (np.ones((2, 3, 2)), 4, "are not probabilities"),
        (np.full((2, 3, 2), 0.5), 1, "moments=1 has to be 2 or more"),
    ],
)
def test_values_that_are_not_probabilities_are_refused(values, moments, says):
    with pytest.raises(ValueError, match=says):
        viz.probabilities(values, moments=moments)


def test_a_dot_a_placement_and_how_many_pairs_are_in_order():
    figure: Any = viz.predicted([1, 2, 3, 3], [1.1, 1.9, 1.8, 3.0], names=["a", "b", "c", "d"])
    line, dots = figure.data
    assert [*dots.x] == [1, 2, 3, 3] and [*dots.y] == [1.1, 1.9, 1.8, 3.0]
    assert [*line.x] == [*line.y] and line.x[0] < 1 and line.x[1] > 3
    title = figure.layout.title.subtitle.text
    assert "Largest error -40.0 %. 4 of 5 pairs are in the same order." in title


@pytest.mark.parametrize(
    ("predicted", "measured", "says"),
    [([1], [1, 2], "1 predicted, 2 measured"), ([], [], "0 predicted"), ([0], [1], "above 0")],
)
def test_columns_that_do_not_fit_are_refused(predicted, measured, says):
    with pytest.raises(ValueError, match=says):
        viz.predicted(predicted, measured)
