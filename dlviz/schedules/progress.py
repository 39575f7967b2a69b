"""The loop in which all ranks run their rows: each goes on until something it needs is missing.

    rank 0  |0F0|0F1|               |0B0    |     start = max(its rank is free,
    rank 1      `->|1F0|1B0    |--------^                     what it needs has arrived)

The order on a rank is given, so there is no choice: each start is the longest path to it. The rules
ask how far the ranks get, the simulator when each action starts. Lists are plain, and a waiting
rank is resumed by the action that makes what it waits for: 262,144 actions take some tenths of a
second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

NEVER = math.inf


class Work(NamedTuple):
    """What the ranks run, as columns, rank by rank. An action has a row for each thing it needs.

    Things are numbered from 0 to `things` - 1; number `things` exists from the start, `things + 1`
    never.
    """

    ends: list[int]  # the row after the last one of each rank
    needs: list[int]  # the thing that a row waits for
    makes: list[int]  # the thing that it makes
    joined: list[bool]  # whether the next row belongs to the same action
    seconds: list[float]
    delay: list[float]  # s from its end until the thing exists
    things: int


def run(work: Work) -> tuple[list[float], list[int]]:
    """When each row starts, and how many rows have run when no rank can go on: for each rank the
    row at which it stops, its end where all of it ran. A row that never ran starts at 0."""
    ends, needs, makes, joined, seconds, delay, things = work
    start = [0.0] * len(needs)
    arrived = [NEVER] * things + [0.0, NEVER]
    at, free = [0, *ends[:-1]], [0.0] * len(ends)
    waiting: dict[int, list[int]] = {}  # the ranks that wait for a thing
    ready = list(range(len(ends)))
    while ready:
        rank = ready.pop()
        row, end, now = at[rank], ends[rank], free[rank]
        while row < end:
            missing = last = row
            there = arrived[needs[row]]
            while joined[last]:
                last += 1
                if arrived[needs[last]] > there:
                    missing, there = last, arrived[needs[last]]
            if there == NEVER:
                waiting.setdefault(needs[missing], []).append(rank)
                break
            if there > now:
                now = there
            another = True
            while another:
                start[row] = now
                made = makes[row]
                arrived[made] = now + seconds[row] + delay[row]
                if made in waiting:
                    ready += waiting.pop(made)
                another = joined[row]
                row += 1
            now += seconds[row - 1]
        at[rank], free[rank] = row, now
    return start, at
