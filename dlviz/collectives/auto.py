"""Which all-reduce is the quickest here: the one that the measured link prices lowest.

A group's link is measured once, by ping-pong between its ranks 0 and 1 (cluster/measure/link.py);
rank 0 tells the others what it found, so that all choose alike. Prices that lie closer together
than the fit is off do not tell which is quicker: of these the first of CANDIDATES is taken, the
ring before all others, which only ever sends to a neighbour.

On several hosts there are two links, one inside a host and one out of it, which its ranks share
(cluster/measure/network.py). The closed forms know one link, shared by nobody: there each algorithm
is played on the two instead (`dlviz.sim.collective`), and the hierarchical one is among them. Where
hosts have not as many ranks each, the link between them prices all, and it is not.

In PyTorch: what NCCL's tuner and gloo's size thresholds decide.
"""

from __future__ import annotations

from functools import lru_cache
from weakref import WeakKeyDictionary

from dlviz.cluster import Comm, LinkCost, NetworkCost, link_cost, network_cost
from dlviz.sim import collective, collective_seconds

# hierarchical is none of them: one link does not price it.
CANDIDATES = ("ring", "halving_doubling", "butterfly", "tree", "direct", "parameter_server")

_measured: WeakKeyDictionary[Comm, LinkCost | NetworkCost] = WeakKeyDictionary()


def choose(comm: Comm, nbytes: int) -> str:
    """The name of the cheapest all-reduce of `nbytes` on this group, as far as the measurement can
    tell. All ranks must call it."""
    if comm.size == 1:
        return CANDIDATES[0]
    return _cheapest(comm.size, nbytes, link_of(comm))


@lru_cache(maxsize=1024)  # pricing takes an eighth of a short all-reduce
def _cheapest(ranks: int, nbytes: int, measured: LinkCost | NetworkCost) -> str:
    prices, error = _prices(ranks, nbytes, measured)
    no_slower = min(prices.values()) * (1 + error)
    return next(name for name, price in prices.items() if price <= no_slower)


def _prices(
    ranks: int, nbytes: int, measured: LinkCost | NetworkCost
) -> tuple[dict[str, float], float]:
    """What each costs (s), the first of those that cost the same first, and by how much of it the
    measurement is off."""
    if isinstance(measured, NetworkCost):
        if measured.ranks is not None:
            return _played(ranks, nbytes, measured)
        measured = measured.between
    costs = measured.alpha, measured.beta, measured.gamma
    prices = {name: collective_seconds(name, ranks, nbytes, *costs) for name in CANDIDATES}
    return prices, measured.error


def _played(ranks: int, nbytes: int, network: NetworkCost) -> tuple[dict[str, float], float]:
    prices = {}
    for name in ("hierarchical", *CANDIDATES):  # it sends least between hosts
        prices[name] = max(collective(name, ranks, nbytes, network.machine).spans.end, default=0.0)
    return prices, max(network.inside.error, network.between.error)


def link_of(comm: Comm) -> LinkCost | NetworkCost:
    """What was measured, once for each group: the link, or on several hosts both. All ranks must
    call it."""
    if comm not in _measured:
        several = len(comm.hosts) > 1
        _measured[comm] = network_cost(comm) if several else link_cost(comm)  # a collective itself
    return _measured[comm]
