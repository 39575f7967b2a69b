"""Halo exchange: the rows and columns of others' blocks that a rank's outputs read.

An image is cut into blocks. A convolution slides its kernel over the borders too, so a rank needs
the rim of its neighbours' blocks, its halo. A 3 x 3 kernel with padding 1, 8 rows on 2 ranks:

    rank 0    outputs 0..3 read rows -1..4    -1: padding    0 1 2 3: its own    4: halo of rank 1
    rank 1    outputs 4..7 read rows  3..8     3: halo of rank 0    4 5 6 7: its own    8: padding

Each rank finds all messages by itself, since blocks and kernel are known everywhere: a rank is sent
`needed` minus what it has, block by block, also from the ranks at a corner, and from those beyond a
block that is thinner than the halo. With a stride above and below differ.

The interior, the outputs that read a rank's own pixels alone, is computed while the halo travels,
and so are its gradients:

    forward     send own edges  | interior  | receive: the rim's inputs | rim
    backward    add to own edges| interior  | send the halo's gradients | rim       (right to left)

The gradient of a pixel goes back to the rank that sent it, and is added there. Both halves of the
exchange are autograd Functions: `_Begin` sends in forward and adds in backward, `_End` receives in
forward and sends back in backward. Autograd begins with what was computed last: the rim, `_End`,
the interior, `_Begin`.

Source: N. Dryden, N. Maruyama et al., "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", IPDPS 2019, section III-A.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.parallel.convolution.boxes import area, part
from dlviz.parallel.convolution.halo_exchange import Halo
from dlviz.parallel.convolution.windows import Window


def with_halo(
    x: torch.Tensor,
    rows: Window,
    columns: Window,
    fill: float = 0.0,
    watch: Callable[[torch.Tensor, Halo], None] | None = None,
) -> torch.Tensor:
    """This rank's block `x` (N, C, h, w) with its halo, and `fill` for padding, along the dims that
    are cut: what its outputs read. The gradients of the halo go back to the ranks it is from.
    `watch` is called with the result before the halo arrives in it."""
    halo = Halo(x, rows, columns, fill, overlap=False, watch=watch)
    return _End.apply(_Begin.apply(x, halo), halo)[0]


def computed(
    x: torch.Tensor,
    rows: Window,
    columns: Window,
    operation: Callable[[torch.Tensor], torch.Tensor],
    fill: float = 0.0,
    layer: str = "",
) -> torch.Tensor:
    """This rank's block of the output of `operation`, which maps (N, C, h, w), its block with all
    that it reads, to (N, F, h', w'); the interior while the halo travels."""
    if rows.comm is None and columns.comm is None:
        return operation(x)
    halo, done = Halo(x, rows, columns, fill, layer), {}
    inner = _Begin.apply(x, halo)
    if area(halo.interior):
        with halo.comm.span("phase", f"interior {layer}".strip(), layer=layer):
            done[halo.interior] = operation(inner)
    if not halo.rim:
        halo.receive()  # nothing, but the sends end
        return done[halo.interior]
    strips = _End.apply(inner, halo)
    with halo.comm.span("phase", f"rim {layer}".strip(), layer=layer):
        done |= zip(halo.rim, map(operation, strips), strict=True)
    y = _join([_join([done[box] for box in band], 3) for band in halo.bands if band], 2)
    (top, bottom), (left, right) = halo.made
    return y[:, :, : bottom - top, : right - left]  # of no outputs some were made


class _Begin(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, halo: Halo) -> torch.Tensor:
        ctx.halo, ctx.shape = halo, x.shape
        return halo.send()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        halo, dx = ctx.halo, gradient.new_zeros(ctx.shape)
        part(dx, halo.held, halo.inner).copy_(gradient)
        halo.add(dx)
        return dx, None


class _End(Function):
    @staticmethod
    def forward(ctx: Any, inner: torch.Tensor, halo: Halo) -> tuple[torch.Tensor, ...]:
        ctx.halo = halo  # `inner` is an input so that backward comes here before _Begin
        return halo.receive()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.halo.send_back(gradients)
        return None, None


def _join(parts: list[torch.Tensor], dim: int) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
