"""What a bar of the timeline says: a few words inside it, and everything on hover."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.viz import text
from dlviz.viz.clocks import span_times
from dlviz.viz.waits import waited_for

if TYPE_CHECKING:
    from dlviz.trace import Trace

LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
MANY = 1000  # spans: what as many say alike on hover is sent once
TOWARDS = {"send": "to", "recv": "from", "wait": "for"}


def labels_of(trace: Trace) -> list[str]:
    """The label of each span: its name, else its peer, microbatch (F3), step or bucket."""
    keys = list(_columns(trace, "kind", "name", "peer", "microbatch", "step", "bucket"))
    labels = {key: _label(*key) for key in set(keys)}
    return [labels[key] for key in keys]


def hovers_of(
    trace: Trace, drawn: np.ndarray, clock: str, unit: str, size: float
) -> dict[int, str]:
    """For each span of `drawn` (its row): kind and whole name, where, when, whom it waited for."""
    start, end = span_times(trace, clock)
    waits = waited_for(trace, clock=clock)
    begun, lasted = start.tolist(), (end - start).tolist()
    keys = list(_columns(trace, "kind", "name", "peer", "step", "stage", "microbatch", "bucket"))
    belongs = {key: _belongs(*key) for key in set(keys)}
    lanes = list(_columns(trace, "rank", "lane"))
    named = {lane: text.clean(text.row(*lane)) for lane in set(lanes)}
    rest = list(_columns(trace, "nbytes", "fields", "where"))
    hovers = {}
    for i in drawn.tolist():
        (title, *numbers), (nbytes, fields, where) = belongs[keys[i]], rest[i]
        begin = text.moment(begun[i], unit, size)
        lines = [title, f"{named[lanes[i]]}: {text.seconds(lasted[i])}, from {begin}"]
        lines += numbers
        if i in waits:
            lines.append(text.wrap(waits[i], 76))
        if nbytes >= 0:
            lines.append(text.nbytes(nbytes))
        if fields:
            lines.append(text.wrap(", ".join(f"{name} {value}" for name, value in fields.items())))
        if where:
            lines.append(text.cut(where.replace("\\", "/").rpartition("/")[2], 64))
        hovers[i] = "<br>".join(lines)
    return hovers


def hover(told: list[str]) -> dict[str, Any]:
    """What a series says on hover. Of many spans what their lines begin with is sent once."""
    lines = [one.split("<br>") for one in told]
    if len(told) <= MANY or len({*map(len, lines)}) > 1:
        return {"customdata": told, "hovertemplate": "%{customdata}<extra></extra>"}
    template, columns = [], []
    for column in zip(*lines, strict=True):
        same = commonprefix(column)
        same = "" if "%" in same else same  # which plotly would read
        template.append(f"{same}%{{customdata[{len(columns)}]}}")
        columns.append([line.removeprefix(same) for line in column])
    rows = np.array(columns, object).T  # (spans, columns)
    return {"customdata": rows, "hovertemplate": "<br>".join(template) + "<extra></extra>"}


def _columns(trace: Trace, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(trace.spans[name].tolist() for name in names), strict=True)


def _label(kind: str, name: str, peer: int, microbatch: int, step: int, bucket: int) -> str:
    if name:
        return text.short(name)
    if peer >= 0 and kind in TOWARDS:
        return f"{kind} {TOWARDS[kind]} {peer}"
    if microbatch >= 0:
        return (
            f"{LETTERS[kind]}{microbatch}"
            if kind in LETTERS
            else text.short(f"{kind} {microbatch}")
        )
    if kind == "step" and step >= 0:
        return f"step {step}"
    return text.short(f"{kind} b{bucket}" if bucket >= 0 else kind)


def _belongs(kind: str, name: str, peer: int, *numbers: int) -> list[str]:
    """Kind and whole name of a span, then a line of what it belongs to."""
    told = f"{kind}: {name}" if name and name != kind else kind
    to_peer = f"{TOWARDS.get(kind)} rank {peer}"
    if peer >= 0 and kind in TOWARDS and not told.endswith(to_peer):
        told += f" {to_peer}"
    whats = zip(("step", "stage", "microbatch", "bucket"), numbers, strict=True)
    line = ", ".join(f"{what} {number}" for what, number in whats if number >= 0)
    return [f"<b>{text.wrap(told)}</b>", *([line] if line else [])]
