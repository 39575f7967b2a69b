"""Differential privacy of a whole client: a round whose result hardly depends on any one of them.

    update of client k  --clip to S-->  |
    update of client l  --clip to S-->  |--> sum + N(0, (sigma S)^2) --> / (q N) --> new weights
    (m was not drawn: nothing)          |

    N  clients in all               q  sample_rate: each takes part in a round with probability q
    S  bound, of an update's norm   sigma  noise_multiplier: the noise on the *sum*, in units of S

Without client k the sum moves by at most S, whatever her data. That is why all count the same, why
the divisor is the expected number of clients, q N, and not the number that came (which would reveal
whether she did), and why the noise does not shrink when more come. The `epsilon` of accountant.py
holds only for clients drawn by `poisson`.

Source: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018,
algorithm 1. Opacus' DPOptimizer and RDPAccountant do the same with one example as the unit instead
of one client.

It does not protect against the server, which sees each update before the noise: `local` or secure
aggregation does. It does not hide what most clients have in common. And the noise is floating point
from a known seed: it does not withstand an attack on the noise itself (Mironov, CCS 2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from dlviz.counts import check_counts
from dlviz.federated.accountant import epsilon

__all__ = ["Private", "central", "clip", "local", "poisson"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Private:
    """Rounds of `central` whose epsilon is known, for `train(private=)`: updates clipped to
    `bound`, noise of `noise_multiplier` on their sum. `delta` must be below 1/N.

    The epsilon is that of the weights. A record's loss and score are without noise.
    """

    bound: float
    noise_multiplier: float
    delta: float

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid bound, noise or delta."""
        _check_bound(self.bound)
        epsilon(self.noise_multiplier, 1.0, 0, self.delta)

    def check(
        self, selection: str, fraction: float, clients: int, given: Mapping[str, object]
    ) -> None:
        """Raise ValueError where the epsilon would not hold: for another selection, an argument
        `given` that does not go with this one, and a delta of 1/clients or more."""
        if selection != "poisson":
            raise ValueError(
                f"selection={selection!r} with private=: epsilon holds where each client is drawn "
                "on its own; use selection='poisson'."
            )
        for name, value in given.items():
            if value:
                raise ValueError(
                    f"{name}= with private=: a round is then not the sum of clipped updates that "
                    "epsilon is about; leave one of them out."
                )
        epsilon(self.noise_multiplier, fraction, 0, self.delta, clients=clients)

    def combine(
        self, fraction: float, clients: int, generator: torch.Generator
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """`central` for rounds that ask each of the `clients` with probability `fraction`."""
        noise = {"bound": self.bound, "noise_multiplier": self.noise_multiplier}
        drawn = {"sample_rate": fraction, "clients": clients}
        return partial(central, generator=generator, **noise, **drawn)

    def epsilon(self, fraction: float, rounds: int) -> float:
        """The epsilon spent by so many rounds."""
        return epsilon(self.noise_multiplier, fraction, rounds, self.delta)


def poisson(clients: int, sample_rate: float, generator: torch.Generator) -> Tensor:
    """Which of `clients` take part in a round: each with probability `sample_rate`, on its own.

    Returns their numbers in order, (selected,) of int64; possibly none.
    """
    check_counts(0, clients=clients)
    return (torch.rand(clients, generator=generator) < sample_rate).nonzero().flatten()


def clip(updates: Tensor, bound: float) -> Tensor:
    """Each update (..., parameters) shortened to an L2 norm of `bound` where it is longer."""
    _check_bound(bound)
    norms = torch.linalg.vector_norm(updates, dim=-1, keepdim=True, dtype=torch.float64)
    return updates * (bound / norms).clamp(max=1).to(updates.dtype)


def central(
    updates: Tensor,  # (clients who came, parameters)
    weights: Tensor,
    *,
    bound: float,
    noise_multiplier: float,
    sample_rate: float,
    clients: int,
    generator: torch.Generator,
) -> Tensor:
    """The round's update (parameters,): clipped, summed, noised, divided by the expected number.

    `weights` are ignored: a client with much data would move the sum by more than `bound`.
    Call it also in a round to which nobody came: a round without noise would reveal that.
    """
    check_counts(clients=clients)
    total = clip(updates, bound).sum(0)
    total += noise_multiplier * bound * _normal(total, generator)
    return total / (sample_rate * clients)


def local(
    update: Tensor, *, bound: float, noise_multiplier: float, generator: torch.Generator
) -> Tensor:
    """What a client sends who trusts nobody: her update (..., parameters), clipped and noised.

    The mean of n such updates has noise of noise_multiplier * bound / sqrt(n), against
    noise_multiplier * bound / n of `central`. Any two updates differ by 2 S, and she sends in every
    round: her epsilon against the server is `epsilon(noise_multiplier / 2, 1, rounds, delta)`.
    """
    short = clip(update, bound)
    return short + noise_multiplier * bound * _normal(short, generator)


def _check_bound(bound: float) -> None:
    if not 0 < bound < math.inf:
        raise ValueError(f"bound={bound!r} is not a norm: clip to a number above 0.")


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    where = generator.device  # another device's generator would draw other numbers
    noise = torch.randn(like.shape, dtype=like.dtype, device=where, generator=generator)
    return noise.to(like.device)
