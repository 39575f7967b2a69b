"""A decoder-only Transformer: predicts each next token from the tokens before it.

    tokens (B, s) -> embedding + position -> block 0 -> ... -> block l-1 -> norm -> logits (B, s, V)

    block     x ---+--> norm1 -> attention --(+)--+--> norm2 -> mlp --(+)--> x
                   +-------------------------^    +--------------------^

A block keeps the shape (B, s, h): a pipeline can cut between any two blocks. The output layer has
no weights of its own: a logit is the product with the token's embedding (tied). B are the sequences
of a batch, s the tokens of a sequence, h `hidden`, a `heads`, d = h/a, V `vocabulary`.

Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019;
heads that share keys and values are J. Ainslie et al., "GQA: Training Generalized Multi-Query
Transformer Models from Multi-Head Checkpoints", 2023; the tied output is O. Press and L. Wolf,
"Using the Output Embedding to Improve Language Models", 2017. In PyTorch:
torch.nn.functional.scaled_dot_product_attention, whose dropout draws another mask.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from dlviz.counts import check_counts
from dlviz.models.dropout import WHOLE, Dropout
from dlviz.models.seeding import seed_layers


class Transformer(nn.Module):
    """`layers` blocks for tokens (B, s) of int64, s up to `sequence`; gives logits (B, s,
    vocabulary).

    kv_heads: the number of heads of keys and values, each for heads/kv_heads heads of queries
    (None: one for each). dropout: the probability with which cells of the embedding's output, of
    the attention's weights and of what a block adds are dropped in training (see `Dropout`). The
    weights of a layer depend only on `seed` and its number (`seed_layers`).

    Raises ValueError for sizes that do not divide; in the forward for a longer text and for a token
    that is not in the vocabulary.
    """

    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        vocabulary: int,
        sequence: int,
        kv_heads: int | None = None,
        dropout: float = 0.0,
        seed: int = 0,
    ):
        super().__init__()
        check_counts(layers=layers, hidden=hidden, vocabulary=vocabulary, sequence=sequence)
        self.layers, self.hidden, self.heads = layers, hidden, heads
        self.kv_heads = heads if kv_heads is None else kv_heads
        self.vocabulary, self.sequence, self.dropout, self.seed = (
            vocabulary,
            sequence,
            dropout,
            seed,
        )
        self.tokens = SmallEmbedding(vocabulary, hidden)
        self.positions = SmallEmbedding(sequence, hidden)
        self.drop = Dropout(dropout, seed, 0)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, self.kv_heads, dropout, seed, number) for number in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.output = TiedOutput()
        seed_layers(self, seed)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)  # (B, s, h)
        for block in self.blocks:
            x = block(x)  # (B, s, h)
        return self.logits(x)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The first block's input: tokens (B, s) -> (B, s, h)."""
        check_length(tokens, self.sequence)
        check_tokens(tokens, self.vocabulary)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.drop(self.tokens(tokens) + self.positions(places))  # (B, s, h)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """The logits of the next tokens, from the last block's output x (B, s, h): (B, s, V)."""
        return self.output(self.norm(x), self.tokens.weight)


class Block(nn.Module):
    """Attention, then two linear layers, each on the norm of x and added to x: (B, s, h) -> (B, s,
    h). `number` is its place in the model."""

    def __init__(
        self, hidden: int, heads: int, kv_heads: int, dropout: float, seed: int, number: int
    ):
        super().__init__()
        first = 1 + 3 * number  # the model's first dropout is number 0, and a block has three
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, kv_heads, Dropout(dropout, seed, first))
        self.drop1 = Dropout(dropout, seed, first + 1)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = FeedForward(hidden, 4 * hidden)
        self.drop2 = Dropout(dropout, seed, first + 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop1(self.attention(self.norm1(x)))
        return x + self.drop2(self.mlp(self.norm2(x)))


class Attention(nn.Module):
    """Each token looks at itself and those before it, in each of `heads` heads: (B, s, h) ->
    (B, s, h)."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, drop: Dropout):
        super().__init__()
        check_heads(hidden, heads, kv_heads)
        width = hidden // heads  # d
        self.heads, self.kv_heads = heads, kv_heads
        self.q = nn.Linear(hidden, hidden)
        self.k = nn.Linear(hidden, kv_heads * width)
        self.v = nn.Linear(hidden, kv_heads * width)
        self.output = nn.Linear(hidden, hidden)
        self.drop = drop
        self.product = Attend()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = in_heads(self.q(x), self.heads)  # (B, a, s, d)
        k, v = (in_heads(layer(x), self.kv_heads) for layer in (self.k, self.v))  # (B, kv, s, d)
        return self.output(self.product(q, k, v, self.drop))  # (B, s, h)


class Attend(nn.Module):
    """Attention's two products of activations: scores and values.

    A module, though it has no weights, so that a timeline can show when it computes.
    """

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        drop: Dropout | None = None,
        start: Mapping[int, int] = WHOLE,
        causal: bool = True,
    ) -> torch.Tensor:
        """For queries (B, a, s, d), keys and values (B, kv, s, d), each for a/kv heads of queries
        in a row: the mean of the values by the softmax of q·k/√d, heads side by side, (B, s, a·d).

        `drop` drops weights; those of a part of the heads have its first head as `start` of dim 1.
        """
        q = q.unflatten(1, (k.shape[1], -1))  # (B, kv, a/kv, s, d)
        scores = q @ k.mT[:, :, None] / q.shape[-1] ** 0.5  # (B, kv, a/kv, s, s)
        if causal:
            pairs = torch.ones(q.shape[-2:-1] * 2, dtype=torch.bool, device=q.device)  # (s, s)
            scores = scores.masked_fill(pairs.triu(1), -torch.inf)  # no token sees a later one
        weights = scores.softmax(-1)
        if drop is not None:
            weights = drop(weights.flatten(1, 2), start).view_as(weights)  # by head: (B, a, s, s)
        found = (weights @ v[:, :, None]).flatten(1, 2)  # (B, a, s, d)
        return found.transpose(1, 2).flatten(2)  # (B, s, a * d)


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them, token by token."""

    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class TiedOutput(nn.Module):
    """The output layer, whose weight (V, h) is the embedding's: x (B, s, h) -> logits (B, s, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.product = Scores()

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.product(x, weight)


class Scores(nn.Module):
    """The output layer's product. A module, though it has no weights, as `Attend` is."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight)  # (B, s, h) and (V, h) -> (B, s, V)


class SmallEmbedding(nn.Embedding):
    """Vectors looked up by number, initially small, as GPT-2's: a tied output layer then begins
    with logits near 0."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)


def in_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, s, heads * d) -> (B, heads, s, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def check_heads(hidden: int, heads: int, kv_heads: int) -> None:
    """Raise ValueError for heads that the hidden size or the heads of queries cannot be split
    into."""
    if heads < 1 or hidden % heads:
        raise ValueError(
            f"heads={heads} cannot share hidden={hidden}: each head needs a whole number of "
            f"features. Use {_divisors(hidden)} heads."
        )
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(
            f"kv_heads={kv_heads} cannot serve heads={heads}: each head of keys and values is for "
            f"as many heads of queries. Use kv_heads={_divisors(heads)}."
        )
    check_counts(heads=heads, kv_heads=kv_heads)


def _divisors(number: int) -> str:
    *others, last = (str(n) for n in range(1, number + 1) if number % n == 0)
    return f"{', '.join(others)} or {last}" if others else last


def check_length(tokens: torch.Tensor, sequence: int) -> None:
    """Raise ValueError for tokens (B, s) with s longer than the model has positions."""
    if tokens.shape[1] > sequence:
        raise ValueError(
            f"the text is {tokens.shape[1]} tokens long and the model's sequence={sequence}: cut "
            "the text, or make the model with a longer sequence."
        )


def check_tokens(tokens: torch.Tensor, vocabulary: int) -> None:
    """Raise ValueError for a token (B, s) that is not in the vocabulary; it names the first. Not
    while the model is exported: values are unknown then."""
    if torch.compiler.is_exporting():
        return
    outside = (tokens < 0) | (tokens >= vocabulary)
    if outside.any():
        row, place = outside.nonzero()[0].tolist()
        raise ValueError(
            f"token {int(tokens[row, place])} at place {place} of row {row} is not in the model's "
            f"vocabulary={vocabulary}: tokens are 0 to {vocabulary - 1}."
        )
