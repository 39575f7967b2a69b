"""What the ranks recorded, put together into one Trace."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from dlviz.cluster.pacing.load import processors, share_of_others
from dlviz.cluster.parent.warn import late
from dlviz.cluster.recording.log import RankRecord, Received, Sent
from dlviz.cluster.stuck.waits import TAGS, Wait
from dlviz.machine import Machine
from dlviz.trace import Trace
from dlviz.trace.recorder import Row

KNOWN = ("step", "stage", "microbatch", "bucket", "group", "sequence", "nbytes", "peer")
_COLUMNS = (
    "rank", "lane", "kind", "name", "start", "end", "wall_start", "wall_end", "depth", *KNOWN,
    "flow", "where", "fields",
)  # fmt: skip
_MESSAGE = (
    "src", "dst", "nbytes", "offset", "count", "op", "sent", "arrived", "received", "wall_sent",
    "wall_received", "tag", "group", "step",
)  # fmt: skip
NAMES = {"send": "to rank {}", "recv": "from rank {}", "wait": "for rank {}"}
NAN = float("nan")
FORWARD = 0.005  # s: what a forward takes where its machine does not say
SLACK = 0.02  # of a paced run's length: it may be so late, if that is more than a forward takes
LONGEST = 300  # characters of the sentence on a failure


@dataclass(frozen=True)
class Failed:
    """How a run ended: what happened, who was waiting for whom, and the ranks that waited for each
    other in a cycle."""

    what: str
    waits: list[Wait]
    cycle: list[int]

    def plain(self, epoch: int) -> dict[str, Any]:
        """As the Trace's meta says it: one sentence, and the waits since when (s from the start of
        the run; a paced run's device time is that too, or it is late)."""
        first, *more = self.what.strip().splitlines() or ["the run failed"]
        shown = textwrap.shorten(f"{first} …" if more else first, LONGEST, placeholder=" …")
        return {
            "message": shown[0].upper() + shown[1:] + ("" if shown[-1] in ".!?…" else "."),
            "cycle": self.cycle,
            "waits": [
                {
                    "rank": wait.rank,
                    "lane": wait.lane,
                    "op": wait.op,
                    "peer": wait.peer,
                    "since": round((wait.since - epoch) * 1e-9, 9),
                }
                for wait in self.waits
            ],
        }


def clock_of(machine: Machine | None) -> dict[str, Any]:
    """What a Trace's meta says of its clock. The tolerance (s) is how late a paced run may be, at
    least: see SLACK."""
    if machine is None:
        return {"clock": "wall", "machine": "this machine", "tolerance": 0.0}
    return {
        "clock": "paced",
        "machine": str(machine),
        "topology": machine.topology.outline,
        "tolerance": machine.step or FORWARD,
    }


def build(
    reports: list[RankRecord],
    ranks: int,
    epoch: int,
    meta: dict[str, Any],
    failed: Failed | None = None,
) -> Trace:
    """A Trace of what `reports` (one per rank that could still report) say. `epoch` is
    perf_counter_ns at time 0. Of a run that failed, spans that were still open end together, when
    the last rank was asked."""
    messages, rows_of = _messages(reports, epoch)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for report in reports:
        for lane, rows in report.lanes:
            for row in rows:
                _add_span(columns, report.rank, lane, row, rows_of, epoch)
    if failed is not None:
        meta = {**meta, "failure": failed.plain(epoch)}
        _end_together(columns)
    if meta["outcome"] == "completed" and any(value != value for value in messages["received"]):
        meta = {**meta, "outcome": "unreceived"}
    meta = {**meta, "ranks": ranks}
    meta |= _pace(reports, columns, meta)
    return Trace(columns, messages, _memory(reports, epoch), _buffers(reports, epoch), meta)


def _memory(reports: list[RankRecord], epoch: int) -> list[dict[str, Any]]:
    return [
        {
            "rank": report.rank,
            "time": _time(held.time, held.wall, epoch),
            "what": held.what,
            "nbytes": held.nbytes,
        }
        for report in reports
        for held in report.memory
    ]


def _buffers(reports: list[RankRecord], epoch: int) -> list[dict[str, Any]]:
    return [
        {
            "rank": report.rank,
            "name": shot.name,
            "time": _time(shot.time, shot.wall, epoch),
            "wall": (shot.wall - epoch) * 1e-9,
            "index": shot.index,
            "where": shot.where,
            "step": shot.step,
            "array": shot.data,
        }
        for report in reports
        for shot in report.snapshots
    ]


def _messages(
    reports: list[RankRecord], epoch: int
) -> tuple[dict[str, list[Any]], dict[tuple, int]]:
    """The columns of the messages table, and the row of each message by (src, dst, key, index)."""
    received = {row[:4]: row for report in reports for row in report.received}
    columns: dict[str, list[Any]] = {name: [] for name in _MESSAGE}
    rows_of: dict[tuple, int] = {}
    sends = sorted((row for report in reports for row in report.sent), key=lambda row: row[0].wall)
    for row, left, stamp in sends:
        rows_of[row[:4]] = len(rows_of)
        values = _message(row, left, stamp, received.get(row[:4]), epoch)
        for name, value in zip(_MESSAGE, values, strict=True):
            columns[name].append(value)
    return columns, rows_of


def _message(
    row: Sent, left: float, stamp: float, taken: Received | None, epoch: int
) -> tuple[Any, ...]:
    """The row of a message that left and arrived at those device times, and was `taken`, or
    never."""
    wall_sent = (row.wall - epoch) * 1e-9
    wall_received = NAN if taken is None else (taken.wall - epoch) * 1e-9
    op, offset = ("", -1) if taken is None else (taken.op, taken.offset)
    if left == left:
        times = (left, stamp, NAN)
        if taken is not None:
            times = (left, taken.arrived, taken.received)
    else:
        times = (wall_sent, wall_received, wall_received)
    offset = row.offset if row.offset >= 0 else offset
    return (
        row.src, row.dst, row.nbytes, offset, row.count, op, *times, wall_sent, wall_received,
        row.key & TAGS, row.group, row.step,
    )  # fmt: skip


def _add_span(
    columns: dict[str, list[Any]],
    rank: int,
    lane: str,
    row: Row,
    rows_of: dict[tuple, int],
    epoch: int,
) -> None:
    wall_start = wall_end = NAN
    if row.wall_start and row.wall_end:  # else the rank failed before the wall clock reached it
        wall_start, wall_end = (row.wall_start - epoch) * 1e-9, (row.wall_end - epoch) * 1e-9
    paced, fields = row.start is not None, row.fields
    start, end = (row.start, row.end) if paced else (wall_start, wall_end)
    default = NAMES.get(row.kind, "").format(fields["peer"]) if "peer" in fields else ""
    others = {key: value for key, value in fields.items() if key not in KNOWN and key != "message"}
    values = (
        rank, lane, row.kind, row.name or default, start, end, wall_start, wall_end, row.depth,
        *(fields.get(key) for key in KNOWN),
        rows_of.get(fields.get("message", ())), f"{row.file}:{row.line}", others or None,
    )  # fmt: skip
    for key, value in zip(_COLUMNS, values, strict=True):
        columns[key].append(value)


def _end_together(columns: dict[str, list[Any]]) -> None:
    fields = columns["fields"]
    rows = [row for row, more in enumerate(fields) if more and more.get("unfinished")]
    for end in ("end", "wall_end"):
        known = [row for row in rows if columns[end][row] == columns[end][row]]
        last = max((columns[end][row] for row in known), default=NAN)
        for row in known:
            columns[end][row] = last


def _time(device: float | None, wall: int, epoch: int) -> float:
    return (wall - epoch) * 1e-9 if device is None else device


def _pace(
    reports: list[RankRecord], columns: dict[str, list[Any]], meta: dict[str, Any]
) -> dict[str, Any]:
    """How late a paced run was (s), and a warning if that is too much."""
    if meta["clock"] != "paced":
        return {}
    known = [(a, b) for a, b in zip(columns["start"], columns["end"], strict=True) if b == b]
    lasted = max((b for _, b in known), default=0.0) - min((a for a, _ in known), default=0.0)
    each = [report.pace["lateness"] for report in reports]
    worst = max((one["worst"] for one in each), default=0.0)
    median = sorted(one["median"] for one in each)[len(each) // 2] if each else 0.0
    pacing = {
        "tolerance": max(meta["tolerance"], SLACK * lasted),
        "lateness": {"worst": worst, "median": median},
        "operations": sum(report.pace["operations"] for report in reports),
        "overruns": sum(report.pace["overruns"] for report in reports),
        "others": share_of_others([report.pace["use"] for report in reports]),
        "processors": processors(),
    }
    return {**pacing, "warning": late({**meta, **pacing})}
