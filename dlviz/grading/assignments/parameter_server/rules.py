"""The rule of a stale-synchronous server: when a pull is answered, by the workers' clocks.

A worker's clock is the number of its pushes that the server has received. The slowest clock is
the least among workers that still have pushes to make. A worker at clock c is answered as soon
as the slowest clock is c - bound or more, and immediately after its last push.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class Event(NamedTuple):
    """An action of the server: it received a `push` of a worker, made an `update` with its
    gradient, or sent it a `reply`."""

    what: str
    worker: int


class Clocks:
    """The workers' clocks during a run. `held`: workers whose pull is not answered; `last`: the
    one that pushed last; `leads`: how far each was ahead at its last push."""

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
        """The workers that still have pushes to make."""
        return [each for each, clock in self.clock.items() if clock < self.pushes[each]]

    @property
    def slowest(self) -> float:
        return min((self.clock[each] for each in self.going), default=math.inf)

    def lead(self, worker: int) -> float:
        return self.clock[worker] - self.slowest

    def free(self, worker: int) -> bool:
        """Whether its pull has to be answered now."""
        return worker not in self.going or self.lead(worker) <= self.bound

    @property
    def unanswered(self) -> list[int]:
        """Workers that are held and should not be."""
        return [each for each in self.held if self.free(each)]
