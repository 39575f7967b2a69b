"""A language model: an LSTM that predicts the next token, on text padded to one length.

    inputs  X (B, n)     <start> the dog sleeps <end>     0 0       B = sentences of a batch
    targets Y (B, n)     the dog sleeps <end>  -100    -100 -100    -100 is not learnt from

Its loss is the mean over target tokens. Sentences differ in length, so shards with equally many
sentences hold different numbers of tokens, and the mean of their means is not that of the batch:
`target_tokens` is the weight of a shard, as in `train(..., weight=target_tokens)`.

Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997.
PyTorch's names: torch.nn.LSTM, and `ignore_index` of torch.nn.functional.cross_entropy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dlviz.counts import check_counts
from dlviz.datasets.sentences import END, IGNORED, PADDING
from dlviz.models.seeding import seed_layers


def LSTM(
    vocabulary: int,
    width: int = 64,
    window: int = 64,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """A network of one LSTM layer for tokens (B, n) of int64; gives logits (B, n, vocabulary).

    vocabulary: the number of tokens, padding included. A text longer than `window` raises
    ValueError. The weights are those of float32, cast to `dtype`.
    """
    check_counts(vocabulary=vocabulary, width=width, window=window)
    network = nn.Sequential(
        _Tokens(vocabulary, width, window),  # (B, n, width)
        _Recurrent(width, width, batch_first=True),  # (B, n, width)
        nn.Linear(width, vocabulary),  # (B, n, vocabulary)
    )
    return seed_layers(network, seed).to(dtype)


class _Tokens(nn.Embedding):
    def __init__(self, vocabulary: int, width: int, window: int):
        super().__init__(vocabulary, width)
        self.window = window

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.shape[1] > self.window:
            raise ValueError(
                f"the text is {input.shape[1]} tokens long and the model's window={self.window}: "
                "cut the text, or make the model with a larger window."
            )
        return super().forward(input)


class _Recurrent(nn.LSTM):
    def forward(self, *inputs: Any) -> torch.Tensor:
        return super().forward(*inputs)[0]  # the output of every token, without the last states


def token_loss(
    outputs: torch.Tensor, targets: torch.Tensor, ignore_index: int = IGNORED
) -> torch.Tensor:
    """The mean cross-entropy (nats) of the logits (B, n, vocabulary) at the targets (B, n) that are
    not `ignore_index`; 0 for no rows. Raises ValueError for rows of only padding. For another
    padding give a strategy `functools.partial(token_loss, ignore_index=0)`."""
    tokens = int((targets != ignore_index).sum())
    if len(targets) and not tokens:
        raise ValueError(
            f"the targets {tuple(targets.shape)} are padding alone: there is no token to learn."
        )
    total = functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), ignore_index=ignore_index, reduction="sum"
    )
    return total / max(tokens, 1)


def ignored_by(loss: Any) -> int | None:
    """The target that a `token_loss` ignores; None for another loss."""
    given = loss.keywords if isinstance(loss, partial) and not loss.args else {}
    if given.keys() == {"ignore_index"}:
        loss = loss.func
    return given.get("ignore_index", IGNORED) if loss is token_loss else None


def target_tokens(inputs: torch.Tensor, targets: torch.Tensor | None = None) -> int:
    """How many of the targets (B, n) are not padding, -100: as `weight=` of a strategy, for a text
    of any vocabulary.

    Where the targets are not known, in a forward of `DDP`, those of the inputs (B, n) of
    `datasets.sentences` alone: one for every token except <end>, 2, and padding, 0."""
    if targets is not None:
        return int((targets != IGNORED).sum())
    return int(((inputs != PADDING) & (inputs != END)).sum())
