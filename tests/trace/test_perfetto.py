"""The file in Perfetto: a model of its importer, which has to lose no span and no arrow.

The model follows google/perfetto (August 2026): json_trace_tokenizer.cc (how a time is read),
trace_sorter.h (in which order events come), slice_tracker.cc (what is on a thread's stack) and
flow_tracker.cc (which slice an arrow binds to); and, for times, the importers before 2025, which
cut off what is below a nanosecond and had their own method of reading a number.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from random_traces import random_trace

from dlviz.schedules import NAMES, make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace, chrome

DEEPEST = 512
LAST = 2**63 - 1


def read_by_hand(text: str) -> float:
    """A number as Perfetto's own parser once read it: digit by digit."""
    whole, _, fraction = text.lower().partition("e")[0].lstrip("-").partition(".")
    value, below = 0.0, 0.0
    for digit in whole:
        value = value * 10.0 + int(digit)
    for digit in fraction:
        below = below * 10.0 + int(digit)
    value += below / 10.0 ** len(fraction)
    value *= 10.0 ** int(text.lower().partition("e")[2] or 0)
    return -value if text.startswith("-") else value


def cut(value: float) -> int:
    """Microseconds as nanoseconds, as older importers take them."""
    return value * 1000 if isinstance(value, int) else int(value * 1000.0)


def rounded(value: float) -> int:
    """The same, as newer ones do."""
    return value * 1000 if isinstance(value, int) else math.floor(value * 1000.0 + 0.5)


IMPORTERS = [(cut, float), (cut, read_by_hand), (rounded, float)]


class Imported:
    """What is left of a file: by the number of their event the slices' start, length, thread and
    parent; the slices that were dropped or moved to another track; by id the slices that an arrow
    goes from and to; the arrows that were lost."""

    def __init__(self, data: bytes, nanoseconds, number):
        events = json.loads(data, parse_float=number)["traceEvents"]
        self.start, self.length, self.thread, self.parent = {}, {}, {}, {}
        self.dropped, self.arrows, self.lost, self.marks = [], {}, [], []
        self._stacks, self._begun = {}, {}
        order = []
        for at, event in enumerate(events):
            if event["ph"] not in "Xisf":
                continue
            ts, length = nanoseconds(event["ts"]), 0
            if event["ph"] == "X":
                length = nanoseconds(event["dur"])
            order.append((ts, LAST - length if event["ph"] == "X" else LAST, at, length))
        for ts, _, at, length in sorted(order):
            event = events[at]
            thread = event["pid"], event["tid"]
            if event["ph"] == "X":
                self._open(at, ts, length, thread)
            elif event["ph"] == "i":
                assert event["s"] == "g"
                self.marks.append((ts, event["name"]))
            else:
                self._bind(event, thread)

    def _open(self, at, ts, length, thread):
        stack = self._stacks.setdefault(thread, [])
        while stack:
            start, lasted = self.start[stack[-1]], self.length[stack[-1]]
            end = start + lasted
            if not (end < ts or (end == ts and not (lasted == 0 and length == 0))):
                break
            stack.pop()
        for one in stack:
            end = self.start[one] + self.length[one]
            if ts < end < ts + length:
                self.dropped.append(at)
                return
        if len(stack) >= DEEPEST:
            self.dropped.append(at)
            return
        self.start[at], self.length[at], self.thread[at] = ts, length, thread
        self.parent[at] = stack[-1] if stack else None
        stack.append(at)

    def _bind(self, event, thread):
        """To whichever slice began last on the thread: one that has ended is still on its stack."""
        stack = self._stacks.get(thread, [])
        known = stack and (event["id"] in self._begun) == (event["ph"] == "f")
        if not known or (event["ph"] == "f" and event["bp"] != "e"):
            self.lost.append(event["id"])
        elif event["ph"] == "s":
            self._begun[event["id"]] = stack[-1]
        else:
            self.arrows[event["id"]] = (self._begun[event["id"]], stack[-1])


def carriers(trace: Trace) -> dict[int, tuple[int, int]]:
    """Of each message the first span that sent it and the last that received it, where both are;
    without those received in a span that holds another since before they were sent: an arrow ends
    in the innermost span."""
    found: dict[int, list[int]] = {}
    for row, (flow, rank) in enumerate(zip(trace.spans.flow, trace.spans.rank, strict=True)):
        if flow < 0:
            continue
        ends = found.setdefault(int(flow), [-1, -1])
        if rank == trace.messages.src[flow] and ends[0] < 0:
            ends[0] = row
        if rank == trace.messages.dst[flow]:
            ends[1] = row
    spans = trace.spans

    def holds_another(sender: int, receiver: int) -> bool:
        inner = (spans.rank == spans.rank[receiver]) & (spans.lane == spans.lane[receiver])
        inner &= (spans.depth > spans.depth[receiver]) & (spans.end <= spans.end[receiver])
        inner &= spans.start >= spans.start[receiver]
        return bool((inner & (spans.start < spans.start[sender])).any())

    return {
        flow: (a, b)
        for flow, (a, b) in found.items()
        if a >= 0 and b >= 0 and a != b and not holds_another(a, b)
    }


def assert_whole(trace: Trace, arrows: int, furthest: int = 100) -> None:
    """Every importer shows every span, within the span that holds it, when it was (but for the
    `furthest` nanoseconds), and every arrow from the span that sent to the one that received."""
    data, spans = chrome.encode(trace), trace.spans
    events = json.loads(data)["traceEvents"]
    numbers = [at for at, event in enumerate(events) if event["ph"] == "X"]
    row = {at: number for number, at in enumerate(numbers)}
    expected = carriers(trace)
    assert len(expected) >= arrows
    for importer in IMPORTERS:
        seen = Imported(data, *importer)
        assert seen.dropped == [] and seen.lost == []
        assert len(seen.start) == len(spans)
        found = {flow: (row[a], row[b]) for flow, (a, b) in seen.arrows.items()}
        assert found == expected
        for at, number in row.items():
            exact = spans.start[number] * 1e9, spans.end[number] * 1e9
            drawn = seen.start[at], seen.start[at] + seen.length[at]
            assert seen.length[at] > 0 and np.abs(np.subtract(exact, drawn)).max() <= furthest
            depth, around = 0, seen.parent[at]
            while around is not None:
                depth, around = depth + 1, seen.parent[around]
            assert depth == spans.depth[number], spans[[number]]


@pytest.mark.parametrize(
    ("name", "arrows"),
    [
        ("ddp 4", 1000), ("all_reduce", 100), ("interleaved", 300), ("1f1b at once", 150),
        *(pytest.param(*each, marks=pytest.mark.sweep) for each in (
            ("ddp 2", 200), ("1f1b", 150), ("zb_h1", 150),
        )),
    ],
)  # fmt: skip
def test_nothing_of_a_real_run_is_lost(real_run, name, arrows):
    assert_whole(real_run(name), arrows)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_of_nested_spans_and_of_spans_without_length_is_lost(seed):
    trace = random_trace(seed)
    assert_whole(trace, 1)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_simulated_schedule_is_lost(name):
    for costs in (
        Costs(),
        Costs(1 / 3e3, None, 1 / 7e3, 1 / 11e3, latency=1 / 13e4),
        Costs(1, 0, 0, 0),
    ):
        trace = simulate(make(name, 3, 6), costs)
        assert_whole(trace, 0)


def test_nothing_is_lost_at_whatever_nanosecond_it_ends():
    """Some are no double in microseconds: 33100.632 times 1000 is below 33100632."""
    random = np.random.default_rng(0)
    times = np.cumsum(random.integers(1, 10**6, 3000)) / 1e9
    bad = sum(int(time * 1e6 * 1000.0) != round(time * 1e9) for time in times.tolist())
    assert bad > 30
    assert_whole(
        Trace({"rank": np.zeros(2999, int), "start": times[:-1], "end": times[1:]}), 0, furthest=1
    )


def test_what_takes_no_time_lies_between_its_neighbours_and_is_loaded_as_it_was(tmp_path):
    def span(rank, kind, start, end, **more):
        return dict(rank=rank, lane="compute", kind=kind, start=start, end=end, **more)

    trace = Trace(
        [
            span(0, "forward", 0.0, 1e-3, microbatch=0),
            span(0, "send", 1e-3, 1e-3, peer=1, flow=0),
            span(0, "wait", 1e-3, 1e-3, peer=1, name="for rank 1"),
            span(0, "backward", 1e-3, 2e-3, microbatch=0),
            span(1, "recv", 0.0, 1e-3, peer=0, flow=0),
            span(1, "forward", 1e-3, 2e-3, microbatch=0),
        ],
        [dict(src=0, dst=1, sent=1e-3, arrived=1e-3, received=1e-3)],
        meta={"clock": "paced"},
    )
    assert_whole(trace, 1, furthest=3)
    seen = Imported(chrome.encode(trace), *IMPORTERS[0])
    ms = 10**6
    begun = sorted((seen.thread[at][0], seen.start[at], seen.length[at]) for at in seen.start)
    assert begun == [
        (0, 0, ms), (0, ms, 1), (0, ms + 1, 1), (0, ms + 2, ms - 2),
        (1, 0, ms + 1), (1, ms + 1, ms - 1),
    ]  # fmt: skip
    back = Trace.load(trace.save(tmp_path / "t.json"))
    for name in ("start", "end"):
        assert back.spans[name].tolist() == trace.spans[name].tolist()


def test_a_span_as_long_as_the_one_that_holds_it_lies_in_it():
    """It was recorded first, as it ended first."""
    one = dict(rank=0, lane="a", start=0.0, end=1e-3)
    spans = [
        {**one, "kind": kind, "depth": 2 - at} for at, kind in enumerate(["send", "phase", "step"])
    ]
    spans.append(dict(one, kind="update", start=1e-3, end=2e-3))
    assert_whole(Trace(spans), 0, furthest=2)


def test_an_action_is_called_by_its_code_and_microbatch_a_bucket_by_its_number(tmp_path):
    expected = [
        ("forward", {"microbatch": 7}, "F7"),
        ("backward", {"microbatch": 0}, "B0"),
        ("backward_input", {"microbatch": 1}, "I1"),
        ("backward_weight", {"microbatch": 2, "stage": 3}, "W2"),
        ("forward", {"microbatch": 7, "name": "layer 1"}, "layer 1"),
        ("forward", {"microbatch": 7, "name": "F7"}, "F7"),
        ("forward", {}, "forward"),
        ("collective", {"bucket": 2}, "collective b2"),
        ("step", {"step": 4}, "step 4"),
        ("forward", {"name": "forward", "microbatch": 1}, "forward"),
    ]
    spans = [
        dict(rank=0, lane="compute", kind=kind, start=float(at), end=at + 1.0, **more)
        for at, (kind, more, _) in enumerate(expected)
    ]
    path = Trace(spans).save(tmp_path / "t.json")
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [one["name"] for one in slices] == [label for *_, label in expected]
    assert [one["cat"] for one in slices] == [kind for kind, *_ in expected]
    assert Trace.load(path).spans.name.tolist() == [more.get("name", "") for _, more, _ in expected]


def test_a_run_that_failed_has_its_sentence_across_the_picture_where_it_ended(tmp_path):
    sentence = "Deadlock: rank 0 waits for rank 1, which waits for rank 0."
    failure = {"message": sentence, "cycle": [0, 1], "waits": []}
    trace = Trace(
        [dict(rank=0, lane="a", kind="recv", start=0.0, end=0.25, fields={"unfinished": True})],
        meta={"ranks": 2, "outcome": "failed", "failure": failure},
    )
    path = trace.save(tmp_path / "t.json")
    assert Imported(path.read_bytes(), *IMPORTERS[0]).marks == [(250_000_000, sentence)]
    assert Trace.load(path).meta["failure"] == failure
    assert Imported(chrome.encode(Trace()), *IMPORTERS[0]).marks == []


def test_a_rank_that_the_run_lost_has_a_mark_at_that_moment(tmp_path):
    lost = {"1": {"when": 0.125, "how": "was killed by signal 9"}}
    trace = Trace(
        [dict(rank=0, lane="a", kind="recv", start=0.0, end=0.25)], meta={"ranks": 2, "lost": lost}
    )
    path = trace.save(tmp_path / "t.json")
    marks = Imported(path.read_bytes(), *IMPORTERS[0]).marks
    assert marks == [(125_000_000, "rank 1 was killed by signal 9")]
    assert Trace.load(path).meta["lost"] == lost
