"""Closed-form costs of collectives in the alpha-beta-gamma model.

A message of n bytes takes alpha + n*beta; adding n received bytes takes n*gamma. Symbols: p
ranks, n bytes of the whole tensor, alpha s, beta s/byte, gamma s/byte; p' is the largest power of
two not above p, lg the logarithm to base 2. A rank sends one message
and receives one at the same time.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dlviz.counts import check_amounts, check_counts, check_per_byte, closed_form
from dlviz.machine import Topology

Cost = Callable[[int, float, float, float, float], float]


def _reduce_scatter(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * alpha + (p - 1) / p * n * (beta + gamma)


def _all_gather(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * alpha + (p - 1) / p * n * beta


def _ring(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return _reduce_scatter(p, n, alpha, beta, gamma) + _all_gather(p, n, alpha, beta, gamma)


def _parameter_server(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return 2 * (p - 1) * (alpha + n * beta) + (p - 1) * n * gamma


def _tree(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return _reduce(p, n, alpha, beta, gamma) + _broadcast(p, n, alpha, beta, gamma)


def _butterfly(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    fold = _fold(p, n, alpha, beta, gamma)
    return fold + _lg(p) * (alpha + n * (beta + gamma))


def _halving_doubling(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    """Off powers of two (2 lg p' + 2) alpha + (2(p'-1)/p' + 2) n beta + (1 + (p'-1)/p') n gamma.

    The comment in MPICH's source has p in place of p' in the fractions, an upper bound:
    (2 floor(lg p) + 2) alpha + (2(p-1)/p + 2) n beta + (1 + (p-1)/p) n gamma.
    """
    part = 1 - 1 / (1 << _lg(p))
    fold = _fold(p, n, alpha, beta, gamma)
    return fold + 2 * _lg(p) * alpha + part * n * (2 * beta + gamma)


def _fold(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    """The cost of the ranks above a power of two: a message that is added, and one back."""
    return 0.0 if p == 1 << _lg(p) else 2 * (alpha + n * beta) + n * gamma


def _direct(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * (alpha + n * (beta + gamma))


def _broadcast(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * (alpha + n * beta)


def _reduce(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * (alpha + n * (beta + gamma))


def _gather(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * alpha + (p - 1) / p * n * beta


def _all_to_all(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * (alpha + n / p * beta)


def _barrier(p: int, n: float, alpha: float, beta: float, gamma: float) -> float:
    return math.ceil(math.log2(p)) * alpha


def _lg(p: int) -> int:
    """lg p'."""
    return p.bit_length() - 1


# The backend's own all_reduce is priced as the ring, its broadcast and reduce as binomial trees.
COSTS: dict[str, Cost] = {
    "ring": _ring,
    "parameter_server": _parameter_server,
    "tree": _tree,
    "butterfly": _butterfly,
    "halving_doubling": _halving_doubling,
    "direct": _direct,
    "all_reduce": _ring,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _gather,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


@closed_form
def collective_seconds(
    algorithm: str,
    ranks: int,
    nbytes: float,
    alpha: float | Topology,
    beta: float = 0.0,
    gamma: float = 0.0,
) -> float:
    """Seconds that a collective takes on `ranks` ranks.

    `nbytes` is the size of the whole tensor: of an all_gather what each rank ends with, of a
    reduce_scatter and an all_to_all what each begins with. `alpha` in s, `beta` and `gamma` in
    s/byte; for `hierarchical` a Topology of as many ranks replaces alpha and beta, and its nodes
    are the algorithm's. Numbers may be arrays: they are broadcast, and so are the seconds.
    ValueError for an algorithm without a formula, ranks below 1, a negative size or cost, a `beta`
    or `gamma` above 1000 (as a bandwidth is), and a Topology that is missing or out of place.
    """
    check_counts(ranks=ranks)
    check_amounts(nbytes=nbytes)
    check_per_byte(beta=beta, gamma=gamma)
    if algorithm == "hierarchical":
        return _hierarchical(ranks, nbytes, alpha, gamma)
    cost = COSTS.get(algorithm)
    if cost is None:
        known = ", ".join([*COSTS, "hierarchical"])
        raise ValueError(f"algorithm={algorithm!r} has no cost formula: use one of {known}.")
    if isinstance(alpha, Topology):
        raise ValueError(
            f"alpha={alpha!r} prices only 'hierarchical': give {algorithm!r} the alpha and beta "
            "of one link."
        )
    check_amounts(alpha=alpha)
    if ranks == 1:
        return 0.0
    return cost(ranks, nbytes, alpha, beta, gamma)


def _hierarchical(p: int, n: float, topology: object, gamma: float) -> float:
    """The phases one after the other, on m nodes of which the smallest has s ranks:

    - rings inside a node: 2(s-1) alpha + (s-1)/s n (2 beta + gamma)
    - s rings across, alpha' and beta' those of the slowest link, which they share: it carries n/m
      bytes in each direction in each step: 2(m-1) alpha' + (m-1)/m n (2 beta' + gamma/s)
    - where a rank of a larger node takes in t others: t (2 alpha + 2 n beta + n gamma)

    Exact for nodes of one rank and for a single node. Where s rings share a link they take turns on
    it, and the ranks of a node neither begin nor end a phase together: played, it took 0.73 to 1.16
    times this on 1 to 5 nodes of up to 6 ranks.
    """
    if not isinstance(topology, Topology) or topology.ranks != p:
        raise ValueError(
            f"alpha={topology!r} does not price 'hierarchical' on {p} ranks: give a Topology of "
            f"{p} ranks in place of alpha and beta."
        )
    size = p if topology.kind == "ring" else min(topology.sizes[0], p)
    m = -(-p // size)
    s = p - (m - 1) * size
    inside, *levels = topology.levels
    alpha, beta = inside.latency, 1 / inside.bandwidth
    total = 2 * (s - 1) * alpha + (s - 1) / s * n * (2 * beta + gamma)
    if m > 1:
        across = max(link.latency for link in levels)
        slowest = 1 / min(link.bandwidth for link in topology.levels)
        total += 2 * (m - 1) * across + (m - 1) / m * n * (2 * slowest + gamma / s)
    taken_in = -(-(size - s) // s)
    return total + taken_in * (2 * (alpha + n * beta) + n * gamma)
