"""The figures that lab 05 and its page state: by closed forms, and from the recorded trainings, of
which some are made again."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from types import ModuleType

import nbformat
import pytest
import torch
from loading import loaded

import dlviz
from dlviz.analysis.compared import at_lowest_loss
from dlviz.analysis.recorded import Recorded
from dlviz.compression import make, variance
from dlviz.datasets import batches, digits
from dlviz.grading.questions import by_lab
from dlviz.models import MLP
from dlviz.sim import (
    code_bytes,
    communication_share,
    compressed_seconds,
    expected_union,
    factor_bytes,
    factors_win_below,
)
from dlviz.widgets import CompressionExplorer
from dlviz.widgets.compression.explorer import BANDWIDTHS
from dlviz.widgets.compression.methods import seconds

LABS = Path(__file__).parents[2] / "labs"
RECORDED = LABS / "recorded" / "05_compression"
ROWS = Recorded.load(RECORDED / "sweep.json").rows
BEST = at_lowest_loss(ROWS)
TEXT = "\n".join(c.source for c in nbformat.read(LABS / "05_compression.ipynb", 4).cells)
PAGE = (LABS.parent / "docs" / "teaching" / "05_compression.md").read_text()
N = 26_122


def percent(method: str) -> list[float]:
    return sorted(right / 3.6 for right in BEST[method].right)


def exchange(code: str | None, bandwidth: float, coding: float = 2e-3) -> float:
    """Milliseconds on the lab's link."""
    link = 5e-3, 1 / bandwidth
    if code is None:
        return 1e3 * compressed_seconds("all_reduce", 4, 4 * N, *link)
    return 1e3 * compressed_seconds("all_gather", 4, code_bytes(code, N), *link, coding, coding)


FORMULAS = {  # a question's answer, by its id
    "one-bit-right": median(percent("one bit")),
    "qsgd-feedback-right": round(median(percent("QSGD, 2 bits, feedback")), 1),
    "variance-one-level": 25 * (0.6 * 0.4 + 0.8 * 0.2),
    "one-bit-bytes": 3 * code_bytes("one_bit", N),
    "one-bit-slow-link": exchange(None, 1e6) / exchange("one_bit", 1e6),
    "union-of-eight": 100 * expected_union(N, 0.01, 8) / N,
    "half-full": math.ceil(math.log(0.5) / math.log(0.99)),
    "alexnet-share": 100 * communication_share(1.30, 1.36),
}


def test_the_answers_are_those_of_the_formulas_and_of_the_recorded_trainings():
    questions = {each.id: each.answer for each in by_lab()["05"]}
    assert questions == pytest.approx(FORMULAS, rel=5e-3)


def sweep() -> ModuleType:
    """The script that recorded the trainings."""
    return loaded(RECORDED / "sweep.py")


def test_every_method_was_recorded_at_six_rates_with_five_seeds():
    made = sweep()
    keys = {(row["method"], row["lr"], row["seed"]) for row in ROWS}
    assert keys == {(m, lr, seed) for m in made.METHODS for lr in made.RATES for seed in range(5)}
    assert len(ROWS) == 11 * 6 * 5 and "eleven methods" in TEXT and "0.05 to 1.6" in TEXT
    ends = {made.RATES[0], made.RATES[-1]}
    assert {m for m, one in BEST.items() if one.lr in ends} == {"one bit, feedback"}
    assert "best at the largest rate" in TEXT


@pytest.mark.parametrize("method", ["dense", "one bit, feedback", "top 1 %"])
def test_the_start_of_a_recorded_training_is_made_again(method):
    made = sweep()
    _, losses = made.training(method, 1, 0.2)
    (row,) = (r for r in ROWS if (r["method"], r["seed"], r["lr"]) == (method, 1, 0.2))
    found = [next(losses) for _ in range(40)]
    means = [sum(found[:20]) / 20, sum(found[20:]) / 20]
    assert means == pytest.approx(row["losses"][:2], abs=2e-3)  # another CPU rounds


@pytest.mark.parametrize("method", ["dense", "one bit, feedback", "top 1 %", "QSGD, 4 bits"])
def test_one_process_renders_four_real_ranks(method):
    made = sweep()
    data = made.data(0, steps=6)
    model = MLP((64, 128, 128, 10))
    rendered = [*made.steps(model, data, 0.2, **made.METHODS[method])]
    how = {"lr": 0.2, **made.METHODS[method]}
    net = MLP((64, 128, 128, 10))
    run = dlviz.launch(dlviz.parallel.data.train, 4, args=(net, data), kwargs=how)
    assert rendered == pytest.approx(run.results[0]["losses"], rel=1e-5)


def test_the_text_says_what_was_recorded():
    dense, one = percent("dense"), percent("one bit")
    assert f"**{median(one):.1f}** ({one[0]:.0f} to {one[-1]:.0f}), at a rate of 0.1" in PAGE
    assert f"dense training has {median(dense):.1f} ({dense[0]:.1f} to {dense[-1]:.1f})" in PAGE
    assert BEST["dense"].lr == 0.8 and BEST["one bit"].lr == 0.1
    assert round(median(dense)) == 98 == round(median(percent("QSGD, 2 bits")))
    untuned = [row for row in ROWS if (row["method"], row["lr"]) == ("one bit", 0.8)]
    right = sorted(row["right"] / 3.6 for row in untuned)
    assert "it recognises 9 to 14 %" in TEXT and [round(right[0]), round(right[-1])] == [9, 14]
    assert all(max(row["losses"]) > 40 for row in untuned) and "passes 40 in each seed" in TEXT
    fed = percent("QSGD, 2 bits, feedback")
    assert f"**{median(fed):.1f}** ({fed[0]:.1f} to {fed[-1]:.1f})" in PAGE
    named = {f"QSGD, {bits} bits, feedback" for bits in (2, 4)}
    broken = [row for row in ROWS if row["method"] in named]
    assert len(broken) == 60 and all(row["losses"][-1] is None for row in broken)
    failed = [right for right in percent("QSGD, 4 bits") if right < 50]
    assert len(failed) == 1 and "fails in one seed of five" in TEXT
    for code in ("one bit", "top 0.1 %", "top 1 %"):
        assert min(percent(f"{code}, feedback")) > median(percent(code))


def test_the_variances_of_the_text():
    lost = {bits: variance(make("qsgd", bits=bits), 2**17) for bits in (2, 4, 5)}
    assert lost[2] == pytest.approx(17, rel=0.02) and lost[4] > 1 > lost[5]
    assert lost[4] == pytest.approx(1.58, rel=0.02) and lost[5] == pytest.approx(0.38, rel=0.02)
    assert variance(make("one_bit"), 2**17) == pytest.approx(0.36, abs=0.01)
    assert variance(make("topk"), 2**17) == pytest.approx(0.9, abs=0.03)
    for levels, expected in {1: 10, 2: 2.5, 4: 0.625, 5: 0}.items():
        v = torch.tensor([3.0, 4.0], dtype=torch.float64) * levels / 5
        part = v - v.floor()
        noise = float((part * (1 - part)).sum()) * (5 / levels) ** 2
        assert noise == pytest.approx(expected, abs=1e-9)


def test_the_bytes_and_times_of_the_text():
    names = {"one_bit": {}, "qsgd": {"bits": 4}, "topk": {"share": 0.01}}
    sent = [3 * code_bytes(name, N, **options) for name, options in names.items()]
    assert sent == [11_046, 39_807, 6_288] and 6 * N == 156_732
    assert 2 * 4 * N / code_bytes("one_bit", N) == pytest.approx(56.8, abs=0.05)
    assert "up to 56 ranks" in TEXT and "a fourteenth of the bytes" in TEXT
    assert factors_win_below(128, 128, 4) == 32 and "below 32 samples a rank" in TEXT
    assert factor_bytes(16, 128, 128, 4) == 49_152 and "take 49,152 bytes" in TEXT
    assert 2 * 3 / 4 * 128 * 128 * 4 == 98_304 and "sends 98,304" in TEXT
    free = [exchange(None, b) / exchange("one_bit", b, 0.0) for b in (1e6, 1e8)]
    assert [round(each, 2) for each in free] == [7.17, 2.09]
    fast = exchange(None, 1e8) / exchange("one_bit", 1e8)
    assert round(fast, 2) == 1.26 and "reports 2.1 times there, and has 1.3" in TEXT
    shares = [100 * communication_share(*p) for p in ((1.55, 3.31), (3.65, 4.53), (19.12, 22.97))]
    assert [round(each, 1) for each in shares] == [50.8, 93.2, 99.1]
    assert expected_union(1, 0.1, 7) > 0.5 > expected_union(1, 0.1, 6)


def test_one_bit_is_slower_than_the_ring_from_the_bandwidth_of_the_page_on():
    values = CompressionExplorer(alpha=2e-5)._now
    slower = [
        each
        for each in BANDWIDTHS
        if seconds("one_bit", {**values, "bandwidth": each})
        > seconds("dense", {**values, "bandwidth": each})
    ]
    assert slower[0] == 5.6e8 and "**560 MB/s**" in PAGE


def test_with_five_bits_qsgd_trains_with_feedback():
    made = sweep()
    data = [*batches(*digits("train"), batch=64, seed=0, steps=100)]
    model = MLP((64, 128, 128, 10))
    losses = [*made.steps(model, data, 0.4, compress="qsgd", bits=5, feedback=True)]
    assert losses[-1] < 0.6
