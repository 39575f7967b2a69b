"""The steps that lab 10 compares: all plans of eight ranks, five times each.

    python labs/recorded/10_three_axes/sweep.py [PLAN ...]      2 minutes, little of it work

writes sweep.json beside it: when and where it was made, and a row for each run of one step of 32
texts in 4 microbatches a replica. `seconds` are those of the device clock, `bubble` is the bubble
ratio with all-reduces as work, `weights` the largest part of the model that a rank holds, and
`sent` the bytes that a rank sends along each axis, the most of any; `late` says by how many seconds
the run was behind its pace at worst. The seed draws the initial weights and the texts.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

import dlviz
from dlviz.analysis.axes import axes
from dlviz.analysis.memory import held
from dlviz.analysis.recorded import record
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.metrics import bubble_ratio, seconds_per_step
from dlviz.models import Transformer
from dlviz.parallel import hybrid

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RANKS, LAYERS, HEADS = 8, 4, 4
DEVICE = Device("slow", flops=3e8, memory=1e9, memory_bandwidth=2e8)
PLANS = {
    f"dp {dp}, pp {pp}, tp {tp}": {"dp": dp, "pp": pp, "tp": tp}
    for dp, pp, tp in product((8, 4, 2, 1), repeat=3)
    if dp * pp * tp == RANKS and pp <= LAYERS and tp <= HEADS
}


def train(plan: str, seed: int) -> Any:
    """The run of one step."""
    start = torch.randint(127, (32, 1), generator=torch.Generator().manual_seed(seed))
    texts = (start + 3 * torch.arange(65)) % 127 + 1  # each token is the previous one plus 3
    with torch.device("meta"):
        net = Transformer(LAYERS, 64, HEADS, 128, 64, seed=seed)
    machine = Machine(DEVICE, Topology.switch(RANKS, Link(0, 20e6)), step=None)
    work = net, [(texts[:, :-1], texts[:, 1:])]
    options = {**PLANS[plan], "microbatches": 4}
    return dlviz.launch(hybrid.train, RANKS, machine=machine, args=work, kwargs=options)


def row(plan: str, seed: int) -> dict[str, Any]:
    """What a run of the plan measured."""
    run = train(plan, seed)
    trace = run.trace
    sent = {axis: int(own.sent.max()) for axis, own in axes(trace).items()}
    weights = max(own.peak for own in held(trace, "weights"))
    model = Transformer(LAYERS, 64, HEADS, 128, 64)
    whole = sum(parameter.nbytes for parameter in model.parameters())
    return {
        "plan": plan,
        **PLANS[plan],
        "seed": seed,
        "seconds": round(seconds_per_step(trace), 4),
        "bubble": round(bubble_ratio(trace, whole_actions=True), 4),
        "weights": round(weights / whole, 4),
        "sent": {axis: sent.get(axis, 0) for axis in PLANS[plan]},
        "late": round(trace.meta["lateness"]["worst"], 3),
    }


def main(chosen: list[str]) -> None:
    for plan in chosen or PLANS:
        record(FILE, [row(plan, seed) for seed in SEEDS], "plan")


if __name__ == "__main__":
    main(sys.argv[1:])
