"""Ranks and slots that are being filled, and where the next action would fit."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

from dlviz.board.pipeline import Pipeline
from dlviz.schedules import Action, needs

NEVER = math.inf


class Placed(NamedTuple):
    """An action that starts on `rank` at `slot`."""

    action: Action
    rank: int
    slot: int


class Grid:
    """Ranks and slots that are being filled, and where the next action would fit."""

    def __init__(self, pipeline: Pipeline, placed: Iterable[Placed] = ()):
        self.pipeline = pipeline
        self.busy: list[list[tuple[int, int]]] = [[] for _ in range(pipeline.ranks)]
        self.there: dict[Action, int] = {}  # the slot at which an action has ended
        self._taken: list[list[int]] = [[] for _ in range(pipeline.ranks)]  # starts of forwards
        self._freed: list[list[int]] = [[] for _ in range(pipeline.ranks)]  # ends of B or W
        self._longest = 1
        for one in placed:
            self.put(*one)

    def put(self, action: Action, rank: int, slot: int) -> None:
        slots = self.pipeline.slots(action)
        end, releases = slot + slots, "F" if self.pipeline.backward == "none" else "BW"
        self._longest = max(self._longest, slots)
        insort(self.busy[rank], (slot, end))
        for half in action.halves:
            self.there.setdefault(half, end)
            if half.kind == "F":
                insort(self._taken[rank], slot)
            if half.kind in releases:
                insort(self._freed[rank], end)

    def arrivals(self, action: Action) -> list[tuple[tuple[Action, ...], float]]:
        """What `action` needs, each with the slot from which on it is there, or NEVER."""
        there, pipeline = self.there, self.pipeline
        rank = pipeline.rank_of(action)
        found = []
        for half in action.halves:
            for choice in needs(half, pipeline.stages):
                end = min((there[one] for one in choice if one in there), default=NEVER)
                far = pipeline.stage_rank[choice[0].stage] != rank
                found.append((choice, end + pipeline.latency if far else end))
        return found

    def ready(self, action: Action) -> float:
        """The slot from which on all that `action` needs is there, or NEVER."""
        return max((slot for _, slot in self.arrivals(action)), default=0)

    def held(self, rank: int, slot: int) -> int:
        """The microbatches (of a stage) that a rank holds once what starts at `slot` has."""
        return bisect_right(self._taken[rank], slot) - self.freed(rank, slot)

    def freed(self, rank: int, slot: int) -> int:
        """How many microbatches (of a stage) a rank holds no longer at `slot`."""
        return bisect_right(self._freed[rank], slot)

    def earliest(self, action: Action) -> int | None:
        """The first slot at which `action` may start; None where there is none."""
        ready, rank = self.ready(action), self.pipeline.rank_of(action)
        if ready == NEVER:
            return None
        at = self._gap(rank, int(ready), self.pipeline.slots(action))
        if self.pipeline.limit is None or all(half.kind != "F" for half in action.halves):
            return at
        while not self._room(rank, at):
            releases = self._freed[rank]
            later = bisect_right(releases, at)
            if later == len(releases):
                return None
            at = self._gap(rank, releases[later], self.pipeline.slots(action))
        return at

    def _gap(self, rank: int, at: int, slots: int) -> int:
        """The first slot, from `at` on, that begins as many free ones."""
        row = self.busy[rank]
        for start, end in row[bisect_left(row, (at - self._longest,)) :]:
            if start >= at + slots:
                break
            at = max(at, end)
        return at

    def _room(self, rank: int, at: int) -> bool:
        """Whether a forward may start at slot `at`, with those that come after it."""
        taken = self._taken[rank]
        later = {at, *taken[bisect_right(taken, at) :]}
        return all(self.held(rank, slot) < (self.pipeline.limit or 0) for slot in later)
