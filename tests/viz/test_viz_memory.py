"""Memory over time: the steps are the trace's rows, the peaks those of the metric, units said."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import annotations_of

from dlviz import metrics, viz
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz.charts.memory import STRIP, held


def strips(figure):
    return [one for one in figure.data if one.fill == "tonexty"]


def level_at(one, place, most, moment):
    """What a drawn strip says at a moment, read off its steps."""
    before = np.flatnonzero(np.asarray(one.x) <= moment)
    if not len(before):
        return 0.0
    return (place + STRIP / 2 - np.asarray(one.y)[before[-1]]) / STRIP * most


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved", "zb_h1", "dualpipev"])
def test_the_strips_show_what_the_spans_hold_at_any_moment(name):
    trace = simulate(make(name, 4, 8), Costs(2, None, 3, 2))
    figure, most = viz.memory(trace), metrics.peak_in_flight(trace).max()
    frees = {"backward", "backward_weight"}
    for rank, one in enumerate(strips(figure)):
        spans = trace.spans[trace.spans.rank == rank]
        for moment in np.arange(0.5, metrics.makespan(trace), 1.0):
            taken = ((spans.kind == "forward") & (spans.start <= moment)).sum()
            freed = (np.isin(spans.kind, [*frees]) & (spans.end <= moment)).sum()
            assert level_at(one, rank, most, moment) == pytest.approx(taken - freed)


def test_each_rank_shows_its_peak_and_the_highest_fills_its_strip():
    trace = simulate(make("1f1b", 4, 8))
    figure = viz.memory(trace)
    words = [each.text for each in annotations_of(figure)]
    assert words == ["peak 4", "peak 3", "peak 2", "peak 1"]
    tops = [shape.y0 for shape in figure.layout.shapes]
    assert tops == pytest.approx([r + STRIP / 2 - STRIP * (4 - r) / 4 for r in range(4)])
    assert viz.memory_table(trace)["peak"].tolist() == [4, 3, 2, 1]
    assert viz.memory_table(trace)["in flight"].tolist() == [4, 3, 2, 1]
    assert viz.memory_table(trace)["from"].tolist() == [3, 3, 3, 3]


def test_the_axis_says_microbatches_of_a_simulation_and_bytes_of_a_run():
    simulated = simulate(make("gpipe", 2, 4))
    assert viz.memory(simulated).layout.yaxis.title.text == ("activations in flight (microbatches)")
    run = Trace(
        memory=[
            dict(rank=0, time=0.0, what="activations", nbytes=3000),
            dict(rank=0, time=1.0, what="weights", nbytes=1000),
            dict(rank=0, time=2.0, what="activations", nbytes=0),
        ],
        meta={"clock": "paced", "ranks": 2},
    )
    figure = viz.memory(run)
    assert figure.layout.yaxis.title.text == "activations in flight (bytes)"
    assert [each.text for each in annotations_of(figure)] == ["peak 3 KB", "peak 0 bytes"]
    assert "device time" in figure.layout.xaxis.title.text
    assert "A full strip is 3 KB" in figure.layout.title.subtitle.text
    together = viz.memory(run, what=None)
    assert together.layout.annotations[0].text == "peak 4 KB"
    assert metrics.peak_memory(run).tolist() == [4000, 0]
    assert together.layout.yaxis.title.text == "all that is held (bytes)"


def test_chunks_are_said_to_count_by_themselves():
    subtitle = viz.memory(simulate(make("interleaved", 2, 4))).layout.title.subtitle.text
    assert "in each of a rank's stages by itself" in subtitle
    subtitle = viz.memory(simulate(make("1f1b", 2, 4))).layout.title.subtitle.text
    assert "stages" not in subtitle


def test_rows_of_one_moment_are_one_change():
    """A backward that ends and a forward that begins share a time rounded either way."""
    rows = [(0.0, 1), (1.0, 0), (1.0 + 2e-10, 1), (2.0, 0)]
    memory = [dict(rank=0, time=t, what="activations", nbytes=n) for t, n in rows]
    (one,) = held(Trace(memory=memory, meta={"clock": "simulated"}), "activations")
    assert one.level.tolist() == [1, 1, 0]


def test_many_changes_are_thinned_without_losing_their_peaks():
    n = 20_000
    rng = np.random.default_rng(1)
    trace = Trace(
        memory={
            "rank": np.zeros(n, int),
            "time": np.arange(n) * 1e-3,
            "what": np.full(n, "activations", object),
            "nbytes": rng.integers(0, 1000, n),
        },
        meta={"clock": "wall"},
    )
    (one,) = strips(viz.memory(trace))
    assert len(one.x) < 9000
    most = int(trace.memory.nbytes.max())
    assert (STRIP / 2 - np.asarray(one.y)).max() / STRIP * most == pytest.approx(most)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_print_form_has_the_same_steps_and_peaks(theme):
    trace = simulate(make("zb_h1", 3, 6))
    printed = viz.print.memory(trace, theme=theme).axes[0]
    lines = [line for line in printed.lines if len(line.get_xdata()) > 2]
    for one, line in zip(strips(viz.memory(trace, theme=theme)), lines, strict=True):
        np.testing.assert_allclose(line.get_xdata(), one.x)
        np.testing.assert_allclose(line.get_ydata(), one.y)
    words = [text.get_text() for text in printed.texts]
    assert [word for word in words if word.startswith("peak")] == ["peak 3", "peak 3", "peak 3"]
    assert "activations in flight (microbatches)" in words


def test_nothing_recorded_is_said_and_a_wrong_name_refused():
    empty = Trace(meta={"clock": "simulated", "ranks": 2})
    words = [each.text for each in annotations_of(viz.memory(empty))]
    assert words == ["peak 0 bytes", "peak 0 bytes", "no memory was recorded"]
    assert viz.print.memory(empty).axes[0].texts[-2].get_text() == "no memory was recorded"
    with pytest.raises(ValueError) as raised:
        viz.memory(simulate(make("gpipe", 2, 4)), what="weights")
    assert str(raised.value) == (
        "what='weights' is not in this Trace's memory: it has 'activations'."
    )
    with pytest.raises(ValueError, match="theme='pink'"):
        viz.memory(empty, theme="pink")


def bytes_held(nbytes, ranks=8, clock="paced"):
    rows = [dict(rank=r, time=t, what="activations", nbytes=n)
            for r in range(ranks) for t, n in ((0.0, nbytes), (1.0, 0))]  # fmt: skip
    return Trace(memory=rows, meta={"clock": clock, "ranks": ranks})


def test_several_traces_are_drawn_below_each_other_to_one_scale():
    traces = {"GPipe": bytes_held(32_000), "1F1B": bytes_held(8000)}
    figure = viz.memory(traces)
    heights = [np.ptp(one.y) for one in strips(figure)]
    assert heights == pytest.approx([STRIP] * 8 + [STRIP / 4] * 8)
    places = [*figure.layout.yaxis.tickvals]
    assert places == sorted(places) and np.diff(places)[7] > 1.5  # room for the second name
    words = [each.text for each in annotations_of(figure)]
    assert words.count("peak 32 KB") == words.count("peak 8 KB") == 8
    assert "<b>GPipe</b>" in words and "<b>1F1B</b>" in words
    assert "1F1B, rank 7" in strips(figure)[-1].customdata[0]
    assert figure.layout.height <= 640
    printed = viz.print.memory(traces).axes[0]
    lines = [line for line in printed.lines if len(line.get_xdata()) > 2]
    for one, line in zip(strips(figure), lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), one.y)
    assert {"GPipe", "1F1B"} < {text.get_text() for text in printed.texts}


def test_traces_that_have_no_scale_in_common_are_refused():
    run, simulated = bytes_held(8), simulate(make("1f1b", 2, 4))
    with pytest.raises(ValueError, match="^'a' and 'b' cannot share one scale: .* their unit"):
        viz.memory({"a": run, "b": simulated})
    with pytest.raises(ValueError, match="^'a' and 'b' cannot share one scale: .* their clock"):
        viz.memory({"a": run, "b": bytes_held(8, clock="wall")})
    with pytest.raises(ValueError, match="^traces has no Trace in it"):
        viz.memory({})
