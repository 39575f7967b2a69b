"""Under sequence parallelism a rank saves its tokens of a product's input, not the whole.

The product needs all tokens, x (B, s, k), and autograd would save them for the weight's gradient:
the whole x on every rank. Instead they are gathered once more in backward, once for all products of
the same input:

    forward    own (B, s/t, k) --all-gather--> x (B, s, k)   y = x Wᵀ + b    save own, free x
    backward   own (B, s/t, k) --all-gather--> x (B, s, k)   dW = dyᵀ x      dx = dy W

Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022, section 4.2.2, which hides the extra all-gather behind the product of dx.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm
from dlviz.parallel.tensor.conjugate import gathered


class Regathered:
    """The whole input of one or more products, of which this rank saves its tokens, `own` (...,
    s/t, k)."""

    def __init__(self, own: torch.Tensor, comm: Comm, all_reduce: str, layer: str):
        self.own = own
        self._how = comm, all_reduce, layer
        self._products = self._left = 0  # computed; still without a backward
        self._whole: torch.Tensor | None = None

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x Wᵀ + b, where x (..., s, k) was gathered from `own`."""
        y = _Linear.apply(x.flatten(0, -2), weight.t(), bias, self.own, self)
        y = y.unflatten(0, x.shape[:-1])
        if y.requires_grad and weight.requires_grad:
            self._products = self._left = self._products + 1
            # Before the product's backward, whose span is computing only.
            y.register_hook(lambda gradient: self._gather())
        return y

    def _gather(self) -> None:
        """The first of the products gathers for all."""
        if self._whole is None:
            self._whole = gathered(self.own, -2, *self._how, direction="backward")

    def rows(self) -> torch.Tensor:
        """x as rows (..., k), for one product's backward; the last frees it."""
        assert self._whole is not None
        whole, self._left = self._whole, self._left - 1
        if not self._left:
            self._whole, self._left = None, self._products
        return whole.flatten(0, -2)


class _Linear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,  # (k, n)
        bias: torch.Tensor | None,
        own: torch.Tensor,
        again: Regathered,
    ) -> torch.Tensor:
        ctx.save_for_backward(weight, own)
        ctx.again = again
        return x @ weight if bias is None else torch.addmm(bias, x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        weight, _ = ctx.saved_tensors
        of_x, of_weight, of_bias, *_ = ctx.needs_input_grad
        return (
            gradient @ weight.t() if of_x else None,
            (gradient.t() @ ctx.again.rows()).t() if of_weight else None,
            gradient.sum(0) if of_bias else None,
            None,
            None,
        )
