"""The figures that the text of lab 10 states: by formulas, by counting the real module, and from
recorded steps, of which one is made again."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType

import nbformat
import pytest
from loading import loaded
from stored import shown, table

from dlviz.analysis.order import order as ordered
from dlviz.analysis.recorded import Recorded
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.metrics import bubble_ratio
from dlviz.models import Transformer
from dlviz.schedules import make
from dlviz.sim import (
    Costs,
    TransformerShape,
    collective_seconds,
    mesh_groups,
    plans,
    simulate,
    transformer_flops,
    transformer_parameters,
)
from dlviz.sim.mesh import MeshStep, mesh_step
from dlviz.widgets import MeshExplorer, PlanExplorer

LAB = Path(__file__).parents[2] / "labs" / "10_three_axes.ipynb"
RECORDED = LAB.parent / "recorded" / LAB.stem
ROWS = Recorded.load(RECORDED / "sweep.json").rows
PAGE = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
NET = Transformer(4, 64, 4, 128, 64)
TENSOR = 4 * 2 * 64 * 64  # bytes of the activations of a microbatch
SIZES = {"layers": 4, "hidden": 64, "vocabulary": 128, "sequence": 64}
DEVICE = Device("slow", flops=3e8, memory=1e9, memory_bandwidth=2e8)
FAST, SLOW = Link(0, 20e6), Link(0, 2e6)
AXES = "dp", "pp", "tp"


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


def on_widest() -> int:
    """Parameters of a rank of dp 2, tp 4: all layers, each cut over four ranks."""
    whole = re.compile(r"norm|positions|(output|down)\.bias")
    cut = sum(p.numel() for name, p in NET.named_parameters() if not whole.search(name))
    return 212_352 - cut + cut // 4


def ring_bytes(ranks: int, nbytes: float) -> float:
    """What a rank sends in an all-reduce: the seconds at one second for a byte."""
    return collective_seconds("ring", ranks, nbytes, 0, 1)


LARGE = transformer_parameters(72, 3072, 51_200, 1024)
FORMULAS = {  # a question's answer, by its id
    "dp-partner": (5 + 4) % 8,
    "tp-bytes": 2 * 4 * 4 * ring_bytes(2, TENSOR),
    "pp-bytes": 4 * TENSOR,
    "dp-bytes": on_rank(1) * 4 / 1e3,
    "rank-0-share": 100 * on_rank(0) / 212_352,
    "dp-gradients": ring_bytes(8, 212_352) / ring_bytes(2, on_widest()),
    "gpus-needed": math.ceil(16 * LARGE / 40e9),
}


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


def test_the_slow_link_carries_what_the_text_states():
    dp, tp = (on_rank(0) + on_rank(1)) / 2 * 4, 36 * TENSOR
    assert f"{dp / 1e6:.2f} MB of gradients" in TEXT and f"{tp / 1e6:.2f} MB of activations" in TEXT
    assert f"(0.8 + {4 * tp / 2e6:.2f}) / (0.8 + {4 * dp / 2e6:.2f}) = 2.5." in PAGE
    assert round((0.8 + 4 * tp / 2e6) / (0.8 + 4 * dp / 2e6), 1) == 2.5


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


def test_the_explorer_of_plans_says_what_the_lecturers_page_answers():
    said, explorer = answer("A device has 1.5 MB instead of 4"), PlanExplorer()
    at_4 = explorer.plans
    explorer.memory = 1.5e6
    at_1_5 = [row for row in explorer.plans if row["fits"]]
    parts = "dp", "tp", "pp", "microbatch", "schedule", "recompute"
    best, then = (next(row for row in rows if row["fits"]) for rows in (at_4, at_1_5))
    assert [best[part] for part in parts[:4]] == [8, 1, 1, 1] and "takes the place of dp 8" in TEXT
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
def large() -> list[dict]:
    """All plans of part 7."""
    nodes = Topology.racks(32, 16, LINKS["NVLink 2"].link, Link(14e-6, 100e9))
    machine = Machine(DEVICES["V100 SXM2 32GB"].device, nodes, None)
    return plans(TransformerShape(72, 3072, 32, 51_200, 1024), machine, 512, 512)


def megatron(rows: list[dict]) -> int:
    """The place of the first plan with the published axes that fits, from 0; -1 where none does."""
    places = [i for i, row in enumerate(rows) if (row["tp"], row["dp"], row["fits"]) == (8, 64, 1)]
    return places[0] if places else -1


def test_the_lecturers_page_derives_the_answers():
    assert f"{on_rank(1):,} parameters of 4 bytes" in PAGE
    assert f"The first stage has {on_rank(0):,}" in PAGE
    assert f"**{16 * on_rank(0):,} bytes** = 16 · {on_rank(0):,}" in PAGE
    assert f"**{100 * on_rank(0) / 212_352:.1f} %**: {on_rank(0):,} of 212,352" in PAGE
    assert f"**{2 * 4 * 4 * TENSOR:,}** = 2 layers · 4 all-reduces" in PAGE
    assert f"**{4 * TENSOR:,}** = 4 microbatches" in PAGE
    part = on_widest() / 212_352
    assert f"**{ring_bytes(8, 1) / ring_bytes(2, 1) / part:.2f}** = 2·7/8 / (2·1/2)" in PAGE
    assert f"1 / {part:.2f}: a ring" in PAGE and f"holds {100 * part:.0f} % of the" in PAGE
    assert f"16 · {LARGE / 1e9:.3f} billion = {16 * LARGE / 1e9:.1f} GB" in PAGE
    flops = transformer_flops(72, 3072, 51_200, 1024, 512)
    peak = DEVICES["A100 80GB SXM"].device.flops
    assert f"{flops / 1e15:.0f} PFLOP a step of 512 texts, {flops / 4 / peak:.0f} s on four" in PAGE


def test_the_number_of_gpus_does_not_depend_on_the_meaning_of_a_gigabyte():
    assert {math.ceil(16 * LARGE / (40 * unit)) for unit in (10**9, 2**30)} == {4}
    assert [math.ceil(16 * LARGE / (32 * unit)) for unit in (10**9, 2**30)] == [5, 4]
    assert "for V100 of 32 GB the answer is 5, for 32 GiB it is 4" in PAGE


def test_the_bubbles_of_the_text_and_of_its_questions():
    for stages, microbatches, ratio in ((2, 4, 1 / 4), (2, 8, 1 / 8), (4, 16, 3 / 16)):
        trace = simulate(make("1f1b", stages, microbatches), Costs())
        assert abs(bubble_ratio(trace) - ratio) < 1e-9
    assert "3/16 = 0.19" in TEXT and "(p - 1)/m as in lab 09: 1/4 here" in TEXT
    assert "becomes 1/8 by the formula" in PAGE


def test_a_large_batch_makes_tp_and_pp_send_twice_as_much_for_their_layers():
    said, machine = answer("32 texts in 8 microbatches"), Machine(DEVICE, Topology.switch(8, FAST))
    sent = [
        mesh_step(dict.fromkeys(AXES, 2), machine, **SIZES, batch=size, microbatches=size // 4).sent
        for size in (16, 32)
    ]
    tied = 16_384
    for axis, once, factor in (("tp", 0, 2), ("pp", tied, 2), ("dp", 0, 1)):
        few, many = (int(own[axis][0]) - once for own in sent)
        assert many == factor * few
    assert f"{2 * 2 * 4 * 4 * TENSOR:,} and {2 * 4 * TENSOR:,} bytes" in said
    assert f"{tied:,} bytes" in said


def test_the_groups_of_the_first_question():
    groups = mesh_groups({"dp": 2, "pp": 4, "tp": 2})
    own = {axis: next(group for group in found if 5 in group) for axis, found in groups.items()}
    assert own == {"dp": (5, 13), "pp": (1, 3, 5, 7), "tp": (4, 5)}
    assert "tp (4, 5), pp (1, 3, 5, 7), dp (5, 13)" in TEXT


def test_a_microbatch_and_a_step_take_what_the_text_states():
    assert "flops=3e8, memory=1e9, memory_bandwidth=2e8" in TEXT
    own = step(Machine(DEVICE, Topology.switch(8, Link(0, 1e15)), None), 16, dp=2, pp=2, tp=2)
    assert own.total == pytest.approx(0.78, abs=0.01)  # leaves out norms, lookups and the loss
    math_ = [row[0] for row in table(LAB.stem, 'table["whole step"]').values()]
    assert math_ == pytest.approx([0.8] * 4, abs=0.02) and "about 0.8 s in both cases" in TEXT
    assert "about 160 ms" in TEXT and math_[0] / 5 == pytest.approx(0.16, abs=0.002)


def test_pp_between_the_racks_is_the_best_placement_and_tp_the_worst_also_with_slow_links_inside():
    assert "**The best of the three is pp between the racks.** tp between them is far" in TEXT
    assert "with slow links inside the racks as well" in TEXT
    for inside in (FAST, SLOW):
        steps = {first: placed(inside, first, *(a for a in AXES if a != first)) for first in AXES}
        assert steps["dp"] < 0.6 * steps["tp"]
        assert inside == SLOW or min(steps, key=steps.__getitem__) == "pp"


def test_half_of_what_pp_sends_between_the_racks_is_sent_twice():
    racks = Topology.racks(2, 4, FAST, SLOW)
    own = step(Machine(DEVICE, racks, None), 16, pp=2, dp=2, tp=2)
    whole = 8 * 4 * TENSOR  # by each rank, its four microbatches
    assert f"{whole:,} bytes with their gradients" in TEXT
    assert own.between["pp"].sum() == whole + 8 * 16_384 + 4 * 8  # the embedding's, and the loss


# -- recorded steps --------------------------------------------------------------------------------
def sweep() -> ModuleType:
    """The script that recorded the steps."""
    return loaded(RECORDED / "sweep.py")


@cache
def measured(what: str) -> dict[str, float]:
    """The median of the recorded runs of each plan."""
    found: dict[str, list[float]] = {}
    for row in ROWS:
        found.setdefault(row["plan"], []).append(row["sent"].get(what, row.get(what)))
    return {plan: median(values) for plan, values in found.items()}


def test_every_plan_of_eight_ranks_was_recorded_with_five_seeds():
    made = sweep()
    plans = [(row["plan"], row["seed"]) for row in ROWS]
    assert sorted(plans) == sorted((plan, seed) for plan in made.PLANS for seed in range(5))
    assert len(made.PLANS) == 8 and "eight plans of eight ranks" in TEXT
    assert made.DEVICE == DEVICE and "with five seeds" in TEXT


@pytest.mark.filterwarnings("ignore:the run was up to")
def test_a_recorded_step_is_made_again():
    plan, seed = "dp 4, pp 2, tp 1", 3
    (recorded,) = [row for row in ROWS if (row["plan"], row["seed"]) == (plan, seed)]
    again = sweep().row(plan, seed)
    for column in ("seconds", "bubble"):
        assert again[column] == pytest.approx(recorded[column], rel=0.02), column
    for column in ("sent", "weights"):
        assert again[column] == recorded[column], column


def test_gradients_beside_the_last_backwards_take_what_the_planner_says():
    rows = Recorded.load(RECORDED / "overlap.json").rows
    assert [(row["overlap"], row["seed"]) for row in rows] == [
        (beside, seed) for beside in (False, True) for seed in range(5)
    ]
    shape = TransformerShape(4, 64, 4, 128, 64)
    machine = Machine(DEVICE, Topology.racks(2, 4, FAST, SLOW), None)
    took, hidden, buckets = {}, {}, sweep().BUCKET_BYTES
    own = {**dict.fromkeys(AXES, 2), "microbatch": 2, "schedule": "1f1b", "recompute": "none"}
    for beside in (False, True):
        how = {"overlap": beside, "bucket_bytes": buckets}
        steps = plans(shape, machine, 8, 16, itemsize=4, parameter_bytes=8, **how)
        (step,) = (row for row in steps if own.items() <= row.items())
        took[beside] = median(row["seconds"] for row in rows if row["overlap"] is beside)
        assert took[beside] == pytest.approx(step["seconds"], rel=0.01)
        hidden[beside] = step["seconds"], step["dp_exposed"]
    assert f"takes {took[True]:.2f} s as recorded, {hidden[True][0]:.2f} s by the planner, " in PAGE
    assert f"instead of {took[False]:.2f} s" in PAGE
    assert round(hidden[False][1] - hidden[True][1], 1) == 0.2
    assert "About 0.2 s of the 0.45 s hide" in TEXT and f'"bucket_bytes": {buckets:_}' in TEXT
    said = shown(LAB.stem, "overlap.groupby").split("here (s)")[0]
    for name, how in (("after all math", False), ("during the last backwards", True)):
        row = f"{hidden[how][0]:.2f} {took[how]:.2f}"
        assert f"{name} {row} " in re.sub(" +", " ", said)


@pytest.mark.filterwarnings("ignore:the run was up to")
def test_a_recorded_step_whose_gradients_come_last_is_made_again():
    (recorded, *_) = Recorded.load(RECORDED / "overlap.json").rows
    assert sweep().between(False, 0)["seconds"] == pytest.approx(recorded["seconds"], rel=0.01)


def test_seeds_hardly_matter():
    for plan, seconds in measured("seconds").items():
        assert all(abs(row["seconds"] / seconds - 1) < 0.005 for row in ROWS if row["plan"] == plan)
    assert "Seeds hardly matter" in TEXT


def test_the_table_of_strengths_and_weaknesses_has_the_recorded_numbers():
    data, tensor, pipe = "dp 8, pp 1, tp 1", "dp 2, pp 1, tp 4", "dp 2, pp 4, tp 1"
    weights, bubbles = measured("weights"), measured("bubble")
    mb = {axis: {plan: n / 1e6 for plan, n in measured(axis).items()} for axis in AXES}
    for words in (
        f"{100 * weights[data]:.0f} % of the weights a rank, {mb['dp'][data]:.2f} MB of gradients",
        f"cuts models that fit on no rank: {100 * weights[tensor]:.0f} %",
        f"waits inside each layer for {mb['tp'][tensor]:.2f} MB",
        f"cuts them too, {100 * weights[pipe]:.0f} %, and sends {mb['pp'][pipe]:.2f} MB",
        f"a bubble in a small batch, ratio {bubbles[pipe]:.2f}",
    ):
        assert words in TEXT, words


def test_the_recorded_order_is_the_predicted_one():
    machine = Machine(DEVICE, Topology.switch(8, FAST), None)
    predicted = {
        plan: step(machine, 32, **lengths).total for plan, lengths in sweep().PLANS.items()
    }
    seconds = measured("seconds")
    assert not ordered(predicted, seconds).swapped
    over = [seconds[plan] / predicted[plan] for plan in predicted]
    assert 1 < min(over) and max(over) < 1.05 and "Runs take up to 5 % longer" in TEXT


# -- published runs --------------------------------------------------------------------------------
# Narayanan et al., SC 2021, table 1: 10^9 parameters, layers, hidden, heads, GPUs, batch, tp, pp,
# TFLOP/s of a GPU
PUBLISHED = [
    (18.4, 40, 6144, 48, 256, 1024, 8, 1, 135),
    (39.1, 48, 8192, 64, 512, 1536, 8, 2, 138),
    (76.1, 60, 10240, 80, 1024, 1792, 8, 4, 140),
]


def test_the_published_runs_are_those_of_the_paper():
    for run in PUBLISHED:
        billions, layers, hidden, *_ = run
        assert transformer_parameters(layers, hidden, 51_200, 2048) == pytest.approx(
            1e9 * billions, rel=0.003
        )
        assert str(run) in TEXT
    assert "*published* runs of 2021 with full recomputation, on A100 in nodes of 8" in TEXT


def test_the_planner_puts_the_published_pairs_where_the_text_says():
    rows = [line for line in shown(LAB.stem, "published = [").splitlines() if " · 10⁹ on" in line]
    places = [re.findall(r"(\d+) of (\d+)", line) for line in rows]
    over = [line.split()[-2:] for line in rows[2 * len(PUBLISHED) :]]
    found = [place for [place] in filter(None, places)]
    said = "12th of 25, 6th of 29 and 5th of 17 pairs that fit"
    assert [f"{at}th of {many}" for at, many in found] == re.findall(r"\d+th of \d+", said)
    assert f"**No: they are {said}**" in PAGE
    longer = [round(100 * (float(own) - 1)) for own, _ in over]
    assert longer == [20, 12, 10] and "20, 12 and 10 % slower than its best" in PAGE
    assert "take 10 to 20 % longer than its best" in TEXT
    slowest = [float(worst) for _, worst in over]
    assert slowest == [2.4, 4.5, 2.0] and "2 to 4.5 times as long" in TEXT
    assert "take 2.4, 4.5 and 2 times as long as the best" in PAGE


def test_the_pair_that_was_the_fastest_of_those_published_is_the_planners_or_near():
    """Narayanan et al., section 5.4.1 and figure 13."""
    shape, port = TransformerShape(32, 20_480, 128, 51_200, 2048), LINKS["InfiniBand HDR"].link
    nodes = Topology.racks(8, 8, LINKS["NVLink 3"].link, Link(port.latency, 8 * port.bandwidth))
    machine = Machine(DEVICES["A100 80GB SXM"].device, nodes, None)
    assert transformer_parameters(32, 20_480, 51_200, 2048) == pytest.approx(162.2e9, rel=1e-3)
    over = {}
    for batch in (16, 32, 64, 128, 256, 512):
        fastest: dict[tuple[int, int], float] = {}
        for row in plans(shape, machine, 64, batch):
            known = row["recompute"] == "full" and row["schedule"] != "zb_h1"
            if row["dp"] == 1 and row["fits"] and known:
                fastest.setdefault((row["tp"], row["pp"]), row["seconds"])
        over[batch] = 100 * (fastest[8, 8] / min(fastest.values()) - 1)
        assert [*fastest][0] == ((8, 8) if batch <= 64 else (4, 16))
    assert f"is {over[128]:.1f} to {over[512]:.1f} % faster" in PAGE
    assert f"above 64 within {max(over.values()):.1f} % of its first" in TEXT


def test_every_plan_before_the_published_one_has_a_pipeline():
    rows = large()
    assert "Every plan that it places before theirs has a pipeline" in TEXT
    assert all(row["pp"] > 1 for row in rows[: megatron(rows)]) and megatron(rows) > 100
    assert f"place {megatron(rows) + 1} of" in shown(LAB.stem, "theirs = [")


def test_the_rate_of_2019_is_as_far_from_the_published_as_the_text_says():
    rows = [row for row in large() if (row["tp"], row["dp"], row["fits"]) == (8, 64, 1)]
    full = next(row for row in rows if row["recompute"] == "full")
    flops = transformer_flops(72, 3072, 51_200, 1024, 512, recompute=True)
    assert f"promises {flops / full['seconds'] / 15.1e15:.1f} times" in TEXT
    assert f"{flops / full['seconds'] / 15.1e15:.2f}" in shown(LAB.stem, "theirs = [")
    assert 512 * 0.76 * 39e12 == pytest.approx(15.1e15, rel=0.01), "the paper's own numbers agree"


# -- the committed outputs -------------------------------------------------------------------------
def test_the_committed_placements_come_in_the_order_of_their_bytes():
    said = shown(LAB.stem, "columns = [").splitlines()
    lines = [line for line in said if "between " in line]
    numbers = [[float(number) for number in re.findall(r"[\d.]+", line)] for line in lines]
    (dp, by_dp, tp, by_tp, pp, by_pp) = (x for i in range(3) for x in (numbers[i], numbers[i + 3]))
    assert pp[0] < dp[0] < tp[0] and by_pp < by_dp < by_tp
    assert 5 < tp[0] / dp[0] < 5.3 and "(That of the bytes, 5.2." in PAGE
    assert by_dp[0] == pytest.approx(dp[1], abs=0.1) and by_pp[0] == pytest.approx(pp[1], abs=0.1)
    assert by_tp[0] < tp[1] and 1.8 < by_tp[0] / by_dp[0] < 2.2 and "**About 2.**" in PAGE


def test_the_committed_paths_add_up_to_their_steps():
    rows = table(LAB.stem, 'table["whole step"]')
    for *parts, whole in rows.values():
        assert sum(parts) == pytest.approx(whole, abs=0.03)
    math_, tp, *_, whole = rows["tp between"]
    assert tp > 0.5 * whole > math_ and "most of the step is waiting for all-reduces" in TEXT
    _, _, _, dp, _, whole = rows["dp between"]
    assert dp == pytest.approx(whole / 3, rel=0.1) and "gradients take a third of it" in TEXT


def test_the_committed_losses_are_those_of_one_process():
    assert "both agree to five digits: True" in shown(LAB.stem, "losses = eight.results")
