"""Training in one process of plain torch: what every parallel run is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from dlviz.datasets import batches


def train(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    steps: int = 100,
    lr: float = 0.5,
    batch: int = 64,
    seed: int = 0,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
) -> list[float]:
    """Take `steps` of mini-batch SGD, in place; the loss of each step before its update.

    data: inputs (N, ...) and targets (N, ...), drawn by `dlviz.datasets.batches` with `seed`.
    loss(outputs, targets) is the mean over the batch.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for inputs, targets in batches(*data, batch=batch, seed=seed, steps=steps):
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of `images` (N, ...) whose largest logit is at its label, 0 to 1."""
    return (model(images).argmax(1) == labels).double().mean().item()
