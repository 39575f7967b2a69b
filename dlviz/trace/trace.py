"""The Trace: the whole record of a run, real or simulated, and all that a picture may use.

    spans      what each rank did when: one row for each forward, send, wait, ...
    messages   every message between two ranks; a span's `flow` is the row of its message
    memory     bytes that a rank held from a time on, by use
    buffers    snapshots of the tensors that a worker watched
    meta       the clock of the times, the number of ranks, the outcome, the machine

Times are seconds from the run's start. `start`, `end`, `sent`, `arrived` and `received` are device
times, of the machine of a paced run or of the cost model; the wall columns are the times of this
machine. A span names the lane (the thread) on which its rank ran it: on one lane spans nest
(`depth`) or follow each other, and never overlap in part.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlviz.trace import chrome
from dlviz.trace.hosts import clock_bound
from dlviz.trace.table import BUFFERS, MEMORY, MESSAGES, SPANS, Table, TraceError, tabulate

CLOCKS = ("wall", "paced", "simulated")
OUTCOMES = ("completed", "failed", "unreceived")
KINDS = (  # of spans; a worker's own may have other names
    "step", "phase", "data", "forward", "recompute", "backward", "backward_input",
    "backward_weight", "update", "compress", "collective", "send", "recv", "wait", "idle", "lock",
)  # fmt: skip
TOLERANCE = 1e-9  # seconds: times closer than this count as equal


class Trace:
    """Spans, messages, memory, buffers and meta of one run.

    `spans`, `messages` and `memory` are each a Table, a dict of columns or a list of dicts; columns
    left out are filled with missing values. `buffers` are dicts with the keys rank, name, time,
    wall, index, where, step and array (the watched tensor's contents, made flat). `meta` holds
    clock ("wall", "paced" or "simulated"), ranks, outcome ("completed", "failed" or "unreceived"),
    machine, warning, and anything else; missing keys are filled in. For a run that failed,
    `failure` holds a message (one sentence), the cycle (ranks that wait for each other, or none)
    and the waits (rank, lane, op, peer, since: seconds); the spans that never ended have
    unfinished=True among their fields, and end when the run was stopped. For a run that lost ranks
    and went on, `lost` holds by rank (as text) when (s) and how. For a run on several hosts,
    `hosts` holds the ranks of each by name, and `clock_error` the s by which its times may be
    wrong. Raises TraceError (a ValueError) for an unknown column or a value of another type.
    """

    def __init__(
        self,
        spans: Any = None,
        messages: Any = None,
        memory: Any = None,
        buffers: Iterable[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ):
        self.spans = tabulate("spans", SPANS, spans)
        self.messages = tabulate("messages", MESSAGES, messages)
        self.memory = tabulate("memory rows", MEMORY, memory)
        self.buffers = _snapshots(buffers)
        highest = max(
            self.spans.rank.max(initial=-1),
            self.messages.src.max(initial=-1),
            self.messages.dst.max(initial=-1),
            self.memory.rank.max(initial=-1),
            *(buffer["rank"] for buffer in self.buffers),
        )
        self.meta: dict[str, Any] = {
            "clock": "simulated" if np.isnan(self.spans.wall_start).all() else "wall",
            "ranks": int(highest) + 1,
            "outcome": "completed",
            "machine": "",
            "warning": "",
            **(meta or {}),
        }

    @property
    def ranks(self) -> list[int]:
        """The ranks in this trace: all of the run's, or those that `only` chose."""
        return list(self.meta.get("only", range(self.meta["ranks"])))

    def only(
        self,
        rank: Any = None,
        kind: Any = None,
        lane: Any = None,
        step: Any = None,
        time: tuple[float, float] | None = None,
    ) -> Trace:
        """The trace of the chosen ranks, kinds, lanes and steps, each a value, a collection or a
        slice, and of the interval `time` (s, by the device clock).

        A message stays if its sender or its receiver is among the ranks and a span of the steps
        carries it (its own `step` counts the rounds of a collective). Spans and messages stay whole
        where a part of them lies in the interval. Ranks keep their numbers, and `flow` stays the
        row of its message. For a run that failed, a wait stays if its span does, and the cycle if
        all its ranks do. Metrics have NaN for the ranks that are cut away. Raises ValueError for a
        rank that the run does not have, a kind that is neither one of `KINDS` nor in it, and an
        interval that ends before it begins.
        """
        spans, messages, memory = self.spans, self.messages, self.memory
        ranks = _chosen(rank, self.meta["ranks"])
        steps = _chosen(step, int(spans.step.max(initial=-1)) + 1)
        kinds, lanes = _chosen(kind), _chosen(lane)
        self._check_chosen(ranks, kinds, time)
        chosen = (
            _among(spans.rank, ranks)
            & _among(spans.kind, kinds)
            & _among(spans.lane, lanes)
            & _among(spans.step, steps)
        )
        carried = _among(messages.src, ranks) | _among(messages.dst, ranks)
        if steps is not None:
            rows = np.arange(len(messages))
            carried &= np.isin(rows, spans.flow[_among(spans.step, steps)])
        more: dict[str, Any] = {} if ranks is None else {"only": sorted(ranks & {*self.ranks})}
        held, buffers = _among(memory.rank, ranks), self.buffers
        if time is not None:
            begin, end = time
            chosen &= (spans.start < end) & (spans.end > begin)
            carried &= (messages.sent < end) & ~(messages.received <= begin)
            held &= memory.time < end
            buffers = [buffer for buffer in buffers if begin <= buffer["time"] < end]
            more["time"] = [begin, end]
        if "failure" in self.meta:
            more["failure"] = _still_failing(self.meta["failure"], spans[chosen])

        spans, row = spans[chosen], np.append(np.where(carried, np.cumsum(carried) - 1, -1), -1)
        spans.flow[:] = row[spans.flow]  # -1, no message, is the last entry and stays -1
        return Trace(
            spans,
            messages[carried],
            memory[held],
            [
                buffer
                for buffer in buffers
                if (ranks is None or buffer["rank"] in ranks)
                and (steps is None or buffer["step"] in steps)
            ],
            {**self.meta, **more},
        )

    def _check_chosen(
        self, ranks: set[Any] | None, kinds: set[Any] | None, time: tuple[float, float] | None
    ) -> None:
        there = range(self.meta["ranks"])
        if strange := (ranks or set()) - {*there}:
            rank = min(strange, key=str)
            raise ValueError(f"rank={rank!r} is not one of this run's {len(there)} ranks.")
        known = {*self.spans.kind}
        if strange := (kinds or set()) - {*KINDS} - known:
            raise ValueError(
                f"kind={min(strange, key=str)!r} is not in this Trace: it has "
                f"{', '.join(sorted(known)) or 'no spans'}."
            )
        if time is not None and not time[0] <= time[1]:
            raise ValueError(f"time={time!r} ends before it begins.")

    @classmethod
    def merge(cls, traces: Iterable[Trace]) -> Trace:
        """One Trace of parts of one run, each cut to ranks of its own (`only`).

        A message between two parts is in both, and once in the merged one. Raises ValueError for
        parts that share a rank, or are of runs with another clock or number of ranks.
        """
        parts = list(traces)
        homes = [rank for part in parts for rank in part.ranks]
        kinds = {(part.meta["clock"], part.meta["ranks"]) for part in parts}
        if len(kinds) != 1 or len(homes) != len({*homes}):
            raise ValueError(
                f"parts with ranks {[part.ranks for part in parts]} of runs with (clock, ranks) "
                f"{sorted(kinds)} are not one run's: merge what only(rank=...) has cut from one."
            )
        known: dict[Any, int] = {}  # (message, its number among equal ones) -> its row
        rows, spans = [], []
        for part in parts:
            place, alike = [], Counter()
            for message in part.messages.rows():
                alike[message] += 1
                key = message, alike[message]
                if key not in known:
                    known[key] = len(rows)
                    rows.append(message._asdict())
                place.append(known[key])
            for span in part.spans.rows():
                flow = None if span.flow is None else place[span.flow]
                spans.append(span._asdict() | {"flow": flow})
        meta = {**parts[0].meta}
        meta.pop("only", None)
        if len(homes) < meta["ranks"]:
            meta["only"] = sorted(homes)
        if any(part.meta.get("time") != meta.get("time") for part in parts):
            meta.pop("time", None)
        if "failure" in meta:
            waits = [wait for part in parts for wait in part.meta["failure"]["waits"]]
            meta["failure"] = {**meta["failure"], "waits": waits}
        memory = [row._asdict() for part in parts for row in part.memory.rows()]
        return cls(spans, rows, memory, [b for part in parts for b in part.buffers], meta)

    def validate(self) -> None:
        """Raises TraceError, one sentence with row, rank and values, for an impossible trace.

        Spans end no earlier than they start, and on one lane nest or follow each other, by the
        device clock and by the wall clock; messages are sent, arrive and are received in this
        order, up to the error between clocks of two hosts; ranks and flows exist; in a completed
        run every message was received.
        """
        _check_meta(self.meta)
        ranks, spans, messages = self.meta["ranks"], self.spans, self.messages
        for what, table, column in (
            ("span", spans, "rank"),
            ("message", messages, "src"),
            ("message", messages, "dst"),
            ("memory row", self.memory, "rank"),
        ):
            _check_range(what, column, table[column], 0, ranks, f"the run has {ranks} ranks")
        _check_range("span", "peer", spans.peer, -1, ranks, f"the run has {ranks} ranks")
        _check_range("span", "flow", spans.flow, -1, len(messages), f"of {len(messages)} messages")
        _check_spans(spans, "start", "end", required=True)
        _check_spans(spans, "wall_start", "wall_end", required=False)
        for row in np.flatnonzero(~np.isfinite(self.memory.time))[:1]:
            raise TraceError(f"memory row {row} (rank {self.memory.rank[row]}) has no time.")
        bound = clock_bound(self.meta, messages.src, messages.dst) + TOLERANCE
        _check_messages(messages, bound, completed=self.meta["outcome"] == "completed")
        for i, buffer in enumerate(self.buffers):
            if not 0 <= buffer["rank"] < ranks:
                raise TraceError(f"buffer {i} has rank {buffer['rank']}: the run has {ranks} ranks")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the trace as Chrome Trace Event JSON, which Perfetto can open.

        `path` ends in .json or .json.gz. Times are stored to the picosecond. Raises ValueError for
        another ending, TraceError for a trace that `validate` refuses.
        """
        path = Path(path)
        if not path.name.endswith((".json", ".json.gz")):
            raise ValueError(f"{path} cannot be a trace file: end its name in .json or .json.gz.")
        self.validate()
        data = chrome.encode(self)
        path.write_bytes(chrome.compress(data) if path.name.endswith(".gz") else data)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """The trace that `save` wrote to `path`; runs no code from the file.

        Raises TraceError, one sentence with the file's name, for a file that is cut short, is not
        JSON, is not a trace of dlviz, or holds an impossible trace.
        """
        try:
            trace = cls(**chrome.decode(Path(path).read_bytes()))
            trace.validate()
        except TraceError as error:
            raise TraceError(f"{path} cannot be read as a trace: {error}") from None
        return trace

    def __repr__(self) -> str:
        meta = self.meta
        cut = f"{len(self.ranks)} of " if "only" in meta else ""
        held = f"{len(self.spans)} spans, {len(self.messages)} messages"
        return (
            f"Trace({cut}{meta['ranks']} ranks, {held}, {meta['clock']} clock, {meta['outcome']})"
        )


def _snapshots(buffers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    arrays, labels = [], []
    for buffer in buffers:
        if "array" not in buffer:
            raise TraceError(f"a buffer needs an array besides {', '.join(buffer)}.")
        array = np.array(buffer["array"]).reshape(-1)
        if array.dtype.kind not in "biuf":
            raise TraceError(f"a buffer's array holds numbers, not {array.dtype}.")
        arrays.append(array)
        labels.append({key: value for key, value in buffer.items() if key != "array"})
    table = tabulate("buffers", BUFFERS, labels)
    rows = zip(*(table[name].tolist() for name in BUFFERS), strict=True)
    return [
        {**dict(zip(BUFFERS, row, strict=True)), "array": array}
        for row, array in zip(rows, arrays, strict=True)
    ]


def _chosen(values: Any, count: int = 0) -> set[Any] | None:
    if values is None:
        return None
    if isinstance(values, slice):
        return set(range(*values.indices(count)))
    if isinstance(values, Collection | range | np.ndarray) and not isinstance(values, str):
        return set(values)
    return {values}


def _among(column: np.ndarray, values: set[Any] | None) -> np.ndarray:
    if values is None:
        return np.ones(len(column), dtype=bool)
    return np.fromiter((value in values for value in column.tolist()), bool, len(column))


def _still_failing(failure: dict[str, Any], spans: Table) -> dict[str, Any]:
    """A run's failure where only `spans` are left of the run."""
    unfinished = {
        (rank, lane)
        for rank, lane, fields in zip(
            spans.rank.tolist(), spans.lane.tolist(), spans.fields.tolist(), strict=True
        )
        if fields and fields.get("unfinished")
    }
    waits = [wait for wait in failure["waits"] if (wait["rank"], wait["lane"]) in unfinished]
    stuck = {wait["rank"] for wait in waits}
    cycle = failure["cycle"] if stuck.issuperset(failure["cycle"]) else []
    return {**failure, "cycle": cycle, "waits": waits}


def _check_meta(meta: Mapping[str, Any]) -> None:
    for key, known in (("clock", CLOCKS), ("outcome", OUTCOMES)):
        if meta[key] not in known:
            raise TraceError(f"meta[{key!r}] is {meta[key]!r}: use {', '.join(map(repr, known))}.")
    ranks = meta["ranks"]
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 0:
        raise TraceError(f"meta['ranks'] is {ranks!r}: a run has a whole number of ranks.")
    chosen = meta.get("only", [])
    if not isinstance(chosen, list) or any(rank not in range(ranks) for rank in chosen):
        raise TraceError(f"meta['only'] is {chosen!r}: list ranks of the run, 0 to {ranks - 1}.")
    if "failure" in meta:
        _check_failure(meta["failure"], ranks)
    _check_lost(meta.get("lost", {}), ranks)
    if "hosts" in meta:
        _check_hosts(meta["hosts"], meta.get("clock_error", {}), ranks)


def _check_hosts(hosts: Any, errors: Any, ranks: int) -> None:
    lists = [*hosts.values()] if isinstance(hosts, dict) else [None]
    named = [rank for own in lists if isinstance(own, list) for rank in own]
    if not all(isinstance(own, list) for own in lists) or sorted(map(repr, named)) != sorted(
        map(repr, range(ranks))
    ):
        raise TraceError(
            f"meta['hosts'] is {str(hosts)[:80]}: state the ranks of each host by its name, every "
            f"rank from 0 to {ranks - 1} once."
        )
    known = isinstance(errors, dict) and errors.keys() <= hosts.keys()
    if not known or not all(
        isinstance(s, int | float) and 0 <= s < np.inf for s in errors.values()
    ):
        raise TraceError(
            f"meta['clock_error'] is {str(errors)[:80]}: state by host how many s its times may be "
            "wrong by."
        )


def _check_lost(lost: Any, ranks: int) -> None:
    def is_loss(one: Any) -> bool:
        return (
            isinstance(one, dict)
            and isinstance(one.get("when"), int | float)
            and isinstance(one.get("how"), str)
        )

    known = {str(rank) for rank in range(ranks)}
    if not isinstance(lost, dict) or not known >= {*lost} or not all(map(is_loss, lost.values())):
        raise TraceError(
            f"meta['lost'] is {str(lost)[:80]}: state by rank, as text, when it was lost (s) and "
            "how."
        )


def _check_failure(failure: Any, ranks: int) -> None:
    known = range(ranks)

    def is_wait(wait: Any) -> bool:
        return (
            isinstance(wait, dict)
            and wait.keys() >= {"rank", "lane", "op", "peer", "since"}
            and wait["rank"] in known
            and (wait["peer"] is None or wait["peer"] in known)
            and isinstance(wait["lane"], str)
            and isinstance(wait["op"], str)
            and isinstance(wait["since"], int | float)
        )

    holds = (
        isinstance(failure, dict)
        and failure.keys() >= {"message", "cycle", "waits"}
        and isinstance(failure["message"], str)
        and isinstance(failure["cycle"], list)
        and all(rank in known for rank in failure["cycle"])
        and isinstance(failure["waits"], list)
        and all(map(is_wait, failure["waits"]))
    )
    if not holds:
        raise TraceError(
            f"meta['failure'] is {str(failure)[:80]}: state its message, the ranks of its cycle, "
            "and its waits, each with rank, lane, op, peer and since."
        )


def _check_range(what: str, column: str, values: np.ndarray, low: int, high: int, law: str) -> None:
    for row in np.flatnonzero((values < low) | (values >= high))[:1]:
        raise TraceError(f"{what} {row} has {column} {values[row]}: {law}.")


def _check_spans(spans: Table, first: str, last: str, required: bool) -> None:
    start, end = spans[first], spans[last]
    timed = np.isfinite(start) & np.isfinite(end)
    untimed = ~timed if required else ~(timed | (np.isnan(start) & np.isnan(end)))
    for row in np.flatnonzero(untimed)[:1]:
        raise TraceError(f"{_span(spans, row)} has {first} {start[row]} and {last} {end[row]}.")
    for row in np.flatnonzero(end < start)[:1]:
        raise TraceError(
            f"{_span(spans, row)} ends before it starts: {first} {start[row]:.9g} s, "
            f"{last} {end[row]:.9g} s."
        )
    rows = np.flatnonzero(timed)
    lanes: dict[tuple[int, str], int] = {}
    keys = zip(spans.rank[rows].tolist(), spans.lane[rows].tolist(), strict=True)
    lane = np.fromiter((lanes.setdefault(key, len(lanes)) for key in keys), np.int64, len(rows))
    order = np.lexsort((start[rows], lane))
    clash = _clash(lane[order].tolist(), start[rows[order]].tolist(), end[rows[order]].tolist())
    if clash:
        a, b = (int(rows[order[i]]) for i in clash)
        raise TraceError(
            f"{_span(spans, a)} and {_span(spans, b)} overlap in part: {first} to {last} "
            f"{start[a]:.9g} to {end[a]:.9g} s and {start[b]:.9g} to {end[b]:.9g} s; on one lane "
            "spans nest or follow each other."
        )


def _clash(lane: list[int], start: list[float], end: list[float]) -> tuple[int, int] | None:
    """Two spans that overlap in part, if any, among spans sorted by lane and start."""
    open_spans: list[int] = []  # those open at this moment, outermost first
    current = -1
    for i, begin in enumerate(start):
        if lane[i] != current:
            current, open_spans = lane[i], []
        while open_spans and end[open_spans[-1]] <= begin + TOLERANCE:
            open_spans.pop()
        at = len(open_spans)
        while at and end[i] > end[open_spans[at - 1]] + TOLERANCE:
            if begin > start[open_spans[at - 1]] + TOLERANCE:
                return open_spans[at - 1], i
            at -= 1  # they start together, so this one encloses that one
        open_spans.insert(at, i)
    return None


def _span(spans: Table, row: int) -> str:
    kind, rank, lane = spans.kind[row], spans.rank[row], spans.lane[row]
    return f"span {row} ({kind[:40]} on rank {rank}, lane {lane[:40]!r})"


def _check_messages(messages: Table, bound: np.ndarray, completed: bool) -> None:
    """`bound`: for each message the s by which it may seem to arrive before it was sent."""
    for row in np.flatnonzero(np.isnan(messages.sent))[:1]:
        raise TraceError(f"{_message(messages, row)} has no time at which it was sent.")
    for name in ("sent", "arrived", "received", "wall_sent", "wall_received"):
        for row in np.flatnonzero(np.isinf(messages[name]))[:1]:
            raise TraceError(f"{_message(messages, row)} has {name} {messages[name][row]}.")
    for earlier, later in (
        ("sent", "arrived"),
        ("sent", "received"),
        ("arrived", "received"),
        ("wall_sent", "wall_received"),
    ):
        a, b = messages[earlier], messages[later]
        for row in np.flatnonzero(b < a - bound)[:1]:
            raise TraceError(
                f"{_message(messages, row)} has {later} {b[row]:.9g} s before {earlier} "
                f"{a[row]:.9g} s."
            )
    for row in np.flatnonzero(np.isnan(messages.received) & completed)[:1]:
        raise TraceError(
            f"{_message(messages, row)} was never received, yet the run completed: "
            "its outcome is 'unreceived' or 'failed'."
        )


def _message(messages: Table, row: int) -> str:
    return f"message {row} (rank {messages.src[row]} to rank {messages.dst[row]})"
