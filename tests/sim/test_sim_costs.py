"""The closed-form costs of collectives."""

from __future__ import annotations

import math

import pytest

from dlviz.machine import Link, Topology
from dlviz.sim import collective_seconds

ALPHA, BETA, GAMMA = 10e-6, 1e-9, 0.1e-9  # s, s/byte, s/byte
FOUR = Topology.switch(4, Link(ALPHA, 1 / BETA))
MIB = 2**20


@pytest.mark.parametrize(
    ("algorithm", "ranks", "microseconds"),
    [
        ("ring", 4, 1711.5072),
        ("ring", 6, 1935.008),
        ("butterfly", 4, 2326.8672),
        ("butterfly", 6, 4 * 10 + 4 * 1048.576 + 3 * 104.8576),
        ("halving_doubling", 4, 1691.5072),
        ("halving_doubling", 6, 3913.5168),
        ("tree", 4, 2 * (2 * 10 + 2 * 1048.576 + 104.8576)),
        ("tree", 6, 3 * (2 * 10 + 2 * 1048.576 + 104.8576)),
        ("direct", 4, 3 * (10 + 1048.576 + 104.8576)),
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


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 31, 100])
def test_halving_doubling_off_powers_of_two_counts_p_prime_and_mpichs_comment_bounds_it(ranks):
    """MPICH's comment has p in the fractions, where p' belongs."""
    lg = math.floor(math.log2(ranks))

    def by_hand(p):
        return (
            (2 * lg + 2) * ALPHA
            + (2 * (p - 1) / p + 2) * MIB * BETA
            + (1 + (p - 1) / p) * MIB * GAMMA
        )

    priced = collective_seconds("halving_doubling", ranks, MIB, ALPHA, BETA, GAMMA)
    assert priced == pytest.approx(by_hand(2**lg), rel=1e-12)
    assert priced < by_hand(ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8, 1024])
def test_on_powers_of_two_halving_doubling_is_a_ring_of_few_steps(ranks):
    ring = collective_seconds("ring", ranks, MIB, ALPHA, BETA, GAMMA)
    few = collective_seconds("halving_doubling", ranks, MIB, ALPHA, BETA, GAMMA)
    steps = 2 * (ranks - 1) - 2 * math.log2(ranks)
    assert ring - few == pytest.approx(steps * ALPHA, rel=1e-9, abs=1e-15)


INSIDE, BETWEEN = Link(2e-6, 1e10), Link(50e-6, 1e9)


def test_a_hierarchy_of_equal_nodes_by_hand():
    topology = Topology.racks(3, 4, INSIDE, BETWEEN)
    seconds = collective_seconds("hierarchical", 12, MIB, topology, gamma=GAMMA)
    rings_inside = 6 * 2e-6 + 3 / 4 * MIB * (2e-10 + GAMMA)
    rings_across = 4 * 50e-6 + 2 / 3 * MIB * (2e-9 + GAMMA / 4)
    assert seconds == pytest.approx(rings_inside + rings_across, rel=1e-12)


def test_a_hierarchy_of_unequal_nodes_takes_the_rest_in():
    """Seven ranks under switches of three: nodes of 3, 3 and 1, so that a rank takes in two."""
    topology = Topology.tree(7, 3, INSIDE, BETWEEN)
    seconds = collective_seconds("hierarchical", 7, MIB, topology, gamma=GAMMA)
    across = 4 * 50e-6 + 2 / 3 * MIB * (2e-9 + GAMMA)
    taken_in = 2 * (2 * 2e-6 + 2 * MIB * 1e-10 + MIB * GAMMA)
    assert seconds == pytest.approx(across + taken_in, rel=1e-12)


@pytest.mark.parametrize("topology", [Topology.switch(6, INSIDE), Topology.ring(6, INSIDE)])
def test_a_hierarchy_of_one_node_is_a_ring(topology):
    ring = collective_seconds("ring", 6, MIB, 2e-6, 1e-10, GAMMA)
    seconds = collective_seconds("hierarchical", 6, MIB, topology, gamma=GAMMA)
    assert seconds == pytest.approx(ring, rel=1e-12)


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


def test_a_tree_gathers_in_few_steps_no_byte_twice():
    for name in ("gather", "scatter"):
        seconds = collective_seconds(name, 6, MIB, ALPHA, BETA, GAMMA)
        assert seconds == pytest.approx(3 * ALPHA + 5 / 6 * MIB * BETA)


def test_one_rank_pays_nothing_and_an_empty_tensor_pays_latency_alone():
    assert collective_seconds("ring", 1, MIB, ALPHA, BETA, GAMMA) == 0.0
    assert collective_seconds("ring", 4, 0, ALPHA, BETA, GAMMA) == pytest.approx(6 * ALPHA)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("star", 4, MIB, ALPHA, BETA), "algorithm='star' has no cost formula: use one of ring"),
        (("ring", 0, MIB, ALPHA, BETA), "ranks=0 has to be a whole number, 1 or more"),
        (
            ("ring", 4, -1, ALPHA, BETA),
            "nbytes=-1 has to be a finite number, 0 or more",
        ),
        (("ring", 4, MIB, math.nan, BETA), "alpha=nan has to be a finite number, 0 or more"),
        (("ring", 4, MIB, ALPHA, math.inf), "beta=inf has to be a finite number, 0 or more"),
        (("ring", 4, MIB, ALPHA, BETA, -0.1), "gamma=-0.1 has to be a finite number, 0 or more"),
        (
            ("hierarchical", 4, MIB, ALPHA, BETA),
            "alpha=1e-05 does not price 'hierarchical' on 4 ranks: give a Topology of 4 ranks in",
        ),
        (("hierarchical", 5, MIB, FOUR), "does not price 'hierarchical' on 5 ranks"),
        (("hierarchical", 4, -1, FOUR), "nbytes=-1 has to be a finite number, 0 or more"),
        (("ring", 4, MIB, FOUR), "prices only 'hierarchical': give 'ring' the alpha and beta of"),
    ],
)
def test_what_has_no_price_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        collective_seconds(*arguments)
