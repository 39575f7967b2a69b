"""The explorer of plans: which it calls best, where memory cuts, what it runs, every control."""

from __future__ import annotations

import json

import node
import numpy as np
import pytest
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages
from timing import answered_within

from dlviz.analysis.steps import seconds_between_ends
from dlviz.sim import TransformerShape, plans
from dlviz.widgets import PlanExplorer
from dlviz.widgets.plans.explorer import COLUMNS, LAB, PARTS, SHAPES, machine_of

PLAN = (2, 2, 2, 2, "1f1b", "none")
SMALL = (1, 2, 2, 1, "1f1b", "none")  # of two sequences: a step of half a second
V100 = {
    "model": "Megatron-LM 8.3 B",
    "device": "V100 SXM2 32GB",
    "inside": "NVLink 2",
    "between": "InfiniBand HDR",
    "node": 16,
}


def state(explorer):
    return json.loads(explorer.state)


def name_of(row):
    return [row[part] for part in PARTS]


def rows_of(reported, order):
    """The plans of the front end's columns, in its `order`."""
    return [{name: reported["plans"][name][i] for name in COLUMNS} for i in order]


FILTER = """
const [reported, limits] = v;
return limits.map((memory) => {
  const controls = { ...reported.controls, memory };
  const meshes = m.meshesOf(reported.plans, memory);
  return { best: m.bestOf(reported.plans, memory), chosen: m.chosenOf(reported, controls), meshes,
    order: meshes.flatMap(({ plans }) => plans) };
});
"""


def test_the_best_within_a_limit_is_that_of_the_planner():
    """The front end filters alone: the planner is asked anew for each limit."""
    explorer = PlanExplorer()
    reported = state(explorer)
    need = sorted({row["memory"] for row in explorer.plans})
    limits = [need[0] - 1, need[0], need[len(need) // 2], need[-1]]
    for limit, found in zip(
        limits, node.run("plans/state.js", FILTER, reported, limits), strict=True
    ):
        rows = plans(
            SHAPES[LAB], machine_of(reported["controls"]), 8, 16,
            memory=limit, itemsize=4, parameter_bytes=8,
        )  # fmt: skip
        fit = [row for row in rows if row["fits"]]
        assert sorted(found["order"]) == [*range(len(rows))]
        explorer.memory = limit
        assert sum(row["fits"] for row in explorer.plans) == len(fit)
        (chosen,) = rows_of(reported, [found["chosen"]])
        assert name_of(chosen) == name_of(explorer._chosen(explorer._now))
        if not fit:
            assert found["best"] == -1
            assert chosen["memory"] == need[0]
            continue
        (best,) = rows_of(reported, [found["best"]])
        assert best["seconds"] == fit[0]["seconds"] and best["memory"] <= limit
        firsts = rows_of(reported, [mesh["first"] for mesh in found["meshes"]])
        lacks = [max(0, row["memory"] - limit) for row in firsts]
        assert lacks == sorted(lacks) and firsts[0] == best
        for mesh in found["meshes"]:
            own = rows_of(reported, mesh["plans"])
            assert len({(row["dp"], row["tp"], row["pp"]) for row in own}) == 1
            seconds = [row["seconds"] for row in own if row["memory"] <= limit]
            assert seconds == sorted(seconds)
            if seconds:
                assert rows_of(reported, [mesh["first"]])[0]["seconds"] == seconds[0]


SAYS = """
const [reported, limits] = v;
return limits.map((memory) => m.answerWords(reported, { ...reported.controls, memory }));
"""


def test_the_sentence_names_the_best_and_how_many_bytes_the_others_lack():
    reported = state(PlanExplorer())
    many, memory = len(reported["plans"]["memory"]), reported["plans"]["memory"]
    none, some, every = node.run(
        "plans/words.js", SAYS, reported, [min(memory) - 1, min(memory), max(memory)]
    )
    smallest = rows_of(reported, [memory.index(min(memory))])[0]
    where = f" on stage {smallest['stage']}, 1 byte too much."
    assert none.startswith(f"None of {many} plans fits in ") and none.endswith(where)
    assert smallest["pp"] > 1
    fit = sum(own <= min(memory) for own in memory)
    assert some.startswith(f"{fit} of {many} plans fit in ")
    assert "The fastest of all is" in some and " times as fast and needs " in some
    first = rows_of(reported, [0])[0]
    assert every.startswith(f"All {many} plans fit in ") and "fastest of all" not in every
    assert f"dp {first['dp']} × tp {first['tp']} × pp {first['pp']}" in every


LINES = "const [reported, i] = v; return m.planLines(reported, i, 1e9);"


def test_a_plan_shows_the_bytes_that_a_rank_sends_exposed_along_each_axis():
    explorer = PlanExplorer()
    reported, rows = state(explorer), explorer.plans
    for i in (0, next(i for i, row in enumerate(rows) if name_of(row) == list(PLAN))):
        (words,) = (
            line for line in node.run("plans/words.js", LINES, reported, i) if "exposed" in line
        )
        for axis in ("dp", "tp", "pp"):
            sent = round(rows[i][f"{axis}_bytes"])
            assert reported["plans"]["sent"][axis][i] == sent
            assert (f"{axis} " in words) == (rows[i][axis] > 1) == (sent > 0)
    assert words == "a rank sends exposed: dp 234 KB, tp 1.19 MB, pp 49.2 KB"


WHERE = "const [data, limit] = v; return data.plans.pp.map((_, i) => m.limitWords(data, i, limit));"


def test_a_plan_that_fails_names_its_bytes_and_its_fullest_stage():
    explorer = PlanExplorer(memory=1.5e6)
    reported = state(explorer)
    words = node.run("plans/words.js", WHERE, reported, 1.5e6)
    for row, said in zip(explorer.plans, words, strict=True):
        ends = f"on stage {row['stage']}" if row["pp"] > 1 else "on each rank"
        assert said.startswith("fails by ") == said.endswith(f"B {ends}") == (not row["fits"])
    stages = {row["stage"] for row in explorer.plans if not row["fits"]}
    assert len(stages) > 1


def test_where_there_is_no_plan_a_run_says_why():
    explorer = PlanExplorer(devices=7, batch=5, node=7)
    explorer.run()
    assert "no dp, tp and pp whose product" in state(explorer)["run"]["error"]


def test_the_former_plans_are_shown_until_a_large_table_is_there():
    explorer = PlanExplorer(devices=64, batch=32)
    before = state(explorer)
    explorer.batch = 64
    assert state(explorer)["settled"] and state(explorer)["plans"] != before["plans"]
    before = state(explorer)
    explorer.model = "GPT-2 XL"
    former = state(explorer)
    assert not former["settled"] and former["plans"] == before["plans"] and former["plans"]["dp"]
    answer = node.run("plans/words.js", "return m.answerWords(v[0], v[0].controls);", former)
    assert answer == "Computing all plans …"
    explorer.settle()
    reported = state(explorer)
    assert reported["settled"] and reported["plans"]["dp"] == [row["dp"] for row in explorer.plans]


MAP = """
const [plans, limit, width, height] = v;
const drawn = m.mapOf(plans, limit, width, height);
return { ...drawn, found: drawn.points.map(([x, y]) => m.planAt(drawn, x + 1, y - 1)),
  far: m.planAt(drawn, 1, 1) };
"""


def test_plans_alike_have_marks_between_them_on_the_map():
    plans_ = {"memory": [1.45e12, 1.6e12, 3.1e12], "seconds": [3.9, 4.6, 5.8]}
    drawn = node.run("plans/geometry.js", "return m.mapOf(v[0], 8e10, 824, 170);", plans_)
    assert [mark["value"] for mark in drawn["across"]] == [1.5e12, 2e12, 3e12]
    assert [mark["value"] for mark in drawn["up"]] == [5, 7]


@pytest.mark.parametrize("width", [780, 848, 1200])
def test_the_buttons_of_files_stand_beside_other_controls(browser, width):
    page, faults = open_page(browser, PlanExplorer(), "plans/index")
    page.set_viewport_size({"width": width, "height": 900})
    rows = page.locator(".one .dlv-toolbar").evaluate("""toolbar => {
        const groups = [...toolbar.children].filter(one => one.matches("span:not(.dlv-end)"))
            .map(one => one.getBoundingClientRect()).filter(box => box.width);
        return groups.map(({ top, height }) => Math.round(top + height / 2));
    }""")
    assert len(rows) == 10 and rows.count(rows[-1]) > 1 and len(set(rows)) <= 3
    assert not faults
    page.close()


def test_a_plan_that_fails_lies_beyond_the_limit_on_the_map():
    explorer = PlanExplorer()
    reported, width, height = state(explorer)["plans"], 780, 200
    limit = float(np.median(reported["memory"]))
    drawn = node.run("plans/geometry.js", MAP, reported, limit, width, height)
    points = np.array(drawn["points"])
    fits = np.array(reported["memory"]) <= limit
    assert (points[fits, 0] <= drawn["cut"] + 1e-6).all()
    assert (points[~fits, 0] > drawn["cut"]).all() and fits.any() and not fits.all()
    assert (points >= 0).all() and (points <= [width, height]).all()
    assert (np.diff(points[:, 1]) <= 1e-9).all()  # the fastest first: from below upwards
    assert drawn["far"] == -1
    for i, found in enumerate(drawn["found"]):
        assert np.hypot(*(points[found] - points[i])) < 3  # itself, or one that covers it
    for marks, least in (("across", 60), ("up", 30)):
        at = sorted(mark["at"] for mark in drawn[marks])
        assert len(at) >= 2 and (np.diff(at) >= least).all()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("model", "GPT-9", "model='GPT-9' is unknown: use one of lab Transformer,"),
        ("device", "abacus", "device='abacus' is unknown: use one of lab, V100"),
        ("between", "string", "between='string' is unknown"),
        ("devices", 0, "devices=0 has to be a whole number from 1 to 4096"),
        ("devices", 10, "devices=10 do not fill nodes of 4: use a multiple of 4, or another node"),
        ("batch", 2.5, r"batch=2.5 has to be a whole number from 1 to"),
        ("node", True, "node=True has to be"),
        ("memory", -1, "memory=-1 has to be bytes above 0, or None for all of them"),
        ("memory", "much", "memory='much' has to be"),
        ("plan", (8, 1, 1), r"plan=\(8, 1, 1\) has to be \(dp, tp, pp, microbatch, schedule,"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = PlanExplorer()
    before = state(explorer)
    with pytest.raises(ValueError, match=says) as refused:
        PlanExplorer(**{**before["controls"], name: value})
    setattr(explorer, name, value)
    after = state(explorer)
    assert after["error"] == str(refused.value) and after["plans"] == before["plans"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before


def test_a_shape_of_the_readers_own_is_one_of_the_models():
    explorer = PlanExplorer(TransformerShape(2, 32, 2, 128, 16), devices=2, batch=4)
    assert explorer.model == "2 layers of 32" and explorer.model in str(state(explorer)["form"][0])
    assert {row["dp"] * row["tp"] * row["pp"] for row in explorer.plans} == {2}
    explorer.model = TransformerShape(6, 48, 4, 128, 16)
    assert explorer.model == "6 layers of 48" and not state(explorer)["error"]
    (axes,) = explorer.picture().axes
    assert axes.get_xlabel() == "memory limit, MB a device" and axes.get_yscale() == "linear"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "GPT-2 XL"}, "The lab Transformer can be run here"),
        ({"device": "H100 SXM"}, "these devices are too fast"),
        ({"devices": 16}, "At most 8 ranks can be run here"),
        ({"plan": (1, 2, 4, 4, "1f1b", "full")}, "run without recomputation"),
    ],
)
def test_a_plan_that_cannot_be_run_says_why(change, says):
    explorer = PlanExplorer(**{"plan": PLAN, **change})
    assert says in state(explorer)["long"]
    explorer.run()
    assert says in state(explorer)["run"]["error"] and explorer.measured is None


FRESH = """
import json, statistics, sys, time
from dlviz.widgets import PlanExplorer
from dlviz.widgets.plans.explorer import WIRES
few, many = PlanExplorer(), PlanExplorer(devices=512, batch=512, **{V100})
some = PlanExplorer(devices=64, batch=64)
moves = {
    "link, few devices": [(few, {"inside": name}) for name in [*WIRES][1:8]],  # all together
    "link, 64 devices and sequences": [(some, {"inside": name}) for name in [*WIRES][1:8]],
    "memory, many": [(many, {"memory": 1e9 + step}) for step in range(8)],
    "batch, many": [(many, {"batch": 256 + 32 * step}) for step in range(8)],
}
for name, changes in moves.items():
    took = []
    for explorer, change in changes:
        began = time.process_time()
        explorer._change(change)
        took.append(time.process_time() - began)
        reported = json.loads(explorer.state)
        assert reported["plans"]["dp"] and reported["settled"] == (name != "batch, many")
    print(name, statistics.median(took), sep=":")
assert "torch" not in sys.modules
"""


def test_a_slider_is_answered_immediately_and_loads_no_torch():
    """Seconds of the processor; the median of changes that cost the same. All show plans."""
    code = FRESH.replace("{V100}", repr(V100))
    answered_within(0.05, code, controls=4)


OPACITY = "shown => getComputedStyle(shown).opacity"
HEAD = """box => {
    box.scrollTop = box.scrollHeight;
    const { left, top } = box.getBoundingClientRect();
    return document.elementFromPoint(left + 9, top + 9).closest("thead") !== null;
}"""


class Page(ExplorerPage):
    """What else this explorer has."""

    @property
    def answer(self):
        return self.root.locator(".dlv-cheapest").inner_text()

    @property
    def row(self):
        return self.root.locator(".dlv-plans [aria-selected=true]")

    def height(self):
        return self.root.bounding_box()["height"]


@pytest.mark.sweep  # test_every_explorer moves every control
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_every_control_answers_and_what_ran_is_shown_without_a_kernel(browser, tmp_path):
    explorer = PlanExplorer()
    page, faults = open_page(browser, explorer, "plans/index", ["one"])
    shown = Page(page)
    changes = {
        "batch": lambda: shown.slide("batch", 3),
        "batch typed": lambda: shown.enter("batch, sequences", "12"),
        "devices typed": lambda: shown.enter("devices, in all", "4"),
        "devices": lambda: shown.slide("devices", 5),
        "node": lambda: shown.enter("node, devices", "2"),
        "device": lambda: shown.control("device").select_option("A100 80GB SXM"),
        "model": lambda: shown.control("model").select_option("GPT-2 XL"),
        "inside": lambda: shown.control("inside").select_option("NVLink 3"),
        "between": lambda: shown.control("between").select_option("InfiniBand HDR"),
        "memory": lambda: shown.slide("memory limit", 120),
        "plan by key": lambda: shown.root.press("ArrowDown"),
        "its memory by key": lambda: shown.root.press("ArrowRight"),
        "best by key": lambda: shown.root.press("b"),
        "plan by its row": lambda: shown.root.locator(".dlv-meshrow button").nth(2).click(),
        "all memory": lambda: shown.control("all memory of a device").click(),
        "plan cleared": lambda: shown.root.press("Escape"),
        "many devices": lambda: shown.enter("devices, in all", "64"),
        "more than is computed immediately": lambda: shown.enter("batch, sequences", "64"),
    }
    for name, change in changes.items():
        before = state(explorer)["controls"]
        change()
        page.wait_for_function(SETTLED)
        if name == "more than is computed immediately":
            page.wait_for_selector(".dlv-plans[aria-busy=true]")
            assert shown.root.locator(".dlv-planmap .dlv-plan").count(), "the former ones, dimmed"
            assert shown.control("run it on real ranks").is_disabled()
        page.wait_for_selector(".dlv-plans[aria-busy=false]")
        reported = state(explorer)
        assert reported["controls"] != before and not reported["error"], name
        many, fit = len(explorer.plans), sum(row["fits"] for row in explorer.plans)
        assert f"{fit} of {many} plans" in shown.answer or f"All {many} plans" in shown.answer, name
        chosen = explorer._chosen(explorer._now)
        assert f"microbatch {chosen['microbatch']}" in shown.row.inner_text(), name
        assert shown.height() <= 640, name

    columns = "them => them.map(it => it.getBoundingClientRect().right)"
    heads = shown.root.locator(".dlv-plans thead th").evaluate_all(columns)
    for row in (".dlv-meshrow", ".dlv-variant"):
        cells = shown.root.locator(f"{row} >> nth=0").locator("th, td").evaluate_all(columns)
        assert cells == pytest.approx(heads), row  # each below its head
    points = shown.root.locator(".dlv-plan:not(.dlv-dim)").first.get_attribute("d")
    x, y = (float(part) for part in points[1:].split("h")[0].split())
    box = shown.root.locator(".dlv-planmap").bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert shown.root.locator(".dlv-tip strong").inner_text().startswith("dp ")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function(SETTLED)
    assert explorer.plan is not None
    limit = shown.root.locator(".dlv-limit").bounding_box()
    page.mouse.move(limit["x"] + limit["width"] / 2, limit["y"] + 3)
    page.mouse.down()
    page.mouse.move(limit["x"] - 60, limit["y"] + 3)
    page.mouse.up()
    page.wait_for_function(SETTLED)
    assert 0 < explorer.memory < 80e9

    shown.enter("devices, in all", "many")
    page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
    assert "devices = “many” has" in shown.root.locator(".dlv-trouble").inner_text()
    assert float(shown.root.locator(".dlv-planmap").evaluate(OPACITY)) < 0.5, "it is of 64 devices"
    assert shown.height() <= 640
    shown.enter("devices, in all", "8")
    page.wait_for_function(SETTLED)
    assert shown.root.locator(".dlv-planmap").evaluate(OPACITY) == "1"
    assert shown.control("run it on real ranks").is_disabled()
    small = PlanExplorer(devices=4, batch=2, plan=SMALL)
    for name in small.names:
        setattr(explorer, name, getattr(small, name))
    page.evaluate("text => model.set('state', text)", explorer.state)
    shown.root.press("r")
    page.wait_for_function("() => document.querySelector('.dlv-ran')", timeout=90_000)
    reported = state(explorer)
    (recorded,) = reported["runs"]
    row = next(row for row in explorer.plans if name_of(row) == list(SMALL))
    assert recorded["run"]["seconds"] == seconds_between_ends(explorer.measured, "wall")
    # By the device clock, which no other program holds up.
    assert seconds_between_ends(explorer.measured) == pytest.approx(row["seconds"], rel=0.02)
    assert recorded["run"]["memory"] > row["memory"] / 2
    assert recorded["run"]["exposed"]["tp"] > 0 and shown.height() <= 640
    measured = shown.root.locator(".dlv-ran td").all_inner_texts()
    rows, ran = (shown.root.locator(which).bounding_box() for which in (".dlv-plans", ".dlv-ran"))
    assert ran["y"] + ran["height"] <= rows["y"] + rows["height"] + 1  # in view
    page.close()

    explorer.plan = None
    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector(".dlv-plan")
    ) as show:
        saved = show(explorer, width=833, height=680)
        assert saved.control("model").is_disabled() and saved.control("devices").is_disabled()
        assert not saved.root.locator(".dlv-ran").count()
        saved.control("recorded runs").select_option(index=1)
        assert saved.root.locator(".dlv-ran td").all_inner_texts() == measured
        before = saved.answer
        saved.slide("memory limit", 20)
        assert saved.answer != before and saved.height() <= 640
        assert saved.root.locator(".dlv-failing").count() > 3
        assert saved.root.locator(".dlv-plans").evaluate(HEAD), "rows that fail pass below the head"
        saved.root.focus()
        saved.page.keyboard.press("ArrowDown")
        assert not saved.root.locator(".dlv-ran").count()
    assert not faults
