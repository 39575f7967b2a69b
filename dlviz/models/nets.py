"""An MLP and small convolutional networks for the handwritten digits.

SmallAlexNet is to AlexNet as 32 is to 224: almost all multiplications are in its convolutions,
almost all parameters in its dense layers. SmallResNet has what else a layer cut over ranks may
meet: batch norm, residuals, a stride of 2, global average pooling.

Source: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet Classification with Deep Convolutional
Neural Networks", NIPS 2012; K. He et al., "Deep Residual Learning for Image Recognition", CVPR
2016. In PyTorch: torchvision.models.alexnet, resnet18.
"""

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


def SmallAlexNet(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """An AlexNet for images (B, 1, 32, 32), `datasets.digits(side=32)`; gives logits (B, 10).

    Its three convolutions, `[:8]`, have 93.3 % of the multiplications and 2.6 % of the parameters;
    `[8:]` flattens their 2048 activations an image and has the two dense layers. The weights are
    those of float32, cast to `dtype`.
    """
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),  # (B, 16, 32, 32)
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),  # (B, 16, 32, 32)
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 16, 16, 16)
        nn.Conv2d(16, 32, 3, padding=1),  # (B, 32, 16, 16)
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 32, 8, 8)
        nn.Flatten(),  # (B, 2048)
        nn.Linear(2048, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return seed_layers(network, seed).to(dtype)


class Residual(nn.Module):
    """body(x) + shortcut(x), by default body(x) + x: both of the same shape."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + (x if self.shortcut is None else self.shortcut(x))


def SmallResNet(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """A residual network with batch norm for images (B, 1, H, W); gives logits (B, 10).

    Two blocks of two convolutions; the second halves H and W. The weights are those of float32,
    cast to `dtype`.
    """
    network = nn.Sequential(
        *_convolved(1, 16),  # (B, 16, H, W)
        nn.ReLU(),
        Residual(nn.Sequential(*_convolved(16, 16), nn.ReLU(), *_convolved(16, 16))),
        nn.ReLU(),
        Residual(
            nn.Sequential(*_convolved(16, 32, stride=2), nn.ReLU(), *_convolved(32, 32)),
            nn.Sequential(*_convolved(16, 32, kernel=1, stride=2)),
        ),  # (B, 32, H/2, W/2)
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),  # (B, 32, 1, 1)
        nn.Flatten(),  # (B, 32)
        nn.Linear(32, 10),
    )
    return seed_layers(network, seed).to(dtype)


def _convolved(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1
) -> tuple[nn.Module, nn.Module]:
    """A convolution that keeps H and W but for its stride, and its batch norm, which has the
    bias."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)
