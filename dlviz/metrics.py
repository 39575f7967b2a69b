"""What a trace comes to: makespan, bubble, bytes, memory, bandwidth; a number or one per rank.

Every metric of time takes `clock`: "device" reads the columns start and end, "wall" wall_start and
wall_end (what is called measured is always the wall). Times are in seconds, sizes in bytes, an
array has one entry for each rank of the run. A rank is *busy* while a forward or backward span is
open on any of its lanes (the union: two lanes at once count once); an update is work, but it is
outside the bubble, whose window is a step: the first compute of any rank to the last.

    busy     |F0|F1|      |B0|B1|     bubble ratio    = mean idle / mean busy   (p-1)/m for GPipe
    window   |<--------------->|      bubble fraction = idle / total      (p-1)/(m+p-1) for GPipe
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator

import numpy as np

from dlviz.trace import Table, Trace

COMPUTE = ("forward", "backward", "backward_input", "backward_weight")
UPDATE = ("update",)
COMMUNICATION = ("send", "recv", "collective", "wait")
OTHER = ("compress", "data", "lock")
CHUNKED = ("interleaved", "looped_bfs", "interleaved_zb")  # schedules of any number of chunks
_NO_WORK = ("step", "phase", "idle")  # kinds that only hold others, or nothing
_WAITING = ("recv", "wait")
_CLOCKS = {"device": ("start", "end"), "wall": ("wall_start", "wall_end")}
_ALIKE = 1e-6  # of a cost: costs closer than this are equal
_TIE = 1e-9  # seconds: a release and a start closer than this are one moment
_ROUNDED = 1e-12  # of the last time: the same where times are so large that they are less exact


def makespan(trace: Trace, clock: str = "device") -> float:
    """Seconds from the first start to the last end of any span; 0.0 without spans."""
    _, start, end = _times(trace.spans, clock)
    return float(end.max() - start.min()) if len(start) else 0.0


def step_seconds(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds of each step: from the first start to the last end of the spans that bear it.

    One entry per step, in the steps' order; spans without a step count as none.
    """
    _, start, end = _times(trace.spans, clock)
    steps, of = np.unique(trace.spans.step, return_inverse=True)
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(first, of, start)
    np.maximum.at(last, of, end)
    return (last - first)[steps >= 0]


def busy(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which a forward or backward span is open on any lane of it."""
    return _open(trace, COMPUTE, clock)


def bubble_ratio(trace: Trace, clock: str = "device") -> float:
    """Mean idle / mean busy over the ranks, in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/m. NaN where no rank
    computes. Source: Narayanan et al., SC 2021, section 2.2 (bubble time / ideal time).
    """
    return _median([window / mean - 1 for window, mean in _steps(trace, clock)])


def bubble_fraction(trace: Trace, clock: str = "device") -> float:
    """Idle / total rank-seconds in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/(m+p-1). NaN where no
    rank computes. Source: Huang et al., GPipe, NeurIPS 2019, section 2.3.
    """
    return _median([1 - mean / window for window, mean in _steps(trace, clock)])


def idle_inside(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank, between its first and its last forward or backward of a step, in which it
    runs none; the median of several steps.

    The bubble without run-in and run-out: what is left of it where ranks start the next step
    without waiting for each other. Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024,
    section 2.2.
    """
    spans, start, end = _times(trace.spans, clock, COMPUTE)
    ranks = trace.meta["ranks"]
    found = []
    for step in np.unique(spans.step):
        rows = spans.step == step
        first, last = np.full(ranks, np.inf), np.full(ranks, -np.inf)
        np.minimum.at(first, spans.rank[rows], start[rows])
        np.maximum.at(last, spans.rank[rows], end[rows])
        worked = _union(spans.rank[rows], start[rows], end[rows], ranks)
        found.append(np.maximum(last - first, 0.0) - worked)
    return np.median(found, axis=0) if found else np.zeros(ranks)


def bubble_formula(
    schedule: str,
    ranks: int,
    microbatches: int,
    forward: float = 1.0,
    backward_input: float = 1.0,
    backward_weight: float = 1.0,
) -> float:
    """Seconds that each rank idles in a step of `schedule`, by its closed form; NaN where it has
    none.

    The costs are those of one visit of a microbatch to a stage, alike for all stages; a backward
    takes input + weight, and a message no time. By the work of a rank, m visits to each of its v
    stages, this is the bubble ratio: chunks shorten a visit, and so the bubble.

        naive                                m(p-1)(F+B)
        gpipe, 1f1b, pipedream               (p-1)(F+B)
        interleaved, looped_bfs  (m >= p)    (p-1)(F+B)
        zb_h1, interleaved_zb  (m >= p)      (p-1) max(F, I, F+I-W)
        zb_h2  (m >= 2p-1), zbv  (m >= 2p)   (p-1) F where F = I = W
        inference                            (p-1) F

    Here all the time between the first action of any rank and the last counts. The zero-bubble
    paper leaves out what a rank idles before its own first action and after its own last, so that
    zb_h2 is (p-1)(F+I-2W) there, 0 where F = I = W (the paper writes B for I): `idle_inside`.

    Source: the papers named in dlviz/schedules, each beside its schedule.
    """
    p, m = ranks, microbatches
    F, I, W = forward, backward_input, backward_weight  # noqa: E741
    visit, alike = F + I + W, max(F, I, W) - min(F, I, W) <= _ALIKE * F
    zero_bubble = max(F, I, F + I - W)
    forms = {
        "naive": (1, m * visit),
        "gpipe": (1, visit),
        "1f1b": (1, visit),
        "pipedream": (1, visit),
        "interleaved": (p, visit),
        "looped_bfs": (p, visit),
        "zb_h1": (p, zero_bubble),
        "interleaved_zb": (p, zero_bubble),
        "zb_h2": (2 * p - 1, F if alike else np.nan),
        "zbv": (2 * p, F if alike else np.nan),
        "inference": (1, F),
    }
    fewest, fill = forms.get(schedule, (1, np.nan))
    return float((p - 1) * fill) if m >= fewest else float("nan")


def exposed_communication(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which it communicates or waits for that, and does not compute.

    A send, recv, collective or wait is open on some lane, and no forward, backward or update on
    any. Communication inside a compute span of the same lane therefore counts as hidden.
    """
    work = COMPUTE + UPDATE
    exposed = _open(trace, work + COMMUNICATION, clock) - _open(trace, work, clock)
    return np.maximum(exposed, 0.0)  # the difference of two sums may be -1e-16


def overlap(trace: Trace, clock: str = "device") -> float:
    """The part of all ranks' communication that hides behind compute, 0 to 1.

    1 - exposed / total, total being the seconds in which a rank has a communication span open.
    NaN where no rank communicates.
    """
    total = _open(trace, COMMUNICATION, clock).sum()
    return float(1 - exposed_communication(trace, clock).sum() / total) if total else float("nan")


def breakdown(trace: Trace, clock: str = "device") -> dict[str, np.ndarray]:
    """Where each rank's makespan went: seconds per rank, by what it did; they add up to it.

    `compute` is busy; `update` the optimizer outside of it; `communication` the exposed part;
    `other` compressing, loading data and holding a lock outside of all these; `idle` the rest.
    """
    rows, kinds, before = {}, (), 0.0
    for name, more in (
        ("compute", COMPUTE),
        ("update", UPDATE),
        ("communication", COMMUNICATION),
        ("other", OTHER),
    ):
        kinds += more
        until = _open(trace, kinds, clock)
        rows[name], before = np.maximum(until - before, 0.0), until
    return {**rows, "idle": np.maximum(makespan(trace, clock) - before, 0.0)}


def critical_path(trace: Trace, clock: str = "device") -> Table:
    """What decides the makespan, in the order of time: columns span (its row in `trace.spans`),
    start and end (s by `clock`). Were one of these stretches longer, the makespan would be longer.

    From the span that ends last back, each time to what it waited for: whichever came later of what
    its rank did before and the span whose message (`flow`) it needed. A backend's own collective
    waits for the rank that entered it last. A receive or a wait that something else ended is not on
    the path: that, and its message, are. A span that holds others counts only where none of them is
    open, one that sends without a span of its own until the message left; one that only holds
    others has no part. So the stretches follow each other, and together they are never longer than
    the makespan: the rest is messages and gaps. Of a simulated schedule they and the latencies of
    its messages add up to it.

    On a wall clock, where no link is modelled, a message counts as there when it was sent.
    Source: Yang and Miller, "Critical path analysis", ICDCS 1988.
    """
    spans, start, end = _times(trace.spans, clock)
    lane, row, begin, finish, first = _stretches(spans, start, end)
    if not row:
        return _as_table([])
    stretch_at = _by_span(len(spans), row, begin)
    sender, leaves, lands = (column.tolist() for column in _senders(trace, start, end))
    entered_last = _entered_last(spans, start)
    rank, kind = spans.rank.tolist(), spans.kind.tolist()
    beside: dict[int, list[int]] = {}  # the lanes of a rank
    for number, at in enumerate(first[:-1]):
        beside.setdefault(rank[row[at]], []).append(number)

    path, seen, at, counts = [], set(), int(np.argmax(finish)), True
    now = finish[at]  # all from here on has been explained
    while at >= 0 and at not in seen:
        seen.add(at)
        span = row[at]
        last = stretch_at(entered_last.get(span, span), now)
        if last >= 0 and row[last] != span:
            at = last
            continue
        waits = kind[span] in _WAITING
        asks = finish[at] if waits and sender[span] < 0 else begin[at]
        previous = at - 1 if at > first[lane[at]] else -1
        until, to, message = finish[previous] if previous >= 0 else -np.inf, previous, -1
        needs = [span]
        for other in beside[rank[span]]:
            if other == lane[at]:
                continue
            low, high = first[other], first[other + 1]
            found = bisect_right(finish, asks + _TIE, low, high) - 1
            if found >= low and finish[found] > until:
                until, to = finish[found], found
            twin = bisect_right(begin, begin[at] + _TIE, low, high) - 1
            if twin >= low and abs(begin[twin] - begin[at]) + abs(finish[twin] - finish[at]) < _TIE:
                needs.append(row[twin])  # the other half of an overlap
        for one in needs:
            if sender[one] >= 0 and lands[one] > until:
                until, to, message = lands[one], stretch_at(sender[one], leaves[one]), one
        ended_by_it = waits and until > begin[at]
        if counts and not ended_by_it and begin[at] <= now + _TIE:
            path.append((span, min(begin[at], now), min(finish[at], now)))
        now = min(now, until if ended_by_it else begin[at])
        counts = True
        if message >= 0:
            now = min(now, leaves[message])
            counts = kind[row[to]] != "send"  # it left as that began
        at = to
    return _as_table(path[::-1])


def bytes_sent(trace: Trace) -> np.ndarray:
    """Bytes per rank in the messages that it sent."""
    sent = np.zeros(trace.meta["ranks"], dtype=np.int64)
    np.add.at(sent, trace.messages.src, np.maximum(trace.messages.nbytes, 0))
    return sent


def crossings(trace: Trace) -> int:
    """Messages that bring an action of a pipeline its input from another rank, in a step; the
    median of several steps.

    Activations to the next stage and gradients back, so without those that tell the ranks the loss:
    2(s-1)m for s stages of which no two neighbours share a rank and m microbatches, (s-1)m where
    there are only forwards.
    """
    spans = trace.spans
    crossed = (spans.flow >= 0) & (spans.microbatch >= 0) & _of_kinds(spans, COMPUTE)
    _, first = np.unique(spans.flow[crossed], return_index=True)
    _, count = np.unique(spans.step[crossed][first], return_counts=True)
    return int(np.median(count)) if len(count) else 0


def peak_memory(trace: Trace) -> np.ndarray:
    """Bytes per rank: the most that it held at once, summed over what it held them for.

    A memory row says how many bytes of `what` a rank holds from then on; rows of one rank and time
    are one change.
    """
    memory = trace.memory
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    what = _codes(memory.what)
    order = np.lexsort((memory.time, what, memory.rank))
    rank, what, held = memory.rank[order], what[order], np.maximum(memory.nbytes[order], 0)
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = (rank[1:] == rank[:-1]) & (what[1:] == what[:-1])
    change = held - np.where(follows, np.roll(held, 1), 0)

    back = np.lexsort((memory.time[order], rank))
    rank, time, change = rank[back], memory.time[order][back], change[back]
    for r, rows in _by_rank(rank, len(peak)):
        level = np.cumsum(change[rows])
        settled = np.append(np.diff(time[rows]) > 0, True)
        peak[r] = level[settled].max(initial=0)
    return peak


def peak_in_flight(trace: Trace, clock: str = "device") -> np.ndarray:
    """Per rank, the most microbatches whose activations it held at once.

    A microbatch (of a stage, so a chunk counts by itself) is in flight from the start of its first
    forward to the end of its last backward, or backward_weight where the backward is split. One
    that is never released stays in flight; but where nothing is trained, no span being a backward,
    nothing is kept for later and a microbatch is in flight for as long as its forward. Spans
    without a microbatch count as one per stage.
    """
    spans, start, end = _times(trace.spans, clock)
    peak = np.zeros(trace.meta["ranks"], dtype=np.int64)
    forward = spans.kind == "forward"
    release = (spans.kind == "backward") | (spans.kind == "backward_weight")
    if not (release | (spans.kind == "backward_input")).any():
        release = forward
    key = _codes(zip(*(spans[name].tolist() for name in _MICROBATCH), strict=True))
    held = int(key.max(initial=-1)) + 1
    opened, closed = np.full(held, np.inf), np.full(held, -np.inf)
    owner = np.zeros(held, dtype=np.int64)
    owner[key] = spans.rank
    np.minimum.at(opened, key[forward], start[forward])
    np.maximum.at(closed, key[release], end[release])

    taken, freed = np.isfinite(opened), np.isfinite(opened) & np.isfinite(closed)
    rank = np.concatenate([owner[taken], owner[freed]])
    moment = max(_TIE, _ROUNDED * np.abs(end).max(initial=0.0))
    time = np.concatenate([opened[taken], closed[freed] - moment])
    change = np.concatenate([np.ones(taken.sum(), int), -np.ones(freed.sum(), int)])
    order = np.lexsort((time, rank))
    for r, rows in _by_rank(rank[order], len(peak)):
        peak[r] = np.cumsum(change[order][rows]).max(initial=0)
    return peak


_MICROBATCH = ("rank", "step", "stage", "microbatch")


def staleness(trace: Trace) -> np.ndarray:
    """Updates of a stage between a microbatch's forward through it and its backward, the update by
    that backward left out: (stages, microbatches), -1 where one of the two was not run.

    0 for a schedule that flushes; p-1-r on stage r of p in PipeDream, once it is filled. Source:
    Narayanan et al., PipeDream, SOSP 2019, section 3.3.
    """
    spans = trace.spans
    shape = int(spans.stage.max(initial=-1)) + 1, int(spans.microbatch.max(initial=-1)) + 1
    made = np.full((2, *shape), -1)  # updates before the forward and before the backward
    for stage in range(shape[0]):
        own = spans[spans.stage == stage]
        updates = np.sort(own.end[own.kind == "update"])
        for side, kinds in enumerate((["forward"], ["backward", "backward_weight"])):
            runs = own[np.isin(own.kind, kinds) & (own.microbatch >= 0)]
            before = np.searchsorted(updates, runs.start + _TIE, side="right")
            made[side, stage, runs.microbatch] = before
    return np.where((made >= 0).all(axis=0), made[1] - made[0], -1)


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes/s: the size of the data over the time, nbytes / seconds.

    Source: nccl-tests, doc/PERFORMANCE.md ("algorithm bandwidth").
    """
    return nbytes / seconds


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes/s: the algorithm bandwidth times what each rank must move, so that it compares with the
    speed of the link whatever the number n of ranks.

    all_reduce 2(n-1)/n; reduce_scatter, all_gather and all_to_all (n-1)/n; broadcast and reduce 1.
    `nbytes` is the whole tensor: what an all_gather gathers, what a reduce_scatter reduces. Raises
    ValueError for another collective. Source: nccl-tests, doc/PERFORMANCE.md ("bus bandwidth").
    """
    share = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "all_to_all": share,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    if collective not in factors:
        raise ValueError(
            f"collective={collective!r} has no bus bandwidth here: use {', '.join(factors)}."
        )
    return algorithm_bandwidth(nbytes, seconds) * factors[collective]


def _stretches(
    spans: Table, start: np.ndarray, end: np.ndarray
) -> tuple[list[int], list[int], list[float], list[float], list[int]]:
    """What each lane was at, from when to when: the innermost of its spans that do something.

    Columns lane (a number), span (its row), begin and finish, in order of lanes and of time; and
    where each lane begins among them, with the end of the last.
    """
    lane = _codes(zip(spans.rank.tolist(), spans.lane.tolist(), strict=True))
    order = np.lexsort((end, spans.depth, start, lane))
    works = ~_of_kinds(spans, _NO_WORK)
    here, after = order[:-1], order[1:]
    if not ((lane[here] == lane[after]) & (end[here] > start[after] + _TIE)).any():  # none nests
        order = order[works[order]]
        edges = np.flatnonzero(np.diff(lane[order])) + 1
        columns = (column[order].tolist() for column in (lane, np.arange(len(lane)), start, end))
        return *columns, [0, *edges.tolist(), len(order)]  # pyright: ignore[reportReturnType]
    works = works.tolist()
    of, begins, ends = lane.tolist(), start.tolist(), end.tolist()
    held: list[tuple[int, int, float, float]] = []
    around: list[int] = []  # the spans that hold this moment, outermost first
    since = -np.inf

    def told(span: int, until: float) -> None:
        if works[span] and (until > since or ends[span] == begins[span]):
            held.append((of[span], span, since, until))

    for span in [*order.tolist(), -1]:
        while around:
            inner = around[-1]
            inside = span >= 0 and of[span] == of[inner]
            if inside and ends[inner] > begins[span] + _TIE:
                told(inner, begins[span])
                break
            told(inner, ends[inner])
            since = ends[around.pop()]
        if span >= 0:
            around.append(span)
            since = begins[span]
    columns = [list(column) for column in zip(*held, strict=True)] or [[], [], [], []]
    edges = np.flatnonzero(np.diff(columns[0])) + 1
    return *columns, [0, *edges.tolist(), len(held)]  # pyright: ignore[reportReturnType]


def _as_table(path: list[tuple[int, float, float]]) -> Table:
    times = np.array([times for _, *times in path]).reshape(-1, 2)
    spans = np.array([span for span, *_ in path], np.int64)
    return Table({"span": spans, "start": times[:, 0], "end": times[:, 1]})


def _by_span(spans: int, row: list[int], begin: list[float]) -> Callable[[int, float], int]:
    """Finds the stretch (its number) in which a span was at a moment: its last that had begun, or
    else its first; -1 of a span that has none."""
    order = np.lexsort((begin, row))
    edges = np.searchsorted(np.array(row)[order], np.arange(spans + 1)).tolist()
    starts, numbers = np.array(begin)[order].tolist(), order.tolist()

    def stretch_at(span: int, moment: float) -> int:
        low, high = edges[span], edges[span + 1]
        found = max(bisect_right(starts, moment + _TIE, low, high) - 1, low)
        return numbers[found] if low < high else -1

    return stretch_at


def _senders(
    trace: Trace, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each span that received its `flow` the span that sent it (its row; -1 for the others),
    when that left and when it landed by the clock of `start` and `end`.

    Its sender is the one that carries it, else whichever span of that rank ended as it was sent, of
    several that of the microbatch that it is for.
    """
    spans, messages = trace.spans, trace.messages
    sender = np.full(len(messages), -1)
    carries = np.flatnonzero(spans.flow >= 0)
    sends = spans.rank[carries] == messages.src[spans.flow[carries]]
    sender[spans.flow[carries[sends]]] = carries[sends]
    works = np.flatnonzero(~_of_kinds(spans, _NO_WORK))
    works = works[np.lexsort((works, spans.start[works], spans.end[works], spans.rank[works]))]
    gets = carries[~sends]
    of = np.full(len(messages), -1)
    of[spans.flow[gets]] = spans.microbatch[gets]
    missing = np.flatnonzero((sender < 0) & np.isfinite(messages.sent))
    for rank, rows in _by_rank(spans.rank[works], trace.meta["ranks"]):
        asked = missing[messages.src[missing] == rank]
        ends, sent = spans.end[works[rows]], messages.sent[asked]
        after = np.minimum(np.searchsorted(ends, sent), len(ends) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(sent - ends[before] < ends[after] - sent, before, after)
        first, last = (np.searchsorted(ends, ends[nearest], side) for side in ("left", "right"))
        sender[asked] = works[rows][first]
        for i in np.flatnonzero(last - first > 1).tolist():
            for one in works[rows][first[i] : last[i]][::-1].tolist():
                if spans.microbatch[one] == of[asked[i]]:
                    sender[asked[i]] = one

    left = spans.kind[sender] == "send"
    ready = np.where(left, spans.start[sender], spans.end[sender])
    clocked = np.where(left, start[sender], end[sender])
    modelled = (trace.meta["clock"] != "wall") & np.isfinite(messages.arrived)
    lands = clocked + np.where(modelled, messages.arrived, messages.sent) - ready
    leaves = np.where(left, clocked, clocked + messages.sent - ready)
    from_whom, went, when = (np.full(len(spans), missing) for missing in (-1, np.nan, np.nan))
    from_whom[gets] = sender[spans.flow[gets]]
    went[gets], when[gets] = leaves[spans.flow[gets]], lands[spans.flow[gets]]
    return from_whom, went, when


def _entered_last(spans: Table, start: np.ndarray) -> dict[int, int]:
    """Of each call of a backend's collective (a span's row) the call of the rank that came last."""
    calls: dict[tuple[str, int], list[int]] = {}
    together = np.flatnonzero((spans.kind == "collective") & (spans.sequence >= 0))
    keys = zip(spans.group[together].tolist(), spans.sequence[together].tolist(), strict=True)
    for key, call in zip(keys, together.tolist(), strict=True):
        calls.setdefault(key, []).append(call)
    return {call: max(of, key=lambda one: start[one]) for of in calls.values() for call in of}


def _times(
    spans: Table, clock: str, kinds: Collection[str] | None = None
) -> tuple[Table, np.ndarray, np.ndarray]:
    """The spans of `kinds` with their starts and ends by `clock`. Raises ValueError."""
    if clock not in _CLOCKS:
        raise ValueError(f"clock={clock!r} is none: use 'device' or 'wall'.")
    if kinds is not None:
        spans = spans[_of_kinds(spans, kinds)]
    start, end = (spans[name] for name in _CLOCKS[clock])
    if np.isnan(start).any() or np.isnan(end).any():
        raise ValueError(
            f"clock={clock!r}: the trace has spans without {' and '.join(_CLOCKS[clock])}; "
            f"use clock={'device' if clock == 'wall' else 'wall'!r}."
        )
    return spans, start, end


def _of_kinds(spans: Table, kinds: Collection[str]) -> np.ndarray:
    return np.fromiter((kind in kinds for kind in spans.kind.tolist()), bool, len(spans))


def _open(trace: Trace, kinds: Collection[str], clock: str) -> np.ndarray:
    """Seconds per rank in which a span of `kinds` is open: the length of their union."""
    spans, start, end = _times(trace.spans, clock, kinds)
    return _union(spans.rank, start, end, trace.meta["ranks"])


def _union(rank: np.ndarray, start: np.ndarray, end: np.ndarray, ranks: int) -> np.ndarray:
    order = np.lexsort((start, rank))
    rank, start, end = rank[order], start[order], end[order]
    seconds = np.zeros(ranks)
    for r, rows in _by_rank(rank, ranks):
        reached = np.maximum.accumulate(end[rows])
        begin = start[rows].copy()
        begin[1:] = np.maximum(begin[1:], reached[:-1])
        seconds[r] = np.maximum(reached - begin, 0).sum()
    return seconds


def _steps(trace: Trace, clock: str) -> Iterator[tuple[float, float]]:
    """Of each step: the seconds from its first compute to its last, and the mean rank's busy."""
    spans, start, end = _times(trace.spans, clock, COMPUTE)
    ranks = trace.ranks
    order = np.argsort(spans.step, kind="stable")
    edges = np.flatnonzero(np.diff(spans.step[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        window = end[rows].max() - start[rows].min()
        seconds = _union(spans.rank[rows], start[rows], end[rows], trace.meta["ranks"])
        if seconds.any():
            yield float(window), float(seconds[ranks].mean())


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def _by_rank(rank: np.ndarray, ranks: int) -> Iterator[tuple[int, slice]]:
    """Each rank that has rows, with its rows in columns sorted by rank."""
    edges = np.searchsorted(rank, np.arange(ranks + 1)).tolist()
    return (
        (r, slice(a, b)) for r, (a, b) in enumerate(zip(edges, edges[1:], strict=False)) if a < b
    )


def _codes(values) -> np.ndarray:
    """Equal values as equal numbers, counted from 0."""
    seen: dict = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)
