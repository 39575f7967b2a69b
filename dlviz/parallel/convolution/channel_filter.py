"""A convolution cut over channels and filters: one algorithm on p_f x p_c ranks.

Rank (f, c) holds w[F_f, C_c], a block of F/p_f filters and C/p_c channels, and between layers a
part of x and of y that no other rank holds:

                         forward                                 backward
    x[C_cf]  gather over f     -> x[C_c]           dy[F_fc]  gather over c     -> dy[F_f]
    x[C_c]   convolve          -> y[F_f], partial  dy[F_f]   convolve          -> dx[C_c], partial
    y[F_f]   sum, scatter over c -> y[F_fc]        dx[C_c]   sum, scatter over f -> dx[C_cf]
                                                   dw = x[C_c] * dy[F_f], db = sum of dy[F_f]

    p_f = 1   stationary x: x stays where it is, y is summed and scattered
    p_c = 1   stationary y: x is gathered, y stays
    else      stationary w: both move, and only w stays

The channels of y lie on (f, c) and those of x on (c, f): the cut of y is that of the next x if the
two axes change places in the next layer. dw and db are whole on each rank, as far as its images go.

dw needs x[C_c]. A rank either keeps it, p_f times its own part, from forward to backward, or saves
its own part and gathers again.

Source: N. Dryden, N. Maruyama et al., "Channel and filter parallelism for large-scale CNN
training", SC 2019, section 3. In PyTorch: a DTensor with Shard(1) for x and Partial for y.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from dlviz.cluster import Comm, pack_saved, unpack_saved
from dlviz.collectives.ring import once_round
from dlviz.parallel.convolution.channel_blocks import (
    Number,
    check_blocks,
    convolved,
    parts_of,
)
from dlviz.parallel.convolution.distribution import Cut
from dlviz.parallel.tensor.conjugate import recorded


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Number = 1,
    padding: Number = 0,
    dilation: Number = 1,
    groups: int = 1,
    *,
    filters: Cut,
    channels: Cut,
    convolve: Callable[..., Tensor] = F.conv2d,
    keep_gathered: bool = False,
    layer: str = "",
) -> Tensor:
    """This rank's part (N, F_fc, H', W') of the convolution, of its part `x` (N, C_cf, H, W), its
    block of the whole weight (`weight_block`) and its filters' `bias` (F_f). The parts are those of
    torch.tensor_split: of C over `channels`, and of each block over `filters`; of F over `filters`,
    and of each block over `channels`. Some may be empty. `convolve` takes what torch's conv2d does,
    up to `groups`. With `keep_gathered` the gathered x is saved for the backward, else it is
    gathered again. `layer` names the spans.

    Raises ValueError for an x, a weight or a bias that is not this rank's block, and for groups
    that the cut of the channels splits.

    Cost: a rank sends ((p_f-1) C + (p_c-1) F) N H W / p elements forward, and as many backward,
    (p_f-1) C N H W / p more where x is gathered again.
    """
    check_blocks(x, weight, bias, groups, filters, channels)
    parts_x, parts_y = parts_of(channels, filters.comm), parts_of(filters, channels.comm)
    whole, again = x, None
    if filters.comm.size > 1:
        whole = _Gather.apply(x, parts_x, filters.comm, layer)  # (N, C_c, H, W)
        if not keep_gathered and weight.requires_grad and whole.numel():
            again = _Again(whole)
    with saved_tensors_hooks(again.pack, again.unpack) if again else nullcontext():
        how = convolve, (stride, padding, dilation), groups, filters, channels
        partial = convolved(whole, weight, *how)
    if channels.comm.size == 1 and again is None:  # partial (N, F_f, H', W') is the sum
        return partial if bias is None else partial + bias.view(-1, 1, 1)
    gather = parts_x, filters.comm, layer
    return _Scatter.apply(partial, bias, x.detach(), again, gather, parts_y, channels.comm, layer)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        return gathered(x, *how, direction="forward")  # (N, C_cf, H, W) -> (N, C_c, H, W)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        # Each rank's dx is that of its filters: their sum over f is the gradient.
        return scattered(gradient, *ctx.how, direction="backward"), None, None, None


class _Scatter(Function):
    """Its backward gathers the x of `again` too: every rank of the group comes here, and none has
    begun the backward of the convolution."""

    @staticmethod
    def forward(
        ctx: Any,
        partial: Tensor,
        bias: Tensor | None,
        x: Tensor,
        again: _Again | None,
        gather: tuple[Any, ...],
        parts: list[tuple[int, int]],
        comm: Comm,
        layer: str,
    ) -> Tensor:
        ctx.again, ctx.gather, ctx.how = again, gather, (parts, comm, layer)
        if again is not None:
            ctx.save_for_backward(x)
        y = scattered(partial, *ctx.how, direction="forward")  # (N, F_f, ...) -> (N, F_fc, ...)
        if comm.size == 1:
            y = y.clone()  # not a view, which could not be changed in place
        if bias is not None:
            y += bias[slice(*parts[comm.rank])].view(-1, 1, 1)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        dy = gathered(gradient, *ctx.how, direction="backward")  # (N, F_fc, ...) -> (N, F_f, ...)
        if ctx.again is not None:
            ctx.again.put(gathered(*ctx.saved_tensors, *ctx.gather, direction="backward"))
        db = dy.sum((0, 2, 3)) if ctx.needs_input_grad[1] else None
        return dy, db, None, None, None, None, None, None


class _Again:
    """Stands for a gathered x where autograd would save it, until `put` brings it back."""

    def __init__(self, whole: Tensor):
        self._address = whole.untyped_storage().data_ptr()
        self._saved = self._left = 0  # times that autograd saved x; that backward still uses it
        self._whole: Tensor | None = None

    def pack(self, tensor: Tensor) -> Any:
        if tensor.untyped_storage().data_ptr() != self._address:
            return pack_saved(tensor)
        self._saved += 1
        return tensor.shape, tensor.stride(), tensor.storage_offset()  # of a group's channels, say

    def unpack(self, saved: Any) -> Tensor:
        if not isinstance(saved, tuple):
            return unpack_saved(saved)
        assert self._whole is not None
        tensor = self._whole.as_strided(*saved)
        self._left -= 1
        if not self._left:
            self._whole = None  # the last one frees it
        return tensor

    def put(self, whole: Tensor) -> None:
        self._left, self._whole = self._saved, whole if self._saved else None


def gathered(
    x: Tensor, parts: list[tuple[int, int]], comm: Comm, layer: str, direction: str
) -> Tensor:
    """All ranks' channels of x (N, own, H, W), of which `parts` says which are whose, in order."""
    if comm.size == 1:
        return x
    comm.agree("all_gather", x[:, :0])  # the number of channels may differ, and nothing else
    shape = len(x), parts[-1][1], *x.shape[2:]
    with recorded(comm, "all_gather", layer, direction, x.element_size() * prod(shape)):
        pieces = [
            x.contiguous() if rank == comm.rank else x.new_empty(len(x), end - lo, *x.shape[2:])
            for rank, (lo, end) in enumerate(parts)
        ]
        once_round(comm, range(comm.size), pieces, start=0, op="copy", first_step=0)
    return torch.cat(pieces, 1)


def scattered(
    partial: Tensor, parts: list[tuple[int, int]], comm: Comm, layer: str, direction: str
) -> Tensor:
    """This rank's channels, by `parts`, of the sum of all ranks' `partial` (N, all, H, W)."""
    if comm.size == 1:
        return partial
    comm.agree("reduce_scatter", partial)
    with recorded(comm, "reduce_scatter", layer, direction, partial.nbytes):
        # Copies: the sums are made in place, and autograd may hold `partial`.
        pieces = [
            partial[:, lo:end].clone(memory_format=torch.contiguous_format) for lo, end in parts
        ]
        once_round(comm, range(comm.size), pieces, start=-1, op="sum", first_step=0)
    return pieces[comm.rank]
