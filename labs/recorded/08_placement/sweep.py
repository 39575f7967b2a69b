"""The searches that lab 08 compares: placements learned, drawn at random, moved and scheduled.

    python labs/recorded/08_placement/sweep.py [METHOD ...]      takes some minutes

writes sweep.json beside it: when and where it was made, and a row for each search: the `seconds` of
its best placement as played, `gains`, a pair (samples until then, seconds) for each new best one,
and `last`, the mean seconds of the last third of its samples. table and lstm learn, at three rates
each; they, random and moves play BUDGET placements, five seeds each. heft builds one placement, and
exhaustive plays all. The seed draws placements, and the first weights of lstm; DRAWN_BY drew the
graph of 17 groups.
"""

from __future__ import annotations

import math
import random
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

from dlviz.analysis.recorded import last_third, record
from dlviz.machine import Link
from dlviz.models.placer import learn
from dlviz.sim import Devices, Graph, search
from dlviz.sim.placement import LAB
from dlviz.sim.placement.found import Found

FILE = Path(__file__).with_name("sweep.json")
SEEDS, BUDGET, DRAWN_BY = range(5), 2000, 17
RATES = {"table": (0.02, 0.05, 0.1), "lstm": (0.003, 0.01, 0.03)}
METHODS = "table", "lstm", "random", "moves", "heft", "exhaustive"
LINK = Link(1, math.inf)  # a message costs a second


def drawn(groups: int, seed: int) -> Graph:
    """A graph of `groups` of 1 to 4 seconds, which need up to three of the five before them."""
    draw = random.Random(seed)
    before = [range(max(0, group - 5), group) for group in range(groups)]
    parents = [draw.sample(own, min(len(own), draw.randint(1, 3))) for own in before]
    return Graph([draw.randint(1, 4) for _ in parents], parents, [1] * groups)


CASES = {
    "17 groups, two devices": (drawn(17, DRAWN_BY), Devices(2, LINK)),
    "ten groups, four devices": (LAB, Devices(4, LINK)),
}


def run(method: str, case: str, seed: int, lr: float | None) -> Found:
    """One search."""
    if method in RATES:
        return learn(*CASES[case], method, samples=BUDGET, seed=seed, lr=lr)
    options = {"budget": BUDGET, "seed": seed} if method in ("random", "moves") else {}
    return search(*CASES[case], method, **options)


def row(method: str, case: str, seed: int, lr: float | None) -> dict[str, Any]:
    """A search's row."""
    found = run(method, case, seed, lr)
    gains: list[tuple[int, float]] = []
    for number, seconds in enumerate(found.samples, 1):
        if not gains or seconds < gains[-1][1]:
            gains.append((number, seconds))
    keys = {"method": method, "case": case, "seed": seed, "lr": lr}
    last = round(last_third(found.samples), 3)
    return keys | {"seconds": found.seconds, "gains": gains, "last": last}


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    for method in chosen or METHODS:
        seeds = (0,) if method in ("heft", "exhaustive") else SEEDS
        tried = product(CASES, seeds, RATES.get(method, (None,)))
        record(FILE, [row(method, *each) for each in tried], "method")


if __name__ == "__main__":
    main(sys.argv[1:])
