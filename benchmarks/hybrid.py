"""A step of one Transformer on 2 x 2 x 2 ranks: ours against one process, and against torch's own
DDP, pipelining and DTensor on the same processes, in turn. Nothing is paced: eight ranks share the
cores of this machine."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import Row, compare, take_turns
from benchmarks.tensor import cut_by_torch
from dlviz import launch, models
from dlviz.parallel import hybrid
from dlviz.parallel.update_rules import SGD

MESH = {"dp": 2, "pp": 2, "tp": 2}
LAYERS, SEQUENCE, VOCABULARY, BATCH, MICROBATCHES = 4, 64, 128, 16, 4
WARM_UP, STEPS = 2, 5


def whole() -> models.Transformer:
    return models.Transformer(LAYERS, 64, 4, VOCABULARY, SEQUENCE)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(1, VOCABULARY, (BATCH, SEQUENCE + 1))
    return tokens[:, :-1], tokens[:, 1:]


class Clocked(SGD):
    """Records when each step ended."""

    def __init__(self, lr: float):
        super().__init__(lr)
        self.ended: list[float] = []

    def step(self, parameters: Any, gradients: Any) -> None:
        super().step(parameters, gradients)
        self.ended.append(perf_counter())


def ours(comm: Any) -> float:
    rule, batches = Clocked(0.1), [batch()] * (WARM_UP + STEPS)
    hybrid.train(comm, whole(), batches, rule, microbatches=MICROBATCHES, **MESH)
    return (rule.ended[-1] - rule.ended[WARM_UP - 1]) / STEPS


def one_process(comm: Any, net: nn.Module) -> float:
    """On rank 0; the others wait."""
    inputs, targets = batch()
    seconds = 0.0
    if comm.rank == 0:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        seconds = timed(lambda: models.token_loss(net(inputs), targets).backward(), optimizer)
    comm.barrier()
    return seconds


class Stage(nn.Module):
    """Half of the Transformer for torch, whose pipeline ties no weights: logits have their own."""

    def __init__(self, net: models.Transformer, first: bool):
        super().__init__()
        half = LAYERS // 2
        self.blocks = nn.ModuleList([*net.blocks][:half] if first else [*net.blocks][half:])
        self.tokens, self.positions = (net.tokens, net.positions) if first else (None, None)
        self.norm = None if first else net.norm
        self.logits = None if first else nn.Linear(net.hidden, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(SEQUENCE))
        for block in self.blocks:
            x = block(x)
        if self.norm is not None and self.logits is not None:
            x = self.logits(self.norm(x))
        return x


def torchs(comm: Any) -> Any:
    """A function that times torch's step on the same mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", tuple(MESH.values()), mesh_dim_names=tuple(MESH))
    replica, place = mesh["dp"].get_local_rank(), mesh["pp"].get_local_rank()
    net = Stage(whole(), place == 0)
    for block in net.blocks:
        cut_by_torch(block, mesh["tp"])
    _pre_dp_module_transform(net)  # DDP of cut parameters: their local parts
    replicated = DistributedDataParallel(net, process_group=mesh["dp"].get_group())
    stage = PipelineStage(
        replicated, place, MESH["pp"], torch.device("cpu"), group=mesh["pp"].get_group()
    )
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=models.token_loss)
    optimizer = torch.optim.SGD(replicated.parameters(), lr=0.1)
    rows = slice(replica * BATCH // 2, (replica + 1) * BATCH // 2)
    inputs, targets = (tensor[rows] for tensor in batch())

    def step() -> None:
        if place == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=[])

    return partial(timed, step, optimizer)


def timed(backward: Any, optimizer: torch.optim.Optimizer) -> float:
    """Mean seconds of a step."""
    start = perf_counter()
    for number in range(WARM_UP + STEPS):
        if number == WARM_UP:
            start = perf_counter()
        optimizer.zero_grad()
        backward()
        optimizer.step()
    return (perf_counter() - start) / STEPS


def worker(comm: Any) -> dict[str, list[float]]:
    contestants = {"ours": partial(ours, comm), "one": partial(one_process, comm, whole())}
    contestants["torch"] = torchs(comm)
    return take_turns(contestants)


def rows() -> list[Row]:
    times = launch(worker, 8, timeout=600).results[0]
    name = "Transformer, l 4, h 64, 2x2x2"
    return [
        compare(f"{name}, 1 process", times["ours"], times["one"]),
        compare(f"{name}, torch, untied", times["ours"], times["torch"]),
    ]
