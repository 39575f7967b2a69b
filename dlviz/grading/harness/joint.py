"""f and g of all ranks together, in one process: the results of putting them in the wrong place.

A tensor has a dim for each axis of ranks, and a rank's tensor is a slice. Along a dim g adds the
slices in forward, f their gradients in backward, as ranks do with messages.
"""

from __future__ import annotations

from typing import Any

import torch


class _SumBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim = dim
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore
        return _total(gradient, ctx.dim), None


class _SumThere(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        return _total(x, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore
        return gradient, None


def f(x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """x unchanged; in backward the sum of the gradients along a dim of ranks."""
    return _SumBack.apply(x, dim)  # pyright: ignore


def g(x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """The sum along a dim of ranks, on each of them; in backward the gradient unchanged."""
    return _SumThere.apply(x, dim)  # pyright: ignore


def _total(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.sum(dim, keepdim=True).expand_as(x).contiguous()
