"""Training in one process of plain torch, with which every parallel run is compared."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.nn import functional

from dlviz.counts import check_counts
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
    """Take `steps` of mini-batch SGD, in place; returns the loss of each step before its update.

    data: inputs (N, ...) and targets (N, ...), drawn by `dlviz.datasets.batches` with `seed`.
    loss(outputs, targets) is the mean over the batch.
    """
    check_counts(0, steps=steps)
    return [*_each_step(model, batches(*data, batch=batch, seed=seed, steps=steps), lr, loss)]


def _each_step(
    model: nn.Module,
    pairs: Iterable[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
) -> Iterator[float]:
    """The loss of each batch; the step has been taken."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for inputs, targets in pairs:
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        yield value.item()


def steps_to_error(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    error: float,
    *,
    lr: float,
    batch: int,
    seed: int = 0,
    most: int = 2000,
    over: int = 10,
) -> float:
    """Steps of `train`, in place, until at most the fraction `error` of the images of `test` is
    wrong in the mean over the last `over` steps; NaN where `most` steps are not enough."""
    check_counts(most=most, over=over)
    right: deque[float] = deque(maxlen=over)
    pairs = batches(*data, batch=batch, seed=seed, steps=most)
    for step, _ in enumerate(_each_step(model, pairs, lr), 1):
        right.append(accuracy(model, *test))
        if len(right) == over and sum(right) / over >= 1 - error:
            return step
    return math.nan


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of `images` (N, ...) whose largest logit, of (N, classes), is at its label, 0 to
    1. No label is ignored."""
    return (model(images).argmax(1) == labels).double().mean().item()


@torch.no_grad()
def error_by_label(
    model: nn.Module,
    state: Mapping[str, torch.Tensor],
    images: torch.Tensor,
    labels: torch.Tensor,
) -> dict[int, float]:
    """For each label the fraction of its `images` (N, ...) whose largest logit is at another one,
    by `model` with the parameters of `state`."""
    trained = copy.deepcopy(model).eval()
    trained.load_state_dict(state)
    wrong = (trained(images).argmax(1) != labels).double()
    return {label: wrong[labels == label].mean().item() for label in labels.unique().tolist()}


def largest_curvature(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
    rounds: int = 50,
) -> float:
    """The second derivative of the loss on `data` along the direction in which it is largest, by
    power iteration: the eigenvalue of the Hessian that is largest in size.

    A direction is multiplied by the Hessian (the gradient of gradient · direction) and normalised,
    `rounds` times. Weights, gradients and torch's random generator are unchanged.
    """
    check_counts(rounds=rounds)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    value = loss(model(data[0]), data[1])
    gradients = torch.autograd.grad(value, weights, create_graph=True)
    generator = torch.Generator().manual_seed(0)
    direction = [
        torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w) for w in weights
    ]
    curvature = 0.0
    for _ in range(rounds):
        length = math.sqrt(sum(part.square().sum().item() for part in direction))
        direction = [part / length for part in direction]
        along = torch.stack([(g * d).sum() for g, d in zip(gradients, direction, strict=True)])
        turned = torch.autograd.grad(along.sum(), weights, retain_graph=True)
        curvature = sum((d * t).sum().item() for d, t in zip(direction, turned, strict=True))
        direction = [part.detach() for part in turned]
    return curvature


def gradient_noise(
    model: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    batch: int,
    draws: int = 200,
    seed: int = 0,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
) -> float:
    """How far the gradient of `batch` examples of `data` is from that of all: the root of the mean
    square of their distance over `draws` batches, drawn with replacement by `seed`, as a multiple
    of the length of the gradient of all."""
    check_counts(batch=batch, draws=draws)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradient(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        parts = torch.autograd.grad(loss(model(inputs), targets), weights)
        return torch.cat([part.flatten() for part in parts])

    whole, generator = gradient(*data), torch.Generator().manual_seed(seed)
    rows = torch.randint(len(data[1]), (draws, batch), generator=generator)
    off = [gradient(data[0][own], data[1][own]) - whole for own in rows]
    return (torch.stack(off).square().sum(1).mean().sqrt() / whole.norm()).item()
