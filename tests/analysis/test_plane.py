"""The plane in which vectors of many dimensions are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.analysis.plane import beside_mean


def test_lengths_and_angles_to_the_mean_are_those_in_all_dimensions():
    vectors = np.random.default_rng(0).normal(size=(7, 50)) + 0.3
    drawn = beside_mean({"all": vectors, "twice": 2 * vectors})
    np.testing.assert_allclose(2 * drawn["all"], drawn["twice"])
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(np.linalg.norm(drawn["all"], axis=1), lengths)
    mean = vectors.mean(0)
    cosines = vectors @ mean / lengths / np.linalg.norm(mean)
    np.testing.assert_allclose(drawn["all"][:, 0] / lengths, cosines)
    assert drawn["all"][:, 0].mean() == pytest.approx(np.linalg.norm(mean))


def test_vectors_on_opposite_sides_of_their_mean_are_drawn_so():
    drawn = beside_mean({"pairs": [[1.0, 2, 0], [1, -2, 0], [1, 0, 0.5]]})["pairs"]
    np.testing.assert_allclose(np.abs(drawn), [[1, 2], [1, 2], [1, 0.5]], atol=0.2)
    assert drawn[0, 1] * drawn[1, 1] < 0
    opposite = beside_mean({"none": [[3.0, 0], [-3, 0]]})["none"]
    np.testing.assert_allclose(opposite[:, 0], 0, atol=1e-12)
    np.testing.assert_allclose(np.abs(opposite[:, 1]), 3)
