"""The Transformer of `models`, each of its layers cut over the ranks of a tensor-parallel axis.

    x (B, s, h)          norm1   attention   drop   (+)   norm2   mlp   drop   (+)    on every rank
    saved whole          all of it, except inside attention and mlp

    sequence_parallel    norm1   f   attention   g   drop ...
    x (B, s/n, h)        |tokens cut|            |tokens cut|        each rank has its tokens of it

A block takes one all-reduce in attention and one in the MLP, per direction. The embedding takes one
forward, the output layer one backward: 2l + 1 per direction for l blocks, and three small ones for
the loss. With sequence parallelism an all-gather and a reduce-scatter replace each, and norms,
dropouts and sums, otherwise computed and saved n times, are shared.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3; V. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022. In PyTorch: `parallelize_module` with
ColwiseParallel, RowwiseParallel and SequenceParallel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, rehearsed
from dlviz.counts import check_counts
from dlviz.models import Transformer, seed_layers, token_loss
from dlviz.models.dropout import WHOLE, Dropout
from dlviz.models.transformer import SmallEmbedding, check_length
from dlviz.parallel.step.prices import Products
from dlviz.parallel.tensor.attention import ParallelAttention
from dlviz.parallel.tensor.checks import check_divides
from dlviz.parallel.tensor.embedding import VocabularyParallelEmbedding
from dlviz.parallel.tensor.linear import ShardedLinear
from dlviz.parallel.tensor.mlp import ParallelMLP
from dlviz.parallel.tensor.parameters import load_whole


class ParallelTransformer(nn.Module):
    """`models.Transformer` with these sizes, of which a rank of `comm`, the tensor-parallel axis,
    draws and holds only its shards: those of the parameters of `Transformer` with the same `seed`.

    Takes tokens (B, s) of int64, the same on all ranks, and gives this rank's logits (B, s, V/n),
    for `parallel_cross_entropy`. With `sequence_parallel` the activations between the cut layers
    are cut along s: call `add_partial_gradients` after backward. Dropout drops the same cells as
    the plain model's. `all_reduce` is one of `collectives.ALGORITHMS` or "backend".

    Raises ValueError for sizes that n does not divide.
    """

    def __init__(
        self,
        comm: Comm,
        layers: int,
        hidden: int,
        heads: int,
        vocabulary: int,
        sequence: int,
        kv_heads: int | None = None,
        dropout: float = 0.0,
        seed: int = 0,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__()
        check_counts(layers=layers, hidden=hidden, sequence=sequence, kv_heads=kv_heads)
        how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
        self.comm, self.sequence, self.sequence_parallel = comm, sequence, sequence_parallel
        self.tokens = VocabularyParallelEmbedding(comm, vocabulary, hidden, **how)
        self.positions = SmallEmbedding(sequence, hidden)
        self.drop = Dropout(dropout, seed, 0)
        self.blocks = nn.ModuleList(
            ParallelBlock(comm, hidden, heads, kv_heads or heads, dropout, seed, number, **how)
            for number in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        for name, module in self.named_modules():
            if isinstance(module, ShardedLinear):
                module.name = name
        seed_layers(self, seed)  # layer by layer: a rank never holds two whole ones

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take this rank's part of the state of a plain `Transformer` of the same sizes."""
        load_whole(self.comm, self, state)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)  # (B, s, h) or (B, s/n, h)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)  # (B, s, V/n)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The first block's input: (B, s) -> (B, s, h), or of this rank's tokens (B, s/n, h)."""
        return embedded(self, tokens)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """The logits of the next tokens, from the last block's output: (B, s, V/n)."""
        return self.tokens.logits(self.norm(x))


class ParallelBlock(nn.Module):
    """`models.transformer.Block` on several ranks: (B, s, h) -> (B, s, h), or for this rank's
    tokens (B, s/n, h) -> (B, s/n, h).

    Cost: two all-reduces of (B, s, h) per direction, or two all-gathers and reduce-scatters.
    """

    def __init__(
        self,
        comm: Comm,
        hidden: int,
        heads: int,
        kv_heads: int,
        dropout: float,
        seed: int,
        number: int,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__()
        how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
        first = 1 + 3 * number  # as in the plain block
        drop = Dropout(dropout, seed, first)
        self.comm, self.sequence_parallel = comm, sequence_parallel
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = ParallelAttention(comm, hidden, heads, kv_heads, drop=drop, **how)
        self.drop1 = Dropout(dropout, seed, first + 1)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = ParallelMLP(comm, hidden, 4 * hidden, **how)
        self.drop2 = Dropout(dropout, seed, first + 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = {1: self.comm.rank * x.shape[1]} if self.sequence_parallel else WHOLE
        x = x + self.drop1(self.attention(self.norm1(x)), start)
        return x + self.drop2(self.mlp(self.norm2(x)), start)


def embedded(net: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The first block's input of tokens (B, s), by the `tokens`, `positions` and `drop` of
    `net`."""
    check_length(tokens, net.sequence)
    mine = own_tokens(net.comm, tokens.shape[1], net.sequence_parallel)
    places = torch.arange(mine.start, mine.stop, device=tokens.device)
    return net.drop(net.tokens(tokens) + net.positions(places), {1: mine.start})


def own_tokens(comm: Comm, sequence: int, sequence_parallel: bool) -> slice:
    """The tokens of a sequence that this rank has between the cut layers."""
    if not sequence_parallel:
        return slice(0, sequence)
    check_divides("sequence", sequence, comm.size, "tokens")
    return slice(comm.rank * sequence // comm.size, (comm.rank + 1) * sequence // comm.size)


@rehearsed
def _rehearsal(comm: Comm) -> None:
    """The first lookup, softmax and GELU, and their backwards, take a tenth of a second."""
    net, tokens = Transformer(1, 4, 1, 4, 2), torch.ones(1, 2, dtype=torch.int64)
    with Products():
        loss = token_loss(net(tokens), tokens)
    loss.backward()
