"""The dense layers of one weird trick: a rank's block of each."""

from __future__ import annotations

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.tensor.conjugate import f, g
from dlviz.parallel.tensor.train import ELEMENTWISE
from dlviz.sim.convolution import blocks


class DenseBlock(nn.Module):
    """This rank's block of a linear `layer`, whose weight W (n, k) is cut along `dim`, 0: by its
    outputs, 1: by its inputs. The layer is left empty.

    Cut by its outputs it takes whole inputs, and its own are whole no more. Cut by its inputs it
    takes those, and its outputs are a part of a sum, which is added up unless it is the `last`.
    """

    def __init__(self, comm: Comm, layer: nn.Linear, dim: int, first: bool, last: bool):
        super().__init__()
        self.comm, self.dim, self.first, self.last = comm, dim, first, last
        self.own = slice(*blocks(layer.weight.shape[dim], comm.size)[comm.rank])
        weight, bias = layer.weight, layer.bias
        self.weight = _own(weight, weight[self.own] if dim == 0 else weight[:, self.own])
        self.bias = None
        if bias is not None and (dim == 0 or comm.rank == 0):  # a sum needs it once
            self.bias = _own(bias, bias[self.own] if dim == 0 else bias)
        for p in layer.parameters():
            p.data = p.data.new_empty(0)

    def extra_repr(self) -> str:
        own, by = self.own, "inputs" if self.dim else "outputs"
        return f"{by} {own.start} to {own.stop - 1}, bias={self.bias is not None}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.dim == 0:
            # Of the first one's dx the crossing back adds up the parts.
            x = x if self.first else f(self.comm, x)
            return nn.functional.linear(x, self.weight, self.bias)  # (N, n/K)
        if self.first:
            x = x[..., self.own]  # (N, k/K): there is no layer before that cuts it
        sums = nn.functional.linear(x, self.weight, self.bias)  # (N, n), a part of every sum
        return sums if self.last else g(self.comm, sums)


def _own(whole: torch.Tensor, part: torch.Tensor) -> nn.Parameter:
    own = part.detach().clone(memory_format=torch.contiguous_format)
    return nn.Parameter(own, whole.requires_grad)


def first_dense(layers: dict[str, nn.Module], model: nn.Module) -> int:
    """The place of the first dense layer. Raises ValueError for a model that cannot be cut."""
    kinds = [type(layer) for layer in layers.values()]
    if nn.Linear not in kinds:
        raise ValueError(
            f"a {type(model).__name__} without an nn.Linear among its own layers has no dense part "
            "to cut: give an nn.Sequential of convolutions, nn.Flatten and nn.Linear layers."
        )
    first = kinds.index(nn.Linear)
    for name, layer in [*layers.items()][first:]:
        if type(layer) is not nn.Linear and not isinstance(layer, ELEMENTWISE):
            allowed = ", ".join(each.__name__ for each in ELEMENTWISE[:-1])
            raise ValueError(
                f"layer {name}, a {type(layer).__name__}, lies behind the first nn.Linear, where "
                f"layers are cut over ranks: use nn.Linear, {allowed} there."
            )
    return first
