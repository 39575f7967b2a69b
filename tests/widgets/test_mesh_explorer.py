"""The explorer of meshes: what it predicts of a placement, a run beside it, and every control."""

from __future__ import annotations

import json
import subprocess
import sys

import kernel
import node
import numpy as np
import pytest
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages

from dlviz.analysis.axes import axes
from dlviz.widgets import MeshExplorer
from dlviz.widgets.mesh.run import ORDERS, SLOWER, STEPS, predicted, run

AXES = ("dp", "pp", "tp")


def state(explorer):
    return json.loads(explorer.state)


FRESH = """
import statistics, sys, time
from dlviz.widgets import MeshExplorer
explorer, took = MeshExplorer(), []
for dp, pp, tp, nodes in [(2, 1, 4, 2), (4, 1, 2, 2), (4, 2, 1, 2), (2, 4, 1, 4), (1, 2, 4, 4)]:
    for change in ({"dp": dp, "pp": pp, "tp": tp, "nodes": nodes}, {"slower": 5}, {"slower": 10}):
        began = time.process_time()
        explorer._change(change)
        took.append(time.process_time() - began)
assert "torch" not in sys.modules
print(statistics.median(took[::3]), statistics.median(took[1::3]))
"""


def test_a_control_is_answered_immediately_and_loads_no_torch():
    """Seconds of the processor, whatever else it does; lengths and speeds not sent yet."""
    run = subprocess.run([sys.executable, "-c", FRESH], check=True, capture_output=True, text=True)
    assert max(map(float, run.stdout.split())) < 0.05, run.stdout


def test_tensor_parallel_ranks_belong_inside_a_node():
    reported = state(MeshExplorer())["placements"]
    slow = SLOWER.index(10)
    for order, placement in reported.items():
        last = order.split(",")[-1]
        nearest = order.split(",")[0]  # of nodes of 4, the axis between them
        for axis in AXES:
            between, sent = placement["between"][axis], placement["sent"][axis]
            assert between == (sent if axis == nearest else [0] * 8), (order, axis)
        assert placement["groups"][last][0] == [0, 1]
    tensor_apart = [reported[order]["total"][slow] for order in ORDERS if order.startswith("tp")]
    others = [reported[order]["total"][slow] for order in ORDERS if not order.startswith("tp")]
    assert min(tensor_apart) > 2 * max(others)
    for placement in reported.values():
        assert placement["total"] == sorted(placement["total"])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("dp", 3, "dp=3 is unknown: use one of 1, 2, 4"),
        ("tp", True, "tp=True is unknown"),
        ("tp", "two", "tp='two' is unknown"),
        ("pp", 4, "dp * pp * tp = 16 ranks are more than 8"),
        ("nodes", 3, "nodes=3 is unknown"),
        ("slower", 3, "slower=3 is unknown: use one of 1, 2, 5, 10, 20"),
        ("order", "tp,dp", "order='tp,dp' is not a placement"),
        ("order", ["tp", "dp", "pp"], "is not a placement"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = MeshExplorer()
    before = state(explorer)
    setattr(explorer, name, value)
    after = state(explorer)
    assert says in after["error"] and after["placements"] == before["placements"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer)["error"] == ""
    with pytest.raises(ValueError):
        MeshExplorer(**{name: value})


def test_ranks_that_do_not_fill_the_nodes_are_an_error():
    with pytest.raises(ValueError, match="nodes=4 cannot share 2 ranks evenly"):
        MeshExplorer(1, 1, 2, nodes=4)
    with pytest.raises(ValueError, match="nodes=2 cannot share 1 rank evenly"):
        MeshExplorer(1, 1, 1)


def test_controls_that_change_together_are_shown_together():
    explorer = MeshExplorer()
    values = {"dp": 1, "tp": 4, "order": "tp,dp,pp", "slower": 2}
    assert kernel.ask(explorer, "change", values=values) == {}
    reported = state(explorer)
    assert reported["controls"] | values == reported["controls"]
    whole = state(MeshExplorer(1, 2, 4))["placements"]
    for order, own in reported["placements"].items():
        at = [
            total if slow == 2 else None
            for slow, total in zip(SLOWER, whole[order]["total"], strict=True)
        ]
        assert own["total"] == at and own["sent"] == whole[order]["sent"]
    kernel.ask(explorer, "settle")
    assert state(explorer)["placements"] == whole


def test_a_place_in_the_mesh_and_a_placement_are_those_of_the_kernel():
    reported = state(MeshExplorer(4, 2, 1))
    found = node.run(
        "mesh/state.js",
        """const reported = v[0];
        return Object.keys(reported.placements).map((order) => {
            const controls = { ...reported.controls, order };
            const places = Array.from({ length: 8 }, (_, rank) => m.placeIn(controls, rank));
            const own = m.foresee(reported, { ...controls, slower: 20 });
            return { order, places, own: own.controls, chosen: m.chosen(own) };
        });""",
        reported,
    )
    assert [one["order"] for one in found] == list(ORDERS)
    for one in found:
        placement = reported["placements"][one["order"]]
        assert one["chosen"]["placement"] == placement and one["chosen"]["at"] == 4
        assert one["own"]["order"] == one["order"] and one["own"]["slower"] == 20
        for axis in AXES:
            for group in placement["groups"][axis]:
                others = [{**one["places"][rank], axis: 0} for rank in group]
                assert all(other == others[0] for other in others)
                assert [one["places"][rank][axis] for rank in group] == [*range(len(group))]


def test_an_axis_moves_to_its_new_place():
    moves = [["dp,pp,tp", "tp", 0], ["dp,pp,tp", "dp", 2], ["dp,pp,tp", "pp", 1]]
    found = node.run("mesh/state.js", "return v[0].map((move) => m.movedTo(...move));", moves)
    assert found == ["tp,dp,pp", "pp,tp,dp", "dp,pp,tp"]


def test_ranks_lie_in_their_nodes_and_lines_join_the_ranks_of_a_group():
    picture = node.run(
        "mesh/geometry.js", "return m.pictureOf(2, 8, [[0, 4], [1, 5], [2, 3]], 800);"
    )
    for rank, box in enumerate(picture["ranks"]):
        around = picture["nodes"][rank // 4]
        assert around["x"] < box["x"] and box["x"] + box["width"] < around["x"] + around["width"]
    link = picture["link"]
    *apart, near = [
        [float(part) for part in one["path"].replace("M", "").replace("V", " ").replace("H", " ")
         .split()] for one in picture["groups"]
    ]  # fmt: skip
    for x1, _, turn, x2, _ in apart:
        assert link["y"] < turn < link["y"] + link["height"] and x2 - x1 > 300
    assert near[2] < picture["ranks"][2]["y"]
    assert node.run("mesh/geometry.js", "return m.pictureOf(1, 2, [[0, 1]], 800).link;") is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_a_run_takes_what_is_predicted_however_late_its_ranks_are():
    """By the device clock, where no link is shared."""
    values = {"order": "dp,pp,tp", "dp": 1, "pp": 2, "tp": 2, "nodes": 1, "slower": 1}
    found, _ = run(values, lambda *_: None)
    assert found["total"] == pytest.approx(predicted(**values).total, rel=0.02)


LINK, NODE = (f'svg [data-place="{place}"] > rect' for place in (0, 2))


class Page(ExplorerPage):
    """What else this explorer has."""

    @property
    def answer(self):
        return self.root.locator(".dlv-cheapest").inner_text()

    def order(self):
        chips = self.root.locator(".dlv-meshchip").all()
        return ",".join(
            chip.get_attribute("data-axis")
            for chip in sorted(chips, key=lambda one: one.get_attribute("data-place"))
        )

    def drag(self, axis, onto):
        """By what it says of its length; what it is over is marked, and nothing else."""
        self.root.locator(f".dlv-meshchip[data-axis={axis}] .dlv-meshlength").hover()
        self.page.mouse.down()
        # immediately: what is drawn may be drawn anew meanwhile
        box = self.root.evaluate(f"root => root.querySelector('{onto}').getBoundingClientRect()")
        self.page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2, steps=4)
        assert self.root.locator("[data-onto]").count() <= 1
        self.page.mouse.up()
        assert self.root.locator("[data-onto]").count() == 0


@pytest.mark.sweep  # test_every_explorer moves every control
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_every_control_answers_and_what_ran_is_shown_without_a_kernel(browser, tmp_path):
    explorer = MeshExplorer(2, 1, 2)
    page, faults = open_page(browser, explorer, "mesh/index", ["one"])
    shown = Page(page)
    root = shown.root
    for name, value in {"nodes": "1", "pp": "2", "dp": "1", "tp": "4"}.items():
        shown.control(name).select_option(value)
        page.wait_for_function(SETTLED)
        assert str(state(explorer)["controls"][name]) == value, name
        assert root.locator("[data-rank]").count() == explorer.dp * explorer.pp * explorer.tp
    for name, value in {"nodes": "2", "tp": "2", "dp": "2"}.items():
        shown.control(name).select_option(value)
        page.wait_for_function(SETTLED)
    shown.slide("between them", 4)
    assert "20× slower" in root.locator(".dlv-toolbar").inner_text()
    page.wait_for_function(SETTLED)
    assert explorer.slower == 20

    shown.drag("tp", LINK)
    assert shown.order() == "tp,dp,pp"
    page.wait_for_function(SETTLED)
    assert explorer.order == "tp,dp,pp" and "The fastest placement takes" in shown.answer
    assert "the 4 groups of tp" in root.inner_text()
    shown.drag("dp", NODE)
    assert shown.order() == "tp,pp,dp"
    shown.drag("tp", ".dlv-meshchip[data-axis=pp]")
    assert shown.order() == "pp,tp,dp"
    page.wait_for_function(SETTLED)
    root.locator(".dlv-meshchip[data-axis=dp]").click()  # no drag: its groups are shown
    assert "groups of dp" in root.inner_text() and shown.order() == "pp,tp,dp"
    root.locator(".dlv-meshchip[data-axis=tp]").focus()  # keys move the one with the focus
    assert "groups of tp" in root.inner_text()
    root.locator(".dlv-meshchip[data-axis=dp]").focus()
    for key, order in {"ArrowLeft": "pp,dp,tp", "ArrowRight": "pp,tp,dp"}.items():
        page.keyboard.press(key)
        assert shown.order() == order
    page.keyboard.press("ArrowRight")  # it is the last
    assert shown.order() == "pp,tp,dp"
    page.keyboard.press("a")
    assert "groups of pp" in root.inner_text()
    assert root.locator(".dlv-meshchip:focus").get_attribute("data-axis") == "pp"
    shown.control("tp, tensor: its groups").click()
    assert "groups of tp" in root.inner_text()
    tp = explorer.payload()["placements"]["pp,tp,dp"]["groups"]["tp"]
    for number, group in enumerate(tp):
        drawn = root.locator(f"[data-group='{number}']").all()
        assert [int(one.get_attribute("data-rank")) for one in drawn] == [*group]
    root.locator("[data-rank='3']").hover()
    assert "rank 3: dp 1, pp 0, tp 1" in root.locator(".dlv-tip:visible").inner_text()
    page.wait_for_function(SETTLED)

    shown.control("dp").select_option("4")
    shown.control("pp").select_option("4")
    page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
    assert "more than 8" in root.locator(".dlv-trouble").inner_text()
    shown.control("pp").select_option("1")
    shown.control("dp").select_option("2")
    shown.slide("between them", 0)  # a short run
    page.wait_for_function(SETTLED)
    shown.control("run it on real ranks").click()
    page.wait_for_function(
        "() => document.querySelector('.dlv-cheapest').textContent.includes('measured')",
        timeout=90_000,
    )
    ran = state(explorer)["runs"][-1]["run"]
    reported = explorer.payload()["placements"][explorer.order]
    assert [ran["sent"], ran["between"]] == [reported["sent"], reported["between"]]
    last = axes(explorer.measured, step=STEPS - 1)
    assert ran["sent"]["dp"] == last["dp"].sent.tolist() and ran["sent"]["pp"] == [0] * 4
    # Messages of late ranks queue on the shared link in another order, and later.
    assert ran["total"] > 0.98 * predicted(**explorer._now).total
    page.close()

    explorer.order, explorer.dp, explorer.tp = "dp,pp,tp", 1, 4
    explorer.pp = 4  # with what is wrong it is as high as it gets
    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector("[data-rank]")
    ) as show:
        saved = show(explorer, width=833, height=680)
        root = saved.root
        assert root.locator(".dlv-trouble").inner_text()
        assert root.bounding_box()["height"] <= 640
        assert saved.control("dp").is_disabled() and saved.control("nodes").is_disabled()
        assert "measured" not in saved.answer
        assert "as fast as inside" in root.inner_text()
        saved.slide("between them", 4)
        assert "20 times slower" in root.inner_text()
        saved.drag("tp", LINK)
        assert saved.order() == "tp,dp,pp"
        saved.control("recorded runs").select_option(index=1)
        assert "measured" in saved.answer and saved.order() == "pp,tp,dp"
        assert root.locator("[data-rank]").count() == 4
        assert root.bounding_box()["height"] <= 640
        rows = root.locator(".dlv-ran").all_inner_texts()
        for axis, row in zip(AXES, rows, strict=True):
            assert f"{np.sum(ran['between'][axis]):,}" in row
    assert not faults
