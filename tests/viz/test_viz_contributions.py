"""Whose contributions a cell holds is read from its contents, whatever the program did to it."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.viz import decode, encode


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 13])
def test_a_sum_of_any_ranks_decodes_to_those_ranks(ranks):
    random = np.random.default_rng(ranks)
    times = random.integers(0, ranks + 1, (ranks, 40))  # how often each rank is added, per cell
    times[:, 0] = ranks  # the largest sum there is
    held = sum(np.array(encode(r, ranks, 40)) * times[r] for r in range(ranks))
    assert np.max(held) < 2**53
    np.testing.assert_array_equal(decode(held, ranks), times.T)


def test_a_contribution_counted_twice_shows_as_two():
    held = np.array(encode(0, 4, 6)) + 2 * np.array(encode(2, 4, 6))
    assert decode(held, 4).tolist() == [[1, 0, 2, 0]] * 6


@pytest.mark.parametrize(
    "value", [0.5, -2.0, np.nan, np.inf, -np.inf, 2.0**53, 3.0 * 5**4, 1e300, 7.0]
)
def test_contents_that_are_no_sum_decode_to_nothing(value):
    held = np.array(encode(1, 4, 8))
    held[2] = value  # cell 2 holds multiples of 3
    counts = decode(held, 4)
    assert counts[2].tolist() == [-1] * 4
    assert np.delete(counts, 2, axis=0).tolist() == [[0, 1, 0, 0]] * 7


def test_a_chunk_that_landed_one_cell_off_shows():
    moved = np.roll(encode(1, 4, 14), 1)
    assert not (decode(moved, 4) == [0, 1, 0, 0]).all(axis=1).any()


def test_an_average_is_not_taken_for_the_sum():
    total = sum(np.array(encode(rank, 4, 8)) for rank in range(4))
    assert (decode(total, 4) == 1).all()
    assert not (decode(total / 4, 4) == 1).all(axis=1).any()


def test_float32_decodes_to_seven_ranks_and_says_nothing_where_it_cannot_hold_the_sum():
    for ranks, known in ((7, True), (9, False)):
        total = sum(np.array(encode(rank, ranks, 7), np.float32) for rank in range(ranks))
        assert bool((decode(total, ranks) >= 0).all()) is known


def test_a_number_that_its_type_may_have_rounded_decodes_to_nothing():
    held = np.array([2.0**24 - 1, 0, 0, 0, 0, 0, 0, 2.0**24], np.float32)  # cells 0 and 7: c = 1
    assert (decode(held, 9)[[0, 7]] == -1).all(axis=1).tolist() == [False, True]
    assert (decode(held.astype(np.float64), 9) >= 0).all()


def test_integer_buffers_decode():
    assert decode(np.array(encode(3, 4, 5), np.int64), 4)[:, 3].tolist() == [1] * 5


def test_an_empty_buffer_has_no_cells():
    assert decode(np.array([]), 4).shape == (0, 4)


def test_more_ranks_than_a_number_can_hold_are_refused():
    with pytest.raises(ValueError, match="ranks=14: the contributions of at most 13 ranks"):
        encode(0, 14, 4)
    with pytest.raises(ValueError, match="ranks=0: .* Use 1 to 13 ranks"):
        decode(np.zeros(4), 0)
    with pytest.raises(ValueError, match="rank=4 is not one of 4 ranks: use 0 to 3"):
        encode(4, 4, 4)
