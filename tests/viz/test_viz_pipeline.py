"""What the timeline shows of a pipeline: microbatch numbers, chunks, bubbles, the critical path."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dlviz import metrics, viz
from dlviz.analysis.stages import chunks_of
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.gantt.pipeline import critical_of

COSTS = Costs(2, None, 3, 2, latency=0.5)


def series(figure, name):
    return next(one for one in figure.data if one.name == name)


def is_in(moment, one, row):
    """Whether a bar of a series lies over a moment on a row."""
    inside = (np.asarray(one.base) <= moment) & (moment < np.asarray(one.base) + np.asarray(one.x))
    return bool((inside & (np.asarray(one.y) == row)).any())


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "interleaved"])
def test_bars_show_the_number_of_their_microbatch(name):
    trace = simulate(make(name, 3, 6), COSTS)
    figure = viz.timeline(trace)
    spans = trace.spans
    for kind in set(spans.kind):
        labels = [one.text for one in figure.data if one.legendgroup == kind]
        numbers = spans.microbatch[spans.kind == kind]
        assert sorted(np.concatenate(labels)) == sorted(map(str, numbers))
    axes = viz.print.timeline(trace).axes[0]  # on paper, 800 pixels wide, as well: all of them
    assert sorted(label.get_text() for label in axes.texts) == sorted(map(str, spans.microbatch))


@pytest.mark.parametrize("name", ["interleaved", "zbv", "dualpipev"])
def test_each_further_stage_of_a_rank_is_a_lighter_shade_of_its_kind(name):
    trace = simulate(make(name, 2, 4), COSTS)
    chunk, chunks = chunks_of(trace)
    assert chunks == 2
    place = make(name, 2, 4).stage_rank
    for span in range(len(trace.spans)):
        stage, rank = trace.spans.stage[span], trace.spans.rank[span]
        assert chunk[span] == sum(place[s] == rank for s in range(stage))
    figure = viz.timeline(trace)
    first, second = series(figure, "forward"), series(figure, "forward, chunk 1")
    assert first.marker.color == palette.KINDS["forward"].color
    assert second.marker.color == palette.shade(palette.KINDS["forward"], 1, 2).color
    assert first.legendgroup == second.legendgroup
    assert len(first.x) == len(second.x) == (trace.spans.kind == "forward").sum() / 2


def test_shades_grow_lighter_and_a_lone_stage_has_its_own_colour():
    def light(color):
        return sum(int(color[i : i + 2], 16) for i in (1, 3, 5))

    style = palette.KINDS["backward_weight"]
    shades = [palette.shade(style, chunk, 4) for chunk in range(4)]
    assert shades[0] == style == palette.shade(style, 0, 1)
    lights = [light(shade.color) for shade in shades]
    assert lights == sorted(lights) and len({*lights}) == 4
    assert {shade.pattern for shade in shades} == {style.pattern}


def test_of_many_chunks_the_legend_lists_the_first_and_the_last():
    figure = viz.timeline(simulate(make("interleaved", 2, 4, 4)))
    listed = [one.name for one in figure.data if one.showlegend and one.type == "bar"]
    assert [name for name in listed if name and name.startswith("forward")] == [
        "forward", "forward, chunk 3",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb_h1"])
def test_bubbles_fill_what_no_action_does(name):
    trace = simulate(make(name, 3, 6), COSTS)
    figure = viz.timeline(trace)
    bubbles = series(figure, "idle")
    assert sum(bubbles.x) == pytest.approx((metrics.makespan(trace) - metrics.busy(trace)).sum())
    works = [one for one in figure.data if one.type == "bar" and one.name != "idle"]
    for row in figure.layout.yaxis.tickvals:
        for moment in np.arange(0.25, metrics.makespan(trace), 0.5):
            assert is_in(moment, bubbles, row) != any(is_in(moment, one, row) for one in works)
    assert bubbles.marker.pattern.shape == palette.KINDS["idle"].pattern != ""


def test_a_bubble_says_what_it_waited_for():
    trace = simulate(make("gpipe", 3, 4), COSTS)
    figure = viz.timeline(trace)
    bubbles, rows = series(figure, "idle"), figure.layout.yaxis.tickvals
    hovers = {(rows.index(y), start): words for y, start, words in zip(
        bubbles.y, bubbles.base, bubbles.customdata, strict=True)}  # fmt: skip
    words = hovers[1, 0.0].replace("<br>", " ")
    assert words.endswith(
        "1F0 waited until a message came from rank 0; rank 0 was mostly in forward 0, for 2 of "
        "2.5 s, then its message was in transit"
    )
    # rank 0 has done its forwards: F and B of rank 2, then B of rank 1 lie between
    words = hovers[0, 8.0]
    assert words.startswith("<b>idle</b><br>rank 0: ")
    assert "0B0 waited until a message came from rank 1" in words.replace("<br>", " ")
    last = max(start for row, start in hovers if row == 2)
    assert hovers[2, last].endswith("nothing left to do")


def test_a_trace_that_is_no_pipelines_has_no_bubbles():
    spans = [dict(rank=0, kind="forward", start=float(i), end=i + 0.5) for i in range(3)]
    figure = viz.timeline(Trace(spans, meta={"clock": "simulated"}))
    assert [one.name for one in figure.data] == ["forward"]


def boxes_of(figure):
    """The boxes of the critical path: left, right and the row they lie on."""
    one = series(figure, "critical path")
    parts = np.split(np.stack([one.x, one.y]).T, np.flatnonzero(np.isnan(one.x)))
    parts = [part[~np.isnan(part[:, 0])] for part in parts]
    boxes = [part for part in parts if len(part) == 5]
    lines = [part for part in parts if len(part) == 2]
    return [
        (box[:, 0].min(), box[:, 0].max(), (box[:, 1].min() + box[:, 1].max()) / 2) for box in boxes
    ], lines


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "interleaved", "dualpipev"])
def test_the_critical_path_is_boxed_from_the_first_moment_to_the_last(name):
    trace = simulate(make(name, 4, 8), COSTS)
    assert not any(one.name == "critical path" for one in viz.timeline(trace).data)
    figure = viz.timeline(trace, critical=True)
    boxes, lines = boxes_of(figure)
    path = trace.spans[metrics.critical_path(trace).span]
    assert boxes[0][0] == 0 and boxes[-1][1] == pytest.approx(metrics.makespan(trace))
    assert sum(right - left for left, right, _ in boxes) == pytest.approx(
        (path.end - path.start).sum()
    )
    assert len(lines) == len(boxes) - 1
    for (_, right, _), (left, _, _), line in zip(boxes, boxes[1:], lines, strict=False):
        assert line[:, 0].tolist() == [right, left]
        assert left - right in (pytest.approx(0), pytest.approx(0.5))
    share = (path.end - path.start).sum() / metrics.makespan(trace)
    subtitle = figure.layout.title.subtitle.text
    assert f"Critical path (bold): {len(path)} spans" in subtitle and f"({share:.0%})" in subtitle
    assert "Were one of these spans longer, the run would be longer." in subtitle


def test_hover_says_whether_a_span_is_on_the_critical_path():
    trace = simulate(make("1f1b", 3, 4), COSTS)
    path = {*metrics.critical_path(trace).span.tolist()}
    figure = viz.timeline(trace, critical=True)
    hovers = [words for one in figure.data if one.type == "bar" and one.name != "idle"
            for words in one.customdata]  # fmt: skip
    assert sum(words.endswith("on the critical path: yes") for words in hovers) == len(path)
    assert sum(words.endswith("on the critical path: no") for words in hovers) == len(
        trace.spans
    ) - len(path)


def test_the_critical_path_of_a_step_is_that_of_its_spans():
    spans = [
        dict(rank=0, kind="forward", start=0.0, end=4.0, step=0),
        dict(rank=1, kind="forward", start=0.0, end=1.0, step=0),
        dict(rank=0, kind="forward", start=4.0, end=5.0, step=1),
        dict(rank=1, kind="forward", start=4.0, end=9.0, step=1),
    ]
    trace = Trace(spans, meta={"clock": "simulated"})
    first, second = viz.timeline(trace).layout.yaxis.tickvals
    paths = {0: [(0, 4, first)], 1: [(4, 9, second)], None: [(0, 1, second), (4, 9, second)]}
    for step, expected in paths.items():
        boxes, _ = boxes_of(viz.timeline(trace, step=step, critical=True))
        assert boxes == [pytest.approx(box) for box in expected]


NUMBERS = re.compile(
    r"Critical path \(bold\): ([\d,]+) spans?, "
    r"together ([\d.,]+ \S+) of ([\d.,]+ \S+) \((\d+)%\)\. "
    r"(?:The rest, ([\d.,]+ \S+), is messages and gaps\. )?"
    r"Were one of these spans longer, the (run|step) would be longer\."
)


def seconds(words):
    number, unit = words.replace(",", "").split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


@pytest.mark.parametrize("name", ["ddp 4", "1f1b"])
def test_what_is_said_of_the_path_of_a_real_run_adds_up_to_the_run(real_run, name):
    trace = real_run(name)
    for clock in ("device", "wall"):
        for step in (None, 0, 1, 2):
            path = critical_of(trace, step, clock)
            count, together, whole, share, rest, what = NUMBERS.fullmatch(path.sentences).groups()
            assert int(count.replace(",", "")) == len({*path.rows.tolist()})
            together, whole, rest = seconds(together), seconds(whole), seconds(rest)
            assert together == pytest.approx((path.end - path.start).sum(), rel=6e-3)
            assert int(share) == pytest.approx(100 * together / whole, abs=1) and int(share) <= 100
            assert together + rest == pytest.approx(whole, rel=1e-2)
            assert what == ("run" if step is None else "step")
            if step is None:
                assert whole == pytest.approx(metrics.makespan(trace, clock), rel=6e-3)


def test_the_outline_of_a_span_that_holds_others_leaves_them_out():
    spans = [
        dict(rank=0, lane="comm", kind="collective", start=0.0, end=9.0),
        dict(rank=0, lane="comm", kind="recv", start=2.0, end=8.0, depth=1, peer=1, flow=0),
        dict(rank=1, kind="forward", start=0.0, end=7.5),
    ]
    message = dict(src=1, dst=0, sent=7.5, arrived=8.0, received=8.0)
    trace = Trace(spans, [message], meta={"clock": "simulated"})
    boxes, lines = boxes_of(viz.timeline(trace, critical=True))
    assert [box[:2] for box in boxes] == [(0, 7.5), (8, 9)] and len(lines) == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_print_form_has_the_same_path_bubbles_and_shades(theme):
    trace = simulate(make("interleaved", 3, 6), COSTS)
    axes = viz.print.timeline(trace, critical=True, theme=theme).axes[0]
    figure = viz.timeline(trace, critical=True, theme=theme)
    boxes, lines = boxes_of(figure)
    halo, path = [one for one in axes.collections if type(one).__name__ == "LineCollection"]
    segments = path.get_segments()
    assert len(segments) == len(boxes) + len(lines) == len(halo.get_segments())
    drawn = [(part[:, 0].min(), part[:, 0].max(), part[:4, 1].mean()) for part in segments]
    assert drawn[: len(boxes)] == [pytest.approx(box) for box in boxes]
    named = {one.get_label(): one for one in axes.collections}
    idle = series(figure, "idle")
    corners = named["idle"].get_paths()[1].vertices
    assert np.ptp(corners[:, 0]) == pytest.approx(
        max(np.asarray(idle.base) + idle.x) - min(idle.base)
    )
    assert {"forward", "forward, chunk 1", "backward", "backward, chunk 1"} <= named.keys()


def test_the_figure_of_16384_operations_is_small():
    trace = simulate(make("1f1b", 16, 512))
    assert len(trace.spans) == 16_384
    figure = viz.timeline(trace, critical=True)
    page = figure.to_html(include_plotlyjs=False)
    assert len(page) < 1.5e6
    assert "15,360 messages are too many for arrows" in figure.layout.title.subtitle.text
    forward = series(figure, "forward")
    row = 300  # what it says on hover is all there, in columns or in the template
    said = forward.hovertemplate.removesuffix("<extra></extra>")
    for number, words in enumerate(forward.customdata[row]):
        said = said.replace(f"%{{customdata[{number}]}}", words)
    spans = trace.spans[trace.spans.kind == "forward"]
    assert said.startswith("<b>forward</b><br>rank 0: 1 s, from ")
    assert f"stage {spans.stage[row]}, microbatch {spans.microbatch[row]}" in said
    assert forward.x[row] == 1


def test_what_plotly_would_read_stays_out_of_the_template_of_many_spans():
    count = 1200
    spans = {
        "rank": np.zeros(count, int),
        "kind": np.full(count, "forward", object),
        "name": np.full(count, "%{x} of <b>", object),
        "start": np.arange(count, dtype=float),
        "end": np.arange(count) + 0.5,
    }
    (bars,) = viz.timeline(Trace(spans, meta={"clock": "simulated"})).data
    assert "%{x}" not in bars.hovertemplate
    assert bars.customdata[7][0] == "<b>forward: %{x} of &lt;b&gt;</b>"


@pytest.mark.parametrize("view", [viz.timeline, viz.print.timeline])
def test_both_halves_of_a_backward_have_the_names_of_the_grids_key(view):
    """In keys, on hover and in what a wait was for."""
    trace = simulate(make("zb_h1", 2, 3))
    if view is viz.print.timeline:
        (box,) = view(trace).legends
        names = [words.get_text() for words in box.get_texts()]
        hovers = ""
    else:
        figure = view(trace)
        names = [one.name for one in figure.data]
        hovers = " ".join(str(one.customdata) for one in figure.data)
        assert "input gradient" in hovers and "weight gradient" in hovers
    assert {"input gradient", "weight gradient"} <= {*names}
    assert "backward_" not in f"{names} {hovers}"
