"""A small network, trained by real ranks with a student's schedule and by one process.

A stage is a linear layer and a tanh, seeded by its number. Everything is in float64, so that
another order of sums changes far less than a missing gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models import seed_layers
from dlviz.parallel.pipeline import Shapes, train_step
from dlviz.schedules import Schedule
from dlviz.sim import Costs

STEPS, WIDTH, EXAMPLES, RATE = 3, 6, 2, 0.5  # examples of a microbatch
Result = tuple[list[float], dict[int, list[torch.Tensor]]]  # loss of each step, gradients by stage


def work(comm: Comm, schedule: Schedule, steps: int = STEPS, costs: Costs | None = None) -> Result:
    """Train for so many steps on a rank."""
    stages = _stages(len(schedule.stage_rank))
    own = [stage for stage, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
    optimizer = torch.optim.SGD([p for stage in own for p in stages[stage].parameters()], lr=RATE)
    inputs, targets = _batch(schedule.microbatches)
    losses, shapes = [], Shapes()
    for _ in range(steps):
        optimizer.zero_grad()
        mse_loss = nn.functional.mse_loss
        loss = train_step(
            comm, stages, schedule, inputs, targets, mse_loss, costs=costs, shapes=shapes
        )
        losses.append(loss)
        optimizer.step()
    return losses, {stage: _gradients(stages[stage]) for stage in own}


def differs(results: Sequence[Result], stages: int, microbatches: int) -> str:
    """Where the ranks' training differs from that of one process; empty if it does not."""
    alone, net = [], nn.Sequential(*_stages(stages))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    inputs, targets = _batch(microbatches)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        alone.append(loss.item())
        optimizer.step()
    for rank, (losses, gradients) in enumerate(results):
        for step, (seen, wanted) in enumerate(zip(losses, alone, strict=True)):
            if abs(seen - wanted) > 1e-9 * abs(wanted):
                return f"rank {rank} has the loss {seen:.6g} in step {step}, not {wanted:.6g}"
        for stage, own in gradients.items():
            for seen, wanted in zip(own, _gradients(net[stage]), strict=True):
                if not torch.allclose(seen, wanted, rtol=1e-9, atol=1e-12):
                    return f"the gradients of stage {stage} are not those of one process"
    return ""


def _stages(count: int) -> list[nn.Module]:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]
    return [seed_layers(layer, seed=0, first=i).double() for i, layer in enumerate(layers)]


def _batch(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (2, EXAMPLES * microbatches, WIDTH)
    inputs, targets = torch.randn(shape, generator=generator, dtype=torch.float64)
    return inputs, targets


def _gradients(module: nn.Module) -> list[torch.Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in module.parameters()]
