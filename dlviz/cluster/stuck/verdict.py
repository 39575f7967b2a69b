"""The error texts of runs that did not complete."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass
from time import perf_counter_ns

from dlviz.cluster import rank as rank_main
from dlviz.cluster.parent.remote import Remote
from dlviz.cluster.rank import Failure
from dlviz.cluster.stuck.stacks import called
from dlviz.cluster.stuck.waits import (
    RankState,
    Wait,
    deadlocked,
    find_cycle,
    missing,
    name_cells,
    show_line,
)
from dlviz.trace.recorder import is_inside

STARTER = f'"{rank_main.__file__}"'


def origin(failures: dict[int, Failure]) -> tuple[int, Failure]:
    """The rank whose failure came first, and its failure. One that reports a lost connection comes
    after any other: it is a consequence."""
    return min(failures.items(), key=lambda each: (each[1].lost_peer, each[1].when))


def failure(rank: Remote, failure: Failure) -> str:
    return f"{rank.called} raised {failure.summary}"


def death(rank: Remote) -> str:
    """How a rank died, in a sentence."""
    code = rank.exitcode
    when = "before its worker returned"
    if rank.finished:
        when = "after its worker had returned, while other ranks were at work"
    if code is None:
        return f"{rank.called} closed its connection to the launching process {when}"
    if code >= 0:
        return f"{rank.called} exited with code {code} {when}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = {
        "SIGKILL": "; the system kills processes like this when memory runs out",
        "SIGBUS": "; that happens when shared memory (/dev/shm) is full",
    }.get(name, "")
    return f"{rank.called} was killed by {name} {when}{hint}"


def waits_for_dead(dead: Remote, waits: list[Wait]) -> list[str]:
    """The waits for the dead rank, in a sentence each, which names the group (an axis of a mesh,
    say)."""
    return [describe(wait) for wait in waits if wait.misses(dead.number)]


@dataclass(frozen=True)
class Deadlock:
    """The report of a deadlock: the error's message, the same in one sentence, the waits of the
    ranks that are stuck, and the ranks that wait for each other in a cycle, if any do."""

    message: str
    sentence: str
    waits: list[Wait]
    cycle: list[int] | None


def deadlock(states: dict[int, RankState], ranks: int, lost: set[int]) -> Deadlock:
    stuck = deadlocked(states)
    cycle = find_cycle(stuck, states)
    over = [number for number, state in states.items() if state.finished]
    done = [number for number in over if number not in lost]
    waits = [wait for number in stuck for wait in states[number].waits]
    lines = [describe(wait, states) for wait in waits if wait.op != "lane"]
    if done:
        lines.append(f"{ranks_in_words(done)} finished and will send no more")
    if lost:
        lines.append(f"{ranks_in_words(lost)} {'was' if len(lost) == 1 else 'were'} lost")
    if cycle:
        ring = [*cycle, cycle[0]]
        lines.append("cycle: " + " waits for ".join(f"rank {number}" for number in ring))
    who = "no rank" if len(stuck) + len(over) == ranks else f"none of {ranks_in_words(stuck)}"
    message = f"deadlock: {who} can go on\n  " + "\n  ".join(lines)
    return Deadlock(message, _deadlock_sentence(stuck, done, cycle, lost), waits, cycle)


def _deadlock_sentence(
    stuck: list[int], done: list[int], cycle: list[int] | None, lost: set[int]
) -> str:
    if cycle:
        onward = ", which waits for ".join(f"rank {rank}" for rank in [*cycle[1:], cycle[0]])
        return f"deadlock: rank {cycle[0]} waits for {onward}"
    alone = len(stuck) == 1
    wait = f"deadlock: {ranks_in_words(stuck)} {'waits' if alone else 'wait'} for"
    why = []
    if done:
        why.append(f"{ranks_in_words(done)} {'has' if len(done) == 1 else 'have'} finished")
    if lost:
        why.append(f"{ranks_in_words(lost)} {'is' if len(lost) == 1 else 'are'} lost")
    if why:
        return f"{wait} ever, because {' and '.join(why)}"
    return f"{wait} {'what nobody can send' if alone else 'each other'}"


def out_of_time(seconds: float) -> str:
    return f"the run took longer than timeout={seconds:g} s"


def timeout(seconds: float, ranks: list[Remote]) -> tuple[str, str]:
    """The message and the stacks of all ranks."""
    lines, stacks = [], []
    for rank in ranks:
        if rank.lost is not None:
            lines.append(f"{rank.called} {rank.lost.how}, and the run lost it")
            continue
        if rank.finished:
            lines.append(f"{rank.called} finished")
            continue
        place, text = stack(rank)
        waits = [] if rank.state is None else rank.state.waits
        lines += [describe(wait) for wait in waits if wait.op != "lane"] or [
            f"{rank.called} is {place}"
        ]
        stacks.append(f"{rank.called}\n{text}")
    all_stacks = "\n\n".join(stacks)
    return f"{out_of_time(seconds)}\n  " + "\n  ".join(lines) + f"\n\n{all_stacks}", all_stacks


def describe(wait: Wait, states: dict[int, RankState] | None = None) -> str:
    """A wait in a sentence; `states` shows who has yet to enter a collective."""
    seconds = (perf_counter_ns() - wait.since) * 1e-9
    text = f"{wait.describe()}, for {seconds:.1f} s now, at {show_line(wait.where)}"
    absent = missing(wait, states) if states and wait.members and wait.sequence >= 0 else []
    return f"{text} ({ranks_in_words(absent)} not in it)" if absent else text


def stack(rank: Remote) -> tuple[str, str]:
    """Where a rank is, in a phrase, and its stacks, innermost frame first."""
    places, lines = [], []
    for thread in _read(rank).split("\n\n"):
        for line in _worker_frames(thread):
            lines.append(name_cells(line))
            where = _where(line)
            if where:
                lines.append(f"    {show_line(where).partition(': ')[2]}")
                places.append(where)
    places.sort(key=lambda where: is_inside(where.rpartition(":")[0]))
    place = f"at {show_line(places[0])}" if places else "at an unknown place"
    return place, "\n".join(lines)


def _worker_frames(thread: str) -> list[str]:
    """A thread's lines as faulthandler wrote them, without the frames in which dlviz called it; []
    for a thread of dlviz's own."""
    lines = thread.strip().splitlines()
    start = next((i for i, line in enumerate(lines) if STARTER in line), len(lines))
    if any("in listen" in line for line in lines[start:]) or not any(map(_where, lines)):
        return []
    return lines[:start]


def crash(rank: Remote) -> str:
    """The stacks that a rank wrote while it crashed."""
    return stack(rank)[1]


def _read(rank: Remote) -> str:
    try:
        with open(rank.stacks, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _where(line: str) -> str:
    """`file:line` of a line that faulthandler wrote, "" of another line."""
    found = called(line)
    return "{}:{}".format(*found.where) if found else ""


def ranks_in_words(numbers: Collection[int]) -> str:
    """As in "ranks 0, 2 and 3"."""
    *others, last = map(str, sorted(numbers))
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
