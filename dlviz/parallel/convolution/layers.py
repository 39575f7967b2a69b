"""A convolution that is cut, on this rank's blocks: the layer of a net.

In this order: gather x over the axis of F, exchange halos over those of H and W, convolve, sum and
scatter y over the axis of C. Its weight is cut over F and C; the ranks that have the same block,
for other samples or pixels, sum its gradient (segmented.py). Ranks along an axis that cuts nothing
do the same work on the same block, and each has the whole gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dlviz.cluster import Mesh
from dlviz.parallel.convolution import channel_filter, spatial
from dlviz.parallel.convolution.channel_blocks import weight_block
from dlviz.parallel.convolution.checks import (
    Shape,
    check_conv,
    naming,
    one_axis,
    slid,
    warn_of_idle,
)
from dlviz.parallel.convolution.cut_layer import CutLayer, HeldBlock
from dlviz.parallel.convolution.distribution import Block, Cut, Distribution
from dlviz.parallel.convolution.segmented import group, summed


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
            slices = weight_block(self._filters, self._channels, self.groups)
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
