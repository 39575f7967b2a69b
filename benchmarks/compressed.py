"""A DDP step with coded gradients: ours against torch's DDP with its own communication hooks."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from benchmarks.ddp import SIZES, WARM_UP, network, seconds_a_step
from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.compression import make
from dlviz.parallel.data import DDP

SIZE = 269_322  # parameters
TARGETS = {"fp16": 1.0, "power": 1.5}


def torchs(name: str, net: nn.Module) -> nn.Module:
    """torch's DDP with its hook for that code."""
    theirs = nn.parallel.DistributedDataParallel(net)
    if name == "fp16":
        theirs.register_comm_hook(None, fp16_compress_hook)
    else:
        state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        theirs.register_comm_hook(state, powerSGD_hook)
    return theirs


def worker(comm: Any) -> dict[tuple[str, str], list[float]]:
    """By code and whose, the seconds a step of each round."""
    widths, steps = SIZES[SIZE]
    contestants = {}
    for name in TARGETS:
        for whose in ("ours", "torch"):
            net = network(widths)
            if whose == "ours":
                by = make(name)
                net = DDP(net, comm, "backend", compressor=by, feedback=name == "power")
            else:
                net = torchs(name, net)
            seconds_a_step(comm, net, widths[0], WARM_UP)
            contestants[name, whose] = partial(seconds_a_step, comm, net, widths[0], steps)
    return take_turns(contestants)


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        times = launch(worker, ranks=ranks, timeout=300).results[0]
        for name, target in TARGETS.items():
            what = f"DDP by {name}, {ranks} ranks, {SIZE:,} par."
            found.append(compare(what, times[name, "ours"], times[name, "torch"], target))
    return found
