"""The smallest policy: a table of logits, a row for each group, and no row knows of another.

            device 0   1   2   3
    group 0      0.2 0.1 1.9 0.0   softmax   .12 .11 .67 .10    drawn: 2
    group 1      1.5 0.3 0.0 0.2   ------>   .53 .16 .12 .19    drawn: 0
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Draws(NamedTuple):
    """k placements that a policy drew."""

    placements: torch.Tensor  # (k, groups): device numbers
    log_probability: torch.Tensor  # (k,): of each placement, differentiable
    probabilities: torch.Tensor  # (k, groups, devices): those from which each device was drawn


class Table(nn.Module):
    """`logits` (groups, devices), at first 0: every placement is equally likely."""

    def __init__(self, groups: int, devices: int):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(groups, devices))

    def forward(self, k: int, generator: torch.Generator) -> Draws:
        logs = self.logits.log_softmax(-1)  # (groups, devices)
        probabilities = logs.detach().exp()
        placements = torch.multinomial(probabilities, k, replacement=True, generator=generator).T
        return Draws(placements, log_probability(logs, placements), probabilities.expand(k, -1, -1))


def log_probability(logs: torch.Tensor, placements: torch.Tensor) -> torch.Tensor:
    """The sum over groups of the log of the drawn device's probability, for each placement."""
    logs = logs.expand(len(placements), -1, -1)  # (k, groups, devices)
    return logs.gather(-1, placements[..., None]).squeeze(-1).sum(-1)
