"""What workers get done while all are at work, on a Trace made by hand."""

from __future__ import annotations

import pytest

from dlviz import Trace
from dlviz.analysis.waits import waits_until
from dlviz.analysis.workers import all_at_work, seconds_between_pushes, work_rate


def trace_of(*rows):
    """Spans (rank, kind, start, end, step); each step of a rank is a phase around its forward."""
    columns = ("rank", "kind", "start", "end", "step")
    spans = [{**dict(zip(columns, row, strict=True)), "lane": "compute"} for row in rows]
    return Trace(spans, meta={"clock": "simulated"})


def steps_of(rank, *ends, waits=()):
    begun, rows = 0.0, []
    for number, end in enumerate(ends):
        rows += [(rank, "phase", begun, end, number), (rank, "forward", begun, begun + 0.1, number)]
        rows.append((rank, "update", end - 0.1, end, number))
        begun = end
    return rows + [(rank, "wait", *interval, -1) for interval in waits]


UNEVEN = trace_of(
    *steps_of(0, 1.0, 2.0, 3.0, 4.0, waits=[(0.5, 1.5), (3.5, 4.5)]),
    *steps_of(1, 2.0, 5.0),
)


def test_all_are_at_work_from_the_slowest_first_step_to_the_fastest_last_one():
    assert all_at_work(UNEVEN) == (2.0, 4.0)
    assert all_at_work(UNEVEN, first=1) == (2.0, 5.0)


def test_gradients_and_waits_count_within_that_time_alone():
    work = work_rate(UNEVEN)
    assert work.rate == 1.0, "two updates of rank 0 in two seconds: that at 2 s has ended before"
    first, second = work.workers
    assert (first.rate, second.rate) == (1.0, 0.0)
    assert first.waiting == pytest.approx(0.25), "half a second of the wait that goes on"
    assert second.waiting == 0.0


def test_staleness_is_none_where_no_gradient_is_older_than_another():
    assert work_rate(UNEVEN).staleness is None


def test_a_wait_waits_all_along_and_what_does_not_wait_until_its_start():
    until, spans = waits_until(UNEVEN, "device"), UNEVEN.spans
    waiting = spans.kind == "wait"
    assert (until[waiting] == spans.end[waiting]).all()
    assert (until[~waiting] == spans.start[~waiting]).all()


def pushed(*moments, src=1, dst=0):
    own = {"src": src, "dst": dst, "nbytes": 4, "sent": 0.0}
    return [{**own, "arrived": at, "received": at} for at in moments]


def test_the_seconds_between_pushes_are_a_mean_over_those_that_the_server_received():
    messages = [*pushed(7.0, 1.0, 3.0), *pushed(2.0, src=2), *pushed(4.0, 5.0, src=0, dst=1)]
    trace = Trace([], messages, meta={"clock": "simulated", "ranks": 3})
    apart = seconds_between_pushes(trace)
    assert apart[1] == 3.0 and apart[2] != apart[2] and [*apart] == [1, 2]
    assert seconds_between_pushes(trace, after=1)[1] == 4.0
    assert seconds_between_pushes(trace, server=1)[0] == 1.0
