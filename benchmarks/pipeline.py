"""A training step of a pipeline: ours against torch.distributed.pipelining, on the same processes,
in turn.

Both get the same stages, batch and loss. Ours gives the mean loss to every rank; torch's stays on
the last.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.distributed import pipelining

from benchmarks.table import Row, compare, take_turns
from dlviz import launch, schedules
from dlviz.parallel.pipeline import Shapes, train_step

RANKS, MICROBATCHES = 4, 8
SIZES = {"small": (64, 8), "larger": (512, 64)}  # width, rows of a microbatch
TARGETS = {
    ("small", "gpipe"): 2.0,
    ("small", "1f1b"): 1.4,
    ("larger", "gpipe"): 1.25,
    ("larger", "1f1b"): 1.25,
}
THEIRS = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}
WARM_UP, STEPS = 3, 10


def stages_of(width: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        for _ in range(RANKS)
    ]


def ours(comm: Any, name: str, width: int, x: torch.Tensor) -> Any:
    stages = stages_of(width)
    schedule = schedules.make(name, comm.size, MICROBATCHES)
    return stages[comm.rank], partial(
        train_step, comm, stages, schedule, x, x, nn.functional.mse_loss, shapes=Shapes()
    )


def theirs(comm: Any, name: str, width: int, x: torch.Tensor) -> Any:
    module = stages_of(width)[comm.rank]
    stage = pipelining.PipelineStage(module, comm.rank, comm.size, torch.device("cpu"))
    schedule = THEIRS[name](stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    if comm.rank == 0:
        return module, partial(schedule.step, x)
    if comm.rank == comm.size - 1:
        return module, lambda: schedule.step(target=x, losses=[])
    return module, schedule.step


def seconds_a_step(comm: Any, module: nn.Module, step: Any, steps: int) -> float:
    """The slowest rank's mean seconds."""
    comm.barrier()
    start = perf_counter()
    for _ in range(steps):
        module.zero_grad()
        step()
    slowest = torch.tensor([(perf_counter() - start) / steps])
    comm.all_reduce(slowest, "max")
    return slowest.item()


def worker(comm: Any, name: str, width: int, rows: int) -> dict[str, list[float]]:
    x = torch.randn(MICROBATCHES * rows, width)
    runs = {"ours": ours(comm, name, width, x), "torch": theirs(comm, name, width, x)}
    for module, step in runs.values():
        seconds_a_step(comm, module, step, WARM_UP)
    gradients = [[p.grad.clone() for p in module.parameters()] for module, _ in runs.values()]
    for own, their in zip(*gradients, strict=True):
        torch.testing.assert_close(own, their)
    return take_turns(
        {who: partial(seconds_a_step, comm, *run, STEPS) for who, run in runs.items()}
    )


def rows() -> list[Row]:
    found = []
    for size, (width, length) in SIZES.items():
        for name in THEIRS:
            times = launch(worker, ranks=RANKS, timeout=300, args=(name, width, length)).results[0]
            what = f"pipeline step, {name}, p=4 m=8, width {width}"
            found.append(compare(what, times["ours"], times["torch"], TARGETS[size, name]))
    return found
