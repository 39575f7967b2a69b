"""viz.losses and viz.disagreement: the results of runs, batch by batch and over time."""

from __future__ import annotations

import numpy as np
import pytest
from worked_traces import dealt, lockstep, worked

from dlviz import metrics, viz
from dlviz.viz import palette

CURVES = {
    "asynchronous": (dealt(4, 80), np.linspace(2.0, 0.5, 80)),
    "local SGD, H = 8": (lockstep(), np.linspace(2.0, 1.0, 20)),
    "local SGD, H = 32": (lockstep(), np.linspace(2.0, 1.5, 20)),
}


def replicas(gap: float):
    """Two ranks that differ by `gap` from their mean, 1, in the second of two batches."""
    steps = [(0, 0.0, 1.0), (1, 1.0, 2.0)]
    models = [(0, 0.0, [1.0]), (1, 1.0, [1.0 + gap])], [(0, 0.0, [1.0]), (1, 1.0, [1.0 - gap])]
    return worked({0: steps, 1: steps}, dict(enumerate(models)))


def test_a_loss_is_drawn_over_batches_and_over_time_as_a_running_mean():
    figure = viz.losses(CURVES, over=4)
    for place, (name, (trace, losses)) in enumerate(CURVES.items()):
        one, other = figure.data[place], figure.data[place + 3]
        table = metrics.descent(trace, losses)
        assert one.name == name and (one.yaxis, other.yaxis) == ("y", "y2")
        assert list(one.x) == list(range(4, len(losses) + 1))
        np.testing.assert_array_equal(other.x, table.seconds[3:])
        np.testing.assert_array_equal(one.y, other.y)
        assert one.y[0] == pytest.approx(table.loss[:4].mean())
        assert one.showlegend and not other.showlegend
    assert figure.layout.yaxis2.matches == "y" and figure.layout.height <= 640
    assert figure.layout.xaxis.title.text == "batches"
    assert figure.layout.xaxis2.title.text == "wall-clock time (s)"
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "Mean loss of the last 4 batches" in subtitle
    assert "Paced, read by the wall clock, up to 30 ms late." in subtitle


def test_losses_without_their_trace_are_refused_and_said_where_they_are_drawn():
    for draw in (viz.losses, viz.print.losses):
        with pytest.raises(ValueError, match=r"^ddp has no Trace, .*losses alone by viz\.curve\.$"):
            draw({"ddp": [3.0, 2.0, 1.0]})


def test_a_loss_that_is_not_a_number_is_counted_and_not_drawn():
    losses = [1.0] * 10 + [np.inf] * 10
    figure = viz.losses({"asynchronous": (lockstep(), losses)}, over=1)
    assert np.isnan(figure.data[0].y[10:]).all() and (np.array(figure.data[0].y)[:10] == 1).all()
    assert "asynchronous: 10 of 20 are not finite or 0." in figure.layout.title.subtitle.text


def test_a_method_has_one_hue_in_every_chart_and_its_forms_differ_in_dashes_or_marks():
    falling, apart = viz.losses(CURVES), viz.disagreement({"local_sgd": replicas(0.1)})
    hues = {line.name: line.line.color for line in falling.data}
    assert hues["local SGD, H = 8"] == hues["local SGD, H = 32"] == apart.data[0].line.color
    assert apart.data[0].name == "local SGD"
    assert hues["asynchronous"] == palette.METHODS["async_server"][1]
    dashes = [line.line.dash for line in falling.data[1:3]]
    assert dashes[0] != dashes[1]
    looks = palette.methods(["mine", "synchronous", "yours"])
    assert len({look.color for look in looks.values()}) == 3
    assert looks["synchronous"].color == palette.BLUE


def test_models_that_are_the_same_lie_on_the_lower_border_which_is_0():
    traces = {"gossip, ring": replicas(0.1), "ensemble": replicas(0.002)}
    figure = viz.disagreement(traces)
    ring, ensemble = figure.data
    np.testing.assert_allclose(ring.x, [0.0, 2.0])
    np.testing.assert_allclose(ring.y, [-3, -1], atol=1e-9)
    np.testing.assert_allclose(ensemble.y, [-3, np.log10(0.002)], atol=1e-9)
    np.testing.assert_allclose(ring.customdata, [0.0, 0.1], atol=1e-9)
    axis = figure.layout.yaxis
    assert dict(zip(axis.tickvals, axis.ticktext, strict=True)) == {-3: "0", -2: "0.01", -1: "0.1"}
    assert figure.layout.height <= 640
    assert "Paced" in figure.layout.title.subtitle.text
    alike = viz.disagreement({"synchronous": replicas(0.0)})
    assert set(alike.data[0].y) == {alike.layout.yaxis.tickvals[0]}
