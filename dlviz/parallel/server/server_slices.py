"""The parameters of a model cut into equal slices, one for each of several servers.

    parameters    |  weight 1  |bias|      weight 2      |bias|      one after the other
    slices        |        0        |         1       |   2   |      cut at any value

A piece of a parameter is itself a parameter, a view of the values. A rule may move it, since every
rule of `update_rules` treats each value by itself.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from dlviz.parallel.step.hooks import dense
from dlviz.parallel.step.sharded_step import trained


class Slice(nn.ParameterList):
    """The values from `start` to `stop` of all trained parameters of a model."""

    def __init__(self, model: nn.Module, start: int, stop: int):
        super().__init__()
        self.cuts: list[tuple[nn.Parameter, slice]] = []
        first = 0  # index of p's first value
        for p in trained(model):
            cut = slice(max(start - first, 0), max(stop - first, 0))
            if len(values := p.detach().view(-1)[cut]):
                self.append(nn.Parameter(values.view_as(p) if len(values) == p.numel() else values))
                self.cuts.append((p, cut))
            first += p.numel()

    def take_gradients(self) -> None:
        """Give each piece its part of the gradients."""
        for piece, (p, cut) in zip(self, self.cuts, strict=True):
            piece.grad = None if p.grad is None else dense(p.grad).flatten()[cut].view_as(piece)


def cut(model: nn.Module, servers: int) -> list[Slice]:
    """A slice for each server. Raises ValueError for more servers than values."""
    whole = sum(p.numel() for p in trained(model))
    if servers > whole:
        raise ValueError(
            f"servers={servers} cannot share a model of {whole} parameters: each needs one to "
            f"serve. Use {whole} or fewer."
        )
    for p in trained(model):
        p.data = p.data.contiguous()  # a piece is a view
    bounds = [whole * server // servers for server in range(servers + 1)]
    return [Slice(model, start, stop) for start, stop in pairwise(bounds)]
