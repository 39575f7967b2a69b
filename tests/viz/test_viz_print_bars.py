"""Breakdown, compare and timelines on paper hold the numbers and the words of those on a page."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from viz_scenes import data_parallel

from dlviz import metrics, viz
from dlviz.schedules import make
from dlviz.sim import Costs, simulate

COSTS = Costs(0.005, None, 0.005, 0.005)


def boxes(figure, name):
    """(left, right) of each box of this name, from the top and the left."""
    found = []
    for part in figure.axes[0].collections:
        if isinstance(part, PathCollection) and part.get_label() == name:
            for path in part.get_paths():
                corners = path.vertices.reshape(-1, 5, 2)[:, :4]  # and one that closes the path
                found += [(y.min(), x.min(), x.max()) for x, y in corners.transpose(0, 2, 1)]
    return [(left, right) for _, left, right in sorted(found)]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_bars_of_a_breakdown_are_those_of_the_metric():
    trace = data_parallel(4)
    figure = viz.print.breakdown(trace)
    parts = metrics.breakdown(trace)
    for name, label in (("compute", "compute"), ("idle", "idle")):
        lengths = np.array([right - left for left, right in boxes(figure, label)])
        np.testing.assert_allclose(lengths, parts[name] * 1e3)
    page = viz.breakdown(trace)
    assert legend(figure) == [series.name for series in page.data]
    shares = [word for series in page.data for word in series.text if word]
    assert words(figure) == [share for share in shares if share != "2%"]  # it does not fit
    assert "2%" in shares


def test_measured_actions_lie_below_the_predicted_ones_in_time_as_on_a_page():
    schedule = make("1f1b", 3, 4)
    sides = simulate(schedule, COSTS), simulate(schedule, Costs(0.006, None, 0.005, 0.005))
    figure, page = viz.print.compare(*sides), viz.compare(*sides)
    drawn = sorted(box for kind in ("forward", "backward") for box in boxes(figure, kind))
    bars = sorted(
        (x, x + long) for one in page.data for x, long in zip(one.base, one.x, strict=True)
    )
    np.testing.assert_allclose(drawn, bars)
    ticks = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert ticks == [*page.layout.yaxis.ticktext]
    assert any("differs most" in text.get_text() for text in figure.texts)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_timelines_on_paper_hold_the_same_actions_numbers_and_titles(theme):
    traces = {"gpipe": simulate(make("gpipe", 3, 4)), "zbv": simulate(make("zbv", 3, 4))}
    figure, page = viz.print.timelines(traces, theme=theme), viz.timelines(traces, theme=theme)
    for kind in ("forward", "backward_weight"):
        bars = [(x, x + long) for one in page.data if one.legendgroup == kind
                for x, long in zip(one.base, one.x, strict=True)]  # fmt: skip
        np.testing.assert_allclose(sorted(boxes(figure, kind)), sorted(bars))
    texts = words(figure)
    titles = [each.text for each in page.layout.annotations if each.text.startswith("<b>GPipe")]
    assert (
        titles == ["<b>GPipe: 18 s, bubble ratio 0.5</b>"]
        and "GPipe: 18 s, bubble ratio 0.5" in texts
    )
    numbers = [word for word in texts if word.isdigit()]
    assert len(numbers) == 3 * 4 * (2 + 6)  # of GPipe F and B, of ZB-V F, I and W of two chunks
    assert legend(figure) == ["idle", "forward", "backward", "input gradient", "weight gradient",
                              "lighter: chunk 1"]  # fmt: skip


@pytest.mark.parametrize("ranks", [8, 16])
def test_what_is_printed_fits_a_page(ranks):
    trace = simulate(make("1f1b", ranks, 4))
    for figure in (
        viz.print.breakdown(trace),
        viz.print.compare(trace, trace),
        viz.print.timelines({"a": trace, "b": trace, "c": trace}),
        viz.print.memory({"a": trace, "b": trace}),
    ):
        assert figure.get_figwidth() == 7.2 and figure.get_figheight() <= 6.5
