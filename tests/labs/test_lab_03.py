"""The figures that the text of lab 03 states, from its own batches, on its own machine, by the
device clock; what the wall clock said is in the committed outputs (test_labs_stored.py)."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

import dlviz
from dlviz.analysis.path import path_of_step
from dlviz.datasets import batches, digits, sentences
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models import MLP, target_tokens, train
from dlviz.parallel import STRATEGIES

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "03_data_parallel.ipynb"
PAGE = (ROOT / "docs" / "teaching" / "03_data_parallel.md").read_text()
TEXT = "\n".join(c.source for c in nbformat.read(LAB, as_version=4).cells)
DEVICE = Device("slow", flops=23.443e6, memory=1e9, memory_bandwidth=1e10)
LINK, LATENT = Link(1e-4, 5e6), Link(5e-3, 1e8)
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
        (210.5, {"ranks": 2}),
        (126.7, {"ranks": 4}),
        (85.3, {"ranks": 8}),
        (130.3, {"ranks": 4, "strategy": "naive"}),
        (178.7, {"ranks": 4, "strategy": "central"}),
        (116.7, {"ranks": 4, **BUCKETS}),
        (200.3, {"ranks": 4, "factors": (1, 1, 2, 1), **BUCKETS}),
        (126.3, {"ranks": 4, "link": LATENT}),
        (306.3, {"ranks": 4, "strategy": "naive", "link": LATENT}),
        (118.9, {"ranks": 4, "strategy": "central", "link": LATENT}),
        (175.1, {"ranks": 4, "link": LATENT, **BUCKETS}),
    ],
)
def test_a_step_takes_what_the_lab_calculates(milliseconds, run):
    took = 1e3 * dlviz.metrics.seconds_per_step(steps(**run))
    assert took == pytest.approx(milliseconds, abs=0.15)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
@pytest.mark.parametrize(
    ("computes", "takes", "factors"), [(83.5, 116.7, None), (167.1, 200.3, (1, 1, 2, 1))]
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


def formula(ranks: int, link: Link = LINK, **options) -> float:
    """A step in ms, by the closed form."""
    alpha, beta = link.latency, 1 / link.bandwidth
    return 1e3 * dlviz.sim.data_parallel_seconds(ranks, 0.3788, 104_488, alpha, beta, **options)


def test_the_shortest_step_is_that_of_41_ranks_or_of_6_where_latency_is_long():
    for link, best, took, times in ((LINK, 41, "58.0 ms", 6.5), (LATENT, 6, "114.9 ms", 3.3)):
        steps = {n: formula(n, link) for n in range(1, 65)}
        assert min(steps, key=lambda n: steps[n]) == best
        assert f"{steps[best]:.1f} ms" == took and took in PAGE
        assert 378.8 / steps[best] == pytest.approx(times, abs=0.05)
    assert f"never more than {378.8 / (2 * 104_488 * 2e-4):.1f} times" in TEXT
    eight = [378.8 / formula(8, LATENT, algorithm=a) for a in ("ring", "halving_doubling")]
    assert "from {:.1f} to {:.1f} times".format(*eight) in PAGE
    assert f"{100 * 378.8 / formula(1024, scaling='weak'):.0f} %: 2,046 latencies" in PAGE


def test_overlap_helps_up_to_eight_ranks():
    for ranks, helps in ((2, True), (4, True), (8, True), (16, False), (64, False)):
        first, second, third = (
            1e3 * dlviz.sim.collective_seconds("ring", ranks, nbytes, 1e-4, 2e-7)
            for nbytes in (5_672, 65_536, 33_280)
        )
        hidden = 1e3 * 64 * 2 * 64 * 128 / 23.443e6 / ranks  # the first layer's backward
        cut = 378.8 / ranks + max(0, first + second - hidden) + third
        assert (cut < formula(ranks)) == helps
    assert "Overlap helps up to eight ranks" in TEXT


def test_the_sum_at_half_is_a_guess_in_five_seeds_whose_relus_are_dead():
    dead, ends = {0.5: [], 2.0: []}, {0.5: [], 2.0: []}
    images, labels = digits("train")
    for rate in dead:
        for seed in range(5):
            net = MLP((64, 128, 128, 10), seed=seed)
            losses = train(net, (images, labels), 100, lr=rate, batch=64, seed=seed)
            ends[rate].append(sum(losses[67:]) / 33)
            relus = [net[:end](images).amax(dim=0) for end in (3, 5)]
            dead[rate].append(sum((each <= 0).sum().item() for each in relus))
    assert max(ends[0.5]) < 0.7 and 2.2 < min(ends[2.0]) < max(ends[2.0]) < 2.5, ends
    assert max(dead[0.5]) <= 8 and min(dead[2.0]) >= 170, dead


def test_the_rule_for_a_noun_is_that_of_the_grammar():
    rules = (ROOT / "data" / "sentences" / "grammar.txt").read_text()
    (noun,) = re.findall(r"^THING -> (.*)$", rules, re.M)
    assert f"    {noun}\n" in TEXT
    p = [float(each) for each in re.findall(r"\[([\d.]+)\]", noun)]
    assert [float(n) for n in re.findall(r"p = torch.tensor\(\[(.*)\]\)", TEXT)[0].split(", ")] == p
    assert f"{dlviz.datasets.entropy_per_token():.3f} nats per token" in TEXT
