"""Several pipelines on one time scale: each bar is an action of its Trace, where it was."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import annotations_of

from dlviz import Costs, metrics, simulate, viz
from dlviz.schedules import make
from dlviz.trace import Trace
from dlviz.viz import palette

COSTS = Costs(0.01, None, 0.01, 0.01)


def bars(figure):
    """(row, start, length, label) of each action, the rows counted from the top."""
    rows = {round(y, 6): place for place, y in enumerate(figure.layout.yaxis.tickvals)}
    return sorted(
        (rows[round(float(y), 6)], round(float(base), 6), round(float(x), 6), label)
        for series in figure.data
        if series.text is not None
        for y, base, x, label in zip(series.y, series.base, series.x, series.text, strict=True)
    )


def test_every_action_of_every_trace_is_a_bar_on_its_rank_with_its_microbatch():
    traces = {name: simulate(make(name, 3, 4), COSTS) for name in ("1f1b", "zb_h1")}
    expected = []
    for place, trace in enumerate(traces.values()):
        for span in trace.spans.rows():
            times = round(1000 * span.start, 6), round(1000 * (span.end - span.start), 6)
            expected.append((3 * place + span.rank, *times, str(span.microbatch)))
    assert bars(viz.timelines(traces)) == sorted(expected)


def test_what_bars_leave_of_the_hatched_rows_is_the_bubble():
    trace = simulate(make("gpipe", 4, 6), COSTS)
    figure = viz.timelines({"GPipe": trace})
    (idle,) = [series for series in figure.data if series.name == "idle"]
    busy = sum(length for _, _, length, _ in bars(figure))
    assert np.sum(idle.x) / busy - 1 == pytest.approx(metrics.bubble_ratio(trace)) != 0


def test_pipelines_begin_together_and_a_kind_is_in_the_legend_once():
    early = simulate(make("1f1b", 2, 3), COSTS)
    late = [{**r._asdict(), "start": r.start + 5, "end": r.end + 5} for r in early.spans.rows()]
    late = [{name: value for name, value in row.items() if name != "flow"} for row in late]
    figure = viz.timelines({"early": early, "late": Trace(late, meta={"clock": "simulated"})})
    first, second = ([bar for row, *bar in bars(figure) if row // 2 == place] for place in range(2))
    assert first == second
    names = [s.name for s in figure.data if s.showlegend in (True, None)]
    assert sorted(names) == ["backward", "forward", "idle"]


def test_chunks_are_shades_and_three_times_eight_ranks_fit_a_laptop():
    one, two = simulate(make("1f1b", 8, 8)), simulate(make("interleaved", 8, 8, chunks=2))
    figure = viz.timelines({"one": one, "two": two, "three": one})
    assert figure.layout.height <= 640
    assert len({s.marker.color for s in figure.data if s.name == "forward"}) == 2
    assert any("lighter" in s.name for s in figure.data)


def test_what_cannot_share_a_picture_is_refused():
    simulated, empty = simulate(make("1f1b", 2, 2)), Trace([], meta={"clock": "simulated"})
    with pytest.raises(ValueError, match="has no Trace in it"):
        viz.timelines({})
    with pytest.raises(ValueError, match="nothing.* has no"):
        viz.timelines({"it": simulated, "nothing": empty})
    with pytest.raises(ValueError, match="step=3"):
        viz.timelines({"it": simulated}, step=3)
    span = dict(rank=0, kind="forward", wall_start=0.0, wall_end=1.0)
    with pytest.raises(ValueError, match="'a' and 'b' cannot share one scale: .* their clock"):
        viz.timelines({"a": simulated, "b": Trace([span], meta={"clock": "wall"})})


def test_each_pipeline_has_its_name_its_time_and_its_bubble_and_idle_up_to_its_end():
    traces = {"gpipe": simulate(make("gpipe", 4, 8)), "zb_h1": simulate(make("zb_h1", 4, 8))}
    figure = viz.timelines(traces)
    titles = [each.text for each in annotations_of(figure)]
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
    assert "step 2 (of median length)" in annotations_of(viz.timelines({"run": trace}))[0].text
    (bar,) = [one for one in viz.timelines({"run": trace}, step=0).data if one.name == "forward"]
    assert list(bar.x) == [9.0]


def test_traces_without_names_are_numbered_and_what_is_none_is_refused():
    found = [simulate(name, ranks=2, microbatches=3) for name in ("gpipe", "1f1b")]
    lines = [line.text for line in viz.timelines(found).layout.annotations[:2]]
    assert [line.split(":")[0] for line in lines] == ["<b>Trace 1", "<b>Trace 2"]
    for draw in (viz.timelines, viz.traffic, viz.memory, viz.print.timelines):
        with pytest.raises(ValueError, match="^Trace 2 has to be a Trace, a list of Traces"):
            draw([found[0], 3])


def test_names_of_a_program_are_text():
    figure = viz.timelines({"<img src=x>": simulate(make("gpipe", 2, 2))})
    assert "<img" not in figure.to_json() and np.all([one.name for one in figure.data])
