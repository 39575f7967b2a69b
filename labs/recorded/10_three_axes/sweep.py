"""The steps that lab 10 compares: all plans of eight ranks, five times each; and the gradients of a
mesh with dp between two racks, averaged after the flush and during the last backwards.

    python labs/recorded/10_three_axes/sweep.py [PLAN ... overlap]      3 minutes, little of it work

writes sweep.json beside it: when and where it was made, and a row for each run of one step of 32
texts in 4 microbatches a replica. `seconds` are those of the device clock, `bubble` is the bubble
ratio with all-reduces as work, `weights` the largest part of the model that a rank holds, and
`sent` the bytes that a rank sends along each axis, the most of any; `late` says by how many seconds
the run was behind its pace at worst. The seed draws the initial weights and the texts.

`overlap` writes overlap.json, with a row for each run of one step of 16 texts. Where two lanes of a
rank send at the same time, a late run mixes up who is first, and with that the device clock. So
device and links are `SLOWER` times as slow as the lab's, which makes a delay a smaller part of the
step, and the seconds are divided by `SLOWER`.
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

FILE, OVERLAP = (Path(__file__).with_name(f"{name}.json") for name in ("sweep", "overlap"))
SEEDS = range(5)
RANKS, LAYERS, HEADS = 8, 4, 4
FAST = Link(0, 20e6)
BUCKET_BYTES, SLOWER = 20_000, 5
DEVICE = Device("slow", flops=3e8, memory=1e9, memory_bandwidth=2e8)
PLANS = {
    f"dp {dp}, pp {pp}, tp {tp}": {"dp": dp, "pp": pp, "tp": tp}
    for dp, pp, tp in product((8, 4, 2, 1), repeat=3)
    if dp * pp * tp == RANKS and pp <= LAYERS and tp <= HEADS
}


def train(
    seed: int, topology: Topology, size: int = 32, device: Device = DEVICE, **plan: Any
) -> Any:
    """The run of one step of `size` texts."""
    start = torch.randint(127, (32, 1), generator=torch.Generator().manual_seed(seed))
    texts = (start + 3 * torch.arange(65)) % 127 + 1  # each token is the previous one plus 3
    with torch.device("meta"):
        net = Transformer(LAYERS, 64, HEADS, 128, 64, seed=seed)
    machine = Machine(device, topology, step=None)
    work = net, [(texts[:size, :-1], texts[:size, 1:])]
    options = {**plan, "microbatches": 4}
    return dlviz.launch(hybrid.train, RANKS, machine=machine, args=work, kwargs=options)


def row(plan: str, seed: int) -> dict[str, Any]:
    """What a run of the plan measured."""
    trace = train(seed, Topology.switch(RANKS, FAST), **PLANS[plan]).trace
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


def between(overlap: bool, seed: int) -> dict[str, Any]:
    """What a step with dp between the racks measured."""
    how = {"overlap": True, "bucket_bytes": BUCKET_BYTES} if overlap else {}
    racks = Topology.racks(2, RANKS // 2, Link(0, 20e6 / SLOWER), Link(0, 2e6 / SLOWER))
    slower = Device("slower", 3e8 / SLOWER, 1e9, 2e8 / SLOWER)
    trace = train(seed, racks, 16, slower, dp=2, pp=2, tp=2, **how).trace
    return {"overlap": overlap, "seed": seed, "seconds": round(seconds_per_step(trace) / SLOWER, 4)}


def main(chosen: list[str]) -> None:
    for plan in chosen or [*PLANS, "overlap"]:
        if plan == "overlap":
            record(OVERLAP, [between(how, s) for how in (False, True) for s in SEEDS], "overlap")
        else:
            record(FILE, [row(plan, seed) for seed in SEEDS], "plan")


if __name__ == "__main__":
    main(sys.argv[1:])
