"""Which ranks share a host or a rack, and where times of two hosts differ by less than their error.

Times of one host were converted to the clock of another, with an error (dlviz/trace/hosts.py).
Times of ranks on one host compare exactly; events of two hosts closer than the bound may have
happened in the other order, and a message may seem to arrive before it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlviz.analysis.clocks import message_times
from dlviz.trace import Trace
from dlviz.trace.hosts import clock_bound, host_of
from dlviz.trace.trace import TOLERANCE


@dataclass(frozen=True)
class RankGroup:
    """Ranks of one host or of one rack; `kind` is "host" or "rack"."""

    kind: str
    name: str
    ranks: list[int]


def rank_groups(trace: Trace, ranks: Iterable[int] | None = None) -> list[RankGroup]:
    """`ranks`, by default those in the Trace, by host or, on a machine with racks, by rack; in the
    order of their lowest ranks. Empty where the whole run was in one place, or its places are
    unknown."""
    name_of, kind = host_of(trace.meta), "host"
    if not name_of:
        name_of, kind = _racks(trace.meta), "rack"
    if len({*name_of.values()}) < 2:
        return []
    groups: dict[str, list[int]] = {}
    for rank in sorted(trace.ranks if ranks is None else ranks):
        groups.setdefault(name_of.get(rank, ""), []).append(rank)
    return [RankGroup(kind, name, own) for name, own in groups.items()]


def _racks(meta: dict[str, Any]) -> dict[int, str]:
    """The rack of each rank, on a machine with racks."""
    outline = meta.get("topology")
    if not isinstance(outline, dict) or outline.get("kind") != "racks":
        return {}
    return {rank: f"rack {rank // outline['sizes'][0]}" for rank in range(meta["ranks"])}


def group_numbers(groups: list[RankGroup]) -> dict[int, int]:
    """The place of each rank's group among `groups`."""
    return {rank: number for number, own in enumerate(groups) for rank in own.ranks}


def side_by_side(trace: Trace, ranks: Iterable[int]) -> list[int]:
    """Ranks in the order of drawing: those of a group side by side."""
    ranks = sorted(ranks)
    return [rank for own in rank_groups(trace, ranks) for rank in own.ranks] or ranks


def message_bounds(trace: Trace) -> np.ndarray:
    """The bound on the error between each message's two times, in seconds: 0 on one host."""
    return clock_bound(trace.meta, trace.messages.src, trace.messages.dst)


def closer(bounds: np.ndarray, took: np.ndarray) -> np.ndarray:
    """Where two times of different hosts, `took` seconds apart, differ by less than the bound."""
    return np.abs(took) < bounds


def impossible(trace: Trace, clock: str) -> np.ndarray:
    """The messages (rows) that arrived before they were sent, by more than the bound."""
    sent, received = message_times(trace, clock)
    return np.flatnonzero(received < sent - message_bounds(trace) - TOLERANCE)
