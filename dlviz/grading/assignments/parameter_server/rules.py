"""The rule of a stale-synchronous server: whose pull is answered when, by the workers' clocks.

A worker's clock is how many pushes of it the server has taken. The slowest clock is that of the
slowest worker from which pushes are still to come. A worker at clock c is answered as soon as the
slowest clock is c - bound or more, and after its last push at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class Event(NamedTuple):
    """Something the server did: it took a `push` of a worker, made an `update` by its gradient, or
    sent it a `reply`."""

    what: str
    worker: int


class Clocks:
    """The workers of a run as the server comes on. `held`: workers whose pull is not answered;
    `last`: the one that pushed last; `leads`: how far each was ahead when it pushed last."""

    def __init__(self, pushes: Mapping[int, int], bound: float):
        self.pushes = pushes
        self.bound = bound
        self.clock = dict.fromkeys(pushes, 0)
        self.held: list[int] = []
        self.last = 0
        self.leads: dict[int, float] = {}

    def push(self, worker: int) -> None:
        self.last = worker
        self.clock[worker] += 1
        self.leads[worker] = self.lead(worker)
        self.held.append(worker)

    def reply(self, worker: int) -> None:
        if worker in self.held:
            self.held.remove(worker)

    def record(self, event: Event) -> None:
        if event.what != "update":
            (self.push if event.what == "push" else self.reply)(event.worker)

    @property
    def going(self) -> list[int]:
        """The workers from which pushes are still to come."""
        return [each for each, clock in self.clock.items() if clock < self.pushes[each]]

    @property
    def slowest(self) -> float:
        return min((self.clock[each] for each in self.going), default=math.inf)

    def lead(self, worker: int) -> float:
        return self.clock[worker] - self.slowest

    def free(self, worker: int) -> bool:
        """Whether its pull is to be answered now."""
        return worker not in self.going or self.lead(worker) <= self.bound

    @property
    def unanswered(self) -> list[int]:
        """Workers that are held and should not be."""
        return [each for each in self.held if self.free(each)]
