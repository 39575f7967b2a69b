"""viz.spectrum: each method at its speed and its examples, lines of one time, none left out."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from worked_traces import dealt, lockstep

from dlviz import viz
from dlviz.viz.charts import spectrum as chart

NONE = float("nan")
COLUMNS = ["method", "examples_per_second", "examples_to_target", "seconds", "late"]
CROWDED = pandas.DataFrame(
    [
        ("synchronous", 355, 9000, 25.3, 0.03),
        ("synchronous, 1 backup", 800, 9000, 11.3, 0.01),
        ("stale-synchronous, s = 1", 1420, 9800, 6.9, 0.03),
        ("stale-synchronous, s = 3", 1420, 9900, 7.0, 0.03),
        ("asynchronous", 3556, 14000, 3.9, 0.03),
        ("Hogwild", 3500, 14100, 4.0, NONE),
        ("EASGD, round robin", 900, NONE, NONE, 0.03),
        ("late all-reduce", 360, 9300, 25.8, 0.03),
        ("local SGD, H = 8", 356, 9500, 26.7, 0.03),
        ("gossip, ring", 357, 9100, 25.5, 0.03),
        ("ensemble", 1422, NONE, NONE, 0.03),
    ],
    columns=COLUMNS,
)


def points(figure):
    return {one.name: one for one in figure.data if one.mode == "markers"}


def test_each_method_lies_at_its_examples_and_its_speed():
    figure = viz.spectrum(CROWDED, target=0.5, theme="light")
    drawn = points(figure)
    assert [*drawn] == CROWDED.method.tolist()
    for row in CROWDED.dropna(subset=["seconds"]).itertuples():
        np.testing.assert_allclose(drawn[row.method].x, [row.examples_to_target])
        np.testing.assert_allclose(drawn[row.method].y, [row.examples_per_second])
    assert figure.layout.height <= 640
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_a_line_is_one_of_equal_time_and_says_which():
    figure = viz.spectrum(CROWDED, target=0.5, theme="light")
    lines = [one for one in figure.data if one.mode == "lines"]
    words = [each.text for each in figure.layout.annotations]
    assert len(lines) >= 3
    for line in lines:
        seconds = np.array(line.x) / np.array(line.y)
        assert seconds[0] == pytest.approx(seconds[1])
        time = line.name.removesuffix(" to target")
        assert time == f"{seconds[0]:.3g} s" and time in words
    high = figure.layout.yaxis.range[1]
    at_top = [each for each in figure.layout.annotations if each.y > high - 1e-6]
    assert at_top and all(each.yanchor == "bottom" for each in at_top)  # above the axes
    (x, y), (left, right) = figure.layout.yaxis.range, figure.layout.xaxis.range
    for each in figure.layout.annotations:  # plotly leaves out what is off the axes
        assert x <= each.y <= y and left <= each.x <= right


def test_a_method_that_never_gets_there_is_beyond_the_border_at_its_speed():
    figure = viz.spectrum(CROWDED, target=0.5, theme="light")
    border = figure.layout.shapes[0].x0
    for name, point in points(figure).items():
        never = name in ("EASGD, round robin", "ensemble")
        assert (point.x[0] > border) == never
        assert ("never got to the target" in point.customdata[0]) == never
    assert points(figure)["ensemble"].y[0] == pytest.approx(1422)
    assert dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))[
        "never"
    ] == pytest.approx(points(figure)["ensemble"].x[0])
    alone = viz.spectrum(CROWDED.iloc[[6]], target=0.5, theme="light")
    assert alone.layout.xaxis.ticktext[-1] == "never"
    there = viz.spectrum(CROWDED.iloc[:3], target=0.5, theme="light")
    assert not there.layout.shapes and "never" not in there.layout.xaxis.ticktext


def test_no_name_covers_another_or_a_mark_in_a_notebook():
    figure = viz.spectrum(CROWDED, target=0.5, theme="light")
    type_ = chart.CHARACTER, chart.TYPE, chart.GAP
    plan = chart.laid_out(CROWDED, (chart.WIDE, chart.INNER), type_)
    scale = np.array([chart.WIDE, chart.INNER]) / (np.ptp(plan.x), np.ptp(plan.y))
    marks = (plan.points - (plan.x[0], plan.y[0])) * scale
    sizes = [(chart.CHARACTER * len(name), chart.TYPE) for name in CROWDED.method]
    boxes = [
        (*(mark + beside - np.array(size) / 2), *(mark + beside + np.array(size) / 2))
        for mark, beside, size in zip(marks, plan.labels, sizes, strict=True)
    ]
    for i, one in enumerate(boxes):
        others = [*boxes[:i], *((x - 6, y - 6, x + 6, y + 6) for x, y in marks)]
        for other in others:
            wide = min(one[2], other[2]) - max(one[0], other[0])
            assert wide <= 0 or min(one[3], other[3]) <= max(one[1], other[1]), CROWDED.method[i]
    found = {each.text: each for each in figure.layout.annotations}
    for name, beside in zip(CROWDED.method, plan.labels, strict=True):
        one = found[name]
        moved = (one.ax, -one.ay) if one.showarrow else (one.xshift, one.yshift)
        np.testing.assert_allclose(moved, beside, atol=1e-9)


def test_hover_has_the_time_read_off_and_the_quotient_beside_it():
    said = points(viz.spectrum(CROWDED, target=0.5))["synchronous"].customdata[0]
    assert "target after 25.3 s, read off the run" in said
    assert "examples to target / examples per second: 25.4 s" in said


def test_the_subtitle_has_target_smoothing_and_lateness():
    subtitle = viz.spectrum(CROWDED, target=0.5, over=8).layout.title.subtitle.text
    assert "mean loss of 0.5 or less over the last 8 batches" in subtitle.replace("<br>", " ")
    assert "up to 30 ms late" in subtitle
    wall = viz.spectrum(CROWDED.assign(late=NONE), target=0.5)
    assert "late" not in wall.layout.title.subtitle.text


def test_the_table_is_read_off_the_runs():
    runs = {
        "async_server": (dealt(), [2.0] * 100 + [0.1] * 300),
        "synchronous": (lockstep(), [2.0] * 20),
    }
    table = viz.spectrum_table(runs, target=0.5, examples=64, over=4)
    assert table.columns.tolist() == COLUMNS
    assert table.method.tolist() == ["asynchronous", "synchronous"]
    assert table.seconds[0] == pytest.approx(
        table.examples_to_target[0] / table.examples_per_second[0], rel=0.05
    )
    assert table.late.tolist() == [0.03, 0.03] and np.isnan(table.seconds[1])
    assert len(points(viz.spectrum(table, target=0.5, over=4))) == 2


def test_what_a_logarithmic_axis_cannot_show_is_refused():
    with pytest.raises(ValueError, match="the table has no method"):
        viz.spectrum(CROWDED.iloc[:0], target=0.5)
    for column in ("examples_per_second", "examples_to_target"):
        wrong = CROWDED.assign(**{column: 0.0})
        with pytest.raises(ValueError, match=f"{column} 0 of synchronous cannot stand"):
            viz.spectrum(wrong, target=0.5)
    with pytest.raises(ValueError, match="examples_per_second nan of synchronous"):
        viz.spectrum(CROWDED.assign(examples_per_second=NONE), target=0.5)
