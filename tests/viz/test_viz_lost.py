"""The moment at which a rank was lost, on timelines, by geometry."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.text import Text
from viz_scenes import KILLED, lossy

from dlviz import viz
from dlviz.cluster.parent.warn import warn
from dlviz.trace import Trace
from dlviz.viz import palette


def marks(figure):
    """Each loss of a figure: times, heights and words of its three points."""
    found = [series for series in figure.data if series.name == "rank lost"]
    if not found:
        return []
    (series,) = found
    assert series.line.color == palette.VERMILION
    x, y = (np.reshape(column, (-1, 4))[:, :3] for column in (series.x, series.y))
    return [*zip(x.tolist(), y.tolist(), series.customdata[::4], strict=True)]


def test_a_loss_is_a_cross_at_its_moment_over_all_rows_of_its_rank():
    figure = viz.timeline(lossy())
    rows = dict(zip(figure.layout.yaxis.ticktext, figure.layout.yaxis.tickvals, strict=True))
    (late, one, said), (when, other, also) = marks(figure)
    assert late == [3.0] * 3, "after everything else: at the end"
    assert when == [1.5] * 3
    assert one[0] < rows["rank 1"] < rows["rank 1 · comm"] < one[2] < other[0]
    assert other[0] < rows["rank 2"] == other[1] < other[2]
    assert said == "rank 1 raised ValueError: no such thing at 9 s; the run lost it"
    assert also == "rank 2 was killed by signal 9 at 1.5 s; the run lost it"
    subtitle = figure.layout.title.subtitle.text
    assert "Rank 1 was lost after 9 s: it raised ValueError: no such thing." in subtitle
    assert "Rank 2 was lost after 1.5 s: it was killed by signal 9." in subtitle
    (annotation,) = [each.text for each in figure.layout.annotations if "rank 2" in each.text]
    assert annotation == "rank 2 is lost, with all that it had recorded"


def test_a_step_shows_the_losses_in_it_alone():
    assert [times[0] for times, *_ in marks(viz.timeline(lossy(), step=1))] == [1500]
    assert not marks(viz.timeline(lossy(), step=0))
    assert not marks(viz.timeline(lossy().only(rank=0)))


def test_print_draws_the_same_losses():
    figure = viz.print.timeline(lossy())
    (axes,) = figure.axes
    lines = [line for line in axes.lines if line.get_marker() == "x"]
    drawn = [(line.get_xdata()[0], [*line.get_ydata()]) for line in lines]
    known = [(times[0], heights) for times, heights, _ in marks(viz.timeline(lossy()))]
    assert drawn == [(at, pytest.approx(heights)) for at, heights in known]
    assert "rank lost" in [text.get_text() for text in figure.findobj(Text)]


def test_a_message_that_a_lost_rank_never_received_is_no_cause_for_a_warning(recwarn):
    columns = {"src": [0], "dst": [1], "sent": [0.5], "received": [float("nan")]}
    meta = {"clock": "wall", "ranks": 3, "outcome": "unreceived", "warning": ""}
    warn(Trace(messages=columns, meta={**meta, "lost": {"1": KILLED}}))
    assert not recwarn.list
    warn(Trace(messages=columns, meta={**meta, "lost": {"2": KILLED}}))
    assert "rank 0 sent rank 1 a message that it never received" in str(recwarn.list[0].message)
