"""Attempts of a comparison with a measured clock."""

from __future__ import annotations

import pytest
import timing
from timing import attempts


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(timing, "PAUSE", 0)


def test_the_first_attempt_that_holds_is_the_last():
    measured = iter((5, 3, 1, 0))
    for attempt in attempts():
        with attempt:
            assert (took := next(measured)) < 2
    assert took == 1 and next(measured) == 0


def test_what_never_holds_fails_with_the_values_of_every_attempt():
    measured = iter(range(100, 200))
    with pytest.raises(pytest.fail.Exception) as failed:
        for attempt in attempts():
            with attempt:
                assert next(measured) < 2
    assert f"none of {timing.MOST} attempts holds" in str(failed.value)
    measured = [n for n in range(100, 200) if f"{n} < 2" in str(failed.value)]
    assert measured == [*range(100, 100 + timing.MOST)]


def test_attempts_end_when_their_time_is_over(monkeypatch):
    monkeypatch.setattr(timing, "LIMIT", 0.05)
    monkeypatch.setattr(timing, "PAUSE", 0.1)
    with pytest.raises(pytest.fail.Exception, match="none of 1 attempts"):
        for attempt in attempts():
            with attempt:
                raise AssertionError


def test_an_error_is_no_measurement_and_ends_the_attempts():
    with pytest.raises(ValueError, match="no such"):
        for attempt in attempts():
            with attempt:
                raise ValueError("no such")
