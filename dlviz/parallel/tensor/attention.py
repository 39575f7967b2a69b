"""Self-attention on several ranks: each has some of the heads.

    f   x   q, k, v (columns)    attention        output (rows)           g
        x · heads 0, 1       ->  of heads 0, 1 -> · W0    partial sum 0
        x · heads 2, 3       ->  of heads 2, 3 -> · W1    partial sum 1   y = sum + b

A head needs no other head, so nothing is sent between the products; one f serves q, k and v. Where
heads of queries share one of keys and values (grouped queries), and there are more ranks than such
heads, several ranks hold the same one: each has the gradient from its own queries, and their sum is
the whole gradient. Four ranks, 4 heads and 2 of keys and values:

    rank              0     1     2     3
    q                 0     1     2     3
    k, v              0     0     1     1       gradients are summed over ranks 0, 1 and 2, 3

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3; J. Ainslie et al., "GQA: Training
Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", 2023. In PyTorch:
ColwiseParallel for q, k and v, RowwiseParallel for the output, and
torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.models.dropout import Dropout
from dlviz.models.transformer import Attend, check_heads, in_heads
from dlviz.parallel.step.replicas import check_replicas
from dlviz.parallel.tensor.checks import check_divides
from dlviz.parallel.tensor.conjugate import f
from dlviz.parallel.tensor.linear import (
    ColumnParallelLinear,
    RowParallelLinear,
    State,
    load_layers,
)
from dlviz.parallel.tensor.product import Entered


class ParallelAttention(nn.Module):
    """Self-attention of `heads` heads, with `kv_heads` heads of keys and values (None: as many):
    (B, s, h) -> (B, s, h), the same on all ranks, or (s, h) -> (s, h). `causal`: no token sees a
    later one. `drop` drops weights of the attention. With `sequence_parallel` each rank has its
    tokens: (B, s/t, h) -> (B, s/t, h).

    Raises ValueError for heads that do not divide the hidden size, and for ranks that do not divide
    the heads; there may be fewer heads of keys and values than ranks, if they divide the ranks.

    Cost: one all-reduce of (B, s, h) per direction; with fewer heads of keys and values than ranks,
    backward, one all-reduce of the weights of k and one of v over the ranks that share them. With
    `sequence_parallel` as `ParallelMLP`.
    """

    def __init__(
        self,
        comm: Comm,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        causal: bool = True,
        *,
        drop: Dropout | None = None,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__()
        check_counts(hidden=hidden, kv_heads=kv_heads)
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads(hidden, heads, kv_heads)
        check_divides("heads", heads, comm.size, "heads")
        check_kv_heads(heads, kv_heads, comm.size)
        self.heads = heads // comm.size  # on this rank
        self.kv_heads = max(kv_heads // comm.size, 1)
        self.first = comm.rank * self.heads
        self.causal, self.drop = causal, drop
        how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
        groups = comm.size // kv_heads  # ranks that share a head of keys and values
        shared = comm.mesh(head=kv_heads, share=groups) if groups > 1 else None
        width = kv_heads * hidden // heads
        self.q = ColumnParallelLinear(comm, hidden, hidden, **how)
        self.k, self.v = (
            SharedColumns(shared.head, shared.share, hidden, width, **how)
            if shared
            else ColumnParallelLinear(comm, hidden, width, **how)
            for _ in "kv"
        )
        self.product = Attend()
        self.output = RowParallelLinear(comm, hidden, hidden, **how)
        for name, layer in self.named_children():
            if isinstance(layer, ColumnParallelLinear | RowParallelLinear):
                layer.name = name

    def load(self, state: State) -> None:
        """Take this rank's part of the whole layer: the weights (n, h) and biases of `q`, `k`, `v`
        and `output`."""
        load_layers(self, state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = x if x.dim() > 2 else x[None]  # (B, s, h)
        entered = self.q.enter(batch)  # one f for all three
        q = in_heads(self.q(entered), self.heads)  # (B, a/t, s, d)
        k, v = (in_heads(layer(entered), self.kv_heads) for layer in (self.k, self.v))
        found = self.product(q, k, v, self.drop, {1: self.first}, self.causal)  # (B, s, h/t)
        return self.output(found).view(x.shape)


def check_kv_heads(heads: int, kv_heads: int, ranks: int) -> None:
    """Raise ValueError unless each rank has whole heads of keys and values, or equally many ranks
    share each."""
    if kv_heads % ranks and ranks % kv_heads:
        fit = (n for n in range(1, heads + 1) if heads % n == 0)
        *others, last = (str(n) for n in fit if n % ranks == 0 or ranks % n == 0)
        raise ValueError(
            f"kv_heads={kv_heads} cannot be split over {ranks} ranks: each rank needs whole heads "
            "of keys and values, or as many ranks share each one. Use kv_heads="
            f"{', '.join(others)} or {last}."
        )


class SharedColumns(ColumnParallelLinear):
    """A column-parallel layer over the ranks of `comm`, whose local tensors are the same on the
    ranks of `share`: the gradient of its weights is the sum over these."""

    def __init__(self, comm: Comm, share: Comm, inputs: int, outputs: int, **how: Any):
        super().__init__(comm, inputs, outputs, **how)
        self.share = share

    def forward(self, x: torch.Tensor | Entered) -> torch.Tensor:
        whole, linear = x if isinstance(x, Entered) else self.enter(x)
        if not self.checked:
            advice = "seed them alike, or load the same weights"
            check_replicas(
                self.share, f"parts of {self.name}", dict(self.named_parameters()), advice
            )
        self.checked = True
        assert self.bias is not None
        both = torch.cat([self.weight, self.bias[:, None]], 1)  # (n/t, k + 1): one all-reduce
        both = f(self.share, both, self.all_reduce, self.name)
        return self.product(whole, both[:, :-1], both[:, -1], linear)  # (B, n/t)
