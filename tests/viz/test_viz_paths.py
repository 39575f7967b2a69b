"""The race of the rules: what is drawn are the recorded points, and nothing moves until asked."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dlviz.viz import paths

STEPS = np.arange(151.0)
RECORDED = {
    "sgd": np.stack([-1.5 + STEPS / 100, 0.9**STEPS], 1),
    "<b>up": np.stack([-1.5 + STEPS * 0, 1.5**STEPS * 0.1], 1),
}


def valley(x, y):
    return x**2 + 100 * y**2 + 5


def race(recorded=RECORDED, **options):
    return paths(recorded, valley, x=(-2, 2), y=(-1, 3), **options)


def test_it_begins_at_the_start_and_every_stop_shows_the_recorded_points_until_then():
    figure = race()
    for name, points in zip(range(2), RECORDED.values(), strict=True):
        line, head = figure.data[1 + 2 * name : 3 + 2 * name]
        assert list(line.x) == list(head.x) == [points[0, 0]]
        for frame in figure.frames:
            stop = int(frame.name)
            line, head = frame.data[2 * name : 2 * name + 2]
            drawn = np.array([line.x, line.y], float).T
            np.testing.assert_allclose(drawn, points[: stop + 1], rtol=1e-3)
            assert (head.x[0], head.y[0]) == (line.x[-1], line.y[-1])
            step, loss = head.customdata[0]
            assert step == stop and loss == pytest.approx(valley(*points[stop]))


def test_the_slider_stops_at_the_start_the_end_and_evenly_between():
    stops = [int(step.label) for step in race().layout.sliders[0].steps]
    assert stops == [int(frame.name) for frame in race().frames]
    assert (stops[0], stops[-1], len(stops)) == (0, 150, 61)
    assert {b - a for a, b in zip(stops, stops[1:], strict=False)} == {2, 3}
    few = race({"sgd": RECORDED["sgd"][:4]})
    assert [frame.name for frame in few.frames] == ["0", "1", "2", "3"]


def test_it_is_paused_until_play_is_pressed():
    figure = race()
    assert figure.layout.sliders[0].active == 0
    assert "Plotly.animate" not in figure.to_html(include_plotlyjs=False)
    play, pause = figure.layout.updatemenus[0].buttons
    assert (play.label, pause.label) == ("Play", "Pause")
    assert play.args[0] is None and play.args[1]["frame"]["duration"] > 0
    assert pause.args[0] == (None,) or pause.args[0] == [None]


def test_the_lines_of_the_surface_are_of_equal_height_at_equal_ratios():
    surface = race().data[0]
    z = np.array(surface.z)
    up, across = np.meshgrid(surface.y, surface.x, indexing="ij")
    above = valley(across, up) - 5
    far = above > above.max() * 1e-4
    np.testing.assert_allclose(z[far], np.log10(above[far]), atol=1e-3)


def test_a_rule_that_leaves_the_picture_is_named_and_one_that_comes_back_is_not():
    subtitle = race().layout.title.subtitle.text
    assert subtitle == "&lt;b&gt;up leaves the picture for good at step 9."  # 0.1 * 1.5**9 > 3
    detour = RECORDED["sgd"].copy()
    detour[3] = [9, 9]
    assert not race({"detour": detour}).layout.title.subtitle.text


def test_steps_that_blow_up_leave_a_gap_without_a_warning():
    points = RECORDED["sgd"].copy()
    points[100], points[101:] = [1e200, -1e200], np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = race({"wild": points})
    assert figure.frames[-1].data[0].x[-1] is None
    assert "NaN" not in figure.to_json()
    assert "at step 100" in figure.layout.title.subtitle.text


def test_a_race_of_all_rules_fits_a_notebook_and_no_two_look_alike():
    figure = race({f"rule {i}": RECORDED["sgd"][:9] for i in range(9)})
    assert figure.layout.height <= 640
    looks = {(line.line.color, line.line.dash) for line in figure.data[1::2]}
    assert len(looks) == 9


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({}, "^the points have the shapes of no rule"),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((4, 2))},
            r"\(3, 2\).*give each rule as many points",
        ),
        ({"a": np.zeros((3, 3))}, r"^the points have the shapes \(3, 3\): give"),
        ({"a": np.zeros((0, 2))}, "give each rule as many points"),
    ],
)
def test_points_that_are_no_race_are_refused(recorded, message):
    with pytest.raises(ValueError, match=message):
        race(recorded)
