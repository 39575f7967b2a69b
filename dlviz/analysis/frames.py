"""A run's messages as frames: which are drawn together, and what every buffer held afterwards.

A frame is a round. If the messages have steps, and none was sent after its sender had received one
of its own step or a later one, each step is a round. Otherwise a message is in the round after the
latest of the messages that its sender had received before sending it, and never in one round with
those of another step. So the frames follow what happened, and a program that sends in a wrong order
shows that order. Where the steps start again at 0, the next call begins.

A rank is shown as it was when it went on to its next message: what it did with the messages
received, such as adding one to a chunk, belongs to their frame.

Snapshots are ordered against messages by the wall clock where the Trace has one, since a snapshot
before a receive and one after it may have the same device time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.steps import messages_in

if TYPE_CHECKING:
    from dlviz.trace import Trace


@dataclass(frozen=True)
class Frame:
    """One picture: its name, its messages, and what the buffers held after their arrival.

    `messages` are rows of `trace.messages`; `snapshots` gives each rank's place in `trace.buffers`.
    """

    name: str
    messages: tuple[int, ...]
    snapshots: dict[int, int]


def message_frames(
    trace: Trace, *, step: int | None = None, buffer: str | None = None, single: bool = False
) -> list[Frame]:
    """The frames of `messages`: the start, then each message of the Trace (or of `step`) in one;
    with `single` in one of its own, as they arrived.

    `buffer` names the watched buffer; by default the first watched. Raises ValueError for one that
    was not.
    """
    snapshots = watched(trace, buffer)
    sent, received, taken = event_times(trace, snapshots)
    times = {rank: [taken[place] for place in places] for rank, places in snapshots.items()}
    events = _events(trace, sent, received)

    frames = [Frame("start", (), {r: _first(trace, own, step) for r, own in snapshots.items()})]
    order = _arrivals if single else _order
    for name, group in order(trace, messages_in(trace, step), sent, received):
        state = dict(frames[-1].snapshots)
        for rank, places in snapshots.items():
            landed = [received[row] for row in group if trace.messages.dst[row] == rank]
            left = [sent[row] for row in group if trace.messages.src[row] == rank]
            own = [when for when in landed + left if np.isfinite(when)]
            if not own:
                continue
            after = bisect_right(events[rank], (max(own), True))
            onward, sends = (*events[rank], (np.inf, True))[after]
            passed = bisect_right if sends else bisect_left  # after a send's snapshot, or before
            count = [passed(times[rank], onward)]  # snapshots up to then; for a receive, its own
            count += [bisect_left(times[rank], when) + 1 for when in landed if np.isfinite(when)]
            seen = [state[rank], *places[: max(count)][-1:]]
            state[rank] = max(seen, key=lambda place: trace.buffers[place]["index"])
        frames.append(Frame(name, group, state))
    return frames


def watched(trace: Trace, buffer: str | None = None) -> dict[int, list[int]]:
    """For each rank the places in `trace.buffers` of its snapshots of one buffer, in order."""
    names = list(dict.fromkeys(snapshot["name"] for snapshot in trace.buffers))
    if buffer is not None and buffer not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise ValueError(
            f"buffer={buffer!r} was not watched in this run (watched: {known}). "
            "Call comm.watch(tensor, name) before the first message."
        )
    name = names[0] if buffer is None and names else buffer
    snapshots: dict[int, list[int]] = {}
    for place, snapshot in enumerate(trace.buffers):
        if snapshot["name"] == name:
            snapshots.setdefault(snapshot["rank"], []).append(place)
    for places in snapshots.values():
        places.sort(key=lambda place: trace.buffers[place]["index"])
    return dict(sorted(snapshots.items()))


def event_times(
    trace: Trace, snapshots: dict[int, list[int]]
) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
    """When each message was sent and received and each of the `snapshots` taken, on one clock."""
    table, places = trace.messages, [place for own in snapshots.values() for place in own]
    wall = {place: trace.buffers[place]["wall"] for place in places}
    if np.isfinite(table.wall_sent).all() and np.isfinite(list(wall.values())).all():
        return table.wall_sent, table.wall_received, wall
    return table.sent, table.received, {place: trace.buffers[place]["time"] for place in places}


def _events(
    trace: Trace, sent: np.ndarray, received: np.ndarray
) -> dict[int, list[tuple[float, bool]]]:
    """When each rank sent or received a message, and whether it sent, in order."""
    events: dict[int, list[tuple[float, bool]]] = {}
    for ranks, times, sends in (
        (trace.messages.src, sent, True),
        (trace.messages.dst, received, False),
    ):
        for rank, when in zip(ranks.tolist(), times.tolist(), strict=True):
            if np.isfinite(when):
                events.setdefault(rank, []).append((when, sends))
    return {rank: sorted(own) for rank, own in events.items()}


def _order(
    trace: Trace, rows: np.ndarray, sent: np.ndarray, received: np.ndarray
) -> list[tuple[str, tuple[int, ...]]]:
    """The messages `rows` in rounds, each with its name: by step, or by round and then step."""
    src, dst, step = (trace.messages[name].tolist() for name in ("src", "dst", "step"))
    events = [(sent[row], 1, row) for row in rows.tolist()]
    events += [(received[row], 0, row) for row in rows.tolist() if np.isfinite(received[row])]
    rounds: dict[int, int] = {}
    reached: dict[int, int] = {}  # rank -> the round of its next send
    past: dict[int, int] = {}  # rank -> the highest step of what it has received
    stepped = True  # each message has a later step than all that its sender had received
    for sending, row in _in_order(sorted(events), src, dst, sent, received):
        if sending:
            rounds[row] = reached.get(src[row], 0)
            stepped = stepped and step[row] > past.get(src[row], -1)
        if row in rounds and (not sending or received[row] <= sent[row]):
            reached[dst[row]] = max(reached.get(dst[row], 0), rounds[row] + 1)
            past[dst[row]] = max(past.get(dst[row], -1), step[row])

    def key(row: int) -> tuple[int, int]:
        return 0 if stepped else rounds[row], step[row]

    keyed = [(at, tuple(group)) for at, group in groupby(sorted(rounds, key=key), key)]
    carried = (trace.spans.flow >= 0) & (trace.spans.step >= 0)
    its = trace.messages.step[trace.spans.flow[carried]]
    steps = [number for (_, number), _ in keyed]
    own = bool(len(its)) and (its == trace.spans.step[carried]).all()  # the program's, not a call's
    names = _names([-1] * len(steps) if own else steps)
    return [
        (name, tuple(sorted(group, key=lambda row: (src[row], dst[row], row))))
        for name, (_, group) in zip(names, keyed, strict=True)
    ]


def _arrivals(
    trace: Trace, rows: np.ndarray, sent: np.ndarray, received: np.ndarray
) -> list[tuple[str, tuple[int, ...]]]:
    """Each of the messages `rows` with a name, as they arrived; last, those that never did."""
    every = rows[np.argsort(received[rows], kind="stable")].tolist()
    return [(f"message {i} of {len(every)}", (row,)) for i, row in enumerate(every, 1)]


def _in_order(
    events: Iterable[tuple[Any, int, Any]],
    src: list[int],
    dst: list[int],
    sent: np.ndarray,
    received: np.ndarray,
) -> Iterator[tuple[int, int]]:
    """Whether each of `events`, (when, whether it sends, message), sends, and its message. If the
    clocks of two hosts show a message arriving before it was sent, its receiver's events wait for
    the send."""
    gone: set[int] = set()
    held: dict[int, list[tuple[Any, int, Any]]] = {}  # by rank, its events that wait
    for first in events:
        ready = deque([first])
        while ready:
            event = ready.popleft()
            _, sending, row = event
            rank = src[row] if sending else dst[row]
            early = not sending and row not in gone and received[row] < sent[row]
            if early or rank in held:
                held.setdefault(rank, []).append(event)
                continue
            yield sending, row
            gone |= {row} if sending else set()
            if sending and dst[row] in held and held[dst[row]][0][1:] == (0, row):
                ready.extendleft(reversed(held.pop(dst[row])))
    for waiting in held.values():  # no order of sends explains these
        yield from (event[1:] for event in waiting)


def _names(steps: list[int]) -> list[str]:
    """The rounds in words, counted from 1, and the call of each, if the steps show it."""
    starts = [i for i, step in enumerate(steps) if not i or step <= steps[i - 1]]
    calls = [steps[i:j] for i, j in zip(starts, [*starts[1:], None], strict=False)]
    if max(map(len, calls), default=1) == 1 or any(c != [*range(len(c))] for c in calls):
        calls = [steps]
    return [
        (f"call {number} of {len(calls)}, " if len(calls) > 1 else "") + f"round {i} of {len(call)}"
        for number, call in enumerate(calls, 1)
        for i in range(1, len(call) + 1)
    ]


def _first(trace: Trace, places: list[int], step: int | None) -> int:
    """A rank's first snapshot, or its first of the step if its snapshots have steps."""
    own = (place for place in places if step is not None and trace.buffers[place]["step"] == step)
    return next(own, places[0])
