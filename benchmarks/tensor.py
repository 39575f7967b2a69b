"""A step of layers cut over ranks: ours against torch's DTensor, on the same processes and the same
weights, in turn."""

from __future__ import annotations

import copy
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.models.transformer import Block, FeedForward
from dlviz.parallel.tensor import ParallelMLP
from dlviz.parallel.tensor.transformer import ParallelBlock

MLP = "MLP, 512 to 2048, B 64"
BLOCK = "block, h 256, s 64, B 8"
SHAPES = {MLP: (64, 512), BLOCK: (8, 64, 256)}
HEADS = 8
WARM_UP, STEPS = 5, 20
TARGET = 1.2


def plain(what: str) -> nn.Module:
    torch.manual_seed(0)
    if what == MLP:
        return FeedForward(512, 2048)
    return Block(256, HEADS, HEADS, dropout=0.0, seed=0, number=0)


def ours(comm: Any, what: str, whole: nn.Module, all_reduce: str) -> nn.Module:
    if what == MLP:
        mlp = ParallelMLP(comm, 512, 2048, all_reduce=all_reduce)
        mlp.load(whole.state_dict())
        return mlp
    block = ParallelBlock(comm, 256, HEADS, HEADS, 0.0, 0, 0, all_reduce=all_reduce)
    block.attention.load(whole.get_submodule("attention").state_dict())
    block.mlp.load(whole.get_submodule("mlp").state_dict())
    return block


def torchs(comm: Any, what: str, whole: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh

    return cut_by_torch(copy.deepcopy(whole), init_device_mesh("cpu", (comm.size,)))


def cut_by_torch(net: nn.Module, axis: Any) -> nn.Module:
    """By columns, then by rows; one all-reduce of the gradient of what enters q, k and v."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    plan: dict[str, Any] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if isinstance(net, Block):
        plan = {f"mlp.{name}": style for name, style in plan.items()}
        plan |= {f"attention.{name}": ColwiseParallel() for name in "qkv"}
        plan["attention"] = PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Replicate()
        )
        plan["attention.output"] = RowwiseParallel()
        net.attention.heads //= axis.size()
        net.attention.kv_heads //= axis.size()
    return parallelize_module(net, axis, plan)


def seconds_a_step(comm: Any, net: nn.Module, what: str, steps: int) -> float:
    """The slowest rank's mean seconds for forward, backward and update."""
    x = torch.randn(SHAPES[what], requires_grad=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, foreach=False)
    comm.barrier()
    start = perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    slowest = torch.tensor([(perf_counter() - start) / steps])
    comm.all_reduce(slowest, "max")
    return slowest.item()


def worker(comm: Any) -> dict[str, dict[str, list[float]]]:
    found = {}
    for what in SHAPES:
        whole = plain(what)
        nets = {name: ours(comm, what, whole, name) for name in ("ring", "backend")}
        nets["torch"] = torchs(comm, what, whole)
        for net in nets.values():
            torch.manual_seed(1)
            seconds_a_step(comm, net, what, WARM_UP)
        contestants = {
            name: partial(seconds_a_step, comm, net, what, STEPS) for name, net in nets.items()
        }
        found[what] = take_turns(contestants)
    return found


def rows() -> list[Row]:
    found = []
    for ranks in (2, 4):
        for what, times in launch(worker, ranks, timeout=300).results[0].items():
            for all_reduce in ("ring", "backend"):
                name = f"{what}, {ranks} ranks, {all_reduce}"
                found.append(compare(name, times[all_reduce], times["torch"], TARGET))
    return found
