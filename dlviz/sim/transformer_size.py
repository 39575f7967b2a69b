"""How large a Transformer is, and how much a training step of it computes.

    parameters    P = 12 l h² (1 + 13/(12 h) + (V + s)/(12 l h))
    FLOPs         72 B s l h² (1 + s/(6 h) + V/(12 l h))          forward, and twice that backward
    recomputed    96 B s l h² (1 + s/(6 h) + V/(16 l h))          the blocks' forward once more

l layers of h hidden, V tokens in the vocabulary, s positions, B sequences in a batch. The MLP is 4h
wide, with biases; keys and values have as many heads as queries; the output layer is the embedding.
P leaves out the last norm's 2h. A block's 24 B s h² (1 + s/(6h)) FLOPs forward are those of its
products: 8 B s h² for q, k, v and the output, 4 B s² h for the scores and the values, of all pairs
of tokens, 16 B s h² for the MLP. The logits' 2 B s h V are never recomputed.

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, equations 2 and 3 (which has the recomputation).
"""

from __future__ import annotations

from dataclasses import dataclass

from dlviz.counts import closed_form
from dlviz.machine.topology import count


@dataclass(frozen=True)
class TransformerShape:
    """The sizes of a `models.Transformer`. Raises ValueError for sizes that are not whole numbers
    from 1, and for heads that do not divide the hidden size."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence"):
            count("TransformerShape", name, getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))  # numpy's may overflow
        if self.hidden % self.heads:
            raise ValueError(
                f"TransformerShape: heads={self.heads} cannot share hidden={self.hidden}: use a "
                "divisor of it."
            )

    @property
    def parameters(self) -> int:
        return transformer_parameters(self.layers, self.hidden, self.vocabulary, self.sequence)

    def flops(self, batch: int, recompute: bool = False) -> int:
        """FLOPs of a training step on `batch` sequences."""
        sizes = self.layers, self.hidden, self.vocabulary, self.sequence
        return transformer_flops(*sizes, batch, recompute)


@closed_form
def transformer_parameters(layers: int, hidden: int, vocabulary: int, sequence: int) -> int:
    """The parameters of a Transformer, less the last norm's 2 `hidden`. ValueError for a size below
    1."""
    _check(layers=layers, hidden=hidden, vocabulary=vocabulary, sequence=sequence)
    return layers * hidden * (12 * hidden + 13) + (vocabulary + sequence) * hidden


@closed_form
def transformer_flops(
    layers: int, hidden: int, vocabulary: int, sequence: int, batch: int, recompute: bool = False
) -> int:
    """FLOPs of a training step on `batch` sequences; with `recompute` the blocks' forward is
    computed twice. ValueError for a size below 1."""
    _check(layers=layers, hidden=hidden, vocabulary=vocabulary, sequence=sequence, batch=batch)
    blocks = layers * sum(block_flops(hidden, sequence, batch))
    return (4 if recompute else 3) * blocks + 3 * logits_flops(hidden, vocabulary, sequence, batch)


def block_flops(hidden: int, sequence: int, batch: int) -> tuple[int, int]:
    """FLOPs of a block's forward: of its six matrices, and of scores and values."""
    tokens = batch * sequence
    return 24 * tokens * hidden**2, 4 * tokens * sequence * hidden


def logits_flops(hidden: int, vocabulary: int, sequence: int, batch: int) -> int:
    """FLOPs of the output layer's forward."""
    return 2 * batch * sequence * hidden * vocabulary


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        count("a Transformer", name, size)
