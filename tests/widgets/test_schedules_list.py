"""The geometry of the explorer of schedules, in Node: a state in, positions out."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import pytest
from node import run

from dlviz import schedules
from dlviz.widgets import ScheduleExplorer

VIEW = {"from": 0.0, "width": 1000, "top": 0, "height": 10_000, "arrows": False, "critical": True,
        "span": -1, "message": -1}  # fmt: skip
READ = {"readSide": "schedules/state.js"}


def sides(*args, **options):
    return json.loads(ScheduleExplorer(*args, **options).state)["sides"]


def drawn(side, ran=None, **view):
    """The draw list, with bars in rows of (x, y, width, height, name)."""
    code = """const side = m.readSide(v[0]);
        const own = m.drawnOf(side, 1, v[2]);
        const list = drawList(own.rows, own.times, v[1]);
        const all = list.bars.flatMap((bars) => Array.from({length: bars.length / 5}, (_, i) => {
            const [x, y, width, height, at] = bars.slice(5 * i, 5 * i + 5);
            const span = own.spans[at];
            const isRun = own.place[span] !== at;
            return {isRun, row: [x, y, width, height, nameOf(side, span)], at};
        })).sort((one, other) => one.at - other.at);
        const of = (isRun) => all.filter((one) => one.isRun === isRun).map(({row}) => row);
        const [first, next] = own.rows.rows;
        return {...list, bars: of(false), measured: of(true),
            rows: {row: next ? next.top - first.top : 0, bar: first.bottom - first.top},
            holes: list.idle.map((box) => ({...box, hole: side.holes[box.place]}))};"""
    also = {"drawList": "shared/gantt/geometry.js", "nameOf": "schedules/geometry.js"}
    shown = {**VIEW, "to": side["makespan"], **view}
    return run("schedules/state.js", code, side, shown, ran, also=also)


@pytest.mark.parametrize("name", schedules.NAMES)
def test_bars_and_gaps_of_a_rank_fill_its_row_and_none_overlap(name):
    (side,) = sides(name, 3, 6)
    found = drawn(side)
    for rank in range(3):
        top = rank * found["rows"]["row"]
        within = [
            (x, x + width, height)
            for x, y, width, height, *_ in found["bars"]
            if top <= y < top + found["rows"]["bar"]
        ]
        gaps = [
            (box["x"], box["x"] + box["width"], box["height"])
            for box in found["holes"]
            if box["y"] == top
        ]
        whole = found["rows"]["bar"]
        covered = sum((b - a) * height / whole for a, b, height in within + gaps)
        assert covered == pytest.approx(1000, abs=0.5)
        edges = sorted({(a, b) for a, b, _ in within + gaps})
        for (_, before), (after, _) in zip(edges, edges[1:], strict=False):
            assert after == pytest.approx(before, abs=0.01)


def test_a_bar_lies_at_its_time_and_shows_its_microbatch():
    (side,) = sides("gpipe", 2, 3)
    found = drawn(side)
    by_name = {name: (x, y, width) for x, y, width, _, name in found["bars"]}
    step = 1000 / side["makespan"]
    assert by_name["0F1"][0] == pytest.approx(step, abs=0.6)
    assert by_name["1F1"][0] == pytest.approx(2 * step, abs=0.6)
    assert by_name["1F1"][1] == found["rows"]["row"]
    assert by_name["0B0"][2] == pytest.approx(2 * step, abs=1.1)
    assert [label["text"] for label in found["labels"][:6]] == ["0", "1", "2", "0", "1", "2"]


def test_a_number_is_shown_where_it_has_room():
    (side,) = sides("1f1b", 4, 64)
    assert drawn(side, width=300)["labels"] == []
    assert len(drawn(side, width=30_000)["labels"]) == 512


def test_a_row_shows_all_the_numbers_of_a_kind_or_none():
    (side,) = sides("looped_bfs", 11, 28)  # where some numbers have one digit and some two
    shown = set()
    for width in range(600, 6000, 200):
        found = drawn(side, width=width)
        kind = dict(enumerate(re.sub(r"[^FB]", "", bar[-1]) for bar in found["bars"]))
        of = Counter((label["y"], kind[label["span"]]) for label in found["labels"])
        assert {*of.values()} <= {28 * 2}, width  # microbatches x chunks
        shown |= {len(of)}
    assert {0, 11 * 2} <= shown


def test_halves_of_an_overlap_share_the_height_of_a_bar():
    (side,) = sides("dualpipev", 2, 6)
    found = drawn(side)
    heights = {height for *_, height, _ in found["bars"]}
    assert heights == {found["rows"]["bar"], found["rows"]["bar"] / 2}
    names = {name: y for _, y, *_, name in found["bars"]}
    assert names["3B1"] - names["0F3"] == found["rows"]["bar"] / 2


def test_zoomed_in_only_what_is_in_view_is_drawn():
    (side,) = sides("gpipe", 2, 8)
    found = drawn(side, **{"from": 4.0, "to": 6.0})
    assert {name for *_, name in found["bars"] if name[0] == "0"} >= {"0F4", "0F5"}
    assert all(x + width >= -1 and x <= 1001 for x, _, width, *_ in found["bars"])
    assert len(found["bars"]) < 10


def test_measured_bars_lie_below_the_predicted_ones():
    (side,) = sides("1f1b", 2, 2)
    count = len(side["kind"])
    ran = {"start": [at + 0.5 for at in side["start"]], "length": [1.0] * (count - 1) + [None]}
    ran["start"][-1] = None
    found = drawn(side, ran)
    assert len(found["measured"]) == count - 1
    step = 1000 / side["makespan"]
    tops = {name: y for _, y, *_, name in found["bars"]}
    starts = {name: x for x, *_, name in found["bars"]}
    for x, y, width, height, name in found["measured"]:
        assert x == pytest.approx(starts[name] + step / 2, abs=1.1)
        assert width == pytest.approx(step, abs=1.1)
        assert tops[name] + found["rows"]["bar"] < y
        assert y + height <= tops[name] + found["rows"]["row"]


def test_the_critical_path_goes_from_the_first_start_to_the_last_end():
    (side,) = sides("1f1b", 3, 4)
    boxes = drawn(side)["path"]
    assert boxes[0]["x"] == 0 and boxes[-1]["x"] + boxes[-1]["width"] == pytest.approx(1000)
    tops = [box["y"] for box in boxes]
    row = drawn(side)["rows"]["row"]
    assert tops == [row * rank for rank in (0, 1, 2, 1, 0)]  # down, along the last rank, and up
    for box, after in pairwise(boxes):
        assert box["line"]["x1"] == pytest.approx(box["x"] + box["width"])
        assert box["line"]["x2"] == pytest.approx(after["x"])
    assert drawn(side, critical=False)["path"] == []


def test_a_gap_says_which_action_it_waits_for():
    (side,) = sides("1f1b", 2, 2)
    code = """const side = readSide(v[0]);
        return side.holes.map((hole) => {
            const found = m.awaited(side, hole);
            return [hole.rank, hole.from, hole.to, found && m.nameOf(side, found.action),
                found && m.nameOf(side, found.source)];
        });"""
    found = run("schedules/geometry.js", code, side, also=READ)
    assert found == [
        [0, 2, 4, "0B0", "1B0"],
        [0, 6, 7, "0B1", "1B1"],
        [1, 0, 1, "1F0", "0F0"],
        [1, 7, 9, None, None],
    ]


def test_a_gap_before_an_overlap_waits_for_what_comes_last():
    (side,) = sides("dualpipev", 4, 8, latency=0.5, slow_stage=2)
    code = """const side = readSide(v[0]);
        return side.holes.filter(({ next }) => next >= 0).map((hole) => {
            const { source } = m.awaited(side, hole);
            return [hole.to, side.end[source], side.rank[source] === hole.rank];
        });"""
    found = run("schedules/geometry.js", code, side, also=READ)
    assert len(found) > 3
    for until, ended, same_rank in found:
        assert until == pytest.approx(ended + (0 if same_rank else 0.5))


@pytest.mark.parametrize(("ends", "latency", "last"), [([5, 7], 0, 3), ([7, 5], 0, 2),
                                                       ([5, 6], 2, 2)])  # fmt: skip
def test_of_an_overlap_the_half_counts_whose_input_comes_last(ends, latency, last):
    """Span 2 receives from another rank's span 0, span 3, its other half, from its own rank's 1."""
    side = {"half": [0, 0, 1, 2], "source": [-1, -1, 0, 1], "end": [*ends, 9, 9],
            "rank": [1, 0, 0, 0], "latency": latency}  # fmt: skip
    found = run("schedules/geometry.js", "return m.awaited(v[0], { next: 2 });", side)
    assert found == {"action": last, "source": last - 2}


def test_a_point_finds_what_lies_there():
    (side,) = sides("1f1b", 2, 2)
    code = """const side = readSide(v[0]);
        const own = m.drawnOf(side, 1, null);
        const list = drawList(own.rows, own.times, v[1]);
        return v[2].map(([x, y]) => {
            const found = hit(list, x, y) ?? {};
            if (found.span != null) return nameOf(side, own.spans[found.span]);
            return found.idle != null ? side.holes[found.idle].from : null;
        });"""
    also = {"drawList": "shared/gantt/geometry.js", "hit": "shared/gantt/hit.js",
            "nameOf": "schedules/geometry.js", **READ}  # fmt: skip
    step = 1000 / 9
    points = [[0.5 * step, 3], [1.5 * step, 3], [3 * step, 3], [1.5 * step, 35], [5, 500]]
    found = run("schedules/state.js", code, side, {**VIEW, "to": 9}, points, also=also)
    assert found == ["0F0", "0F1", 2, "1F0", None]


def test_keys_walk_along_a_rank_and_from_rank_to_rank():
    (side,) = sides("1f1b", 3, 4)
    code = """const side = readSide(v[0]);
        return v[1].map(([name, along, by]) =>
            m.nameOf(side, m.neighbour(side, m.spanOf(side, name), along, by)));"""
    steps = [["0F0", 1, 0], ["0F1", -1, 0], ["0F0", -1, 0], ["0F2", 0, 1], ["2F0", 0, 1],
             ["0B3", 1, 0], ["1F0", 0, -1]]  # fmt: skip
    found = run("schedules/geometry.js", code, side, steps, also=READ)
    assert found == ["0F1", "0F0", "0F0", "1F1", "2F0", "0B3", "0F1"]


def test_activations_in_flight_are_counted_in_whole_microbatches():
    """So that a rank of two chunks compares with a rank of one."""
    both = sides("interleaved", 2, 4, beside="gpipe")
    code = """const strips = m.stripsOf(v[0].map(readSide), 500, 30);
        return [strips.most, strips.sides.map((side) => side.map(({ peak }) => peak)),
            strips.sides.map((side) => side.map(({ corners, base }) => [
                Math.min(...corners.map(([, y]) => y)) - base, corners.at(-1)[1] - base]))];"""
    most, peaks, heights = run("schedules/geometry.js", code, both, also=READ)
    assert peaks == [[peak / 2 for peak in both[0]["peak"]], both[1]["peak"]]
    assert most == max(map(max, peaks)) == 4
    for own, reported in zip(heights, peaks, strict=True):
        for (highest, last), peak in zip(own, reported, strict=True):
            assert highest == pytest.approx(-24 * peak / most)
            assert last == 0


def test_what_is_never_freed_is_filled_down_to_its_base_and_its_line_goes_on():
    (side,) = sides("drawn", csv="0F0,0F1,0F2\n1F0,1F1,1F2,1B0\n")
    code = """return m.stripsOf([readSide(v[0])], 500, 30).sides[0].map(
        ({ corners, area, base }) => [corners, area, base]);"""
    for line, area, base in run("schedules/geometry.js", code, side, also=READ):
        assert area[:-1] == line and area[-1] == [line[-1][0], base]
        assert area[0][1] == base and line[-1][1] < base


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("1f1b", "zb_h1"), {}, "Bubble fraction; line: formula"),
        (("1f1b", "dualpipev"), {}, "Bubble fraction; line: formula if any"),
        (("dualpipev", ""), {}, "Bubble fraction; simulated"),
        (("1f1b", "gpipe"), {"latency": 0.5}, "Bubble fraction; simulated"),
        (("1f1b", ""), {"slow_stage": 1}, "Bubble fraction; simulated"),
    ],
)
def test_the_chart_calls_its_line_a_formula_only_where_there_is_one(names, options, words):
    explorer = ScheduleExplorer(names[0], 4, 8, beside=names[1], **options)
    code = "return m.chartWords(v[0]);"
    assert run("schedules/panels.js", code, json.loads(explorer.state)["chart"]) == words


def test_a_side_in_words_names_its_schedule_as_papers_do_and_its_bubble_once():
    code = "return m.sideWords(v[0]);"
    (side,) = sides("zb_h2", 4, 8)
    assert run("schedules/words.js", code, side) == (
        "ZB-H2 (p = 4, m = 8): 27 s, bubble ratio (p−1)/3m = 0.125, at most 7 in flight."
    )
    (side,) = sides("interleaved", 2, 4, latency=0.5)
    assert run("schedules/words.js", code, side).startswith(
        "interleaved 1F1B (p = 2, m = 4, v = 2): 16.5 s, bubble ratio 0.375, at most "
        "5 chunks in flight."
    )


def test_the_chart_places_what_was_simulated_on_its_formula():
    explorer = ScheduleExplorer("1f1b", 4, 6)
    code = "return m.chartOf(v[0], [{ m: 6, value: v[1] }], 400, 250);"
    share = json.loads(explorer.state)["sides"][0]["fraction"]
    chart = run("schedules/geometry.js", code, json.loads(explorer.state)["chart"], share)
    (line,) = chart["lines"]
    assert len(line["simulated"]) == len(line["formula"]) == 9
    for one, other in zip(line["simulated"], line["formula"], strict=True):
        assert one == pytest.approx(other)
    assert chart["points"][0]["at"] in [pytest.approx(at) for at in line["simulated"]]
    box = chart["box"]
    for x, y in line["simulated"]:
        assert box["left"] <= x <= box["right"] and box["top"] <= y <= box["bottom"]
