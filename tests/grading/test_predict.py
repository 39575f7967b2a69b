"""Predictions: frozen once opened, and how far off they were."""

import math

import pytest

from dlviz.grading import calibration, predict
from dlviz.grading.predict import _made


@pytest.fixture(autouse=True)
def fresh():
    _made.clear()
    yield
    _made.clear()


def test_a_prediction_can_change_until_its_result_is_opened():
    assert predict("messages", 12).value == 12
    assert predict("messages", 20).value == 20
    predict("messages", 20).compare(24)
    assert predict("messages", 24).value == 20


@pytest.mark.parametrize(
    ("value", "measured", "factor"),
    [(24, 24, 1), (12, 24, 2), (48, 24, 2), (0, 3, math.inf), (-1, 1, math.inf), (0, 0, 1)],
)
def test_the_error_factor_is_the_same_both_ways(value, measured, factor):
    assert predict("q", value).compare(measured).factor == factor


def test_what_is_shown_states_both_numbers_and_the_gap():
    shown = repr(predict("length of a step", 50, "ms").compare(55))
    assert "predicted 50 ms at" in shown and "measured 55 ms" in shown
    assert shown.endswith("off by a factor of 1.10")
    assert repr(predict("zero", 0, "ms").compare(5)).endswith("off by 5 ms")


def test_calibration_sums_up_what_was_opened():
    assert calibration() == "no prediction was compared yet"
    predict("a", 1).compare(2)
    predict("b", 8).compare(1)
    predict("unopened", 7)
    text = calibration()
    assert "unopened" not in text
    assert text.endswith("typically off by a factor of 4.00")


@pytest.mark.parametrize("value", [..., "many", math.nan, True, None])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="is no number"):
        predict("q", value)
