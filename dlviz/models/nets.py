"""An MLP and a small convolutional network for the handwritten digits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from dlviz.counts import check_counts
from dlviz.models.seeding import seed_layers


def MLP(
    widths: Sequence[int] = (64, 128, 128, 10), seed: int = 0, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """A multilayer perceptron: linear layers between `widths`, ReLU between them.

    Takes images of any shape (B, ...) with widths[0] values each; gives logits (B, widths[-1]).
    The weights are those of float32, cast to `dtype`. Raises ValueError for fewer than two widths.
    """
    if len(widths) < 2:
        raise ValueError(
            f"widths={tuple(widths)} makes no layer: give an input and an output width."
        )
    for width in widths:
        check_counts(width=width)
    layers: list[nn.Module] = [nn.Flatten()]  # (B, widths[0])
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return seed_layers(nn.Sequential(*layers[:-1]), seed).to(dtype)


def ConvNet(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A convolutional network for images (B, 1, 8, 8); gives logits (B, 10).

    The weights are those of float32, cast to `dtype`.
    """
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),  # (B, 16, 8, 8)
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 16, 4, 4)
        nn.Conv2d(16, 32, 3, padding=1),  # (B, 32, 4, 4)
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 32, 2, 2)
        nn.Flatten(),  # (B, 128)
        nn.Linear(128, 10),
    )
    return seed_layers(network, seed).to(dtype)
