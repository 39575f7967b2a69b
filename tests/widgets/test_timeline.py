"""The Timeline without a browser: a Trace in, the state and the draw list out."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import node
import numpy as np
import pytest
from viz_scenes import KILLED, data_parallel, deadlock, lossy, on_hosts

from dlviz import metrics, viz
from dlviz.analysis.shares import shares
from dlviz.analysis.stages import chunks_of
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.gantt.pipeline import critical_of
from dlviz.viz.words import text
from dlviz.widgets import Timeline

SCENE = "const scene = m.readScene(v[0]); const clock = scene.clocks[v[1] ?? 0];"
MS = 1e-3


def span(rank=0, kind="forward", start=0.0, end=1.0, **fields):
    return {"rank": rank, "lane": "compute", "kind": kind, "start": start, "end": end, **fields}


def state(trace, **options):
    return json.loads(Timeline(trace, **options).state)


def scene(trace, code, *values, **options):
    """What `code` gives for the front end's scene of a trace; `clock` is the first."""
    also = {"at": "shared/gantt/rows.js", "beside": "shared/gantt/rows.js"}
    return node.run("timeline/state.js", SCENE + code, state(trace, **options), *values, also=also)


def draw(trace, clock=0, hidden=(), matches=None, width=1000, options=None, **view):
    """The front end's draw list of the whole, unless `view` says other."""
    made = state(trace, **(options or {}))
    first = made["clocks"][clock]
    view = {"from": first["low"], "to": first["high"], "width": width, "top": 0, "height": 10_000,
            "arrows": True, "message": -1, "span": -1, "hover": -1, "clock": clock,
            "matches": matches, **view}  # fmt: skip
    code = (
        "const scene = readScene(v[0]); const view = { ...v[1], hidden: new Set(v[2]) };"
        "const list = m.drawList(scene, scene.clocks[view.clock], view);"
        "return { ...list, memory: list.memory.map((own) => own.corners), kinds: scene.span.kinds,"
        " rows: scene.rows, slots: scene.slots, span: scene.span.row };"
    )
    also = {"readScene": "timeline/state.js"}
    return node.run("shared/gantt/geometry.js", code, made, view, list(hidden), also=also)


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
        [span(0, start=0.0, end=4.0, depth=0, kind="phase"), span(0, start=1.0, end=2.0, depth=1),
         span(1, start=2.0, end=4.0, kind="backward")]
    )  # fmt: skip
    list_ = draw(trace)
    found, (one, other) = bars(list_), list_["rows"]
    assert found == {0: [0, 0, 1000, 13], 1: [250, 13, 250, 24], 2: [500, 43, 500, 24]}
    assert (one["top"], one["bottom"]) == (0, 37) and (other["top"], other["bottom"]) == (43, 67)
    assert [label["text"] for label in list_["labels"]] == ["phase", "forward", "backward"]
    later = bars(draw(trace, **{"from": 1.0, "to": 3.0}))
    assert later[1][0] == 0 and later[1][2] == 500
    assert later[2][0] == 500 and later[2][2] == 502  # ends outside


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
    above = draw(trace, height=40)
    assert {trace.spans.rank[i] for i in bars(above)} == {0}


def shares_of(start, end, kind, low, high, width):
    """Of each kind the share of every whole pixel, (kinds, width); of no length a hair."""
    scale = width / (high - low)
    found = np.zeros((int(kind.max()) + 1, width))
    for i in range(len(start)):
        left, right = (start[i] - low) * scale, (end[i] - low) * scale
        for pixel in range(int(left), min(int(np.ceil(right)), width - 1) + 1):
            if pixel < width:
                inside = min(right, pixel + 1) - max(left, pixel)
                found[kind[i], pixel] += max(inside, 1e-7 if right == left else 0.0)
    return found


def as_columns(segments, width):
    """The kind that each pixel shows, -1 for none, from (left, right, kind)."""
    shown = np.full(width, -1)
    for left, right, kind in segments:
        shown[max(left, 0) : right] = kind
    return shown


def agree(shown, shares, narrow):
    """Whether each pixel shows the kind that has most of it: clearly so, and none for nothing."""
    most, second = np.sort(shares, axis=0)[[-1, -2]] if len(shares) > 1 else (shares[0], 0)
    clear = most - second > 1e-4
    covered = shares.sum(axis=0)
    there = shown >= 0
    assert (shown[there & clear] == shares.argmax(axis=0)[there & clear]).all()
    assert there[covered > 0.501].all() and not there[covered == 0].any()
    assert there[narrow].all()  # none that is narrow vanishes
    return clear.sum()


def busy_trace(seed, gap):
    """Two rows of 4,000 spans of three kinds and wild lengths, with spans of no length between."""
    random = np.random.default_rng(seed)
    spans = []
    for rank in range(2):
        at = 0.0
        for i in range(4000):
            long = random.exponential(1e-3) * (40 if random.random() < 0.004 else 1)
            kind = ["forward", "backward", "send"][random.integers(3)]
            end = at if kind == "send" and i % 3 else at + long
            spans.append(span(rank, kind, at, end))
            at = end + (random.exponential(gap) if random.random() < 0.3 else 0.0)
    return Trace(spans, meta={"clock": "simulated", "ranks": 2})


@pytest.mark.parametrize(("seed", "gap"), [(0, 1e-3), (1, 20e-3)])
def test_minimap_and_picture_show_in_each_pixel_the_kind_with_most_time(seed, gap):
    trace, width = busy_trace(seed, gap), 700
    kinds = state(trace)["spans"]["kind"]["of"]
    code = np.array([kinds.index(kind) for kind in trace.spans.kind])
    list_ = draw(trace, width=width, arrows=False)
    whole = node.run(
        "shared/gantt/columns.js",
        "const scene = readScene(v[0]); return m.overview(scene, scene.clocks[0], v[1]);",
        state(trace), width, also={"readScene": "timeline/state.js"},
    )  # fmt: skip
    low, high = trace.spans.start.min(), trace.spans.end.max()
    for rank in range(2):
        mine = trace.spans.rank == rank
        start, end = trace.spans.start[mine], trace.spans.end[mine]
        shares = shares_of(start, end, code[mine], low, high, width)
        scale = width / (high - low)
        small = (end - start) * scale < 2
        at = ((start[small] + end[small]) / 2 - low) * scale
        narrow = np.unique(np.minimum(at, width - 1).astype(int))
        y = list_["rows"][rank]["top"]
        drawn = [
            (own[i], own[i] + own[i + 2], kind)
            for kind, own in enumerate(list_["bars"])
            for i in range(0, len(own), 5)
            if own[i + 1] == y
        ]
        assert all(left == int(left) and right == int(right) for left, right, _ in drawn)
        assert agree(as_columns(drawn, width), shares, narrow) > 500
        mini = np.reshape(whole[rank], (-1, 3)).astype(int)
        np.testing.assert_array_equal(as_columns(mini, width), as_columns(drawn, width))


def test_the_minimap_shows_a_long_span_behind_one_of_no_length():
    trace = Trace([span(kind="send", start=0.1, end=0.1), span(start=0.1, end=3.0),
                   span(kind="send", start=3.0, end=3.0), span(kind="recv", rank=1, end=4.0)],
                  meta={"clock": "simulated", "ranks": 2})  # fmt: skip
    code = "const scene = readScene(v[0]); return m.overview(scene, scene.clocks[0], 400);"
    also = {"readScene": "timeline/state.js"}
    one, other = node.run("shared/gantt/columns.js", code, state(trace), also=also)
    kinds = state(trace)["spans"]["kind"]["of"]
    assert one == [10, 300, kinds.index("forward"), 300, 301, kinds.index("send")]
    assert other == [0, 400, kinds.index("recv")]  # all of a deadlock's picture, and no blank


def test_the_minimap_counts_what_a_program_did_and_not_what_ran_inside_it():
    trace = data_parallel(2, 1)
    code = "const scene = readScene(v[0]); return m.overview(scene, scene.clocks[0], 500);"
    also = {"readScene": "timeline/state.js"}
    rows = node.run("shared/gantt/columns.js", code, state(trace), also=also)
    kinds = state(trace)["spans"]["kind"]["of"]
    reported = [{kinds[kind] for kind in np.reshape(row, (-1, 3))[:, 2]} for row in rows]
    assert reported[0] == {"data", "forward", "backward", "wait", "update"}
    assert reported[1] == {"collective"}


def test_the_minimap_shows_what_a_span_waits_as_waiting_as_the_picture_does():
    spans = [
        {"rank": 0, "kind": "recv", "start": 0.0, "end": 4.0, "peer": 1, "flow": 0},
        {"rank": 1, "kind": "forward", "start": 0.0, "end": 3.0},
        {"rank": 1, "kind": "send", "start": 3.0, "end": 4.0, "peer": 0, "flow": 0},
    ]
    message = {"src": 1, "dst": 0, "sent": 3.0, "received": 4.0}
    trace = Trace(spans, [message], meta={"clock": "simulated", "ranks": 2})
    code = (
        "const scene = readScene(v[0]); return [m.overview(scene, scene.clocks[0], 400), m.WAITED];"
    )
    also = {"readScene": "timeline/state.js"}
    (one, other), waited = node.run("shared/gantt/columns.js", code, state(trace), also=also)
    kinds = state(trace)["spans"]["kind"]["of"]
    assert one == [0, 300, waited, 300, 400, kinds.index("recv")]
    assert other == [0, 300, kinds.index("forward"), 300, 400, kinds.index("send")]
    assert draw(trace, width=400)["waited"][:3:2] == [0, 300]  # left and width


LOCKED = [
    span(0, "lock", 0.0, 3.0, name="hold"),
    span(0, "update", 0.0, 3.0),
    span(1, "lock", 1.0, 3.0, name="wait", peer=0),
    span(1, "lock", 3.0, 4.0, name="hold"),
]


def test_a_wait_for_a_lock_looks_as_waiting_counts_as_one_and_names_the_holder():
    trace = Trace(LOCKED, meta={"clock": "simulated", "ranks": 2})
    list_ = draw(trace, width=400)
    (x, _, width, _, place) = list_["waited"]
    assert (x, width) == (100, 200) and trace.spans.name[list_["span"][place]] == "wait"
    code = (
        "const i = scene.span.name.indexOf('wait');"
        "return [scene.span.label[i], waited(scene, clock, i)];"
    )
    also = {"waited": "timeline/words.js"}
    forms, reported = node.run("timeline/state.js", SCENE + code, state(trace), also=also)
    assert forms == ["wait"]
    assert reported == "waited 2 s for rank 0; rank 0 was in update"
    whole = {"from": 0.0, "to": 4.0, "step": None}
    code = "return m.statistics(scene, clock, v[2]).ranks.map((own) => [own.waited, own.longest]);"
    code = SCENE.replace("m.readScene", "readScene") + code
    also = {"readScene": "timeline/state.js"}
    found = node.run("timeline/statistics.js", code, state(trace), 0, whole, also=also)
    assert [waited for waited, _ in found] == [0, 2] and found[1][1] == place
    cut = shares(trace, np.arange(4), "device", [0, 1], 4.0)
    assert cut.seconds["waited"].tolist() == [[0, 2]]


def test_of_many_in_line_for_a_lock_each_waits_for_the_one_before_it():
    line = [
        part
        for rank in range(1, 4)  # all asked when rank 0 had it
        for part in (
            span(rank, "lock", 1.0, rank + 2.0, name="wait", peer=0),
            span(rank, "lock", rank + 2.0, rank + 3.0, name="hold"),
        )
    ]
    trace = Trace([*LOCKED[:2], *line], meta={"clock": "simulated", "ranks": 4})
    code = "return v[2].map((row) => waited(scene, clock, scene.rowOf.get(row)));"
    rows = [row for row, name in enumerate(trace.spans.name) if name == "wait"]
    also = {"waited": "timeline/words.js"}
    reported = node.run("timeline/state.js", SCENE + code, state(trace), 0, rows, also=also)
    assert [words.partition(" for ")[2] for words in reported] == [
        "rank 0; rank 0 was in update",
        "rank 1 ← rank 0; rank 0 was in update",
        "rank 2 ← rank 1 ← rank 0; rank 0 was in update",
    ]
    last = viz.waited_for(trace)[rows[2]]
    assert last.startswith("waited 4 s for rank 2; rank 2 was mostly itself waiting, for 3 of 4 s")


def test_of_a_steady_state_of_backwards_no_stripe_remains():
    trace = simulate(make("1f1b", 4, 1000))  # B takes twice as long as F; a pixel holds several
    list_ = draw(trace, arrows=False)
    kinds = list_["kinds"]["of"]
    (row,) = [i for i, own in enumerate(list_["rows"]) if own["rank"] == 2]
    y = list_["rows"][row]["top"]
    forward = list_["bars"][kinds.index("forward")]
    columns = [forward[i] for i in range(0, len(forward), 5) if forward[i + 1] == y]
    assert len(columns) < 20 and max(columns) < 20  # of its 1000 forwards: as it begins


def test_what_a_search_found_is_drawn_over_all_however_many_share_its_pixels():
    trace = simulate(make("1f1b", 4, 1000))
    wanted = (trace.spans.microbatch == 500) & (trace.spans.kind == "forward")
    places = state(trace)["spans"]["row"]
    matches = [int(wanted[row]) for row in places]
    list_ = draw(trace, matches=matches, arrows=False)
    found = [own[i : i + 5] for own in list_["found"] for i in range(0, len(own), 5)]
    assert len(found) == wanted.sum() == 4
    scale = 1000 / trace.spans.end.max()
    for x, _, width, _, place in found:
        row = places[place]
        assert wanted[row] and width <= 2 and x == int(trace.spans.start[row] * scale)


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
        down = head["middle"] > tail["middle"]
        assert arrow["y1"] == tail["bottom" if down else "top"]
        assert arrow["y2"] == head["top" if down else "bottom"]
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


def test_more_messages_than_can_be_distinguished_wait_for_a_closer_look():
    trace = data_parallel(4, 20)
    far = draw(trace)
    assert far["arrows"] == [] and far["messagesInView"] == len(trace.messages) > 400
    near = draw(trace, **{"from": 0.0, "to": 12 * MS})
    assert len(near["arrows"]) == near["messagesInView"] <= 400
    chosen = draw(trace, message=7)
    assert [arrow["message"] for arrow in chosen["arrows"]] == [7]


def test_messages_show_where_they_are_asked_for_and_the_selections_anyway():
    spans = [span(rank, start=0.0, end=9.0, name="label") for rank in range(3)]
    spans.append(span(0, "send", start=9.0, end=9.0, flow=1, peer=2))
    trace = Trace(spans, {"src": [0, 0], "dst": [1, 2], "sent": [4.5, 4.5], "received": [4.5, 4.5]})

    def arrows(**view):
        list_ = draw(trace, **view)
        return [arrow["message"] for arrow in list_["arrows"]], list_["messagesLeftOut"]

    assert arrows(arrows=True) == ([0, 1], 0)
    assert arrows(arrows=False) == ([], 2)
    assert arrows(arrows=False, message=1) == ([1], 2)
    place = state(trace)["spans"]["row"].index(3)
    assert arrows(arrows=False, hover=place) == ([1], 2)


def arrange(trace, order, hidden=(), pinned=()):
    """Where a timeline's rows are, arranged: top, bottom, and those of their slots."""
    code = (
        "const chosen = { order: v[1], hidden: new Set(v[2]), pinned: new Set(v[3]) };"
        "const own = arranged(scene, chosen);"
        "return { shown: own.shown, height: own.height, pinned: own.pinned,"
        " rows: own.rows.map((row) => [row.top, row.bottom, row.hidden]),"
        " slots: own.slots.map((slot) => [slot.row, slot.top, slot.bottom]) };"
    )
    also = {"arranged": "shared/gantt/rows.js"}
    code = SCENE + code
    return node.run("timeline/state.js", code, state(trace), order, hidden, pinned, also=also)


@pytest.mark.parametrize("many", [2, 4])
def test_rows_in_their_own_order_stay_where_they_are(many):
    trace = data_parallel(many, 2)
    made = scene(trace, "return { rows: scene.rows, height: scene.height };")
    own = arrange(trace, [*range(len(made["rows"]))])
    assert [row[:2] for row in own["rows"]] == [[one["top"], one["bottom"]] for one in made["rows"]]
    assert own["height"] == made["height"] and own["pinned"] == 0


def test_rows_are_shown_in_the_order_that_was_asked_for_without_the_hidden_pinned_ones_first():
    trace = data_parallel(4, 2)  # two lanes of each of four ranks
    many = len(scene(trace, "return scene.rows;"))
    order = [5, 0, 1, 4, 3, 2, 7, 6]
    own = arrange(trace, order, hidden=[0, 7], pinned=[4])
    assert own["shown"] == [4, 5, 1, 3, 2, 6] and many == 8
    shown = [own["rows"][row] for row in own["shown"]]
    for (_, before, _), (after, _, _) in zip(shown, shown[1:], strict=False):
        assert before < after
    assert [row for row, (*_, hidden) in enumerate(own["rows"]) if hidden] == [0, 7]
    assert own["pinned"] == shown[0][1] and own["height"] == shown[-1][1]
    for row, top, bottom in own["slots"]:
        if top >= 0 and row in own["shown"]:
            assert own["rows"][row][0] <= top < bottom <= own["rows"][row][1]


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_h1"])
def test_the_critical_path_is_boxed_where_its_spans_lie(name):
    trace = simulate(make(name, 3, 6), Costs(latency=0.25))
    path = trace.spans[metrics.critical_path(trace).span]
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
        metrics.critical_path(trace).span.tolist()
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
        assert made["clocks"][0]["summary"].startswith("Critical path (bold): ")
    trace = simulate(make("1f1b", 2, 4))
    cut = scene(trace, "return clock.critical.map(i => scene.span.row[i]);", max_spans=5)
    assert 0 < len(cut) <= 5 and {*cut} < {*metrics.critical_path(trace).span.tolist()}


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
    assert [own["uses"] for own in made] == [{}, {}]  # there is one


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
    reported = [idle["why"]["of"][at] for at in idle["why"]["at"]]
    assert reported == [
        "until a message came from rank 1; rank 1 was mostly in forward 3, for 3 of 4 s, then "
        "its message was in transit",
        "between two operations",
        "nothing left to do",
    ]
    assert scene(trace, "return scene.span.row[clock.idle.at[0]];") == 2


def test_behind_its_last_span_a_rank_has_nothing_left_to_do():
    spans = [span(0, "forward", 0.0, 1.0), span(1, "forward", 0.0, 2.0)]
    messages = [{"src": 1, "dst": 0, "sent": 1.5, "received": 2.0}]
    idle = state(Trace(spans, messages))["clocks"][0]["idle"]
    assert idle["why"]["of"] == ["nothing left to do"] and idle["at"] == -1


def test_behind_its_last_span_a_rank_that_the_run_lost_is_lost():
    spans = [span(0, "forward", 0.0, 3.0), span(1, "forward", 0.0, 1.0), span(2, "forward")]
    meta = {"clock": "wall", "ranks": 3, "lost": {"1": KILLED}}
    idle = state(Trace(spans, meta=meta))["clocks"][0]["idle"]
    reported = [idle["why"]["of"][at] for at in idle["why"]["at"]]
    assert reported == ["rank 1 was killed by signal 9; the run lost it", "nothing left to do"]


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
    uses = {"weights": [100, 100, 100], "activations": [0, 300, 0]}
    held = {"time": [0.0, 0.5, 0.75], "held": [100, 400, 100], "counts": False, "uses": uses}
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
    also = {"readScene": "timeline/state.js"}
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "return m.statistics(scene, clock, { from: clock.low, to: clock.high, step: null });"
    )
    found = node.run("timeline/statistics.js", code, made, also=also)
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
    also = {"readScene": "timeline/state.js", "waited": "timeline/words.js"}
    ranks, kinds, words = node.run("timeline/statistics.js", code, state(Trace(spans)), also=also)
    assert ranks == [[3, 2], [1, 4]]
    assert {own["kind"]: own["count"] for own in kinds} == {"wait": 2, "backward": 1}
    assert words == "waited 3 s for rank 1; rank 1 was in backward"


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
    also = {"readScene": "timeline/state.js"}
    chain, ring = node.run("timeline/words.js", code, state(Trace(spans)), also=also)
    assert chain == "waited 4 s for rank 1 ← rank 2; rank 2 was in backward layer 3"
    assert ring == "waited 4 s for rank 4 ← rank 3 ← …: they wait for each other"


def test_a_long_chain_of_waits_is_cut_before_its_end_and_ends_with_the_cause():
    spans = [span(rank, "wait", 0.0, 4.0, peer=rank + 1) for rank in range(9)]
    spans.append(span(9, "backward", 0.0, 4.0))
    code = (
        "const scene = readScene(v[0]);"
        "return [0, 5].map((row) => m.waited(scene, scene.clocks[0], scene.rowOf.get(row)));"
    )
    also = {"readScene": "timeline/state.js"}
    long, short = node.run("timeline/words.js", code, state(Trace(spans)), also=also)
    ranks = [f"rank {rank}" for rank in range(1, 10)]
    assert long == f"waited 4 s for {' ← '.join(ranks[:5])} ← … ← rank 9; rank 9 was in backward"
    assert short == f"waited 4 s for {' ← '.join(ranks[5:])}; rank 9 was in backward"


def test_before_and_after_walk_every_span_of_a_row_in_order():
    trace = data_parallel(2, 2)
    code = (
        "const found = []; let i = at(scene, clock, 0, clock.low);"
        "for (let b = i; b >= 0; b = beside(scene, clock, b, false)) i = b;"
        "for (; i >= 0; i = beside(scene, clock, i, true)) found.push(scene.span.row[i]);"
        "return found;"
    )
    walked = scene(trace, code)
    own = (trace.spans.rank == 0) & (trace.spans.lane == "compute")
    rows = np.flatnonzero(own)
    order = rows[np.lexsort((-trace.spans.end[rows], trace.spans.start[rows]))]
    assert trace.spans.start[walked].tolist() == trace.spans.start[order].tolist()
    assert sorted(walked) == rows.tolist()


def test_a_paced_trace_shows_both_clocks_and_others_their_own():
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


def counted(trace, range_, **options):
    """The front end's statistics of a range of the first clock."""
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "return m.statistics(scene, clock, { from: clock.low, to: clock.high, ...v[1] });"
    )
    also = {"readScene": "timeline/state.js"}
    return node.run("timeline/statistics.js", code, state(trace, **options), range_, also=also)


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_in_a_cut_trace_the_numbers_of_a_step_and_of_the_whole_are_those_of_all_spans(clock):
    trace = data_parallel(4, 6)
    for step in (None, 0, 3):
        whole, cut = (
            counted(trace, {"step": step}, clock=clock, max_spans=most) for most in (10_000, 150)
        )
        names = ("compute", "update", "communication", "other", "idle", "waited")
        for name in names:
            of_all, of_cut = ([own[name] for own in found["ranks"]] for found in (whole, cut))
            np.testing.assert_allclose(of_cut, of_all, atol=2e-9)
        by_kind = lambda found: {own.pop("kind"): own for own in found["kinds"]}  # noqa: E731
        whole, cut = by_kind(whole), by_kind(cut)
        assert {*whole} == {*cut}
        for kind, own in whole.items():
            assert cut[kind] == pytest.approx(own, abs=2e-8)
    parts = metrics.breakdown(trace, clock)
    found = counted(trace, {"step": None}, clock=clock, max_spans=150)["ranks"]
    for name, seconds in parts.items():
        np.testing.assert_allclose([own[name] for own in found], seconds, atol=2e-8)


def test_in_a_cut_trace_what_is_not_drawn_is_not_called_idle():
    trace = data_parallel(4, 6)
    part = {"from": 0.011, "to": 0.047, "step": None}
    whole, cut = (counted(trace, part, max_spans=most) for most in (10_000, 150))
    hidden = 0.0
    for all_, own in zip(whole["ranks"], cut["ranks"], strict=True):
        assert own["idle"] == pytest.approx(all_["idle"], abs=1e-6)
        names = ("compute", "update", "communication", "other")
        of_all, of_cut = (sum(one[name] for name in names) for one in (all_, own))
        assert own["hidden"] == pytest.approx(of_all - of_cut, abs=1e-6)
        hidden += own["hidden"]
    assert cut["drawn"] and not whole["drawn"] and hidden > 1e-3
    full, list_ = draw(trace, arrows=False), draw(trace, arrows=False, options={"max_spans": 150})
    boxes = [[(b["x"], b["y"], b["width"]) for b in own["idle"]] for own in (full, list_)]
    assert boxes[0] == boxes[1]  # the same idle time
    drawn, spans = {*bars(list_)}, trace.spans
    lost = [i for i in range(len(spans)) if i not in drawn and spans.kind[i] == "forward"]
    scale = 1000 / (spans.end.max() - spans.start.min())
    rows = {(own["rank"], own["label"]): own for own in list_["rows"]}
    for i in lost:
        y = rows[int(spans.rank[i]), f"rank {spans.rank[i]}"]["top"]
        middle = (spans.start[i] + spans.end[i]) / 2 * scale
        assert any(g["y"] == y and g["x"] <= middle <= g["x"] + g["width"] for g in list_["gaps"])


def test_of_too_many_spans_the_longest_are_drawn_and_it_is_said():
    trace = data_parallel(2, 2)
    made = state(trace, max_spans=10)
    assert made["count"] == 10 and made["total"] == len(trace.spans)
    assert made["lines"][-1] == (
        f"The longest 10 of {len(trace.spans)} spans are drawn. "
        "Idle time and the numbers of a step count all."
    )
    assert [len(head["spans"]) for head in made["heads"]] == [2, 2]  # steps stay whole


def test_a_step_that_all_ranks_have_is_one_strip_over_all_and_stands_for_each_ranks_own():
    trace = data_parallel(3, 2)
    list_ = draw(trace)
    first, second = list_["heads"]
    starts, ends = [trace.spans[name][trace.spans.kind == "step"] for name in ("start", "end")]
    scale = 1000 / trace.spans.end.max()
    assert first["x"] == 0 and first["width"] == round(starts[3:].min() * scale)
    assert second["x"] == first["width"]
    assert [head["label"]["text"] for head in (first, second)] == ["step 0", "step 1"]
    assert all(head["y"] < 0 for head in list_["heads"])
    assert not {*bars(list_)} & {*np.flatnonzero(trace.spans.kind == "step").tolist()}
    own = [trace.spans.rank[list_["span"][place]] for place in first["spans"]]
    assert own == [0, 1, 2]
    code = (
        "const scene = readScene(v[0]);"
        "return [m.headLine(scene, scene.clocks[0], 0),"
        " scene.heads[0].spans.map((i) => scene.headOf.get(i))];"
    )
    also = {"readScene": "timeline/state.js"}
    words, heads = node.run("timeline/words.js", code, state(trace), also=also)
    last = ends[:3].max() / MS
    assert words == f"on all ranks: from 0 ms (rank 0 begins) to {last:g} ms (rank 0 ends)"
    assert heads == [0, 0, 0]


def test_labels_take_the_longest_form_that_fits_and_small_figures_where_little_does():
    forms = ["reduce-scatter", "RS"]
    code = "return v[0].map((width) => m.labelIn(v[1], 0, width, 24, 1000));"

    def reported(widths, forms):
        found = node.run("shared/gantt/geometry.js", code, widths, forms)
        return [label and (label["text"], label["size"]) for label in found]

    assert reported([200, 40, 12, 5], forms) == [("reduce-scatter", 11), ("RS", 11), None, None]
    assert reported([20, 12, 8], ["15"]) == [("15", 11), ("15", 9), None]
    assert reported([10, 7], ["3"]) == [("3", 11), ("3", 9)]


def test_a_span_that_never_ended_says_so_and_is_open_at_its_end():
    trace = deadlock(3)
    made = state(trace)
    assert trace.meta["failure"]["message"] in made["lines"]
    assert made["unfinished"] == [0, 1, 2] and made["spans"]["fields"]["of"] == [""]
    list_ = draw(trace)
    assert [(one["x"], one["y"]) for one in list_["open"]] == [(1000, 0), (1000, 30), (1000, 60)]
    middles = [row["middle"] for row in list_["rows"]]
    ends = [(one["y1"], one["y2"]) for one in list_["cycle"]]
    assert ends == [(middles[a], middles[b]) for a, b in ((0, 2), (2, 1), (1, 0))]
    assert [one["x1"] for one in list_["cycle"]] == [one["x2"] for one in list_["cycle"]]
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "const list = drawList(scene, clock, v[1]);"
        "return [m.spanLines(scene, clock, 0), hit(list, v[2][0], v[2][1])];"
    )
    also = {
        "readScene": "timeline/state.js",
        "drawList": "shared/gantt/geometry.js",
        "hit": "shared/gantt/hit.js",
    }
    view = {"clock": 0, "from": 0, "to": 3, "width": 1000, "top": 0, "height": 99, "span": -1,
            "hover": -1, "message": -1}  # fmt: skip
    point = [list_["cycle"][0]["x1"], 35]
    lines, under = node.run("timeline/words.js", code, made, view, point, also=also)
    assert lines[1] == "rank 0: never ended, from 0 s"
    assert not any("took" in line or "waited 3 s" in line for line in lines)
    assert under["summary"].startswith("rank 0 waits for rank 2 in recv")


@pytest.mark.parametrize(
    ("low", "high", "least", "value", "reported"),
    [
        (0, 3147, 2, 1419, "1,419 s"),
        (0, 3147, 2, 1419.253, "1,419.25 s"),
        (0, 1, None, 0, "0 ms"),
        (0, 1, None, 1, "1,000 ms"),
        (0, 0.1, None, 0.0124, "12.4 ms"),
        (0, 10, 1e-6, 1.2345678, "1.2345678 s"),
        (0, 2e-5, None, 1.5e-6, "1.5 µs"),
    ],
)
def test_moments_are_written_in_the_unit_of_the_axis_without_idle_digits(
    low, high, least, value, reported
):
    code = "return m.momentOf({ low: v[0], high: v[1] }, v[2] ?? Infinity)(v[3]);"
    assert node.run("timeline/words.js", code, low, high, least, value) == reported
    if least is None or least >= (high - low) * text.FINEST * 10:
        assert text.brief_moment(value, *text.unit(high), high - low) == reported, "as in figures"


def test_both_halves_of_a_backward_have_the_names_of_the_grids_key():
    names = [*palette.KINDS, "my own"]
    reported = node.run("timeline/words.js", "return v[0].map(m.kindName);", names)
    assert reported == [text.kind(name) for name in names]
    trace = simulate(make("zb_h1", 2, 2))
    also = {"readScene": "timeline/state.js"}
    code = (
        "const scene = readScene(v[0]); return scene.span.kind.map((_, i) => m.titleOf(scene, i));"
    )
    titles = node.run("timeline/words.js", code, state(trace), also=also)
    assert {"input gradient 1", "weight gradient 0"} < {*titles}
    assert "backward_" not in str(titles)


def test_a_size_is_written_as_in_figures():
    sizes = [0, 1, 999, 1000, 4096, 33_280, 999_499, 999_500, 2**20, 10**9, 3 << 40]
    reported = node.run("shared/numbers.js", "return v[0].map(m.bytes);", sizes)
    assert reported == [text.nbytes(size) for size in sizes]


def test_rounds_are_counted_from_1_and_what_else_a_span_records_is_shown_as_it_is():
    fields = ({"round": 0, "op": "sum"}, {"round": "last"}, None)
    trace = Trace([span(start=i, end=i + 1.0, fields=own) for i, own in enumerate(fields)])
    recorded = scene(trace, "return scene.span.fields;")
    assert recorded == ["round 1, op sum", "round last", ""]
    hovers = [bar.customdata for bar in viz.timeline(trace).data if bar.name == "forward"][0]
    assert ["round 1, op sum" in reported for reported in hovers] == [True, False, False]


def lines_of(trace, order, hidden=()):
    """Where the marks of lost ranks are drawn in rows that are arranged so."""
    code = (
        "const scene = readScene(v[0]);"
        "const own = arranged(scene, { order: v[1], hidden: new Set(v[2]), pinned: new Set() });"
        "const view = { from: 0, to: 4, width: 400, top: 0, height: 1000, span: -1, message: -1 };"
        "const { lost, remarks } = m.drawList(own, scene.clocks[0], view);"
        "const edges = own.rows.map(({ top, bottom }) => [top, bottom]);"
        "return { lost, remarks, edges };"
    )
    also = {"readScene": "timeline/state.js", "arranged": "shared/gantt/rows.js"}
    return node.run("shared/gantt/geometry.js", code, state(trace), order, hidden, also=also)


def test_a_lost_rank_is_crossed_out_at_its_moment_over_its_rows_as_in_the_figures():
    made = lines_of(lossy(), [0, 1, 2, 3])
    _, own, lane, killed = made["edges"]
    assert made["lost"] == [
        {"x": 300, "top": own[0], "bottom": lane[1], "place": 0},
        {"x": 150, "top": killed[0], "bottom": killed[1], "place": 1},
    ]
    (figure,) = [one for one in viz.timeline(lossy()).data if one.name == "rank lost"]
    told = [one["summary"] for one in state(lossy())["clocks"][0]["lost"]]
    assert told == [figure.customdata[0], figure.customdata[4]]
    (note,) = made["remarks"]
    assert note["text"] == "rank 2 is lost, with all that it had recorded"
    assert killed[0] < note["y"] < killed[1]


def test_the_mark_of_a_lost_rank_follows_its_rows():
    made = lines_of(lossy(), [1, 0, 2, 3], hidden=[3])
    _, own, lane, _ = made["edges"]
    assert [(one["top"], one["bottom"]) for one in made["lost"]] == [tuple(own), tuple(lane)]
    assert not made["remarks"]


def test_a_step_shows_the_losses_in_it_alone():
    assert [one["rank"] for one in state(lossy(), step=1)["clocks"][0]["lost"]] == [2]
    assert not state(lossy(), step=0)["clocks"][0]["lost"]


@pytest.mark.parametrize(("away", "found"), [(0, True), (5, True), (-5, True), (7, False)])
def test_the_mark_of_a_lost_rank_says_how_at_its_line_and_not_beside(away, found):
    list_ = draw(lossy())
    killed = list_["lost"][1]
    assert killed["place"] == 1
    point = killed["x"] + away, killed["top"] + 1
    code = (
        "const scene = readScene(v[0]); const clock = scene.clocks[0];"
        "const view = { from: clock.low, to: clock.high, width: 1000, top: 0, height: 1e4, "
        "span: -1, message: -1 };"
        "const target = m.hit(drawList(scene, clock, view), ...v[1]);"
        "return target && linesOf(scene, clock, target, 0);"
    )
    also = {
        "readScene": "timeline/state.js",
        "drawList": "shared/gantt/geometry.js",
        "linesOf": "timeline/words.js",
    }
    reported = node.run("shared/gantt/hit.js", code, state(lossy()), point, also=also)
    words = "rank 2 was killed by signal 9 at 1.5 s; the run lost it"
    assert reported == (["rank lost", words] if found else None)


def svg_of(trace, **view):
    made = state(trace, title="a <b> & c")
    first = made["clocks"][0]
    view = {"from": first["low"], "to": first["high"], "width": 800, "left": 60, "top": 0,
            "height": 400, "arrows": True, "message": -1, "span": -1, "hover": -1, "clock": 0,
            "matches": None, "critical": True, **view}  # fmt: skip
    code = (
        "const scene = readScene(v[0]);"
        "const colors = { ...scene.look.marks, ...scene.look.themes.light, name: 'light' };"
        "const list = drawList(scene, scene.clocks[v[1].clock], v[1]);"
        "const { title, look: { font, kinds } } = scene;"
        "const styles = stylesOf(scene.span.kinds.of, scene.shades, kinds, colors);"
        "const chosen = { ...v[1], row: -1, axis: AXIS };"
        "const painting = { width: 860, height: 430, paint: (context) => paint(context, scene,"
        "  list, v[1], { colors, styles, font, fills: fillsOf(context, styles) }, chosen) };"
        "return [m.savedRows(painting, title, colors, font), list];"
    )
    also = {
        "readScene": "timeline/state.js",
        "drawList": "shared/gantt/geometry.js",
        **dict.fromkeys(("AXIS", "fillsOf", "paint", "stylesOf"), "shared/gantt/paint.js"),
    }
    return node.run("timeline/svg.js", code, made, view, also=also)


@pytest.mark.parametrize("made", ["data parallel", "pipeline", "deadlock", "lossy", "evil", "on"])
def test_the_saved_svg_holds_every_bar_and_label_as_vectors_and_text(made):
    evil = span(name='<script>"&\x00\x07</script>', end=9.0)
    traces = {"data parallel": data_parallel(3, 1), "deadlock": deadlock(3), "evil": Trace([evil])}
    traces |= {"lossy": lossy(), "on": on_hosts(data_parallel(2, 1), {"<h>": [0], "b": [1]})}
    trace = traces[made] if made != "pipeline" else simulate(make("interleaved", 2, 4))
    text, list_ = svg_of(trace)
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    shapes = {tuple(float(one.get(at, 0)) for at in ("x", "y", "width", "height"))
              for one in root.iter(f"{name}rect")}  # fmt: skip
    drawn = [own[i : i + 4] for own in list_["bars"] for i in range(0, len(own), 5)]
    assert drawn and {tuple(map(float, bar)) for bar in drawn} <= shapes
    words = [one.text for one in root.iter(f"{name}text")]
    assert words[0] == "a <b> & c"
    for label in list_["labels"]:
        assert label["text"].replace("\x00", "�").replace("\x07", "�") in words
    assert {f"rank {rank}" for rank in trace.ranks} <= {*words}
    fills = {one.get("fill") for one in root.iter() if (one.get("fill") or "").startswith("url")}
    assert fills == {f"url(#{one.get('id')})" for one in root.iter(f"{name}pattern")}
    paths = [one for one in root.iter(f"{name}path") if one.get("stroke") == palette.VERMILION]
    assert len(paths) == len(list_["cycle"]) + len(list_["lost"])
    for one, path in zip(list_["lost"], paths[len(list_["cycle"]) :], strict=True):
        assert path.get("d").startswith(f"M{one['x']} {one['top']}L{one['x']} {one['bottom']}M")
    assert {one["text"] for one in list_["remarks"]} <= {*words}
    assert {*words} >= ({"<h>", "b"} if made == "on" else set())
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"clock": "wall"}, "clock='wall' cannot be drawn"),
        ({"clock": "moon"}, "clock='moon' is not a clock"),
        ({"step": 9}, "step=9 has no span in this Trace"),
        ({"theme": "pink"}, "theme='pink' is unknown: use 'auto', 'light' or 'dark'"),
    ],
)
def test_a_wrong_argument_is_one_sentence(options, reported):
    with pytest.raises(ValueError, match=reported):
        Timeline(Trace([span()]), **options)


def test_traces_with_nothing_or_one_span_are_drawn():
    empty = draw(Trace(meta={"clock": "wall", "ranks": 0}))
    assert empty["bars"] == [] and empty["arrows"] == []
    assert draw(Trace(meta={"clock": "wall", "ranks": 3}))["rows"][2]["label"] == "rank 2"
    (one,) = bars(draw(Trace([span(start=2.0, end=2.0)]))).values()
    assert one[2] == 1
