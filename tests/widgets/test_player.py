"""The MessagePlayer without a browser: a Trace in, its state and the draw list out."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import node
import numpy as np
import pytest
from viz_scenes import ring

import dlviz
from dlviz import viz
from dlviz.trace import Trace
from dlviz.viz.scene import Scene, number
from dlviz.widgets import MessagePlayer
from dlviz.widgets.player import DRAWN

SCENE = "const scene = unpacked(v[0]); const layout = m.layoutOf(scene, v[1] ?? 900);"
STATE, GRID, CIRCLE = "player/state.js", "player/geometry.js", "player/circle.js"
ALSO = {"unpacked": STATE, "circleOf": CIRCLE}
SVG = "{http://www.w3.org/2000/svg}"
EACH = "return scene.frames.map((_, i) => "


def state(trace, **options):
    return json.loads(MessagePlayer(trace, **options).state)


def told_of(made):
    """The messages of a state as the front end reads them, by row of the Trace."""
    found = node.run(STATE, "return m.unpacked(v[0]).messages;", made)
    return {int(row): message for row, message in found.items()}


def drawn(made, code, width=900):
    """What `code` gives for the front end's scene of a state, laid out `width` pixels wide."""
    return node.run(GRID, SCENE + code, made, width, also=ALSO)


def cells(made, width=900):
    """Of every frame the cells as they are drawn, with what each run of columns holds."""
    code = (
        "m.cellsOf(scene, layout, i).map((cell) => ({ ...cell, runs: cell.runs.map((run) =>"
        " ({ ...run, ...scene.holds[run.hold], chips: m.chipsOf(scene, layout, cell, run) })) })));"
    )
    return drawn(made, EACH + code, width)


def moves(made):
    return drawn(made, EACH + "m.movesOf(scene, layout, i));")


def contents_of(frame, ranks):
    """{(rank, column): (text, counts)} as the drawn cells of a frame say it."""
    found = {}
    for cell in frame:
        counts = {}
        for run in cell["runs"]:
            held = None if run["counts"] is None else [0] * ranks
            for source, count in run["counts"] or ():
                held[source] = count
            counts |= dict.fromkeys(range(run["from"], run["to"]), held)
        for value in cell["values"]:
            key = (cell["rank"], value["column"])
            assert key not in found
            found[key] = (value["text"], counts[value["column"]])
    return found


@pytest.mark.parametrize(
    ("ranks", "length"), [(2, 4), (3, 7), (4, 16), (5, 3), (8, 64), (13, 26), (1, 5)]
)
def test_every_cell_of_every_frame_shows_its_own_value_and_the_contributions_in_it(ranks, length):
    trace = ring(ranks, length)
    frames, shown = viz.message_frames(trace), cells(state(trace))
    assert len(frames) == len(shown) == 2 * (ranks - 1) + 1
    for frame, picture in zip(frames, shown, strict=True):
        expected = {}
        for rank, place in frame.snapshots.items():
            array = trace.buffers[place]["array"]
            for column, counts in enumerate(viz.decode(array, ranks).tolist()):
                expected[rank, column] = (str(round(array[column])), counts)
        assert contents_of(picture, ranks) == expected


@pytest.mark.parametrize("width", [320, 700, 1200])
@pytest.mark.parametrize(("ranks", "length"), [(2, 4), (4, 16), (5, 3), (7, 70), (13, 26)])
def test_cells_stand_in_their_ranks_row_and_apart_from_each_other(ranks, length, width):
    made = state(ring(ranks, length))
    layout = drawn(made, "return layout;", width)
    for frame in cells(made, width):
        assert len(frame) == ranks * len(made["chunks"])
        for cell in frame:
            assert cell["y"] == layout["rows"][cell["row"]]
            assert (
                cell["y"] + cell["height"] < (layout["rows"] + [layout["height"]])[cell["row"] + 1]
            )
        for rank in range(ranks):
            ends = 0.0
            for cell in (own for own in frame if own["rank"] == rank):
                assert cell["x"] > ends
                ends = cell["x"] + cell["width"]
            assert ends < layout["width"]


@pytest.mark.parametrize("width", [320, 700, 1200])
@pytest.mark.parametrize(("ranks", "length"), [(4, 12), (8, 64), (13, 26)])
def test_contributions_lie_in_their_run_each_in_a_place_of_its_own(ranks, length, width):
    made = state(ring(ranks, length))
    columns = drawn(made, "return layout.columns;", width)
    for frame in cells(made, width):
        for cell in frame:
            for run in cell["runs"]:
                low = columns[run["from"]]["x"]
                high = columns[run["to"] - 1]["x"] + columns[run["to"] - 1]["width"]
                assert [chip["source"] for chip in run["chips"]] == [s for s, _ in run["counts"]]
                places = set()
                for chip in run["chips"]:
                    assert low < chip["x"] and chip["x"] + chip["width"] < high
                    assert cell["y"] < chip["y"]
                    assert chip["y"] + chip["height"] < cell["y"] + cell["height"]
                    places.add((chip["x"], chip["y"]))
                assert len(places) == len(run["chips"])


PLACES = "return m.placesOf({ rows: v[0], topology: v[1] }, 230);"
SWITCH, RING = {"kind": "switch", "sizes": [8]}, {"kind": "ring", "sizes": [8]}
RACKS, TREE = {"kind": "racks", "sizes": [4, 8]}, {"kind": "tree", "sizes": [2, 4, 8]}


def places(ranks, topology):
    return node.run(CIRCLE, PLACES, list(ranks), topology)


def ends(found):
    """The links as pairs of what they join: a rank, or a hub's number as a text."""
    at = {(own["x"], own["y"]): f"hub {i}" for i, own in enumerate(found["hubs"])}
    at |= {(own["x"], own["y"]): own["rank"] for own in found["nodes"]}
    return [tuple(at[end["x"], end["y"]] for end in link) for link in found["links"]]


@pytest.mark.parametrize("topology", [SWITCH, RING, RACKS, TREE, {"kind": "", "sizes": [8]}])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 6, 8])
def test_ranks_stand_apart_and_inside_the_picture_on_every_topology(ranks, topology):
    nodes = places(range(ranks), topology)["nodes"]
    assert [node["rank"] for node in nodes] == list(range(ranks))
    for node_ in nodes:
        assert node_["radius"] < min(node_["x"], node_["y"]) < 230 - node_["radius"]
    spots = [(own["x"], own["y"], own["radius"]) for own in nodes]
    for i, (x, y, radius) in enumerate(spots):
        for a, b, other in spots[:i]:
            assert np.hypot(x - a, y - b) > radius + other


def test_links_follow_the_topology():
    assert ends(places(range(4), SWITCH)) == [(rank, "hub 0") for rank in range(4)]
    assert ends(places(range(3), RING)) == [(0, 1), (1, 2), (2, 0)]
    racks = places(range(8), RACKS)
    assert ends(racks)[:5] == [(0, "hub 0"), (1, "hub 0"), (2, "hub 0"), (3, "hub 0"), (4, "hub 1")]
    assert ends(racks)[-2:] == [("hub 0", "hub 2"), ("hub 1", "hub 2")]
    assert [[own["rank"] for own in group] for group in racks["groups"]] == [
        [0, 1, 2, 3], [4, 5, 6, 7],
    ]  # fmt: skip
    spots = [(own["x"], own["y"]) for own in racks["nodes"]]
    assert np.hypot(*np.subtract(spots[3], spots[4])) > np.hypot(*np.subtract(spots[2], spots[3]))
    tree = ends(places(range(8), TREE))
    assert tree[:8] == [(rank, f"hub {rank // 2}") for rank in range(8)]
    assert tree[8:12] == [(f"hub {low}", f"hub {4 + low // 2}") for low in range(4)]
    assert tree[12:] == [("hub 4", "hub 6"), ("hub 5", "hub 6")]
    assert ends(places(range(3), {"kind": "", "sizes": [3]})) == []


def test_ranks_of_one_rack_of_several_need_no_link_between():
    found = places(range(4), RACKS)
    assert len(found["hubs"]) == 1 and not found["groups"]


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize(("ranks", "length"), [(2, 4), (4, 16), (5, 3), (6, 40), (4, 1000)])
def test_every_message_is_outlined_where_it_was_and_its_arrow_joins_the_two_ranks(
    ranks, length, steps
):
    trace = ring(ranks, length, steps=steps)
    made, table = state(trace), trace.messages
    layout, frames = drawn(made, "return layout;"), viz.message_frames(trace)
    edges = {
        low: own["x"] for (low, _), own in zip(made["columns"], layout["columns"], strict=True)
    }
    ends = {
        high: own["x"] + own["width"]
        for (_, high), own in zip(made["columns"], layout["columns"], strict=True)
    }
    rows, tall = layout["rows"], layout["rowHeight"]
    for frame, picture in zip(frames, moves(made), strict=True):
        assert [arrow["message"] for arrow in picture["arrows"]] == list(frame.messages)
        boxes = {(box["message"], box["what"]): box for box in picture["boxes"]}
        assert len(boxes) == 2 * len(frame.messages) == len(picture["boxes"])
        for arrow in picture["arrows"]:
            row = arrow["message"]
            low, high = int(table.offset[row]), int(table.offset[row] + table.count[row])
            for what, rank in (("sent", table.src[row]), ("received", table.dst[row])):
                box = boxes[row, what]
                assert box["y"] == rows[rank]
                assert box["x"] == pytest.approx(edges[low])
                assert box["x"] + box["width"] == pytest.approx(ends[high])
            (_, leaves), *_, (_, enters) = arrow["points"]
            assert rows[table.src[row]] < leaves < rows[table.src[row]] + tall
            assert rows[table.dst[row]] < enters < rows[table.dst[row]] + tall
            assert min(x for x, _ in arrow["points"]) > ends[high]


def test_arrows_that_pass_each_other_beside_a_chunk_keep_apart():
    rows = [(0, 3), (3, 0), (1, 2), (0, 1)]
    messages = [
        {"src": s, "dst": d, "sent": 0.0, "received": 1.0, "offset": 0, "count": 4} for s, d in rows
    ]
    (_, frame) = moves(state(Trace(messages=messages)))
    upright = {
        (arrow["points"][1][0], *sorted(point[1] for point in arrow["points"][1:3]))
        for arrow in frame["arrows"]
    }
    for x, low, high in upright:
        for other, its_low, its_high in upright - {(x, low, high)}:
            assert x != other or its_high < low or high < its_low


def test_arrows_on_the_circle_go_from_sender_to_receiver_and_are_wider_for_more_bytes():
    messages = [
        {"src": 0, "dst": 1, "sent": 0.0, "received": 1.0, "nbytes": 800},
        {"src": 1, "dst": 0, "sent": 0.0, "received": 1.0, "nbytes": 80},
        {"src": 2, "dst": 0, "sent": 0.0, "nbytes": 80},
    ]
    made = state(Trace(messages=messages, meta={"outcome": "unreceived", "ranks": 3}))
    circle = drawn(made, "return circleOf(scene, 1, 250);")
    at = {node["rank"]: np.array([node["x"], node["y"]]) for node in circle["nodes"]}
    radius = circle["nodes"][0]["radius"]
    for arrow, message in zip(circle["arrows"], messages, strict=True):
        start, _, end = map(np.array, arrow["path"])
        assert radius < np.linalg.norm(start - at[message["src"]]) < radius + 6
        assert radius < np.linalg.norm(end - at[message["dst"]]) < radius + 6
    there, back, crossed = circle["arrows"]
    assert there["width"] > back["width"] == crossed["width"]
    assert np.linalg.norm(np.subtract(there["at"], back["at"])) > 12  # two directions, two labels
    assert [arrow["never"] for arrow in circle["arrows"]] == [False, False, True]


@pytest.mark.parametrize("room", [240, 340])
@pytest.mark.parametrize(("ranks", "length"), [(2, 4), (4, 12), (8, 16), (8, 64)])
def test_the_ranks_of_a_laptop_fit_their_room_and_numbers_stand_only_where_they_fit(
    ranks, length, room
):
    made = state(ring(ranks, length))
    code = (
        "const tight = m.layoutOf(scene, v[1], v[2]); return [tight, m.cellsOf(scene, tight, 1)];"
    )
    layout, frame = node.run(GRID, SCENE + code, made, 560, room, also=ALSO)
    assert layout["height"] <= room
    wide = min(column["width"] for column in layout["columns"])
    longest = max(map(len, made["values"]))
    numbered = layout["valueHeight"] > 0
    assert numbered == (ranks < 8) and (not numbered or 6.6 * longest + 3 <= wide)
    assert all(cell["y"] + cell["height"] < layout["height"] for cell in frame)


@pytest.mark.parametrize("ranks", [9, 13])
def test_cells_of_many_ranks_stay_small_and_show_each_contribution(ranks):
    made = state(ring(ranks, ranks))
    code = (
        "const own = m.layoutOf(scene, 560, 340); return [own.rowHeight, m.cellsOf(scene, own,"
        " v[2]).flatMap((cell) => cell.runs.flatMap((run) => m.chipsOf(scene, own, cell, run)))];"
    )
    high, chips = node.run(GRID, SCENE + code, made, 560, 2 * (ranks - 1), also=ALSO)
    assert high <= 40 and len(chips) == ranks**3
    assert all(chip["width"] >= 3 and chip["height"] >= 3 for chip in chips)


def test_the_strip_shows_how_many_ranks_numbers_each_cell_of_each_round_holds():
    def again(hop, rank, buffer):
        if (hop, rank) == (1, 2):
            buffer[:4] += viz.encode(2, 4, 16)[:4]

    trace = ring(4, 16, sabotage=again)
    made = state(trace)
    pictures = drawn(made, "return m.stripOf(scene, 700, 44).map(({ shares }) => [...shares]);")
    assert len(pictures) == 7
    wide = (700 / 7 - 6) / 16
    frames = viz.message_frames(trace)
    for at, (picture, frame) in enumerate(zip(pictures, frames, strict=True)):
        found = np.zeros((4, 16))
        for share, boxes in picture:
            for box in boxes:
                low = round((box["x"] - 3 - at * 100) / wide)
                row, count = round(box["y"] / 11), round(box["width"] / wide)
                assert not found[row, low : low + count].any()
                found[row, low : low + count] = share
        for rank, place in frame.snapshots.items():
            counts = viz.decode(trace.buffers[place]["array"], 4)
            expected = np.where((counts > 1).any(axis=1), -1, (counts > 0).mean(axis=1))
            np.testing.assert_array_equal(found[rank], expected)
    assert drawn(state(ring(2, 4)), "return m.stripOf({ ...scene, ranks: [] }, 700, 44);") == []


SAVED = """
const scene = unpacked(v[0]), { themes, marks } = scene.look;
const colors = { ...marks, ...themes.dark, name: "dark" };
return m.savedRound(scene, layoutOf(scene, 560, 340), v[1], colors, scene.look.font);
"""


def saved(made, number):
    """A round as an SVG file, read again, and its texts."""
    lists = {"unpacked": STATE, "layoutOf": GRID}
    text = node.run("player/svg.js", SAVED, made, number, also=lists)
    root = ElementTree.fromstring(text)
    return root, [part.text for part in root.iter(f"{SVG}text")]


def test_a_saved_round_holds_its_pictures_and_words_as_text():
    def astray(hop, rank, buffer):
        if (hop, rank) == (1, 1):
            buffer[:3] += np.array(viz.encode(3, 4, 12))[9:]

    name = "<b>&amp;\x00run</b>"
    made = state(ring(4, 12, sabotage=astray), title=name)
    root, words = saved(made, 2)
    assert words[0] == "<b>&amp;run</b>"
    assert "round 2 of 6 · adding · 4 messages, added" in words
    assert {f"rank {rank}" for rank in range(4)} <= {*words} and "381" in words
    assert "rank 1 holds numbers of cells 9–11 in cells 0–2" in words
    parts = [part.get("class") for part in root.iter()]
    assert parts.count("dlv-arrow") == 2 * 4  # on the circle and beside the cells
    assert parts.count("dlv-move dlv-sent") == parts.count("dlv-move dlv-received") == 4 + 1
    fills = {part.get("fill") for part in root.iter(f"{SVG}rect")}
    assert {own["color"] for own in made["ranks"][:4]} <= fills and "var(" not in str(fills)
    assert made["look"]["themes"]["dark"]["paper"] in fills
    assert not [part for part in root.iter() if part.tag in (f"{SVG}image", f"{SVG}script")]


def test_a_saved_round_without_contents_shows_who_sends_to_whom():
    hops = [{"src": r, "dst": (r + 1) % 3, "sent": 0.0, "received": 1.0} for r in range(3)]
    root, words = saved(state(Trace(messages=hops)), 1)
    parts = [part.get("class") for part in root.iter()]
    assert parts.count("dlv-arrow") == 3 and {"0", "1", "2"} <= {*words} and "rank 0" not in words


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_ranks_on_the_circle_do_not_touch(ranks):
    made = state(Trace(meta={"ranks": ranks}))
    nodes = drawn(made, "return circleOf(scene, 0, 300).nodes;")
    places = np.array([[node["x"], node["y"]] for node in nodes])
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(ranks)
    assert apart.min() > 2 * nodes[0]["radius"] and len(nodes) == ranks
    assert places.min() > 0 and places.max() < 300


def test_the_formulas_are_made_of_what_the_buffers_held():
    trace = ring(4, 16)
    messages = told_of(state(trace))
    for row in range(len(trace.messages)):
        src, dst, hop, low = (trace.messages[n][row] for n in ("src", "dst", "step", "offset"))
        shots = {
            rank: [own["array"] for own in trace.buffers if own["rank"] == rank]
            for rank in range(4)
        }
        sent, had, has = shots[src][2 * hop], shots[dst][2 * hop], shots[dst][2 * hop + 1]
        s, b, a = (f"{array[low]:.0f}" for array in (sent, had, has))
        expected = f"{b} + {s} = {a}" if trace.messages.op[row] == "sum" else f"{b} becomes {a}"
        assert messages[row]["formula"][0] == expected and len(messages[row]["formula"]) == 4


@pytest.mark.parametrize(
    ("op", "sent", "before", "after", "words"),
    [
        ("sum", 10, 50, 60, "50 + 10 = 60"),
        ("sum", 10, 50, 61, "50 becomes 61; 10 was sent"),
        ("copy", 10, 50, 10, "50 becomes 10"),
        ("copy", 10, 10, 10, "10 stays 10"),
        ("copy", 10, 0, 11, "0 becomes 11; 10 was sent"),
        ("", 10, 50, 60, "50 + 10 = 60"),
        ("", 10, 50, 10, "50 becomes 10"),
        ("max", 10, 50, 50, "max(50, 10) = 50"),
        ("max", 5, 0, 5, "max(0, 5) = 5"),
        ("max", 10, 50, 60, "50 + 10 = 60"),
        ("min", 10, 50, 10, "min(50, 10) = 10"),
        ("product", 10, 50, 500, "50 × 10 = 500"),
        ("sum", 0.1, 0.2, 0.3, "0.2 + 0.1 = 0.3"),
        ("sum", float("nan"), 1, float("nan"), "1 + nan = nan"),
        ("copy", float("inf"), 1, float("inf"), "1 becomes inf"),
    ],
)
def test_what_became_of_a_cell_is_said_as_it_was(op, sent, before, after, words):
    held = [(0, 0, sent), (1, 0, before), (1, 1, after)]
    buffers = [
        {"rank": rank, "index": i, "time": 3.0 * i, "wall": 3.0 * i, "array": np.array([value])}
        for rank, i, value in held
    ]
    message = {"src": 0, "dst": 1, "offset": 0, "count": 1, "op": op, "sent": 1.0, "received": 2.0}
    made = state(Trace(messages=[message], buffers=buffers))
    assert told_of(made)[0]["formula"] == [words]


def test_messages_are_put_in_words_by_chunk():
    made = state(ring(4, 16))
    messages = told_of(made)
    words = [[messages[row]["sentence"] for row in frame["messages"]] for frame in made["frames"]]
    assert words[3] == [
        "rank 1 adds chunk 2 from rank 0",
        "rank 2 adds chunk 3 from rank 1",
        "rank 3 adds chunk 0 from rank 2",
        "rank 0 adds chunk 1 from rank 3",
    ]
    assert words[4][0] == "rank 1 copies chunk 1 from rank 0"
    both = {"src": 0, "dst": 1, "sent": 0.0, "received": 1.0, "offset": 0, "op": "max"}
    made = state(Trace(messages=[{**both, "count": 4}, {**both, "count": 8}]))
    assert [own["sentence"] for own in told_of(made).values()] == [
        "rank 1 compares chunk 0 from rank 0 with its own and keeps the larger",
        "rank 1 compares chunks 0–1 from rank 0 with its own and keeps the larger",
    ]
    made = state(Trace(messages=[{**both, "count": 8}]))
    whole = "rank 1 compares the whole buffer from rank 0 with its own and keeps the larger"
    assert told_of(made)[0]["sentence"] == whole


def test_a_contribution_added_twice_is_drawn_written_and_remarked_on():
    def again(hop, rank, buffer):
        if (hop, rank) == (0, 1):
            buffer[:4] += viz.encode(1, 4, 16)[:4]

    trace = ring(4, 16, sabotage=again)
    made = state(trace)
    _, after, *_ = cells(made)
    assert contents_of(after, 4)[1, 0] == ("11", [1, 2, 0, 0])
    (twice,) = [cell for cell in after if any("×2" in run["says"] for run in cell["runs"])]
    assert (twice["rank"], twice["chunk"]) == (1, 0)
    code = "return scene.holds.flatMap(({ counts }) => counts).filter(([, many]) => many === 2)"
    assert drawn(made, code + ".map(([source, count]) => m.chipLabel({ source, count, width: 30, "
                 "height: 12 }));") == ["1 ×2"] * sum(
        "×2" in own["says"] for own in made["holds"]
    )  # fmt: skip
    assert "rank 1 holds rank 0, rank 1 ×2 in cells 0–3" in made["frames"][1]["remarks"]
    first = next(row for row in made["frames"][1]["messages"] if trace.messages.dst[row] == 1)
    assert told_of(made)[first]["formula"][0] == "5 becomes 11; 1 was sent"


def test_contents_that_are_no_sum_are_drawn_as_unknown_with_their_value():
    def spoil(hop, rank, buffer):
        if (hop, rank) == (2, 3):
            buffer[9:12] = [3.14, np.nan, np.inf]

    made = state(ring(4, 16, sabotage=spoil))
    pictures = cells(made)
    found = contents_of(pictures[3], 4)
    assert [found[3, column] for column in (9, 10, 11)] == [
        ("3.14", None), ("nan", None), ("inf", None),
    ]  # fmt: skip
    chips = [run["chips"] for cell in pictures[3] for run in cell["runs"] if not run["counts"]]
    assert [chip["source"] for own in chips for chip in own] == [-1] * len(chips)
    assert None not in [counts for _, counts in contents_of(pictures[2], 4).values()]
    assert None not in [counts for _, counts in contents_of(pictures[6], 4).values()]


def test_what_changed_in_a_step_is_marked_and_nothing_else():
    trace = ring(4, 16)
    frames = viz.message_frames(trace)
    for i, picture in enumerate(cells(state(trace))):
        marked = {
            (cell["rank"], value["column"])
            for cell in picture
            for value in cell["values"]
            if value["changed"]
        }
        before = frames[max(i - 1, 0)].snapshots
        arrays = {
            rank: [trace.buffers[place]["array"] for place in (before[rank], after)]
            for rank, after in frames[i].snapshots.items()
        }
        assert marked == {
            (rank, int(column))
            for rank, (old, new) in arrays.items()
            for column in np.flatnonzero(old != new)
        }


def test_a_long_buffer_is_drawn_by_the_segments_that_travel_together():
    made = state(ring(4, 1000))
    assert made["columns"] == [[0, 250], [250, 500], [500, 750], [750, 1000]]
    assert [chunk["name"] for chunk in made["chunks"]] == [f"chunk {i}" for i in range(4)]
    for picture in (cells(made)[0], cells(made)[-1]):
        assert len(contents_of(picture, 4)) == 16
    assert contents_of(cells(made)[-1], 4)[2, 1] == ("936 … 468", [1, 1, 1, 1])


def test_a_wrong_cell_in_a_long_buffer_gets_a_column_of_its_own():
    def again(hop, rank, buffer):
        if (hop, rank) == (0, 1):
            buffer[17] += viz.encode(1, 4, 1000)[17]

    made = state(ring(4, 1000, sabotage=again))
    assert [17, 18] in made["columns"] and len(made["chunks"]) == 4
    assert contents_of(cells(made)[1], 4)[1, 1][1] == [1, 2, 0, 0]


def test_a_trace_without_buffers_shows_its_messages_alone():
    messages = [
        {"src": 0, "dst": 1, "sent": 0.0, "received": 1.0, "nbytes": 8},
        {"src": 1, "dst": 0, "sent": 2.0, "received": 3.0, "nbytes": 8},
    ]
    made = state(Trace(messages=messages))
    assert any("No buffer was watched" in line for line in made["lines"])
    assert [[box["what"] for box in frame["boxes"]] for frame in moves(made)] == [
        [], ["sent", "received"], ["sent", "received"],
    ]  # fmt: skip
    assert told_of(made)[0]["sentence"] == "rank 1 gets a message from rank 0"
    assert told_of(made)[0]["formula"] == []
    assert not any(cell["values"] for frame in cells(made) for cell in frame)


def test_a_message_never_received_is_crossed_and_lands_nowhere():
    trace = ring(3, 6)
    trace.messages.received[-1] = trace.messages.wall_received[-1] = np.nan
    made, row = state(trace), len(trace.messages) - 1
    last = moves(made)[-1]
    assert [arrow["message"] for arrow in last["arrows"] if arrow["never"]] == [row]
    assert [box["what"] for box in last["boxes"] if box["message"] == row] == ["sent"]
    assert told_of(made)[row]["sentence"].startswith("chunk ")
    assert "never reaches rank" in told_of(made)[row]["sentence"]
    assert told_of(made)[row]["received"] is None


def test_more_ranks_than_can_be_decoded_show_their_values_and_no_guess():
    trace = ring(13, 13)
    trace.meta["ranks"] = 14
    made = state(trace)
    assert any("separated for at most 13 ranks" in line for line in made["lines"])
    assert made["ranks"] == [] and not any(frame["remarks"] for frame in made["frames"])
    first = cells(made)[0]
    assert contents_of(first, 14)[2, 0] == (number(viz.encode(2, 13, 1)[0]), None)
    assert not any(run["chips"] for cell in first for run in cell["runs"])


def test_no_message_one_message_and_an_empty_buffer_are_players():
    empty = state(Trace())
    assert [frame["name"] for frame in empty["frames"]] == ["start"]
    assert any("No message was sent" in line for line in empty["lines"])
    assert cells(empty) == [[]]
    one = state(Trace(messages=[{"src": 0, "dst": 1, "sent": 0.0, "received": 1.0}]))
    assert len(one["frames"]) == 2 and not any("No message" in line for line in one["lines"])
    hollow = state(Trace(buffers=[{"rank": 0, "array": np.zeros(0)}], meta={"ranks": 1}))
    assert cells(hollow)[0][0]["values"] == []


def test_more_ranks_and_chunks_than_fit_are_left_out_and_it_says_so():
    hop = {"sent": 0.0, "received": 1.0}
    messages = [{"src": r, "dst": r + 1, **hop} for r in range(DRAWN + 20)]
    made = state(Trace(messages=messages))
    assert len(made["rows"]) == DRAWN
    assert f"The first {DRAWN} of {DRAWN + 21} ranks are drawn." in made["lines"]
    for frame in moves(made):
        assert all(box["y"] > 0 for box in frame["boxes"])
    single = [
        {"src": 0, "dst": 1, "offset": i, "count": 1, "step": i, "sent": i, "received": i + 0.5}
        for i in range(300)
    ]
    made = state(Trace(messages=[{**own, "sent": float(own["sent"])} for own in single]))
    assert f"The first {DRAWN} of 300 chunks are drawn." in made["lines"]
    assert len(made["columns"]) == DRAWN and len(told_of(made)) == 300
    assert told_of(made)[299]["sentence"] == "rank 1 gets chunk 299 from rank 0"
    assert len(moves(made)) == 301


def test_a_thousand_frames_stay_a_small_page():
    array = np.array(viz.encode(0, 4, 16))
    messages = [
        {"src": i % 4, "dst": (i + 1) % 4, "nbytes": 32, "offset": 4 * (i % 4), "count": 4,
         "op": "copy", "step": i, "sent": float(i), "received": i + 0.5}
        for i in range(1000)
    ]  # fmt: skip
    buffers = [
        {"rank": r, "time": i + 0.5, "wall": i + 0.5, "index": i + 1, "array": np.roll(array, i)}
        for r in range(4)
        for i in range(-1, 1000)
    ]
    text = MessagePlayer(Trace(messages=messages, buffers=buffers)).state
    assert len(json.loads(text)["frames"]) == 1001 and len(text) < 1_000_000


def test_names_with_markup_and_of_any_length_stay_text():
    name = "<img src=x onerror=alert(1)>" + "y" * 500
    trace = ring(2, 4)
    for snapshot in trace.buffers:
        snapshot["name"] = name
    spans = [
        {"rank": 0, "lane": name, "kind": "phase", "name": name, "start": 0.0, "end": 1.0},
        {"rank": 0, "lane": name, "kind": "send", "start": 0.0, "end": 1.0, "flow": 0, "depth": 1},
    ]
    trace = Trace(spans, trace.messages, buffers=trace.buffers, meta=trace.meta)
    made = state(trace, title=name)
    assert made["buffer"] == name[:23] + "…" and made["title"] == name[:199] + "…"
    assert made["frames"][1]["phase"].startswith(name[:59])


def test_a_message_knows_its_spans_its_lines_and_its_phase():
    messages = [{"src": 0, "dst": 1, "sent": 1.0, "received": 3.0, "op": "sum"}] * 2
    common = {"lane": "comm", "where": "cell.py:7"}
    spans = [
        {"rank": 0, "kind": "phase", "name": "outer", "start": 0.0, "end": 9.0, **common},
        {"rank": 0, "kind": "phase", "name": "inner", "start": 1.0, "end": 2.0, "depth": 1}
        | common,
        {"rank": 0, "kind": "send", "start": 1.0, "end": 2.0, "flow": 0, "depth": 2} | common,
        {"rank": 0, "kind": "send", "start": 4.0, "end": 5.0, "flow": 1, "depth": 1} | common,
        {"rank": 1, "kind": "recv", "start": 2.0, "end": 3.0, "flow": 0, "where": "cell.py:9"},
        {"rank": 0, "lane": "other", "kind": "phase", "name": "no", "start": 0.0, "end": 9.0},
    ]
    made = state(Trace(spans, messages))
    assert told_of(made)[0]["spans"] == [2, 4]
    assert told_of(made)[0]["where"] == ["cell.py:7", "cell.py:9"]
    assert told_of(made)[1]["spans"] == [3, -1]
    assert made["frames"][1]["phase"] == "inner and outer"
    assert state(Trace(messages=messages))["frames"][1]["phase"] == "adding"


def test_a_step_and_a_buffer_can_be_chosen_and_what_is_not_there_is_refused():
    trace = ring(4, 16)
    made = state(trace, step=2)
    assert sorted(told_of(made)) == np.flatnonzero(trace.messages.step == 2).tolist()
    with pytest.raises(ValueError, match="buffer='gradient' was not watched in this run"):
        MessagePlayer(trace, buffer="gradient")
    with pytest.raises(ValueError, match="theme='pink' is unknown: use 'auto', 'light' or 'dark'"):
        MessagePlayer(trace, theme="pink")


def test_numbers_are_written_in_full_where_they_are_whole():
    values = [33_480_783.0, 0.1, 1e20, -0.0, 7, True, float("nan"), -float("inf"), 1 / 3]
    assert [number(value) for value in values] == [
        "33480783", "0.1", "1e+20", "0", "7", "1", "nan", "-inf", "0.333333",
    ]  # fmt: skip


def test_the_picture_for_pages_without_a_kernel_is_the_print_form():
    trace = ring(2, 4)
    figure = MessagePlayer(trace, title="Two ranks").picture()
    words = [text.get_text() for text in figure.findobj(lambda own: hasattr(own, "get_text"))]
    assert "Two ranks" in words


def all_reduce(comm, length):
    import torch

    from dlviz.collectives import ring as algorithm
    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, length), dtype=torch.float64)
    comm.watch(tensor)
    algorithm.all_reduce(comm, tensor)


@pytest.mark.slow
def test_a_real_run_plays_its_phases_and_every_sum_is_right():
    trace = dlviz.launch(all_reduce, ranks=3, args=(7,)).trace
    made = state(trace)
    assert [frame["phase"] for frame in made["frames"]] == [""] + ["reduce-scatter"] * 2 + [
        "all-gather"
    ] * 2
    for row, own in told_of(made).items():
        sent, before, after = Scene(trace).moved(row)
        expected = before + sent if trace.messages.op[row] == "sum" else sent
        np.testing.assert_array_equal(after, expected)
        assert "was sent" not in " ".join(own["formula"])
        assert -1 not in own["spans"] and all("test_player.py" in where for where in own["where"])
    final = contents_of(cells(made)[-1], 3)
    assert {tuple(counts) for _, counts in final.values()} == {(1, 1, 1)} and len(final) == 21


def test_a_message_sent_where_two_phases_touch_is_of_the_later():
    spans = [
        {"rank": 0, "kind": "phase", "name": name, "start": start, "end": start + 1.0}
        for name, start in (("first", 0.0), ("second", 1.0))
    ]
    spans.append({"rank": 0, "kind": "send", "start": 1.0, "end": 1.0, "depth": 1, "flow": 0})
    messages = [{"src": 0, "dst": 1, "sent": 1.0, "received": 1.5}]
    made = state(Trace(spans, messages))
    assert [frame["phase"] for frame in made["frames"]] == ["", "second"]
