"""The bubble chart: marks are the metrics of the traces, lines the closed forms, clocks apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlviz import metrics, viz
from dlviz.schedules import TITLES, make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace

SIZES = (4, 8, 16)


def ran(trace: Trace, longer: float = 1.25, clock: str = "paced", **meta) -> Trace:
    """A run that took what `trace` says by the device, and by the wall each span `longer` times
    as long (where the next one has room: an idle rank only)."""
    spans = {name: trace.spans[name] for name in trace.spans.names}
    spans["wall_start"] = 3.0 + longer * trace.spans.start
    spans["wall_end"] = 3.0 + longer * trace.spans.start + (trace.spans.end - trace.spans.start)
    about = {"clock": clock, "ranks": trace.meta["ranks"], "machine": "4 ranks", **meta}
    return Trace(spans, trace.messages, trace.memory, meta=about)


def named(figure, name):
    """The lines and the marks of a legend's entry."""
    own = [one for one in figure.data if one.name == name and one.x[0] is not None]
    lines = [one for one in own if one.mode == "lines"]
    return lines, [one for one in own if one.mode == "markers"]


@pytest.mark.parametrize("measure", ["ratio", "fraction"])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "interleaved"])
def test_a_simulation_lies_on_the_line_of_its_closed_form(name, measure):
    traces = [simulate(make(name, 4, m), Costs(3, None, 5, 2)) for m in SIZES]
    (line,), (marks,) = named(viz.bubble(traces, measure=measure), TITLES[name])
    assert marks.x == SIZES
    metric = metrics.bubble_ratio if measure == "ratio" else metrics.bubble_fraction
    assert list(marks.y) == [metric(trace) for trace in traces]
    at = dict(zip(line.x.tolist(), line.y.tolist(), strict=True))
    assert [at[m] for m in SIZES] == pytest.approx(list(marks.y))
    assert [*at] == [*range(4, 17)]


def test_the_lines_of_gpipe_are_p_minus_1_over_m_and_over_m_plus_p_minus_1():
    traces = [simulate(make("gpipe", 4, m)) for m in SIZES]
    for measure, law in (("ratio", lambda m: 3 / m), ("fraction", lambda m: 3 / (m + 3))):
        (line,), _ = named(viz.bubble(traces, measure=measure), "GPipe")
        assert line.y == pytest.approx([law(m) for m in line.x])


def test_a_bubble_may_be_drawn_against_ranks_and_against_chunks():
    of_ranks = viz.bubble([simulate(make("1f1b", p, 8)) for p in (1, 2, 5)], against="ranks")
    (line,), (marks,) = named(of_ranks, "1F1B")
    assert marks.x == (1, 2, 5) and line.y == pytest.approx([(p - 1) / 8 for p in line.x])
    assert of_ranks.layout.xaxis.title.text == "ranks (p)"

    traces = [simulate(make("interleaved", 4, 8, v)) for v in (1, 2, 4)]
    traces.append(simulate(make("gpipe", 4, 8)))
    of_chunks = viz.bubble(traces, against="chunks")
    (line,), (marks,) = named(of_chunks, "interleaved 1F1B")
    assert marks.x == (1, 2, 4) and line.y == pytest.approx([3 / (8 * v) for v in line.x])
    (flat,), _ = named(of_chunks, "GPipe")
    assert flat.y == pytest.approx([3 / 8] * len(flat.x))  # it has no chunks to vary


def test_schedules_of_other_sizes_are_lines_of_their_own():
    traces = [simulate(make("gpipe", p, m)) for p in (2, 4) for m in SIZES]
    figure = viz.bubble(traces)
    for p in (2, 4):
        (line,), (marks,) = named(figure, f"GPipe, {p} ranks")
        assert marks.x == SIZES and line.y == pytest.approx([(p - 1) / m for m in line.x])
    colors = {(line.line.color, line.line.dash) for line in figure.data if line.mode == "lines"}
    assert len(colors) == 2


def test_a_schedule_without_a_closed_form_has_marks_alone():
    figure = viz.bubble([simulate(make("dualpipev", 2, m)) for m in SIZES])
    lines, (marks,) = named(figure, "DualPipeV")
    assert not lines and marks.showlegend
    assert "lines:" not in figure.layout.title.subtitle.text


def test_where_a_form_does_not_hold_the_line_has_a_gap():
    figure = viz.bubble([simulate(make("looped_bfs", 4, m)) for m in (1, 8)])
    (line,), _ = named(figure, "looped BFS")
    assert np.isnan(line.y[line.x < 4]).all() and np.isfinite(line.y[line.x >= 4]).all()


def test_simulated_and_measured_are_series_of_their_own_and_measured_is_the_wall():
    predicted = [simulate(make("1f1b", 4, m)) for m in SIZES]
    runs = [ran(trace, schedule="1f1b") for trace in predicted]
    figure = viz.bubble([*predicted, *runs])
    lines, marks = named(figure, "1F1B")
    assert len(lines) == 1 and len(marks) == 2
    simulated, measured = marks
    assert simulated.marker.symbol == "circle-open" and measured.marker.symbol == "diamond"
    assert simulated.y == pytest.approx([3 / m for m in SIZES])
    assert list(measured.y) == [metrics.bubble_ratio(run, "wall") for run in runs]
    assert all(a > b for a, b in zip(measured.y, simulated.y, strict=True))
    assert {one.name for one in figure.data} == {"1F1B", "simulated", "measured"}
    subtitle = figure.layout.title.subtitle.text
    assert subtitle.startswith("simulated · F 1 s")
    assert "<br>paced · 4 ranks · wall-clock time<br>" in subtitle
    assert "above" in measured.customdata[0] and "on it" in simulated.customdata[0]

    by_device = viz.bubble(runs, clock="device")
    _, (marks,) = named(by_device, "1F1B")
    assert marks.y == pytest.approx([3 / m for m in SIZES])
    assert "paced, device time" in {one.name for one in by_device.data}


def test_traces_may_have_names_of_their_own_and_sizes_come_from_the_spans():
    run = ran(simulate(make("interleaved", 2, 4, 2)))  # its meta names no schedule
    figure = viz.bubble({"mine": [run], "1f1b": ran(simulate(make("1f1b", 2, 4)))})
    lines, (marks,) = named(figure, "mine, 2 chunks")
    assert not lines and marks.x == (4,)
    assert "2 ranks, 4 microbatches, 2 chunks" in marks.customdata[0]
    lines, _ = named(figure, "1F1B, 1 chunk")
    assert len(lines) == 1  # a name that the forms know has its line
    table = viz.bubble_table({"mine": [run]})
    assert table.iloc[0][["ranks", "microbatches", "chunks"]].tolist() == [2, 4, 2]


def test_the_table_holds_what_the_chart_shows():
    traces = [simulate(make(name, 4, 8)) for name in ("gpipe", "dualpipev")]
    table = viz.bubble_table([*traces, ran(traces[0], schedule="gpipe")])
    assert table["origin"].tolist() == ["simulated", "simulated", "measured"]
    assert table["ratio"][0] == pytest.approx(3 / 8) == table["formula"][0]
    assert table["fraction"][0] == pytest.approx(3 / 11)
    assert math.isnan(table["formula"][1])
    assert table["ratio"][2] == metrics.bubble_ratio(ran(traces[0]), "wall")


def test_warnings_and_names_of_a_run_are_shown_as_written():
    run = ran(simulate(make("gpipe", 2, 4)), warning="it could not <b>keep</b> its pace")
    figure = viz.bubble({"<img src=x>": run})
    assert "could not" not in figure.layout.title.subtitle.text
    assert "could not &lt;b&gt;keep" in figure.layout.annotations[-1].hovertext
    assert figure.data[0].name.startswith("&lt;img")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_print_form_has_the_same_lines_and_marks(theme):
    traces = [simulate(make(name, 4, m)) for name in ("gpipe", "interleaved") for m in SIZES]
    traces += [ran(trace, schedule=trace.meta["schedule"]) for trace in traces]
    figure = viz.bubble(traces, theme=theme)
    printed = viz.print.bubble(traces, theme=theme)
    drawn = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
             for line in printed.axes[0].lines]  # fmt: skip
    shown = [one for one in figure.data if one.x[0] is not None]
    assert len(drawn) == len(shown) == 6
    for one, (x, y) in zip(shown, drawn, strict=True):
        np.testing.assert_allclose(x, one.x)
        np.testing.assert_allclose(y, one.y)
    words = [text.get_text() for text in printed.legends[0].get_texts()]
    assert words == ["GPipe, 1 chunk", "interleaved 1F1B, 2 chunks", "simulated", "measured"]


def test_what_cannot_be_drawn_is_refused_in_one_sentence():
    trace = simulate(make("gpipe", 2, 4))
    with pytest.raises(ValueError, match=r"^against='stages' is not on the chart: use 'ranks', "):
        viz.bubble(trace, against="stages")
    with pytest.raises(ValueError, match=r"^measure='idle' is not on the chart: use 'ratio', "):
        viz.bubble(trace, measure="idle")
    with pytest.raises(ValueError, match=r"^theme='pink' is not a theme of the figures"):
        viz.bubble(trace, theme="pink")
    with pytest.raises(ValueError, match=r"^clock='wall' cannot be drawn: this simulated Trace"):
        viz.bubble(trace, clock="wall")
    with pytest.raises(ValueError, match=r"^traces has no Trace in it: give one or more\.$"):
        viz.bubble([])
    sends = Trace([dict(rank=0, kind="send", start=0.0, end=1.0)], meta={"clock": "simulated"})
    with pytest.raises(ValueError, match=r"^'a run' has no bubble: no rank of its Trace has a"):
        viz.bubble(sends)


def test_a_run_that_was_late_is_drawn_hollow_and_called_late():
    trace = simulate(make("gpipe", 2, 4))
    runs = ran(trace, schedule="gpipe"), ran(trace, schedule="gpipe", warning="the run was late")
    figure = viz.bubble(runs)
    _, (quiet, late) = named(figure, "GPipe")
    assert (quiet.marker.symbol, late.marker.symbol) == ("diamond", "diamond-open")
    assert "GPipe, measured</b>" in quiet.customdata[0]
    assert "GPipe, measured, late</b>" in late.customdata[0]
    assert {"measured", "measured, late"} < {one.name for one in figure.data}
    assert viz.bubble_table(runs)["origin"].tolist() == ["measured", "measured, late"]
    by_device = viz.bubble_table(runs, clock="device")
    assert by_device["origin"].tolist() == ["paced, device time"] * 2
    hollow, filled = viz.print.bubble(runs[1]).axes[0], viz.print.bubble(runs[0]).axes[0]
    faces = [axes.lines[-1].get_markerfacecolor() for axes in (hollow, filled)]
    assert faces[0] == "none" != faces[1]
