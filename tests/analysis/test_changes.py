"""What changed from one Trace to another, held to sums over the spans."""

from __future__ import annotations

import pytest

from dlviz import metrics
from dlviz.analysis.changes import changes
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace


def test_kinds_and_idle_time_of_two_schedules_are_their_own_sums():
    costs = Costs(latency=0.5)
    sides = [simulate(make(name, 3, 5), costs) for name in ("1f1b", "zb_h1")]
    whole, *parts = changes(*sides, ("device", "device"))
    assert whole.what == "the whole"
    assert [whole.before, whole.after] == [metrics.makespan(side) for side in sides]
    found = {one.what: (one.before, one.after) for one in parts}
    for kind in {*sides[0].spans.kind, *sides[1].spans.kind}:
        for place, side in enumerate(sides):
            own = side.spans.kind == kind
            length = (side.spans.end[own] - side.spans.start[own]).sum() / 3
            assert found[kind][place] == pytest.approx(length)
    for place, side in enumerate(sides):
        busy = metrics.busy(side).mean()
        assert found["idle"][place] == pytest.approx(metrics.makespan(side) - busy)
    by = [abs(one.after - one.before) for one in parts]
    assert by == sorted(by, reverse=True)


def test_what_runs_inside_other_spans_or_only_holds_them_counts_once():
    span = {"rank": 0, "lane": "compute", "kind": "forward", "start": 0.0, "end": 2.0}
    inner = {**span, "start": 0.5, "end": 1.5}
    step = {**span, "kind": "step", "end": 4.0}
    (whole, *parts) = changes(Trace([step, span, inner]), Trace(), ("device", "device"))
    assert (whole.before, whole.after) == (4.0, 0.0)
    assert {one.what: one.before for one in parts} == {"forward": 2.0, "idle": 2.0}
