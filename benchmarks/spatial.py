"""A convolution of images that two ranks cut along H, against one process with one thread: forward,
backward, and the all-reduce of dw and db. In turn, on the same processes: the second waits while
the first is alone."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.parallel.convolution import Cut, spatial

SHAPE, FILTERS, KERNEL = (16, 32, 64, 64), 32, 3
WARM_UP, STEPS = 3, 10
TARGET = 1.5


def seconds(comm: Any, step: Any, steps: int = STEPS) -> float:
    """The slowest rank's mean seconds."""
    comm.barrier()
    start = perf_counter()
    for _ in range(steps):
        step()
    slowest = torch.tensor([(perf_counter() - start) / steps])
    comm.all_reduce(slowest, "max")
    return slowest.item()


def worker(comm: Any) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, height = torch.randn(SHAPE), Cut(comm, SHAPE[2])
    weight = torch.randn(FILTERS, SHAPE[1], KERNEL, KERNEL)
    lo, hi = height.block
    block = images[:, :, lo:hi].contiguous()

    def step(x: torch.Tensor, convolve: Any, total: bool) -> list[Any]:
        leaves = [each.detach().requires_grad_() for each in (x, weight, weight[:, 0, 0, 0])]
        y = convolve(*leaves, padding=KERNEL // 2)
        y.backward(y.detach())
        found = [leaf.grad for leaf in leaves]
        for gradient in found[1:] if total else []:
            comm.all_reduce(gradient)
        return [y.detach(), *found]

    ours = partial(step, block, partial(spatial.conv2d, height=height), True)
    whole = partial(step, images, F.conv2d, False)
    for part, all_rows in zip(ours(), whole(), strict=True):
        if part.dim() == 4 and len(part) == len(images):
            all_rows = all_rows[:, :, lo:hi]
        near = 1e-4 * float(all_rows.abs().max())
        torch.testing.assert_close(part, all_rows, rtol=0, atol=near)
    alone = whole if comm.rank == 0 else list
    ways = {"ours": ours, "alone": alone}
    for way in ways.values():
        seconds(comm, way, WARM_UP)
    return take_turns({name: partial(seconds, comm, way) for name, way in ways.items()})


def rows() -> list[Row]:
    size = " x ".join(map(str, SHAPE))
    times = launch(worker, 2, timeout=300).results[0]
    return [compare(f"conv 3x3, {size}, 2 ranks", times["ours"], times["alone"], TARGET)]
