"""Whose contributions a cell holds is read from its contents, whatever the program did to it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dlviz.analysis.contributions import MARKED, UNKNOWN, origins, plain, snapshots
from dlviz.machine import classroom
from dlviz.sim import collective
from dlviz.viz import decode, encode

SIZES = {n: 5 for n in range(1, 7)} | {7: 4, 8: 4} | {n: 3 for n in range(9, 14)}


def values(ranks, length):
    """What each cell of each rank starts with: (ranks, cells)."""
    return np.array([encode(rank, ranks, length) for rank in range(ranks)])


@pytest.mark.parametrize("ranks", range(1, 14))
def test_a_sum_of_any_ranks_decodes_to_those_ranks(ranks):
    most = min(ranks, SIZES[ranks] - 1)
    times = np.random.default_rng(ranks).integers(0, most + 1, (ranks, 80))  # of each in each cell
    times[:, 0], times[:, 1] = most, 1  # the largest sum that can be read, and the right one
    held = (values(ranks, 80) * times).sum(axis=0)
    np.testing.assert_array_equal(decode(held, ranks), times.T)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_no_sum_in_which_another_cells_value_is_passes_for_the_cells_own(ranks):
    """Each rank's value up to n times: of one other cell (alone and on top of the cell's own), and
    of several."""
    random, length = np.random.default_rng(ranks), 36
    own = values(ranks, length)
    for _ in range(400):
        cells = random.choice(length, random.integers(1, 5), replace=False)
        counts = np.zeros((ranks, length), np.int64)
        for rank in range(ranks):
            for _ in range(random.integers(0, ranks + 1)):
                counts[rank, random.choice(cells)] += 1
        held = (own * counts).sum()
        decoded = decode(np.full(length, held), ranks)
        inside = counts.any(axis=0)
        for cell in range(length):
            strangers = inside.copy()
            strangers[cell] = False
            assert (decoded[cell] == UNKNOWN).all() or not strangers.any()


@pytest.mark.parametrize("ranks", range(1, 9))
def test_no_value_of_another_cell_times_up_to_n_passes_for_the_cells_own(ranks):
    own, length = values(ranks, 40)[:, :MARKED], MARKED
    for times in range(1, ranks + 1):
        for rank in range(ranks):
            for shift in range(1, length):
                alone = times * np.roll(own[rank], shift)
                assert (decode(alone, ranks) == UNKNOWN).all()
                assert (decode(alone + own[0], ranks) == UNKNOWN).all()


@pytest.mark.parametrize("ranks", range(1, 14))
def test_marks_prove_it_for_every_sum_that_is_exact(ranks):
    """The mark of a sum gives its number of values and the sums of two coordinates, whose points
    turn in one direction all along: none is a mean of others."""
    times = ranks if ranks <= 8 else 3
    own = values(ranks, MARKED)
    whole = np.floor(own)
    marks = (own - whole)[0]
    np.testing.assert_array_equal(own - whole, np.tile(marks, (ranks, 1)))  # all ranks the same
    unit = np.gcd.reduce((marks * 2.0**52).astype(np.int64)) / 2.0**52
    assert (times * own.sum(axis=0)).max() / unit <= 2**53  # exact, in whatever order
    assert ranks * times * marks.max() < 1  # never carried over into the whole number
    scaled = (marks / unit).astype(np.int64)
    points, one = np.divmod(scaled, ranks * times + 1)
    height, across = np.divmod(points, (MARKED - 1) * ranks * times + 1)
    assert (one == 1).all() and across.tolist() == list(range(MARKED))
    assert (np.diff(height, 2) > 0).all()


def test_a_value_added_more_often_than_a_cell_can_count_is_no_sum():
    for ranks, base in SIZES.items():
        own = np.array(encode(ranks - 1, ranks, 9))
        base = min(base, ranks + 1)
        assert (decode((base - 1) * own, ranks)[:, -1] == base - 1).all()
        assert (decode(base * own, ranks) == UNKNOWN).all()


def test_a_contribution_counted_twice_shows_as_two():
    held = np.array(encode(0, 4, 6)) + 2 * np.array(encode(2, 4, 6))
    assert decode(held, 4).tolist() == [[1, 0, 2, 0]] * 6


@pytest.mark.parametrize(
    "value", [0.5, -2.0, np.nan, np.inf, -np.inf, 2.0**53, 3.0 * 5**4, 1e300, 7.0, 3.0]
)
def test_contents_that_are_no_sum_decode_to_nothing(value):
    held = np.array(encode(1, 4, 8))
    held[2] = value  # cell 2 holds multiples of 3, with its mark
    counts = decode(held, 4)
    assert counts[2].tolist() == [-1] * 4
    assert np.delete(counts, 2, axis=0).tolist() == [[0, 1, 0, 0]] * 7


@pytest.mark.parametrize("ranks", range(2, 14))
def test_an_average_is_no_sum(ranks):
    mean = values(ranks, 40).sum(axis=0) / ranks
    assert (decode(mean, ranks) == UNKNOWN).all()
    assert (decode(values(ranks, 40)[0] / 2, ranks) == UNKNOWN).all()


def test_a_strange_value_is_traced_to_the_cell_that_it_comes_from():
    own = values(4, 12)
    alone, added = own[3].copy(), own.sum(axis=0)
    alone[:3] = own[2, 9:]
    added[3:6] += own[1, 6:9] + own[3, 6:9]
    added[7] += 3 * own[0, 1]
    assert origins(alone, 4).tolist() == [9, 10, 11] + [-1] * 9
    assert origins(added, 4).tolist() == [-1] * 3 + [6, 7, 8] + [-1, 1] + [-1] * 4
    added[4] += own[0, 0]
    assert origins(added, 4)[4] == -1  # two other cells: neither is reported
    assert Counter(origins(own.sum(axis=0) / 4, 4).tolist()) == {-1: 12}
    assert Counter(origins(np.array([0.5, np.nan, np.inf, -1, 1e300]), 4).tolist()) == {-1: 5}
    assert origins(own[0].astype(np.float32), 4).tolist() == [-1] * 12


@pytest.mark.parametrize("ranks", [2, 4, 8, 13])
def test_numbers_are_shown_without_their_marks_and_all_others_as_they_are(ranks):
    own = values(ranks, 9)
    sums = plain(own.sum(axis=0), ranks)
    assert sums.tolist() == [sums[0] * (1 + i % 7) for i in range(9)]
    odd = [0.5, 3.3, 1e300, -1.0]
    assert plain(np.array(odd), ranks).tolist() == odd
    assert plain(-own[1], ranks).tolist() == (-np.floor(own[1])).tolist()
    assert np.isnan(plain(np.array([np.nan]), ranks)).all()
    assert plain(np.array([3, 4]), ranks).dtype == np.int64


def test_float32_decodes_to_seven_ranks_and_says_nothing_where_it_cannot_hold_the_sum():
    for ranks in (2, 4, 7):
        total = sum(np.array(encode(rank, ranks, 7), np.float32) for rank in range(ranks))
        assert (decode(total, ranks) == 1).all()
    large = np.array([2.0**24, 2.0**24 - 2], np.float32)
    assert (decode(large, 13)[0] == UNKNOWN).all()
    half = np.array(encode(0, 4, 8), np.float32) / 2
    assert (decode(half, 4)[::2] == UNKNOWN).all()


def test_integer_buffers_decode():
    assert decode(np.array(encode(3, 4, 5)).astype(np.int64), 4)[:, 3].tolist() == [1] * 5


def test_an_empty_buffer_has_no_cells():
    assert decode(np.array([]), 4).shape == (0, 4) and origins(np.array([]), 4).shape == (0,)


def test_more_ranks_than_a_number_can_hold_are_refused():
    with pytest.raises(ValueError, match="ranks=14: the contributions of at most 13 ranks"):
        encode(0, 14, 4)
    with pytest.raises(ValueError, match="ranks=0: .* Use 1 to 13 ranks"):
        decode(np.zeros(4), 0)
    with pytest.raises(ValueError, match="rank=4 is not one of 4 ranks: use 0 to 3"):
        encode(4, 4, 4)


def test_snapshots_add_each_message_in_the_order_received():
    trace = collective("parameter_server", 3, 3, classroom(3))
    trace.messages.wall_received[:] = trace.messages.received
    held = [*values(3, 3)]
    shots = snapshots(trace, held)
    counts = [decode(shot["array"], 3)[0].tolist() for shot in shots if shot["rank"] == 0]
    assert counts[0] == [1, 0, 0] and sum(counts[1]) == 2 and counts[2:] == [[1, 1, 1]]
    assert [shot["index"] for shot in shots] == [*range(3 + 2 + 2)]
    for shot in shots[-2:]:
        assert (decode(shot["array"], 3) == 1).all()
    np.testing.assert_array_equal(held, values(3, 3))


def test_in_snapshots_the_messages_of_a_step_carry_what_was_held_before_it():
    trace = collective("butterfly", 2, 1, classroom(2))
    trace.messages.wall_received[:] = [1.0, 2.0]
    shots = snapshots(trace, [*values(2, 1)])
    assert [decode(shot["array"], 2)[0].tolist() for shot in shots] == [
        [1, 0], [0, 1], [1, 1], [1, 1],
    ]  # fmt: skip
