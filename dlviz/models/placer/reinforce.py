"""REINFORCE: the gradient of an expected reward from samples alone, and the search that follows it.

    d E[R] / d theta = E[ (R - b) d log P(placement) / d theta ]

It needs no derivative of the seconds. b, the baseline, is a moving average of the rewards before:
any b that does not depend on the sample leaves the mean as it is, and one near the mean reward
takes away most of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dlviz.counts import check_amounts, check_counts
from dlviz.models.placer.attention import ColocRL
from dlviz.models.placer.rewards import Rewards
from dlviz.models.placer.table import Draws, Table
from dlviz.sim.placement import Devices, Graph
from dlviz.sim.placement.found import Found

Types = Sequence[Hashable] | None
POLICIES: dict[str, Callable[[Graph, Devices, int, Types], nn.Module]] = {
    "table": lambda graph, devices, seed, types: Table(len(graph), devices.count),
    "lstm": ColocRL,
}
RATES = {"table": 0.1, "lstm": 0.01}


@dataclass(frozen=True)
class Learned(Found):
    """What was found, and `probabilities` (updates, groups, devices): from which each update's
    devices were drawn, as a mean over its placements."""

    probabilities: torch.Tensor


def learn(
    graph: Graph,
    devices: Devices,
    model: str = "table",
    *,
    samples: int = 2000,
    seed: int = 0,
    batch: int = 10,
    lr: float | None = None,
    decay: float = 0.9,
    unfit: float | None = None,
    types: Types = None,
) -> Learned:
    """The best of `samples` placements that a policy draws while it learns, `batch` an update.

    `model` is one of POLICIES: "table", or "lstm", which also reads each group's seconds, bytes and
    neighbours, and its kind of operator where `types` has one for each group. Each update is a step
    of Adam at the rate `lr` (None: that of RATES). The baseline is `decay` of itself and the rest
    of the update's mean reward. A placement that does not fit counts as `unfit` seconds (None: all
    groups and messages one after another), and as inf in `.samples`.

    Raises ValueError for an unknown model, counts below 1, a rate below 0, a decay outside 0 to 1,
    and where no sample fits, with the bytes that are missing.
    """
    check_counts(samples=samples, batch=batch)
    check_counts(0, seed=seed)
    check_amounts(lr=lr, decay=decay)
    if model not in POLICIES:
        raise ValueError(f"model={model!r} is unknown: use one of {', '.join(POLICIES)}.")
    if decay > 1:
        raise ValueError(f"decay={decay!r} has to be at most 1: it is a share.")
    rewards = Rewards(graph, devices, unfit)
    policy = POLICIES[model](graph, devices, seed, types)
    optimizer = torch.optim.Adam(policy.parameters(), RATES[model] if lr is None else lr)
    generator = torch.Generator().manual_seed(seed)
    baseline, probabilities = None, []
    for first in range(0, samples, batch):
        draws = policy(min(batch, samples - first), generator)
        reward = rewards(draws.placements)  # (k,)
        mean = reward.mean()
        baseline = mean if baseline is None else baseline  # the first update has only its own
        optimizer.zero_grad()
        (-surrogate(draws, reward - baseline)).backward()  # Adam goes down, the reward is to rise
        optimizer.step()
        baseline = decay * baseline + (1 - decay) * mean
        probabilities.append(draws.probabilities.detach().mean(0))
    found = rewards.samples.found()
    return Learned(**vars(found), probabilities=torch.stack(probabilities))


def surrogate(draws: Draws, advantage: torch.Tensor) -> torch.Tensor:
    """A number whose gradient is REINFORCE's: the mean of (R - b) log P over the placements."""
    return (advantage.to(draws.log_probability.dtype) * draws.log_probability).mean()
