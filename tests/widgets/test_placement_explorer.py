"""The explorer of placements: its numbers are the simulator's, a click gives a group away."""

from __future__ import annotations

import json
import math

import kernel
import node
import pytest
from explorer_page import SETTLED, open_page
from timing import changed_within

from dlviz.machine import Link
from dlviz.sim.placement import Devices, bounds, search, seconds_of
from dlviz.widgets import PlacementExplorer
from dlviz.widgets.placement import found

BASE = {"graph": "lab", "devices": 3, "message": 1.0}


def state(explorer):
    return json.loads(explorer.state)


def devices(explorer):
    return [*map(int, explorer.placement.split(","))]


def test_a_click_is_answered_in_50_ms_and_loads_no_torch():
    changes = [
        {"placement": ",".join("01"[other <= group] for other in range(32))} for group in range(9)
    ]
    changed_within(0.05, 'widgets.PlacementExplorer("recurrent", 8)', changes)


@pytest.mark.parametrize("graph", found.GRAPHS)
@pytest.mark.parametrize(("many", "message"), [(1, 0), (2, 4.0), (3, 0.25), (8, 2)])
def test_seconds_bounds_and_methods_are_those_of_the_simulator(graph, many, message):
    of, on = found.GRAPHS[graph][1], Devices(many, Link(message, math.inf))
    placement = [group % many for group in range(len(of))]
    explorer = PlacementExplorer(graph, many, message, placement)
    now = state(explorer)
    assert now["played"]["seconds"] == seconds_of(of, placement, on)
    assert tuple(now["bounds"]) == bounds(of, on)
    for row in now["methods"]:
        own = search(of, on, row["name"].replace(" ", "_"))
        shown = row["seconds"], row["promised"], [*map(int, row["placement"].split(","))]
        assert shown == (own.seconds, own.promised, own.placement)
    seconds = [row["seconds"] for row in now["methods"]] + [now["played"]["seconds"]]
    assert now["best"]["seconds"] == min(seconds) >= max(now["bounds"])


def test_the_answer_of_the_lecture_of_branches():
    """c = 4: greedy promises 13 and is played in 16, one device takes 12, and 11 is the best."""
    explorer = PlacementExplorer("branches", 2, 4.0)
    explorer.settle()
    rows = {row["name"]: row for row in state(explorer)["methods"]}
    assert (rows["greedy"]["promised"], rows["greedy"]["seconds"]) == (13, 16)
    assert rows["one"]["seconds"] == 12 and rows["exhaustive"]["seconds"] == 11
    assert rows["exhaustive"]["samples"] == 32
    assert state(explorer)["answer"] == (
        "The placement takes 12 s on 2 devices; none of 32 takes less than the critical path, 6 s, "
        "or work / devices, 6 s. Best known: 11 s, by random."
    )


def test_bars_are_those_of_the_trace_and_the_critical_path_ends_last():
    explorer = PlacementExplorer(**BASE, placement="0,1,0,2,1,0,2,1,0,0")
    played = state(explorer)["played"]
    bars = played["bars"]
    computed = {bar["stage"]: bar for bar in bars if bar["lane"] == "compute"}
    assert [computed[group]["rank"] for group in range(10)] == devices(explorer)
    sent, got = ([b for b in bars if b["lane"] == lane] for lane in ("send", "recv"))
    assert len(sent) == len(got) == len({(bar["stage"], bar["peer"]) for bar in sent})
    assert bars[played["critical"][-1]]["end"] == played["seconds"]


def test_methods_that_play_many_come_once_the_reader_pauses_and_stay_while_groups_move():
    explorer = PlacementExplorer(**BASE)
    names = [*found.FIRST]
    assert not state(explorer)["settled"] and len(state(explorer)["methods"]) == len(names)
    explorer.settle()
    assert [row["name"] for row in state(explorer)["methods"]][len(names) :] == ["random", "moves"]
    explorer.placement = [0, 1] * 5
    assert state(explorer)["settled"] and len(state(explorer)["methods"]) == len(names) + 2
    explorer.devices = 2
    assert not state(explorer)["settled"]
    explorer.settle()
    assert state(explorer)["methods"][-1]["name"] == "exhaustive"


def test_run_it_runs_the_placement_on_real_ranks():
    explorer = PlacementExplorer("branches", 2, 1.0, "0,0,1,1,1,0")
    assert state(explorer)["run"] is None
    explorer.run()
    ran, trace = state(explorer)["run"], explorer.measured
    assert ran["predicted"] == state(explorer)["played"]["seconds"] == 10
    assert 9.5 < ran["seconds"] < 15  # exact on a quiet machine alone
    spans = trace.only(kind="forward").spans
    assert {*zip(spans.stage.tolist(), spans.rank.tolist(), strict=True)} == {
        *enumerate(devices(explorer))
    }
    assert len(trace.messages) == 5 * 4  # the stem, and three branches
    explorer.message = 2.0
    assert state(explorer)["run"] is None and len(explorer.recorded) == 1
    assert explorer.recorded[0]["message"] == 1.0


def test_another_graph_begins_on_one_device_and_devices_that_go_leave_their_groups():
    explorer = PlacementExplorer(**BASE, placement=[0, 1, 2, 2, 1, 0, 2, 1, 0, 0])
    explorer.devices = 2
    assert devices(explorer) == [0, 1, 1, 1, 1, 0, 1, 1, 0, 0]
    explorer.devices = 4
    assert devices(explorer) == [0, 1, 1, 1, 1, 0, 1, 1, 0, 0]
    explorer.graph = "branches"
    assert devices(explorer) == [0] * 6 and not state(explorer)["error"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("graph", "vgg", "graph='vgg' is unknown: use one of lab, branches, recurrent."),
        ("devices", 9, "devices=9 has to be a whole number from 1 to 8."),
        ("message", -1, "message=-1 has to be a number, 0 or more"),
        ("placement", "0,1", "placement has 2 devices and the graph 10 groups"),
        ("placement", "0,0,0,0,0,0,0,0,0,3", "placement[9]=3 is not a device: they are 0 to 2."),
        ("placement", "much", "placement='much' is not a list of devices"),
        ("placement", 4, "placement=4 is not a list of devices"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = PlacementExplorer(**BASE)
    before = state(explorer)
    assert says in kernel.ask(explorer, "change", values={name: value})["error"]
    assert state(explorer)["played"] == before["played"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before
    with pytest.raises(ValueError):
        PlacementExplorer(**{**BASE, name: value})


def test_other_devices_after_an_invalid_placement_go_on_with_the_last_valid_one():
    explorer = PlacementExplorer(**BASE, placement=[2] * 10)
    explorer.placement = "much"
    explorer.devices = 2
    assert devices(explorer) == [1] * 10 and not state(explorer)["error"]


def test_what_is_learned_is_shown_where_it_was_learned(monkeypatch):
    monkeypatch.setattr(found, "BUDGET", 100)
    explorer = PlacementExplorer(**BASE)
    assert kernel.ask(explorer, "learn") == {}
    lesson = state(explorer)["learned"]
    assert lesson["row"] == state(explorer)["methods"][-1]
    for line in lesson["best"].values():
        assert line == sorted(line, reverse=True) and len(line) == len(lesson["x"])
    assert lesson["best"]["learned"][-1] == lesson["row"]["seconds"]
    assert lesson["at"][0] == 0 and len(lesson["probabilities"]) == found.SHOWN
    for moment in lesson["probabilities"]:
        assert [sum(group) for group in moment] == pytest.approx([1] * 10, abs=0.01)
    explorer.placement = [1] * 10
    assert state(explorer)["learned"] == lesson
    explorer.message = 2.0
    assert state(explorer)["learned"] is None
    explorer.message = 1.0
    assert state(explorer)["learned"] == lesson


def test_a_saved_page_has_the_placement_of_each_method():
    explorer = PlacementExplorer(**BASE)
    pages = json.loads(explorer.saved_state()["pages"])
    for page, row in zip(pages[1:], state(explorer)["methods"], strict=True):
        assert page["controls"]["placement"] == row["placement"]
        assert page["state"]["played"]["seconds"] == row["seconds"]


@pytest.mark.parametrize("graph", found.GRAPHS)
@pytest.mark.parametrize("width", [300, 460, 900])
def test_no_two_groups_are_drawn_over_each_other(graph, width):
    groups = state(PlacementExplorer(graph))["groups"]
    nodes = node.run("placement/graph.js", "return m.placed(v[0], v[1], 212);", groups, width)
    for i, one in enumerate(nodes):
        assert one["radius"] <= one["x"] <= width - one["radius"]
        assert one["radius"] <= one["y"] <= 212 - one["radius"]
        for other in nodes[:i]:
            apart = math.hypot(one["x"] - other["x"], one["y"] - other["y"])
            assert apart > one["radius"] + other["radius"]


@pytest.mark.parametrize("many", [1, 3, 8])
def test_bars_lie_in_their_devices_row_at_their_time(many):
    explorer = PlacementExplorer("lab", many, 1.0, [group % many for group in range(10)])
    now = state(explorer)
    code = "const x = m.scaleOf(v[0], 500); return m.placed(v[0], x, 212);"
    bars = node.run("placement/times.js", code, now)
    row = min(44, (212 - 26 - 20) / many)
    end = max(now["played"]["seconds"], now["best"]["seconds"], *now["bounds"])
    for bar in bars:
        assert 26 + bar["rank"] * row <= bar["y"]
        assert bar["y"] + bar["height"] <= 26 + (bar["rank"] + 1) * row
        assert bar["x"] == pytest.approx(56 + bar["start"] / end * (500 - 56 - 14))
        assert bar["width"] == pytest.approx((bar["end"] - bar["start"]) / end * (500 - 56 - 14))


def test_a_click_and_keys_give_a_group_away_and_both_pictures_select_it(browser):
    explorer = PlacementExplorer(**BASE)
    page, faults = open_page(browser, explorer, explorer.module, views=("one",))

    def settled():
        page.wait_for_function(SETTLED)

    for device in (1, 2, 0, 1):
        page.locator("[data-group='4']").click()
        settled()
        assert devices(explorer) == [device if group == 4 else 0 for group in range(10)]
        assert page.locator("[data-group='4'] circle").first.get_attribute("data-device") == str(
            device
        )
    chosen = page.locator("rect.dlv-chosen[data-lane=compute]")
    assert chosen.count() == 1 and page.locator("[data-group='4'] .dlv-ring").count() == 1
    page.locator(".dlv").focus()
    page.keyboard.press("ArrowRight")  # group 5
    page.keyboard.press("Space")
    settled()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("2")
    settled()
    page.keyboard.press("7")  # there is no such device
    settled()
    assert devices(explorer) == [0, 0, 0, 0, 2, 1, 0, 0, 0, 0]
    page.locator("rect[data-lane=compute]").first.click()
    assert page.locator("[data-group='0'] .dlv-ring").count() == 1
    assert devices(explorer) == [0, 0, 0, 0, 2, 1, 0, 0, 0, 0]
    page.keyboard.press("Escape")
    assert page.locator(".dlv-ring").count() == 0
    page.locator("button", has_text="heft").click()
    settled()
    heft = next(row for row in state(explorer)["methods"] if row["name"] == "heft")
    assert explorer.placement == heft["placement"]
    page.close()
    assert not faults


def test_learn_shows_what_was_learned(browser, monkeypatch):
    monkeypatch.setattr(found, "BUDGET", 50)
    explorer = PlacementExplorer(**BASE)
    page, faults = open_page(browser, explorer, explorer.module, views=("one",))
    assert not page.locator(".dlv-learned").is_visible()
    page.get_by_role("button", name="Learn").click()
    page.locator(".dlv-learned path.dlv-cost").first.wait_for()
    page.wait_for_function(SETTLED)
    assert page.locator(".dlv-chance").count() == 10 * 3
    assert page.locator("button", has_text="learned").count() == 1
    page.close()
    assert not faults
