"""viz.staleness: the mean of each worker and of all, how often each value, the prediction n - 1."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.trace import Trace

# rank 1 pushes twice as often as rank 2; each is answered immediately; the last runs alone
ORDER = [1, 2, 1, 1, 2, 1, 1, 2]


def served(order=ORDER) -> Trace:
    spans, messages = [], []
    for number, worker in enumerate(order):
        times = {"start": float(number), "end": number + 0.5}
        spans.append({"rank": 0, "kind": "update", "peer": worker, **times})
        at = number + 0.6
        when = {"sent": at, "arrived": at, "received": at, "nbytes": 8}
        messages.append({"src": 0, "dst": worker, **when})
    return Trace(spans, messages, meta={"ranks": 1 + max(order)})


def test_bars_are_means_and_dots_are_shares():
    figure = viz.staleness(served())
    # of rank 1: 0, 1, 0, 1, 0; of rank 2: 1, 2
    bars = {bar.name: bar.x[0] for bar in figure.data if bar.type == "bar"}
    assert bars == {
        "rank 1: 0.40": pytest.approx(0.4),
        "rank 2: 1.50": pytest.approx(1.5),
        "all: 0.71": pytest.approx(5 / 7),
    }
    dots = {one.name.split(":")[0]: one for one in figure.data if one.type == "scatter"}
    assert dict(zip(dots["rank 1"].x, dots["rank 1"].customdata, strict=True)) == {0: 60, 1: 40}
    for one in dots.values():
        assert sum(one.customdata) == pytest.approx(100)
        assert np.argmax(one.marker.size) == np.argmax(one.customdata)
    table = viz.staleness_table(served())
    assert table["rank"].tolist() == [1, 2, "all"] and table.updates.tolist() == [5, 2, 7]
    np.testing.assert_allclose(table["mean"], [0.4, 1.5, 5 / 7])
    assert table.least.tolist() == [0, 1, 0] and table.most.tolist() == [1, 2, 2]


def test_the_prediction_is_one_less_than_the_workers_of_each_run():
    figure = viz.staleness({"two": served(), "three": served([1, 2, 3] * 4)})
    assert [shape.x0 for shape in figure.layout.shapes] == [1, 2]
    words = [each.text for each in figure.layout.annotations]
    assert words == ["n - 1 = 1", "<b>two</b>", "n - 1 = 2", "<b>three</b>"]


def test_rows_of_several_runs_and_their_names_do_not_touch():
    figure = viz.staleness({f"run {i}": served([1, 2, 3, 4] * 3) for i in range(2)})
    rows = [bar.y[0] for bar in figure.data if bar.type == "bar"]
    names = [each.y for each in figure.layout.annotations if each.text.startswith("<b>")]
    assert len(rows) == 10 and np.diff(sorted([*rows, *names])).min() > 0.7
    assert figure.layout.height <= 640
    assert sorted(figure.layout.yaxis.tickvals) == sorted(rows)


def test_a_run_without_a_server_is_refused():
    for trace in (Trace([]), Trace([{"rank": 0, "kind": "update", "start": 0.0, "end": 1.0}])):
        with pytest.raises(ValueError, match="no update of this Trace says whose gradient"):
            viz.staleness(trace)
        with pytest.raises(ValueError, match="no update of this Trace says whose gradient"):
            viz.staleness_table(trace)
