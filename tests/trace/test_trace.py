"""The Trace: its columns, what it chooses, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.trace import Table, Trace, TraceError
from dlviz.trace.table import MEMORY, MESSAGES, SPANS


def span(rank=0, start=0.0, end=1.0, **more):
    return {"rank": rank, "lane": "compute", "kind": "forward", "start": start, "end": end, **more}


def message(src=0, dst=1, sent=0.0, received=1.0, **more):
    return {"src": src, "dst": dst, "nbytes": 8, "sent": sent, "received": received, **more}


def three_ranks() -> Trace:
    """Rank 0 computes and sends to rank 1 in step 0, rank 2 sends to rank 1 in step 1."""
    return Trace(
        spans=[
            span(0, 0, 1, step=0),
            span(0, 1, 2, kind="send", step=0, peer=1, flow=0),
            span(1, 0, 2, kind="recv", step=0, peer=0, flow=0),
            span(2, 2, 3, kind="send", step=1, peer=1, flow=1),
            span(1, 2, 3, kind="recv", step=1, peer=2, flow=1),
            span(1, 0, 3, lane="comm", kind="phase"),
        ],
        messages=[message(0, 1, 1.0, 2.0, step=0), message(2, 1, 2.0, 3.0, step=1)],
        memory=[{"rank": r, "time": 0.5, "what": "weights", "nbytes": 100} for r in range(3)],
        buffers=[{"rank": 1, "time": 2.0, "step": 0, "array": np.arange(4.0)}],
    )


# ---------------------------------------------------------------- tables


def test_table_columns_are_arrays_under_both_names():
    table = Table({"rank": [0, 1, 2], "kind": ["a", "b", "c"], "time": [0.5, None, 1]})
    assert table.names == ("rank", "kind", "time")
    assert len(table) == 3
    assert table["rank"] is table.rank
    assert table.rank.dtype == np.int64
    assert table.kind.dtype == object
    with pytest.raises(AttributeError, match="a table of rank, kind, time has no column 'colour'"):
        _ = table.colour


@pytest.mark.parametrize(
    "index", [np.array([True, False, True]), [0, 2], np.array([0, 2]), slice(0, 3, 2)]
)
def test_table_rows_are_chosen_by_mask_numbers_or_slice(index):
    table = Table({"rank": [5, 6, 7], "kind": ["a", "b", "c"]})[index]
    assert table.rank.tolist() == [5, 7]
    assert table.kind.tolist() == ["a", "c"]


def test_no_row_chosen_is_an_empty_table_of_the_same_columns():
    table = Trace([span()]).spans[[]]
    assert len(table) == 0
    assert table.names == tuple(SPANS)


def test_columns_of_a_table_have_one_length():
    with pytest.raises(ValueError, match="one length"):
        Table({"rank": [0, 1], "kind": ["a"]})


def test_missing_values_are_minus_one_nan_and_empty_in_columns_none_in_rows_na_in_frames():
    trace = Trace([span(step=None, wall_start=None, name=None)])
    assert trace.spans.step.tolist() == [-1]
    assert np.isnan(trace.spans.wall_start).all()
    assert trace.spans.name.tolist() == [""]
    assert trace.spans.depth.tolist() == [0]
    (row,) = trace.spans.rows()
    assert (row.step, row.wall_start, row.name, row.depth) == (None, None, "", 0)
    assert type(row.rank) is int and type(row.start) is float
    frame = trace.spans.frame()
    assert frame["step"].isna().all() and str(frame["step"].dtype) == "Int64"
    assert frame["wall_start"].isna().all()
    assert list(frame.columns) == list(SPANS)


def test_a_frame_is_a_copy():
    trace = Trace([span(step=3)])
    frame = trace.spans.frame()
    frame["step"] = 7
    frame.loc[0, "start"] = 0.5
    assert trace.spans.step.tolist() == [3]
    assert trace.spans.start.tolist() == [0.0]


def test_markup_in_a_name_is_text_in_a_notebook():
    page = Trace([span(name="<script>alert(1)</script>")]).spans._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# ---------------------------------------------------------------- making


def test_a_trace_takes_columns_rows_or_tables_alike():
    rows = [span(0, 0, 1, step=4), span(1, 0, 2)]
    columns = {
        "rank": np.array([0, 1]),
        "lane": ["compute"] * 2,
        "kind": ["forward"] * 2,
        "start": [0, 0],
        "end": [1.0, 2.0],
        "step": [4, None],
    }
    traces = [Trace(rows), Trace(columns), Trace(Trace(rows).spans), Trace(Table(columns))]
    for trace in traces:
        assert list(trace.spans.rows()) == list(traces[0].spans.rows())
        assert trace.spans.names == tuple(SPANS)
    assert Trace().messages.names == tuple(MESSAGES)
    assert Trace().memory.names == tuple(MEMORY)


def test_a_trace_copies_its_columns():
    start = np.array([0.0])
    trace = Trace({"rank": [0], "start": start, "end": [1.0]})
    start[0] = 9.0
    assert trace.spans.start.tolist() == [0.0]


def test_meta_is_filled_in_from_the_rows():
    trace = three_ranks()
    assert trace.meta["ranks"] == 3
    assert trace.meta["clock"] == "simulated"
    assert trace.meta["outcome"] == "completed"
    assert Trace([span(wall_start=0, wall_end=1)]).meta["clock"] == "wall"
    assert Trace(meta={"clock": "paced", "ranks": 4}).meta["clock"] == "paced"
    assert repr(trace) == "Trace(3 ranks, 6 spans, 2 messages, simulated clock, completed)"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([{**span(), "colour": 1}], "spans have no column 'colour'.*put anything else into fields"),
        ([span(step=2.5)], "the column step holds whole numbers, not 2.5"),
        ([span(step=True)], "the column step holds whole numbers, not True"),
        ([span(start="0")], "the column start holds numbers, not '0'"),
        ([span(), span(kind=7)], r"the column kind holds text, not 7 \(row 1\)"),
        ([span(fields=[1])], r"the column fields holds dicts, not \[1\]"),
        ([span(step=10**30)], "the column step holds a number beyond 64 bits"),
        ({"rank": [0], "start": [0.0, 1.0]}, "spans: the columns of a table need one length"),
        ({"rank": np.array([0.5])}, "the column rank holds whole numbers, not 0.5"),
    ],
)
def test_a_column_of_another_type_is_refused(rows, sentence):
    with pytest.raises(TraceError, match=sentence):
        Trace(rows)


def test_a_message_has_no_fields_to_point_to():
    with pytest.raises(
        TraceError, match="messages have no column 'colour': they have src, .*step.$"
    ):
        Trace(messages=[{**message(), "colour": 1}])


def test_a_buffer_is_a_flat_copy_of_what_was_watched():
    watched = np.arange(6.0).reshape(2, 3)
    trace = Trace(buffers=[{"rank": 0, "array": watched}], meta={"ranks": 1})
    watched[:] = 0
    (snapshot,) = trace.buffers
    assert snapshot["array"].tolist() == [0, 1, 2, 3, 4, 5]
    assert (snapshot["name"], snapshot["rank"], snapshot["step"]) == ("", 0, -1)
    with pytest.raises(TraceError, match="a buffer needs an array besides rank, name"):
        Trace(buffers=[{"rank": 0, "name": "grad"}])
    with pytest.raises(TraceError, match="buffers have no column 'colour': they have rank, name"):
        Trace(buffers=[{"colour": 0, "array": [1]}])
    with pytest.raises(TraceError, match="buffers: the column index holds whole numbers, not 0.5"):
        Trace(buffers=[{"index": 0.5, "array": [1]}])
    with pytest.raises(TraceError, match="array holds numbers, not object"):
        Trace(buffers=[{"array": np.array([object()])}])


# ---------------------------------------------------------------- choosing


def test_only_chooses_by_value_or_collection():
    trace = three_ranks()
    assert trace.only(rank=0).spans.kind.tolist() == ["forward", "send"]
    assert trace.only(rank=np.int64(0)).spans.kind.tolist() == ["forward", "send"]
    assert len(trace.only(rank=[0, 2]).spans) == 3
    assert trace.only(rank=range(1, 3), kind=("send", "recv")).spans.rank.tolist() == [1, 2, 1]
    assert trace.only(lane="comm").spans.kind.tolist() == ["phase"]
    assert trace.only(step=1).spans.rank.tolist() == [2, 1]
    assert len(trace.only().spans) == 6
    assert len(trace.only(kind="lock").spans) == 0


def test_only_retains_the_messages_memory_and_buffers_of_its_ranks():
    trace = three_ranks().only(rank=2)
    assert list(zip(trace.messages.src, trace.messages.dst, strict=True)) == [(2, 1)]
    assert trace.memory.rank.tolist() == [2]
    assert trace.buffers == []
    assert len(three_ranks().only(rank=1).messages) == 2
    assert len(three_ranks().only(rank=1).buffers) == 1
    assert len(three_ranks().only(step=0).messages) == 1
    assert three_ranks().only(step=1).buffers == []


def test_only_leaves_flow_pointing_at_its_message():
    trace = three_ranks().only(rank=2)
    assert trace.spans.flow.tolist() == [0]
    assert trace.messages.src[trace.spans.flow[0]] == 2
    assert three_ranks().only(rank=1, step=1).spans.flow.tolist() == [0]
    assert three_ranks().only(kind="forward").spans.flow.tolist() == [-1]
    assert three_ranks().spans.flow.tolist() == [-1, 0, 0, 1, 1, -1]


def test_only_remembers_whose_trace_it_is():
    trace = three_ranks()
    assert trace.ranks == [0, 1, 2]
    assert trace.only(rank=[2, 0]).ranks == [0, 2]
    assert trace.only(rank=[2, 0]).only(rank=[0, 1]).ranks == [0]
    assert trace.only(rank=2).meta["ranks"] == 3
    trace.only(rank=2).validate()


def stuck() -> Trace:
    """Ranks 0 and 1 wait for each other in step 1, on two lanes; rank 2 has finished."""
    never = {"kind": "recv", "step": 1, "fields": {"unfinished": True}}
    return Trace(
        [
            span(0, 0, 1, step=0),
            span(0, 1, 3, peer=1, **never),
            span(1, 1, 3, peer=0, **never | {"lane": "comm"}),
            span(2, 0, 1, step=0),
        ],
        meta={
            "outcome": "failed",
            "failure": {
                "message": "Deadlock: rank 0 waits for rank 1, which waits for rank 0.",
                "cycle": [0, 1],
                "waits": [
                    dict(rank=0, lane="compute", op="recv", peer=1, since=1.0),
                    dict(rank=1, lane="comm", op="recv", peer=0, since=1.0),
                ],
            },
        },
    )


@pytest.mark.parametrize(
    ("chosen", "waits", "cycle"),
    [
        ({}, [0, 1], [0, 1]),
        ({"rank": [0, 1]}, [0, 1], [0, 1]),
        ({"rank": [0, 2]}, [0], []),
        ({"lane": "comm"}, [1], []),
        ({"step": 1}, [0, 1], [0, 1]),
        ({"step": 0}, [], []),
        ({"kind": "forward"}, [], []),
    ],
)
def test_only_retains_of_a_failure_what_its_spans_still_show(chosen, waits, cycle):
    trace = stuck()
    part = trace.only(**chosen)
    part.validate()
    failure = part.meta["failure"]
    assert failure["message"] == trace.meta["failure"]["message"]
    assert ([wait["rank"] for wait in failure["waits"]], failure["cycle"]) == (waits, cycle)
    assert trace.meta["failure"] == stuck().meta["failure"]


# ---------------------------------------------------------------- refusing


def spans_of(*times, **more) -> Trace:
    return Trace([span(0, start, end, **more) for start, end in times])


@pytest.mark.parametrize(
    "times",
    [
        [],
        [(0, 1)],
        [(0, 0)],
        [(0, 1), (1, 2)],
        [(0, 4), (1, 3), (1, 2), (2, 3), (3, 4), (4, 5)],
        [(1, 2), (0, 4)],
        [(0, 1), (0, 1)],
        [(0, 1), (0, 0), (1, 1)],
        [(0, 1), (1 - 5e-10, 2)],  # within the tolerance: one after the other
        [(5e-10, 1), (0, 0.5)],  # starts together: the first holds the second
        [(0, 0.5), (2e-10, 0.7), (4e-10, 1)],
    ],
)
def test_spans_that_nest_or_follow_are_valid(times):
    spans_of(*times).validate()
    walls = [span(0, 0, 0, wall_start=start, wall_end=end) for start, end in times]
    Trace(walls).validate()


@pytest.mark.parametrize(
    "times",
    [
        [(0, 2), (1, 3)],
        [(1, 3), (0, 2)],
        [(0, 10), (1, 3), (2, 4)],
        [(0, 10), (1, 3), (3, 4), (9, 11)],
        [(0, 1), (1 - 2e-9, 2)],
        [(0, 10), (0, 3), (2, 5)],
        [(0, 2), (5e-10, 3), (1, 4)],
        [(0, 0.5), (2e-10, 1), (0.2, 0.7)],
    ],
)
def test_spans_of_a_lane_never_overlap_in_part(times):
    with pytest.raises(
        TraceError, match=r"span \d .* and span \d .* overlap in part: start to end"
    ):
        spans_of(*times).validate()
    walls = [span(0, 0, 0, wall_start=start, wall_end=end) for start, end in times]
    with pytest.raises(TraceError, match="overlap in part: wall_start to wall_end"):
        Trace(walls).validate()


def test_nesting_is_a_matter_of_one_lane_of_one_rank():
    Trace([span(0, 0, 2), span(1, 1, 3), span(0, 1, 3, lane="comm")]).validate()
    with pytest.raises(TraceError) as caught:
        Trace(
            [span(0, 0, 9), span(0, 0, 2, lane="comm"), span(0, 1, 3, lane="comm", kind="send")]
        ).validate()
    assert str(caught.value) == (
        "span 1 (forward on rank 0, lane 'comm') and span 2 (send on rank 0, lane 'comm') overlap "
        "in part: start to end 0 to 2 s and 1 to 3 s; on one lane spans nest or follow each other."
    )


def test_a_random_set_of_intervals_is_valid_exactly_when_no_pair_overlaps_in_part():
    random = np.random.default_rng(0)
    verdicts = set()
    for _ in range(300):
        ends = np.sort(random.integers(0, 8, size=(random.integers(1, 6), 2)), axis=1)
        clash = any(a < c < b < d for a, b in ends.tolist() for c, d in ends.tolist())
        trace = spans_of(*ends.astype(float).tolist())
        if clash:
            with pytest.raises(TraceError, match="overlap in part"):
                trace.validate()
        else:
            trace.validate()
        verdicts.add(clash)
    assert verdicts == {True, False}


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (spans_of((0, 1), (3, 2)), r"span 1 \(forward on rank 0, .* ends before it starts"),
        (Trace([span(wall_start=2.0, wall_end=1.0)]), "wall_start 2 s, wall_end 1 s"),
        (Trace([span(end=None)]), "has start 0.0 and end nan"),
        (Trace([span(end=float("inf"))]), "has start 0.0 and end inf"),
        (Trace([span(wall_start=1.0)]), "has wall_start 1.0 and wall_end nan"),
        (Trace([span(rank=-1)]), "span 0 has rank -1: the run has 0 ranks"),
        (Trace([span(rank=4)], meta={"ranks": 4}), "span 0 has rank 4: the run has 4 ranks"),
        (Trace([span(peer=1)]), "span 0 has peer 1: the run has 1 ranks"),
        (Trace([span(flow=0)]), "span 0 has flow 0: of 0 messages"),
        (Trace(messages=[message(dst=None)]), "message 0 has dst -1"),
        (Trace(messages=[message(sent=None)]), "message 0 .* has no time at which it was sent"),
        (Trace(messages=[message(received=float("inf"))]), "has received inf"),
        (
            Trace(messages=[message(sent=2.0, received=1.0)]),
            r"message 0 \(rank 0 to rank 1\) has received 1 s before sent 2 s",
        ),
        (Trace(messages=[message(arrived=2.0)]), "has received 1 s before arrived 2 s"),
        (Trace(messages=[message(arrived=-1.0)]), "has arrived -1 s before sent 0 s"),
        (
            Trace(messages=[message(wall_sent=2.0, wall_received=1.0)]),
            "has wall_received 1 s before wall_sent 2 s",
        ),
        (Trace(messages=[message(received=None)]), "was never received, yet the run completed"),
        (Trace(memory=[{"rank": 0, "nbytes": 1}]), r"memory row 0 \(rank 0\) has no time"),
        (
            Trace(buffers=[{"rank": 1, "array": [1]}], meta={"ranks": 1}),
            "buffer 0 has rank 1: the run has 1 ranks",
        ),
        (Trace(meta={"clock": "sundial"}), "meta.'clock'. is 'sundial': use 'wall', 'paced'"),
        (Trace(meta={"outcome": "fine"}), "meta.'outcome'. is 'fine'"),
        (Trace(meta={"ranks": 2.5}), "meta.'ranks'. is 2.5"),
        (Trace(meta={"ranks": 2, "only": [2]}), r"meta.'only'. is \[2\]"),
    ],
)
def test_what_cannot_have_been_is_refused(trace, sentence):
    with pytest.raises(TraceError, match=sentence) as caught:
        trace.validate()
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("outcome", ["failed", "unreceived"])
def test_a_run_that_did_not_complete_may_leave_messages_unreceived(outcome):
    Trace(messages=[message(received=None)], meta={"outcome": outcome}).validate()


def test_a_long_name_does_not_make_a_long_sentence():
    with pytest.raises(TraceError) as caught:
        spans_of((0, 2), (1, 3), kind="k" * 500, lane="l" * 500).validate()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "change",
    [
        {"message": None},
        {"cycle": [0, 3]},
        {"cycle": 0},
        {"waits": {}},
        {"waits": [3]},
        {"waits": [dict(rank=0, lane="a", op="recv", peer=1)]},
        {"waits": [dict(rank=3, lane="a", op="recv", peer=1, since=0.0)]},
        {"waits": [dict(rank=0, lane="a", op="recv", peer=3, since=0.0)]},
        {"waits": [dict(rank=0, lane="a", op="recv", peer=1, since="now")]},
    ],
)
def test_a_failure_that_names_nobody_is_refused(change):
    trace = stuck()
    trace.validate()
    trace.meta["failure"] |= change
    with pytest.raises(TraceError, match=r"meta\['failure'\] is .*: state its message"):
        trace.validate()
