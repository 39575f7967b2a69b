"""The figures that the text of lab 04 states: by the simulator, by formulas, and from the recorded
trainings, of which one is made again; what its runs said is in test_labs_stored.py."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
from loading import loaded

import dlviz
from dlviz.analysis.compared import Compared, at_best_rates
from dlviz.analysis.descent import running_mean
from dlviz.analysis.recorded import Recorded, last_third
from dlviz.datasets import dealt_by_label, digits, joined
from dlviz.machine import Chance, Device, Link, Machine, Topology
from dlviz.metrics import makespan
from dlviz.sim import Layer, strategy

LABS = Path(__file__).parents[2] / "labs"
LAB = LABS / "04_consistency.ipynb"
RECORDED = LABS / "recorded" / "04_consistency"
ROWS = Recorded.load(RECORDED / "sweep.json").rows
PAGE = (LABS.parent / "docs" / "teaching" / "04_consistency.md").read_text()


def at(target: float) -> dict[str, Compared]:
    """Each method at its best rate, as the lab compares them."""
    return {one.method: one for one in at_best_rates(ROWS, target, over=12)}


BEST = at(1.2)
SECONDS = {name: median(one.seconds) for name, one in BEST.items()}
EXAMPLES = {name: median(one.examples) for name, one in BEST.items()}
FORMULAS = {  # a question's answer, by its id
    "synchronous-rate": 4 / 0.18,
    "asynchronous-rate": 3 / 0.06 + 1 / 0.18,
    "backup-worker-rate": 3 / 0.06,
    "staleness-slow-worker": (3 * 3 * 7 / 3 + 9) / 10,
    "bounded-always-slow": 3 * 60,
    "bounded-by-chance": 60 + 120 * (1 - 0.9**4),
    "asynchronous-speed-up": SECONDS["synchronous"] / SECONDS["asynchronous"],
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
    assert "costs 60 % of all gradients" in TEXT and "10 % less than 55.6" in TEXT


def test_a_backup_worker_leaves_50_gradients_a_second_and_with_the_end_of_the_run_47_6():
    trace = played("sync_server", 60, backups=1)
    assert 3e3 / pace(trace)[0] == pytest.approx(50)
    assert makespan(trace) == pytest.approx(3.78)
    assert (trace.messages.src == 4).sum() == 21  # all of them dropped, the last at the end
    assert "Both runs took 3.8 seconds" in TEXT and makespan(
        played("sync_server", 21)
    ) == pytest.approx(3.78)


def test_only_rank_4_has_digits_8_and_9():
    own = [range(8), range(8), range(8), (8, 9)]
    assert "own = [range(8), range(8), range(8), (8, 9)]" in TEXT
    for _, labels in joined(dealt_by_label(*digits("train"), own, batch=16, steps=60), 4):
        parts = labels.tensor_split(4)
        assert [len(part) for part in parts] == [16] * 4
        assert all((part < 8).all() for part in parts[:3]) and (parts[3] >= 8).all()


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


def test_a_bound_of_clocks_bounds_staleness():
    """While a worker's clock is c, another's goes from c - s at least to c + s + 1 at most."""
    assert "at (2s + 1)(n - 1) updates" in TEXT
    for bound in (1, 3):
        for slow in (1.5, 3, 7):
            trace = played("stale_synchronous", 120, (1, 1, 1.3, 1, slow), bound=bound)
            assert dlviz.metrics.staleness(trace)["staleness"].max() <= (2 * bound + 1) * 3


@pytest.mark.parametrize("bound", [1, 3])
def test_a_bound_buys_nothing_where_rank_4_is_always_slow(bound):
    trace = played("stale_synchronous", 48, bound=bound)
    assert pace(trace, after=5) == pytest.approx([180] * 4)
    waits = trace.only(rank=1, kind="phase").spans
    assert 1e3 * waits.start[2] == pytest.approx(120 if bound == 3 else 180)
    if bound == 3:
        free, held = 1e3 * waits.start[4:6]  # a fifth gradient begins at once, a sixth has to wait
        assert (free, held) == pytest.approx((240, 360)) and "in the first 300 ms" in TEXT


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


def sweep() -> ModuleType:
    """The script that recorded the trainings."""
    return loaded(RECORDED / "sweep.py")


def test_every_method_was_recorded_at_four_rates_with_five_seeds():
    made = sweep()
    keys = [
        (row["method"], row["lr"], row.get("alpha"), row["seed"])
        for row in ROWS
        if row["study"] == "losses"
    ]
    assert {*keys} == {
        (method, rates["lr"], rates.get("alpha"), seed)
        for method in made.METHODS
        for rates in made.rates(method)
        for seed in range(5)
    }
    assert len(keys) == (10 + 2 * 4) * 4 * 5 and "twelve methods" in TEXT
    assert "four learning rates, 0.125 to 1" in TEXT and made.RATES[0] == 0.125
    assert "each with four α, 0.1 to 0.8" in TEXT and made.ALPHAS[:: len(made.ALPHAS) - 1] == (
        0.1,
        0.8,
    )
    assert all(one.lr in made.RATES[1:3] for one in BEST.values()), "no best rate is at the border"


@pytest.mark.parametrize(
    ("method", "rates"),
    [
        ("synchronous", {"lr": 0.5}), ("ensemble", {"lr": 0.5}),
        ("EASGD, round robin", {"lr": 0.5, "alpha": 0.2}),
    ],
)  # fmt: skip
def test_a_recorded_training_is_made_again(method, rates):
    made = sweep()
    key = {"method": method, "seed": 0, **rates}
    (stored,) = (row for row in ROWS if key.items() <= row.items())
    (speed,) = (row for row in ROWS if (row["study"], row["method"]) == ("speed", method))
    again = made.training(method, 0, [step for step in speed["steps"] if step < 40], **rates)
    first = [loss for loss, step in zip(stored["losses"], speed["steps"], strict=True) if step < 40]
    assert again["losses"] == pytest.approx(first, abs=2e-3)  # another CPU rounds


@pytest.mark.parametrize(
    ("method", "share"),
    [
        ("synchronous", 4), ("synchronous, 1 backup", 4), ("stale-synchronous, s = 1", 1),
        ("stale-synchronous, s = 3", 1), ("asynchronous", 1), ("local SGD, H = 4", 4),
        ("gossip, ring", 4),
    ],
)  # fmt: skip
def test_the_recorded_speeds_are_those_of_the_simulator(method, share):
    name, factors, options = sweep().METHODS[method]
    layers = [
        Layer(one.name, one.forward / share, one.backward / share, one.nbytes) for one in LAYERS
    ]
    device = Device("slow", flops=1.0, memory=1e9, memory_bandwidth=1e15)
    switch = Topology.switch(len(factors), Link(0, math.inf))
    machine = Machine(device, switch, step=None, factors=factors)
    trace = strategy(name, layers, 120, machine, update=UPDATE, **options)
    used = 12 if "backup" in method else 16
    found = dlviz.metrics.to_target(trace, [1.0] * 120, 0.0, examples=used, clock="device")
    assert BEST[method].examples_per_second == pytest.approx(found.examples_per_second, abs=0.06)


def test_the_text_says_what_was_recorded():
    backup, plain = "synchronous, 1 backup", "synchronous"
    assert min(SECONDS, key=SECONDS.__getitem__) == backup
    assert f"{SECONDS[backup]:.2f} s, by far the fastest" in TEXT
    assert SECONDS[backup] < 0.5 * min(s for name, s in SECONDS.items() if name != backup)
    assert f"{EXAMPLES[backup]:.0f} examples in place of {EXAMPLES[plain]:.0f}" in TEXT
    assert f"{EXAMPLES[backup] / 12:.0f} updates, not {EXAMPLES[plain] / 16:.0f}" in TEXT
    for name in ("asynchronous", "Hogwild"):
        faster = BEST[name].examples_per_second / BEST[plain].examples_per_second
        assert f"{faster - 1e-9:.1f}" in ("2.4", "2.5"), name
        assert round(EXAMPLES[name] / EXAMPLES[plain], 1) == 1.9, name
        assert BEST[name].lr == BEST[plain].lr / 2, name
        assert round(SECONDS[plain] / SECONDS[name], 1) == 1.3, name
    each, hogwild = (
        sorted(one / other for one, other in zip(BEST[plain].seconds, own.seconds, strict=True))
        for own in (BEST["asynchronous"], BEST["Hogwild"])
    )
    assert each[0] < 1 < hogwild[0] and "the server not in every seed" in TEXT
    assert f"Seed by seed it is {each[0]:.1f} to {each[-1]:.1f}" in PAGE


def test_who_waits_a_little_later_gains_nothing():
    late = [
        "local SGD, H = 4",
        "late all-reduce",
        "stale-synchronous, s = 1",
        "stale-synchronous, s = 3",
    ]
    more = [EXAMPLES[name] / EXAMPLES["synchronous"] for name in late]
    assert (round(min(more), 1), round(max(more), 1)) == (1.5, 2.1) and "1.5 to 2.1 times" in TEXT
    assert all(SECONDS[name] > SECONDS["synchronous"] for name in [*late, "gossip, ring"])
    assert EXAMPLES["gossip, ring"] == pytest.approx(EXAMPLES["synchronous"], rel=0.05)


def test_the_centre_and_the_averaged_predictions_recognise_more_than_a_worker():
    for name, arrive in (("EASGD, round robin", 0), ("EASGD, asynchronous", 0), ("ensemble", 1)):
        assert sum(each < math.inf for each in BEST[name].examples) == arrive, name
    assert "does not arrive, but for one seed of the ensemble" in TEXT
    centre = median(BEST["EASGD, asynchronous"].right) / 360
    member, together = (median(each) / 360 for each in BEST["ensemble"][-2:])
    assert f"asynchronous centre recognises {centre:.0%}".replace("%", " %") in TEXT
    said = f"an ensemble {together:.0%} where its members have {member:.0%}".replace("%", " %")
    assert said in TEXT


def of_easgd(method: str, what) -> dict[float, float]:
    """The median over the seeds of `what` of a row, at the rate 0.5, by alpha."""
    rows = [row for row in ROWS if (row["method"], row.get("lr")) == (method, 0.5)]
    alphas = sorted({row["alpha"] for row in rows})
    return {alpha: median(what(r) for r in rows if r["alpha"] == alpha) for alpha in alphas}


def test_the_weaker_the_spring_the_lower_a_workers_own_loss():
    assert "at any α, and the ensemble, which is α = 0" in TEXT
    for method in ("EASGD, round robin", "EASGD, asynchronous"):
        together = next(row["together"] for row in ROWS if row["method"] == method)
        ends = of_easgd(method, lambda row, n=together: last_third(row["losses"][:n]))
        assert [*ends.values()] == sorted(ends.values()) and BEST[method].alpha == min(ends)
        assert median(BEST["ensemble"].ends) < ends[0.1]
    assert f"from {ends[0.1]:.2f} at α = 0.1 to {ends[0.8]:.2f} at 0.8" in PAGE
    assert f"(the ensemble, α = 0, has {median(BEST['ensemble'].ends):.2f})" in PAGE
    centre = of_easgd("EASGD, asynchronous", lambda row: row["right"] / 3.6)
    assert max(centre, key=centre.__getitem__) == 0.2
    best, least, most = (f"{centre[alpha]:.1f}" for alpha in (0.2, 0.1, 0.8))
    assert f"{best} % of the test digits, {least} at 0.1, {most} at 0.8" in PAGE


def test_the_lower_the_target_the_less_is_left_of_the_asynchronous_speed():
    left = {}
    for target in (1.8, 1.0):
        found = at(target)
        left[target] = median(found["synchronous"].seconds) / median(found["asynchronous"].seconds)
    assert f"**{left[1.8]:.2f} at a loss of 1.8, and {left[1.0]:.2f} at 1.0**" in PAGE
    assert "where two of five seeds of the asynchronous server do not arrive" in PAGE
    assert sum(each == math.inf for each in found["asynchronous"].examples) == 2
    assert all(median(one.examples) < math.inf for one in at(1.8).values())


def test_at_the_rate_of_the_synchronous_server_the_asynchronous_one_never_arrives():
    rows = [row for row in ROWS if (row["method"], row.get("lr")) == ("asynchronous", 0.5)]
    for row in rows:
        losses = np.array([np.inf if loss is None else loss for loss in row["losses"][:98]])
        assert np.nanmin(running_mean(losses, 12)) > 1.2
    assert len(rows) == 5
