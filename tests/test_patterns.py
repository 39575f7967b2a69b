"""A pattern, played on lists of numbers, ends where its collective should."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz.patterns import Transfer, elements_sent, parameter_server, ring, steps

RANKS = st.integers(1, 9)
LENGTHS = st.integers(0, 40)


def play(transfers: list[Transfer], ranks: int, length: int) -> list[list[Counter]]:
    """What each element of each rank ends up holding: how often the value of each rank is in it.

    All transfers of a step carry what their senders held when the step began.
    """
    cells = [[Counter({rank: 1}) for _ in range(length)] for rank in range(ranks)]
    for _, together in groupby(transfers, key=lambda transfer: transfer.step):
        before = [[Counter(cell) for cell in row] for row in cells]
        for t in together:
            for i in range(t.offset, t.offset + t.count):
                kept = cells[t.dst][i] if t.op == "add" else Counter()
                cells[t.dst][i] = kept + before[t.src][i]
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
    assert play(ring.all_reduce(ranks, length), ranks, length) == all_once
    assert play(parameter_server.all_reduce(ranks, length, server), ranks, length) == all_once


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
    for pattern in (ring, parameter_server):
        transfers = pattern.all_reduce(ranks, length)
        assert transfers == sorted(transfers)
        assert all(t.count > 0 and t.src != t.dst for t in transfers)
        senders = [(t.step, t.src) for t in transfers]
        receivers = [(t.step, t.dst) for t in transfers]
        assert len(set(senders)) == len(set(receivers)) == len(transfers)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 6, 7])
def test_steps_and_elements_are_those_of_the_cost(ranks):
    length = 10 * ranks
    around = ring.all_reduce(ranks, length)
    assert steps(around) == 2 * (ranks - 1)
    assert elements_sent(around, ranks) == [2 * (ranks - 1) * length // ranks] * ranks
    served = parameter_server.all_reduce(ranks, length)
    assert steps(served) == 2 * (ranks - 1)
    assert elements_sent(served, ranks) == [(ranks - 1) * length] + [length] * (ranks - 1)


def test_the_ring_of_three_ranks_is_the_one_on_paper():
    rows = [(t.step, t.src, t.dst, t.offset, t.count, t.op) for t in ring.all_reduce(3, 7)]
    assert rows == [
        (0, 0, 1, 0, 2, "add"), (0, 1, 2, 2, 2, "add"), (0, 2, 0, 4, 3, "add"),
        (1, 0, 1, 4, 3, "add"), (1, 1, 2, 0, 2, "add"), (1, 2, 0, 2, 2, "add"),
        (2, 0, 1, 2, 2, "copy"), (2, 1, 2, 4, 3, "copy"), (2, 2, 0, 0, 2, "copy"),
        (3, 0, 1, 0, 2, "copy"), (3, 1, 2, 2, 2, "copy"), (3, 2, 0, 4, 3, "copy"),
    ]  # fmt: skip


def test_the_server_takes_and_gives_one_message_at_a_time():
    rows = [
        (t.step, t.src, t.dst, t.offset, t.count, t.op)
        for t in parameter_server.all_reduce(3, 7, server=1)
    ]
    assert rows == [
        (0, 0, 1, 0, 7, "add"), (1, 2, 1, 0, 7, "add"),
        (2, 1, 0, 0, 7, "copy"), (3, 1, 2, 0, 7, "copy"),
    ]  # fmt: skip


def test_a_size_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="ranks=0 cannot hold a collective: use 1 or more"):
        ring.all_reduce(0, 8)
    with pytest.raises(ValueError, match="length=-1 is no number of elements: use 0 or more"):
        parameter_server.all_reduce(2, -1)
    with pytest.raises(ValueError, match="server=4 is no rank of 4: use 0 to 3"):
        parameter_server.all_reduce(4, 8, server=4)
