"""Rows of a Trace's tables, a Trace cut to ranks or to an interval and put together, and a Run in
its place."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from worked_traces import stages_that_communicate

import dlviz
from dlviz import Trace, metrics, viz, widgets
from dlviz.trace.trace import KINDS
from dlviz.viz import palette


def worker(comm):
    tensor = torch.full((6,), float(comm.rank))
    with comm.compute("forward", step=0):
        tensor += 1
    dlviz.collectives.all_reduce(comm, tensor)
    return tensor.tolist()


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(worker, ranks=3)


def test_a_table_is_its_rows_and_a_number_is_a_row(run):
    spans = run.trace.spans
    rows = list(spans)
    assert len(rows) == len(spans) and rows == list(spans.rows())
    assert spans[0] == rows[0] and spans[-1] == rows[-1] and spans[np.int64(1)] == rows[1]
    assert [row.kind for row in spans] == spans.kind.tolist()
    for beyond in (len(spans), -len(spans) - 1):
        with pytest.raises(IndexError, match=f"row {beyond} is beyond the {len(spans)} of this"):
            spans[beyond]
    frame = pd.DataFrame(spans)
    assert frame.kind.tolist() == spans.kind.tolist() and len(frame.columns) == len(spans.names)
    assert len(spans[[0, 1]]) == 2 and len(spans[spans.rank == 0]) and len(spans[[]]) == 0


def test_a_run_stands_for_its_trace(run):
    assert run.spans is run.trace.spans and metrics.makespan(run) == metrics.makespan(run.trace)
    assert metrics.bytes_sent(run).tolist() == metrics.bytes_sent(run.trace).tolist()
    for view in (viz.timeline, viz.breakdown, viz.traffic, viz.messages):
        assert view(run).to_json() == view(run.trace).to_json()
    for widget in (widgets.Timeline, widgets.MessagePlayer):
        assert widget(run).state == widget(run.trace).state
    with pytest.raises(AttributeError, match="a Run has no 'span': it has results, output, trace"):
        _ = run.span
    assert run == run and hash(run) and run != dlviz.cluster.Run([], [], None, 0.0)
    with pytest.raises(AttributeError, match="a Run has no 'spans'"):
        _ = dlviz.cluster.Run([], [], None, 0.0).spans


def test_ranks_that_were_cut_away_are_unknown_and_not_0(run):
    cut, whole = run.only(rank=[0, 2]), run.trace
    assert repr(cut).startswith("Trace(2 of 3 ranks, ") and repr(whole).startswith("Trace(3 ranks")
    for metric in (
        metrics.busy, metrics.bytes_sent, metrics.exposed_communication, metrics.idle_inside,
        metrics.peak_in_flight, lambda trace: metrics.breakdown(trace)["compute"],
    ):  # fmt: skip
        found, known = metric(cut), metric(whole)
        assert np.isnan(found).tolist() == [False, True, False]
        assert found[[0, 2]].tolist() == known[[0, 2]].tolist()
    assert 0 <= metrics.overlap(cut) <= 1


def test_memory_is_in_bytes_or_unknown_or_refused(run):
    assert all(map(math.isnan, metrics.peak_memory(run)))
    schedule = dlviz.schedules.make("1f1b", 2, 4)
    with pytest.raises(ValueError, match="is counted in microbatches: use peak_in_flight"):
        metrics.peak_memory(dlviz.simulate(schedule))


def test_only_takes_slices_ranges_and_an_interval():
    trace = stages_that_communicate()
    assert {*trace.only(rank=slice(1)).spans.rank} == {0}
    assert {*trace.only(rank=range(1, 2)).spans.rank} == {1}
    spans = trace.spans
    begin, end = np.median(spans.start), np.median(spans.end)
    begin, end = min(begin, end), max(begin, end) + 1e-3
    some = trace.only(time=(begin, end))
    inside = (spans.start < end) & (spans.end > begin)
    assert 0 < len(some.spans) == inside.sum() < len(spans)
    assert some.spans.start.tolist() == spans.start[inside].tolist()
    crossing = (trace.messages.sent < end) & (trace.messages.received > begin)
    assert len(some.messages) == crossing.sum()
    some.validate()


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"rank": 8}, "rank=8 is not one of this run's 8 ranks."),
        ({"rank": [0, -1]}, "rank=-1 is not one of this run's 8 ranks."),
        ({"kind": "typo"}, "kind='typo' is not in this Trace: it has "),
        ({"time": (2, 1)}, "time=(2, 1) ends before it begins."),
    ],
)
def test_what_is_not_in_a_trace_is_refused(chosen, says):
    with pytest.raises(ValueError) as error:
        stages_that_communicate().only(**chosen)
    assert str(error.value).startswith(says)


def test_a_known_kind_without_spans_is_no_mistake():
    assert {*KINDS} == {*palette.KINDS}
    assert len(stages_that_communicate().only(kind="lock").spans) == 0


def test_parts_are_put_together_to_what_they_were_cut_from(run):
    parts = [run.only(rank=rank) for rank in (2, 0, 1)]
    merged = Trace.merge(parts)
    merged.validate()
    assert merged.ranks == [0, 1, 2] and len(merged.messages) == len(run.messages)

    def plain(trace):  # rows of messages are numbered anew
        return sorted(map(str, (span._replace(flow=None) for span in trace.spans)))

    assert plain(merged) == plain(run) and sorted(merged.messages) == sorted(run.messages)
    assert metrics.bytes_sent(merged).tolist() == metrics.bytes_sent(run).tolist()
    assert metrics.makespan(merged) == metrics.makespan(run)
    for one in merged.spans:
        if one.flow is not None and one.kind == "send":
            assert merged.messages[one.flow].src == one.rank
    two = Trace.merge(parts[:2])
    unknown = np.isnan(metrics.bytes_sent(two)).tolist()
    assert two.ranks == [0, 2] and unknown == [False, True, False]
    with pytest.raises(ValueError, match="are not one run's"):
        Trace.merge([parts[0], parts[0]])


def test_messages_that_are_alike_stay_as_many():
    twice = {"src": 0, "dst": 1, "nbytes": 8, "sent": 0.0, "received": 1.0}
    trace = Trace(messages=[twice, twice, twice | {"tag": 1}], meta={"ranks": 3})
    assert len(Trace.merge(trace.only(rank=rank) for rank in range(3)).messages) == 3


def test_a_failure_has_the_waits_of_all_parts():
    never = {"kind": "recv", "start": 1.0, "end": 3.0, "fields": {"unfinished": True}}
    waits = [{"rank": r, "lane": "", "op": "recv", "peer": 1 - r, "since": 1.0} for r in (0, 1)]
    trace = Trace(
        [{"rank": rank, **never} for rank in (0, 1)],
        meta={
            "ranks": 2, "outcome": "failed",
            "failure": {"message": "They wait for ever.", "cycle": [0, 1], "waits": waits},
        },
    )  # fmt: skip
    merged = Trace.merge(trace.only(rank=rank) for rank in (0, 1))
    assert merged.meta["failure"]["waits"] == waits
    merged.validate()


def test_what_has_no_time_stays_unless_an_interval_is_chosen():
    trace = Trace(buffers=[{"rank": 0, "array": np.zeros(2)}], meta={"ranks": 1})
    assert len(trace.only(rank=0).buffers) == 1 and trace.only(time=(0, 1)).buffers == []


def test_parts_of_two_intervals_are_of_none():
    trace = stages_that_communicate()
    parts = trace.only(rank=0, time=(0, 5)), trace.only(rank=1, time=(0, 9))
    assert parts[1].meta["time"] == [0, 9] and "time" not in Trace.merge(parts).meta
    same = [trace.only(rank=rank, time=(0, 5)) for rank in (0, 1)]
    assert Trace.merge(same).meta["time"] == [0, 5]
