"""The figures that lab 08 and its page state: by closed forms, by all placements, from recorded
searches, of which some are made again, and from the stored runs."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import nbformat
import pytest
from loading import loaded
from stored import table

from dlviz.analysis.compared import at_best_seconds
from dlviz.analysis.recorded import Recorded
from dlviz.grading.questions import by_lab
from dlviz.machine import Link
from dlviz.sim.placement import (
    BRANCHES,
    LAB,
    Devices,
    bounds,
    count,
    recurrent,
    search,
    seconds_of,
)

LABS = Path(__file__).parents[2] / "labs"
RECORDED = LABS / "recorded" / "08_placement"
ROWS = Recorded.load(RECORDED / "sweep.json").rows
TEXT = "\n".join(cell.source for cell in nbformat.read(LABS / "08_placement.ipynb", 4).cells)
PAGE = (LABS.parent / "docs" / "teaching" / "08_placement.md").read_text()
TEN, MORE = "ten groups, four devices", "17 groups, two devices"
TUNED = {case: at_best_seconds([r for r in ROWS if r["case"] == case]) for case in (TEN, MORE)}
LAYERS = [cell // 8 for cell in range(32)]


def means(case: str, *methods: str) -> list[float]:
    return [fmean(TUNED[case][method].seconds) for method in methods]


def apart(devices: int, message: float) -> Devices:
    return Devices(devices, Link(message, math.inf))


FORMULAS = {  # a question's answer, by its id
    "four-in-a-row": 1,
    "row-parameters": 25,
    "branches-best": 1 + (4 + 3 + 2 + 1) / 2 + 1,
    "greedy-played": seconds_of(BRANCHES, [0, 0, 0, 1, 1, 0], apart(2, 4)),
    "recurrent-layers": 4 + 8 - 1,
    "placements-of-ten": 1 + 511 + 9330 + 34_105,  # Stirling numbers of the second kind
    "learned-by-random": 100 * means(TEN, "table")[0] / means(TEN, "random")[0],
    "played-by-real": 19,  # one of the twenty has a tie
}


def test_the_answers_are_those_of_the_formulas():
    questions = {each.id: each.answer for each in by_lab()["08"]}
    assert questions == pytest.approx(FORMULAS, rel=1e-2)


def test_branches_by_all_placements_by_greedy_and_on_one_device():
    found = {name: [search(BRANCHES, apart(2, c), name) for c in range(6)]
             for name in ("exhaustive", "greedy", "one")}  # fmt: skip
    assert [each.seconds for each in found["exhaustive"]] == [7, 8, 9, 10, 11, 12]
    assert [each.promised for each in found["greedy"]] == [7, 8, 10, 11, 13, 14]
    assert [each.seconds for each in found["greedy"]] == [7, 8, 11, 11, 16, 14]
    assert {each.seconds for each in found["one"]} == {12}
    assert found["greedy"][4].placement == [0, 0, 0, 1, 1, 0]
    assert "7 8 10 11 13 14, and 7 8 11 11 16 14" in PAGE
    assert seconds_of(BRANCHES, [0, 0, 1, 0, 0, 0], apart(2, 4)) == 13  # the other way of the ties
    alone = [not any(search(BRANCHES, apart(2, c), "greedy").placement) for c in range(12)]
    assert alone.index(True) == 9 and all(alone[9:])
    assert bounds(BRANCHES, 2) == (6, 6)


def test_the_recurrent_net_by_layers_and_by_steps():
    net = recurrent(4, 8)
    took = [seconds_of(net, LAYERS, apart(4, c)) for c in (0, 0.25, 1, 2)]
    assert took == [11, 11.75, 14, 24]
    steps = [(cell % 8) // 2 for cell in range(32)]
    assert [seconds_of(net, steps, apart(4, c)) for c in (0, 2)] == [14, 20]
    assert "**20 s** at c = 2 in place of 24" in PAGE and "At c = 0 it is 14." in PAGE
    for method in ("greedy", "heft"):
        assert [search(net, apart(4, c), method).seconds for c in (1, 2)] == [20, 27]


@pytest.mark.parametrize(
    ("c", "best", "several", "median", "slower"),
    [(0, 11, 10_080, 13, 0.0), (1, 12, 15, 16, 0.2), (2, 14, 2, 21, 41.3)],
)
def test_all_placements_of_the_ten_groups(c, best, several, median, slower):
    samples = sorted(search(LAB, apart(4, c), "exhaustive").samples)
    assert len(samples) == count(10, 4) == 43_947
    assert (samples[0], samples.count(best), samples[len(samples) // 2]) == (best, several, median)
    assert round(100 * sum(each > 21 for each in samples) / len(samples), 1) == slower
    if c == 0:
        assert round(100 * several / len(samples)) == 23 and "(23 %)" in TEXT
        assert search(LAB, apart(4, c), "round_robin").seconds == best


def test_the_numbers_of_placements_in_the_text():
    assert f"{4**10 / math.factorial(4):,.0f}" == "43,691" and "43,691" in TEXT
    assert round(count(17, 4) / 1e6) == 716 and "716 million" in TEXT
    assert count(10, 2) == 512 and bounds(LAB, 4)[0] == 11 and "critical path is 11" in PAGE


def test_both_cases_were_searched_at_three_rates_with_five_seeds():
    made = loaded(RECORDED / "sweep.py")
    once = {(m, c, 0, None) for m in ("heft", "exhaustive") for c in made.CASES}
    plain = {(m, c, s, None) for m in ("random", "moves") for c in made.CASES for s in range(5)}
    keys = {(row["method"], row["case"], row["seed"], row["lr"]) for row in ROWS}
    assert keys == once | plain | {
        (m, c, s, lr) for m, rates in made.RATES.items()
        for c in made.CASES for s in range(5) for lr in rates
    }  # fmt: skip


def test_what_the_text_says_of_the_searches():
    assert means(TEN, "table", "random") == pytest.approx([12.2, 12.4])
    assert means(MORE, "table", "random", "moves") == pytest.approx([27.2, 28.4, 27])
    assert {TUNED[MORE]["heft"].seconds[0], TUNED[MORE]["exhaustive"].seconds[0]} == {27}
    assert [TUNED[TEN][name].seconds[0] for name in ("heft", "exhaustive")] == [13, 12]
    best = {
        name: [TUNED[case][name].seconds.count(least) for case, least in ((TEN, 12), (MORE, 27))]
        for name in ("table", "lstm", "moves", "heft")
    }
    assert best == {"table": [4, 4], "lstm": [5, 1], "moves": [5, 5], "heft": [0, 1]}
    assert {TUNED[case]["lstm"].lr for case in TUNED} == {
        min(loaded(RECORDED / "sweep.py").RATES["lstm"])
    }
    assert min(TUNED[MORE]["random"].seconds) == 28
    ends = [fmean(TUNED[MORE][name].last) for name in ("random", "table")]
    assert [round(each, 1) for each in ends] == [34.9, 28.5]
    assert "28.5 s on average, one at random 34.9" in TEXT


@pytest.mark.parametrize("method", ["table", "random", "moves", "heft"])
def test_a_recorded_search_is_made_again(method):
    made = loaded(RECORDED / "sweep.py")
    rate = TUNED[TEN][method].lr
    again = made.row(method, TEN, 0, rate)
    first = next(row for row in ROWS if all(row[key] == again[key] for key in
                                            ("method", "case", "seed", "lr")))  # fmt: skip
    assert again["seconds"] == first["seconds"]
    assert again["gains"] == [*map(tuple, first["gains"])]


def test_the_best_so_far_falls_at_each_gain():
    one = at_best_seconds([
        {"method": "a", "seed": 0, "lr": lr, "seconds": lr, "last": 1, "gains": [[1, 9], [3, lr]]}
        for lr in (4, 5)
    ])["a"]  # fmt: skip
    assert one.lr == 4 and one.best_so_far(5) == [[9, 9, 4, 4, 4]]


def test_the_stored_runs_have_what_the_text_says():
    rows = table("08_placement", "table.round(4)")
    assert rows["4 ranks"][1] / rows["1 rank"][1] == 0.25
    assert rows["4 ranks"][-1] == rows["1 rank"][-1]
