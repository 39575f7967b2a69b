"""A run on a mesh by axis: lanes of its communication, and what takes its critical path."""

from __future__ import annotations

import pytest
from worked_traces import stages_that_communicate

from dlviz.analysis.by_axis import lanes, path
from dlviz.analysis.columns import COMMUNICATION, of_kinds
from dlviz.metrics import critical_path, makespan
from dlviz.trace import Table, Trace


def test_communication_lies_on_a_lane_of_its_axis_and_the_rest_stays_where_it_was():
    trace = stages_that_communicate()
    moved = lanes(trace)
    moved.validate()
    talks = of_kinds(trace.spans, COMMUNICATION)
    assert {*moved.spans.lane[talks].tolist()} == {"dp", "pp", "tp"}
    assert moved.spans.lane[~talks].tolist() == trace.spans.lane[~talks].tolist()
    for name in trace.spans.names:
        if name != "lane":
            assert moved.spans[name].tolist() == pytest.approx(
                trace.spans[name].tolist(), nan_ok=True
            ) if name in ("start", "end", "wall_start", "wall_end") else (
                moved.spans[name].tolist() == trace.spans[name].tolist()
            )  # fmt: skip
    for row, lane in enumerate(moved.spans.lane.tolist()):
        group = trace.spans.group[row] or trace.messages.group[trace.spans.flow[row]]
        if talks[row]:
            assert group.startswith(f"{lane} (")


def test_the_parts_of_the_critical_path_add_up_to_the_step():
    trace = stages_that_communicate()
    parts = path(trace, 0)
    assert sum(parts.values()) == pytest.approx(makespan(trace))
    spans = critical_path(trace)
    math = (spans.end - spans.start)[of_kinds(trace.spans, ("forward", "backward"))[spans.span]]
    assert parts["compute"] == pytest.approx(math.sum()) and parts["compute"] > 0


def test_the_seconds_in_which_a_message_is_in_transit_are_those_of_its_axis():
    """Rank 0's F 0..4 with a tp sum of 1, a message of 0.5 on to rank 2, its 20 with 4 sums of 1,
    0.5 back to rank 0's B of 6 with a sum of 1, and a bucket of 2: worked by hand."""
    assert path(stages_that_communicate(), 0) == pytest.approx(
        {"compute": 24.0, "tp": 6.0, "pp": 1.0, "dp": 2.0}
    )


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="step"):
        path(stages_that_communicate(), 7)


def test_lanes_by_axis_leave_the_critical_path_as_it_is():
    trace = stages_that_communicate()
    assert path(lanes(trace), 0) == pytest.approx(path(trace, 0))


def test_an_axis_of_length_1_has_no_lane():
    trace = stages_that_communicate()
    group, lane = trace.spans.group.copy(), trace.spans.lane
    first = int(of_kinds(trace.spans, COMMUNICATION).argmax())
    group[first] = f"cp ({trace.spans.rank[first]},)"
    spans = Table({**{name: trace.spans[name] for name in trace.spans.names}, "group": group})
    moved = lanes(Trace(spans, trace.messages, trace.memory, trace.buffers, trace.meta))
    assert moved.spans.lane[first] == lane[first]
    assert {*moved.spans.lane.tolist()} == {*lanes(trace).spans.lane.tolist()}
