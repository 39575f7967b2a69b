"""What `dlviz run` trains: a model, its data, its loss, and how well it has learnt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from dlviz import datasets, models
from dlviz.parallel.shards import Batches, Loss, Weight, rows


@dataclass(frozen=True)
class Task:
    """`rates` are those at which `model` learns by each update rule; `told(losses, state)` says by
    name how well it did."""

    examples: str  # what its data are called
    model: Callable[[], nn.Module]
    batches: Callable[[int, int], Batches]  # of so many examples, for so many steps
    loss: Loss
    weight: Weight
    rates: dict[str, float]
    told: Callable[[list[float], dict[str, Any]], dict[str, str]]


def _digit_batches(batch: int, steps: int) -> Batches:
    return list(datasets.batches(*datasets.digits("train"), batch=batch, steps=steps))


def _digits_told(losses: list[float], state: dict[str, Any]) -> dict[str, str]:
    model = models.MLP()
    model.load_state_dict(state)
    right = models.accuracy(model, *datasets.digits("test"))
    return {
        "loss": f"{losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last",
        "accuracy": f"{right:.1%} of the test images",
    }


TASKS = {
    "mlp": Task(
        "images",
        models.MLP,
        _digit_batches,
        nn.functional.cross_entropy,
        rows,
        {"sgd": 0.5, "decay": 0.5, "momentum": 0.05, "nesterov": 0.05, "adagrad": 0.02}
        | {"rmsprop": 0.002, "adam": 0.005},
        _digits_told,
    ),
}
