"""What a linear layer's gradient costs to send as its factors, and where that is less.

The gradient of Y = X Wᵀ over K samples is a sum of K outer products, G = Σ_k g_k x_kᵀ = gᵀ x:

    dense, by a ring    2 (p-1)/p M N elements a rank
    factors             (p-1) K (M + N)             x (K, N) and g (K, M), to each other rank

    W has M rows and N columns; K samples (or tokens) on a rank; p ranks

Every rank then multiplies the rows of all p ranks, p times the gradient's multiplications.

Source: Xie et al., "Lighter-Communication Distributed Machine Learning via Sufficient Factor
Broadcasting", UAI 2016.
"""

from __future__ import annotations

from dlviz.counts import check_counts, closed_form

ITEMSIZE = 4  # bytes of a float32


@closed_form
def factor_bytes(samples: int, rows: int, columns: int, ranks: int) -> int:
    """Bytes that a rank sends so that all `ranks` have the factors, in float32, of its `samples`
    for a weight (rows, columns). Raises ValueError for a size below 1, and samples below 0."""
    check_counts(0, samples=samples)
    check_counts(rows=rows, columns=columns, ranks=ranks)
    return (ranks - 1) * samples * (rows + columns) * ITEMSIZE


@closed_form
def factors_win_below(rows: int, columns: int, ranks: int) -> float:
    """The samples on a rank below which factors are fewer bytes than a ring all-reduce of the
    gradient (rows, columns); 0 for one rank, which sends nothing. Raises ValueError for a size
    below 1."""
    check_counts(rows=rows, columns=columns, ranks=ranks)
    return 2 * rows * columns / (ranks * (rows + columns)) if ranks > 1 else 0.0
