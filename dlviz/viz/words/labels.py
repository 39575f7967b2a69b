"""What a bar of the timeline says: a few words inside it, and everything on hover."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.columns import UNFINISHED, never_ended
from dlviz.analysis.waits import FOR_LANE, waited_until
from dlviz.schedules.action import CODES
from dlviz.viz.words import text
from dlviz.viz.words.hosts import whereabouts
from dlviz.viz.words.waits import waited_for

if TYPE_CHECKING:
    from dlviz.trace import Trace

MANY = 1000  # spans: with more, the common part of their hover texts is sent once
TOWARDS = {"send": "to", "recv": "from", "wait": "for"}
SHORT = {
    "forward": "fw",
    "recompute": "re",
    "backward": "bw",
    "backward_input": "I",
    "backward_weight": "W",
    "update": "upd",
    "reduce-scatter": "RS",
    "all-gather": "AG",
    "all-reduce": "AR",
    "all_reduce": "AR",
    "reduce_scatter": "RS",
    "all_gather": "AG",
}
"""Short forms that papers and profilers use."""


def forms_of(trace: Trace) -> list[tuple[str, ...]]:
    """The possible labels of each span's bar, longest first: the microbatch (3) of a pipeline's
    action, else its name or peer, and their short forms: b0 for bucket 0. A rank that only waits
    for the others after its last step is done."""
    names = ("kind", "name", "peer", "microbatch", "step", "bucket")
    keys = list(_columns(trace, *names))
    forms = {key: tuple(dict.fromkeys(_forms(*key))) for key in set(keys)}
    done = _done(trace)
    return [("done",) if own else forms[key] for key, own in zip(keys, done.tolist(), strict=True)]


def short_forms(trace: Trace) -> list[str]:
    """The legend of the codes on bars of collectives: "AG all-gather"."""
    there = {SHORT[name]: name for name in np.unique(trace.spans.name).tolist() if name in SHORT}
    codes = sorted(short for short in there if short.isupper() and len(short) > 1)
    return [f"{short} {there[short].replace('_', '-')}" for short in codes]


def complete(series: Iterable[Hashable], words: Sequence[str], fit: Iterable[bool]) -> list[str]:
    """The words that fit. Numbers of a series (a row's bars of one kind) are all shown or none: 0 2
    4 would read as an order."""
    own = [*zip(series, words, fit, strict=True)]
    gaps = {of for of, word, fits in own if word.isdigit() and not fits}
    return [word if fits and not (word.isdigit() and of in gaps) else "" for of, word, fits in own]


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
    where = whereabouts(trace)
    named = {lane: text.clean(text.row(*lane) + where.get(lane[0], "")) for lane in set(lanes)}
    rest = list(_columns(trace, "nbytes", "fields", "where"))
    hovers = {}
    for i in drawn.tolist():
        (title, *numbers), (nbytes, fields, where) = belongs[keys[i]], rest[i]
        begin = text.moment(begun[i], unit, size)
        never = never_ended(fields)
        took = "never ended" if never else text.seconds(lasted[i])
        lines = [title, f"{named[lanes[i]]}: {took}, from {begin}"]
        lines += numbers
        if i in waits and not never:
            lines.append(text.wrap(waits[i], 76))
        if nbytes >= 0:
            lines.append(text.nbytes(nbytes))
        if words := field_words(fields):
            lines.append(text.wrap(words))
        if where:
            lines.append(text.cut(where.replace("\\", "/").rpartition("/")[2], 64))
        hovers[i] = "<br>".join(lines)
    return hovers


def field_words(fields: dict[str, Any] | None) -> str:
    """A span's own fields in words. Rounds are counted from 1, as in the player."""
    own = {n: value for n, value in (fields or {}).items() if n != UNFINISHED}
    if isinstance(own.get("round"), int):
        own["round"] += 1
    return ", ".join(f"{n} {value}" for n, value in own.items())


def hover(texts: list[str]) -> dict[str, Any]:
    """A series' hover texts. With many spans, the common beginning of a line is sent once."""
    lines = [one.split("<br>") for one in texts]
    if len(texts) <= MANY or len({*map(len, lines)}) > 1:
        return {"customdata": texts, "hovertemplate": "%{customdata}<extra></extra>"}
    template, columns = [], []
    for column in zip(*lines, strict=True):
        same = commonprefix(column)
        same = "" if "%" in same else same  # plotly would read it
        template.append(f"{same}%{{customdata[{len(columns)}]}}")
        columns.append([line.removeprefix(same) for line in column])
    rows = np.array(columns, object).T  # (spans, columns)
    return {"customdata": rows, "hovertemplate": "<br>".join(template) + "<extra></extra>"}


def _done(trace: Trace) -> np.ndarray:
    """Which spans are waits for more than half of their time, after their rank's last step."""
    spans, last = trace.spans, np.full(trace.meta["ranks"], np.inf)
    for rank in np.unique(spans.rank).tolist():
        ends = spans.end[(spans.rank == rank) & (spans.kind == "phase") & (spans.step >= 0)]
        last[rank] = ends.max() if len(ends) else np.inf
    waiting, until = waited_until(trace, "device")
    waited = np.zeros(len(spans))
    waited[waiting] = until - spans.start[waiting]
    idle = (spans.kind == "wait") | (waited > (spans.end - spans.start) / 2)
    return idle & (spans.step < 0) & (spans.start >= last[spans.rank])


def _columns(trace: Trace, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(trace.spans[name].tolist() for name in names), strict=True)


def _forms(
    kind: str, name: str, peer: int, microbatch: int, step: int, bucket: int
) -> Iterator[str]:
    towards = f"{TOWARDS[kind]} {peer}" if peer >= 0 and kind in TOWARDS else ""
    if re.fullmatch(r"bucket \d+", name):
        yield f"b{name.removeprefix('bucket ')}"
    elif name:
        yield text.short(name)
        if name.startswith(FOR_LANE):
            yield text.short(f"for {name.removeprefix(FOR_LANE)}")
        elif towards:
            yield towards
        elif name in SHORT:
            yield SHORT[name]
        elif bucket >= 0:
            yield f"b{bucket}"
        elif number := re.fullmatch(r"[\w-]+ (\d+)", name):  # layer 12
            yield number[1]
    elif microbatch >= 0 and kind in CODES:
        yield str(microbatch)
    elif towards:
        yield f"{kind} {towards}"
        yield towards
    elif kind == "step" and step >= 0:
        yield f"step {step}"
        yield str(step)
    elif microbatch >= 0 or bucket >= 0:
        number = str(microbatch) if microbatch >= 0 else f"b{bucket}"
        yield f"{text.short(text.kind(kind))} {number}"
        yield number
    else:
        yield text.short(text.kind(kind))
        yield SHORT.get(kind, text.short(kind))


def _belongs(kind: str, name: str, peer: int, *numbers: int) -> list[str]:
    """Kind and whole name of a span, then a line with its step, stage, microbatch and bucket."""
    what = text.kind(kind)
    title = f"{what}: {name}" if name and name != kind else what
    to_peer = f"{TOWARDS.get(kind)} rank {peer}"
    if peer >= 0 and kind in TOWARDS and not title.endswith(to_peer):
        title += f" {to_peer}"
    whats = zip(("step", "stage", "microbatch", "bucket"), numbers, strict=True)
    line = ", ".join(f"{what} {number}" for what, number in whats if number >= 0)
    return [f"<b>{text.wrap(title)}</b>", *([line] if line else [])]
