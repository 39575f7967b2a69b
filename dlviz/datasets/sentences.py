"""10,000 sentences drawn from a small grammar: their entropy is known, and with it the lowest loss
of a language model.

    sentence       the dog sleeps
    row of B       [1, 41, 12, 31, 2, 0, 0]      start, words, end, and 0 as padding
    inputs, X      [1, 41, 12, 31, 2, 0]         B[:, :n]
    targets, Y     [41, 12, 31, 2, -100, -100]   B[:, 1:]: the next token of each input, or none

See data/sentences/README.md.
"""

from __future__ import annotations

import gzip
from functools import cache

import torch

from dlviz.datasets import store
from dlviz.datasets.grammar import Grammar, parse

PADDING, START, END = 0, 1, 2
IGNORED = -100  # no target: torch's losses ignore it
TEST = 2000  # sentences, the last of all


def sentences(split: str = "train") -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, (N, n) each, int64 numbers of tokens in `vocabulary()`: padded with 0 in
    the inputs, -100 in the targets, which torch's losses ignore.

    A sentence of k words has k + 1 targets: its words and the end token; n is that of the longest
    of all. split: "train" (N = 8,000), "test" (N = 2,000), drawn alike, or "all" (both). Raises
    ValueError for an unknown split and a damaged file.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split={split!r} is not a part of the sentences: use train, test or all.")
    text = gzip.decompress(store.read("sentences/sentences.txt.gz")).decode()
    number = {token: i for i, token in enumerate(vocabulary())}
    rows = [
        torch.tensor([START, *(number[word] for word in line.split()), END])
        for line in text.splitlines()
    ]
    whole = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
    chosen = {"train": whole[:-TEST], "test": whole[-TEST:], "all": whole}[split]  # (N, n + 1)
    targets = chosen[:, 1:]
    return chosen[:, :-1], targets.masked_fill(targets == PADDING, IGNORED)


def vocabulary() -> list[str]:
    """The tokens by number: padding, start, end, and the words of the grammar, sorted."""
    return ["<padding>", "<start>", "<end>", *_grammar().words]


def entropy_per_token() -> float:
    """The entropy of the sentences in nats per token, including the end token, from the grammar's
    rules: no model has a lower mean loss on unseen sentences."""
    return _grammar().entropy_per_token()


@cache
def _grammar() -> Grammar:
    return parse(store.read("sentences/grammar.txt").decode())
