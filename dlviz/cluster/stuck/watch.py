"""The watchdog: notices deadlocks while a run goes on."""

from __future__ import annotations

from time import perf_counter

from dlviz.cluster.control.board import ACTIVITY, WAITING, WANTS, Board
from dlviz.cluster.parent.remote import Remote
from dlviz.cluster.stuck.waits import RankState, deadlocked

TICK = 0.05  # s that a rank must sit in one wait before it is asked what it waits for
PATIENCE = 0.5  # s to wait for the answer
PAUSE = 0.2  # s until the next look after one that found everybody able to go on


class Watchdog:
    """Looks at the ranks that wait. A rank's cells on the board say whether it waits and whether it
    has done anything since; only one that sits still is disturbed and asked. A deadlock takes two
    looks that find the same ranks stuck, with nothing done in between."""

    def __init__(self, board: Board, ranks: list[Remote]):
        self._board = board
        self._ranks = ranks
        self._activity = [-1] * len(ranks)
        self._asked: dict[int, int] = {}  # the current look: activity of the ranks when asked
        self._found: list[int] = []  # the ranks that the look before found stuck
        self._next = 0.0
        self._give_up = 0.0

    def look(self) -> dict[int, RankState] | None:
        """The states of the ranks that sit still or have finished, once some are deadlocked."""
        now = perf_counter()
        if now < self._next:
            return None
        self._next = now + TICK
        self._have_served()
        before, self._activity = self._activity, self._read()
        if not self._asked:
            still = [rank for rank in self._ranks if self._sits(rank, before)]
            self._asked = {rank.number: self._activity[rank.number] for rank in still}
            self._give_up = now + PATIENCE
            for rank in still:
                rank.ask("state")
            return None
        if any(self._ranks[number].owes_answer() for number in self._asked) and now < self._give_up:
            return None
        states = self._states()
        stuck = deadlocked(states)
        agreed = bool(stuck) and stuck == self._found
        self._found, self._asked = stuck, {}
        if not stuck:
            self._next = now + PAUSE
        return states if agreed else None

    def _have_served(self) -> None:
        """Where a rank waits for its messages to be taken, have the others take them, those too
        that compute or have finished."""
        if any(self._board.get(rank.number, WANTS) for rank in self._ranks):
            for rank in self._ranks:
                if not self._board.get(rank.number, WAITING):
                    rank.send(b"serve")

    def _read(self) -> list[int]:
        return [self._board.get(rank.number, ACTIVITY) for rank in self._ranks]

    def _sits(self, rank: Remote, before: list[int]) -> bool:
        return (
            not rank.pending
            and self._board.get(rank.number, WAITING) > 0
            and self._activity[rank.number] == before[rank.number]
        )

    def _states(self) -> dict[int, RankState]:
        return {
            rank.number: rank.state
            for rank in self._ranks
            if rank.state is not None
            and (rank.finished or self._asked.get(rank.number) == self._activity[rank.number])
        }
