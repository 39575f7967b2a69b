"""Writes and reads a Trace as Chrome Trace Event JSON, for Perfetto and chrome://tracing.

    process pid = rank     thread tid = 1 + lane     "X" a span        "C" memory held
    (named with its host; ranks of a host together)
    "s" -> "f"  a message's arrow, bound to the span that sent and the span that received it
    "i"         the sentence on a run that failed

ts and dur, in microseconds, are the whole nanoseconds in which Perfetto draws a span (perfetto.py);
where these differ from its start and end to the picosecond, the args hold the exact times. An
action without a name is called by its code and microbatch, "F0", another span by its kind, with its
bucket or step; cat is the kind. Other columns are in the args; messages, buffers and meta are under
the top-level key "dlviz". A missing value is left out or null. JSON has no NaN: in buffers, meta
and a span's fields, NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity", and
are read back as numbers. Arrows and the sentence are written from messages and meta and not read
back.

Source: "Trace Event Format" (Chromium project, 2016), and Perfetto's importer of it.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dlviz.trace.hosts import host_of
from dlviz.trace.perfetto import Drawn, drawn
from dlviz.trace.table import BUFFERS, MESSAGES, MISSING, SPANS, Table, Tables, TraceError

FORMAT = 2
CODES = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
_IN_ARGS = [
    name
    for name in SPANS
    if name not in ("rank", "lane", "kind", "name", "start", "end", "wall_start", "wall_end")
]
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_GZIP = b"\x1f\x8b"


def encode(trace: Tables) -> bytes:
    """The JSON file of a valid trace."""
    spans = trace.spans
    wall = "device" if _same(spans) else "own"
    picture = drawn(spans, trace.messages)
    document = {
        "traceEvents": [
            *_names(trace),
            *_slices(spans, picture, with_wall=wall == "own"),
            *_arrows(spans, picture),
            *_counters(trace.memory),
            *_losses(trace),
            *_failure(trace, picture),
        ],
        "displayTimeUnit": "ms",
        "dlviz": {
            "format": FORMAT,
            "wall": wall,
            "meta": _plain(trace.meta),
            "messages": {name: _column(trace.messages[name]) for name in MESSAGES},
            "buffers": [
                {
                    **{key: _present(buffer[key]) for key in BUFFERS},
                    "dtype": buffer["array"].dtype.name,
                    "array": _plain(buffer["array"].tolist()),
                }
                for buffer in trace.buffers
            ],
        },
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The arguments of `Trace(...)`, from a file's bytes (gzip or not). Raises TraceError."""
    document = _json(_unpacked(data))
    if not isinstance(document, dict) or not isinstance(document.get("dlviz"), dict):
        raise TraceError("it is JSON, but it has no 'dlviz' part, so dlviz did not write it.")
    own = document["dlviz"]
    if own.get("format") != FORMAT:
        raise TraceError(f"its format is {own.get('format')!r}, and this dlviz reads {FORMAT}.")
    try:
        return {
            "spans": _spans(document["traceEvents"], own["wall"]),
            "messages": _messages(own["messages"]),
            "memory": _memory(document["traceEvents"]),
            "buffers": [_buffer(buffer) for buffer in own["buffers"]],
            "meta": _numbers(dict(own["meta"])),
        }
    except TraceError:
        raise
    except RecursionError:
        raise TraceError("its JSON is nested too deeply to be a trace.") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TraceError(f"an entry of it is not as dlviz writes it ({reason:.80}).") from None


def compress(data: bytes) -> bytes:
    """gzip at a level that takes well under a second for a trace of 100,000 spans."""
    return gzip.compress(data, compresslevel=4, mtime=0)


# ---------------------------------------------------------------- writing


def _same(spans: Table) -> bool:
    return np.array_equal(spans.start, spans.wall_start) and np.array_equal(
        spans.end, spans.wall_end
    )


def _microseconds(seconds: np.ndarray) -> np.ndarray:
    return np.round(seconds * 1e6, 6)


def _whole(nanoseconds: np.ndarray) -> list[float]:
    """Whole nanoseconds in microseconds, plus a quarter of one where a double cannot hold them, so
    that rounding and truncating readers get the same."""
    more = np.where(nanoseconds % 125 == 0, 0.0, 0.25)
    return np.round((nanoseconds + more) / 1e3, 5).tolist()


def _label(kind: str, microbatch: int, bucket: int, step: int) -> str:
    """The label of a span without a name."""
    if kind in CODES and microbatch >= 0:
        return f"{CODES[kind]}{microbatch}"
    if bucket >= 0:
        return f"{kind} b{bucket}"
    return f"step {step}" if kind == "step" and step >= 0 else kind


def _lanes(spans: Table) -> dict[str, int]:
    return {lane: i for i, lane in enumerate(dict.fromkeys(spans.lane.tolist()), start=1)}


def _names(trace: Tables) -> list[dict[str, Any]]:
    lanes = _lanes(trace.spans)

    def label(what: str, rank: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": rank, "tid": tid, "args": args}

    events, host = [], host_of(trace.meta)
    first = {name: rank for rank, name in sorted(host.items(), reverse=True)}  # the lowest rank
    order = sorted(trace.ranks, key=lambda rank: (first.get(host.get(rank, ""), 0), rank))
    for place, rank in zip(sorted(trace.ranks), order, strict=True):
        name = f"rank {rank} ({host[rank]})" if len(first) > 1 else f"rank {rank}"
        events.append(label("process_name", rank, 0, {"name": name}))
        events.append(label("process_sort_index", rank, 0, {"sort_index": place}))
    pairs = zip(trace.spans.rank.tolist(), trace.spans.lane.tolist(), strict=True)
    for rank, lane in dict.fromkeys(pairs):
        tid = lanes[lane]
        events.append(label("thread_name", rank, tid, {"name": lane}))
        events.append(label("thread_sort_index", rank, tid, {"sort_index": tid}))
    return events


def _slices(spans: Table, picture: Drawn, with_wall: bool) -> list[dict[str, Any]]:
    lanes = _lanes(spans)
    args: list[dict[str, Any]] = [{} for _ in range(len(spans))]

    def put(name: str, column: np.ndarray, present: Any) -> None:
        rows = np.flatnonzero(present)
        for row, value in zip(rows.tolist(), column[rows].tolist(), strict=True):
            args[row][name] = value

    for name in _IN_ARGS:
        column = spans[name]
        if SPANS[name] is dict:
            filled = [value is not None for value in column]
            put(name, np.array([*map(_plain, column), None], dtype=object)[:-1], filled)
        else:
            put(name, column, column != (0 if name == "depth" else MISSING[SPANS[name]]))
    for name in ("start", "end"):
        exact = np.round(spans[name], 12)
        put(name, exact, exact != _seconds(getattr(picture, name)))
    if with_wall:
        for name in ("wall_start", "wall_end"):
            put(name, np.round(spans[name], 12), ~np.isnan(spans[name]))
    labels = np.array([*_labels(spans), None], dtype=object)[:-1]
    put("name", spans.name, (spans.name == labels) & (spans.name != ""))
    return [
        {
            "ph": "X",
            "pid": rank,
            "tid": lanes[lane],
            "ts": ts,
            "dur": dur,
            "name": name or label,
            "cat": kind,
            "args": arg,
        }
        for rank, lane, ts, dur, name, label, kind, arg in zip(
            spans.rank.tolist(),
            spans.lane.tolist(),
            _whole(picture.start),
            _whole(picture.end - picture.start),
            spans.name.tolist(),
            labels.tolist(),
            spans.kind.tolist(),
            args,
            strict=True,
        )
    ]


def _labels(columns: Any) -> Iterator[str]:
    """The label that each span would have without a name."""
    return map(_label, *(columns[name] for name in ("kind", "microbatch", "bucket", "step")))


def _arrows(spans: Table, picture: Drawn) -> list[dict[str, Any]]:
    lanes = _lanes(spans)

    def ends(phase: str, row: np.ndarray, moment: np.ndarray, more: dict[str, Any]):
        columns = (spans.rank[row].tolist(), spans.lane[row].tolist(), _whole(moment))
        for rank, lane, at, number in zip(*columns, picture.message.tolist(), strict=True):
            event = {"ph": phase, "pid": rank, "tid": lanes[lane], "ts": at, "id": number}
            yield {**event, "name": "message", "cat": "message", **more}

    return [
        *ends("s", picture.sender, picture.sent, {}),
        *ends("f", picture.receiver, picture.received, {"bp": "e"}),
    ]


def _failure(trace: Tables, picture: Drawn) -> list[dict[str, Any]]:
    """A mark across the whole picture when the run failed, with the sentence that says why."""
    if "failure" not in trace.meta:
        return []
    event = {"ph": "i", "s": "g", "pid": 0, "tid": 0, "cat": "failure"}
    at = _whole(picture.end.max(initial=0, keepdims=True))[0]
    return [{**event, "ts": at, "name": trace.meta["failure"]["message"]}]


def _losses(trace: Tables) -> list[dict[str, Any]]:
    """A mark across the whole picture when the run lost a rank, which says how."""
    event = {"ph": "i", "s": "g", "pid": 0, "tid": 0, "cat": "lost"}
    return [
        {**event, "ts": one["when"] * 1e6, "name": f"rank {rank} {one['how']}"}
        for rank, one in trace.meta.get("lost", {}).items()
    ]


def _counters(memory: Table) -> list[dict[str, Any]]:
    columns = (
        memory.rank.tolist(),
        _microseconds(memory.time).tolist(),
        memory.what.tolist(),
        _column(memory.nbytes),
    )
    return [
        {"ph": "C", "pid": rank, "tid": 0, "ts": ts, "name": "memory", "args": {what: nbytes}}
        for rank, ts, what, nbytes in zip(*columns, strict=True)
    ]


def _column(values: np.ndarray) -> list[Any]:
    if values.dtype == np.float64:
        values = np.round(values, 12)
    return [_present(value) for value in values.tolist()]


def _present(value: Any) -> Any:
    """None for a missing number or time."""
    return None if value != value or (type(value) is int and value == -1) else value


def _plain(value: Any) -> Any:
    """`value` as JSON; other types become text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# ---------------------------------------------------------------- reading


def _unpacked(data: bytes) -> str:
    try:
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"its gzip data is cut short or damaged ({error}).") from None
    except UnicodeDecodeError:
        raise TraceError("it is neither JSON nor gzip, but some other binary data.") from None


def _json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise TraceError(f"it holds a bare {constant}, which is not JSON: write null instead.")

    if not text.strip():
        raise TraceError("it is empty.")
    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        whole = text.rstrip().endswith("}") and error.pos < len(text.rstrip())
        what = "is not JSON" if whole or not text.lstrip().startswith("{") else "is cut short"
        place = f"line {error.lineno}, column {error.colno}"
        raise TraceError(f"it {what} ({place}: {error.msg}).") from None
    except TraceError:
        raise
    except ValueError:
        raise TraceError("it holds a number of too many digits.") from None
    except RecursionError:
        raise TraceError("its JSON is nested too deeply to be a trace.") from None


def _seconds(nanoseconds: np.ndarray) -> np.ndarray:
    return np.round(nanoseconds / 1e9, 12)


def _messages(columns: dict[str, Any]) -> dict[str, Any]:
    """The table's columns; older files call the operation sum "add"."""
    if not isinstance(columns, dict) or not isinstance(columns.get("op"), list):
        return columns
    return columns | {"op": ["sum" if op == "add" else op for op in columns["op"]]}


def _spans(events: list[dict[str, Any]], wall: str) -> dict[str, Any]:
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    slices = [event for event in events if event["ph"] == "X"]
    args = [event["args"] for event in slices]
    ts = np.array([event["ts"] for event in slices], dtype=np.float64)
    dur = np.array([event["dur"] for event in slices], dtype=np.float64)
    start, length = (np.floor(column * 1e3 + 0.5) for column in (ts, dur))
    columns: dict[str, Any] = {
        "rank": [event["pid"] for event in slices],
        "lane": [lanes[event["pid"], event["tid"]] for event in slices],
        "kind": [event["cat"] for event in slices],
    }
    for name, drawn_at in (("start", start), ("end", start + length)):
        pairs = zip(args, _seconds(drawn_at).tolist(), strict=True)
        columns[name] = [arg.get(name, default) for arg, default in pairs]
    for name in _IN_ARGS:
        missing = 0 if name == "depth" else MISSING[SPANS[name]]
        columns[name] = [arg.get(name, missing) for arg in args]
    columns["name"] = [
        arg.get("name", "" if event["name"] == label else event["name"])
        for event, arg, label in zip(slices, args, _labels(columns), strict=True)
    ]
    columns["fields"] = [_numbers(fields) for fields in columns["fields"]]
    if wall == "device":
        columns["wall_start"], columns["wall_end"] = columns["start"], columns["end"]
    else:
        columns["wall_start"] = [arg.get("wall_start") for arg in args]
        columns["wall_end"] = [arg.get("wall_end") for arg in args]
    return columns


def _memory(events: list[dict[str, Any]]) -> dict[str, Any]:
    counters = [event for event in events if event["ph"] == "C"]
    held = [next(iter(event["args"].items())) for event in counters]
    return {
        "rank": [event["pid"] for event in counters],
        "time": np.round(np.array([event["ts"] for event in counters], np.float64) / 1e6, 12),
        "what": [what for what, _ in held],
        "nbytes": [nbytes for _, nbytes in held],
    }


def _buffer(buffer: dict[str, Any]) -> dict[str, Any]:
    buffer = dict(buffer)
    dtype = np.dtype(buffer.pop("dtype"))
    if dtype.kind not in "biuf":
        raise TraceError(f"a buffer holds numbers, not {dtype}.")
    return {**buffer, "array": np.array(_numbers(buffer["array"]), dtype=dtype)}


def _numbers(value: Any) -> Any:
    """`value` with the strings that stand for NaN and the infinities as numbers again."""
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return value
