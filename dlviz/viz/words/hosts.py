"""What pictures of a run on several hosts say: who is where, and how well times of two hosts
compare. All such sentences are worded here.

Where times of two hosts are closer than the bound of their clocks, either may be the first: the
picture says so, in few words that fit beside long names in a figure of 600 pixels; `text.details`
has the rest. A message that seems to arrive before it was sent, within that bound, is drawn as
arriving immediately; its times in words stay as recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.clocks import message_times
from dlviz.analysis.hosts import RankGroup, closer, impossible, message_bounds, rank_groups
from dlviz.trace.hosts import clock_bound
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace


NAME = 28  # characters of a host's name; all of it shows on hover
LAST = 11  # of them at its end: names of hosts may differ only in their numbers


def names_of(groups: list[RankGroup]) -> list[dict[str, Any]]:
    """What a front end says of groups of ranks: a name over their rows, where their ranks are, and
    which ranks they are."""
    return [
        {
            "label": short(own.name),
            "where": _where(own),
            "summary": [own.name, text.ranks(own.ranks)],
        }
        for own in groups
    ]


def whereabouts(trace: Trace) -> dict[int, str]:
    """The host or rack of each rank, in words that follow its name."""
    return {rank: f" {_where(own)}" for own in rank_groups(trace) for rank in own.ranks}


def _where(group: RankGroup) -> str:
    return f"{'on' if group.kind == 'host' else 'in'} {short(group.name)}"


def short(name: str) -> str:
    """The name of a host in at most `NAME` characters."""
    flat = " ".join(name.split())
    return flat if len(flat) <= NAME else f"{flat[: NAME - LAST - 1]}…{flat[-LAST:]}"


def message_words(trace: Trace, clock: str) -> list[str]:
    """For each message, how well its two times compare; "" where both are of one host."""
    sent, received = message_times(trace, clock)
    return [
        text.known(bound, took) if bound else ""
        for bound, took in zip(
            message_bounds(trace).tolist(), (received - sent).tolist(), strict=True
        )
    ]


def message_lines(trace: Trace, clock: str, rows: np.ndarray) -> list[str]:
    """A line on those of the messages `rows` whose two times are closer than the bound of their
    clocks; none if there are no such messages."""
    sent, received = (column[rows] for column in message_times(trace, clock))
    return _closer(message_bounds(trace)[rows], received - sent, "messages")


def impossible_lines(trace: Trace, clock: str, rows: np.ndarray) -> list[str]:
    """A line on those of the messages `rows` that have no arrow, as it would point back in time by
    more than the bound."""
    many = int(np.isin(rows, impossible(trace, clock)).sum())
    if not many:
        return []
    if many == 1:
        return ["1 message has no arrow: it would go back in time."]
    return [f"{many:,} messages have no arrow: they would go back in time."]


def unsure(trace: Trace, ranks: np.ndarray, peers: np.ndarray, took: np.ndarray) -> list[str]:
    """A clause to add to what each of `ranks` and its peer did at the same time, for `took`
    seconds: "" where their times compare well enough."""
    bounds = clock_bound(trace.meta, ranks, peers)
    each = zip(closer(bounds, took).tolist(), bounds.tolist(), took.tolist(), strict=True)
    return [f"; {text.known(bound, lasted)}" if close else "" for close, bound, lasted in each]


def path_lines(trace: Trace, spans: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[str]:
    """A line on a path along `spans` (rows), each from its `start` to its `end` (s), about its
    steps between hosts that are closer than the bound of their clocks."""
    rank = trace.spans.rank[spans]
    bounds = clock_bound(trace.meta, rank[:-1], rank[1:])
    return _closer(bounds, start[1:] - end[:-1], "path steps")


def mark_lines(trace: Trace, ranks: np.ndarray, times: np.ndarray, name: str) -> list[str]:
    """The same line on a picture with marks of `ranks` at `times` (s), about consecutive marks of
    two hosts. `name` is the Trace's name among several, or ""."""
    order = np.argsort(times, kind="stable")
    ranks, times = ranks[order], times[order]
    bounds = clock_bound(trace.meta, ranks[:-1], ranks[1:])
    lines = _closer(bounds, np.diff(times), "marks", "are closer")
    return [f"{name}: c{line[1:]}" for line in lines] if name else lines


def _closer(bounds: np.ndarray, took: np.ndarray, what: str, less: str = "took less") -> list[str]:
    close = closer(bounds, took)
    if not close.any():
        return []
    bound, between = text.seconds(float(bounds.max())), (bounds > 0).sum()
    return [f"Clocks agree within {bound}: {close.sum():,} of {between:,} {what} {less}."]
