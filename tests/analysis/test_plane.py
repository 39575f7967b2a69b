"""The plane in which vectors of many dimensions are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.analysis.plane import projected


def test_a_plane_preserves_lengths_and_angles_of_what_lies_in_it():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(50, 2)))[0]  # (50, 2)
    flat = rng.normal(size=(7, 2))
    points, share = projected({"a": flat[:4] @ basis.T, "b": flat[4:] @ basis.T})
    found = np.concatenate([points["a"], points["b"]])
    np.testing.assert_allclose(found @ found.T, flat @ flat.T, atol=1e-12)
    assert share == pytest.approx(1.0)


def test_the_share_is_that_of_the_squared_lengths_in_the_plane():
    points, share = projected({"a": np.diag([3.0, 2.0, 1.0])})
    assert share == pytest.approx(13 / 14)
    np.testing.assert_allclose(np.abs(points["a"]), [[3, 0], [0, 2], [0, 0]], atol=1e-12)
    assert projected({"a": [[3.0, 4.0]]})[1] == 1.0
