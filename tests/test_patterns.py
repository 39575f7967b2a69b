"""A pattern, played on lists of numbers, ends where its collective should."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz.patterns import (
    Transfer,
    butterfly,
    direct,
    elements_sent,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    steps,
    tree,
)

RANKS = st.integers(1, 9)
LENGTHS = st.integers(0, 40)
ALL_REDUCES = (ring, parameter_server, tree, butterfly, halving_doubling, direct, hierarchical)


def play(transfers: list[Transfer], ranks: int, length: int) -> list[list[Counter]]:
    """What each element of each rank ends up holding: how often the value of each rank is in it.

    All transfers of a step carry what their senders held when the step began.
    """
    cells = [[Counter({rank: 1}) for _ in range(length)] for rank in range(ranks)]
    for _, together in groupby(transfers, key=lambda transfer: transfer.step):
        before = [[Counter(cell) for cell in row] for row in cells]
        for t in together:
            for i in range(t.offset, t.offset + t.count):
                result = cells[t.dst][i] if t.op == "sum" else Counter()
                cells[t.dst][i] = result + before[t.src][i]
    return cells


def owned(rank: int, ranks: int, length: int) -> range:
    """The elements that rank r owns between the halves of a ring: chunk r+1."""
    chunk = (rank + 1) % ranks
    return range(chunk * length // ranks, (chunk + 1) * length // ranks)


@settings(deadline=None)  # a busy machine is no failure
@given(ranks=RANKS, length=LENGTHS, data=st.data())
def test_an_all_reduce_leaves_everybodys_value_once_in_every_element(ranks, length, data):
    server = data.draw(st.integers(0, ranks - 1))
    all_once = [[Counter(range(ranks))] * length] * ranks
    for pattern in ALL_REDUCES:
        assert play(pattern.all_reduce(ranks, length), ranks, length) == all_once
    assert play(parameter_server.all_reduce(ranks, length, server), ranks, length) == all_once


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), length=LENGTHS, data=st.data())
def test_so_does_a_hierarchy_of_nodes_of_any_size_and_order(sizes, length, data):
    ranks = sum(sizes)
    order = data.draw(st.permutations(range(ranks)))
    nodes = [order[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    pattern = hierarchical.all_reduce(ranks, length, nodes)
    assert play(pattern, ranks, length) == [[Counter(range(ranks))] * length] * ranks


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS, data=st.data())
def test_a_tree_reduces_to_its_root_and_spreads_from_it(ranks, length, data):
    root = data.draw(st.integers(0, ranks - 1))
    reduced = play(tree.reduce(ranks, length, root), ranks, length)
    assert reduced[root] == [Counter(range(ranks))] * length
    spread = play(tree.broadcast(ranks, length, root), ranks, length)
    assert spread == [[Counter([root])] * length] * ranks


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_a_tree_gathers_to_rank_0_the_chunks_that_it_scatters_from_there(ranks, length):
    owner = [next(r for r in range(ranks) if (r + 1) * length // ranks > i) for i in range(length)]
    gathered = play(tree.gather(ranks, length), ranks, length)
    assert gathered[0] == [Counter([rank]) for rank in owner]
    scattered = play(tree.scatter(ranks, length), ranks, length)
    assert all(scattered[rank][i] == Counter([0]) for i, rank in enumerate(owner))


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_after_the_halvings_each_that_stays_holds_a_whole_sum_which_the_doublings_spread(
    ranks, length
):
    members = halving_doubling.staying(ranks)
    halved = halving_doubling.reduce_scatter(ranks, length)
    cells, whole = play(halved, ranks, length), Counter(range(ranks))
    levels = len(members).bit_length() - 1
    held = [
        halving_doubling.held(place, levels, len(members), length) for place in range(len(members))
    ]
    assert sorted(i for first, count in held for i in range(first, first + count)) == [
        *range(length)
    ]
    for rank, (first, count) in zip(members, held, strict=True):
        assert cells[rank][first : first + count] == [whole] * count
    doubled = halving_doubling.all_gather(ranks, length)
    later = [t._replace(step=t.step + 100) for t in doubled]
    assert play(halved + later, ranks, length) == [[whole] * length] * ranks


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_a_reduce_scatter_completes_chunk_r_plus_1_on_rank_r_and_no_other(ranks, length):
    cells = play(ring.reduce_scatter(ranks, length), ranks, length)
    for rank, row in enumerate(cells):
        complete = {i for i, cell in enumerate(row) if cell == Counter(range(ranks))}
        assert complete == set(owned(rank, ranks, length))


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_an_all_gather_spreads_chunk_r_plus_1_of_every_rank(ranks, length):
    cells = play(ring.all_gather(ranks, length), ranks, length)
    expected = [Counter()] * length
    for rank in range(ranks):
        for i in owned(rank, ranks, length):
            expected[i] = Counter([rank])
    assert cells == [expected] * ranks


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_in_a_step_a_rank_sends_once_and_receives_once_and_nothing_is_empty(ranks, length):
    for pattern in ALL_REDUCES:
        transfers = pattern.all_reduce(ranks, length)
        assert [t[:2] for t in transfers] == sorted(t[:2] for t in transfers)
        assert all(t.count > 0 and t.src != t.dst for t in transfers)
        senders = [(t.step, t.src) for t in transfers]
        receivers = [(t.step, t.dst) for t in transfers]
        if pattern is not direct:
            assert len(set(senders)) == len(set(receivers)) == len(transfers)


@settings(deadline=None)
@given(ranks=RANKS, length=LENGTHS)
def test_a_direct_exchange_never_sends_two_at_a_time_to_one_rank(ranks, length):
    rows = [[t.dst for t in direct.all_reduce(ranks, length) if t.src == r] for r in range(ranks)]
    assert all(len(set(together)) == ranks for together in zip(*rows, strict=True))


def test_an_all_to_all_sends_chunk_d_to_rank_d():
    assert [t[1:5] for t in direct.all_to_all(3, 6)] == [
        (0, 1, 2, 2), (0, 2, 4, 2), (1, 2, 4, 2), (1, 0, 0, 2), (2, 0, 0, 2), (2, 1, 2, 2),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="length=7 cannot be exchanged by 3 ranks: use a multiple"):
        direct.all_to_all(3, 7)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 6, 7, 8, 9])
def test_steps_and_elements_are_those_of_the_cost(ranks):
    length = 72 * ranks
    lg, off = ranks.bit_length() - 1, ranks & (ranks - 1) != 0
    total = sum(elements_sent(ring.all_reduce(ranks, length), ranks))
    assert elements_sent(ring.all_reduce(ranks, length), ranks) == [total // ranks] * ranks
    for pattern, expected_steps, expected in (
        (ring, 2 * (ranks - 1), 2 * (ranks - 1) * length),
        (parameter_server, 2 * (ranks - 1), 2 * (ranks - 1) * length),
        (tree, 2 * (ranks - 1).bit_length(), 2 * (ranks - 1) * length),
        (butterfly, lg + 2 * off, (lg * 2**lg + 2 * (ranks - 2**lg)) * length),
        (
            halving_doubling,
            2 * lg + 2 * off,
            (2 * (2**lg - 1) + 2 * (ranks - 2**lg)) * length,
        ),
        (direct, int(ranks > 1), ranks * (ranks - 1) * length),
        (hierarchical, 2 * (ranks - 1), 2 * (ranks - 1) * length),
    ):
        transfers = pattern.all_reduce(ranks, length)
        assert steps(transfers) == expected_steps
        assert sum(elements_sent(transfers, ranks)) == expected


def test_a_hierarchy_sends_one_tensor_in_each_direction_across_the_link_between_two_nodes():
    nodes = [[0, 1, 2], [3, 4, 5]]
    transfers = hierarchical.all_reduce(6, 60, nodes)
    assert steps(transfers) == 2 * 2 + 2 * 1
    assert sum(t.count for t in transfers if t.src < 3 <= t.dst) == 60
    assert sum(t.count for t in transfers if t.dst < 3 <= t.src) == 60


def test_a_hierarchy_of_unequal_nodes_folds_what_is_more_than_the_smallest():
    rows = hierarchical.all_reduce(5, 4, [[0, 1], [2, 3, 4]])
    folded = [t for t in rows if 4 in (t.src, t.dst)]
    assert folded == [Transfer(0, 4, 2, 0, 4, "sum"), Transfer(5, 2, 4, 0, 4, "copy")]


def test_the_ring_of_three_ranks_is_the_one_on_paper():
    rows = [(t.step, t.src, t.dst, t.offset, t.count, t.op) for t in ring.all_reduce(3, 7)]
    assert rows == [
        (0, 0, 1, 0, 2, "sum"), (0, 1, 2, 2, 2, "sum"), (0, 2, 0, 4, 3, "sum"),
        (1, 0, 1, 4, 3, "sum"), (1, 1, 2, 0, 2, "sum"), (1, 2, 0, 2, 2, "sum"),
        (2, 0, 1, 2, 2, "copy"), (2, 1, 2, 4, 3, "copy"), (2, 2, 0, 0, 2, "copy"),
        (3, 0, 1, 0, 2, "copy"), (3, 1, 2, 2, 2, "copy"), (3, 2, 0, 4, 3, "copy"),
    ]  # fmt: skip


def test_the_halvings_and_doublings_of_four_ranks_are_those_on_paper():
    rows = [t[:5] for t in halving_doubling.all_reduce(4, 8)]
    assert rows == [
        (0, 0, 1, 4, 4), (0, 1, 0, 0, 4), (0, 2, 3, 4, 4), (0, 3, 2, 0, 4),
        (1, 0, 2, 2, 2), (1, 1, 3, 6, 2), (1, 2, 0, 0, 2), (1, 3, 1, 4, 2),
        (2, 0, 2, 0, 2), (2, 1, 3, 4, 2), (2, 2, 0, 2, 2), (2, 3, 1, 6, 2),
        (3, 0, 1, 0, 4), (3, 1, 0, 4, 4), (3, 2, 3, 0, 4), (3, 3, 2, 4, 4),
    ]  # fmt: skip


def test_the_tree_of_seven_ranks_is_the_one_on_paper():
    assert [t[:3] for t in tree.reduce(7, 1)] == [
        (0, 1, 0), (0, 3, 2), (0, 5, 4), (1, 2, 0), (1, 6, 4), (2, 4, 0),
    ]  # fmt: skip
    assert [t[:3] for t in tree.broadcast(7, 1)] == [
        (0, 0, 4), (1, 0, 2), (1, 4, 6), (2, 0, 1), (2, 2, 3), (2, 4, 5),
    ]  # fmt: skip


def test_six_ranks_fold_to_four_for_the_butterfly():
    assert [t[:3] for t in butterfly.all_reduce(6, 1)] == [
        (0, 0, 1), (0, 2, 3),
        (1, 1, 3), (1, 3, 1), (1, 4, 5), (1, 5, 4),
        (2, 1, 4), (2, 3, 5), (2, 4, 1), (2, 5, 3),
        (3, 1, 0), (3, 3, 2),
    ]  # fmt: skip


def test_the_server_takes_and_gives_one_message_at_a_time():
    rows = [
        (t.step, t.src, t.dst, t.offset, t.count, t.op)
        for t in parameter_server.all_reduce(3, 7, server=1)
    ]
    assert rows == [
        (0, 0, 1, 0, 7, "sum"), (1, 2, 1, 0, 7, "sum"),
        (2, 1, 0, 0, 7, "copy"), (3, 1, 2, 0, 7, "copy"),
    ]  # fmt: skip


def test_a_size_that_there_is_not_is_refused():
    for pattern in ALL_REDUCES:
        with pytest.raises(ValueError, match="ranks=0 cannot hold a collective: use 1 or more"):
            pattern.all_reduce(0, 8)
        with pytest.raises(
            ValueError, match="length=-1 is not a number of elements: use 0 or more"
        ):
            pattern.all_reduce(2, -1)
    with pytest.raises(ValueError, match="server=4 is not one of 4 ranks: use 0 to 3"):
        parameter_server.all_reduce(4, 8, server=4)
    with pytest.raises(ValueError, match="root=4 is not one of 4 ranks: use 0 to 3"):
        tree.broadcast(4, 8, root=4)
    with pytest.raises(
        ValueError, match=r"nodes=\[\[0\], \[0\]\] does not hold 2 ranks: name each"
    ):
        hierarchical.all_reduce(2, 8, [[0], [0]])
