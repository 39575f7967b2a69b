"""Comparisons of a measured clock with a number, which may be made again.

    for attempt in attempts():
        with attempt:
            took = measure()
            assert took == pytest.approx(predicted, rel=0.01)

Other programs hold a measurement up once, but a wrong implementation fails each attempt. Inside
belongs only what the clock decides, and the measurement: anything else has to hold the first time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from types import TracebackType

import pytest

MOST = 8  # attempts
LIMIT = 120.0  # s for all of them
PAUSE = 0.5  # s after one that failed


class Attempt:
    failure: str | None = None

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: object, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        if isinstance(error, AssertionError):
            self.failure = str(error)
        return self.failure is not None


def attempts(most: int = MOST) -> Iterator[Attempt]:
    """Attempts until the assertions of one hold; fails with those of all attempts if none does."""
    failures: list[str] = []
    until = time.monotonic() + LIMIT
    while len(failures) < most and time.monotonic() < until:
        yield (attempt := Attempt())
        if attempt.failure is None:
            return
        failures.append(attempt.failure)
        time.sleep(PAUSE)
    pytest.fail("\n".join([f"none of {len(failures)} attempts holds:", *failures]))


def answered_within(seconds: float, code: str, controls: int) -> None:
    """`code`, in a Python of its own, prints "control:seconds" of a change of so many controls."""
    for attempt in attempts():
        run = subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
        )
        took = dict(line.split(":") for line in run.stdout.splitlines())
        assert len(took) == controls
        with attempt:
            assert max(map(float, took.values())) < seconds, took


CHANGED = """
import statistics, sys, time
from dlviz import widgets
explorer, took = {made}, []
for change in {changes}:
    began = time.process_time()
    assert explorer._change(change) is None
    took.append(time.process_time() - began)
assert "torch" not in sys.modules
print(statistics.median(took))
"""


def changed_within(seconds: float, made: str, changes: list[dict[str, object]]) -> None:
    """An explorer, `made` in a Python of its own as "widgets.ScalingExplorer()", say, answers the
    median of these changes in so many seconds of the processor, and loads no torch."""
    code = CHANGED.format(made=made, changes=changes)
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(run.stdout) < seconds
