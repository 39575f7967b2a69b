"""The figures that lab 01 and its page state, from runs of their own and the recorded sweep."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import nbformat
import pandas
import pytest
import torch
from torch.nn.functional import cross_entropy

from dlviz.datasets import digits
from dlviz.models import MLP, gradient_noise, train
from dlviz.parallel.update_rules import make, race

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "labs" / "recorded" / "01_training_step"
TEXT = "\n".join(
    cell.source for cell in nbformat.read(ROOT / "labs" / "01_training_step.ipynb", 4).cells
)
PAGE = (ROOT / "docs" / "teaching" / "01_training_step.md").read_text()
HALF = math.sqrt(0.5)
STARTS = [(-2.0, 1.0), (-1.0, -1.5), (0.5, 2.0), (1.5, -0.5), (2.0, 1.5)]
RATES = [2 / 26, 4 / 36, *(0.01 * 2**i for i in range(10))]
OPTIONS = {"momentum": {"momentum": 4 / 9}, "nesterov": {"momentum": 2 / 3}}


def raced(
    turned: bool, *names: str, steep: float = 25, options=OPTIONS, rates=RATES
) -> dict[str, float]:
    """Steps of each rule at its best of `rates`, down the ravine along the axes or turned."""

    def ravine(x, y):
        return (x**2 + steep * y**2) / 2

    def across(x, y):
        return ravine(HALF * (x + y), HALF * (y - x))

    starts = [(HALF * (x - y), HALF * (x + y)) for x, y in STARTS] if turned else STARTS
    rules = {name: make(name, 1.0, **options.get(name, {})) for name in names}
    return race(rules, across if turned else ravine, starts, rates).steps.to_dict()


FORMULAS = {
    "adagrad-turned": raced(True, "adagrad")["adagrad"] / raced(False, "adagrad")["adagrad"]
}


def test_only_adagrad_beats_momentum_and_only_along_the_axes():
    names = ("sgd", "decay", "momentum", "nesterov", "adagrad", "rmsprop", "adam")
    along, turned = raced(False, *names), raced(True, *names)
    assert [along[name] == turned[name] for name in names] == [*4 * [True], *3 * [False]]
    assert {name for name in names if along[name] < along["momentum"]} == {"adagrad"}
    assert min(turned, key=lambda name: turned[name]) == "momentum"
    assert f"{along['adagrad']:g} steps at any curvature" in TEXT
    assert raced(False, "adagrad", steep=100)["adagrad"] == along["adagrad"]
    assert turned["adagrad"] > turned["sgd"] and f"takes {turned['adagrad']:g} steps, more" in TEXT
    assert turned["adam"] < 1.1 * along["adam"] and turned["rmsprop"] > 5 * along["rmsprop"]
    usual = raced(False, "momentum", "nesterov", options={})
    assert all(usual[name] > along[name] for name in usual), "with torch's 0.9 both take longer"
    below = raced(False, "momentum", options={"momentum": {"momentum": 0.55}})["momentum"]
    other = raced(False, "nesterov", rates=[4 / 76])["nesterov"]
    assert below < along["momentum"] and other < along["nesterov"], "in the short run"
    assert f"takes {below:g} steps with μ = 0.55, and Nesterov {other:g} at the rate 4/76" in PAGE
    assert f"**16.7.** {turned['adagrad']:g} steps against {along['adagrad']:g}," in PAGE


def moved(printed: bool, name: str, gradients, rates=None, steps: int = 1, **options) -> float:
    """How far a weight moves in the last `steps`, in units of the rate."""
    w, places = torch.zeros(1, dtype=torch.float64), [0.0]
    rule = make(name, lr=1.0, printed=printed, **options)
    for gradient, rule.lr in zip(gradients, rates or len(gradients) * [1.0], strict=True):
        rule.step([w], [torch.full_like(w, gradient)])
        places.append(-w.item())
    return places[-1] - places[-1 - steps]


def test_the_lines_of_the_table_move_a_weight_as_the_page_says():
    cases = {
        "momentum": {"gradients": 11 * [1], "rates": 10 * [1] + [0.1]},
        "adagrad": {"gradients": [1, 0.1]},
        "rmsprop": {"gradients": [1e-5], "alpha": 0.9},
        "adam": {"gradients": 10 * [1], "steps": 10},
    }
    said = re.findall(r"^\| (\w+)[ ,].* \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.M)
    for (title, *numbers), (name, given) in zip(said, cases.items(), strict=True):
        assert title.lower() == name
        assert numbers == [f"{moved(form, name, **given):.2f}" for form in (False, True)]
    assert f"move it by {numbers[1]} η" in TEXT


@pytest.fixture(scope="module")
def runs() -> pandas.Series:
    """The recorded steps of five seeds, sorted, infinite for none, by batch and rate."""
    sweep = pandas.read_csv(RECORDED / "steps.csv", comment="#").fillna(math.inf)
    return sweep.groupby(["batch", "rate"]).steps.apply(sorted)


def test_the_recorded_runs_are_what_lab_and_page_read_from_them(runs):
    sizes = [8 * 2**i for i in range(8)]
    fixed = [runs[b, 0.1][2] for b in sizes]
    scaled = [runs[b, 0.1 * b / 32][2] for b in sizes]
    assert fixed[2] == fixed[-1] and max(fixed) < 1.1 * min(fixed)
    assert f"8 images ({fixed[0]:g} steps)" in TEXT and f"{fixed[2]:g} steps in the median" in PAGE
    for before, after in zip(scaled[:4], scaled[1:5], strict=True):
        assert 1.7 < before / after < 2.1, "perfect scaling"
    assert min(scaled) == scaled[5] < scaled[6] and runs[1024, 3.2] == 5 * [math.inf]
    assert 5 < scaled[2] / scaled[5] < 6 and "256 images need over five times fewer steps" in TEXT
    assert runs[512, 1.6][-2:] == [98, math.inf] and "one of five runs never arrives" in TEXT
    assert ", ".join(f"{n:,.0f}" for n in scaled[:-1]) + " and none for 8" in PAGE
    best = {b: min(runs[b].items(), key=lambda each: each[1][2]) for b in sizes}
    assert [rate for rate, _ in best.values()] == [0.4, *7 * [0.8]]
    steps = {b: own[2] for b, (_, own) in best.items()}
    assert 1.9 < steps[8] / steps[32] < 2.3 and steps[32] / steps[1024] == pytest.approx(2, rel=0.1)
    assert f"at 0.8 they take {steps[1024]:g} steps" in TEXT
    assert f"here {steps[256]:g} steps instead of {steps[32]:g}" in TEXT
    arrived = [sum(map(math.isfinite, runs[b, 1.6])) for b in (1024, 256, 512)]
    assert arrived == [2, 3, 4] and "At 1.6 two of five seeds of 1,024" in PAGE


def test_rate_times_curvature_exceeds_2_in_runs_that_train():
    bends = pandas.read_csv(RECORDED / "curvature.csv", comment="#")
    later = bends[bends.step > 0]
    times = {k: own.rate * own.curvature for k, own in later.groupby(["batch", "rate"])}
    for batch in (256, 1024):
        assert times[batch, 0.8].quantile(0.6) > 2 and 3.5 < times[batch, 0.8].max() < 4.5
    assert times[512, 1.6][later.step <= 30].median() > 5
    reached = times[512, 1.6].groupby(later.seed).max()
    assert f"At 1.6 it reaches {reached.min():.0f} to {reached.max():.0f}," in TEXT


def test_at_a_rate_of_3_2_the_relus_die():
    dead = []
    for seed in range(5):
        model, (images, labels) = MLP((64, 64, 10), seed=seed), digits("train")
        train(model, (images, labels), steps=60, lr=3.2, batch=1024, seed=seed)
        dead.append(int((model[:3](images).amax(dim=0) <= 0).sum()))
    assert min(dead) >= 57 and "58 or more of the 64 ReLUs" in TEXT, dead


def length(model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The length of the gradient of all examples."""
    loss = cross_entropy(model(data[0]), data[1])
    parts = torch.autograd.grad(loss, [*model.parameters()])
    return torch.cat([part.flatten() for part in parts]).norm().item()


def test_the_gradients_of_single_images_differ_more_after_300_steps_than_before():
    for seed in (0, 1):
        model, data = MLP((64, 64, 10), seed=seed), digits("train")
        whole = length(model, data)
        before = gradient_noise(model, data, 1) * whole
        train(model, data, steps=300, lr=0.1, batch=32, seed=seed)
        after = gradient_noise(model, data, 1) * length(model, data)
        assert after > 1.2 * before and length(model, data) < whole


def test_the_scripts_make_the_recorded_rows_again(runs):
    script = runpy.run_path(str(RECORDED / "sweep.py"))
    for (batch, rate), seed in (((256, 0.8), 0), ((64, 0.4), 3)):
        sweep = pandas.read_csv(RECORDED / "steps.csv", comment="#")
        own = sweep[(sweep.batch == batch) & (sweep.rate == rate) & (sweep.seed == seed)]
        assert script["steps"](batch, rate, seed) == pytest.approx(own.steps.item(), rel=0.1)
    bends = pandas.read_csv(RECORDED / "curvature.csv", comment="#")
    first = bends[(bends.batch == 256) & (bends.seed == 1) & (bends.step <= 10)].curvature
    made = [bend for _, bend in script["curvatures"](256, 0.8, 1, steps=10)]
    assert made == pytest.approx(first.tolist(), rel=0.02)
    assert len(runs) == 64 and all(len(own) == 5 for own in runs)
