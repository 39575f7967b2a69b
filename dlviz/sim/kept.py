"""Bytes that a Transformer's layer keeps for its backward on each rank, by the published count.

    on t ranks                   bytes of a layer, in s b h
    t = 1                        34 + 5 a s / h
    tensor parallelism           10 + 24 / t + 5 a s / (h t)
    and sequence parallelism     34 / t + 5 a s / (h t)

s tokens, b sequences, h hidden, a heads. Activations have 16 bits, a mask of dropout has 8. The 10
lie between the products, on every rank alike: what two norms take (4), what q, k, v and the MLP
take (4), two masks (2). The 24 are inside: 12 activations. The 5 are the softmax, what its dropout
leaves (2 each), and its mask (1).

Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022, equations 2 to 4.
"""

from __future__ import annotations


def kept_bytes(
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    ranks: int = 1,
    sequence_parallel: bool = False,
    itemsize: int = 2,
) -> float:
    """Bytes that each of `ranks` keeps of one layer's activations, `batch` sequences of `sequence`
    tokens; an activation has `itemsize` bytes, a mask one. Raises ValueError for a size below 1."""
    sizes = {"sequence": sequence, "batch": batch, "hidden": hidden, "heads": heads, "ranks": ranks}
    for name, size in {**sizes, "itemsize": itemsize}.items():
        if size < 1:
            raise ValueError(f"{name}={size!r} makes no layer: use 1 or more.")
    between = 4 * itemsize + 2
    inside = 12 * itemsize + (2 * itemsize + 1) * heads * sequence / hidden
    share = ranks if sequence_parallel else 1
    return sequence * batch * hidden * (between / share + inside / ranks)
