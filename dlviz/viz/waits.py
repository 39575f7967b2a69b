"""Whom each wait waited for, and what filled it: read from the spans, interval by interval.

    rank 0  |---------- wait for rank 1 ----------|      rank 1 was mostly in backward, for 6 of
    rank 1      |--- backward ---|update|  message       10 ms, and then its message was on its way

What a rank does at a moment is the innermost span that is open on it; of several lanes the one that
says most. Whatever took most of a wait is named, with its seconds; it is called "mostly" where that
is more than half of the wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import clock_of, message_times, span_times
from dlviz.analysis.columns import WAITING
from dlviz.viz import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

FOR_LANE = "for lane "  # so begins the name of a wait for another lane of the same rank
HOLDERS = ("step", "phase")  # kinds that only hold others
LITTLE = 0.01  # of a wait: what took less is not told
UNTOLD, BEFORE, SENT = -1, -2, -3  # for a span: there is none, none yet, the message is on its way
INSTEAD = ("on its way", "not yet recording (starting up?)", "without a recorded span")
NOTHING, LEAST, SOME, MUCH, MOST = range(5)  # what a span says of its rank: see _says


@dataclass(frozen=True)
class Wait:
    """A wait: for how many seconds, for whom, what that one was doing, and in which span (its row
    in `trace.spans`, -1 where none says it)."""

    seconds: float
    whom: str
    doing: str
    span: int

    def __str__(self) -> str:
        return f"waited {text.seconds(self.seconds)} for {self.whom}; {self.doing}"


def waited_for(trace: Trace, *, clock: str | None = None) -> dict[int, str]:
    """In words, for each wait (its row in `trace.spans`): how long, for whom, what that one did."""
    return {row: str(wait) for row, wait in waits(trace, clock=clock).items()}


def waits(trace: Trace, *, clock: str | None = None) -> dict[int, Wait]:
    """Each wait for a rank, or for another lane of the same rank, by its row in `trace.spans`."""
    clock = clock_of(trace, clock)
    spans = trace.spans
    start, end = span_times(trace, clock)
    lasting = np.flatnonzero(np.isin(spans.kind, WAITING) & (end > start))
    columns = (spans[name][lasting].tolist() for name in ("rank", "peer", "name"))
    asked: dict[tuple[int, str | None], list[int]] = {}
    for row, rank, peer, name in zip(lasting.tolist(), *columns, strict=True):
        if peer >= 0 and peer != rank:
            asked.setdefault((peer, None), []).append(row)
        elif peer < 0 and name.startswith(FOR_LANE):
            asked.setdefault((rank, name.removeprefix(FOR_LANE)), []).append(row)

    sent = np.append(message_times(trace, clock)[0], np.nan)  # of no message, the last entry
    doings, found = Doings(trace, clock), {}
    for (rank, lane), rows in asked.items():
        until = np.fmin(end[rows], sent[spans.flow[rows]])
        whom = f"rank {rank}" if lane is None else f"its own lane {lane}"
        meanwhile = doings.during(rank, start[rows], until, end[rows], lane)
        for row, (words, span) in zip(rows, meanwhile, strict=True):
            found[row] = Wait(float(end[row] - start[row]), whom, words, span)
    return dict(sorted(found.items()))


def chain(trace: Trace, found: dict[int, Wait], row: int) -> list[tuple[str, int]]:
    """From a wait to its cause: what the one waited for was doing, in words, and the span that says
    so (or -1); where that was a wait as well, the same of that, and so on. The last link is no
    wait, or says why the chain ends there."""
    links, seen = [], set()
    while row in found:
        seen.add(row)
        links.append((found[row].doing, found[row].span))
        row = found[row].span
        if row in seen:
            return [*links, ("these waits lead back to one named above", -1)]
    if row >= 0 and trace.spans.kind[row] in WAITING:
        links.append(("the Trace does not say for whom", -1))
    return links


class Doings:
    """What the ranks of a Trace were doing, for any stretch of time."""

    def __init__(self, trace: Trace, clock: str):
        self._spans = spans = trace.spans
        self._start, self._end = span_times(trace, clock)
        names = ("kind", "name", "peer", "microbatch")
        rows = list(zip(*(spans[name].tolist() for name in names), strict=True))
        keys = {row: (_doing(*row), _doing(row[0]), _says(*row)) for row in set(rows)}
        words, kinds, says = zip(*map(keys.__getitem__, rows), strict=True) if rows else ((),) * 3
        self._words, self._what = _numbered(words)
        self._kind_words, self._kind = _numbered(kinds)
        self._says = np.array([*says, NOTHING])  # of UNTOLD, the last entry

    def during(
        self,
        rank: int,
        since: np.ndarray,
        until: np.ndarray,
        over: np.ndarray,
        lane: str | None = None,
    ) -> list[tuple[str, int]]:
        """What filled each stretch from `since` to `over`: what `rank`, or that lane of it, did
        until it sent its message at `until`, and from then on the message's way. In words, and the
        span in which it was longest (its row; -1 where none says it)."""
        of, row, lasted = self._pieces(rank, since, np.clip(until, since, over), over, lane)
        whole, what, kind = over - since, self._what[row], self._kind[row]
        alike, of_kind = _together(of, what, lasted), _together(of, kind, lasted)
        top, broad = _greatest(of, alike), _greatest(of, of_kind)
        by_kind = (alike[top] <= whole / 2) & (of_kind[broad] > whole / 2)
        top, took = np.where(by_kind, broad, top), np.where(by_kind, of_kind[broad], alike[top])
        told = np.where(by_kind[of], kind == kind[top][of], what == what[top][of])
        longest = _greatest(of, np.where(told, _together(of, row, lasted), -1.0))

        last = np.flatnonzero(np.append(np.diff(of), 1))
        last -= (row[top] == SENT) & (took < whole)  # what came before its message left
        then = np.where(~told[last] & (alike[last] >= LITTLE * whole), what[last], -1)
        subject = f"rank {rank}" if lane is None else f"lane {lane} of rank {rank}"
        words = [
            self._kind_words[general] if broadly else self._words[exact]
            for broadly, general, exact in zip(
                by_kind.tolist(), kind[top].tolist(), what[top].tolist(), strict=True
            )
        ]
        return [
            (_clause(subject, doing, part, all_of_it, self._words[at] if at >= 0 else ""),
             max(span, UNTOLD))
            for doing, part, all_of_it, at, span in zip(
                words, took.tolist(), whole.tolist(), then.tolist(), row[longest].tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def _pieces(
        self, rank: int, since: np.ndarray, until: np.ndarray, over: np.ndarray, lane: str | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pieces of the stretches in the order of time: of which stretch, in which span (or
        UNTOLD, BEFORE, SENT), how many seconds."""
        edges, course = self._course(rank, lane)
        first = np.searchsorted(edges, since, side="right") - 1
        count = np.maximum(np.searchsorted(edges, until, side="left") - first, 0)
        of = np.repeat(np.arange(len(since)), count)
        at = np.arange(len(of)) + np.repeat(first - np.cumsum(count) + count, count)
        lasted = np.minimum(edges[at + 1], until[of]) - np.maximum(edges[at], since[of])
        sent = np.full(len(since), SENT)
        of, row = np.append(of, np.arange(len(since))), np.append(course[at], sent)
        lasted = np.append(lasted, over - until)
        order = np.argsort(of, kind="stable")
        order = order[lasted[order] > 0]
        return of[order], row[order], lasted[order]

    def _course(self, rank: int, lane: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Moments, and what `rank` did, on `lane` or on any, from each of them to the next."""
        spans = self._spans
        own = np.flatnonzero((spans.rank == rank) & (self._end > self._start))
        if lane is not None:
            own = own[spans.lane[own] == lane]
        edges = np.unique(np.concatenate([self._start[own], self._end[own]]))
        rows = self._at(own, (edges[:-1] + edges[1:]) / 2)
        if not len(own):
            return np.array([-np.inf, np.inf]), np.array([UNTOLD])
        return np.concatenate([[-np.inf], edges, [np.inf]]), np.concatenate(
            [[BEFORE], rows, [UNTOLD]]
        )

    def _at(self, own: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Which of the spans `own` says most at each of the times `at`; UNTOLD where none is
        open."""
        spans, start, end = self._spans, self._start, self._end
        answer = np.full(len(at), UNTOLD)
        for lane in text.lanes(spans.lane[own].tolist()):
            inner = np.full(len(at), UNTOLD)
            here = own[spans.lane[own] == lane]
            for depth in np.unique(spans.depth[here])[::-1]:  # of one depth, they are disjoint
                level = here[spans.depth[here] == depth]
                level = level[np.argsort(start[level], kind="stable")]
                row = level[np.maximum(np.searchsorted(start[level], at, side="right") - 1, 0)]
                inside = (start[row] <= at) & (at < end[row]) & (inner < 0)
                inner[inside] = row[inside]
            better = self._says[inner] > self._says[answer]
            answer[better] = inner[better]
        return answer


def _says(kind: str, name: str, *_: int) -> int:
    """What a span says of its rank. One that works says more than one that waits for a rank, that
    more than a collective, and least one that waits for a lane or holds what is done in it."""
    if kind in HOLDERS or name.startswith(FOR_LANE):
        return LEAST
    return SOME if kind == "collective" else MUCH if kind in WAITING else MOST


def _together(of: np.ndarray, what: np.ndarray, lasted: np.ndarray) -> np.ndarray:
    """Of each piece, the seconds of all pieces of its stretch that are alike."""
    numbers = what - what.min(initial=0)
    _, group = np.unique(of * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)
    return np.bincount(group, lasted)[group]


def _greatest(of: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of each stretch, the piece of the greatest value."""
    order = np.lexsort((values, of))
    return order[np.flatnonzero(np.append(np.diff(of[order]), 1))]


def _numbered(words: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The different words, and which of them each row has: one for each span, then SENT, BEFORE and
    UNTOLD, as the last three rows."""
    number: dict[str, int] = {}
    rows = [number.setdefault(one, len(number)) for one in (*words, *INSTEAD)]
    return [*number], np.array(rows)


def _doing(kind: str, name: str = "", peer: int = -1, microbatch: int = -1) -> str:
    """What a rank is doing in a span; of its kind alone where no more is given."""
    if kind in WAITING:
        whom = f" for rank {peer}" if peer >= 0 else f" {name}" if name.startswith("for ") else ""
        return f"itself waiting{whom}"
    if kind in HOLDERS:
        return "between two operations" + (f" of {name}" if name else "")
    what = text.kind(kind)
    if name and name != kind:
        return f"in {what} {name}"
    return f"in {what} {microbatch}" if microbatch >= 0 else f"in {what}"


def _clause(subject: str, doing: str, took: float, whole: float, other: str) -> str:
    """What filled a wait of `whole` seconds, for how many of them, and what came last."""
    sent = INSTEAD[0]
    who = f"the message of {subject} was" if doing == sent else f"{subject} was"
    if took >= (1 - LITTLE) * whole:
        return f"{who} already {doing}" if doing == sent else f"{who} {doing}"
    (part, unit), (all_of_it, of) = text.seconds(took).split(), text.seconds(whole).split()
    share = f"for {part if unit == of else f'{part} {unit}'} of {all_of_it} {of}"
    words = f"{who} mostly {doing}, {share}" if took > whole / 2 else f"{who} {doing} {share}"
    if not other:
        return words
    if doing == sent:
        return f"{words}; before that, {subject} was {other}"
    return f"{words}, then {'its message was on its way' if other == sent else other}"
