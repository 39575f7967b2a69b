"""How to combine updates of which some are false.

    updates   -3   1   1   2  90        mean 18.2   median 1   trimmed mean (1 a side) 4/3
               |   |___|___|   |
              cut  what is left cut     krum 1: the one whose neighbours are nearest

Each takes updates (clients, parameters) and weights (clients,), and returns the one update
(parameters,) that the server applies; `functools.partial` fixes its other arguments. Updates are
w_k - w, weights are numbers of examples, n_k. All but `mean` and `norm_bounded` count every client
once, since a client could lie about the number of its examples.

Source: Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, definitions 1 and 2 (median,
trimmed mean); Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017, sections 4 and 6
(Krum, Multi-Krum); Sun et al., "Can You Really Backdoor Federated Learning?", 2019 (bounding).
Flower's names: FedMedian, FedTrimmedAvg, Krum, MultiKrum.

None protects against more attackers than its argument says, against sybils (one attacker posing as
many clients), or against small steps in one direction over many rounds. Where the clients' data
differ, an honest client that is alone with its labels looks like an attacker, and is cut as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from dlviz.counts import check_counts
from dlviz.federated.privacy import clip

Tensor = torch.Tensor


def mean(updates: Tensor, weights: Tensor) -> Tensor:
    """The mean, weighted: federated averaging. One client moves it anywhere."""
    _check(updates, weights)
    shares = weights.to(updates.dtype) / weights.sum()  # (clients,)
    return shares @ updates


def median(updates: Tensor, weights: Tensor) -> Tensor:
    """The median of each parameter; of an even number of clients the mean of the middle two. It
    lies among the honest values as long as they are more than half.

    Cost: sorts n values for each parameter.
    """
    _check(updates, weights)
    ordered, n = updates.sort(0).values, len(updates)  # each parameter by itself
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2  # of odd n the same one twice


def trimmed_mean(updates: Tensor, weights: Tensor, *, attackers: int) -> Tensor:
    """For each parameter, the mean without the `attackers` smallest and the `attackers` largest
    values.

    Raises ValueError where none are left. Cost: sorts n values for each parameter.
    """
    _check(updates, weights)
    n = len(updates)
    _check_attackers("trimmed_mean", n, attackers, (n - 1) // 2, "2f + 1")
    # What is left lies between honest values, whoever sent it.
    return updates.sort(0).values[attackers : n - attackers].mean(0)


def krum(updates: Tensor, weights: Tensor, *, attackers: int) -> Tensor:
    """The one update that has its n - f - 2 nearest neighbours nearest, f `attackers`; of equal
    ones the first.

    Raises ValueError for fewer than 2f + 3 clients. Cost: n(n-1)/2 distances.
    """
    return updates[nearest(updates, weights, attackers=attackers)].clone()


def nearest(updates: Tensor, weights: Tensor, *, attackers: int) -> int:
    """The row of the update that `krum` takes. Raises ValueError as it does."""
    return int(_order(updates, weights, attackers, "krum")[0])


def multi_krum(updates: Tensor, weights: Tensor, *, attackers: int) -> Tensor:
    """The mean of the n - f - 2 updates with the best Krum scores: less noise than one alone.

    Raises ValueError for fewer than 2f + 3 clients. Cost: n(n-1)/2 distances.
    """
    chosen = _order(updates, weights, attackers, "multi_krum")[: len(updates) - attackers - 2]
    return updates[chosen.sort().values].mean(0)


def norm_bounded(updates: Tensor, weights: Tensor, *, bound: float) -> Tensor:
    """The weighted mean of the updates, each shortened to an L2 norm of `bound` where it is longer.

    An attacker still moves it, by its share of the weights times 2 `bound` at most.
    """
    return mean(clip(updates, bound), weights)


def rules(attackers: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Four rules by name, those with an argument for so many `attackers`."""
    check_counts(0, attackers=attackers)
    return {
        "mean": mean,
        "median": median,
        "trimmed mean": partial(trimmed_mean, attackers=attackers),
        "Krum": partial(krum, attackers=attackers),
    }


def _order(updates: Tensor, weights: Tensor, attackers: int, name: str) -> Tensor:
    """The clients, best score first: a score is the sum of the squared distances to the n - f - 2
    nearest others."""
    _check(updates, weights)
    n = len(updates)
    _check_attackers(name, n, attackers, (n - 3) // 2, "2f + 3")
    # By a² + b² - 2ab the distance of near updates would drown in rounding.
    distances = torch.cdist(updates, updates, compute_mode="donot_use_mm_for_euclid_dist")
    squares = distances.square().fill_diagonal_(torch.inf)  # (clients, clients)
    return squares.sort(1).values[:, : n - attackers - 2].sum(1).argsort(stable=True)


def _check_attackers(name: str, clients: int, attackers: int, most: int, law: str) -> None:
    check_counts(0, attackers=attackers)
    if attackers > most:
        can = f"tolerate {most} at most" if most >= 0 else "are too few even without any"
        raise ValueError(
            f"{name} with attackers={attackers} needs {law} clients; {clients} came, which "
            f"{can}: expect fewer attackers or select more clients."
        )


def _check(updates: Tensor, weights: Tensor) -> None:
    if updates.dim() != 2 or weights.shape != updates.shape[:1] or not len(updates):
        raise ValueError(
            f"updates of shape {tuple(updates.shape)} and weights of {tuple(weights.shape)} do not "
            "fit: give one row and one weight for each client, and one client at least."
        )
    if bad := (~updates.isfinite().all(1)).nonzero().flatten().tolist():
        raise ValueError(
            f"the updates in rows {bad} hold NaN or Inf: leave these clients out of the round."
        )
    if not (weights >= 0).all() or not 0 < float(weights.sum()) < torch.inf:
        raise ValueError(
            f"weights={weights.tolist()} are not numbers of examples: use 0 or more, not all 0."
        )
