"""What the surviving ranks of a group do together, even if more of them are lost meanwhile.

They vote on who is left, act, and vote again: it is over when all that are left have succeeded.
Else one of them ran into a lost rank, and they begin again.

    decision   vote number, have all succeeded, next group | a cell a member: is it left
    member m   vote number, has it succeeded, next group

The first surviving rank decides, once all of them have voted. If it is lost before, the next finds
no decision and decides instead. A rank that votes again has read the last decision, so nothing is
overwritten unread.

In MPI: MPI_Comm_shrink and MPI_Comm_agree of User Level Failure Mitigation.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from dlviz.cluster.errors import RankLost
from dlviz.cluster.pacing.clock import START_LINE

NUMBER, THROUGH, GROUP = range(3)  # cells of a vote, and the first ones of the decision
VOTE = 3


def together(comm: Any, act: Callable[[Any], Any], needed: Collection[int]) -> Any:
    """See `Comm.together`."""
    if not comm.waiting.may_lose.intersection(comm.members):
        return act(comm)
    comm.votes = votes = comm.votes or Votes(comm)
    left, found = None, []
    while True:
        members, through, group = votes.agree(bool(found))
        if through:
            return found[0]
        gone = {comm.members[rank] for rank in needed}.difference(members)
        comm.waiting.ask_why(gone, votes.details, "collective", comm.recorder.lane)
        if left is None and members == comm.members:
            left = comm
        else:  # calls that have failed in the group before must not pass for those of this one
            left = type(comm)(comm.process, members, group, f"{comm.name}, those left")
            comm.groups.next = group + 1
        try:
            found = [act(left)]
        except RankLost:
            found = []


class Decision(NamedTuple):
    """The global ranks that are left, whether all of them have succeeded, and an unused group
    number."""

    members: tuple[int, ...]
    through: bool
    group: int


class Votes:
    """Of the ranks of `comm`. Something to wait for: the decision of a vote."""

    left = None

    def __init__(self, comm: Any):
        self._comm = comm
        self._number = 0  # of the vote
        self._waiting = comm.waiting
        self._first = VOTE + comm.size  # cell of the votes
        size = (self._first + VOTE * comm.size) * 8
        path = comm.groups.path("left", comm.number, comm.members)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, size)
            self._cells = memoryview(mmap.mmap(handle, size)).cast("q")
        finally:
            os.close(handle)

    def agree(self, through: bool) -> Decision:
        """Vote, and wait for the decision."""
        comm, cells, groups = self._comm, self._cells, self._comm.groups
        lane = comm.recorder.lane
        self._number += 1
        groups.calls[-comm.number] = self._number
        with comm.recorder.open("wait", "who is left", {}):
            lane.pace.begin(START_LINE)
            mine = self._first + VOTE * comm.rank
            cells[mine + THROUGH], cells[mine + GROUP] = through, groups.next
            cells[mine + NUMBER] = self._number
            self._waiting.notify(*comm.members)
            self._waiting.wait_for_others(self, "collective", lane)
            self._waiting.notify(*comm.members)
            left = [member for place, member in enumerate(comm.members) if cells[VOTE + place]]
            if len(left) < comm.size:
                lane.pace.restart()  # perhaps it has waited until one was lost
        return Decision(tuple(left), bool(cells[THROUGH]), cells[GROUP])

    @property
    def done(self) -> bool:
        """Whether the vote is decided; decides it if that is up to this rank."""
        cells, comm, lost = self._cells, self._comm, self._waiting.lost
        if cells[NUMBER] == self._number:
            return True
        left = [place for place, member in enumerate(comm.members) if member not in lost]
        votes = [self._first + VOTE * place for place in left]
        if left[0] != comm.rank or any(cells[vote + NUMBER] < self._number for vote in votes):
            return False
        for place in range(comm.size):
            cells[VOTE + place] = place in left
        cells[THROUGH] = all(cells[vote + THROUGH] for vote in votes)
        cells[GROUP] = max(cells[vote + GROUP] for vote in votes)
        cells[NUMBER] = self._number  # last: now the decision can be read
        return True

    def give_up(self, lost: dict[int, str]) -> None:
        """Those that are left go on."""

    def details(self) -> dict[str, Any]:
        """Of a wait for the decision: votes are calls of a group with a number of its own."""
        return {
            "group": "of those left",
            "group_id": -self._comm.number,
            "members": self._comm.members,
            "sequence": self._number - 1,
        }
