"""The closed-form costs of collectives."""

from __future__ import annotations

import math

import pytest

from dlviz.sim import collective_seconds

ALPHA, BETA, GAMMA = 10e-6, 1e-9, 0.1e-9  # s, s/byte, s/byte
MIB = 2**20


@pytest.mark.parametrize(
    ("algorithm", "ranks", "microseconds"),
    [
        ("ring", 4, 1711.5072),
        ("ring", 6, 1935.008),
        ("parameter_server", 4, 6 * (10 + 1048.576) + 3 * 104.8576),
        ("parameter_server", 2, 2 * (10 + 1048.576) + 104.8576),
    ],
)
def test_examples_worked_by_hand(algorithm, ranks, microseconds):
    seconds = collective_seconds(algorithm, ranks, MIB, ALPHA, BETA, GAMMA)
    assert seconds * 1e6 == pytest.approx(microseconds, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 64])
def test_an_all_reduce_by_ring_is_its_reduce_scatter_and_its_all_gather(ranks):
    def cost(name):
        return collective_seconds(name, ranks, MIB, ALPHA, BETA, GAMMA)

    p = ranks
    by_hand = 2 * (p - 1) * ALPHA + 2 * (p - 1) / p * MIB * BETA + (p - 1) / p * MIB * GAMMA
    assert cost("ring") == pytest.approx(by_hand, rel=1e-12)
    assert cost("reduce_scatter") + cost("all_gather") == pytest.approx(by_hand, rel=1e-12)
    assert cost("all_reduce") == cost("ring")


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 64])
def test_a_server_moves_the_whole_tensor_twice_for_each_other_rank(ranks):
    seconds = collective_seconds("parameter_server", ranks, MIB, ALPHA, BETA, GAMMA)
    by_hand = 2 * (ranks - 1) * (ALPHA + MIB * BETA) + (ranks - 1) * MIB * GAMMA
    assert seconds == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (7, 3), (9, 4)])
def test_a_tree_takes_the_logarithm_of_the_ranks_rounded_up(ranks, rounds):
    assert collective_seconds("broadcast", ranks, MIB, ALPHA, BETA) == pytest.approx(
        rounds * (ALPHA + MIB * BETA)
    )
    assert collective_seconds("barrier", ranks, 0, ALPHA, BETA) == pytest.approx(rounds * ALPHA)
    assert collective_seconds("reduce", ranks, MIB, ALPHA, BETA, GAMMA) == pytest.approx(
        rounds * (ALPHA + MIB * (BETA + GAMMA))
    )


def test_an_all_to_all_sends_each_other_rank_its_part():
    seconds = collective_seconds("all_to_all", 4, MIB, ALPHA, BETA, GAMMA)
    assert seconds == pytest.approx(3 * (ALPHA + MIB / 4 * BETA))


def test_one_rank_pays_nothing_and_an_empty_tensor_pays_latency_alone():
    assert collective_seconds("ring", 1, MIB, ALPHA, BETA, GAMMA) == 0.0
    assert collective_seconds("ring", 4, 0, ALPHA, BETA, GAMMA) == pytest.approx(6 * ALPHA)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("star", 4, MIB, ALPHA, BETA), "algorithm='star' has no cost formula: use one of ring"),
        (("ring", 0, MIB, ALPHA, BETA), "ranks=0 cannot hold a collective: use 1 or more"),
        (("ring", 4, -1, ALPHA, BETA), "nbytes=-1 is no cost: it must be finite and not negative"),
        (("ring", 4, MIB, math.nan, BETA), "alpha=nan is no cost"),
        (("ring", 4, MIB, ALPHA, math.inf), "beta=inf is no cost"),
        (("ring", 4, MIB, ALPHA, BETA, -0.1), "gamma=-0.1 is no cost"),
    ],
)
def test_what_has_no_price_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        collective_seconds(*arguments)
