"""Phase 5: how the server combines the updates that came back.

    Δ = Σ n_k Δ_k / Σ n_k            over the clients that answered, n_k examples each,
                                     or whatever their losses are means of
    v ← β v + Δ                      server momentum (FedAvgM); β = 0: plain FedAvg
    w ← w + η v                      η is the server's rate

The sum runs in the order of the clients, not of arrival: floating-point sums depend on the order,
and the same seed has to give the same weights.

With a rule (FedAdam, FedAdagrad: "adaptive federated optimization") the server treats -Δ as a
gradient. Source: McMahan et al. 2017, algorithm 1; Hsu, Qi and Brown 2019 (FedAvgM); Reddi et al.,
"Adaptive Federated Optimization", ICLR 2021, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Tensor = torch.Tensor
# updates (clients, parameters), weights (clients,) -> the update (parameters,)
Combine = Callable[[Tensor, Tensor], Tensor]


class ServerRule(Protocol):
    """What updates a server's weights: a rule of `parallel.update_rules`, for example."""

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None: ...


def weighted_mean(updates: Tensor, weights: Tensor) -> Tensor:
    """Σ w_k u_k / Σ w_k of (clients, ...) values and (clients,) weights; zero without clients."""
    total = updates.new_zeros(updates.shape[1:])
    for update, share in zip(updates, (weights / weights.sum()).tolist(), strict=True):
        total += share * update  # n_k Δ_k / Σ n_k, client after client
    return total


class ServerUpdate:
    """Updates the server's weights, and holds the velocity or the rule's state. `trained`: how many
    of the values are trained; those after them, buffers, take the mean as it is."""

    def __init__(
        self, combine: Combine, momentum: float, lr: float, rule: ServerRule | None, trained: int
    ):
        self.combine = combine
        self.momentum, self.lr, self.rule, self.trained = momentum, lr, rule, trained
        self.velocity: Tensor | None = None
        if not 0 <= momentum < 1:
            raise ValueError(f"server_momentum={momentum!r} grows for ever: use 0 up to below 1.")
        if not 0 <= lr < float("inf"):
            raise ValueError(f"server_lr={lr!r} is not a rate: use 0 or more.")
        if rule is not None and (momentum, lr) != (0.0, 1.0):
            raise ValueError(
                f"server_momentum={momentum:g} and server_lr={lr:g} with a server_rule: the rule "
                "has a rate and a memory of its own; leave them out."
            )

    def moved(self, weights: Tensor, updates: Tensor, shares: Tensor) -> Tensor:
        """The weights (parameters,) after a round with `updates` (clients, parameters), weighted by
        `shares` (clients,). Raises ValueError where they cannot be combined."""
        update, weights = self.combine(updates, shares), weights.clone()
        if update.shape != weights.shape or not update.isfinite().all():
            raise ValueError(
                f"combine made {tuple(update.shape)} of the updates, not all of it finite numbers: "
                f"the weights need {tuple(weights.shape)}."
            )
        moved, change = weights[: self.trained], update[: self.trained]
        if self.rule is not None:
            self.rule.step([moved], [-change])  # rules go against a gradient: -Δ
        else:
            if self.momentum:
                before = 0.0 if self.velocity is None else self.velocity
                change = self.velocity = change + self.momentum * before  # v ← β v + Δ
            moved += self.lr * change  # w ← w + η v; a view of weights
        # Buffers, batch norm's statistics say, take the mean as it is: no momentum, no rate.
        weights[self.trained :] += update[self.trained :]
        return weights
