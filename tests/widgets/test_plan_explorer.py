"""The explorer of plans: which plan it calls best, where memory cuts, what it runs, every control."""

from __future__ import annotations

import json
import subprocess
import sys

import node
import numpy as np
import pytest
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages

from dlviz.metrics import step_seconds
from dlviz.sim import TransformerShape, plans
from dlviz.widgets import PlanExplorer
from dlviz.widgets.plans import COLUMNS, LAB, PARTS, SHAPES, machine_of

PLAN = (2, 2, 2, 2, "1f1b", "none")
V100 = {
    "model": "Megatron-LM 8.3 B",
    "device": "V100 SXM2 32GB",
    "inside": "NVLink 2",
    "between": "InfiniBand EDR",
    "node": 16,
}


def state(explorer):
    return json.loads(explorer.state)


def name_of(row):
    return [row[part] for part in PARTS]


def rows_of(told, order):
    """The plans of the front end's columns, in its `order`."""
    return [{name: told["plans"][name][i] for name in COLUMNS} for i in order]


FILTER = """
const [told, limits] = v;
return limits.map((memory) => {
  const controls = { ...told.controls, memory };
  const meshes = m.meshesOf(told.plans, m.limitOf(told, controls));
  return { best: m.bestOf(told.plans, m.limitOf(told, controls)), chosen: m.chosenOf(told, controls),
    meshes, order: meshes.flatMap(({ plans }) => plans) };
});
"""


def test_the_best_within_a_limit_is_that_of_the_planner():
    """The front end filters alone: the planner is asked anew for each limit."""
    explorer = PlanExplorer()
    told = state(explorer)
    need = sorted({row["memory"] for row in explorer.plans})
    limits = [need[0] - 1, need[0], need[len(need) // 2], need[-1]]
    for limit, found in zip(limits, node.run("plans/state.js", FILTER, told, limits), strict=True):
        rows = plans(SHAPES[LAB], machine_of(told["controls"]), 8, 16, memory=limit)
        fit = [row for row in rows if row["fits"]]
        assert sorted(found["order"]) == [*range(len(rows))]
        explorer.memory = limit
        assert sum(row["fits"] for row in explorer.plans) == len(fit)
        (chosen,) = rows_of(told, [found["chosen"]])
        assert name_of(chosen) == name_of(explorer._chosen(explorer._now))
        if not fit:
            assert found["best"] == -1
            assert chosen["memory"] == need[0]
            continue
        (best,) = rows_of(told, [found["best"]])
        assert best["seconds"] == fit[0]["seconds"] and best["memory"] <= limit
        firsts = rows_of(told, [mesh["first"] for mesh in found["meshes"]])
        lacks = [max(0, row["memory"] - limit) for row in firsts]
        assert lacks == sorted(lacks) and firsts[0] == best
        for mesh in found["meshes"]:
            own = rows_of(told, mesh["plans"])
            assert len({(row["dp"], row["tp"], row["pp"]) for row in own}) == 1
            seconds = [row["seconds"] for row in own if row["memory"] <= limit]
            assert seconds == sorted(seconds)
            if seconds:
                assert rows_of(told, [mesh["first"]])[0]["seconds"] == seconds[0]


SAYS = """
const [told, limits] = v;
return limits.map((memory) => m.answerWords(told, { ...told.controls, memory }));
"""


def test_the_sentence_names_the_best_and_how_many_bytes_the_others_lack():
    told = state(PlanExplorer())
    many, memory = len(told["plans"]["memory"]), told["plans"]["memory"]
    none, some, every = node.run(
        "plans/words.js", SAYS, told, [min(memory) - 1, min(memory), max(memory)]
    )
    assert none.startswith(f"None of {many} plans fits in ") and none.endswith("1 byte too much.")
    fit = sum(own <= min(memory) for own in memory)
    assert some.startswith(f"{fit} of {many} plans fit in ")
    assert "The fastest of all takes" in some and " times less and lacks " in some
    first = rows_of(told, [0])[0]
    assert every.startswith(f"All {many} plans fit in ") and "fastest of all" not in every
    assert f"dp {first['dp']} × tp {first['tp']} × pp {first['pp']}" in every


MAP = """
const [plans, limit, width, height] = v;
const drawn = m.mapOf(plans, limit, width, height);
return { ...drawn, found: drawn.points.map(([x, y]) => m.planAt(drawn, x + 1, y - 1)),
  far: m.planAt(drawn, 1, 1) };
"""


def test_a_plan_that_fails_lies_beyond_the_limit_on_the_map():
    explorer = PlanExplorer()
    told, width, height = state(explorer)["plans"], 780, 200
    limit = float(np.median(told["memory"]))
    drawn = node.run("plans/geometry.js", MAP, told, limit, width, height)
    points = np.array(drawn["points"])
    fits = np.array(told["memory"]) <= limit
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
def test_a_value_that_cannot_be_is_told_and_changes_nothing_else(name, value, says):
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
    assert explorer.model == "2 layers of 32" and explorer.model in state(explorer)["models"]
    assert {row["dp"] * row["tp"] * row["pp"] for row in explorer.plans} == {2}
    explorer.model = TransformerShape(6, 48, 4, 128, 16)
    assert explorer.model == "6 layers of 48" and not state(explorer)["error"]
    (axes,) = explorer.picture().axes
    assert axes.get_xlabel() == "memory limit, GB a device"


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
import statistics, sys, time
from dlviz.widgets import PlanExplorer
explorer = PlanExplorer(devices=512, batch=512, **{V100})
took = []
for step in range(12):
    for change in ({"memory": 1e9 * (step + 1)}, {"batch": 256 + 64 * step}, {"node": 8 + 8 * (step % 2)}):
        began = time.process_time()
        explorer._change(change)
        took.append(time.process_time() - began)
    explorer.settle()
assert "torch" not in sys.modules
print(statistics.median(took))
"""


def test_a_slider_is_answered_at_once_and_loads_no_torch():
    """Seconds of the processor, whatever else it does."""
    code = FRESH.replace("{V100}", repr(V100))
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(run.stdout) < 0.05
