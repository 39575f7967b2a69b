"""Differential privacy of a whole client: a round whose result hardly depends on any one of them.

    update of client k  --clip to S-->  |
    update of client l  --clip to S-->  |--> sum + N(0, (sigma S)^2) --> / (q N) --> new weights
    (m was not drawn: nothing)          |

    N  clients there are            q  sample_rate: each takes part in a round with probability q
    S  bound, of an update's norm   sigma  noise_multiplier: the noise on the *sum*, in units of S

Without client k the sum moves by S at most, whatever her data: that is why all count the same, why
the divisor is the number of clients expected, q N, and not of those who came (which would tell
whether she did), and why the noise does not shrink when more come. Whoever draws the clients in any
other way than `poisson` has no right to the epsilon below.

Source: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018,
algorithm 1. What Opacus has, DPOptimizer and RDPAccountant, does the same with one example as the
unit instead of one client.

It does not protect from the server, which sees each update before the noise: `local` or secure
aggregation does. Nor does it hide what most clients have in common, nor, with the noise of floating
point and a seed that is written down, withstand one who studies the noise itself (Mironov, CCS
2012).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

Tensor = torch.Tensor

# Other orders give another fourth digit of epsilon; it is a bound with any of them.
ORDERS = torch.cat([torch.arange(11, 110).double() / 10, torch.arange(12, 64).double()])
TERMS = 1000  # of a series


def poisson(clients: int, sample_rate: float, generator: torch.Generator) -> Tensor:
    """Which of `clients` take part in a round: each with probability `sample_rate`, on its own.

    Returns their numbers in order, (selected,) of int64; there may be none.
    """
    return (torch.rand(clients, generator=generator) < sample_rate).nonzero().flatten()


def clip(updates: Tensor, bound: float) -> Tensor:
    """Each update (..., parameters) shortened to an L2 norm of `bound` where it is longer."""
    if not bound > 0:
        raise ValueError(f"bound={bound!r} is no norm: clip to a number above 0.")
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
    """The round's update (parameters,): clipped, summed, noised once, divided by those expected.

    `weights` are not looked at: a client with much data would move the sum by more than `bound`.
    Call it in a round to which nobody came as well: no noise would say that nobody did.
    """
    total = clip(updates, bound).sum(0)
    total += noise_multiplier * bound * _normal(total, generator)
    return total / (sample_rate * clients)


def local(
    update: Tensor, *, bound: float, noise_multiplier: float, generator: torch.Generator
) -> Tensor:
    """What a client sends who trusts nobody: her update (..., parameters), clipped and noised.

    The mean of n such updates bears noise of noise_multiplier * bound / sqrt(n), against
    noise_multiplier * bound / n of `central`. Any two updates differ by 2 S, and she sends in every
    round: her epsilon against the server is `epsilon(noise_multiplier / 2, 1, rounds, delta)`.
    """
    short = clip(update, bound)
    return short + noise_multiplier * bound * _normal(short, generator)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    conversion: str = "improved",
    *,
    clients: int | None = None,
) -> float:
    """The epsilon after `steps` rounds of `central` on clients drawn by `poisson`, for `delta`.

    With or without any one client, the probability of whatever may be published changes by a factor
    of exp(epsilon) at most, but for a probability of `delta`. An upper bound; inf without noise.

    conversion: "classical" is Mironov, "Renyi Differential Privacy", CSF 2017, proposition 3;
    "improved" is Balle et al., "Hypothesis Testing Interpretations and Renyi Differential Privacy",
    AISTATS 2020, theorem 21, and is what Opacus takes.
    clients: N, where it is known. Publishing everything of one client drawn at random has an
    epsilon of 0 at delta = 1/N, so that delta must be smaller.
    Raises ValueError for numbers out of range, and for delta >= 1/clients.

    Cost: a table of 151 orders x 1,000 terms for each new pair of noise and rate, about 30 ms.
    """
    _check(noise_multiplier, sample_rate, steps, delta, clients)
    if conversion not in ("improved", "classical"):
        raise ValueError(f"conversion={conversion!r} is not known: use 'improved' or 'classical'.")
    if steps == 0 or sample_rate == 0:
        return 0.0  # nothing was published of anybody
    if noise_multiplier == 0:
        return math.inf
    spent = steps * renyi(float(noise_multiplier), float(sample_rate))  # rounds add up, by order
    if conversion == "classical":
        bounds = spent - math.log(delta) / (ORDERS - 1)
    else:
        slack = math.log(delta) + ORDERS.log()
        bounds = spent + torch.log1p(-1 / ORDERS) - slack / (ORDERS - 1)
    return max(0.0, bounds.min().item())


@lru_cache(maxsize=256)
def renyi(noise_multiplier: float, sample_rate: float) -> Tensor:
    """The Renyi divergence that one round spends, (151,) of float64, at each of ORDERS.

    At order a it is log(A) / (a - 1), A the mean of ((1 - q) + q p1/p0)^a under p0, with p0 = N(0,
    sigma^2) the noise alone and p1 = N(1, sigma^2) beside one client. Where the first summand is
    the larger, (1 - q) p0 > q p1, the power is a binomial series in the second; elsewhere the other
    way round. Of a whole order the series end and are one binomial sum.

    Source: Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled Gaussian
    Mechanism", 2019, section 3.3.
    """
    sigma, q = noise_multiplier, sample_rate
    if q == 1:
        return ORDERS / (2 * sigma**2)
    a = ORDERS[:, None]  # (orders, 1)
    i = torch.arange(TERMS).double()
    j = a - i  # (orders, terms)
    edge = sigma**2 * (math.log1p(-q) - math.log(q)) + 0.5  # where (1 - q) p0 = q p1
    below = i * math.log(q) + j * math.log1p(-q) + (i**2 - i) / (2 * sigma**2)
    below = below + torch.special.log_ndtr((edge - i) / sigma)
    above = j * math.log(q) + i * math.log1p(-q) + (j**2 - j) / (2 * sigma**2)
    above = above + torch.special.log_ndtr((j - edge) / sigma)
    choose = torch.lgamma(a + 1) - torch.lgamma(i + 1) - torch.lgamma(j + 1)  # log |a over i|
    logs = choose + torch.logaddexp(below, above)
    sign = 1 - 2 * ((i - a.ceil()).clamp(min=0) % 2)  # each factor a - k with k > a is negative
    largest = logs.amax(1, keepdim=True)
    terms = sign * (logs - largest).exp()
    terms[:, -1] /= 2  # the end of an alternating series lies between its last two partial sums
    moment = largest.squeeze(1) + terms.sum(1).log()
    return moment.clamp(min=0) / (ORDERS - 1)


def _check(noise: float, rate: float, steps: int, delta: float, clients: int | None) -> None:
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise_multiplier={noise!r} is no noise: use a number of 0 or more.")
    if not 0 <= rate <= 1:
        raise ValueError(f"sample_rate={rate!r} is no probability: use 0 to 1.")
    if not (steps >= 0 and steps == int(steps)):
        raise ValueError(f"steps={steps!r} is no number of rounds: use a whole number, 0 or more.")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} is no probability between 0 and 1: use 1e-5, say.")
    if clients is not None and delta >= 1 / clients:
        raise ValueError(
            f"delta={delta:g} is not below 1/{clients}, one over the number of clients: publishing "
            f"one client outright would pass as private. Use less than {1 / clients:g}."
        )
