"""The figures that the text of lab 04 states: by the simulator, by formulas, and from its own data;
what the wall clock said is in the committed outputs (test_labs_stored.py)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

import dlviz
from dlviz.machine import Chance, Device, Link, Machine, Topology
from dlviz.metrics import makespan
from dlviz.parallel.averaging.easgd.stability import stable_alpha
from dlviz.parallel.averaging.gossip import contraction
from dlviz.sim import Layer, strategy

LAB = Path(__file__).parents[2] / "labs" / "04_consistency.ipynb"
FORMULAS = {  # a question's answer, by its id
    "synchronous-rate": 4 / 0.18,
    "asynchronous-rate": 3 / 0.06 + 1 / 0.18,
    "backup-worker-rate": 3 / 0.06,
    "staleness-alike": 4 - 1,
    "staleness-slow-worker": (3 * 3 * 7 / 3 + 9) / 10,
    "bounded-always-slow": 3 * 60,
    "bounded-by-chance": 60 + 120 * (1 - 0.9**4),
}
CELLS = nbformat.read(LAB, as_version=4).cells
TEXT = "\n".join(cell.source for cell in CELLS)
LAYERS = [Layer("1", 0.02, 0.02, 16_640), Layer("3", 0.01, 0.01, 2_600)]  # a gradient: 60 ms
UPDATE = 3 * 4 * 4_810 / 1e15  # s: nearly nothing, but fast workers come after rank 4 by it
SLOW = (1, 1, 1, 1, 3)


def played(name: str, batches: int, factors: Any = SLOW, **options: Any) -> dlviz.Trace:
    device = Device("slow", flops=1.0, memory=1e9, memory_bandwidth=1e15)
    topology = Topology.switch(len(factors), Link(0, math.inf))
    machine = Machine(device, topology, step=None, factors=factors)
    return strategy(name, LAYERS, batches, machine, update=UPDATE, **options)


def pace(trace: dlviz.Trace, after: int = 0) -> np.ndarray:
    """Milliseconds from one push of each worker to its next."""
    pushes = trace.messages[trace.messages.dst == 0]
    moments = [np.sort(pushes.received[pushes.src == worker])[after:] for worker in range(1, 5)]
    return np.array([1e3 * np.diff(each).mean() for each in moments])


def test_a_gradient_of_16_digits_takes_60_ms_on_the_machine_of_the_lab():
    flops = 6 * (64 * 64 + 64 * 10) - 2 * 64 * 64
    assert flops == 20_224 and "flops=16 * 20_224 / 0.06" in TEXT and "20,224 FLOP" in TEXT


def test_a_synchronous_server_takes_in_22_gradients_a_second_and_an_asynchronous_one_56():
    synchronous = (1e3 / pace(played("sync_server", 21))).sum()
    asynchronous = (1e3 / pace(played("async_server", 84))).sum()
    assert synchronous == pytest.approx(4 / 0.18) and asynchronous == pytest.approx(500 / 9)
    assert 1 - synchronous / asynchronous == pytest.approx(0.6)
    assert "costs 60 % of all gradients" in TEXT and "the 55.6" in TEXT


def test_a_backup_worker_leaves_50_gradients_a_second_and_with_the_end_of_the_run_47_6():
    trace = played("sync_server", 60, backups=1)
    assert 3e3 / pace(trace)[0] == pytest.approx(50)
    assert makespan(trace) == pytest.approx(3.78)
    assert (trace.messages.src == 4).sum() == 21  # all of them dropped, the last at the end
    assert 180 / 3.78 == pytest.approx(47.6, abs=0.05)


def test_only_rank_4_has_digits_8_and_9():
    (cell,) = [c.source for c in CELLS if "def dealt" in c.source]
    names: dict[str, Any] = {}
    exec("import torch\nfrom dlviz.datasets import batches, digits\n", names)
    exec(cell.partition("\n\n\nsynchronous =")[0], names)
    for _, labels in names["joined"](names["dealt"](60)):
        parts = labels.tensor_split(4)
        assert [len(part) for part in parts] == [16] * 4
        assert [bool((part >= 8).any()) for part in parts] == [False] * 3 + [True]
        assert (parts[3] >= 8).all()


@pytest.mark.parametrize(("slow", "old", "others"), [(1, 3, 3), (3, 9, 7 / 3), (5, 15, 2.2)])
def test_gradients_are_three_updates_old_on_average_whoever_is_slow(slow, old, others):
    trace = played("async_server", 4 * 40, (1, 1, 1, 1, slow))
    found = dlviz.metrics.staleness(trace)
    cycle = 3 * slow + 1  # updates from one of rank 4 to its next
    last = 16 + 3 * cycle
    rank, stale = found["rank"][16:last], found["staleness"][16:last]
    assert stale.mean() == pytest.approx(3)
    assert stale[rank == 4].mean() == pytest.approx(old)
    assert stale[rank != 4].mean() == pytest.approx(others)


@pytest.mark.parametrize("bound", [1, 3])
def test_a_bound_buys_nothing_where_rank_4_is_always_slow(bound):
    trace = played("stale_synchronous", 48, bound=bound)
    assert pace(trace, after=5) == pytest.approx([180] * 4)
    waits = trace.only(rank=1, kind="phase").spans
    assert 1e3 * waits.start[2] == pytest.approx(120 if bound == 3 else 180)


def clocks(draws: np.ndarray, bound: float) -> np.ndarray:
    """When each worker has pushed each of its gradients, which take 60 ms times the draw: (...,
    workers, clocks). A worker goes on when the slowest has pushed all but `bound` as many."""
    done = np.zeros((*draws.shape[:-1], draws.shape[-1] + 1))
    for clock in range(draws.shape[-1]):
        free = done[..., clock]
        if clock > bound:
            slowest = done[..., int(clock - bound)].max(-1, keepdims=True)
            free = np.maximum(free, slowest)
        done[..., clock + 1] = free + 60 * draws[..., clock]
    return done[..., 1:]


def test_by_chance_a_clock_takes_what_the_lab_says_in_the_long_run_and_by_its_draws():
    drawn = np.random.default_rng(0).random((500, 4, 500)) < 0.1
    chance = Chance(0.1, 3, seed=111)
    own = np.array([[chance.draw(rank, n) for n in range(40)] for rank in range(1, 5)])
    assert "Chance(0.1, 3, seed=111, together=4)" in TEXT
    for bound, long_run in {0: 101.3, 1: 84.4, 3: 77.1, math.inf: 72}.items():
        name = "math.inf" if bound == math.inf else str(bound)
        assert f"{name}: {long_run:g}" in TEXT
        times = clocks(np.where(drawn, 3.0, 1.0), bound)
        assert (times[..., -1] - times[..., 99]).mean() / 400 == pytest.approx(long_run, abs=0.3)
        times = clocks(own, bound)
        assert (times[:, -1] - times[:, 0]).mean() / 39 == pytest.approx(long_run, rel=0.02)


def test_the_bounds_of_alpha_are_those_of_the_lab():
    assert stable_alpha(1, 0.5, "synchronous") == pytest.approx(0.857, abs=5e-4)
    assert stable_alpha(4, 0.5, "synchronous") == pytest.approx(0.375) == 3 / 8
    assert "α is below 0.857" in TEXT and "= 0.375 for p = 4" in TEXT


def test_a_ring_of_8_takes_22_rounds_to_1_percent():
    left = contraction(8, "ring")
    assert left**21 > 0.01 > left**22 and round(left, 3) == 0.805 and "80.5 %" in TEXT
