"""Who waits for whom (the wait-for graph), and whether any rank can still go on.

Each thread of a rank registers its wait. A rank is blocked when every thread of it is in a wait
that nothing has answered yet: a receive whose message was not sent, a send whose receive was not
posted, a collective that some member has not entered. Some ranks are deadlocked when each of their
waits can be answered only by another of them, or by a rank that has finished, whatever the other
ranks do.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass, field

from dlviz.trace.recorder import CELL

TAG_BITS = 20
TAGS = (1 << TAG_BITS) - 1  # the highest tag; above it lies the number of the group
SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")


@dataclass(frozen=True)
class Wait:
    """One thread's wait. `peer` is a global rank (None: any source, or a collective); `index`
    counts the messages of this pair and tag before it; `members` are the global ranks of its
    group, or those that a receive has `listed`; `deadline` is when it ends by itself (seconds of
    the run's clock); `since` is perf_counter_ns; `where` the caller's line, as file:line; `host`
    is named where the run is on several."""

    rank: int
    lane: str
    op: str
    where: str
    since: int
    peer: int | None = None
    tag: int = 0
    index: int = 0
    group: str = "world"
    group_id: int = 0
    members: tuple[int, ...] = ()
    listed: bool = False
    deadline: float | None = None
    sequence: int = -1
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    host: str = ""

    def describe(self) -> str:
        """The rank and what it waits for, as in "rank 0 waits in recv from rank 1 (message 2)"."""
        details = []
        if self.op in SENDS:
            what = f"{self.op} to rank {self.peer}"
        elif self.op in RECEIVES:
            what = f"{self.op} from {self._sources}"
        elif self.op == "lock":
            what = f"lock of group {self.group}, which {_holder(self.peer)}"
            return f"rank {self.rank}{self._place} waits in {what}"
        else:
            what, details = self.op, [f"call {self.sequence} of group {self.group}"]
        if self.peer is not None:
            details.append(f"message {self.index}")
        if self.op in SENDS + RECEIVES and not self.of_world:
            details.append(f"group {self.group}")
        if self.tag:
            details.append(f"tag {self.tag}")
        if self.deadline is not None:
            details.append(f"until {self.deadline:.6g} s")
        if self.shape is not None:
            details.append(f"shape {tuple(self.shape)} {self.dtype}")
        detail = f" ({', '.join(details)})" if details else ""
        return f"rank {self.rank}{self._place} waits in {what}{detail}"

    def misses(self, rank: int) -> bool:
        """Whether it may wait because that rank is lost: it is for that rank, in a collective with
        it, or for a message of a group of both, such as a ring's round."""
        together = self.sequence >= 0 or not self.of_world
        return self.peer == rank or (together and rank in self.members)

    @property
    def of_world(self) -> bool:
        """Whether its group is that of all ranks; a lane has a group of its own."""
        return self.group.removesuffix(f".{self.lane}") == "world"

    @property
    def _sources(self) -> str:
        if self.peer is not None:
            return f"rank {self.peer}"
        if not self.listed:
            return "any rank"
        *others, last = map(str, self.members)
        return f"rank {', '.join(others)} or {last}" if others else f"rank {last}"

    @property
    def _place(self) -> str:
        lane = "" if self.lane == "compute" else f" (lane {self.lane})"
        return f"{f' on {self.host}' if self.host else ''}{lane}"

    @property
    def key(self) -> int:
        """Group and tag in one number: one pair's messages with the same key are in order."""
        return self.group_id << TAG_BITS | self.tag


def _holder(rank: int | None) -> str:
    return "is free now" if rank is None else f"rank {rank} holds"


def show_line(where: str) -> str:
    """`file:line` with the text of that line, where this process knows it (a cell, a file)."""
    file, _, line = where.rpartition(":")
    linecache.checkcache(file)  # it may have been edited since the last run
    text = linecache.getline(file, int(line or 0)).strip()
    name = f"cell line {line}" if re.search(CELL, file) else where
    return f"{name}: {text}" if text else name


def name_cells(text: str) -> str:
    """A traceback that says "cell" in place of a cell's file, whose name means nothing."""
    return re.sub(rf'File "[^"]*{CELL}[^"]*"', "cell", text)


@dataclass
class RankState:
    """One rank's answer about its own state. `sent` and `claimed` count messages sent and receives
    posted, by peer and `Wait.key`; `calls` are the collective calls made, by group; `met` are the
    lost ranks of which it has raised RankLost."""

    waits: list[Wait] = field(default_factory=list)
    busy_threads: int = 0  # threads in no registered wait, or in one that a loss has ended
    finished: bool = False
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    claimed: dict[tuple[int, int], int] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)


def answered(wait: Wait, states: dict[int, RankState]) -> bool:
    """Whether what `wait` waits for has happened already (so that it is about to end)."""
    if wait.op in RECEIVES:
        if wait.peer is not None:
            peer = states.get(wait.peer)
            return peer is not None and peer.sent.get((wait.rank, wait.key), 0) > wait.index
        mine = states[wait.rank].claimed
        return any(
            state.sent.get((wait.rank, wait.key), 0) > mine.get((src, wait.key), 0)
            for src, state in states.items()
            if src in wait.members
        )
    if wait.op in SENDS:
        peer = states.get(wait.peer) if wait.peer is not None else None
        return peer is not None and peer.claimed.get((wait.rank, wait.key), 0) > wait.index
    if wait.op == "lock":
        return wait.peer is None
    return not missing(wait, states)


def missing(wait: Wait, states: dict[int, RankState]) -> list[int]:
    """The members of a collective that have not entered it, as far as `states` shows."""
    return [
        member
        for member in wait.members
        if member in states and states[member].calls.get(wait.group_id, 0) <= wait.sequence
    ]


def helpers(wait: Wait, states: dict[int, RankState]) -> set[int]:
    """The ranks that could answer `wait`."""
    if wait.op == "lock":
        return set() if wait.peer is None else {wait.peer}
    if wait.op in SENDS + RECEIVES:
        return {wait.peer} if wait.peer is not None else set(wait.members) - {wait.rank}
    unknown = {member for member in wait.members if member not in states}
    return unknown | set(missing(wait, states))


def deadlocked(states: dict[int, RankState]) -> list[int]:
    """The unfinished ranks of the largest deadlocked set, [] if there is none.

    `states` may leave out ranks that are known to be computing.
    """
    stuck = {
        rank
        for rank, state in states.items()
        if state.finished or (state.waits and not state.busy_threads and not _moving(state, states))
    }
    while True:
        saved = {
            rank
            for rank in stuck
            if not states[rank].finished
            and any(
                helpers(wait, states) - stuck for wait in states[rank].waits if wait.op != "lane"
            )
        }
        if not saved:
            break
        stuck -= saved
    return sorted(rank for rank in stuck if not states[rank].finished)


def in_vain(states: dict[int, RankState]) -> dict[int, int]:
    """The deadlocked ranks that wait for one that has met a lost rank, or for one that waits so,
    with that lost rank; those that have met it themselves know."""
    met = {rank: {*state.met} for rank, state in states.items()}
    stuck = deadlocked(states)
    for _ in stuck:  # one wait further each time
        for rank in stuck:
            for wait in (wait for wait in states[rank].waits if wait.op != "lane"):
                met[rank].update(*(met.get(helper, ()) for helper in helpers(wait, states)))
    return {rank: min(new) for rank in stuck if (new := met[rank] - states[rank].met)}


def _moving(state: RankState, states: dict[int, RankState]) -> bool:
    waits = [wait for wait in state.waits if wait.op != "lane"]
    return not waits or any(wait.deadline is not None or answered(wait, states) for wait in waits)


def find_cycle(stuck: list[int], states: dict[int, RankState]) -> list[int] | None:
    """Ranks r0, r1, ... of which each waits for the next and the last for r0; None if there is no
    such ring."""
    edges: dict[int, list[int]] = {}
    for rank in stuck:
        edges[rank] = []
        for wait in states[rank].waits:
            if wait.op != "lane" and not (wait.op in RECEIVES and wait.peer is None):
                edges[rank] += sorted(helpers(wait, states) & set(stuck))
    done: set[int] = set()

    def walk(path: list[int]) -> list[int] | None:
        for onward in edges[path[-1]]:
            if onward in path:
                return path[path.index(onward) :]
            if onward not in done:
                found = walk([*path, onward])
                if found:
                    return found
        done.add(path[-1])
        return None

    for start in stuck:
        found = walk([start]) if start not in done else None
        if found:
            return found
    return None
