"""The trainings that lab 04 compares: each method at several rates, elastic averaging at several
alphas as well, five seeds each.

    python labs/recorded/04_consistency/sweep.py [METHOD ...]      40 minutes, little of it work

writes sweep.json beside it: when and where it was made, and a row for each training. Its `losses`
are those of the batches in the order in which they are done, each at the weights that its worker
had; `right` is how many of the 360 test digits the model recognises at the end (the mean over the
ranks where each has its own), `averaged` how many the ranks' averaged predictions do. A row of the
study "speed" has that order (`steps`), how many are done while all workers have batches
(`together`), and the examples per second meanwhile (`rate`), by the device clock of a paced run.

Only where gradients meet by their times are the trainings paced as well (`ORDERED`), and `late`
says by how many seconds at worst. The seed draws the initial weights and the order of the digits.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import dlviz
from dlviz.analysis.recorded import record
from dlviz.datasets import batches, digits
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models import MLP
from dlviz.parallel import STRATEGIES
from dlviz.parallel.averaging.ensemble import probabilities

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RATES = 0.125, 0.25, 0.5, 1.0
ALPHAS = 0.1, 0.2, 0.4, 0.8  # of elastic averaging
BATCHES = 120  # of 16 digits: 1.3 times through the data
SERVER, NO_SERVER = (1, 1, 1, 1, 3), (1, 1, 1, 3)  # how slow each rank is
METHODS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "synchronous": ("sync_server", SERVER, {}),
    "synchronous, 1 backup": ("sync_server", SERVER, {"backups": 1}),
    "stale-synchronous, s = 1": ("stale_synchronous", SERVER, {"bound": 1}),
    "stale-synchronous, s = 3": ("stale_synchronous", SERVER, {"bound": 3}),
    "asynchronous": ("async_server", SERVER, {}),
    "Hogwild": ("hogwild", NO_SERVER, {}),
    "late all-reduce": ("late_all_reduce", NO_SERVER, {}),
    "local SGD, H = 4": ("local_sgd", NO_SERVER, {"every": 4}),
    "gossip, ring": ("gossip", NO_SERVER, {}),
    "EASGD, round robin": ("easgd", SERVER, {}),
    "EASGD, asynchronous": ("easgd", SERVER, {"form": "asynchronous"}),
    "ensemble": ("ensemble", NO_SERVER, {}),
}

ORDERED = {  # by the times of the ranks; the others give the same losses at any pace
    "synchronous, 1 backup",
    "stale-synchronous, s = 1",
    "stale-synchronous, s = 3",
    "asynchronous",
    "Hogwild",
    "EASGD, asynchronous",
}

Row = dict[str, Any]


def train(method: str, seed: int, many: int = BATCHES, paced: bool = True, **rates: float) -> Any:
    """The run of one training, at `lr` and, where it has one, `alpha`. Paced, a gradient of 16
    digits takes 60 ms, on the last rank three times as long, and messages take no time."""
    strategy, factors, options = METHODS[method]
    device = Device("slow", flops=16 * 20_224 / 0.06, memory=1e9, memory_bandwidth=1e15)
    topology = Topology.switch(len(factors), Link(0, math.inf))
    machine = Machine(device, topology, step=None, factors=factors) if paced else None
    images, labels = digits("train")
    whole = len(labels) // 16 * 16
    data = [*batches(images[:whole], labels[:whole], batch=16, seed=seed, steps=many)]
    arguments = MLP((64, 64, 10), seed=seed), data
    how = {**options, **rates}
    return dlviz.launch(
        STRATEGIES[strategy], len(factors), machine=machine, args=arguments, kwargs=how
    )


def speed(method: str) -> Row:
    """The order in which the batches are done; examples a second, and those of a batch that go into
    an update: `used`."""
    run = train(method, SEEDS[0], **rates(method)[0])
    losses, used = run.results[0]["losses"], 12 if "backup" in method else 16
    done = dlviz.metrics.descent(run.trace, losses, "device")
    rate = dlviz.metrics.to_target(run.trace, losses, 0.0, examples=used, clock="device")[0]
    steps = done.step.tolist()
    last = [max(i for i, step in enumerate(steps) if step % 4 == worker) for worker in range(4)]
    found = {"rate": round(rate, 1), "used": used, "together": min(last) + 1, "steps": steps}
    return {"study": "speed", "method": method, **found}


def rates(method: str) -> list[dict[str, float]]:
    """The rates at which the method is tried."""
    alphas = [{"alpha": alpha} for alpha in ALPHAS] if "EASGD" in method else [{}]
    return [{"lr": lr, **alpha} for lr, alpha in product(RATES, alphas)]


def training(method: str, seed: int, steps: list[int], **rates: float) -> Row:
    """A training's row; `steps`: the batches in the order in which they are done."""
    paced = method in ORDERED
    run = train(method, seed, len(steps), paced, **rates)
    losses = run.results[0]["losses"]
    if paced:
        steps = dlviz.metrics.descent(run.trace, losses, "device").step.tolist()
    done = [round(losses[i], 3) if math.isfinite(losses[i]) else None for i in steps]
    row = {"study": "losses", "method": method, "seed": seed, **rates, "losses": done}
    states = [result["state"] for result in run.results]
    if METHODS[method][1] == SERVER:
        states = states[:1]
    row |= {"right": fmean(right([state]) for state in states), "averaged": right(states)}
    return row | ({"late": round(run.trace.meta["lateness"]["worst"], 3)} if paced else {})


def right(states: list[Any]) -> int:
    """How many test digits the models' averaged predictions recognise."""
    images, labels = digits("test")
    return int((probabilities(MLP((64, 64, 10)), states, images).argmax(1) == labels).sum())


def main(chosen: list[str]) -> None:
    for method in chosen or METHODS:
        new = [speed(method)]
        for seed, each in product(SEEDS, rates(method)):
            new.append(training(method, seed, new[0]["steps"], **each))
        record(FILE, new, "method")


if __name__ == "__main__":
    main(sys.argv[1:])
