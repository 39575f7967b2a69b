"""The conjugate pairs: forward and backward communication at the two ends of a cut layer.

                       forward                    backward
    f                  identity                   all-reduce
    g                  all-reduce                 identity
    gather_sequence    all-gather                 reduce-scatter
    scatter_sequence   reduce-scatter             all-gather
    gather_outputs     all-gather                 each rank takes its part

f: a whole tensor enters a layer of which each rank computes a part, so each rank's gradient of it
is a partial sum. g: each rank's output is a partial sum of the whole. Under sequence parallelism
the tokens are cut between such layers, and `gather_sequence` replaces f, `scatter_sequence` g.
`gather_outputs` concatenates the parts of an output, the naive alternative to g.

Each communication is a span of kind "collective" with the fields `layer`, `direction`, `collective`
and `call`, its number on the rank; all messages inside have them too. With one rank nothing is
sent.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3 (f and g); V. Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2 (where
gather_sequence is called g and scatter_sequence g-bar). In PyTorch: the redistributions of
torch.distributed.tensor.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz import collectives
from dlviz.cluster import Comm
from dlviz.collectives import ring
from dlviz.parallel.tensor.checks import check_divides

_calls = count(1)


def f(comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = "") -> torch.Tensor:
    """x (..., k) itself, whole on all ranks; its gradient is the sum of all ranks'.

    Cost: backward one all-reduce of x's bytes.
    """
    return _F.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def g(comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = "") -> torch.Tensor:
    """The sum of all ranks' x (..., n); its gradient, whole on all ranks, is that of each x.

    Cost: forward one all-reduce of x's bytes.
    """
    return _G.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def gather_sequence(
    comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = ""
) -> torch.Tensor:
    """Each rank's tokens, (..., s/t, k), in rank order, (..., s, k). The gradient is the sum of all
    ranks', of which each takes the part of its tokens.

    Cost: forward one all-gather, backward one reduce-scatter of (..., s, k): each rank sends
    (t-1)/t of its bytes in each, together as much as in one all-reduce.
    """
    return _GatherSequence.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def scatter_sequence(
    comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = ""
) -> torch.Tensor:
    """This rank's tokens, (..., s/t, n), of the sum of all ranks' x (..., s, n). The gradient is
    that of all ranks' tokens in rank order. Raises ValueError for tokens that the ranks cannot
    share evenly.

    Cost: as `gather_sequence`, with forward and backward exchanged.
    """
    check_divides("sequence", x.shape[-2], comm.size, "tokens")
    return _ScatterSequence.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def gather_outputs(
    comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = ""
) -> torch.Tensor:
    """Each rank's columns, (..., n/t), side by side, (..., n). Of the gradient, whole on all ranks,
    each takes the part of its columns.

    Cost: forward one all-gather, each rank sends (t-1)/t of the bytes of (..., n).
    """
    return _GatherOutputs.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


class _F(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.how = how
        return x.view_as(x)  # f: the identity, (..., k)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        # A rank's gradient is that of its own columns: dx = Σ dy_r W_r, over the ranks.
        return reduced(gradient, *ctx.how, direction="backward"), None, None, None


class _G(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        return reduced(x, *how, direction="forward")  # g: (..., n) of each rank, added

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None, None, None  # in a + b both have the gradient of the sum


class _GatherSequence(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.how = how
        return gathered(x, -2, *how, direction="forward")  # (..., s/t, k) -> (..., s, k)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        # (..., s, k) -> (..., s/t, k): all ranks used these tokens, so their gradients add up.
        return scattered(gradient, -2, *ctx.how, direction="backward"), None, None, None


class _ScatterSequence(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.how = how
        return scattered(x, -2, *how, direction="forward")  # (..., s, n) -> (..., s/t, n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        # (..., s/t, n) -> (..., s, n): every rank's partial sum went into all tokens.
        return gathered(gradient, -2, *ctx.how, direction="backward"), None, None, None


class _GatherOutputs(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.comm = how[0]
        return gathered(x, -1, *how, direction="forward")  # (..., n/t) -> (..., n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.chunk(ctx.comm.size, -1)[ctx.comm.rank], None, None, None


def reduced(
    x: torch.Tensor, comm: Comm, all_reduce: str, layer: str, direction: str, op: str = "sum"
) -> torch.Tensor:
    """The sum of all ranks' x, or with op="max" the largest value of each cell, in new memory."""
    # A copy: the all-reduce works in place, and autograd may hold x.
    total = x.clone(memory_format=torch.contiguous_format)
    with recorded(comm, "all_reduce", layer, direction, total.nbytes):
        if all_reduce == "backend":
            comm.all_reduce(total, op)
        else:
            collectives.ALGORITHMS[all_reduce](comm, total, op)
    return total


def gathered(
    x: torch.Tensor, dim: int, comm: Comm, all_reduce: str, layer: str, direction: str
) -> torch.Tensor:
    """All ranks' x, concatenated along `dim`."""
    n, parts = comm.size, x.new_empty(comm.size, *x.shape)
    with recorded(comm, "all_gather", layer, direction, parts.nbytes):
        if all_reduce == "backend":
            comm.all_gather(parts, x.contiguous())
            return torch.cat(tuple(parts), dim)
        parts[(comm.rank + 1) % n] = x  # the ring's rank r begins with chunk r+1
        ring.all_gather(comm, parts)
    return torch.cat([parts[(place + 1) % n] for place in range(n)], dim)


def scattered(
    x: torch.Tensor, dim: int, comm: Comm, all_reduce: str, layer: str, direction: str
) -> torch.Tensor:
    """This rank's part, along `dim`, of the sum of all ranks' x."""
    parts = list(x.chunk(comm.size, dim))
    if all_reduce == "backend":
        partial, own = torch.stack(parts), torch.empty_like(parts[0])
        with recorded(comm, "reduce_scatter", layer, direction, partial.nbytes):
            comm.reduce_scatter(own, partial)
        return own
    partial = torch.stack([*parts[-1:], *parts[:-1]])  # the ring leaves chunk r+1 on rank r
    with recorded(comm, "reduce_scatter", layer, direction, partial.nbytes):
        ring.reduce_scatter(comm, partial)
    return partial[(comm.rank + 1) % comm.size].clone()


def recorded(comm: Comm, collective: str, layer: str, direction: str, nbytes: int) -> Any:
    """The span of a collective of `nbytes` in all."""
    name = f"{collective.replace('_', '-')} {layer}".strip()
    fields = {"group": comm.name, "nbytes": nbytes, "call": next(_calls)}
    fields |= {"collective": collective, "layer": layer, "direction": direction}
    return comm.span("collective", name, **fields)
