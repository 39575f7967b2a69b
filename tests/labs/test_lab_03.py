"""The figures that the text of lab 03 states, from its own batches, on its own machine, by the
device clock; what the wall clock said is in the committed outputs (test_labs_stored.py)."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

import dlviz
from dlviz.analysis.path import path_of_step
from dlviz.datasets import batches, digits, sentences
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models import MLP, target_tokens
from dlviz.parallel import STRATEGIES

LAB = Path(__file__).parents[2] / "labs" / "03_data_parallel.ipynb"
TEXT = "\n".join(c.source for c in nbformat.read(LAB, as_version=4).cells)
DEVICE = Device("slow", flops=23.443e6, memory=1e9, memory_bandwidth=1e10)
LINK = Link(5e-3, 1e8)
BUCKETS = {"bucket_bytes": 40_000}


def steps(ranks: int, strategy="ddp", link=LINK, factors=None, **options) -> dlviz.Trace:
    machine = Machine(DEVICE, Topology.switch(ranks, link), step=None, factors=factors)
    data = list(batches(*digits("train"), batch=64, steps=2))
    args = MLP((64, 128, 128, 10)), data
    worker = STRATEGIES[strategy]
    return dlviz.launch(worker, ranks, machine=machine, args=args, kwargs=options).trace


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # the device clock is never late
@pytest.mark.parametrize(
    ("milliseconds", "run"),
    [
        (378.8, {"ranks": 1}),
        (126.3, {"ranks": 4}),
        (306.3, {"ranks": 4, "strategy": "naive"}),
        (118.9, {"ranks": 4, "strategy": "central"}),
        (94.7, {"ranks": 4, "strategy": "late_all_reduce"}),
        (175.1, {"ranks": 4, **BUCKETS}),
        (258.6, {"ranks": 4, "factors": (1, 1, 2, 1), **BUCKETS}),
        (126.6, {"ranks": 4, "link": Link(0.1e-3, 5e6)}),
        (116.7, {"ranks": 4, "link": Link(0.1e-3, 5e6), **BUCKETS}),
        (79.2, {"ranks": 8, "all_reduce": "halving_doubling"}),
    ],
)
def test_a_step_takes_what_the_lab_calculates(milliseconds, run):
    took = 1e3 * dlviz.metrics.seconds_per_step(steps(**run))
    assert took == pytest.approx(milliseconds, abs=0.15)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
@pytest.mark.parametrize(
    ("computes", "takes", "factors"), [(83.5, 175.1, None), (167.1, 258.7, (1, 1, 2, 1))]
)
def test_the_critical_path_of_three_buckets_computes_until_the_first_leaves(
    computes, takes, factors
):
    trace = steps(4, factors=factors, **BUCKETS)
    span, start, end, whole = path_of_step(trace, 1, "device")
    works = (trace.spans.kind[span] != "update") & (end > start + 1e-6)
    assert {*trace.spans.kind[span[works]]} == {"forward", "backward"}
    assert 1e3 * (end - start)[works].sum() == pytest.approx(computes, abs=0.15)
    assert 1e3 * whole == pytest.approx(takes, abs=0.15)
    assert factors is None or {*trace.spans.rank[span[works]]} == {2}


def test_a_digit_costs_139_kflop_and_the_batch_of_step_22_is_what_a_pass_leaves():
    weights = 64 * 128 + 128 * 128 + 128 * 10
    flops = 2 * weights + 4 * weights - 2 * 64 * 128
    assert "139 KFLOP" in TEXT and round(flops / 1e3) == 139
    assert "8.9 MFLOP" in TEXT and round(64 * flops / 1e6, 1) == 8.9
    sizes = [len(images) for images, _ in batches(*digits("train"), batch=64, steps=24)]
    assert sizes == [*22 * [64], 29, 64] and "29 digits" in TEXT


def test_the_two_sentences_have_15_and_5_targets():
    found = re.search(r"inputs\[\[(\d+), (\d+)\]\]", TEXT)
    assert found
    inputs, _ = sentences("test")
    assert [target_tokens(inputs[[int(row)]]) for row in found.groups()] == [15, 5]


def test_six_ranks_make_the_shortest_step_and_no_more_than_that():
    took = [dlviz.sim.data_parallel_seconds(n, 0.3788, 104_488, 5e-3, 1e-8) for n in range(1, 33)]
    assert int(np.argmin(took)) + 1 == 6
    assert 0.3788 / min(took) == pytest.approx(3.30, abs=0.005)
