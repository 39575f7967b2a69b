"""Bytes of sufficient factors beside those of a ring all-reduce."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.machine import classroom
from dlviz.sim import collective, factor_bytes, factors_win_below


@pytest.mark.parametrize("ranks", [2, 3, 5, 7])
@pytest.mark.parametrize(("rows", "columns"), [(32, 64), (10, 128), (1, 1), (1000, 7)])
def test_factors_are_fewer_bytes_than_a_ring_below_the_bound_and_not_at_it(rows, columns, ranks):
    ring = collective("ring", ranks, 4 * rows * columns, classroom(ranks)).messages.nbytes.sum()
    bound = factors_win_below(rows, columns, ranks)
    for samples in range(2 * int(bound) + 3):
        fewer = ranks * factor_bytes(samples, rows, columns, ranks) < ring
        assert fewer == (samples < bound), samples


def test_a_layer_of_vgg_s_size_on_eight_ranks():
    assert factors_win_below(4096, 4096, 8) == 512
    assert factor_bytes(32, 4096, 4096, 8) == 7 * 32 * 8192 * 4  # 7.3 MB, where a ring sends 117


def test_one_rank_sends_nothing_and_wins_nothing():
    assert factor_bytes(8, 4, 4, 1) == 0 == factors_win_below(4, 4, 1)
    np.testing.assert_array_equal(factor_bytes(np.array([0, 1, 2]), 2, 3, 3), [0, 40, 80])


def test_samples_below_none_are_refused():
    with pytest.raises(ValueError, match="samples=-1 has to be a whole number, 0 or more"):
        factor_bytes(-1, 4, 4, 2)
