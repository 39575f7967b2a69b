"""What a rank held by use, and at its peak; intervals joined."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.analysis.columns import joined
from dlviz.analysis.memory import Peak, held, held_by_use, peak_by_use
from dlviz.trace import Trace

ROWS = [(0.0, "a", 4), (1.0, "b", 3), (2.0, "a", 1), (2.0, "b", 5), (4.0, "b", 0)]
STEPS = [(0, 0.5, 1.5), (1, 2.5, 3.0), (2, 4.5, 5.0)]


def trace(clock="paced"):
    which = "wall_" if clock == "wall" else ""  # the other clock's times mislead
    other = {"start": 9.0, "end": 9.0, "wall_start": 9.0, "wall_end": 9.0}
    spans = [
        {"rank": 0, "kind": "phase", "step": step, **other, f"{which}start": a, f"{which}end": b}
        for step, a, b in STEPS
    ]
    memory = [{"rank": 0, "time": t, "what": what, "nbytes": n} for t, what, n in ROWS]
    return Trace(spans, memory=memory, meta={"clock": clock, "ranks": 2})


def test_uses_are_held_at_the_same_times_and_sum_to_what_is_held():
    time, levels = held_by_use(trace(), 0)
    assert time.tolist() == [0, 1, 2, 4]
    assert {use: own.tolist() for use, own in levels.items()} == {
        "a": [4, 4, 1, 1], "b": [0, 3, 5, 0],
    }  # fmt: skip
    one, other = held(trace())
    np.testing.assert_array_equal(one.level, levels["a"] + levels["b"])
    assert not len(other.time) and held_by_use(trace(), 1)[1] == {}


@pytest.mark.parametrize("clock", ["paced", "wall"])
def test_a_peak_is_of_the_whole_run_or_of_what_was_held_during_a_step(clock):
    run = trace(clock)
    assert peak_by_use(run, 0) == Peak(7, {"a": 4, "b": 3}, {"a": 4, "b": 5})
    assert peak_by_use(run, 0, 0) == Peak(7, {"a": 4, "b": 3}, {"a": 4, "b": 3})
    assert peak_by_use(run, 0, 1) == Peak(6, {"a": 1, "b": 5}, {"a": 1, "b": 5})  # from before
    assert peak_by_use(run, 0, 2) == Peak(1, {"a": 1, "b": 0}, {"a": 1, "b": 0})
    assert peak_by_use(run, 1) == Peak(0, {}, {})
    with pytest.raises(ValueError, match="rank 0 has no span of step 3: use another step, or None"):
        peak_by_use(run, 0, 3)


def test_intervals_less_than_a_gap_apart_are_joined():
    start, end = np.array([0.0, 1.0, 1.2, 3.0]), np.array([1.0, 2.0, 1.4, 4.0])
    first, ends = joined(start, end, 0.5)
    assert first.tolist() == [0, 3] and ends.tolist() == [2.0, 4.0]
    first, ends = joined(start, end, -1e-9)  # those that only touch stay apart
    assert first.tolist() == [0, 1, 3] and ends.tolist() == [1.0, 2.0, 4.0]
    assert [len(each) for each in joined(start[:0], end[:0], 1.0)] == [0, 0]
