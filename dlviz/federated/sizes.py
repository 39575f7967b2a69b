"""How many examples of each label every client gets, in shares drawn from a Dirichlet distribution.

numpy only: the sizes can be shown before torch is loaded. `partition.dirichlet` deals examples out
by them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlviz.counts import check_counts


def dirichlet_sizes(counts: Sequence[int], clients: int, alpha: float, seed: int = 0) -> np.ndarray:
    """(labels, clients) of int64: each row adds up to the label's examples in `counts`. Raises
    ValueError where `alpha` is not above 0."""
    check_counts(clients=clients)
    if not (isinstance(alpha, int | float) and 0 < alpha < float("inf")):
        raise ValueError(f"alpha={alpha!r} is not a Dirichlet concentration: use a number above 0.")
    drawn = np.random.default_rng(seed)
    rows = []
    for count in counts:
        shares = drawn.dirichlet([alpha] * clients)
        cuts = (shares.cumsum()[:-1] * count).round().astype(np.int64)
        rows.append(np.diff(cuts, prepend=0, append=count))
    return np.stack(rows)
