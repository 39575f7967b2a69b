"""The trainings that lab 07 compares: batch norm over all rows of an image, or over a rank's own.

    python labs/recorded/07_convolutions/sweep.py [METHOD ...]      takes some minutes

writes sweep.json beside it: when and where it was made, and a row for each training: `losses`, the
mean of each 50 steps (None: not finite), and how many of the 360 test digits are recognised at the
end (`right`). The seed draws the initial weights and the order of the digits.

One process renders four ranks that have a quarter of the rows each: halos are exchanged, so only
batch norm differs. A rank's own statistics, those of its rows, also make its running mean and
variance, by which it normalises these rows of the test digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dlviz.analysis.recorded import means, record
from dlviz.datasets import batches, digits
from dlviz.models import SmallResNet

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RATES = 0.025, 0.05, 0.1, 0.2, 0.4
RANKS, BATCH, STEPS, MEAN_OF = 4, 2, 1500, 50  # 1,500 steps of 2: twice through the digits
METHODS = "all rows", "own rows"


class OwnRows(nn.Module):
    """`norm` of each rank's rows by themselves, with a mean and variance for each."""

    def __init__(self, norm: nn.BatchNorm2d):
        super().__init__()
        self.ranks = nn.ModuleList(nn.BatchNorm2d(norm.num_features) for _ in range(RANKS))
        for rank in self.ranks:
            rank.weight, rank.bias = norm.weight, norm.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = x.tensor_split(RANKS, dim=2)
        return torch.cat([norm(rows) for norm, rows in zip(self.ranks, own, strict=True)], 2)


def network(method: str, seed: int) -> nn.Module:
    """The network of a method."""
    model = SmallResNet(seed=seed)
    if method == "own rows":
        for module in [*model.modules()]:
            for name, child in module.named_children():
                if isinstance(child, nn.BatchNorm2d) and not isinstance(module, nn.ModuleList):
                    setattr(module, name, OwnRows(child))
    return model


def losses_of(model: nn.Module, seed: int, lr: float) -> Iterator[float]:
    """Train it; the loss of each batch before its step."""
    rule = torch.optim.SGD(model.parameters(), lr)
    for images, labels in batches(*digits("train"), batch=BATCH, seed=seed, steps=STEPS):
        loss = cross_entropy(model(images), labels)
        yield loss.item()
        rule.zero_grad()
        loss.backward()
        rule.step()


def row(method: str, seed: int, lr: float) -> dict[str, Any]:
    """A training's row."""
    model = network(method, seed)
    losses = means(losses_of(model, seed, lr), MEAN_OF, STEPS // MEAN_OF)
    images, labels = digits("test")
    with torch.no_grad():
        right = int((model.eval()(images).argmax(1) == labels).sum())
    return {"method": method, "seed": seed, "lr": lr, "losses": losses, "right": right}


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    for method in chosen or METHODS:
        record(FILE, [row(method, *each) for each in product(SEEDS, RATES)], "method")


if __name__ == "__main__":
    main(sys.argv[1:])
