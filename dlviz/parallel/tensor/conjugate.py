"""The conjugate pairs: what is done in forward at one end of a split layer is undone in backward at
the other.

                forward                    backward
    f           identity                   all-reduce of the gradient
    g           all-reduce                 identity
    gather      all-gather of sequence     reduce-scatter of the gradient
    scatter     reduce-scatter             all-gather of the gradient's sequence

f stands where the whole tensor enters a layer whose ranks each compute a part of what follows: each
then knows a part of its gradient, a summand. g stands where each rank's result is a summand of the
whole. Where the sequence is cut between layers (sequence parallelism), `gather_sequence` takes f's
place and `scatter_sequence` g's. `gather_outputs` is the naive way to leave a layer.

Each communication is a span of kind "collective", whose fields are `layer`, `direction` and
`collective`: all messages inside bear them too.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3 (f and g); V. Korthikanti et al.,
"Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2 (where gather
is called g and scatter g-bar). In PyTorch: the redistributions of torch.distributed.tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm
from dlviz.collectives import ring
from dlviz.parallel.shards import all_reduce_called


def f(comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = "") -> torch.Tensor:
    """x, the same on all ranks; the gradient is the sum of all ranks'.

    Cost: nothing forward, one all-reduce of x's bytes backward.
    """
    return _F.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def g(comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = "") -> torch.Tensor:
    """The sum of all ranks' x; its gradient, the same on all ranks, is that of each summand.

    Cost: one all-reduce of x's bytes forward, nothing backward.
    """
    return _G.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


def gather_outputs(
    comm: Comm, x: torch.Tensor, all_reduce: str = "ring", layer: str = ""
) -> torch.Tensor:
    """(..., columns/n) of each rank side by side, (..., columns). Of the gradient, the same on all
    ranks, each keeps its columns.

    Cost: one all-gather forward, each rank sends (n-1) * nbytes of its x; nothing backward.
    """
    return _GatherOutputs.apply(x, comm, all_reduce, layer) if comm.size > 1 else x


class _F(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.how = how
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return summed(gradient, *ctx.how, "backward"), None, None, None


class _G(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        return summed(x, *how, "forward")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None, None, None


class _GatherOutputs(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *how: Any) -> torch.Tensor:
        ctx.comm = how[0]
        return gathered(x, -1, *how, "forward")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.chunk(ctx.comm.size, -1)[ctx.comm.rank], None, None, None


def summed(
    x: torch.Tensor, comm: Comm, all_reduce: str, layer: str, direction: str
) -> torch.Tensor:
    """The sum of all ranks' x, in memory of its own."""
    total = x.clone(memory_format=torch.contiguous_format)
    with _collective(comm, "all_reduce", layer, direction, total):
        all_reduce_called(all_reduce)(comm, total)
    return total


def gathered(
    x: torch.Tensor, dim: int, comm: Comm, all_reduce: str, layer: str, direction: str
) -> torch.Tensor:
    """All ranks' x, one after the other along `dim`."""
    n, rank = comm.size, comm.rank
    parts = x.new_empty(n, *x.shape)  # (n, ...)
    with _collective(comm, "all_gather", layer, direction, parts):
        if all_reduce == "backend":
            comm.all_gather(parts, x.contiguous())
            return torch.cat(tuple(parts), dim)
        # The ring begins with part r+1 at rank r: the parts lie one place on.
        parts[(rank + 1) % n] = x
        ring.all_gather(comm, parts)
    return torch.cat([parts[(place + 1) % n] for place in range(n)], dim)


def _collective(
    comm: Comm, collective: str, layer: str, direction: str, tensor: torch.Tensor
) -> Any:
    return comm.span(
        "collective",
        f"{collective.replace('_', '-')} {layer}".strip(),
        group=comm.name,
        nbytes=tensor.nbytes,
        collective=collective,
        layer=layer,
        direction=direction,
    )
