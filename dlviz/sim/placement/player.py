"""One placement played: what each device runs when, and which messages that takes.

    a device   runs, of its groups that are ready, the one of the highest upward rank (own seconds
               and the longest path of seconds to an end, messages left out; ties: the lower index)
    a value    goes once to each other device that needs it, first to the device of the group with
               the highest upward rank that needs it (ties: the lower index)
    a port     sends one message at a time, in the order in which they were ready, and takes one at
               a time in order of arrival (ties: the lower group); each occupies it for latency +
               bytes / bandwidth. Computing goes on meanwhile

No rule asks for a device's number, so that renaming equal devices changes no time. Ports are those
of dlviz/sim/collective.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral
from typing import NamedTuple

from dlviz.machine.topology import PICOSECONDS, moment
from dlviz.sim.placement.bounds import urgency
from dlviz.sim.placement.graph import Devices, Graph, takes
from dlviz.trace import Trace

ENDS, REACHES_PORT, ARRIVES = range(3)  # events of one moment come in this order
TIMES = ("start", "end", "sent", "arrived", "received")


class SentValue(NamedTuple):
    """The value of `group` on its path to device `dst`; times in picoseconds."""

    group: int
    dst: int
    src: int
    sent: int
    arrived: int


class Player:
    """What a graph on devices costs, in picoseconds: computed once for many placements."""

    def __init__(self, graph: Graph, devices: Devices):
        self.graph, self.devices = graph, devices
        self.takes = takes(graph, devices)
        self.messages = [moment(devices.link.seconds(nbytes)) for nbytes in graph.nbytes]
        self.weights: Sequence[int] = graph.weights or ()
        self.ranks = urgency(graph, self.takes)
        self.by_rank = sorted(range(len(graph)), key=lambda group: (-self.ranks[group], group))
        self._place = [0] * len(graph)
        for place, group in enumerate(self.by_rank):
            self._place[group] = place
        self._children = [sorted(own, key=self._place.__getitem__) for own in graph.children]
        self._inputs = [len(own) for own in graph.parents]

    def checked(self, placement: Sequence[int]) -> list[int]:
        """`placement` in plain numbers. Raises ValueError unless it has a device for each group,
        and each device memory for its groups."""
        groups, count = len(self.graph), self.devices.count
        if len(placement) != groups:
            raise ValueError(
                f"placement has {len(placement)} devices and the graph {groups} groups: give the "
                "device of each group."
            )
        for group, device in enumerate(placement):
            whole = isinstance(device, Integral) and not isinstance(device, bool)
            if not whole or not 0 <= device < count:
                raise ValueError(
                    f"placement[{group}]={device!r} is not a device: they are 0 to {count - 1}."
                )
        for device, over in enumerate(self.missing(placement)):
            if over:
                room = self.devices.room[device]
                raise ValueError(
                    f"placement: the groups on device {device} hold {room + over:g} bytes and it "
                    f"has {room:g}: {over:g} bytes are missing. Move a group to another device."
                )
        return [*map(int, placement)]

    def check_fits(self) -> None:
        """Raises ValueError where no placement can fit: a group is larger than every device, or all
        are larger than all devices."""
        room = self.devices.room
        for group, weight in enumerate(self.weights):
            if weight > max(room):
                raise ValueError(
                    f"group {group} holds {weight} bytes and no device has more than "
                    f"{max(room):g}: {weight - max(room):g} bytes are missing. Make groups smaller."
                )
        total = sum(self.weights)
        if total > sum(room):
            raise ValueError(
                f"the groups hold {total} bytes and all devices together {sum(room):g}: "
                f"{total - sum(room):g} bytes are missing. Use more devices."
            )

    def missing(self, placement: Sequence[int]) -> list[float]:
        """Of each device the bytes that its groups hold beyond its memory."""
        held = zip(self.held(placement), self.devices.room, strict=True)
        return [max(0, own - room) for own, room in held]

    def held(self, placement: Sequence[int]) -> list[int]:
        """Of each device the bytes of its groups."""
        found = [0] * self.devices.count
        for weight, device in zip(self.weights, placement, strict=True):
            found[device] += weight
        return found

    def seconds(self, placement: Sequence[int]) -> float:
        """The makespan of a placement, which is not checked."""
        return self.run(placement)[0] / PICOSECONDS

    def run(self, placement: Sequence[int]) -> tuple[int, list[int], list[SentValue]]:
        """The makespan, the start of each group, and the messages as they reach their ports."""
        taken, costs, children, place = self.takes, self.messages, self._children, self._place
        groups, count = range(len(taken)), range(self.devices.count)
        inputs, starts = self._inputs.copy(), [0 for _ in groups]
        ready: list[list[int]] = [[] for _ in count]  # by device, as places in by_rank
        busy, out, into = [False for _ in count], [0 for _ in count], [0 for _ in count]
        sent: dict[tuple[int, int], int] = {}  # (group, to)
        messages: list[SentValue] = []
        events: list[tuple[int, int, int, int]] = []  # when, what, group, device
        push, pop, now = heapq.heappush, heapq.heappop, 0
        for first in sorted(place[group] for group in groups if not inputs[group]):
            ready[placement[self.by_rank[first]]].append(first)
        while True:
            for device in count:
                if ready[device] and not busy[device]:
                    group = self.by_rank[pop(ready[device])]
                    busy[device], starts[group] = True, now
                    push(events, (now + taken[group][device], ENDS, group, device))
            if not events:
                return now, starts, messages
            now = events[0][0]
            while events and events[0][0] == now:  # all of this moment, before a device goes on
                _, what, group, device = pop(events)
                if what == REACHES_PORT:
                    into[device] = max(now, into[device] + costs[group])
                    push(events, (into[device], ARRIVES, group, device))
                    key = group, device
                    messages.append(SentValue(*key, placement[group], sent[key], into[device]))
                    continue
                if what == ENDS:
                    busy[device] = False
                    for child in children[group]:
                        to = placement[child]
                        if to != device and (group, to) not in sent:
                            sent[group, to] = max(now, out[device])
                            out[device] = sent[group, to] + costs[group]
                            push(events, (out[device], REACHES_PORT, group, to))
                for child in children[group]:
                    if placement[child] == device:
                        inputs[child] -= 1
                        if not inputs[child]:
                            push(ready[device], place[child])


@lru_cache(maxsize=64)
def player_of(graph: Graph, devices: Devices) -> Player:
    return Player(graph, devices)


def seconds_of(graph: Graph, placement: Sequence[int], devices: Devices) -> float:
    """The makespan of `play`, without its Trace. Raises what `play` does."""
    player = player_of(graph, devices)
    return player.seconds(player.checked(placement))


def missing(graph: Graph, placement: Sequence[int], devices: Devices) -> float:
    """Bytes that `placement` needs beyond the devices' memory: 0 where it fits."""
    return sum(player_of(graph, devices).missing(placement))


def play(graph: Graph, placement: Sequence[int], devices: Devices) -> Trace:
    """The Trace of `placement` (the device of each group), a rank a device.

    Lanes: compute has a span of kind forward for each group, whose `stage` is the group and whose
    `flow` is the last message that it needed; send and recv are the two sides of a device's port.
    A message's `tag` is its group. `memory` has what a device holds, as "parameters".

    Raises ValueError for a group without a device, an unknown device, and more bytes on a device
    than it has.
    """
    player = player_of(graph, devices)
    placement = player.checked(placement)
    _, starts, messages = player.run(placement)
    arrived = {(one.group, one.dst): (one.arrived, flow) for flow, one in enumerate(messages)}
    spans = []
    for group, (device, start) in enumerate(zip(placement, starts, strict=True)):
        needed = (arrived.get((parent, device), (0, -1)) for parent in graph.parents[group])
        spans.append({
            "rank": device, "lane": "compute", "kind": "forward", "name": f"group {group}",
            "stage": group, "start": start, "end": start + player.takes[group][device],
            "flow": max(needed, default=(0, -1))[1],
        })  # fmt: skip
    for flow, one in enumerate(messages):
        cost = player.messages[one.group]
        ends = (one.src, one.dst, "send", one.sent), (one.dst, one.src, "recv", one.arrived - cost)
        spans += [{
            "rank": rank, "lane": lane, "kind": lane, "name": f"value {one.group}", "peer": peer,
            "stage": one.group, "start": begin, "end": begin + cost, "flow": flow,
            "nbytes": graph.nbytes[one.group],
        } for rank, peer, lane, begin in ends]  # fmt: skip
    rows = [{
        "src": one.src, "dst": one.dst, "nbytes": graph.nbytes[one.group], "tag": one.group,
        "sent": one.sent, "arrived": one.arrived, "received": one.arrived,
    } for one in messages]  # fmt: skip
    for row in (*spans, *rows):
        row |= {name: row[name] / PICOSECONDS for name in TIMES if name in row}
    held = enumerate(player.held(placement))
    memory = [
        {"rank": device, "time": 0.0, "what": "parameters", "nbytes": own} for device, own in held
    ]
    meta = {"clock": "simulated", "ranks": devices.count, "machine": str(devices)}
    return Trace(spans, rows, memory, meta=meta | {"placement": placement})
