"""What `dlviz run` trains: a model, its data, its loss, and a summary of how well it learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz import datasets, models
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import Loss, Weight, rows


@dataclass(frozen=True)
class Task:
    """`rates`: a rate at which `model` learns, by update rule. `summary(losses, state)`: name ->
    a remark on how well it learnt."""

    examples: str  # the noun for its examples
    model: Callable[[], nn.Module]
    batches: Callable[[int, int], Batches]  # of so many examples, for so many steps
    loss: Loss
    weight: Weight
    rates: dict[str, float]
    summary: Callable[[list[float], dict[str, Any]], dict[str, str]]


class Passes(Sequence[tuple[torch.Tensor, torch.Tensor]]):
    """The batches of `datasets.batches`, each cut on demand: a list of many would take long to make
    and to send to every rank."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor, batch: int, steps: int):
        self._of, self._batch, self._steps = (inputs, targets), batch, steps
        self._rows: list[torch.Tensor] = []  # of the batches of the passes so far
        self._generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._steps))]
        number = range(self._steps)[number]
        while len(self._rows) <= number:
            order = torch.randperm(len(self._of[0]), generator=self._generator)
            self._rows += order.split(self._batch)
        inputs, targets = self._of
        return inputs[self._rows[number]], targets[self._rows[number]]

    def __reduce__(self) -> tuple[Any, ...]:
        return Passes, (*self._of, self._batch, self._steps)


def _digit_batches(batch: int, steps: int, side: int = 8) -> Batches:
    return Passes(*datasets.digits("train", side=side), batch, steps)


def _digits_summary(
    model: nn.Module, side: int, losses: list[float], state: dict[str, Any]
) -> dict[str, str]:
    model.load_state_dict(state)
    right = models.accuracy(model, *datasets.digits("test", side=side))
    return {
        "loss": f"{losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last",
        "accuracy": f"{right:.1%} of the test images",
    }


def _lstm() -> nn.Module:
    return models.LSTM(len(datasets.vocabulary()))


def _sentence_batches(batch: int, steps: int) -> Batches:
    return Passes(*datasets.sentences("train"), batch, steps)


def _transformer() -> nn.Module:
    tokens = (
        -(-len(datasets.vocabulary()) // 24) * 24
    )  # padded, so that 2, 3, 4 or 8 ranks share it
    return models.Transformer(layers=2, hidden=64, heads=4, vocabulary=tokens, sequence=64)


@torch.no_grad()
def _text_summary(model: nn.Module, losses: list[float], state: dict[str, Any]) -> dict[str, str]:
    model.load_state_dict(state)
    inputs, targets = datasets.sentences("test")
    loss = models.token_loss(model(inputs), targets).item()
    floor = datasets.entropy_per_token()
    return {
        "loss": f"{losses[0]:.3f} nats per target token in the first step, {losses[-1]:.3f} in the "
        "last",
        "test": f"{loss:.3f} nats per target token of the test sentences; their entropy, which no "
        f"model gets below, is {floor:.3f}",
    }


TASKS = {
    "mlp": Task(
        "images",
        models.MLP,
        _digit_batches,
        nn.functional.cross_entropy,
        rows,
        {"sgd": 0.5, "decay": 0.5, "momentum": 0.1, "nesterov": 0.1}
        | {"adagrad": 0.02, "rmsprop": 0.002, "adam": 0.005},
        lambda *found: _digits_summary(models.MLP(), 8, *found),
    ),
    "alexnet": Task(
        "images",
        models.SmallAlexNet,
        partial(_digit_batches, side=32),
        nn.functional.cross_entropy,
        rows,
        {"sgd": 0.1, "decay": 0.1, "momentum": 0.02, "nesterov": 0.02}
        | {"adagrad": 0.01, "rmsprop": 0.001, "adam": 0.003},
        lambda *found: _digits_summary(models.SmallAlexNet(), 32, *found),
    ),
    "lstm": Task(
        "sentences",
        _lstm,
        _sentence_batches,
        models.token_loss,
        models.target_tokens,
        {"sgd": 3.0, "decay": 3.0, "momentum": 0.5, "nesterov": 0.5}
        | {"adagrad": 0.1, "rmsprop": 0.005, "adam": 0.01},
        lambda *found: _text_summary(_lstm(), *found),
    ),
    "transformer": Task(
        "sentences",
        _transformer,
        _sentence_batches,
        models.token_loss,
        models.target_tokens,
        {"sgd": 0.3, "decay": 0.3, "momentum": 0.1, "nesterov": 0.05}
        | {"adagrad": 0.01, "rmsprop": 0.001, "adam": 0.003},
        lambda *found: _text_summary(_transformer(), *found),
    ),
}
