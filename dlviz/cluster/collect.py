"""What the ranks recorded, put together into one Trace."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from dlviz.cluster.waits import TAGS, Wait
from dlviz.cluster.warn import late
from dlviz.machine import Machine
from dlviz.trace import Trace

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
    """What a Trace's meta says of its clock. The tolerance (s) is how late a paced run may be."""
    if machine is None:
        return {"clock": "wall", "machine": "this machine", "tolerance": 0.0}
    return {
        "clock": "paced",
        "machine": str(machine),
        "topology": machine.topology.outline,
        "tolerance": machine.step,
    }


def build(
    reports: list[dict[str, Any]],
    ranks: int,
    epoch: int,
    meta: dict[str, Any],
    failed: Failed | None = None,
) -> Trace:
    """A Trace of what `reports` (one per rank that still could tell, see `Process.rows`) say.
    `epoch` is perf_counter_ns at time 0. Of a run that failed, spans that were still open end
    together, when the last rank was asked."""
    messages, rows_of = _messages(reports, epoch)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for report in reports:
        for lane, rows in report["lanes"]:
            for row in rows:
                _add_span(columns, report["rank"], lane, row, rows_of, epoch)
    if failed is not None:
        meta = {**meta, "failure": failed.plain(epoch)}
        _end_together(columns)
    memory = [
        {"rank": report["rank"], "time": _time(device, wall, epoch), "what": what, "nbytes": nbytes}
        for report in reports
        for what, nbytes, wall, device in report["memory"]
    ]
    buffers = [
        {
            "rank": report["rank"], "name": name, "time": _time(device, wall, epoch),
            "wall": (wall - epoch) * 1e-9, "index": index, "where": where, "step": step,
            "array": array,
        }
        for report in reports
        for name, wall, device, index, where, step, array in report["snapshots"]
    ]  # fmt: skip
    if meta["outcome"] == "completed" and any(value != value for value in messages["received"]):
        meta = {**meta, "outcome": "unreceived"}
    return Trace(
        columns, messages, memory, buffers, {**meta, "ranks": ranks, **_pace(reports, meta)}
    )


def _messages(
    reports: list[dict[str, Any]], epoch: int
) -> tuple[dict[str, list[Any]], dict[tuple, int]]:
    """The columns of the messages table, and the row of each message by (src, dst, tag, index)."""
    received = {row[:4]: row[4:] for report in reports for row in report["receives"]}
    columns: dict[str, list[Any]] = {name: [] for name in _MESSAGE}
    rows_of: dict[tuple, int] = {}
    sends = sorted((row for report in reports for row in report["sends"]), key=lambda row: row[9])
    for src, dst, tag, index, nbytes, count, offset, sent, stamp, wall_sent, group, step in sends:
        key = (src, dst, tag, index)
        rows_of[key] = len(rows_of)
        op, its_offset, arrived, taken, wall = received.get(key, ("", -1, NAN, NAN, None))
        wall_sent = (wall_sent - epoch) * 1e-9
        wall_received = NAN if wall is None else (wall - epoch) * 1e-9
        paced = sent == sent
        if not paced:
            sent, arrived, taken = wall_sent, wall_received, wall_received
        elif arrived != arrived:
            arrived = stamp
        offset = offset if offset >= 0 else its_offset
        values = (
            src, dst, nbytes, offset, count, op, sent, arrived, taken, wall_sent, wall_received,
            tag & TAGS, group, step,
        )  # fmt: skip
        for name, value in zip(_MESSAGE, values, strict=True):
            columns[name].append(value)
    return columns, rows_of


def _add_span(
    columns: dict[str, list[Any]],
    rank: int,
    lane: str,
    row: tuple,
    rows_of: dict[tuple, int],
    epoch: int,
) -> None:
    kind, name, wall_start, wall_end, start, end, depth, context, file, line = row
    if wall_start and wall_end:
        wall_start, wall_end = (wall_start - epoch) * 1e-9, (wall_end - epoch) * 1e-9
    else:  # the rank failed before the wall clock came to it
        wall_start = wall_end = NAN
    if start is None:
        start, end = wall_start, wall_end
    default = NAMES.get(kind, "").format(context["peer"]) if "peer" in context else ""
    others = {key: value for key, value in context.items() if key not in KNOWN and key != "message"}
    values = (
        rank, lane, kind, name or default, start, end, wall_start, wall_end, depth,
        *(context.get(key) for key in KNOWN),
        rows_of.get(context.get("message", ())), f"{file}:{line}", others or None,
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


def _pace(reports: list[dict[str, Any]], meta: dict[str, Any]) -> dict[str, Any]:
    """How well a paced run kept its pace: lateness in seconds, and a warning where it could not
    keep up."""
    if meta["clock"] != "paced":
        return {}
    each = [report["lateness"] for report in reports]
    worst = max((one["worst"] for one in each), default=0.0)
    median = sorted(one["median"] for one in each)[len(each) // 2] if each else 0.0
    told = {
        "lateness": {"worst": worst, "median": median},
        "operations": sum(report["operations"] for report in reports),
        "overruns": sum(report["overruns"] for report in reports),
    }
    return {**told, "warning": late({**meta, **told})}
