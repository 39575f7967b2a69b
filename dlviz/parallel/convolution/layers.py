"""The layers of a net that is cut: each on this rank's block of its input.

A convolution, in this order: gather x over the axis of F, exchange halos over those of H and W,
convolve, sum and scatter y over the axis of C. Its weight is cut over F and C; the ranks that have
the same block, for other samples or pixels, sum its gradient (segmented.py). Ranks along an axis
that cuts nothing do the same work on the same block, and each has the whole gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional as F

from dlviz.cluster import Comm, Mesh
from dlviz.parallel.convolution import channel_filter, spatial
from dlviz.parallel.convolution.checks import (
    Shape,
    check_conv,
    check_images,
    check_pool,
    naming,
    one_axis,
    pair,
    slid,
    warn_of_idle,
)
from dlviz.parallel.convolution.distribution import Block, Cut, Distribution, redistribute
from dlviz.parallel.convolution.halo import grid
from dlviz.parallel.convolution.segmented import group, summed
from dlviz.parallel.step.batch_norm import SyncBatchNorm


class HeldBlock(NamedTuple):
    """Which block of a whole parameter or buffer a rank has. `copies`: how many ranks have it;
    `first`: this is the first of them."""

    block: Block
    shape: Shape
    copies: int
    first: bool

    @classmethod
    def of(cls, mesh: Mesh, axes: Sequence[str], block: Block, whole: torch.Tensor) -> HeldBlock:
        """The block of a tensor that is cut over `axes`."""
        others = [axis for name, axis in vars(mesh).items() if name not in axes]
        first = all(axis.rank == 0 for axis in others)
        return cls(block, tuple(whole.shape), prod(axis.size for axis in others), first)


class CutLayer(nn.Module):
    """A layer of a net that is cut. It takes its input under the distribution `takes` and leaves
    its output under `gives`; `held` says which blocks its parameters and buffers are."""

    def __init__(
        self,
        mesh: Mesh,
        takes: Distribution,
        gives: Distribution,
        name: str,
        *more: Any,
    ):
        super().__init__(*more)
        for each in (takes, gives):
            each.check(vars(mesh))
        self.mesh, self.takes, self.gives, self.name = mesh, takes, gives, name
        if len(takes.H) == len(takes.W) == 1:  # now, as making it takes a collective
            grid(getattr(mesh, takes.H[0]), getattr(mesh, takes.W[0]))
        self.held: dict[str, HeldBlock] = {}

    def outputs(self, shape: Shape) -> Shape:
        """The shape of the whole output, of a whole input of `shape`. Raises ValueError for an
        input that does not fit."""
        return shape

    def forward(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:
        """This rank's block of the output; x is its block of a whole input of `shape`."""
        raise NotImplementedError

    def cuts(self, shape: Shape) -> dict[str, Cut | None]:
        """The Cuts of rows and columns of an input of `shape`; None where they are whole."""
        found = {}
        for name, axes, length in zip(
            ("height", "width"), (self.takes.H, self.takes.W), shape[2:], strict=True
        ):
            found[name] = Cut(getattr(self.mesh, axes[0]), length) if axes else None
        return found


class OwnProduct(nn.Module):
    """What a convolution computes on this rank, between its communication."""

    def forward(self, *given: Any, **keywords: Any) -> torch.Tensor:
        return F.conv2d(*given, **keywords)


class DistributedConv2d(CutLayer):
    """`conv`, an `nn.Conv2d` or `nn.Linear` (a convolution of one pixel), cut by `distribution`;
    all ranks of the mesh make it, of the same `conv`, whose parameters it copies. `shape` is that
    of the whole input, if all have the same. `name` is the layer's in the Trace. With
    `keep_gathered` the gathered x is saved for the backward, else gathered again.

    Raises ValueError for a padding mode other than zeros and padding in words, for C, F, H or W
    over several axes, for groups that the cut of C splits, and for an input that does not fit.

    Cost: that of its halo (spatial.py), of its channels and filters (channel_filter.py), and
    backward an all-reduce of its block of w over the ranks that have the same one.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        mesh: Mesh,
        conv: nn.Conv2d | nn.Linear,
        distribution: Distribution,
        shape: Sequence[int] | None = None,
        name: str = "",
        keep_gathered: bool = False,
    ):
        super().__init__(mesh, distribution.x, distribution.y, name)
        check_conv(name, conv)
        one_axis(name, distribution, "CFHW")
        self.distribution, self.shape, self.keep_gathered = distribution, shape, keep_gathered
        self.linear = isinstance(conv, nn.Linear)
        weight, bias = conv.weight.detach(), conv.bias
        if isinstance(conv, nn.Linear):
            self.channels, self.filters, self.groups = conv.in_features, conv.out_features, 1
            self.sliding: dict[str, Any] = dict.fromkeys(("stride", "dilation"), (1, 1))
            self.sliding["padding"] = (0, 0)
            self.kernel = (1, 1)
            distribution.x.cuts(2)  # no rows and columns to cut
        else:
            self.channels, self.filters = conv.in_channels, conv.out_channels
            self.groups, self.kernel = conv.groups, conv.kernel_size
            self.sliding = {k: getattr(conv, k) for k in ("stride", "padding", "dilation")}
        self._filters = Cut(group(mesh, distribution.F), self.filters)
        self._channels = Cut(group(mesh, distribution.C), self.channels)
        self._same = group(mesh, (*distribution.N, *distribution.H, *distribution.W))
        self.product = OwnProduct()
        warn_of_idle(mesh, name, "filters", self.filters, distribution.F)
        warn_of_idle(mesh, name, "channels", self.channels, distribution.C)
        with naming(name):
            slices = channel_filter.weight_block(self._filters, self._channels, self.groups)
        self._hold("weight", weight, slices, (*distribution.F, *distribution.C))
        self.bias = None
        if bias is not None:
            self._hold("bias", bias.detach(), (slice(*self._filters.block),), distribution.F)
        for key, parameter in conv.named_parameters():
            self.get_parameter(key).requires_grad_(parameter.requires_grad)

    def _hold(self, key: str, whole: torch.Tensor, block: Block, axes: tuple[str, ...]) -> None:
        setattr(self, key, nn.Parameter(whole[block].to(self.mesh.comm.device, copy=True)))
        self.held[key] = HeldBlock.of(self.mesh, axes, block, whole)

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.filters}, kernel_size={self.kernel}, {self.distribution}"

    def outputs(self, shape: Shape) -> Shape:
        dims = 2 if self.linear else 4
        if len(shape) != dims or shape[1] != self.channels:
            raise ValueError(
                f"layer {self.name or 'conv'} takes {dims} dims with {self.channels} channels, and "
                f"x is {tuple(shape)}: give both the same."
            )
        if self.linear:
            return shape[0], self.filters
        rows = slid(self.name, shape[2:], self.kernel, **self.sliding)
        return shape[0], self.filters, *rows

    def forward(self, x: torch.Tensor, shape: Sequence[int] | None = None) -> torch.Tensor:
        shape = tuple(shape or self.shape or ())
        self.outputs(shape)
        d, name = self.distribution, self.name
        both = [self.weight] if self.bias is None else [self.weight, self.bias]
        weight, bias, *_ = *summed(self._same, *both, layer=name), None
        if self.linear:
            x, weight, shape = x[..., None, None], weight[..., None, None], (*shape, 1, 1)
        convolve: Any = self.product
        if d.H or d.W:
            cuts: Any = self.cuts(shape)
            convolve = partial(spatial.conv2d, **cuts, layer=name, convolve=self.product)
        if d.F or d.C:
            cuts = {"filters": self._filters, "channels": self._channels, "layer": name}
            convolve = partial(
                channel_filter.conv2d,
                **cuts,
                convolve=convolve,
                keep_gathered=self.keep_gathered,
            )
        y = convolve(x, weight, bias, **self.sliding, groups=self.groups)
        return y[..., 0, 0] if self.linear else y


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
        self.kernel = pair(each.kernel_size)
        self.sliding = {
            key: pair(getattr(each, key))
            for key in ("stride", "padding", "dilation")
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
        if self.shortcut is None:
            x, cut = x, self.takes
        else:
            x, cut = self.shortcut.passed(x, shape, self.takes)
        return y + redistribute(x, self.mesh, cut, held, self.outputs(shape), self.name)
