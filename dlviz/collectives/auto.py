"""Which all-reduce is the fastest here: the cheapest one on the measured link.

A group's link is measured once, by ping-pong between its ranks 0 and 1 (cluster/measure/link.py);
rank 0 broadcasts the result, so that all choose the same. Prices that differ by less than the
fit's error do not decide: among these the first of CANDIDATES is taken, the ring before all others,
since it only sends to neighbours.

On several hosts there are two links, one inside a host and one out of it, which its ranks share
(cluster/measure/network.py). The closed forms assume a single unshared link: here each algorithm,
also the hierarchical one, is simulated on both instead (`dlviz.sim.collective`). Where hosts have
unequal numbers of ranks, the link between them prices all algorithms but the hierarchical one.

In PyTorch: what NCCL's tuner and gloo's size thresholds decide.
"""

from __future__ import annotations

from functools import lru_cache
from weakref import WeakKeyDictionary

from dlviz.cluster import Comm, LinkCost, NetworkCost, link_cost, network_cost
from dlviz.sim import collective, collective_seconds

# Without hierarchical, which one link cannot price.
CANDIDATES = ("ring", "halving_doubling", "butterfly", "tree", "direct", "parameter_server")

_measured: WeakKeyDictionary[Comm, LinkCost | NetworkCost] = WeakKeyDictionary()


def choose(comm: Comm, nbytes: int) -> str:
    """The name of the cheapest all-reduce of `nbytes` on this group, within the measurement's
    error. All ranks must call it."""
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
    """The seconds of each algorithm, in order of preference, and the relative error of the
    measurement."""
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
    """The link as measured once for each group, or both links on several hosts. All ranks must call
    it."""
    if comm not in _measured:
        several = len(comm.hosts) > 1
        _measured[comm] = network_cost(comm) if several else link_cost(comm)  # a collective itself
    return _measured[comm]
