"""What rounds of `privacy.central` reveal about one client: the epsilon of a sum with noise.

    rounds x Renyi divergence of one, at each of 151 orders --> a bound each --> the smallest

It needs only numpy, so that a slider has its answer before torch is loaded. Symbols as in
privacy.py. Opacus calls it RDPAccountant.

Source: Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism",
2019, section 3.3.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np

from dlviz.counts import check_counts

Array = np.ndarray

# Other orders change the fourth digit of epsilon; any of them gives a bound.
TENTHS = np.concatenate([np.arange(11, 110), 10 * np.arange(12, 64)])
ORDERS = TENTHS / 10
TERMS = 1000  # of a series
TAIL = -35.0  # below it the normal distribution is its asymptotic series


def epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    conversion: str = "improved",
    *,
    clients: int | None = None,
) -> float:
    """The epsilon after `steps` rounds of `privacy.central` on clients drawn by `privacy.poisson`,
    for `delta`.

    Adding or removing one client changes the probability of any published result by a factor of at
    most exp(epsilon), except with probability `delta`. An upper bound; inf without noise.

    conversion: "classical" is Mironov, "Renyi Differential Privacy", CSF 2017, proposition 3;
    "improved" is Balle et al., "Hypothesis Testing Interpretations and Renyi Differential Privacy",
    AISTATS 2020, theorem 21, which Opacus uses.
    clients: N, where known. Publishing everything of one client drawn at random has an epsilon of 0
    at delta = 1/N, so delta must be smaller.
    Raises ValueError for numbers out of range, and for delta >= 1/clients.

    Cost: a table of 151 orders x 1,000 terms for each new pair of noise and rate, about 20 ms.
    """
    _check(noise_multiplier, sample_rate, steps, delta, clients)
    if conversion not in ("improved", "classical"):
        raise ValueError(f"conversion={conversion!r} is not known: use 'improved' or 'classical'.")
    if steps == 0 or sample_rate == 0:
        return 0.0  # nothing was published
    if noise_multiplier == 0:
        return math.inf
    spent = steps * renyi(float(noise_multiplier), float(sample_rate))  # rounds add up, by order
    if conversion == "classical":
        bounds = spent - math.log(delta) / (ORDERS - 1)
    else:
        slack = math.log(delta) + np.log(ORDERS)
        bounds = spent + np.log1p(-1 / ORDERS) - slack / (ORDERS - 1)
    return max(0.0, float(bounds.min()))


@lru_cache(maxsize=256)
def renyi(noise_multiplier: float, sample_rate: float) -> Array:
    """The Renyi divergence that one round spends, (151,), at each of ORDERS.

    At order a it is log(A) / (a - 1), A the mean of ((1 - q) + q p1/p0)^a under p0, with p0 = N(0,
    sigma^2) the noise alone and p1 = N(1, sigma^2) beside one client. Where the first summand is
    the larger, (1 - q) p0 > q p1, the power is a binomial series in the second; elsewhere, in the
    first. For a whole order the series are finite: one binomial sum.
    """
    sigma, q = noise_multiplier, sample_rate
    if q == 1:
        return ORDERS / (2 * sigma**2)
    i, j, places, choose = _series()
    edge = sigma**2 * (math.log1p(-q) - math.log(q)) + 0.5  # where (1 - q) p0 = q p1
    below = i * math.log(q) + j * math.log1p(-q) + (i**2 - i) / (2 * sigma**2)
    below = below + _log_ndtr((edge - i) / sigma)
    tails = _log_ndtr((_values() - edge) / sigma)[places]
    above = j * math.log(q) + i * math.log1p(-q) + (j**2 - j) / (2 * sigma**2) + tails
    logs = choose + np.logaddexp(below, above)
    sign = 1 - 2 * (np.maximum(i - np.ceil(ORDERS)[:, None], 0) % 2)  # a factor a - k < 0 for k > a
    largest = logs.max(axis=1, keepdims=True)
    terms = sign * np.exp(logs - largest)
    terms[:, -1] /= 2  # the end of an alternating series lies between its last two partial sums
    moment = largest[:, 0] + np.log(terms.sum(axis=1))
    return np.maximum(moment, 0) / (ORDERS - 1)


@cache
def _series() -> tuple[Array, Array, Array, Array]:
    """What does not depend on the noise: i (terms,); j = a - i, its place in `_values` and
    log |a over i| (orders, terms)."""
    i = np.arange(TERMS)
    tenths = TENTHS[:, None] - 10 * i
    places = tenths - tenths.min()
    of_j = np.array([_log_gamma(value + 1) for value in _values().tolist()])[places]
    of_i = np.array([math.lgamma(value + 1) for value in i.tolist()])
    of_a = np.array([math.lgamma(value + 1) for value in ORDERS.tolist()])
    return i.astype(np.float64), tenths / 10, places, of_a[:, None] - of_i - of_j


def _values() -> Array:
    """Every j, in increasing order."""
    return np.arange(TENTHS.min() - 10 * (TERMS - 1), TENTHS.max() + 1) / 10


def _log_gamma(value: float) -> float:
    """log |gamma(value)|; inf at a pole."""
    return math.inf if value <= 0 and value == int(value) else math.lgamma(value)


def _log_ndtr(x: Array) -> Array:
    """The logarithm of the normal distribution function; by its asymptotic series far below 0,
    where the function itself underflows."""
    near = np.clip(x, TAIL, -TAIL)
    half = np.array([math.erfc(value) / 2 for value in (np.abs(near) / math.sqrt(2)).tolist()])
    found = np.where(near < 0, np.log(half), np.log1p(-half))
    far = x < TAIL
    square = 1 / x[far] ** 2
    series = -square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))
    found[far] = -0.5 / square - np.log(-x[far] * math.sqrt(2 * math.pi)) + np.log1p(series)
    return found


def _check(noise: float, rate: float, steps: int, delta: float, clients: int | None) -> None:
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise_multiplier={noise!r} is not a noise level: use 0 or more.")
    if not 0 <= rate <= 1:
        raise ValueError(f"sample_rate={rate!r} is not a probability: use 0 to 1.")
    check_counts(clients=clients)
    check_counts(0, steps=steps)
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} is not a probability between 0 and 1: use, say, 1e-5.")
    if clients is not None and delta >= 1 / clients:
        raise ValueError(
            f"delta={delta:g} is not below 1/{clients}, one over the number of clients: publishing "
            f"one client outright would pass as private. Use less than {1 / clients:g}."
        )
