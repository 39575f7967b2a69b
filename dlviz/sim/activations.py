"""The activations that a Transformer's block saves for the backward, in closed form.

    one rank                    s b h (34 + 5 a s/h)                     s tokens, b sequences,
    t ranks                     s b h (10 + 24/t + 5 a s/(h t))          h hidden, a heads,
    t, sequence parallelism     s b h (34 + 5 a s/h) / t                 t ranks: tensor parallelism

The formulas count bytes of 16-bit values; a dropout's mask takes a byte a cell. Tensor parallelism
leaves 10 s b h whole on every rank: what the norms, the first layers of attention and MLP, and the
dropouts after them save. Sequence parallelism cuts these too, along the tokens.

What the backward recomputes need not be saved: with selective recomputation the scores of the
attention (the term 5 a s/h), with full recomputation everything but a block's input (2 s b h).

Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
MLSys 2023, equations 1, 2 and 4, item by item.
"""

from __future__ import annotations

from dlviz.counts import check_counts, closed_form, of_numbers

RECOMPUTE = ("none", "selective", "full")

# layer: sbh values, as²b values, bytes of masks in sbh and in as²b; whole without sequence
# parallelism
_ITEMS = {
    "norm1": (1, 0, 0, 0, True),  # its input
    "attention.q": (1, 0, 0, 0, True),  # its input, which is that of k and v
    "attention": (3, 2, 0, 0, False),  # q, k, v; the softmax, before and after dropout
    "attention.drop": (0, 0, 0, 1, False),
    "attention.output": (1, 0, 0, 0, False),
    "drop1": (0, 0, 1, 0, True),
    "norm2": (1, 0, 0, 0, True),
    "mlp.up": (1, 0, 0, 0, True),
    "mlp": (4, 0, 0, 0, False),  # the input of GELU
    "mlp.down": (4, 0, 0, 0, False),
    "drop2": (0, 0, 1, 0, True),
}


@of_numbers
def saved_activations(
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    ranks: int = 1,
    sequence_parallel: bool = False,
    itemsize: int = 2,
) -> dict[str, float]:
    """Bytes that each layer of a block (`models.transformer.Block`) saves on each of `ranks` ranks,
    in values of `itemsize` bytes: for 2 their sum is the formula. Raises ValueError for sizes below
    1."""
    sizes = {"sequence": sequence, "batch": batch, "hidden": hidden, "heads": heads}
    check_counts(**sizes, ranks=ranks, itemsize=itemsize)
    sbh, ssab = sequence * batch * hidden, heads * sequence**2 * batch
    found = {}
    for layer, (values, square_values, mask, square_mask, whole) in _ITEMS.items():
        nbytes = (values * sbh + square_values * ssab) * itemsize + mask * sbh + square_mask * ssab
        found[layer] = nbytes / (1 if whole and not sequence_parallel else ranks)
    return found


@closed_form
def activation_bytes(
    layers: int,
    hidden: int,
    heads: int,
    sequence: int,
    batch: int,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    itemsize: int = 2,
) -> float:
    """Bytes that `layers` blocks save on each of `tensor` ranks for one microbatch of `batch`
    sequences; `recompute` is one of RECOMPUTE.

    Raises ValueError for sizes below 1, and for another `recompute`."""
    if recompute not in RECOMPUTE:
        raise ValueError(
            f"recompute={recompute!r} is not known: use {', '.join(map(repr, RECOMPUTE))}."
        )
    check_counts(layers=layers, tensor=tensor)
    size = (sequence, batch, hidden, heads, tensor, sequence_parallel, itemsize)
    if recompute == "full":
        check_counts(sequence=sequence, batch=batch, hidden=hidden, ranks=tensor, itemsize=itemsize)
        inputs = sequence * batch * hidden * itemsize
        return layers * inputs / (tensor if sequence_parallel else 1)
    saved = sum(saved_activations(*size).values())
    if recompute == "selective":
        squares, masks = (sum(item[at] for item in _ITEMS.values()) for at in (1, 3))
        again = heads * sequence**2 * batch * (squares * itemsize + masks) / tensor
        return layers * (saved - again)
    return layers * saved
