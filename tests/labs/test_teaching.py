"""The lecturers' pages: each number in them is computed again here, and each figure is drawn."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
from loading import loaded

import dlviz
from dlviz.board.levels import LEVELS
from dlviz.grading.questions import by_lab
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, makespan, peak_in_flight, step_seconds
from dlviz.patterns import butterfly, ring
from dlviz.schedules import TITLES, make
from dlviz.sim import (
    Costs,
    collective,
    collective_seconds,
    layer_bytes,
    saved_activations,
)
from dlviz.sim.layers import FORMS

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page.read_text() for page in (ROOT / "docs" / "teaching").glob("*.md")}
ALPHA, BETA = 2e-3, 1e-7  # lab 02's slow network
SLOW = Link(ALPHA, 1 / BETA)
LINK = Link(latency=1e-3, bandwidth=1e9)  # of lab 00


def teaching(name: str) -> ModuleType:
    return loaded(ROOT / "docs" / "teaching" / f"{name}.py")


def answer(page: str, question: str) -> str:
    """What the page says below the heading that holds `question`."""
    found = re.findall(
        rf"^### [^\n]*{re.escape(question)}[^\n]*\n(.*?)(?=^###|\Z)", PAGES[page], re.S | re.M
    )
    assert len(found) == 1, (question, len(found))
    return found[0]


def first_round(pattern: Any, me: int, other: int) -> int:
    """The round in which rank `me` of four first receives something of `other`'s."""
    known = [{rank} for rank in range(4) for _ in range(8)]  # by rank and cell
    transfers = pattern.all_reduce(4, 8)
    for step in range(1 + max(each.step for each in transfers)):
        before = [set(ranks) for ranks in known]
        for each in (each for each in transfers if each.step == step):
            for cell in range(each.offset, each.offset + each.count):
                arriving = before[8 * each.src + cell]
                if each.dst == me and other in arriving:
                    return step + 1
                known[8 * each.dst + cell] |= arriving
    raise AssertionError("it never does")


def plan(name: str, ranks: int = 4, microbatches: int = 8, **options: int) -> dlviz.Trace:
    schedule = make(name, ranks, microbatches, **options)
    part = 0.01 / schedule.chunks
    costs = Costs(forward=part, backward_input=part, backward_weight=part)
    return dlviz.simulate(schedule, costs)


LABS = sorted((ROOT / "labs").glob("*.ipynb"))


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.stem)
def test_a_page_has_the_parts_of_its_lab_and_answers_all_that_it_asks(lab):
    page = PAGES[lab.stem]
    cells = nbformat.read(lab, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    parts = re.findall(r"^\| (\d\. .+?) \| (\d+) \|$", text, re.M)
    assert parts and re.findall(r"^\| (\d\. .+?) \| (\d+) \| .+ \|$", page, re.M) == parts
    for kind in ("Predict", "Find out", "Exercise"):
        asked = len(re.findall(rf"\*\*{kind}[:.]\*\*", text))
        assert len(re.findall(rf"^### .*\({kind.lower()}\)$", page, re.M)) == asked, kind


def test_a_page_quotes_what_its_questions_say():
    they_say, labs = teaching("they_say"), by_lab()
    stems = [lab.stem for lab in LABS]
    quoted = sum(len(labs[stem.partition("_")[0]]) for stem in stems)
    assert sum(PAGES[stem].count("*They say:*") for stem in stems) >= quoted > 60
    for stem in stems:
        questions = labs[stem.partition("_")[0]]
        assert they_say.written(PAGES[stem], questions) == PAGES[stem], "make teaching writes it"
    first, *others = labs["00"]
    changed = they_say.written(PAGES["00_start_here"], (replace(first, ask="why?"), *others))
    assert (
        changed != PAGES["00_start_here"] and f"*They say:* {first.they_say} *Ask:* why?" in changed
    )
    with pytest.raises(ValueError, match="fit here: ### After how many seconds"):
        they_say.written(PAGES["00_start_here"], (first, *others[:-1]))
    with pytest.raises(
        ValueError, match=r"no heading that ends with \(predict\): \['ring-messages'"
    ):
        they_say.written("# A page", (first,))
    for question in (each for stem in stems for each in labs[stem.partition("_")[0]]):
        assert they_say.QUOTED.fullmatch(f"*They say:* {question.they_say} *Ask:* {question.ask}")


# -- lab 00 ----------------------------------------------------------------------------------------
def data_parallel(link: Link = LINK, **options: Any) -> float:
    """The length of a step on the classroom machine, in ms of device time."""
    images, labels = dlviz.datasets.digits("train")
    batches = list(dlviz.datasets.batches(images, labels, batch=64, steps=3))
    run = dlviz.launch(
        dlviz.parallel.data.train,
        4,
        machine=classroom(4, step=0.01, link=link),
        args=(dlviz.models.MLP((64, 128, 128, 10)), batches),
        kwargs=options,
    )
    return 1000 * float(np.median(step_seconds(run.trace, "device")))


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the run was up to")  # device time is what it is
def test_the_lengths_of_steps_in_lab_00():
    naive = data_parallel(method="naive")
    told = answer("00_start_here", "that average naively?")
    assert f"400 / {naive:.2f} = {400 / naive:.2f}" in told and f"**{400 / naive:.1f}.**" in told
    assert f"factor is {370 / naive:.1f}" in told
    ddp, one = data_parallel(bucket_bytes=40_000), data_parallel(bucket_bytes=10**6)
    assert f"**{ddp:.2f} ms**" in answer("00_start_here", "How long is a DDP step?")
    told = answer("00_start_here", "All gradients in one bucket")
    assert f"**{one:.2f} ms**" in told and f"({ddp:.2f})" in told and f"({naive:.2f})" in told
    far = Link(1e-3, 1e7)
    slow = [data_parallel(far, bucket_bytes=size) for size in (40_000, 10**6)]
    assert f"three buckets take {slow[0]:.1f} ms and one takes {slow[1]:.1f}" in told
    told = answer("00_start_here", "With which α")
    alpha = float(re.findall(r"\*\*α = ([\d.]+) ms\.\*\*", told)[0])
    step = data_parallel(Link(alpha / 1e3, 1e9), method="naive")
    assert 400 / step == pytest.approx(3.5, abs=0.005) and f"measures {step:.2f} ms" in told
    assert naive - step == pytest.approx(2 / 3 * 42, rel=0.01) and "two thirds of the 42 ms" in told


def test_what_rank_2_holds_after_round_3():
    said = answer("00_start_here", "does rank 2 hold after round 3")
    held = [[{rank} for _ in range(4)] for rank in range(4)]
    for each in sorted(ring.all_reduce(4, 4), key=lambda each: each.step):
        if each.step < 3:
            held[each.dst][each.offset] |= held[each.src][each.offset]
    assert held[2] == [{0, 1, 2}, {1, 2}, {2}, {0, 1, 2, 3}]
    assert "chunk 3 complete**, chunk 0 as the sum of ranks 0, 1 and 2, chunk 1 as the sum" in said
    assert [[len(c) for c in own].index(4) for own in held] == [1, 2, 3, 0]  # (r+1) mod 4


# -- lab 01 ----------------------------------------------------------------------------------------
def walked(name: str, hessian: list[list[float]], start: list[float], near: float, **options: Any):
    """Steps of an update rule until it is first `near` the minimum of a quadratic."""
    torch = pytest.importorskip("torch")
    rule = dlviz.parallel.update_rules.make(name, **options)
    bend, w = (torch.tensor(given, dtype=torch.float64) for given in (hessian, start))
    for step in range(1, 1501):
        rule.step([w], [bend @ w])
        if w.norm() <= near:
            return step
    return None


RAVINE = [[1.0, 0.0], [0.0, 100.0]]
BEST = {"sgd": {"lr": 2 / 101}, "momentum": {"lr": 4 / 121, "momentum": (9 / 11) ** 2}}


def test_momentum_takes_93_steps_where_the_formula_says_69():
    formulas = [round(math.log(1e-6) / math.log(shrinks)) for shrinks in (99 / 101, 9 / 11)]
    plain, momentum = (walked(n, RAVINE, [1.0, 1.0], 1e-6 * 2**0.5, **o) for n, o in BEST.items())
    said = answer("01_training_step", "How many times fewer steps does momentum take")
    assert f"**{plain / momentum:.2f}.** {plain} steps against {momentum}." in said
    assert "The formulas say {} and {}".format(*formulas) in said
    assert f"costs {momentum - formulas[1]} steps" in said


def test_nesterov_as_printed_is_as_far_off_as_the_page_says():
    told = answer("01_training_step", "The other lines of the table")
    draw = FIGURES["01_nesterov_as_printed"]()
    real, printed = (line.y for line in draw.data)
    assert f"is {printed[100]:.0f} away" in told and f"torch's form {real[100]:.5f}" in told


# -- lab 02 ----------------------------------------------------------------------------------------
def test_who_hears_of_whom_when():
    said = answer("02_collectives", "In which round does rank 2")
    rounds = {
        rank: (first_round(ring, rank, 3), first_round(butterfly, rank, 3)) for rank in (0, 1, 2)
    }
    assert rounds == {2: (3, 1), 1: (2, 2), 0: (1, 2)}
    assert "**In the ring in round 3, in the butterfly in round 1.**" in said
    assert "For rank 1 it is round 2 in both" in said


def test_the_prices_of_lab_02():
    def ms(algorithm: str, ranks: int, nbytes: float, topology: Topology | None = None) -> float:
        if topology is None:
            return 1000 * collective_seconds(algorithm, ranks, nbytes, ALPHA, BETA)
        machine = Machine(classroom(ranks).device, topology)
        return 1000 * makespan(collective(algorithm, ranks, int(nbytes), machine))

    assert f"**{ms('ring', 4, 1e5):.0f} ms**" in answer("02_collectives", "How long does a ring of")
    crossing = 11 * ALPHA / 1.25 / BETA
    assert ms("ring", 8, crossing) == pytest.approx(ms("butterfly", 8, crossing))
    assert f"**{crossing / 1e3:.0f} KB.**" in answer("02_collectives", "From how many kilobytes")

    said, wires = answer("02_collectives", "is wired to its two"), Topology.ring(8, SLOW)
    slow, quick = ms("halving_doubling", 8, 1e6, wires), ms("halving_doubling", 8, 1e6)
    assert f"**{slow / quick:.2f}.** {slow:.0f} ms instead of {quick:.0f}" in said
    assert f"takes {ms('ring', 8, 1e6, wires):.0f} ms in both cases" in said

    said = answer("02_collectives", "on two racks")
    racks = Topology.racks(2, 4, SLOW, Link(ALPHA, 0.1 / BETA))
    slow, quick = ms("ring", 8, 1e5, racks), ms("ring", 8, 1e5)
    assert f"**{slow / quick:.2f}.** {slow:.0f} ms instead of {quick:.1f}" in said
    assert f"takes {ms('hierarchical', 8, 1e5, racks):.1f} ms" in said
    assert f"halving-doubling {ms('halving_doubling', 8, 1e5, racks):.1f}." in said

    said, equal = answer("02_collectives", "still shared"), Topology.racks(2, 4, SLOW, SLOW)
    names = ("halving_doubling", "hierarchical", "ring")
    times = [f"{ms(name, 8, 1e5, equal):.1f}" for name in names]
    assert f"**Halving-doubling, {times[0]} ms; hierarchical {times[1]}, ring {times[2]}.**" in said

    said = answer("02_collectives", "Does it on seven?")
    for algorithm in ("halving_doubling", "ring"):
        for ranks in (7, 8):
            assert f"{1e3 * collective_seconds(algorithm, ranks, 1e6, 1e-5, 1e-9):.2f} ms" in said
        assert f"{ms(algorithm, 7, 1e6):.0f}" in said


def test_the_winners_on_eight_ranks():
    said = answer("02_collectives", "From how many kilobytes")
    sizes = np.geomspace(1e2, 1e7, 2001)
    names = ["ring", "parameter_server", "tree", "butterfly", "halving_doubling", "direct"]
    curves = {n: [collective_seconds(n, 8, size, ALPHA, BETA) for size in sizes] for n in names}
    ((size, before, after),) = dlviz.viz.crossovers(sizes, curves)
    assert (before, after) == ("butterfly", "halving_doubling")
    assert f"up to {size / 1e3:.0f} KB," in said


# -- lab 04 ----------------------------------------------------------------------------------------
PAGE_04 = "04_consistency"


def test_the_paces_and_the_staleness_of_lab_04():
    fast, slow = 1 / 0.06, 1 / 0.18
    assert f"**{4 * slow:.1f}** = 4/0.18" in answer(
        PAGE_04, "synchronous server take in per second"
    )
    said = answer(PAGE_04, "does the asynchronous server take in")
    assert f"**{3 * fast + slow:.1f}** = 3/0.06 + 1/0.18" in said and f"be {4 * fast:.1f}" in said
    said = answer(PAGE_04, "With one backup worker")
    assert f"180/3.78 = **{180 / 3.78:.1f}**" in said
    for times, question in ((3, "rank 4 three times as slow"), (5, "Rank 4 five times as slow")):
        updates, old = 3 * times + 1, 3 * times
        others = (3 * updates - old) / (updates - 1)
        said = answer(PAGE_04, question)
        assert (f"{others:.1f} for the others" if times == 5 else f"{others * 3:.0f}/3 old") in said
        assert (old + (updates - 1) * others) / updates == pytest.approx(3) and str(old) in said


def test_the_chances_of_lab_04():
    said = answer(PAGE_04, "slowness by chance")
    assert f"**{60 + 120 * (1 - 0.9**4):.1f} ms**" in said and f"{60 + 120 * 0.1:.0f} (the" in said
    said = answer(PAGE_04, "Which method for which straggler")
    step = (60 + 120 * (1 - 0.9**4)) / 4
    assert f"takes {step:.0f} ms" in said and round(16e3 / step, -1) == 630 and "630" in said
    assert round(16 * 4 / 0.072, -1) == 890 and "890" in said


def test_the_bounds_and_the_servers_of_lab_04():
    from dlviz.parallel.averaging.easgd.stability import stable_alpha

    told = answer(PAGE_04, "Why does anybody want EASGD?")
    bounds = {workers: stable_alpha(workers, 0.5, "round_robin") for workers in (1, 3, 4)}
    assert f"**{bounds[3]:.4f} with 3 workers**, and {bounds[4]:.4f} with 4" in told
    assert bounds[1] == pytest.approx(bounds[3]) and f"**{bounds[1]:.3f}** for one" in told
    assert f"**{stable_alpha(4, 0.5, 'synchronous'):.3f}**" in told
    assert f"one has {16 / 0.06:.0f}" in told.replace("fast worker alone has", "one has")
    assert f"60 + 4·30 + 30 = **{60 + 4 * 30 + 30} ms**" in answer(PAGE_04, "Why does the step")


# -- lab 06 ----------------------------------------------------------------------------------------
PAGE_06 = "06_tensor_parallel"


def test_the_bytes_of_lab_06():
    sent = {form: layer_bytes(form, 64, 512, 2048, 4) for form in FORMS}
    said = answer(PAGE_06, "does a rank send with partition output?")
    assert said.startswith(f"\n**{sent['partition_output']:,.0f}**")
    assert f"sends **{sent['reduce_output']:,.0f}**" in said
    said = answer(PAGE_06, "send no more than partition output?")
    assert "**2,048** = C_out" in said and "C_in = 512" in said
    for rows, form in ((2048, "partition_output"), (512, "reduce_output")):
        data = layer_bytes("data", rows, 512, 2048, 4)
        assert data == layer_bytes(form, rows, 512, 2048, 4) and f"{data:,.0f} bytes" in said
    square = {form: layer_bytes(form, 256, 1024, 1024, 4) for form in FORMS}
    said = answer(PAGE_06, "B = 256 and 1,024 → 1,024")
    assert square["partition_output"] == square["reduce_output"]
    assert f"{square['reduce_output']:,.0f} bytes**" in said and f"{square['data']:,.0f}" in said


def test_the_bytes_of_the_two_mlps_of_lab_06():
    narrow, wide = (3 / 4 * 4 * 64 * width for width in (512, 2048))  # a gather; a sum is two
    naive = wide + narrow + 2 * wide + 2 * narrow
    said = answer(PAGE_06, "How many all-reduces does the column-row MLP")
    assert f"{2 * narrow:,.0f} bytes each" in said and f"sends {naive:,.0f} bytes" in said
    assert naive / (4 * narrow) == 3.75 and "3.75 times" in said and f"{2 * wide:,.0f}" in said
    shared_heads = PAGES[PAGE_06].partition("## Homework")[2]
    assert f"{4 * (24 * 96 + 24):,} bytes" in shared_heads  # half of k, with its bias, twice
    said = answer(PAGE_06, "The last layer is the first one")
    shared = 4 * 128 * 128
    assert f"{4 * shared:,} bytes" in said and f"{5 * shared:,} of" in said
    assert f"= {shared:,} bytes" in said


def test_what_is_saved_in_lab_06():
    unit = 64 * 8 * 64
    saved = [sum(saved_activations(64, 8, 64, 4, *way).values()) / unit for way in ((1,), (4,))]
    cut = sum(saved_activations(64, 8, 64, 4, 4, True).values()) / unit
    told = answer(PAGE_06, "Why 21 of 54")
    assert saved == [54, 21] and told.startswith("\n**21** = 10 + 24/4 + 20/4")
    assert f"{cut:g} = 54/4" in told
    wide = sum(saved_activations(64, 8, 64, 4, 4, itemsize=4).values()) / unit
    assert f"{wide:g} by the formula" in told
    long = sum(saved_activations(2048, 8, 64, 4).values()) / (2048 * 8 * 64)
    assert f"{long - 34:g} of **{long:g}**" in answer(PAGE_06, "grows with the length of the texts")


def test_the_slow_link_of_lab_06():
    def step(ranks: int, latency: float = 4e-3) -> float:
        sums = 2 * collective_seconds("ring", ranks, 4 * 64 * 128, latency, 1.6e-7)
        return 1000 * (0.4 / ranks + sums)

    said = answer(PAGE_06, "as fast as one rank are eight?")
    assert f"**{step(1) / step(8):.1f}** =" in said and f"are {step(1) / step(4):.1f} times" in said
    one = step(1) / (50 + (step(8) - 50) / 2)
    assert f"{one:.1f} (one all-reduce)" in said
    said = answer(PAGE_06, "The fastest number of ranks")
    for latency in (4e-3, 1e-3):
        best = min(range(1, 65), key=lambda ranks: step(ranks, latency))
        assert f"**{best}**" in said and f"{step(best, latency):.1f} ms" in said


# -- labs 09 and 09b -------------------------------------------------------------------------------
def test_the_numbers_of_lab_09():
    page = "09_pipelines"
    assert f"**{8 / (1 + bubble_ratio(plan('gpipe', 8, 8))):.2f}**" in answer(
        page, "GPipe and 8 microbatches?"
    )
    assert round(8 / (1 + bubble_ratio(plan("naive", 8, 8))), 6) == 1
    assert bubble_ratio(plan("gpipe", 8, 70)) <= 0.1 + 1e-9 < bubble_ratio(plan("gpipe", 8, 69))
    assert "**70.**" in answer(page, "for a bubble ratio of 0.1")
    assert [peak_in_flight(plan("1f1b", 4, m))[0] for m in (16, 32, 128)] == [4, 4, 4]
    messages = len(plan("interleaved", 4, 8, chunks=2).messages)
    assert f"**{messages}**" in answer(page, "How many messages")

    said = answer(page, "with messages that take 4 ms")
    for latency in (0, 1, 2, 4, 8):
        row = [f"{latency}"]
        for chunks in (1, 2, 4):
            name, options = ("1f1b", {}) if chunks == 1 else ("interleaved", {"chunks": chunks})
            part = 0.01 / chunks
            costs = Costs(forward=part, backward_input=part, backward_weight=part)
            costs = replace(costs, latency=latency / 1000)
            row.append(f"{1000 * makespan(dlviz.simulate(make(name, 4, 8, **options), costs)):.1f}")
        assert f"| {' | '.join(row)} |" in said

    said, twice = answer("09b_zero_bubble", "One stage of four twice"), [1.0, 2.0, 1.0, 1.0]
    costs = Costs(forward=twice, backward_input=twice, backward_weight=twice)
    for m in (8, 32, 128):
        ratio = bubble_ratio(dlviz.simulate(make("1f1b", 4, m), costs))
        assert f"{100 * ratio / (1 + ratio):.1f} % for {m}" in said


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the run was up to")
def test_nothing_comes_on_top_of_a_step_with_slow_messages():
    torch = pytest.importorskip("torch")
    model = dlviz.models.MLP((64, *7 * [32], 10))
    stages = dlviz.parallel.pipeline.split(
        model, 8, [isinstance(x, torch.nn.Linear) for x in model]
    )
    images, labels = (part[:64] for part in dlviz.datasets.digits())
    schedule = make("interleaved", 4, 8, chunks=2)
    run = dlviz.launch(
        dlviz.parallel.pipeline.train,
        4,
        machine=classroom(4, step=0.005, link=Link(0.004, float("inf"))),
        args=(stages, [(images, labels)] * 2),
        kwargs={"schedule": schedule},
    )
    spans = run.trace.only(step=1).spans.frame()
    actions = spans[spans.kind.isin(["forward", "backward"])]
    ends = 1000 * (actions.groupby("rank").end.max() - actions.start.min())
    said = answer("09_pipelines", "with messages that take 4 ms")
    assert ends[3] == pytest.approx(299, abs=0.01) and "finish, after 299 ms" in said
    assert ends[0] == pytest.approx(341, abs=0.01) and "**341 ms" in said
    steps = 1000 * (spans[spans.kind == "step"].groupby("rank").end.max() - actions.start.min())
    assert max(steps) == pytest.approx(ends[0], abs=0.01)  # the loss arrives meanwhile


def test_the_table_of_schedules():
    said = PAGES["09b_zero_bubble"]
    for name in ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zbv"):
        trace = plan(name)
        chunks = make(name, 4, 8).chunks
        title = TITLES[name] + (", 2 chunks" if name == "interleaved" else "")
        rows = trace.spans.frame().groupby("rank")
        gap = (rows.end.max() - rows.start.min() - (rows.end.sum() - rows.start.sum())).max()
        held = f"{peak_in_flight(trace).max() / chunks:g}"
        inside = "yes" if gap > 1e-9 else "no"
        row = f"| {title} | {bubble_ratio(trace):g} | {inside} | {held} | {len(trace.messages)} |"
        assert row in said, row


def test_staleness_is_what_the_page_says():
    said, row = (
        answer("09b_zero_bubble", "how many updates"),
        [str(a) for a in make("pipedream", 4, 16).actions[0]],
    )
    updates, seen, stale = 0, {}, []
    for action in row:
        if "F" in action:
            seen[action.partition("F")[2]] = updates
        else:
            stale.append(updates - seen[action.partition("B")[2]])
            updates += 1
    assert stale[:4] == [0, 1, 2, 3] and set(stale[3:]) == {3}
    assert said.startswith("\n**3** = p-1-r") and "0, 1, 2, then 3 for ever" in said


def test_each_level_is_as_the_page_says():
    rows = re.findall(
        r"^\| (\d) ([A-Z].+?) \| (.+?) \| (.+?) \| (.*?) ?\| (.+?) \|",
        PAGES["09b_zero_bubble"],
        re.M,
    )
    assert [(int(number), title) for number, title, *_ in rows] == [
        (number, level.title) for number, level in enumerate(LEVELS, 1)
    ]
    for (_, _, size, target, cap, solution), level in zip(rows, LEVELS, strict=True):
        ranks, stages = 1 + max(level.stage_rank), len(level.stage_rank)
        assert size.startswith(f"{ranks} ranks") and re.search(rf"\b{level.microbatches}\b", size)
        assert stages == ranks or f"{stages} stages" in size
        assert target.startswith(str(level.slots)) and ("no gap" in target) == (level.inside == 0)
        assert re.findall(r"\d+", cap) == ([] if level.limit is None else [str(level.limit)])
        assert level.answer == "naive" or TITLES[level.answer] in solution


# -- figures ---------------------------------------------------------------------------------------
FIGURES = teaching("figures").FIGURES
RUNS = {name for name in FIGURES if name[:2] in ("00", "02")} | {
    "03_one_bucket", "03_three_buckets", "03_slow_rank",
    "04_staleness", "04_synchronous", "06_in_sequence", "06_matrices", "06_naive_matrices",
    "06_side_by_side", "06_summa", "09_bubble", "09_simulated_and_measured", "10_axis_bytes",
    "10_memory", "10_step", "12_round", "12b_recovered",
}  # fmt: skip


def test_a_figure_is_named_by_its_lab_and_says_what_it_shows():
    labs = {page.partition("_")[0] for page in PAGES if page[:1].isdigit()}
    assert {name.partition("_")[0] for name in FIGURES} == labs and len(FIGURES) >= 25
    for draw in FIGURES.values():
        assert draw.__doc__ and draw.__doc__.endswith(".") and "\n" not in draw.__doc__


def test_figures_that_a_page_names_exist():
    named = [n for page in PAGES.values() for n in re.findall(r"`(\d\db?_[a-z0-9_]+)`", page)]
    labs = {page for page in PAGES if page[:1].isdigit()}
    assert len(set(named) - labs) >= 6 and set(named) - labs <= set(FIGURES)


@pytest.mark.parametrize("name", sorted(set(FIGURES) - RUNS))
def test_a_simulated_figure_is_drawn(name):
    assert FIGURES[name]() is not None


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the run was up to")
@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_figure_of_real_runs_is_drawn(name):
    assert FIGURES[name]() is not None


@pytest.mark.parametrize(
    "name",
    ["09_gpipe", pytest.param("02_bus_bandwidth", marks=pytest.mark.sweep)],  # plotly's: seconds
)
def test_a_figure_is_saved_as_pdf_and_svg(name, tmp_path, capsys):
    teaching("figures").main(tmp_path, [name])
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    svg = (tmp_path / f"{name}.svg").read_text()
    assert "<svg" in svg and len(svg) > 10_000
    said = capsys.readouterr().out
    assert name in said and FIGURES[name].__doc__ in said
