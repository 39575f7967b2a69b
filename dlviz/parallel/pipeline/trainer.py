"""A worker that trains a pipeline, step after step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.models.mean_of import Loss, Weight
from dlviz.parallel.pipeline.run import train_step
from dlviz.parallel.pipeline.shapes import Shapes
from dlviz.parallel.step.sharded_step import rows
from dlviz.schedules import Schedule


def train(
    comm: Comm,
    stages: Sequence[nn.Module],
    schedule: Schedule,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Loss,
    *,
    steps: int = 3,
    lr: float = 0.1,
    weight: Weight = rows,
) -> dict[str, Any]:
    """Train `stages` by SGD, `steps` times `train_step` on one batch. A worker for `launch`.

    A schedule that flushes updates the weights after each step, others during it. Returns, on every
    rank, `losses` (before each step's updates) and, for the parameters of this rank's stages,
    `gradients` (of the first step) and `parameters` (after the last).
    """
    check_counts(steps=steps)
    on = zip(stages, schedule.stage_rank, strict=True)
    parameters = [p for stage, rank in on if rank == comm.rank for p in stage.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=lr)
    losses, gradients, shapes = [], [], Shapes()
    for step in range(steps):
        optimizer.zero_grad()
        with comm.span("step", step=step):
            batch = inputs, targets, loss, optimizer
            losses.append(train_step(comm, stages, schedule, *batch, shapes=shapes, weight=weight))
            if step == 0:  # before any update: comparable with one process's
                gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
            if schedule.flushes:
                optimizer.step()
    parameters = [p.detach() for p in parameters]
    return {"losses": losses, "gradients": gradients, "parameters": parameters}
