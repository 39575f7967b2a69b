"""The Timeline without a browser: a Trace in, the state and the draw list out."""

from __future__ import annotations

import json

import node
import numpy as np
import pytest
from viz_scenes import data_parallel

from dlviz import metrics
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.pipeline import chunks_of, critical_of
from dlviz.widgets import Timeline

SCENE = "const scene = m.readScene(v[0]); const clock = scene.clocks[v[1] ?? 0];"
MS = 1e-3


def span(rank=0, kind="forward", start=0.0, end=1.0, **fields):
    return {"rank": rank, "lane": "compute", "kind": kind, "start": start, "end": end, **fields}


def state(trace, **options):
    return json.loads(Timeline(trace, **options).state)


def scene(trace, code, *values, **options):
    """What `code` gives for the front end's scene of a trace; `clock` is the first."""
    return node.run("timeline_scene.js", SCENE + code, state(trace, **options), *values)


def draw(trace, clock=0, hidden=(), **view):
    """The front end's draw list, 1000 pixels wide, of the whole unless `view` says other."""
    made = state(trace)
    first = made["clocks"][clock]
    view = {"from": first["low"], "to": first["high"], "width": 1000, "top": 0, "height": 10_000,
            "arrows": True, "message": -1, "clock": clock, **view}  # fmt: skip
    code = (
        "const scene = readScene(v[0]); const view = { ...v[1], hidden: new Set(v[2]) };"
        "const list = m.drawList(scene, view);"
        "return { ...list, memory: list.memory.map((own) => own.corners), kinds: scene.span.kinds,"
        " rows: scene.rows, pixels: scene.pixels, span: scene.span.row };"
    )
    also = {"readScene": "timeline_scene.js"}
    return node.run("timeline_list.js", code, made, view, list(hidden), also=also)


def bars(list_):
    """Of each span (its row in the Trace) x, y, width and height."""
    found = {}
    for own in list_["bars"]:
        for i in range(0, len(own), 5):
            found[list_["span"][own[i + 4]]] = own[i : i + 4]
    return found


def test_the_front_end_reads_every_span_and_time_that_the_trace_holds():
    trace = data_parallel(4, 3)
    code = "return { row: scene.span.row, start: [...clock.start], end: [...clock.end] };"
    for clock, name in enumerate(("device", "wall")):
        read = scene(trace, code, clock)
        assert sorted(read["row"]) == list(range(len(trace.spans)))
        columns = ("start", "end") if name == "device" else ("wall_start", "wall_end")
        for column, times in zip(columns, (read["start"], read["end"]), strict=True):
            np.testing.assert_allclose(times, trace.spans[column][read["row"]], atol=2e-9)


def test_spans_of_a_slot_follow_each_other_and_lie_on_one_row():
    trace = data_parallel(3, 2)
    slots = scene(
        trace,
        "return scene.slots.map(({ row, first, after }) => ({ row, start: [...clock.start]"
        ".slice(first, after), end: [...clock.end].slice(first, after),"
        " spans: scene.span.row.slice(first, after) }));",
    )
    assert sum(len(slot["spans"]) for slot in slots) == len(trace.spans)
    for slot in slots:
        ranks = trace.spans.rank[slot["spans"]].tolist()
        lanes = trace.spans.lane[slot["spans"]].tolist()
        assert len(set(zip(ranks, lanes, strict=True))) == 1
        starts, ends = np.array(slot["start"]), np.array(slot["end"])
        assert (starts[1:] >= ends[:-1] - 1e-9).all()


def test_bars_lie_where_their_times_and_rows_say():
    trace = Trace(
        [span(0, start=0.0, end=4.0, depth=0, kind="step"), span(0, start=1.0, end=2.0, depth=1),
         span(1, start=2.0, end=4.0, kind="backward")]
    )  # fmt: skip
    list_ = draw(trace)
    found = bars(list_)
    row, pixels = list_["rows"], list_["pixels"]
    assert [found[i][0] for i in range(3)] == pytest.approx([0, 250, 500])
    assert [found[i][2] for i in range(3)] == pytest.approx([1000, 250, 500])
    step, inner, other = (found[i] for i in range(3))
    assert step[1] + step[3] == pytest.approx(inner[1], abs=0.02)  # hangs below the strip
    assert inner[1] + inner[3] == pytest.approx(row[0]["middle"] + 0.42 * pixels, abs=0.02)
    assert other[1] == pytest.approx(row[1]["middle"] - 0.42 * pixels, abs=0.02)
    assert [label["text"] for label in list_["labels"]].count("forward") == 1
    later = bars(draw(trace, **{"from": 1.0, "to": 3.0}))
    assert later[1][0] == pytest.approx(0) and later[1][2] == pytest.approx(500)
    assert later[2][0] == pytest.approx(500) and later[2][2] == pytest.approx(502)  # ends outside


def test_spans_out_of_view_and_hidden_kinds_are_not_drawn():
    trace = data_parallel(4, 5)
    everything = draw(trace)
    begin = float(trace.spans.start[trace.spans.step == 2].min())
    part = draw(trace, **{"from": begin, "to": begin + 2 * MS})
    inside = (trace.spans.end >= begin) & (trace.spans.start <= begin + 2 * MS)
    assert set(bars(part)) <= set(np.flatnonzero(inside).tolist())
    assert {i for i in np.flatnonzero(inside).tolist() if trace.spans.kind[i] == "forward"} <= set(
        bars(part)
    )
    kinds = everything["kinds"]["of"]
    without = draw(trace, hidden=[kinds.index("forward")])
    assert "forward" not in {trace.spans.kind[i] for i in bars(without)}
    above = draw(trace, height=60)
    assert {trace.spans.rank[i] for i in bars(above)} == {0}


def test_many_spans_of_a_pixel_are_drawn_once():
    starts = np.arange(20_000) * 1e-6
    count = len(starts)
    trace = Trace({"rank": np.zeros(count, int), "kind": ["forward"] * count, "start": starts,
                   "end": starts + 9e-7})  # fmt: skip
    found = bars(draw(trace))
    assert 400 < len(found) <= 2000
    edges = sorted((x, x + width) for x, _, width, _ in found.values())
    gaps = [later[0] - earlier[1] for earlier, later in zip(edges, edges[1:], strict=False)]
    assert max(gaps) < 1.5  # no hole where there is work


def test_arrows_go_from_the_senders_row_to_the_receivers():
    trace = data_parallel(3, 1)
    list_ = draw(trace)
    assert len(list_["arrows"]) == len(trace.messages) == list_["messagesInView"]
    low, high = 0.0, float(trace.spans.end.max())
    scale = 1000 / (high - low)
    shown = state(trace)["messages"]
    rows = list_["rows"]
    for arrow in list_["arrows"]:
        row = shown["row"][arrow["message"]]
        message = trace.messages
        assert arrow["x1"] == pytest.approx(message.sent[row] * scale, abs=0.01)
        assert arrow["x2"] == pytest.approx(message.received[row] * scale, abs=0.01)
        tail = next(r for r in rows if r["label"] == f"rank {message.src[row]} · comm")
        head = next(r for r in rows if r["label"] == f"rank {message.dst[row]} · comm")
        lean = np.sign(head["middle"] - tail["middle"]) * 0.42 * list_["pixels"]
        assert arrow["y1"] == pytest.approx(tail["middle"] + lean)
        assert arrow["y2"] == pytest.approx(head["middle"] - lean)
        assert not arrow["never"]


def test_a_message_never_received_is_crossed_out_where_it_was_sent():
    trace = Trace(
        [span(0), span(1)],
        [{"src": 0, "dst": 1, "sent": 0.5}],
        meta={"clock": "simulated", "ranks": 2, "outcome": "failed"},
    )
    (arrow,) = draw(trace)["arrows"]
    assert arrow["never"] and arrow["x1"] == arrow["x2"] == pytest.approx(500)
    assert any("failed" in line for line in state(trace)["lines"])


def test_more_messages_than_can_be_told_apart_wait_for_a_closer_look():
    trace = data_parallel(4, 20)
    far = draw(trace)
    assert far["arrows"] == [] and far["messagesInView"] == len(trace.messages) > 400
    near = draw(trace, **{"from": 0.0, "to": 12 * MS})
    assert len(near["arrows"]) == near["messagesInView"] <= 400
    chosen = draw(trace, message=7)
    assert [arrow["message"] for arrow in chosen["arrows"]] == [7]


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_h1"])
def test_the_critical_path_is_boxed_where_its_spans_lie(name):
    trace = simulate(make(name, 3, 6), Costs(latency=0.25))
    path = trace.spans[metrics.critical_path(trace)]
    length = metrics.makespan(trace)
    assert draw(trace)["path"] == []
    list_ = draw(trace, critical=True)
    boxes, rows = list_["path"], list_["rows"]
    assert boxes[0]["x"] == pytest.approx(0, abs=1e-3)
    right = boxes[-1]["x"] + boxes[-1]["width"]
    assert right == pytest.approx(1000, abs=1e-3) and boxes[-1].get("line") is None
    took = (path.end - path.start).sum()
    assert sum(box["width"] for box in boxes) == pytest.approx(took / length * 1000)
    for box, after in zip(boxes, boxes[1:], strict=False):
        line = box["line"]
        assert [line["x1"], line["x2"]] == pytest.approx([box["x"] + box["width"], after["x"]])
        assert box["y"] != after["y"] or after["x"] > line["x1"]
    at = [min(rows, key=lambda row: abs(row["middle"] - box["y"] - box["height"] / 2))["rank"]
          for box in boxes]  # fmt: skip
    turns = np.flatnonzero(np.diff(path.rank)) + 1
    assert at == path.rank[[0, *turns.tolist()]].tolist()
    order = state(trace)["clocks"][0]["critical"]
    assert scene(trace, "return clock.critical.map(i => scene.span.row[i]);") == (
        metrics.critical_path(trace).tolist()
    )
    assert len(order) == len(path)


def test_a_path_beyond_the_view_is_cut_to_it():
    trace = simulate(make("gpipe", 1, 50))
    list_ = draw(trace, critical=True, **{"from": 60.0, "to": 61.0})
    (box,) = list_["path"]
    assert box["x"] >= -10 and box["x"] + box["width"] <= 1010
    assert draw(trace, critical=True, **{"from": 200.0, "to": 201.0})["path"] == []


def test_the_path_of_a_step_and_of_the_spans_that_are_shown_is_their_own():
    trace = data_parallel(3, 2)
    for step in (0, 1):
        made = state(trace, step=step)
        rows = scene(trace, "return clock.critical.map(i => scene.span.row[i]);", step=step)
        assert rows == critical_of(trace, step, "device").rows.tolist()
        assert made["clocks"][0]["told"].startswith("Critical path (bold): ")
    trace = simulate(make("1f1b", 2, 4))
    cut = scene(trace, "return clock.critical.map(i => scene.span.row[i]);", max_spans=5)
    assert 0 < len(cut) <= 5 and {*cut} < {*metrics.critical_path(trace).tolist()}


def test_a_failed_run_whose_spans_have_no_wall_time_is_shown():
    spans = [
        span(0, wall_start=0.0, wall_end=1.0),
        span(1, start=1.0, end=2.0, wall_start=np.nan, wall_end=np.nan),
    ]
    trace = Trace(spans, meta={"clock": "paced", "outcome": "failed"})
    assert [clock["critical"] for clock in state(trace)["clocks"]] == [[1]]
    assert state(trace, clock="wall")["clocks"][0]["critical"] == [0]


def test_chunks_are_columns_only_where_ranks_have_several():
    plain = state(simulate(make("1f1b", 2, 4)))
    assert plain["chunks"] == 1 and plain["spans"]["chunk"] == 0 and plain["shades"] == {}
    trace = simulate(make("interleaved", 2, 4, 3))
    made = state(trace)
    assert made["chunks"] == 3 and {*made["spans"]["chunk"]} == {0, 1, 2}
    assert [one["color"] for one in made["shades"]["forward"]] == [
        palette.shade(palette.KINDS["forward"], chunk, 3).color for chunk in range(3)
    ]
    code = "return scene.span.row.map((row, i) => [row, scene.span.chunk[i]]);"
    chunk, _ = chunks_of(trace)
    assert all(chunk[row] == own for row, own in scene(trace, code))


def test_the_memory_of_a_simulated_schedule_counts_microbatches():
    made = state(simulate(make("1f1b", 2, 4)))["memory"]
    assert [own["counts"] for own in made] == [True, True]
    assert [max(own["held"]) for own in made] == [2, 1]


def test_idle_time_is_hatched_and_names_the_message_that_ended_it():
    spans = [
        span(0, "forward", 0.0, 2.0), span(0, "backward", 6.0, 8.0),
        span(1, "forward", 2.0, 5.0, microbatch=3), span(1, "backward", 5.0, 5.5),
    ]  # fmt: skip
    messages = [{"src": 1, "dst": 0, "sent": 5.0, "received": 6.0}]
    trace = Trace(spans, messages, meta={"clock": "simulated", "ranks": 2})
    list_ = draw(trace)
    boxes = [(box["x"] * 8e-3, box["width"] * 8e-3) for box in list_["idle"]]
    assert boxes[0] == pytest.approx((2, 4))
    assert boxes[1:] == [pytest.approx((0, 2)), pytest.approx((5.5, 2.5), abs=0.02)]
    idle = state(trace)["clocks"][0]["idle"]
    told = [idle["why"]["of"][at] for at in idle["why"]["at"]]
    assert told == [
        "until a message came from rank 1, which was in forward 3",
        "between two operations",
        "nothing left to do",
    ]
    assert scene(trace, "return scene.span.row[clock.idle.at[0]];") == 2


def test_behind_its_last_span_a_rank_has_nothing_left_to_do():
    spans = [span(0, "forward", 0.0, 1.0), span(1, "forward", 0.0, 2.0)]
    messages = [{"src": 1, "dst": 0, "sent": 1.5, "received": 2.0}]
    idle = state(Trace(spans, messages))["clocks"][0]["idle"]
    assert idle["why"]["of"] == ["nothing left to do"] and idle["at"] == -1


def test_an_arrow_leads_to_the_first_span_that_carries_its_message_on_either_side():
    spans = [
        span(0, "send", 0.0, 1.0, flow=0, peer=1), span(0, "wait", 1.0, 2.0, flow=0, peer=1),
        span(1, "recv", 0.0, 1.0, flow=0, peer=0), span(1, "wait", 1.0, 2.0, flow=0, peer=0),
    ]  # fmt: skip
    trace = Trace(spans, [{"src": 0, "dst": 1, "sent": 0.5, "received": 1.5}])
    code = "return ['sender', 'receiver'].map((end) => scene.span.row[scene.message[end][0]]);"
    assert scene(trace, code) == [0, 2]


def test_a_memory_strip_rises_and_falls_with_what_the_rank_holds():
    memory = [
        {"rank": 0, "time": 0.0, "what": "weights", "nbytes": 100},
        {"rank": 0, "time": 0.5, "what": "activations", "nbytes": 300},
        {"rank": 0, "time": 0.75, "what": "activations", "nbytes": 0},
    ]
    trace = Trace([span(0), span(1)], memory=memory)
    made = state(trace)["memory"]
    held = {"time": [0.0, 0.5, 0.75], "held": [100, 400, 100], "counts": False}
    assert made == [{"rank": 0, **held}]
    (corners,) = draw(trace)["memory"]
    assert [x for x, _ in corners] == pytest.approx([0, 500, 500, 750, 750, 1000])
    heights = [corners[0][1] - y for _, y in corners]
    assert heights[0] == heights[1] == heights[4] == 0 and heights[2] == heights[3] > 5


def test_of_many_changes_in_a_pixel_a_memory_strip_shows_the_most_and_then_the_last():
    held = [100 * (i % 3) + 700 * (i == 5000) for i in range(9000)]
    rows = [
        {"rank": 0, "time": i * 1e-4, "what": "all", "nbytes": own} for i, own in enumerate(held)
    ]
    (corners,) = draw(Trace([span(0)], memory=rows))["memory"]
    x, y = np.array(corners).T
    assert len(corners) < 5000 and (np.diff(x) >= 0).all()
    assert x[y.argmin()] == pytest.approx(500, abs=1) and (y == y.min()).sum() == 1
    low = y.max() - y.min()  # 900 bytes
    assert y.max() - y[-2:] == pytest.approx(low * held[-1] / max(held))


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_the_statistics_of_the_whole_are_those_of_the_metrics(clock):
    trace = data_parallel(4, 3)
    made = state(trace, clock=clock)
    also = {"readScene": "timeline_scene.js"}
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "return m.statistics(scene, clock, { from: clock.low, to: clock.high, step: null });"
    )
    found = node.run("timeline_stats.js", code, made, also=also)
    expected = metrics.breakdown(trace, clock)
    for name, seconds in expected.items():
        np.testing.assert_allclose([own[name] for own in found["ranks"]], seconds, atol=1e-7)
    start, end = ("start", "end") if clock == "device" else ("wall_start", "wall_end")
    lengths = trace.spans[end] - trace.spans[start]
    for own in found["kinds"]:
        of = lengths[trace.spans.kind == own["kind"]]
        assert own["count"] == len(of)
        numbers = [own[name] for name in ("total", "min", "mean", "max")]
        np.testing.assert_allclose(numbers, [of.sum(), of.min(), of.mean(), of.max()], atol=1e-6)


def test_the_statistics_of_a_step_name_each_ranks_longest_wait():
    spans = [
        span(0, "forward", 0.0, 1.0, step=0), span(0, "wait", 1.0, 2.0, step=0, peer=1),
        span(0, "wait", 3.0, 6.0, step=1, peer=1), span(1, "backward", 3.0, 6.0, step=1),
        span(1, "wait", 6.0, 7.0, step=1, peer=0),
    ]  # fmt: skip
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "const { ranks, kinds } = m.statistics(scene, clock, { from: 3, to: 7, step: 1 });"
        "return [ranks.map((own) => [own.waited, scene.span.row[own.longest]]), kinds,"
        " waited(scene, clock, ranks[0].longest)];"
    )
    also = {"readScene": "timeline_scene.js", "waited": "timeline_words.js"}
    ranks, kinds, words = node.run("timeline_stats.js", code, state(Trace(spans)), also=also)
    assert ranks == [[3, 2], [1, 4]]
    assert {own["kind"]: own["count"] for own in kinds} == {"wait": 2, "backward": 1}
    assert words == "waited 3 s for rank 1, which was in backward"


def test_a_wait_for_one_that_waits_is_followed_to_the_one_that_works():
    spans = [
        span(0, "wait", 0.0, 4.0, peer=1), span(1, "wait", 0.0, 4.0, peer=2),
        span(2, "backward", 0.0, 4.0, name="layer 3"),
        span(3, "wait", 0.0, 4.0, peer=4), span(4, "wait", 0.0, 4.0, peer=3),
    ]  # fmt: skip
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "return [0, 3].map((row) => m.waited(scene, clock, scene.rowOf.get(row)));"
    )
    also = {"readScene": "timeline_scene.js"}
    chain, ring = node.run("timeline_words.js", code, state(Trace(spans)), also=also)
    assert chain == (
        "waited 4 s for rank 1, which was itself waiting for rank 2, which was in backward layer 3"
    )
    assert ring == (
        "waited 4 s for rank 4, which was itself waiting for rank 3, "
        "which was itself waiting for rank 4"
    )


def test_before_and_after_walk_every_span_of_a_row_in_order():
    trace = data_parallel(2, 2)
    code = (
        "const found = []; let i = m.at(scene, clock, 0, clock.low);"
        "for (let b = i; b >= 0; b = m.beside(scene, clock, b, false)) i = b;"
        "for (; i >= 0; i = m.beside(scene, clock, i, true)) found.push(scene.span.row[i]);"
        "return found;"
    )
    walked = scene(trace, code)
    own = (trace.spans.rank == 0) & (trace.spans.lane == "compute")
    rows = np.flatnonzero(own)
    order = rows[np.lexsort((-trace.spans.end[rows], trace.spans.start[rows]))]
    assert trace.spans.start[walked].tolist() == trace.spans.start[order].tolist()
    assert sorted(walked) == rows.tolist()


def test_a_paced_trace_shows_both_clocks_and_others_the_one_they_bear():
    paced = data_parallel(2, 1)
    assert [clock["name"] for clock in state(paced)["clocks"]] == ["device", "wall"]
    assert [clock["name"] for clock in state(paced, clock="wall")["clocks"]] == ["wall", "device"]
    simulated = Trace([span()])
    assert [clock["name"] for clock in state(simulated)["clocks"]] == ["device"]
    wall = Trace([span(wall_start=0.0, wall_end=1.0)])
    assert [clock["name"] for clock in state(wall)["clocks"]] == ["wall"]


def test_a_step_shows_its_spans_and_the_messages_they_carry():
    trace = data_parallel(3, 3)
    made = state(trace, step=1)
    assert made["count"] == int((trace.spans.step == 1).sum())
    assert sorted(made["messages"]["row"]) == np.flatnonzero(trace.messages.step == 1).tolist()


def test_of_too_many_spans_the_longest_are_shown_and_it_is_said():
    trace = data_parallel(2, 2)
    made = state(trace, max_spans=10)
    assert made["count"] == 10
    assert made["lines"][-1] == f"The longest 10 of {len(trace.spans)} spans are drawn."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"clock": "wall"}, "clock='wall' cannot be drawn"),
        ({"clock": "moon"}, "clock='moon' is not a clock"),
        ({"step": 9}, "step=9 has no span in this Trace"),
        ({"theme": "pink"}, "theme='pink' is no theme of a widget"),
    ],
)
def test_a_wrong_argument_is_one_sentence(options, told):
    with pytest.raises(ValueError, match=told):
        Timeline(Trace([span()]), **options)


def test_traces_with_nothing_or_one_span_are_drawn():
    empty = draw(Trace(meta={"clock": "wall", "ranks": 0}))
    assert empty["bars"] == [] and empty["arrows"] == []
    assert draw(Trace(meta={"clock": "wall", "ranks": 3}))["rows"][2]["label"] == "rank 2"
    (one,) = bars(draw(Trace([span(start=2.0, end=2.0)]))).values()
    assert one[2] == 1
