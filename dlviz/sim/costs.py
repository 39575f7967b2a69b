"""Closed-form costs of collectives in the alpha-beta-gamma model.

A message of n bytes takes alpha + n*beta; adding n received bytes takes n*gamma. Symbols: p
ranks, n bytes of the whole tensor, alpha s, beta s/byte, gamma s/byte. A rank sends and receives
at the same time, one message each way.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Cost = Callable[[int, float, float, float, float], float]


def _reduce_scatter(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * alpha + (p - 1) / p * n * (beta + gamma)


def _all_gather(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * alpha + (p - 1) / p * n * beta


def _ring(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return _reduce_scatter(p, n, alpha, beta, gamma) + _all_gather(p, n, alpha, beta, gamma)


def _parameter_server(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return 2 * (p - 1) * (alpha + n * beta) + (p - 1) * n * gamma


def _broadcast(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * (alpha + n * beta)


def _reduce(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * (alpha + n * (beta + gamma))


def _all_to_all(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * (alpha + n / p * beta)


def _barrier(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * alpha


# The backend's own all_reduce is priced as the ring, its broadcast and reduce as binomial trees.
COSTS: dict[str, Cost] = {
    "ring": _ring,
    "parameter_server": _parameter_server,
    "all_reduce": _ring,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def collective_seconds(
    algorithm: str, ranks: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Seconds that a collective takes on `ranks` ranks.

    `nbytes` is the size of the whole tensor: of an all_gather what each rank ends with, of a
    reduce_scatter and an all_to_all what each begins with. `alpha` in s, `beta` and `gamma` in
    s/byte. ValueError for an algorithm that has no price, for ranks below 1 and for a negative
    size or cost.
    """
    cost = COSTS.get(algorithm)
    if cost is None:
        raise ValueError(
            f"algorithm={algorithm!r} has no cost formula: use one of {', '.join(COSTS)}."
        )
    if ranks < 1:
        raise ValueError(f"ranks={ranks!r} cannot hold a collective: use 1 or more.")
    for name, value in (("nbytes", nbytes), ("alpha", alpha), ("beta", beta), ("gamma", gamma)):
        if not value >= 0 or math.isinf(value):
            raise ValueError(f"{name}={value!r} is no cost: it must be finite and not negative.")
    if ranks == 1:
        return 0.0
    return cost(ranks, nbytes, alpha, beta, gamma)
