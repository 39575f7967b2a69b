"""datasets.sentences: the text is the grammar's, which has one derivation for each sentence, and
the entropy follows from its rules."""

from __future__ import annotations

import gzip
import math
from functools import cache

import pytest
import torch

from dlviz.datasets import entropy_per_token, sentences, store, trim, vocabulary
from dlviz.datasets.grammar import Grammar, parse
from dlviz.datasets.sentences import IGNORED


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return parse(store.read("sentences/grammar.txt").decode())


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return gzip.decompress(store.read("sentences/sentences.txt.gz")).decode().splitlines()


def derivations(grammar: Grammar, words: tuple[str, ...]) -> tuple[int, float]:
    """The number of derivations of `words` from the start, and the sum of their probabilities: a
    chart of where what a row of symbols and words derives from place i may end."""

    @cache
    def ends(parts: tuple[str, ...], i: int) -> dict[int, tuple[int, float]]:
        if i == len(words):
            return {}  # each part makes a word or more
        first, rest = parts[0], parts[1:]
        if first not in grammar.rules:
            found = [(i + 1, 1, 1.0)] if words[i] == first else []
        else:
            found = [
                (end, count, probability * chance)
                for probability, alternative in grammar.rules[first]
                for end, (count, chance) in ends(alternative, i).items()
            ]
        if rest:
            found = [
                (end, count * more, chance * times)
                for middle, count, chance in found
                for end, (more, times) in ends(rest, middle).items()
            ]
        total: dict[int, tuple[int, float]] = {}
        for end, count, chance in found:
            before = total.get(end, (0, 0.0))
            total[end] = before[0] + count, before[1] + chance
        return total

    return ends((grammar.start,), 0).get(len(words), (0, 0.0))


def test_the_chart_counts_every_derivation():
    ambiguous = parse("S -> x [0.5] | x S [0.25] | x S S [0.25]")
    for length, trees in enumerate((1, 1, 2, 4, 9), 1):  # Motzkin's numbers
        assert derivations(ambiguous, ("x",) * length)[0] == trees
    assert derivations(ambiguous, ("x",) * 3)[1] == 0.25 * 0.25 * 0.5 + 0.25 * 0.5 * 0.5
    assert derivations(ambiguous, ("x", "y")) == (0, 0)


def test_every_sentence_has_exactly_one_derivation(grammar, lines):
    assert len(lines) == 10_000
    for line in set(lines):
        count, chance = derivations(grammar, tuple(line.split()))
        assert count == 1 and 0 < chance < 1, line


def test_the_sentences_are_drawn_from_the_grammar_with_their_probability(grammar, lines):
    drawn = grammar.sample(10_000, seed=0)
    assert [" ".join(words) for words, _ in drawn] == lines
    for words, logarithm in drawn[:200]:
        assert math.log(derivations(grammar, tuple(words))[1]) == pytest.approx(logarithm)


def test_the_entropy_is_what_100000_sentences_cost_in_the_mean(grammar):
    drawn = grammar.sample(100_000, seed=1)
    nats = -sum(logarithm for _, logarithm in drawn)
    tokens = sum(len(words) + 1 for words, _ in drawn)
    assert nats / tokens == pytest.approx(entropy_per_token(), rel=0.01)
    assert entropy_per_token() == grammar.entropy_per_token() == pytest.approx(1.7523, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "nats"),
    [
        ("S -> x [0.5] | y [0.5]", math.log(2) / 2),
        ("S -> x [1]", 0.0),
        ("S -> x S [0.5] | y [0.5]", 2 * math.log(2) / 3),  # 2 words and the end in the mean
        ("S -> A A [1]\nA -> x [0.25] | y z [0.75]", 2 * 0.5623351446 / 4.5),
    ],
)
def test_the_entropy_of_small_grammars_is_that_computed_by_hand(text, nats):
    assert parse(text).entropy_per_token() == pytest.approx(nats, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "^the grammar has no line"),
        ("S x [1]", "^'S x \\[1\\]' is no line of a grammar"),
        ("S -> x", "^'S -> x' is no line of a grammar"),
        ("S -> [1]", "is no line of a grammar"),
        ("s -> x [1]", "^'s -> x \\[1\\]' is no line of a grammar"),
        ("S -> x [1]\nS -> y [1]", "^S has two lines"),
        ("S -> x [0.7] | y [0.4]", "^the probabilities of S are 0.7, 0.4 and sum to 1.1"),
        ("S -> x [1] | y [0]", "^the probabilities of S are 1, 0 and sum to 1: each must be above"),
        ("S -> x NP [1]", "^S leads to NP, which has no line of its own"),
        ("S -> x A [1]\nA -> y A [1]", "derives texts of infinite mean length"),
        ("S -> x [0.9] | A [0.1]\nA -> A A [0.5] | y [0.5]", "^A derives texts of infinite mean"),
    ],
)
def test_an_invalid_grammar_is_refused_in_one_sentence(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(text)
    assert str(caught.value).count(". ") == 0


def test_inputs_and_targets_are_the_sentence_shifted_by_a_token(lines):
    inputs, targets = sentences("all")
    words = vocabulary()
    assert inputs.dtype == targets.dtype == torch.int64 and inputs.shape == targets.shape
    there = targets != IGNORED
    assert torch.equal(inputs[:, 1:], targets.masked_fill(~there, 0)[:, :-1])
    assert targets.min() == IGNORED and targets[there].min() > 1, "padding is no target"
    assert words[:3] == ["<padding>", "<start>", "<end>"] and len(words) == len({*words}) == 45
    for row in (0, 17, 9999):
        spelt = [words[i] for i in targets[row].tolist() if i != IGNORED]
        assert spelt == [*lines[row].split(), "<end>"]
    assert (inputs[:, 0] == 1).all() and there[:, -1].sum() == 1


def test_train_and_test_are_all_sentences_once():
    train, test, everything = (sentences(split) for split in ("train", "test", "all"))
    for a, b, whole in zip(train, test, everything, strict=True):
        assert (len(a), len(b)) == (8000, 2000) and torch.equal(torch.cat([a, b]), whole)
    with pytest.raises(ValueError, match="^split='valid' is not a part of the sentences"):
        sentences("valid")


def test_trim_cuts_columns_of_only_padding():
    inputs, targets = (part[:4] for part in sentences("train"))
    short, aims = trim(inputs, targets)
    longest = int((targets != IGNORED).sum(1).max())
    assert short.shape == aims.shape == (4, longest) and longest < targets.shape[1]
    assert (aims != IGNORED).sum() == (targets != IGNORED).sum()
    assert torch.equal(short, inputs[:, :longest])
