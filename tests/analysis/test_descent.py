"""Losses in the order in which their batches were done, and what a run took to a target."""

from __future__ import annotations

import numpy as np
import pytest
from worked_traces import dealt, lockstep, worked

from dlviz import metrics
from dlviz.analysis.descent import running_mean


def test_batches_are_put_in_the_order_in_which_their_last_rank_was_done():
    trace = worked({1: [(0, 0.0, 4.0), (3, 4.0, 5.0)], 2: [(1, 0.0, 1.0), (2, 1.0, 2.0)]})
    table = metrics.descent(trace, [10, 11, 12, 13])
    assert table.step.tolist() == [1, 2, 0, 3] and table.loss.tolist() == [11, 12, 10, 13]
    assert table.seconds.tolist() == [2.0, 4.0, 8.0, 10.0]  # by the wall clock
    assert metrics.descent(trace, [10] * 4, clock="device").seconds.tolist() == [1, 2, 4, 5]
    shared = worked({0: [(0, 0.0, 1.0), (1, 1.0, 2.0)], 1: [(0, 0.0, 3.0), (1, 3.0, 4.0)]})
    assert metrics.descent(shared, [1, 2], clock="device").seconds.tolist() == [3, 4]


def test_a_batch_that_nobody_went_through_is_left_out():
    trace = worked({1: [(0, 0.0, 1.0), (2, 1.0, 2.0)]})
    assert metrics.descent(trace, [5.0, np.nan, 4.0]).step.tolist() == [0, 2]


def test_a_trace_without_batches_and_one_of_another_run_are_refused():
    with pytest.raises(ValueError, match="no phase with a step in which a rank computed"):
        metrics.descent(worked({1: []}), [1.0])
    with pytest.raises(ValueError, match="has batch 19 and there are 5 losses"):
        metrics.descent(lockstep(), [1.0] * 5)


def test_a_running_mean_is_that_of_the_last_few_and_none_before():
    values = np.array([4.0, 2.0, 6.0, np.inf, 1.0])
    np.testing.assert_array_equal(running_mean(values, 2), [np.nan, 3.0, 4.0, np.inf, np.inf])
    np.testing.assert_array_equal(running_mean(values, 1), values)
    assert np.isnan(running_mean(values, 6)).all()
    with pytest.raises(ValueError, match="over=0 has to be a whole number, 1 or more"):
        running_mean(values, 0)


def test_time_to_target_is_examples_to_target_over_the_speed_while_all_have_batches():
    """The slow worker's tail, in which the others are done, counts for neither."""
    trace = dealt(workers=4, batches=400, seconds=0.06, slow=3)
    order = metrics.descent(trace, [0.0] * 400).step
    losses = np.empty(400)
    losses[order] = np.linspace(2.0, 0.0, 400)  # falls with each batch that is done
    found = metrics.to_target(trace, losses, 1.2, examples=64, over=16, clock="device")
    assert found.examples_per_second == pytest.approx(64 * (3 / 0.06 + 1 / 0.18), rel=0.01)
    assert found.examples_to_target == pytest.approx(64 * (400 * 0.4 + 8), rel=0.01)
    assert found.seconds == pytest.approx(
        found.examples_to_target / found.examples_per_second, rel=0.02
    )


def test_examples_count_as_many_as_each_batch_has_and_the_batch_that_got_there_too():
    losses = [4.0, 3.0, 2.0, 1.0] + [0.0] * 16
    found = metrics.to_target(lockstep(), losses, 2.5, examples=[10, 20, 30, 40] * 5, over=2)
    assert found.examples_to_target == 10 + 20 + 30  # the mean of 3 and 2
    assert found.seconds == pytest.approx(2 * 0.3)
    assert found.examples_per_second == pytest.approx(500 / (2 * 2.0))


def test_a_run_that_never_gets_there_has_its_speed_and_else_nothing():
    speed, examples, seconds = metrics.to_target(lockstep(), [1.0] * 20, 0.5, examples=8)
    assert speed == pytest.approx(8 / 0.2) and np.isnan(examples) and np.isnan(seconds)
