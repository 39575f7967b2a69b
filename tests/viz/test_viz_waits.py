"""What a wait waited for: every claim held against the spans by counting, moment by moment."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
from random_traces import random_trace
from timing import attempts
from viz_scenes import data_parallel

from dlviz import viz
from dlviz.analysis.clocks import message_times, span_times
from dlviz.analysis.columns import HOLDERS, WAITING, lanes
from dlviz.analysis.waits import FOR_LANE, waited_until
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.words.waits import waits
from dlviz.widgets import Timeline

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
CLAIM = re.compile(
    r"(?P<who>the message of )?(?P<whom>(lane \w+ of )?rank \d+) was (?P<mostly>mostly |already )?"
    r"(?P<doing>.*?)(,? for (?P<part>[\d.,]+)( (?P<unit>\S+))? of (?P<whole>[\d.,]+ \S+?))?"
    r"(, then (?P<then>.*)|; before that, (?P=whom) was (?P<before>.*))?"
)


def span(rank=0, kind="forward", start=0.0, end=1.0, **fields):
    return {"rank": rank, "lane": "compute", "kind": kind, "start": start, "end": end} | fields


# -- the words -----------------------------------------------------------------------------------
def test_a_wait_says_for_how_long_for_whom_and_what_that_one_was_doing():
    spans = [
        span(0, "recv", 1.0, 4.1, peer=2, flow=0),
        span(1, "recv", 3.6, 4.0, peer=2, flow=1),
        span(2, "backward", 0.0, 3.0, depth=0),
        span(2, "backward", 0.0, 1.0, depth=1, name="layer 2"),
        span(2, "backward", 1.0, 3.0, depth=1, name="layer 1"),
        span(2, "recv", 0.0, 3.0, lane="comm", peer=1),
    ]
    messages = {"src": [2, 2], "dst": [0, 1], "sent": [3.0, 3.5], "received": [4.1, 4.0]}
    trace = Trace(spans, messages)
    found = viz.waited_for(trace)
    assert found == {
        0: "waited 3.1 s for rank 2; rank 2 was mostly in backward layer 1, for 2 of 3.1 s, then "
        "its message was in transit",
        1: "waited 400 ms for rank 2; the message of rank 2 was already in transit",
        5: "waited 3 s for rank 1; rank 1 was not yet recording (starting up?)",
    }
    (bar,) = [one for one in viz.timeline(trace).data if one.name == "recv"]
    hover = bar.customdata[0].replace("<br>", " ")
    assert found[0] in hover and "recv from rank 2" in hover


def test_what_filled_the_wait_is_named_with_its_time_and_then_what_came_last():
    spans = [
        span(0, "wait", 0.0, 10.9e-3, peer=1),
        span(1, "recv", 0.0, 9.9e-3, peer=2),
        span(1, "update", 9.9e-3, 10.9e-3),
    ]
    assert waits(Trace(spans))[0].doing == (
        "rank 1 was mostly itself waiting for rank 2, for 9.9 of 10.9 ms, then in update"
    )


def test_where_no_single_thing_fills_half_its_kind_does_or_nothing_is_called_most():
    def doing(*what):
        edges = np.linspace(0, 10, len(what) + 1).tolist()
        did = zip(what, edges, edges[1:], strict=False)
        spans = [span(1, kind, a, b, **more) for (kind, more), a, b in did]
        return waits(Trace([span(0, "wait", 0.0, 10.0, peer=1), *spans]))[0].doing

    layers = [("backward", {"name": f"layer {i}"}) for i in range(4)]
    assert doing(*layers) == "rank 1 was in backward"
    assert (
        doing(*layers, ("update", {}))
        == "rank 1 was mostly in backward, for 8 of 10 s, then in update"
    )
    mixed = [("forward", {}), ("backward", {}), ("update", {}), ("data", {}), ("forward", {})]
    assert doing(*mixed) == "rank 1 was in forward for 4 of 10 s"
    assert (
        doing(*mixed[:3], mixed[0], mixed[3]) == "rank 1 was in forward for 4 of 10 s, then in data"
    )


def test_a_wait_for_a_rank_that_waits_says_so():
    spans = [
        span(0, "wait", 0.0, 2.0, peer=1),
        span(1, "recv", 0.0, 2.0, peer=2),
        span(1, "send", 1.0, 1.0, lane="compute"),
        span(2, "forward", 0.0, 2.0, microbatch=4),
    ]
    trace = Trace(spans)
    found = waits(trace)
    assert found[0].doing == "rank 1 was itself waiting for rank 2"
    assert found[1].doing == "rank 2 was in forward 4"
    assert (found[0].span, found[1].span) == (1, 3)


def test_a_lane_that_works_is_named_before_one_that_waits_or_lies_between_operations():
    spans = [
        span(0, "wait", 0.0, 2.0, peer=1),
        span(1, "step", 0.0, 2.0, name="step 3"),
        span(1, "wait", 0.0, 2.0, lane="comm", peer=2),
        span(1, "send", 0.0, 2.0, lane="comm2", name="bucket 1"),
    ]
    assert [waits(Trace(spans[:n]))[0].doing for n in (4, 3, 2)] == [
        "rank 1 was in send bucket 1",
        "rank 1 was itself waiting for rank 2",
        "rank 1 was between two operations of step 3",
    ]


def test_a_wait_for_a_lane_of_ones_own_says_what_that_lane_did():
    spans = [
        span(0, "wait", 0.0, 4.0, name="for lane comm"),
        span(0, "collective", 0.0, 4.0, lane="comm", depth=0, name="bucket 1"),
        span(0, "recv", 0.5, 3.0, lane="comm", depth=1, peer=1),
        span(1, "wait", 0.0, 4.0, name="for lane comm"),
        span(1, "recv", 0.0, 4.0, lane="comm", peer=0),
        span(2, "wait", 0.0, 4.0, peer=1),
        span(3, "wait", 0.0, 4.0, name="for lane gone"),
    ]
    found = viz.waited_for(Trace(spans))
    assert found[0] == (
        "waited 4 s for its own lane comm; lane comm of rank 0 was mostly itself waiting for rank "
        "1, for 2.5 of 4 s, then in collective bucket 1"
    )
    assert found[5] == "waited 4 s for rank 1; rank 1 was itself waiting for rank 0"
    assert found[6].endswith("; lane gone of rank 3 was without a recorded span")
    alone = viz.waited_for(Trace(spans[3:4] + spans[5:6]))
    assert alone[1] == "waited 4 s for rank 1; rank 1 was itself waiting for lane comm"


def test_before_its_first_span_a_rank_may_be_starting_and_after_its_last_nothing_is_known():
    spans = [
        span(0, "wait", 0.0, 4.0, peer=1),
        span(1, "forward", 3.0, 5.0),
        span(0, "wait", 4.0, 8.0, peer=1),
        span(0, "wait", 8.0, 9.0, peer=2),
    ]
    found = waits(Trace(spans))
    assert [found[row].doing for row in (0, 2, 3)] == [
        "rank 1 was mostly not yet recording (starting up?), for 3 of 4 s, then in forward",
        "rank 1 was mostly without a recorded span, for 3 of 4 s",
        "rank 2 was without a recorded span",
    ]
    assert [found[row].span for row in (0, 2, 3)] == [-1, -1, -1]


@pytest.mark.parametrize(
    ("sent", "doing"),
    [
        (0.009, "the message of rank 1 was already in transit"),
        (0.4, "the message of rank 1 was mostly in transit, for 600 ms of 1 s; before that, rank 1 "
         "was in backward"),
        (0.7, "rank 1 was mostly in backward, for 700 ms of 1 s, then its message was in transit"),
        (0.995, "rank 1 was in backward"),
    ],
)  # fmt: skip
def test_a_message_in_transit_is_a_part_of_the_wait_for_it(sent, doing):
    spans = [span(0, "wait", 0.0, 1.0, peer=1, flow=0), span(1, "backward", 0.0, 1.0)]
    messages = {"src": [1], "dst": [0], "sent": [sent], "received": [1.0]}
    assert waits(Trace(spans, messages))[0].doing == doing


# -- every claim, counted --------------------------------------------------------------------------
def says(spans, row):
    """What a span says of its rank, and how much that is: written apart from the package."""
    kind, name, peer = spans.kind[row], spans.name[row], spans.peer[row]
    if kind in WAITING:
        whom = f" for rank {peer}" if peer >= 0 else f" {name}" if name.startswith("for ") else ""
        return f"itself waiting{whom}", 1 if name.startswith(FOR_LANE) else 3
    if kind in HOLDERS:
        return "between two operations" + (f" of {name}" if name else ""), 1
    what = name if name and name != kind else spans.microbatch[row]
    of = f" {what}" if what != -1 else ""
    return f"in {kind}{of}", 2 if kind == "collective" else 4


def counted(trace, row, start, end, sent):
    """Seconds of the wait `row` by what filled them, every moment between two changes looked at."""
    spans = trace.spans
    lane = spans.name[row].removeprefix(FOR_LANE) if spans.peer[row] < 0 else None
    rank = spans.rank[row] if lane is not None else spans.peer[row]
    own = np.flatnonzero((spans.rank == rank) & (end > start))
    if lane is not None:
        own = own[spans.lane[own] == lane]
    flow = spans.flow[row]
    until = min(end[row], sent[flow]) if flow >= 0 and sent[flow] == sent[flow] else end[row]
    until = max(until, start[row])
    near = own[(end[own] > start[row]) & (start[own] < until)]
    edges = {start[row], until, *start[near], *end[near]}
    edges = sorted(edge for edge in edges if start[row] <= edge <= until)
    filled = {"in transit": end[row] - until}
    for a, b in zip(edges, edges[1:], strict=False):
        middle = (a + b) / 2
        at = [one for one in near if start[one] <= middle < end[one]]
        inner = [
            max((one for one in at if spans.lane[one] == name), key=lambda one: spans.depth[one])
            for name in lanes({spans.lane[one] for one in at})
        ]
        began = len(own) and middle >= start[own].min()
        what = (
            "without a recorded span"
            if began or not len(own)
            else "not yet recording (starting up?)"
        )
        if inner:
            what = says(spans, max(inner, key=lambda one: says(spans, one)[1]))[0]
        filled[what] = filled.get(what, 0.0) + b - a
    return filled


def kind_of(doing):
    """A doing without what it was of."""
    first = re.match(r"itself waiting|between two operations|without a recorded span|in \S+", doing)
    return first[0] if first else doing


def assert_claims(trace, clock="device", most=10**9):
    """Holds each claim of a wait against the count; returns how many say mostly."""
    start, end = (
        (trace.spans.start, trace.spans.end)
        if clock == "device"
        else (trace.spans.wall_start, trace.spans.wall_end)
    )
    sent = message_times(trace, clock)[0]
    mostly = 0
    found = waits(trace, clock=clock)
    for row, wait in sorted(found.items(), key=lambda each: -each[1].seconds)[:most]:
        claim = CLAIM.fullmatch(wait.doing)
        assert claim, wait.doing
        filled = counted(trace, row, start, end, sent)
        whole = sum(filled.values())
        assert whole == pytest.approx(end[row] - start[row])
        doing = claim["doing"]
        of_kind = sum(s for words, s in filled.items() if kind_of(words) == doing)
        broad = max(filled.values()) <= whole / 2 < of_kind
        took = of_kind if broad else filled[doing]
        assert took > 0, (wait.doing, filled)
        if claim["part"] is None:
            assert took >= 0.99 * whole * (1 - 1e-9), (wait.doing, filled)
        else:
            unit = claim["unit"] or claim["whole"].split()[1]
            stated = float(claim["part"].replace(",", "")) * UNITS[unit]
            assert stated == pytest.approx(took, rel=6e-3), (wait.doing, filled)
            assert (claim["mostly"] == "mostly ") == (took > whole / 2), (wait.doing, filled)
        if claim["mostly"] == "mostly ":
            mostly += 1
            assert took >= whole / 2
        assert took >= max(filled.values()) * (1 - 1e-9), (wait.doing, filled)
        last = claim["then"] or claim["before"]
        if last and last != "its message was in transit":
            assert filled[last] >= 0.01 * whole * (1 - 1e-9), (wait.doing, filled)
    return mostly


@pytest.mark.parametrize("seed", range(12))
def test_every_claim_of_a_random_trace_holds(seed):
    trace = random_trace(seed)
    assert assert_claims(trace) > 3


@pytest.mark.parametrize("name", ["ddp 2", "ddp 4"])
def test_every_claim_of_data_parallel_training_holds(real_run, name):
    trace = real_run(name)
    assert assert_claims(trace, "wall", most=500) > 30


def test_every_claim_of_a_modelled_run_holds():
    trace = data_parallel(ranks=5, steps=2)
    for clock in ("device", "wall"):
        assert_claims(trace, clock)


@pytest.mark.sweep
def test_the_waits_of_100_000_spans_are_found_in_well_under_a_second():
    random = np.random.default_rng(0)
    count, ranks = 100_000, 8
    kinds = np.where(random.random(count) < 0.5, "recv", "backward").astype(object)
    length = random.exponential(1e-4, (ranks, count // ranks))
    end = np.cumsum(length, axis=1)
    rank = np.repeat(np.arange(ranks), count // ranks)
    trace = Trace(
        {
            "rank": rank,
            "lane": np.full(count, "compute", object),
            "kind": kinds,
            "peer": np.where(kinds == "recv", (rank + 1) % ranks, -1),
            "start": (end - length).ravel(),
            "end": end.ravel(),
        }
    )
    for attempt in attempts():
        began = time.process_time()
        found = waits(trace)
        took = time.process_time() - began
        with attempt:
            assert took < 1.5  # some 0.4 s on a quiet machine
    assert len(found) > count / 3


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_the_widgets_state_says_of_each_span_that_begins_by_waiting_for_how_long(clock):
    trace = data_parallel(ranks=3, steps=2)
    state = json.loads(Timeline(trace, clock=clock).state)
    own = next(each for each in state["clocks"] if each["name"] == clock)
    rows, (start, _) = np.array(state["spans"]["row"]), span_times(trace, clock)
    waited, lasted = own["waited"], np.broadcast_to(own["length"], len(rows))
    found = {
        int(rows[place]): start[rows[place]] + length * own["quantum"]
        for place, length in zip(waited["span"], waited["length"], strict=True)
    }
    known = dict(zip(*(column.tolist() for column in waited_until(trace, clock)), strict=True))
    assert found == pytest.approx(known, abs=2 * own["quantum"]) and len(found) > 10
    assert (np.array(waited["length"]) <= lasted[waited["span"]]).all()
    few = json.loads(Timeline(trace, clock=clock, max_spans=60).state)["clocks"][0]["waited"]
    assert 0 <= min(few["span"]) <= max(few["span"]) < 60


def test_what_waits_looks_as_a_wait_in_plotly_and_in_print():
    spans = [span(0, "recv", 0.0, 4.0, peer=1, flow=0), span(1, "forward", 0.0, 3.0)]
    messages = {"src": [1], "dst": [0], "sent": [3.0], "arrived": [4.0], "received": [4.0]}
    trace = Trace(spans, messages, meta={"clock": "paced", "ranks": 2})
    bars = {bar.name: bar for bar in viz.timeline(trace).data if bar.type == "bar"}
    assert (*bars["wait"].base, *bars["wait"].x) == (0.0, 3.0)
    assert (*bars["recv"].base, *bars["recv"].x) == (3.0, 1.0)
    assert bars["wait"].marker.pattern.shape == palette.style("wait").pattern
    assert (bars["wait"].text, bars["recv"].text) == (("recv from 1",), ("",))  # in the longer one
    assert bars["wait"].customdata == bars["recv"].customdata
    (axes,) = viz.print.timeline(trace).axes
    drawn = {part.get_label(): part for part in axes.collections}
    assert drawn["wait"].get_hatch() and not drawn["recv"].get_hatch()
    edges = {name: drawn[name].get_paths()[1].get_extents().intervalx for name in ("wait", "recv")}
    assert (*edges["wait"], *edges["recv"]) == pytest.approx((0.0, 3.0, 3.0, 4.0))
