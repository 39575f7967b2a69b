"""Which all-reduce is the quickest here: the one that the measured link prices lowest.

A group's link is measured once, by ping-pong between its ranks 0 and 1 (dlviz/cluster/link.py);
rank 0 tells the others what it found, so that all choose alike. Prices that lie closer together
than the fit is off do not tell which is quicker: of these the first of CANDIDATES is taken, the
ring before all others, which only ever sends to a neighbour.

In PyTorch: what NCCL's tuner and gloo's size thresholds decide.
"""

from __future__ import annotations

from functools import lru_cache
from weakref import WeakKeyDictionary

from dlviz.cluster import Comm
from dlviz.cluster.link import LinkCost, measure
from dlviz.sim import collective_seconds

# hierarchical is none of them: one link does not price it.
CANDIDATES = ("ring", "halving_doubling", "butterfly", "tree", "direct", "parameter_server")

_measured: WeakKeyDictionary[Comm, LinkCost] = WeakKeyDictionary()


def choose(comm: Comm, nbytes: int) -> str:
    """The name of the cheapest all-reduce of `nbytes` on this group, as far as the measurement can
    tell. All ranks must call it."""
    if comm.size == 1:
        return CANDIDATES[0]
    return _cheapest(comm.size, nbytes, link_of(comm))


@lru_cache(maxsize=1024)  # pricing takes an eighth of a short all-reduce
def _cheapest(ranks: int, nbytes: int, link: LinkCost) -> str:
    costs = link.alpha, link.beta, link.gamma
    prices = {name: collective_seconds(name, ranks, nbytes, *costs) for name in CANDIDATES}
    no_slower = min(prices.values()) * (1 + link.error)
    return next(name for name, price in prices.items() if price <= no_slower)


def link_of(comm: Comm) -> LinkCost:
    """What `measure` found, once for each group. All ranks must call it."""
    if comm not in _measured:
        _measured[comm] = measure(comm)  # a collective itself: no rank may skip it
    return _measured[comm]
