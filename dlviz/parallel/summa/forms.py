"""The product on a grid: by hand, by SUMMA, and its gradients by SUMMA's two other forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm
from dlviz.parallel.step.prices import pricing
from dlviz.parallel.summa.grid import GridProduct, agreed


def by_hand(comm: Comm, x: torch.Tensor, w: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """The product only: read this one first. It sends as many words as `multiply`, but each rank
    holds pn times its part of X and pm times its part of W."""
    product = agreed(comm, x, w, grid)
    whole_x = product.x.whole(x)  # (m/pm, k/pk), from the ranks along axis n
    whole_w = product.w.whole(w)  # (k/pk, n/pn), from the ranks along axis m
    return product.y.added(whole_x @ whole_w)  # (m/pm, n/pn), then this rank's (m/pm, n/pn/pk)


def multiply(comm: Comm, x: torch.Tensor, w: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """This rank's `block` of Y = X W, from its blocks of X and W. All ranks of `comm` must call it,
    and its backward, which gives `x` and `w` their blocks of dX and dW.

    Raises ValueError, before anything is sent, for a grid whose product is not the number of ranks
    or that is longer than a dim; and on every rank for blocks that do not belong to one product,
    and where ranks disagree on the grid, the dtype, or which gradients they need.

    Cost: each rank receives mk/(pm pk) (1-1/pn) + kn/(pk pn) (1-1/pm) + mn/(pm pn) (1-1/pk) words;
    in the backward the first two twice, the last once. Where a dim does not divide evenly, this is
    the mean over the ranks.
    """
    return MultiplyOnGrid.apply(x, w, agreed(comm, x, w, grid))


class MultiplyOnGrid(torch.autograd.Function):
    """Forward: the output stays. Backward: dY is gathered along axis k, then X stays for dX, and W
    for dW."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, product: GridProduct) -> torch.Tensor:
        ctx.save_for_backward(x, w)  # local tensors: the panels travel again in the backward
        ctx.product = product
        return output_stays(product, x, w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, part: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        product, (x, w) = ctx.product, ctx.saved_tensors
        dy = product.y.gradient.whole(part)  # (m/pm, n/pn)
        dx = x_stays(product, dy, w) if ctx.needs_input_grad[0] else None
        dw = w_stays(product, x, dy) if ctx.needs_input_grad[1] else None
        return dx, dw, None


def output_stays(product: GridProduct, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Y = X W: panels of X and of W travel, each rank adds their products to its block of Y."""
    ends = product.y.bounds[0], product.y.bounds[-1]
    y = x.new_zeros(product.y.shape(*ends))  # (m/pm, n/pn)
    own = {f"own_{each.name}": each.where(*each.own) for each in (product.x, product.w)}
    for start, stop in product.panels:
        xp = product.x.panel(x, start, stop)  # (m/pm, width)
        wp = product.w.panel(w, start, stop)  # (width, n/pn)
        panels = {each.name: each.where(start, stop) for each in (product.x, product.w)}
        with _computing(product, "forward", xp, wp, **panels, **own, Y=product.y.where(*ends)):
            y += xp @ wp
    return product.y.added(y)  # (m/pm, n/pn/pk)


def x_stays(product: GridProduct, dy: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """dX = dY W^T: panels of W travel, parts of dX are added where that part of X is. `dy`
    is the whole block, (m/pm, n/pn). (`mH` is the transpose, for complex numbers conjugated.)
    """
    dx = w.new_empty(product.x.shape(*product.x.own))  # (m/pm, k/pk/pn)
    for start, stop in product.panels:
        wp = product.w.panel(w, start, stop)  # (width, n/pn)
        with _computing(product, "backward", dy, wp.mH):
            partial = dy @ wp.mH  # (m/pm, width), over this rank's n/pn columns
        product.x.gradient.add_up(partial, start, dx)
    return dx


def w_stays(product: GridProduct, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dW = X^T dY: panels of X travel, parts of dW are added where that part of W is."""
    dw = x.new_empty(product.w.shape(*product.w.own))  # (k/pk/pm, n/pn)
    for start, stop in product.panels:
        xp = product.x.panel(x, start, stop)  # (m/pm, width)
        with _computing(product, "backward", xp.mH, dy):
            partial = xp.mH @ dy  # (width, n/pn), over this rank's m/pm rows
        product.w.gradient.add_up(partial, start, dw)
    return dw


def _computing(
    product: GridProduct, kind: str, left: torch.Tensor, right: torch.Tensor, **fields: str
) -> Any:
    """The span of a product of panels, priced by its FLOPs on a machine without a `step`."""
    device = pricing(product.comm)
    flops = 2 * left.numel() * right.shape[1]
    seconds = None if device is None else flops / device.flops
    return product.comm.compute(kind, seconds=seconds, **fields)
