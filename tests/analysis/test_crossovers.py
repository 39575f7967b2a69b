"""Which algorithm to use from which size on; exact crossings are in tests/viz/test_viz_costs.py."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.crossovers import near_cheapest

SIZES = [100, 200, 300, 400]


def test_another_is_used_from_where_it_starts_to_cost_less():
    lines = {"short": np.array([1.0, 2.0, 4.0, 6.0]), "long": np.array([3.0, 3.0, 3.0, 3.0])}
    assert near_cheapest(SIZES, lines, 0.05) == [(100.0, "short"), (250.0, "long")]


def test_costs_a_hair_apart_make_no_change():
    near = np.array(SIZES) * 1e-9
    wave = near * (1 + 0.02 * np.array([1, -1, 1, -1]))
    found = near_cheapest(SIZES, {"one": near, "two": wave}, 0.05)
    assert found in ([(100.0, "one")], [(100.0, "two")])
    assert len(near_cheapest(SIZES, {"one": near, "two": wave}, 0.0)) > 1


def test_of_those_near_the_least_the_one_that_stays_near_for_longest_is_used():
    lines = {"brief": np.array([1.0, 9.0, 9.0, 9.0]), "lasting": np.array([1.04, 1.0, 1.0, 1.0])}
    assert near_cheapest(SIZES, lines, 0.05) == [(100.0, "lasting")]
    assert near_cheapest(SIZES, lines, 0.03)[0] == (100.0, "brief")
