"""What a cut convolution moves: pixels that a rank's outputs read and it does not own, one by one;
the formulas of channels, filters and the weird trick against worked numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlviz.sim import (
    channel_filter_words,
    halo_cells,
    halo_rows,
    one_weird_trick,
    segmented_share,
    weird_trick_wins_below,
)


def received(length, ranks, kernel, stride, dilation, padding):
    """For each rank its own rows, and the rows of the image from the first to the last that its
    outputs read."""
    outputs = (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    assume(outputs > 0)
    found = []
    for rows, own in zip(
        np.array_split(np.arange(outputs), ranks),
        np.array_split(np.arange(length), ranks),
        strict=True,
    ):
        read = {r * stride - padding + dilation * k for r in rows.tolist() for k in range(kernel)}
        span = {*range(min(read), max(read) + 1)} if read else set()
        found.append(({*own.tolist()}, span & {*range(length)}))
    return found


SIZES = st.tuples(
    st.integers(1, 8), st.integers(1, 7), st.integers(1, 3), st.integers(1, 2), st.integers(0, 7)
)


@given(st.integers(1, 24), SIZES)
def test_halo_rows_are_those_that_a_rank_reads_and_does_not_own(rows, sizes):
    for (own, read), (above, below) in zip(
        received(rows, *sizes), halo_rows(rows, *sizes), strict=True
    ):
        low = min(own, default=rows)  # an empty block is the last one
        assert above == len({row for row in read - own if row < low})
        assert below == len({row for row in read - own if row > low})


@given(st.integers(1, 14), st.integers(1, 14), st.integers(1, 4), SIZES)
def test_halo_cells_are_those_that_a_rank_reads_and_does_not_own(height, width, down, sizes):
    across, *window = sizes
    expected = []
    for own_rows, rows in received(height, down, *window):
        for own_columns, columns in received(width, across, *window):
            cells = {(row, column) for row in rows for column in columns}
            expected.append(len(cells - {(r, c) for r in own_rows for c in own_columns}))
    assert halo_cells(height, width, (down, across), *window) == expected


@pytest.mark.parametrize(("kernel", "share"), [(3, 0.25), (7, 0.75)])
def test_the_halo_of_64_rows_on_8_ranks_grows_with_the_kernel(kernel, share):
    inner = halo_rows(64, 8, kernel, padding=kernel // 2)[1:-1]
    assert {(above + below) / 8 for above, below in inner} == {share}


def test_2_x_2_blocks_receive_half_of_an_inner_strip_and_a_corner():
    assert halo_cells(64, 64, (4, 1), 3, padding=1) == [64, 128, 128, 64]
    assert halo_cells(64, 64, (2, 2), 3, padding=1) == [65] * 4


def test_with_a_stride_a_rank_receives_rows_from_one_side():
    assert halo_rows(16, 2, 3, stride=2, padding=1) == [(0, 0), (1, 0)]
    assert halo_rows(16, 2, 2) == [(0, 1), (0, 0)]  # an even kernel


def test_a_kernel_larger_than_the_padded_image_is_refused():
    with pytest.raises(ValueError, match="spans 7 rows and the padded image has 6: use a smaller"):
        halo_rows(4, 2, 4, dilation=2, padding=1)
    for name in ("stride", "dilation"):
        with pytest.raises(ValueError, match=f"{name}=0 has to be a whole number, 1 or more"):
            halo_rows(4, 2, 3, **{name: 0})


@pytest.mark.parametrize(
    ("ranks", "alone", "both"), [(4, Fraction(3, 4), Fraction(1, 2)),
                                 (16, Fraction(15, 16), Fraction(6, 16))],
)  # fmt: skip
def test_words_of_x_or_y_alone_and_of_both_on_a_square_of_ranks(ranks, alone, both):
    side = int(ranks**0.5)
    image = 3 * 32 * 8 * 8  # of x, and of y
    for p_f, p_c, share in ((ranks, 1, alone), (1, ranks, alone), (side, side, both)):
        assert channel_filter_words(3, 32, 32, 8, 8, p_f, p_c) == image * share
    np.testing.assert_array_equal(
        channel_filter_words(1, 2, 4, 1, 1, [1, 2, 4], [4, 2, 1]), [3, 1.5, 1.5]
    )


def test_a_segmented_all_reduce_sends_less_than_one_over_all_ranks():
    assert segmented_share(4, 2) == 0.75
    assert segmented_share(8, 1) == 1.75
    assert segmented_share(1, 8) == 0


@pytest.mark.parametrize(
    ("activations", "parameters", "ranks", "most"),
    [(2048, 263_562, 4, 32), (9216, 58_631_144, 8, 795)],
)
def test_the_trick_sends_less_up_to_so_many_images_on_a_worker(
    activations, parameters, ranks, most
):
    assert int(weird_trick_wins_below(activations, parameters, ranks)) == most
    for batch, wins in ((most, True), (most + 1, False)):
        hybrid, data = one_weird_trick(batch, activations, parameters, ranks)
        assert (hybrid < data) == wins


def test_a_whole_step_of_the_small_net_sends_a_seventh_of_data_parallel():
    hybrid, data = one_weird_trick(4, 2048, 263_562, 4)
    convolutions = 2 * 3 / 4 * 4 * 7120  # all-reduced in both
    assert round((hybrid + convolutions) / 1e3) == 239
    assert round((data + convolutions) / 1e3) == 1624
    assert weird_trick_wins_below(2048, 263_562, 1) == 0
