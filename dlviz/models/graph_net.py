"""A net with the groups of any graph, to run placements of it on ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class GraphNet(nn.Module):
    """A net with a child for each group of a graph, by `parents`: tanh(w sum(x) + b) of its
    parents' values x, or of the batch, (B, 8) each. By "children", `graph_of` gives it the
    graph's groups, where no group but the last is without a child."""

    def __init__(self, parents: Sequence[Sequence[int]]):
        super().__init__()
        self.parents = [[*own] for own in parents]
        for group in range(len(parents)):
            self.add_module(f"{group}", GroupLayer())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: list[torch.Tensor] = []
        for group, own in enumerate(self.parents):
            values.append(self.get_submodule(f"{group}")(*([values[p] for p in own] or [x])))
        return values[-1]


class GroupLayer(nn.Linear):
    """A group of a GraphNet."""

    def __init__(self):
        super().__init__(8, 8)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(torch.stack(values).sum(0)))
