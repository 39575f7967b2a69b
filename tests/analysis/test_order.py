"""Predicted and measured order: pairs that agree, are tied, or are swapped."""

from __future__ import annotations

import pytest

from dlviz.analysis.order import order

PREDICTED = {"a": 1.0, "b": 2.0, "c": 2.05, "d": 4.0}


def test_each_pair_is_counted_once():
    found = order(PREDICTED, {"a": 10, "b": 30, "c": 20, "d": 15})
    assert found.agree == (("a", "b"), ("a", "c"), ("a", "d"))
    assert found.tied == (("b", "c"),)  # predicted within 5 %
    assert found.swapped == (("b", "d"), ("c", "d"))


def test_what_was_measured_within_5_percent_is_a_tie_and_just_beyond_it_is_not():
    for measured, swapped in ((105.0, ()), (105.1, (("x", "y"),))):
        assert order({"x": 1, "y": 2}, {"x": measured, "y": 100}).swapped == swapped
    assert order({"x": 1, "y": 2}, {"x": 105.1, "y": 100}, ties=0.06).tied == (("x", "y"),)


def test_units_do_not_matter_and_equal_orders_have_no_swap():
    found = order(PREDICTED, {name: 1000 * number for name, number in PREDICTED.items()})
    assert found.swapped == () and len(found.agree) + len(found.tied) == 6


def test_names_that_are_on_one_side_alone_are_refused():
    with pytest.raises(ValueError, match="'e' is only predicted or only measured"):
        order(PREDICTED, {**PREDICTED, "e": 1})
