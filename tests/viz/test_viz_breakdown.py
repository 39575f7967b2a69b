"""The breakdown's bars are the numbers of dlviz.metrics and add up to the makespan."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import data_parallel

from dlviz import metrics
from dlviz.trace import Trace
from dlviz.viz import breakdown

NAMES = {
    "compute": "compute",
    "update": "update",
    "exposed communication": "communication",
    "data, compression, locks": "other",
    "idle": "idle",
}


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_bars_are_the_metric_and_stack_to_the_makespan(clock):
    trace = data_parallel(ranks=4, steps=2)
    figure = breakdown(trace, clock=clock)
    numbers = metrics.breakdown(trace, clock)
    assert [series.name for series in figure.data] == list(NAMES)
    for series in figure.data:
        assert list(series.y) == ["rank 0", "rank 1", "rank 2", "rank 3"]
        np.testing.assert_allclose(series.x, numbers[NAMES[series.name]] * 1e3, rtol=1e-12)
    assert figure.layout.xaxis.title.text.endswith("(ms)")
    total = sum(np.array(series.x) for series in figure.data)
    np.testing.assert_allclose(total, metrics.makespan(trace, clock) * 1e3)
    assert figure.layout.barmode == "stack"


def test_shares_are_written_in_the_bars_and_idle_is_hatched():
    figure = breakdown(data_parallel())
    idle = figure.data[-1]
    assert idle.name == "idle" and idle.marker.pattern.shape
    for rank in range(4):
        shares = [series.customdata[rank].rsplit(", ", 1)[1] for series in figure.data]
        assert sum(float(own.removesuffix("%")) for own in shares) == pytest.approx(100, abs=0.3)


def test_a_part_of_the_ranks_keeps_their_numbers():
    figure = breakdown(data_parallel().only(rank=[1, 3]))
    assert list(figure.data[0].y) == ["rank 1", "rank 3"]


def test_an_empty_trace_has_no_bars():
    figure = breakdown(Trace())
    assert all(len(series.x) == 0 for series in figure.data)
