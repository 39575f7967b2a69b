"""A probabilistic context-free grammar: how it is written, text drawn from it, and its entropy.

    S -> NP VP [0.7] | NP VP and S [0.3]      a line per symbol: alternatives with probabilities
    NP -> dogs [0.5] | cats [0.5]             symbols begin with a capital, words do not
    VP -> sleep [1]                           the first symbol is the start

A derivation begins with the start symbol, and replaces each symbol by one of its alternatives until
only words are left. Its probability is the product of theirs. If every text has only one derivation
(the grammar is unambiguous), that is the probability of the text, and the entropy of derivations
that of text. With h(A) the entropy of the choice at A, n(A) the mean number of words in an
alternative and c(A, B) that of symbols B, linear equations give entropy and length:

    H(A) = h(A) + Σ_B c(A, B) H(B)          L(A) = n(A) + Σ_B c(A, B) L(B)

Source: U. Grenander, "Syntax-controlled probabilities", Brown University, 1967; for the equations
T. L. Booth and R. A. Thompson, "Applying probability measures to abstract languages", IEEE
Transactions on Computers, 1973.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate

import numpy as np


@dataclass(frozen=True)
class Grammar:
    """The alternatives of each symbol, the start first: (probability, symbols and words)."""

    rules: dict[str, list[tuple[float, tuple[str, ...]]]]

    @property
    def start(self) -> str:
        return next(iter(self.rules))

    @property
    def words(self) -> list[str]:
        """Every word, sorted."""
        parts = (part for each in self.rules.values() for _, parts in each for part in parts)
        return sorted({part for part in parts if part not in self.rules})

    def entropy_per_token(self) -> float:
        """The entropy of a text in nats over its mean length in tokens, words and an end token."""
        entropy, length = self._expected()
        return float(entropy[0] / (length[0] + 1))

    def _expected(self) -> tuple[np.ndarray, np.ndarray]:
        """H and L of the symbols, in their order. Raises ValueError where they are infinite."""
        place = {symbol: i for i, symbol in enumerate(self.rules)}
        counts = np.zeros((len(place), len(place)))  # c
        own = np.zeros((len(place), 2))  # h and n
        for symbol, alternatives in self.rules.items():
            for probability, parts in alternatives:
                own[place[symbol], 0] -= probability * math.log(probability)
                for part in parts:
                    if part in place:
                        counts[place[symbol], place[part]] += probability
                    else:
                        own[place[symbol], 1] += probability
        growth, shares = np.linalg.eig(counts)
        worst = int(abs(growth).argmax())
        if abs(growth[worst]) > 1 - 1e-9:
            raise ValueError(
                f"{list(place)[abs(shares[:, worst]).argmax()]} derives texts of infinite mean "
                "length: give the alternatives that end it more probability."
            )
        solved = np.linalg.solve(np.eye(len(place)) - counts, own)  # (symbols, 2)
        return solved[:, 0], solved[:, 1]

    def sample(self, count: int, seed: int) -> list[tuple[list[str], float]]:
        """`count` texts, each its words and the log of its derivation's probability (nats)."""
        chance = random.Random(seed).random
        rows = {
            symbol: (
                list(accumulate(probability for probability, _ in alternatives))[:-1],
                [(math.log(probability), parts[::-1]) for probability, parts in alternatives],
            )
            for symbol, alternatives in self.rules.items()
        }
        found = []
        for _ in range(count):
            words, logarithm, waiting = [], 0.0, [self.start]
            while waiting:  # the leftmost symbol or word is the last of the list
                part = waiting.pop()
                if part not in rows:
                    words.append(part)
                    continue
                bounds, alternatives = rows[part]
                gained, parts = alternatives[bisect(bounds, chance())]
                logarithm += gained
                waiting += parts
            found.append((words, logarithm))
        return found


def parse(text: str) -> Grammar:
    """The grammar in `text`, in the form shown above.

    Raises ValueError, one sentence, for an invalid line, a symbol with two lines or none,
    probabilities that are not above 0 or do not sum to 1, and texts of infinite mean length.
    """
    rules: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
    for line in filter(str.strip, text.splitlines()):
        symbol, arrow, right = line.partition("->")
        symbol = symbol.strip()
        found = [re.fullmatch(r"\s*(\S.*\S|\S)\s*\[([\d.eE-]+)\]\s*", a) for a in right.split("|")]
        if not (arrow and re.fullmatch(r"[A-Z]\S*", symbol) and all(found)):
            raise ValueError(
                f"{line.strip()!r} is no line of a grammar: write 'S -> NP VP [0.7] | and S [0.3]'."
            )
        if symbol in rules:
            raise ValueError(f"{symbol} has two lines: write its alternatives on one, with |.")
        rules[symbol] = [(float(match[2]), tuple(match[1].split())) for match in found if match]
        chances = [probability for probability, _ in rules[symbol]]
        if min(chances) <= 0 or abs(sum(chances) - 1) > 1e-9:
            raise ValueError(
                f"the probabilities of {symbol} are {', '.join(f'{p:g}' for p in chances)} and sum "
                f"to {sum(chances):g}: each must be above 0, and the sum 1."
            )
    if not rules:
        raise ValueError("the grammar has no line: write at least that of its start symbol.")
    for symbol, alternatives in rules.items():
        for _, parts in alternatives:
            for part in parts:
                if part[0].isupper() and part not in rules:
                    raise ValueError(f"{symbol} leads to {part}, which has no line of its own.")
    grammar = Grammar(rules)
    grammar.entropy_per_token()
    return grammar
