"""Timeline and player of a run on several hosts, without a browser: groups of rows, and arrows."""

from __future__ import annotations

import json

import node
import numpy as np
import pytest
from viz_scenes import TWO_HOSTS, data_parallel, on_hosts, ring

from dlviz.trace import Trace
from dlviz.widgets import MessagePlayer, Timeline

MIXED = {"host-a": [0, 2], "host-b": [1, 3]}
LINE = 15  # pixels of a group's name
ALSO = {
    "readScene": "timeline/state.js",
    "arranged": "shared/gantt/rows.js",
    "hit": "shared/gantt/hit.js",
    "linesOf": "timeline/words.js",
}
DRAW = """
const scene = readScene(v[0]);
const { order, hidden = [], pinned = [], ...part } = v[1];
const whole = { order: order ?? scene.shown, hidden: new Set(hidden), pinned: new Set(pinned) };
const rows = arranged(scene, whole);
const clock = scene.clocks[0];
const view = { from: clock.low, to: clock.high, width: 1000, top: 0, height: 5000, arrows: true,
    message: -1, span: -1, hover: -1, ...part };
const list = m.drawList(rows, clock, view);
"""


def draw(trace, code, beside=None, **view):
    """What `code` gives for the draw list of a Timeline, its rows arranged by `view`."""
    made = json.loads(Timeline(trace, beside=beside).state)
    return node.run("shared/gantt/geometry.js", DRAW + code, made, view, also=ALSO)


PLACES = """return {
    groups: list.groups.map(({ y, height, group }) => [y, height, rows.rankGroups[group].label]),
    rows: rows.shown.map((row) => [rows.rows[row].rank, rows.rows[row].top, rows.rows[row].bottom]),
    height: rows.height, own: scene.rows.map(({ top, bottom }) => [top, bottom]),
    moved: rows.rows.map(({ top, bottom }) => [top, bottom]),
};"""


def named(found):
    """The ranks of the rows under each name, from the top; that no two lie on each other."""
    parts = [(y, y + tall, name) for y, tall, name in found["groups"]]
    parts += [(top, bottom, rank) for rank, top, bottom in found["rows"]]
    groups, reached = [], 0
    for top, bottom, what in sorted(parts):
        assert top >= reached
        reached = bottom
        if isinstance(what, str):
            groups.append((what, []))
        elif what not in groups[-1][1]:
            groups[-1][1].append(what)
    return groups


@pytest.mark.parametrize("hosts", [TWO_HOSTS, MIXED, {"b": [1, 3], "a": [0], "c": [2]}])
def test_rows_stand_under_the_name_of_their_host(hosts):
    found = draw(on_hosts(data_parallel(4, 1), hosts), PLACES)
    assert named(found) == sorted(hosts.items(), key=lambda own: own[1])
    assert found["moved"] == found["own"]  # in their own order they stay where they were
    assert {tall for _, tall, _ in found["groups"]} == {LINE}


def test_moved_hidden_and_pinned_rows_stand_under_the_names_of_their_hosts():
    trace = on_hosts(data_parallel(4, 1))  # rows 0 to 7, two of each rank
    order = [0, 1, 4, 5, 2, 3, 6, 7]
    assert named(draw(trace, PLACES, order=order)) == [
        ("host-a", [0]), ("host-b", [2]), ("host-a", [1]), ("host-b", [3]),
    ]  # fmt: skip
    assert named(draw(trace, PLACES, hidden=[4, 5, 6, 7])) == [("host-a", [0, 1])]
    pinned = draw(trace, PLACES, pinned=[2])
    assert named(pinned) == [("host-a", [1]), ("host-a", [0, 1]), ("host-b", [2, 3])]
    assert pinned["height"] == pinned["rows"][-1][2]


def test_names_are_scrolled_with_their_rows_and_not_over_pinned_ones():
    trace = on_hosts(data_parallel(16, 1), {f"h{n}": [*range(4 * n, 4 * n + 4)] for n in range(4)})
    all_of_it = draw(trace, PLACES, pinned=[31])["groups"]
    (own, first, *_, last) = all_of_it
    by = 60
    found = draw(trace, PLACES, pinned=[31], top=by)["groups"]
    assert found[0] == own and own[2] == "h3"  # the pinned row's own
    assert [last[0] - by, *last[1:]] in found
    assert [first[0] - by, *first[1:]] not in found  # it would lie over the pinned row


def test_a_trace_without_hosts_has_no_names_and_its_rows_begin_at_the_top():
    found = draw(data_parallel(4, 1), PLACES)
    assert found["groups"] == [] and found["rows"][0][1] == 0


def test_of_two_traces_side_by_side_each_has_its_own_groups():
    one, other = on_hosts(data_parallel(4, 1)), data_parallel(4, 1)
    code = "return [scene.rankGroups.length, readScene(v[0].beside, 2).rankGroups.length];"
    for first, second, many in ((one, other, [2, 0]), (other, one, [0, 2])):
        beside = Trace(second.spans, second.messages, meta={**second.meta, "clock": "wall"})
        assert draw(first, code, beside=beside) == many


def test_no_arrow_points_back_in_time():
    trace = on_hosts(data_parallel(4, 1), MIXED, {"host-b": 4e-4}, {"host-b": -3e-4})
    early = (trace.messages.received < trace.messages.sent).sum()
    code = """const row = (one) => scene.message.row[one.message];
    return list.arrows.map((one) => [row(one), one.x1, one.x2]);"""
    found = np.array(draw(trace, code))
    assert sorted(found[:, 0]) == [*range(len(trace.messages))]
    assert (found[:, 2] >= found[:, 1]).all() and (found[:, 2] == found[:, 1]).sum() == early


def test_a_name_a_bar_and_a_message_show_their_host():
    long = "gpu-node-of-the-cluster-in-the-cellar-07"
    hosts = {long: [0, 1], "host-b": [2, 3]}
    trace = on_hosts(data_parallel(4, 1), hosts, {"host-b": 4e-4})
    code = """
    const line = list.groups[0];
    const bar = list.bars.flatMap((own, kind) => (own.length ? [own] : []))[0];
    const linesAt = (target) => linesOf(scene, clock, target, 0);
    const between = [...scene.message.src.keys()].map((i) => linesAt({ message: i }));
    return {
        beside: linesAt(hit(list, -20, line.y + 3)),
        empty: hit(list, -20, line.y + line.height + 9),
        bar: linesAt(hit(list, bar[0] + 1, bar[1] + bar[3] - 1)),
        between: between.map((lines) => [lines[0], lines.find((one) => one.startsWith("times"))]),
    };"""
    found = draw(trace, code, arrows=False)
    assert found["beside"] == [long, "ranks 0, 1"] and found["empty"] is None
    assert " on gpu-node-of-the-…e-cellar-07: " in found["bar"][1]
    known = "times between hosts are known to 400 µs"
    apart = {f"message rank {a} → rank {b}" for a, b in ((1, 2), (3, 0))}
    for title, words in found["between"]:
        assert (words or "").startswith(known) == (title in apart)


def test_the_player_groups_its_grid_and_its_circle_by_host():
    made = json.loads(MessagePlayer(on_hosts(ring(4, 8), MIXED, {"host-b": 9e-4})).state)
    code = """
    const scene = unpacked(v[0]);
    const layout = m.layoutOf(scene, 900, 340);
    const { nodes, links, hubs, groups } = placesOf(scene, 230);
    const ranks = groups.map((own) => own.map(({ rank }) => rank));
    const message = Object.values(scene.messages)[0];
    const joined = { hubs: hubs.length, links: links.length };
    const said = { known: message.known, times: timesOf(message) };
    return { layout, ranks, rows: scene.rows, ...joined, ...said };
    """
    also = {
        "unpacked": "player/state.js",
        "placesOf": "player/circle.js",
        "timesOf": "player/words.js",
    }
    found = node.run("player/geometry.js", code, made, also=also)
    layout = found["layout"]
    assert found["rows"] == [0, 2, 1, 3] and found["ranks"] == [[0, 2], [1, 3]]
    assert found["hubs"] == 3 and found["links"] == 6  # four ranks, two hosts
    (first, second), rows = layout["names"], layout["rows"]
    half = 6.5  # pixels of a character
    assert half < first["y"] < rows[0] - half
    assert rows[1] + layout["rowHeight"] + half < second["y"] < rows[2] - half
    assert rows[3] + layout["rowHeight"] < layout["height"]
    assert found["known"] == "times between hosts are known to 900 µs, longer than this took"
    assert found["times"].endswith(found["known"])
    plain = json.loads(MessagePlayer(ring(4, 8)).state)
    assert node.run("player/geometry.js", code, plain, also=also)["layout"]["names"] == []
