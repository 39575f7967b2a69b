"""Predicted over measured: actions are matched, aligned, and the prediction error is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlviz import viz
from dlviz.analysis.prediction_error import PredictionError, matched, prediction_error
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette

COSTS = Costs(0.005, None, 0.005, 0.005)


def ran(schedule, costs, *, step=-1, since=3.0, clock="paced", **meta):
    """A run whose device times are COSTS' and whose wall clock says `costs`, from `since` on."""
    device, wall = simulate(schedule, COSTS), simulate(schedule, costs)
    spans = {name: device.spans[name] for name in device.spans.names}
    spans |= {"wall_start": since + wall.spans.start, "wall_end": since + wall.spans.end}
    spans["step"] = np.full(len(device.spans), step)
    messages = {name: device.messages[name] for name in device.messages.names}
    messages["wall_sent"] = since + wall.messages.sent
    messages["wall_received"] = since + wall.messages.received
    about = {"clock": clock, "ranks": schedule.ranks, "machine": "4 ranks", **meta}
    return Trace(spans, messages, meta=about)


def bars(figure, which):
    """Start and length of each bar of a side, by (rank's row, start)."""
    found = []
    for one in figure.data:
        for y, base, x in zip(one.y, one.base, one.x, strict=True):
            if (one.marker.color == palette.style(one.legendgroup).color) == (which == "measured"):
                found.append((round(float(y), 6), float(base), float(x)))
    return sorted(found)


def test_both_sides_begin_with_their_first_action_one_row_below_the_other():
    schedule = make("1f1b", 3, 5)
    figure = viz.compare(simulate(schedule, COSTS), ran(schedule, COSTS))
    predicted, measured = bars(figure, "predicted"), bars(figure, "measured")
    assert len(predicted) == len(measured) == 3 * 5 * 2
    assert np.array(predicted) + [1, 0, 0] == pytest.approx(np.array(measured))
    assert predicted[0][1] == 0
    ticks = figure.layout.yaxis.ticktext
    assert ticks[:4] == ("rank 0 predicted", "measured", "rank 1 predicted", "measured")
    assert (
        "The measured step takes as long as the predicted one" in figure.layout.title.subtitle.text
    )


def test_measured_times_are_the_walls_and_the_subtitle_says_both_clocks():
    schedule = make("gpipe", 2, 4)
    slower = Costs(0.006, None, 0.005, 0.005)
    figure = viz.compare(simulate(schedule, COSTS), ran(schedule, slower))
    lengths = {round(x, 6) for _, _, x in bars(figure, "measured")}
    assert lengths == {6.0, 10.0}
    subtitle = figure.layout.title.subtitle.text
    assert subtitle.startswith("predicted: simulated · F 0.005 s")
    assert "<br>measured: paced · 4 ranks · wall-clock time<br>" in subtitle
    details = figure.layout.annotations[-1].hovertext
    assert "Predicted. Simulated: nothing ran" in details
    assert "Measured. Paced: processes" in details
    by_device = viz.compare(simulate(schedule, COSTS), ran(schedule, slower), clock="device")
    assert {round(x, 6) for _, _, x in bars(by_device, "measured")} == {5.0, 10.0}


def said(predicted, measured):
    """The subtitle of the figure on one line."""
    return viz.compare(predicted, measured).layout.title.subtitle.text.replace("<br>", " ")


def behind(predicted, measured):
    """What the (i) of the figure says, on one line."""
    (hover,) = [a.hovertext for a in viz.compare(predicted, measured).layout.annotations
                if a.hovertext]  # fmt: skip
    return hover.replace("<br>", " ")


def test_the_error_is_what_actions_of_the_critical_path_lasted_longer_and_the_rest_waiting():
    schedule = make("1f1b", 4, 8)
    predicted = simulate(schedule, COSTS)
    slow_forward = ran(schedule, Costs(0.007, None, 0.005, 0.005))
    sides = matched(predicted, slow_forward, None, None)
    found = prediction_error(sides)
    assert found.seconds == pytest.approx(11 * 0.002)  # m+p-1 forwards in a row
    assert found.lasted == pytest.approx(found.seconds) and found.waited == pytest.approx(0)
    assert found.most == pytest.approx(0.002) and sides[1].spans.kind[found.worst] == "forward"

    slow_links = ran(schedule, Costs(0.005, None, 0.005, 0.005, latency=0.001))
    found = prediction_error(matched(predicted, slow_links, None, None))
    assert found.lasted == pytest.approx(0) and found.waited == pytest.approx(found.seconds)
    assert found.seconds > 0.005
    subtitle = said(predicted, slow_links)
    assert "differs most" not in subtitle and "the actions take" not in subtitle
    assert "the actions take as long and the waits take" in behind(predicted, slow_links)
    assert "differs most" not in behind(predicted, slow_links)


def test_the_sentence_names_the_action_that_differs_most():
    schedule = make("gpipe", 2, 2)
    run = ran(schedule, COSTS)
    last = int(np.argmax(run.spans.wall_end))
    run.spans.wall_end[last] += 0.004
    subtitle = said(simulate(schedule, COSTS), run)
    assert "The measured step takes 4 ms longer (8.9%) than the predicted one" in subtitle
    assert (
        "the actions take 4 ms longer and the waits take as long; 0B1 on rank 0 differs most (4"
        in behind(simulate(schedule, COSTS), run)
    )
    faster = ran(schedule, Costs(0.004, None, 0.005, 0.005))
    subtitle = said(simulate(schedule, COSTS), faster)
    assert "The measured step takes 3 ms less (6.7%) than the predicted one" in subtitle


def test_each_bar_says_both_times_and_their_difference():
    schedule = make("gpipe", 1, 2)
    figure = viz.compare(simulate(schedule, COSTS), ran(schedule, Costs(0.006, None, 0.005, 0.005)))
    hovers = {words.split("<br>")[0]: words for one in figure.data for words in one.customdata}
    assert hovers["<b>0F1 on rank 0, measured</b>"] == (
        "<b>0F1 on rank 0, measured</b><br>6 ms from 6.000 ms<br>predicted: 5 ms from 5.000 ms<br>"
        "measured began 1 ms later, lasted 1 ms longer"
    )
    assert "measured: 6 ms from 6.000 ms" in hovers["<b>0F1 on rank 0, predicted</b>"]


def test_of_several_steps_the_one_of_median_length_is_drawn_or_the_one_asked_for():
    schedule = make("gpipe", 2, 3)
    parts = [
        ran(schedule, Costs(forward, None, 0.005, 0.005), step=step, since=step)
        for step, forward in enumerate((0.009, 0.005, 0.006))
    ]
    columns = {name: np.concatenate([part.spans[name] for part in parts])
               for name in parts[0].spans.names}  # fmt: skip
    columns["flow"][:] = -1
    run = Trace(columns, meta={"clock": "paced", "ranks": 2})
    figure = viz.compare(simulate(schedule, COSTS), run)
    assert {round(x, 6) for _, _, x in bars(figure, "measured")} == {6.0, 10.0}
    assert "measured, step 2 (of median length): paced" in figure.layout.title.subtitle.text
    first = viz.compare(simulate(schedule, COSTS), run, step=0)
    assert {round(x, 6) for _, _, x in bars(first, "measured")} == {9.0, 10.0}
    with pytest.raises(ValueError, match=r"^step=7 has no action in the measured Trace: it has 0,"):
        viz.compare(simulate(schedule, COSTS), run, step=7)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_was_predicted_is_paler_and_as_opaque_so_that_its_labels_read_in_the_dark_too(theme):
    schedule = make("zb_h1", 2, 4)
    figure = viz.compare(simulate(schedule, COSTS), ran(schedule, COSTS), theme=theme)
    for kind in ("forward", "backward_input", "backward_weight"):
        style = palette.style(kind)
        pale, full = (one for one in figure.data if one.legendgroup == kind)
        assert full.marker.color == style.color and full.showlegend and not pale.showlegend
        assert pale.marker.color == palette.pale(style).color != style.color
        assert pale.textfont.color == palette.BLACK and pale.opacity is None


def test_no_line_of_the_subtitle_is_longer_than_there_is_room_beside_the_names_of_rows():
    schedule = make("gpipe", 2, 4)
    machine = "classroom, 4 ranks on a switch, 5 ms a forward and more"
    measured = ran(schedule, COSTS, machine=machine)
    subtitle = viz.compare(simulate(schedule, COSTS), measured).layout.title.subtitle.text
    assert max(map(len, subtitle.split("<br>"))) <= 106
    assert "wall-clock time" in subtitle.replace("<br>", " ")


def test_actions_that_one_side_has_not_are_drawn_and_counted():
    four, three = make("gpipe", 2, 4), make("gpipe", 2, 3)
    figure = viz.compare(simulate(four, COSTS), ran(three, COSTS))
    assert len(bars(figure, "predicted")) == 16 and len(bars(figure, "measured")) == 12
    assert "4 actions are predicted and not measured." in figure.layout.title.subtitle.text
    assert any(words.endswith("not measured") for one in figure.data for words in one.customdata)


def test_two_halves_of_an_overlap_share_their_row():
    schedule = make("dualpipev", 2, 4)
    figure = viz.compare(simulate(schedule, COSTS), ran(schedule, COSTS))
    assert (
        len(bars(figure, "measured"))
        == len(bars(figure, "predicted"))
        == 2 * 2 * 4 * 2 + sum(action.kind == "W" for row in schedule.actions for action in row)
    )
    boxes = [
        (one.base[i], one.x[i], one.y[i] - one.width[i] / 2, one.y[i] + one.width[i] / 2)
        for one in figure.data
        for i in range(len(one.x))
    ]
    for i, (base, x, low, high) in enumerate(boxes):
        for base2, x2, low2, high2 in boxes[i + 1 :]:
            across = min(base + x, base2 + x2) - max(base, base2) > 1e-6
            assert not (across and min(high, high2) - max(low, low2) > 1e-6)


def test_the_table_holds_both_times_of_each_action():
    schedule = make("1f1b", 2, 3)
    table = viz.compare_table(
        simulate(schedule, COSTS), ran(schedule, Costs(0.006, None, 0.005, 0.005))
    )
    assert len(table) == 12
    forwards = table[table["kind"] == "forward"]
    assert forwards["longer"].to_numpy() == pytest.approx(np.full(6, 0.001))
    assert table["measured start"].min() == 0
    more = viz.compare_table(simulate(make("1f1b", 2, 4), COSTS), ran(schedule, COSTS))
    assert more["measured start"].isna().sum() == 4


def test_what_has_no_actions_is_refused():
    schedule = make("gpipe", 2, 2)
    nothing = Trace([dict(rank=0, kind="send", start=0.0, end=1.0)], meta={"clock": "simulated"})
    with pytest.raises(ValueError, match=r"^the measured Trace has no forward and no backward"):
        viz.compare(simulate(schedule), nothing)
    with pytest.raises(ValueError, match=r"^the predicted Trace has no forward and no backward"):
        viz.compare(nothing, simulate(schedule))


def test_a_path_of_which_nothing_was_predicted_leaves_a_prediction_error_of_waiting_alone():
    schedule = make("gpipe", 1, 1)
    one, other = matched(simulate(schedule, COSTS), ran(schedule, COSTS), None, None)
    found = prediction_error((one, replace(other, other=np.full(2, -1))))
    assert found == PredictionError(found.seconds, 0.0, found.seconds, -1, 0.0)
