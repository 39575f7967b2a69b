"""Several pipelines on one time axis: the actions are the spans', rows and scale are common."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import notes

from dlviz import metrics, viz
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette

COSTS = Costs(0.005, None, 0.005, 0.005)


def test_every_action_is_a_bar_where_its_rank_lies_from_the_first_action_on():
    traces = {name: simulate(make(name, 3, 4), COSTS) for name in ("gpipe", "1f1b")}
    figure = viz.timelines(traces)
    ticks = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    assert [*ticks.values()] == ["0", "1", "2"] * 2 and sorted(ticks) == [*ticks]
    drawn = [
        (one.name, x, long, ticks[y], label)
        for one in figure.data
        if one.name != "idle"
        for x, long, y, label in zip(one.base, one.x, one.y, one.text, strict=True)
    ]
    spans = [row for one in traces.values() for row in one.only(kind=metrics.COMPUTE).spans.rows()]
    expected = [
        (row.kind, row.start * 1e3, (row.end - row.start) * 1e3, str(row.rank), str(row.microbatch))
        for row in spans
    ]
    assert len(drawn) == 2 * 3 * 4 * 2
    for one, other in zip(sorted(drawn), sorted(expected), strict=True):
        assert (one[0], *one[3:]) == (other[0], *other[3:])
        assert one[1:3] == pytest.approx(other[1:3], abs=1e-9)


def test_each_pipeline_bears_its_name_its_time_and_its_bubble_and_idle_up_to_its_end():
    traces = {"gpipe": simulate(make("gpipe", 4, 8)), "zb_h1": simulate(make("zb_h1", 4, 8))}
    figure = viz.timelines(traces)
    titles = [note.text for note in notes(figure)]
    ratios = [metrics.bubble_ratio(trace) for trace in traces.values()]
    assert ratios == pytest.approx([3 / 8, 1 / 8])
    assert titles == [
        "<b>GPipe: 33 s, bubble ratio 0.375</b>",
        "<b>ZB-H1: 27 s, bubble ratio 0.125</b>",
    ]
    (idle,) = [one for one in figure.data if one.name == "idle"]
    assert idle.x == (33.0,) * 4 + (27.0,) * 4 and idle.base == 0
    assert idle.marker.color == palette.style("idle").fill
    assert [figure.data[0].name, *{one.name for one in figure.data[1:]} - {"idle"}][0] == "idle"


def test_the_legend_names_a_kind_once_and_says_what_lighter_means():
    figure = viz.timelines(
        {"a": simulate(make("interleaved", 2, 4)), "b": simulate(make("zb_h1", 2, 4))}
    )
    listed = [one.name for one in figure.data if one.showlegend is not False]
    assert listed == ["idle", "forward", "backward", "backward_input", "backward_weight",
                      "lighter: chunk 1"]  # fmt: skip
    shades = {one.marker.color for one in figure.data if one.name == "forward"}
    assert shades == {
        palette.style("forward").color,
        palette.shade(palette.style("forward"), 1, 2).color,
    }


@pytest.mark.parametrize(("pipelines", "ranks"), [(2, 4), (5, 8), (3, 16)])
def test_it_fits_a_laptop_and_small_bars_lose_their_numbers_not_their_place(pipelines, ranks):
    trace = simulate(make("1f1b", ranks, ranks))
    figure = viz.timelines({f"run {i}": trace for i in range(pipelines)})
    assert figure.layout.height <= 640
    assert figure.layout.uniformtext.mode == "hide"
    assert len(figure.layout.yaxis.tickvals) == pipelines * ranks


def test_of_a_run_of_several_steps_the_one_of_median_length_is_drawn():
    spans = [dict(rank=0, kind="forward", stage=0, microbatch=0, step=step, start=10.0 * step,
                  end=10.0 * step + long) for step, long in enumerate((9.0, 1.0, 2.0))]  # fmt: skip
    trace = Trace(spans, meta={"clock": "paced", "ranks": 1})
    (bar,) = [one for one in viz.timelines({"run": trace}).data if one.name == "forward"]
    assert list(bar.x) == [2.0] and list(bar.base) == [0.0]
    assert "step 2 (the one of median length of 3)" in notes(viz.timelines({"run": trace}))[0].text
    (bar,) = [one for one in viz.timelines({"run": trace}, step=0).data if one.name == "forward"]
    assert list(bar.x) == [9.0]


def test_what_cannot_be_drawn_is_refused():
    simulated = simulate(make("gpipe", 2, 2))
    with pytest.raises(ValueError, match="^traces has no Trace in it"):
        viz.timelines({})
    with pytest.raises(ValueError, match="^'empty' has no forward and no backward"):
        viz.timelines({"empty": Trace(meta={"clock": "simulated"})})
    with pytest.raises(ValueError, match="^step=3 has no action in 'a': it has none"):
        viz.timelines({"a": simulated}, step=3)
    wall = Trace(
        [dict(rank=0, kind="forward", wall_start=0.0, wall_end=1.0)], meta={"clock": "wall"}
    )
    with pytest.raises(ValueError, match="'a' and 'b' cannot share one scale: .* their clock"):
        viz.timelines({"a": simulated, "b": wall})


def test_names_of_a_program_are_text():
    figure = viz.timelines({"<img src=x>": simulate(make("gpipe", 2, 2))})
    assert "<img" not in figure.to_json() and np.all([one.name for one in figure.data])
