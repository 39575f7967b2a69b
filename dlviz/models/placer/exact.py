"""The gradient that REINFORCE estimates, by the sum over all placements instead of samples.

    E[R] = sum over placements p of  P(p) R(p),    P(p) = product of softmax(logits[g])[p[g]]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch

from dlviz.models.placer.rewards import Rewards
from dlviz.models.placer.table import log_probability
from dlviz.sim.placement import Devices, Graph

MOST = 100_000  # placements: some seconds


def gradient(
    graph: Graph,
    devices: Devices,
    logits: torch.Tensor | Sequence[Sequence[float]],
    *,
    unfit: float | None = None,
) -> torch.Tensor:
    """The gradient of E[-sqrt(seconds)] by `logits` (groups, devices), in float64. `unfit` is as
    in `learn`.

    Raises ValueError for logits of another shape, and where there are more than MOST placements,
    devices ** groups, for all of which it is played.
    """
    logits = torch.as_tensor(logits, dtype=torch.float64).detach().requires_grad_()
    shape = len(graph), devices.count
    if logits.shape != shape:
        raise ValueError(
            f"logits have the shape {tuple(logits.shape)}: give a row for each of {shape[0]} "
            f"groups, with a number for each of {shape[1]} devices."
        )
    many = devices.count ** len(graph)
    if many > MOST:
        raise ValueError(
            f"{shape[0]} groups on {shape[1]} devices have {many:,} placements, and at most "
            f"{MOST:,} are played: make fewer groups, or estimate the gradient by samples."
        )
    placements = torch.tensor([*product(range(devices.count), repeat=len(graph))])
    rewards = Rewards(graph, devices, unfit)(placements)
    probabilities = log_probability(logits.log_softmax(-1), placements).exp()
    return torch.autograd.grad((probabilities * rewards).sum(), logits)[0]
