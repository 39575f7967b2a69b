"""The figures that the text of lab 10 states, by formulas and by counting the real module."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import combinations
from pathlib import Path

import nbformat
import pytest
from test_labs_stored import shown, table

from dlviz.machine import Device, Link, Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.metrics import bubble_ratio
from dlviz.models import Transformer
from dlviz.schedules import make
from dlviz.sim import (
    Costs,
    TransformerShape,
    plans,
    simulate,
    transformer_flops,
    transformer_parameters,
)
from dlviz.sim.mesh import MeshStep, mesh_step
from dlviz.widgets import MeshExplorer, PlanExplorer

LAB = Path(__file__).parents[2] / "labs" / "10_three_axes.ipynb"
PAGE = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
NET = Transformer(4, 64, 4, 128, 64)
TENSOR = 4 * 2 * 64 * 64  # bytes of the activations of a microbatch
SIZES = {"layers": 4, "hidden": 64, "vocabulary": 128, "sequence": 64}
DEVICE = Device("slow", flops=3e8, memory=1e9, memory_bandwidth=2e8)
FAST, SLOW = Link(0, 20e6), Link(0, 2e6)
PLANS = [  # dp, pp, tp
    (dp, pp, tp) for dp in (1, 2, 4, 8) for pp in (1, 2, 4) for tp in (1, 2, 4) if dp * pp * tp == 8
]


def on_rank(stage: int) -> int:
    """Parameters of a rank, two stages of two layers, each cut over two ranks."""
    shapes = {name: p.numel() for name, p in NET.named_parameters()}
    count = 0
    for name, number in shapes.items():
        if name.startswith("blocks."):
            if int(name.split(".")[1]) // 2 == stage:
                whole = "norm" in name or name.endswith(("output.bias", "down.bias"))
                count += number if whole else number // 2
        elif name.startswith("tokens"):
            count += number // 2  # the first stage reads it, the last one computes scores with it
        elif ("positions" in name) == (stage == 0):
            count += number
    return count


def answer(question: str) -> str:
    """What the lecturers' page says below the heading that holds `question`."""
    (found,) = re.findall(rf"^### .*{re.escape(question)}.*\n((?:(?!^###).*\n)*)", PAGE, re.M)
    return found


def step(machine: Machine, batch: int, **axes: int) -> MeshStep:
    """Of the lab's model, the axes from the slowest to the fastest."""
    return mesh_step(axes, machine, **SIZES, batch=batch, microbatches=4)


def placed(inside: Link, *order: str) -> float:
    """Seconds of the lab's cube on two racks of four."""
    racks = Topology.racks(2, 4, inside, SLOW)
    return step(Machine(DEVICE, racks, None), 16, **dict.fromkeys(order, 2)).total


def test_the_model_has_the_parameters_that_the_text_states():
    assert sum(p.numel() for p in NET.parameters()) == 212_352 and "212,352 parameters" in TEXT


def test_the_bytes_of_a_microbatch():
    assert TENSOR == 32_768 and "32,768 bytes" in TEXT
    assert "the gradient of the embedding, 16,384 bytes" in TEXT
    assert 128 // 2 * 64 * 4 == 16_384


def test_a_rank_of_the_second_stage_has_the_bytes_that_the_lecturers_page_states():
    assert f"{on_rank(1):,} parameters of 4 bytes" in PAGE
    assert f"The first stage has {on_rank(0):,}" in PAGE
    assert f"**{16 * on_rank(0):,} bytes** = 16 · {on_rank(0):,}" in PAGE
    assert f"**{100 * on_rank(0) / 212_352:.1f} %**: {on_rank(0):,} of 212,352" in PAGE
    assert f"**{2 * 4 * 4 * TENSOR:,}** = 2 layers · 4 all-reduces" in PAGE
    assert f"**{4 * TENSOR:,}** = 4 microbatches" in PAGE


def test_the_slow_link_carries_what_the_text_states():
    dp, tp = (on_rank(0) + on_rank(1)) / 2 * 4, 36 * TENSOR
    assert f"{dp / 1e6:.2f} MB of gradients" in TEXT and f"{tp / 1e6:.2f} MB of activations" in TEXT
    assert f"(0.78 + {4 * tp / 2e6:.2f}) / (0.78 + {4 * dp / 2e6:.2f}) = 2.55" in PAGE
    assert round((0.78 + 4 * tp / 2e6) / (0.78 + 4 * dp / 2e6), 2) == 2.55


def test_the_bubbles_of_the_text_and_of_its_questions():
    for stages, microbatches, ratio in ((2, 4, 0.25), (4, 4, 0.75), (4, 16, 3 / 16)):
        trace = simulate(make("1f1b", stages, microbatches), Costs())
        assert abs(bubble_ratio(trace) - ratio) < 1e-9
    assert "3/16 = 0.19" in TEXT and "is three quarters" in TEXT


def test_the_groups_of_the_first_question():
    def members(rank: int, axis: int, sizes: tuple[int, ...]) -> list[int]:
        strides = [4 * 2, 2, 1]
        own = rank // strides[axis] % sizes[axis]
        return [rank + (at - own) * strides[axis] for at in range(sizes[axis])]

    dp, pp, tp = (members(5, axis, (2, 4, 2)) for axis in range(3))
    assert (dp, pp, tp) == ([5, 13], [1, 3, 5, 7], [4, 5])
    assert "tp (4, 5), pp (1, 3, 5, 7), dp (5, 13)" in TEXT


def test_the_large_model_of_part_7():
    parameters = transformer_parameters(72, 3072, 51_200, 1024)
    assert f"{parameters / 1e9:.1f} billion parameters" in TEXT
    assert f"16 · {parameters / 1e9:.3f} billion = {16 * parameters / 1e9:.1f} GB" in PAGE
    assert round(100 * 15.1e15 / (512 * 125e12)) == 24 and "24 % of the peak" in TEXT
    step = transformer_flops(72, 3072, 51_200, 1024, 512)
    assert f"{step / 1e15:.0f} PFLOP a step of 512 texts, {step / 5 / 125e12:.0f} s on five" in PAGE


def test_a_microbatch_and_a_step_take_what_the_text_states():
    for device, words in ((DEVICE, "flops=3e8, memory=1e9, memory_bandwidth=2e8"),):
        assert words in TEXT and device.flops == 3e8
    own = step(Machine(DEVICE, Topology.switch(8, Link(0, 1e15)), None), 16, dp=2, pp=2, tp=2)
    assert own.total == pytest.approx(0.78, abs=0.01) and "about 0.78 s in both cases" in TEXT
    assert own.total / 5 == pytest.approx(0.155, abs=0.002) and "about 155 ms" in TEXT
    stored = table(LAB.stem, "paths = {name: path")
    assert all(row[0] == pytest.approx(0.79, abs=0.02) for row in stored.values())


def test_dp_between_the_racks_is_the_better_placement_with_slow_links_inside_too():
    assert "could be ten times slower as well, and dp between the racks would stay" in TEXT
    for inside in (FAST, SLOW):
        assert placed(inside, "dp", "pp", "tp") < 0.6 * placed(inside, "tp", "pp", "dp")


def test_the_explorer_of_meshes_says_what_the_lecturers_page_answers():
    said = answer("dp 4, pp 1, tp 2 on two nodes")
    cases = {"dp,pp,tp": ("dp", 4, 654_750, "2.6"), "tp,pp,dp": ("tp", 8, 1_182_720, "9.5")}
    for order, (axis, ranks, nbytes, shown_as) in cases.items():
        found = json.loads(MeshExplorer(4, 1, 2, order=order).state)["placements"][order]
        crossing = [sent for sent in found["between"][axis] if sent]
        assert len(crossing) == ranks and sum(crossing) == ranks * nbytes
        assert all(abs(sent - nbytes) <= 2 for sent in crossing)  # a ring's chunks are not equal
        assert sum(map(sum, found["between"].values())) == sum(crossing)
        assert f"{nbytes:,} bytes" in said and f"{sum(crossing):,}, {shown_as} MB" in said
        assert f"{found['total'][3]:.2f} s" in said  # ten times slower
    wide = json.loads(MeshExplorer(2, 1, 4).state)["placements"]
    inside, between = (wide[order]["total"][3] for order in ("dp,pp,tp", "tp,pp,dp"))
    assert f"({inside:.2f} s become {between:.1f} s.)" in said


def test_a_plan_without_tp_tolerates_slow_links_best():
    said = answer("All links ten times slower")
    steps = {
        (dp, pp, tp): step(Machine(DEVICE, Topology.switch(8, SLOW), None), 32, dp=dp, pp=pp, tp=tp)
        for dp, pp, tp in PLANS
    }
    first, second, *_ = sorted(steps, key=lambda plan: steps[plan].total)
    assert {first, second} == {(4, 2, 1), (8, 1, 1)} and "**dp 4, pp 2 and dp 8" in said
    assert steps[second].total < 1.05 * steps[first].total
    sent = {plan: sum(of.max() for of in own.sent.values()) / 1e6 for plan, own in steps.items()}
    without = [mb for plan, mb in sent.items() if plan[2] == 1]
    assert f"send {min(without):.1f} to {max(without):.1f} MB" in said
    assert 2.8 < min(mb for plan, mb in sent.items() if plan[2] > 1) < 2.9 and "2.8 MB or" in said
    assert all(mb > 7 for plan, mb in sent.items() if plan[2] == 4)
    for plan in ((8, 1, 1), (4, 2, 1)):
        assert f"{steps[plan].seconds['dp']:.2f} s for" in said
    loses = {
        (dp, pp, tp): steps[dp, pp, tp].total
        / step(Machine(DEVICE, Topology.switch(8, FAST), None), 32, dp=dp, pp=pp, tp=tp).total
        for dp, pp, tp in PLANS
    }
    most = sorted(loses, key=loses.__getitem__)[-2:]
    assert {*most} == {(2, 1, 4), (1, 2, 4)} and all(3 < loses[plan] < 3.1 for plan in most)
    low, high = sorted(sent[plan] for plan in most)
    assert f"(The two with tp 4, which send {low:.1f} and {high:.1f} MB: their steps" in said


def test_the_explorer_of_plans_says_what_the_lecturers_page_answers():
    said, explorer = answer("A device has 1.5 MB instead of 4"), PlanExplorer()
    at_4 = explorer.plans
    explorer.memory = 1.5e6
    at_1_5 = [row for row in explorer.plans if row["fits"]]
    parts = "dp", "tp", "pp", "microbatch", "schedule", "recompute"
    best, then = (next(row for row in rows if row["fits"]) for rows in (at_4, at_1_5))
    assert [best[part] for part in parts[:4]] == [8, 1, 1, 1] and "best one, dp 8" in TEXT
    assert [then[part] for part in parts] == [2, 2, 2, 1, "zb_h1", "none"]
    ratio = then["seconds"] / best["seconds"]
    assert f"{then['seconds']:.2f} s instead of {best['seconds']:.2f} s, {ratio:.2f} times" in said
    whole = min(row["memory"] for row in at_4 if row["dp"] == 8)
    assert f"needs {best['memory'] / 1e6:.2f} MB, and {whole / 1e6:.2f} MB if" in said
    wide = [row for row in at_4 if (row["dp"], row["tp"]) == (4, 2)]
    memory = min(row["memory"] for row in wide if row["recompute"] == "none")
    assert f"(it needs {memory / 1e6:.2f} MB; with" in said and memory > 1.5e6
    again = [row["seconds"] for row in wide if row["memory"] <= 1.5e6]
    assert again and min(again) > then["seconds"]
    assert f"{8 * 212_352 / 1e6:.1f} MB are the weights and gradients" in said
    small = [row for row in at_1_5 if (row["dp"], row["tp"], row["pp"]) == (1, 2, 4)]
    assert f"{small[0]['seconds']:.2f} s with tp 2, pp 4" in said
    last = min(at_4, key=lambda row: row["memory"])
    assert f"({last['memory']:,.0f} bytes, dp 1, tp 4, pp 2" in said
    assert [last[part] for part in parts[:3]] == [1, 4, 2]


@cache
def large(memory: float | None = None) -> list[dict]:
    """All plans of part 7."""
    nodes = Topology.racks(32, 16, LINKS["NVLink 2"].link, Link(14e-6, 100e9))
    machine = Machine(DEVICES["V100 SXM2 32GB"].device, nodes, None)
    return plans(TransformerShape(72, 3072, 32, 51_200, 1024), machine, 512, 512, memory=memory)


def megatron(rows: list[dict]) -> int:
    """The place of the first plan with the published axes that fits, from 0; -1 where none does."""
    places = [i for i, row in enumerate(rows) if (row["tp"], row["dp"], row["fits"]) == (8, 64, 1)]
    return places[0] if places else -1


def test_every_plan_before_the_published_one_has_a_pipeline():
    rows = large()
    assert "Every plan that it places before tp 8 and dp 64 has a pipeline" in TEXT
    assert all(row["pp"] > 1 for row in rows[: megatron(rows)]) and megatron(rows) > 100
    assert rows[0]["schedule"] == "interleaved" and rows[0]["fits"]


def test_the_plans_of_gpus_of_half_the_memory():
    said, rows = answer("GPUs of half the memory"), large(16e9)
    fit = [row for row in rows if row["fits"]]
    assert fit[0] == large()[0] and f"it needs {fit[0]['memory'] / 1e9:.1f} GB" in said
    assert (fit[0]["pp"], fit[0]["tp"]) == (16, 4)
    assert f"{len(fit)} plans fit instead of {sum(row['fits'] for row in large()):,}" in said
    assert megatron(rows) == -1 and min(row["pp"] * row["tp"] for row in fit) > 8
    assert min(row["pp"] * row["tp"] for row in large() if row["fits"]) == 8
    parameters = transformer_parameters(72, 3072, 51_200, 1024)
    assert f"an eighth of 133 GB is {2 * parameters / 1e9:.1f} GB" in said


# -- the committed outputs -------------------------------------------------------------------------
def test_the_committed_placements_come_in_the_order_of_their_bytes():
    rows = table(LAB.stem, 'columns = ["bytes over the slow link"')
    (dp, calculated_dp, with_dp, _), (tp, calculated, with_tp, _), (pp, _, with_pp, _) = (
        rows[f"{axis} between"] for axis in ("dp", "tp", "pp")
    )
    for *_, device, wall in rows.values():
        assert wall == pytest.approx(device, rel=0.05), "the computer was fast enough"
    assert pp < dp < tp and with_pp < with_dp < with_tp < calculated
    assert 5 < tp / dp < 5.3 and "(That of the bytes, 5.2.)" in PAGE
    assert with_dp == pytest.approx(calculated_dp, abs=0.06)
    assert with_tp / with_dp == pytest.approx(2, abs=0.1) and "**About 2.**" in PAGE


def test_the_committed_path_with_tp_between_the_racks_is_mostly_tp():
    rows = table(LAB.stem, "paths = {name: path")
    math, tp, *_ = rows["tp between"]
    assert tp > math and tp > 0.5 * sum(rows["tp between"])
    assert rows["dp between"][3] > 0.4 and sum(rows["one switch"][1:]) < 0.1


def test_the_committed_plans_are_what_the_text_reads_from_them():
    said = shown(LAB.stem, "table.sort_values").splitlines()
    lines = [re.findall(r"[\d.]+", line) for line in said if line.startswith("dp ")]
    half = len(lines) // 2
    rows = {tuple(map(int, a[:3])): [float(x) for x in a[3:] + b[3:]]
            for a, b in zip(lines[:half], lines[half:], strict=True)}  # fmt: skip
    assert {*rows} == {*PLANS}
    for (dp, pp, tp), (*_, bubble, held, along_dp, along_pp, along_tp) in rows.items():
        assert bubble == pytest.approx((pp - 1) / 4, abs=0.13)
        assert (along_dp == 0, along_pp == 0, along_tp == 0) == (dp == 1, pp == 1, tp == 1)
        assert held > 100 / (pp * tp) - 1e-6
    assert max(rows, key=lambda plan: rows[plan][3]) == (8, 1, 1)
    assert min(rows, key=lambda plan: sum(rows[plan][4:])) == (2, 4, 1), "pipelines send least"
    tp_alone = min(sum(rows[plan][4:]) for plan in rows if plan[2] > 1)
    assert tp_alone > 1.9 * max(sum(rows[plan][4:]) for plan in rows if plan[2] == 1)


def test_the_committed_order_by_the_wall_is_the_predicted_one():
    """But for ties: plans that differ by 5 %, or, since a run may take so much longer than its
    plan, by 10 % as predicted."""
    rows = table(LAB.stem, "compared.round")
    machine = Machine(DEVICE, Topology.switch(8, FAST), None)
    for plan in plans(TransformerShape(4, 64, 4, 128, 64), machine, 8, 32, itemsize=4):
        one = plan["schedule"], plan["recompute"], plan["microbatch"]
        if one == ("1f1b", "none", 32 // plan["dp"] // 4):
            predicted, wall, device = rows["dp {dp}, pp {pp}, tp {tp}".format(**plan)]
            assert predicted == pytest.approx(plan["seconds"], abs=0.006)
            assert device == pytest.approx(predicted, rel=0.055)
            assert wall == pytest.approx(device, rel=0.05), "the computer was fast enough"
    assert "By the device clock the runs take up to some 5 % longer than predicted" in TEXT
    walls = [wall for _, wall, _ in rows.values()]
    assert len(rows) == len(PLANS) and walls == sorted(walls)
    for (one, wall, _), (other, later, _) in combinations(rows.values(), 2):
        assert later <= 1.05 * wall or one <= 1.1 * other


def test_the_committed_strengths_and_weaknesses_have_numbers():
    said = shown(LAB.stem, '"strength", "measured"')
    for words in ("0 bytes sent a rank", "100 % of the weights a rank", "27 % of the weights a"):
        assert words in said
    assert "7,096,320 bytes" in said and "524,288 bytes" in said and "bubble ratio 0.8" in said


def test_the_committed_rate_of_2019_is_as_far_from_the_published_as_the_text_says():
    rows = [row for row in large() if (row["tp"], row["dp"], row["fits"]) == (8, 64, 1)]
    full = next(row for row in rows if row["recompute"] == "full")
    flops = transformer_flops(72, 3072, 51_200, 1024, 512, recompute=True)
    assert f"promises {flops / full['seconds'] / 15.1e15:.1f} times" in TEXT
    said = shown(LAB.stem, "published = 15.1")
    assert f"{flops / full['seconds'] / 1e15:.6f}" in said and "over the published 15.1" in said
