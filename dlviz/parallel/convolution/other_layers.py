"""The layers beside convolutions in a net that is cut: pools, norms, activations, sums, and what
lies between two layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, cast

import torch
from torch import nn

from dlviz.cluster import Comm, Mesh
from dlviz.parallel.convolution import spatial
from dlviz.parallel.convolution.checks import (
    Shape,
    check_images,
    check_pool,
    one_axis,
    pair,
    slid,
)
from dlviz.parallel.convolution.cut_layer import CutLayer, HeldBlock
from dlviz.parallel.convolution.distribution import Distribution
from dlviz.parallel.convolution.redistribution import redistribute
from dlviz.parallel.convolution.segmented import group, summed
from dlviz.parallel.step.batch_norm import SyncBatchNorm


class CutPool(CutLayer):
    """Max and average pooling, and the average of whole images."""

    def __init__(self, mesh: Mesh, pool: nn.Module, held: Distribution, name: str):
        self.whole = isinstance(pool, nn.AdaptiveAvgPool2d)
        super().__init__(mesh, held, replace(held, H=(), W=()) if self.whole else held, name)
        check_pool(name, pool)
        one_axis(name, held, "HW")
        if self.whole:
            return
        each: Any = pool
        self.kernel = pair("kernel_size", each.kernel_size)
        self.sliding = {
            key: pair(key, getattr(each, key), least)
            for key, least in (("stride", 1), ("padding", 0), ("dilation", 1))
            if hasattr(each, key)
        }
        self.pool = spatial.max_pool2d if isinstance(pool, nn.MaxPool2d) else spatial.avg_pool2d

    def outputs(self, shape: Shape) -> Shape:
        check_images(self.name, shape)
        if self.whole:
            return *shape[:2], 1, 1
        return *shape[:2], *slid(self.name, shape[2:], self.kernel, **self.sliding)

    def forward(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:
        cuts: Any = self.cuts(shape)
        if self.whole:
            return spatial.global_avg_pool(x, **cuts, layer=self.name)
        each = x.flatten(0, 1)[:, None]  # an image of one channel: torch refuses one of none
        y = self.pool(each, self.kernel, **self.sliding, **cuts, layer=self.name)
        return y[:, 0].unflatten(0, x.shape[:2])


class CutNorm(CutLayer, SyncBatchNorm):
    """Batch norm of this rank's channels, by the joint statistics of the ranks that have the same
    channels of other samples or pixels."""

    def __init__(self, mesh: Mesh, norm: nn.BatchNorm2d, held: Distribution, name: str):
        alike = group(mesh, (*held.N, *held.H, *held.W))
        channels = Distribution(N=held.C).block(mesh, (norm.num_features,))
        count = channels[0].stop - channels[0].start
        about = norm.eps, norm.momentum, norm.affine, norm.track_running_stats
        super().__init__(mesh, held, held, name, alike, count, *about)
        self.channels, self.shard_weight = norm.num_features, 1.0  # all gradients are of one loss
        for key, tensor in (*norm.named_parameters(), *norm.named_buffers()):
            block = channels if tensor.dim() else ()
            mine = tensor.detach()[block].to(mesh.comm.device, copy=True)
            if isinstance(tensor, nn.Parameter):
                mine = nn.Parameter(mine, tensor.requires_grad)
            setattr(self, key, mine)
            self.held[key] = HeldBlock.of(mesh, held.C if tensor.dim() else (), block, tensor)

    def shared(self, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return summed(cast(Comm, self.comm), *parameters, layer=self.name)

    def outputs(self, shape: Shape) -> Shape:
        check_images(self.name, shape)
        if shape[1] != self.channels:
            raise ValueError(
                f"layer {self.name} is of {self.channels} channels, and x has {shape[1]}: give "
                "both the same."
            )
        return shape

    def forward(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return SyncBatchNorm.forward(self, x)


class LocalLayer(CutLayer):
    """A layer of which each rank needs its own block only: an activation, or a Flatten."""

    def __init__(self, mesh: Mesh, layer: nn.Module, held: Distribution, name: str):
        super().__init__(mesh, held, held, name)
        self.layer: Any = copy.copy(layer)
        if hasattr(layer, "inplace"):
            self.layer.inplace = False  # x may be a view of what a message has brought

    def outputs(self, shape: Shape) -> Shape:
        flat = isinstance(self.layer, nn.Flatten)
        return (shape[0], prod(shape[1:])) if flat else shape

    def forward(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:
        # reshape, since -1 says nothing about no samples
        flat = isinstance(self.layer, nn.Flatten)
        return x.reshape(len(x), prod(shape[1:])) if flat else self.layer(x)


class Chain(nn.Module):
    """Layers one after the other; between two whose cuts differ, a redistribution."""

    def __init__(self, mesh: Mesh, layers: Mapping[str, CutLayer]):
        super().__init__()
        self.mesh = mesh
        for name, layer in layers.items():
            self.add_module(name, layer)

    def __iter__(self) -> Iterator[CutLayer]:
        return cast(Iterator[CutLayer], self.children())

    def outputs(self, shape: Shape) -> Shape:
        """The shape of the whole output, of a whole input of `shape`."""
        for layer in self:
            shape = layer.outputs(shape)
        return shape

    def passed(
        self, x: torch.Tensor, shape: Shape, held: Distribution
    ) -> tuple[torch.Tensor, Distribution]:
        """This rank's block of the output, and under which distribution it is."""
        for layer in self:
            x = redistribute(x, self.mesh, held, layer.takes, shape, layer.name)
            x, shape, held = layer(x, shape), layer.outputs(shape), layer.gives
        return x, held


class ResidualSum(CutLayer):
    """A residual block, body(x) + shortcut(x); the sum is cut as the body leaves it."""

    def __init__(
        self, mesh: Mesh, body: Chain, shortcut: Chain | None, held: Distribution, name: str
    ):
        gives = [held, *(layer.gives for layer in body)][-1]
        super().__init__(mesh, held, gives, name)
        self.body, self.shortcut = body, shortcut

    def outputs(self, shape: Shape) -> Shape:
        both = self.body.outputs(shape), self.shortcut.outputs(shape) if self.shortcut else shape
        if both[0] != both[1]:
            raise ValueError(
                f"layer {self.name} adds a body of {both[0]} and a shortcut of {both[1]}: give "
                "both the same shape."
            )
        return both[0]

    def forward(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:
        y, held = self.body.passed(x, shape, self.takes)
        cut = self.takes
        if self.shortcut is not None:
            x, cut = self.shortcut.passed(x, shape, cut)
        return y + redistribute(x, self.mesh, cut, held, self.outputs(shape), self.name)
