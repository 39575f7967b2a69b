"""The vocabulary-parallel embedding: each rank has the vectors of its tokens.

    tokens (B, s)      3 0 2      rank 0 has the vectors of 0 and 1, rank 1 those of 2 and 3
    rank 0             0 e 0      another rank's token is looked up as zeros
    rank 1             e 0 e
    g: all-reduce      e e e      (B, s, h), the same on all ranks

The tied output layer has the same weight, (V, h) in torch's layout, cut by rows: column-parallel. A
rank has the logits of its tokens, and no rank those of all (`parallel_cross_entropy`).

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3. In PyTorch: RowwiseParallel of an
nn.Embedding, in torch.distributed.tensor.parallel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.models.transformer import SmallEmbedding, check_tokens
from dlviz.parallel.step.replicas import check_replicas
from dlviz.parallel.tensor.checks import check_divides, check_names, check_shape
from dlviz.parallel.tensor.conjugate import f, g, gather_sequence, scatter_sequence
from dlviz.parallel.tensor.cut_parameter import cut_parameter
from dlviz.parallel.tensor.product import Product
from dlviz.parallel.tensor.regather import Regathered


class VocabularyParallelEmbedding(nn.Module):
    """The vectors of `vocabulary` tokens, (V/n, h) on each of the n ranks of `comm`: row r * V/n is
    rank r's first. With `sequence_parallel` a rank gets the vectors of its part of each sequence,
    (B, s/n, h), and `logits` takes as much. Raises ValueError where n does not divide V, and for a
    token that is not in the vocabulary.

    Cost: forward one all-reduce of (B, s, h), nothing backward; `logits` vice versa. With
    `sequence_parallel` a reduce-scatter forward and an all-gather backward; `logits` vice versa.
    """

    def __init__(
        self,
        comm: Comm,
        vocabulary: int,
        hidden: int,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__()
        check_counts(vocabulary=vocabulary, hidden=hidden)
        check_divides("vocabulary", vocabulary, comm.size, "tokens")
        self.comm, self.vocabulary = comm, vocabulary
        self.all_reduce, self.sequence_parallel = all_reduce, sequence_parallel
        self.cuts = {"weight": 0}
        self.product = Product(comm, 0)
        self.product.layer = "logits"
        self.weight = cut_parameter(comm, torch.empty(vocabulary // comm.size, hidden))  # (V/n, h)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the whole weight, as the plain layer does, and take this rank's rows."""
        whole = SmallEmbedding(self.vocabulary, self.weight.shape[1]).weight
        self.weight.copy_(self.local("weight", whole))

    def local(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The local tensor of the whole weight (V, h)."""
        return whole.chunk(self.comm.size)[self.comm.rank]

    @torch.no_grad()
    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take this rank's part of the whole `weight` (V, h). Raises ValueError for another name or
        shape, and, on all ranks, where they are given different values."""
        check_names("tokens", state, ["weight"])
        check_shape("tokens.weight", state["weight"], (self.vocabulary, self.weight.shape[1]))
        advice = "load the same weights on every rank of the axis"
        check_replicas(self.comm, "weights for tokens", dict(state), advice)
        self.weight.copy_(self.local("weight", state["weight"]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (B, s), the same on all ranks, to their vectors (B, s, h) or (B, s/n, h)."""
        check_tokens(tokens, self.vocabulary)
        mine = tokens - self.comm.rank * len(self.weight)  # (B, s), from 0 to V/n - 1
        others = (mine < 0) | (mine >= len(self.weight))
        x = functional.embedding(mine.masked_fill(others, 0), self.weight)
        x = x.masked_fill(others[..., None], 0)  # (B, s, h), a partial sum
        leave = scatter_sequence if self.sequence_parallel else g
        return leave(self.comm, x, self.all_reduce, "tokens")

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, s, h) or (B, s/n, h) to the logits of this rank's tokens, (B, s, V/n)."""
        if not self.sequence_parallel:
            return self.product(f(self.comm, x, self.all_reduce, "logits"), self.weight)
        whole = gather_sequence(self.comm, x, self.all_reduce, "logits")  # (B, s, h)
        again = Regathered(x, self.comm, self.all_reduce, "logits")
        return self.product(whole, self.weight, linear=again.linear)
