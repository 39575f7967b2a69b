"""Ranks as programs played on a Machine: each computes, sends and receives in its own order.

    def worker():                                  a rank, as a generator
        yield Begin("step 0", 0)                   a phase: encloses the spans up to its End
        yield Busy("forward", "fc", 0.02)       0.02 s of the device, longer on a slow rank
        yield Send(0, nbytes)                      until rank 0 has received it
        src, value = yield Receive(0)              the sender and the value
        yield End()

The rules are those of a paced run: an operation begins when the previous one ends; a message leaves
when its sender's port is free and takes latency + bytes/bandwidth, for which both ports are busy
(each for what its own link takes, where ranks have their own links); a port delivers the messages
to its rank in the order in which they would arrive, at the same moment by sender; a receive from
any source takes the earliest. The order of the matches is computed, not given: a program may depend
on what it receives.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlviz.machine import Machine
from dlviz.machine.machine import slowdown
from dlviz.machine.topology import moment
from dlviz.trace import Trace


class Begin(NamedTuple):
    """Open a span that encloses those up to its End; by default with the enclosing `step`."""

    name: str
    step: int | None = None
    kind: str = "phase"


class End(NamedTuple):
    """Close the span opened last."""


class Busy(NamedTuple):
    """Compute for so many seconds, times the machine's factor; `peer`: whose gradient an update
    applies."""

    kind: str
    name: str | None
    seconds: float
    peer: int = -1


class Send(NamedTuple):
    """Send a message that carries `value`; without `wait` the rank goes on immediately."""

    dst: int
    nbytes: int
    value: Any = None
    wait: bool = True


class Receive(NamedTuple):
    """Wait for a message, from any source where `src` is None; gives (source, value). A receive
    `posted` earlier is recorded as a wait, another as a receive."""

    src: int | None = None
    posted: bool = False


class Drain(NamedTuple):
    """Wait until all sent messages have left the rank's port."""


Operation = Begin | End | Busy | Send | Receive | Drain
Program = Generator[Operation, Any, Any]

_ARRIVES, _GOES_ON = range(2)  # the first goes first at the same moment


@dataclass(slots=True)
class _Message:
    number: int
    src: int
    dst: int
    nbytes: int
    value: Any
    step: int
    waits: bool  # its sender
    since: float  # when its sender called
    sent: float
    stamp: float
    taking: float  # its receiver's port
    arrived: float = math.nan
    received: float = math.nan


@dataclass(slots=True)
class _Rank:
    program: Program
    free: float = 0.0  # when the rank is next free, and its port in each direction
    out: float = 0.0
    into: float = 0.0
    newest: dict[int, float] = field(default_factory=dict)  # stamp by destination
    operations: int = 0
    holders: list[tuple[Begin, int, float]] = field(default_factory=list)  # what, step, since
    inbox: list[_Message] = field(default_factory=list)  # in the order of arrival
    wanted: Receive | None = None  # what it waits for


def play(programs: Sequence[Program], machine: Machine) -> Trace:
    """The simulated Trace of one program for each rank of `machine`. ValueError where ranks share
    links, and where a rank waits for ever."""
    if machine.topology.links:
        raise ValueError(
            f"programs are not played {machine.topology}, where messages share links: use a switch."
        )
    return _Play(programs, machine).trace()


class _Play:
    """The events of a play, the earliest first: a message arrives at a port, a rank goes on."""

    def __init__(self, programs: Sequence[Program], machine: Machine):
        self.machine = machine
        self.ranks = [_Rank(program) for program in programs]
        self.messages: list[_Message] = []
        self.spans: list[tuple[Any, ...]] = []
        self.events: list[tuple[int, int, int, int, Any]] = []
        self.order = itertools.count()
        for rank in range(len(programs)):
            self._later(0.0, _GOES_ON, rank, None)
        while self.events:
            _, what, rank, _, given = heapq.heappop(self.events)
            if what == _ARRIVES:
                self._arrive(given)
            else:
                self._go_on(rank, given)
        stuck = [rank for rank, one in enumerate(self.ranks) if one.wanted]
        if stuck:
            raise ValueError(f"rank {stuck[0]} waits for a message that nobody sends.")

    def _later(self, when: float, what: int, rank: int, given: Any) -> None:
        heapq.heappush(self.events, (moment(when), what, rank, next(self.order), given))

    def _go_on(self, number: int, given: Any) -> None:
        """Run a rank's operations up to the next one that takes time."""
        rank = self.ranks[number]
        while True:
            try:
                one = rank.program.send(given)
            except StopIteration:
                return
            given = None
            if isinstance(one, Begin):
                step = self._step(number) if one.step is None else one.step
                rank.holders.append((one, step, rank.free))
            elif isinstance(one, End):
                holder, step, since = rank.holders.pop()
                self._span(number, holder.kind, holder.name, since, step)
            elif isinstance(one, Drain):
                since, rank.free = rank.free, max(rank.free, rank.out)
                self._span(number, "wait", "send", since)
                return self._later(rank.free, _GOES_ON, number, None)
            elif isinstance(one, Busy):
                since = rank.free
                rank.free += one.seconds * slowdown(self.machine.factors, number, rank.operations)
                rank.operations += 1
                self._span(number, one.kind, one.name, since, peer=one.peer)
                return self._later(rank.free, _GOES_ON, number, None)
            elif isinstance(one, Send):
                self._send(number, one)
                if one.wait:
                    return
            else:
                rank.wanted = one
                return self._take(number)

    def _send(self, number: int, one: Send) -> None:
        rank, path = self.ranks[number], self.machine.topology.path(number, one.dst)
        sent = max(rank.free, rank.out)
        rank.out = sent + path.sending(one.nbytes)
        stamp = max(sent + path.seconds(one.nbytes), rank.newest.get(one.dst, 0.0))
        rank.newest[one.dst] = stamp
        message = _Message(
            len(self.messages), number, one.dst, one.nbytes, one.value, self._step(number),
            one.wait, rank.free, sent, stamp, path.taking(one.nbytes),
        )  # fmt: skip
        self.messages.append(message)
        self._later(message.stamp, _ARRIVES, number, message)
        if not one.wait:
            self._message_span(message, number, "send", rank.free, one.dst)

    def _arrive(self, message: _Message) -> None:
        rank = self.ranks[message.dst]
        rank.into = message.arrived = max(message.stamp, rank.into + message.taking)
        rank.inbox.append(message)
        self._take(message.dst)

    def _take(self, number: int) -> None:
        """Let a rank receive the message that it waits for, if that has arrived."""
        rank, wanted = self.ranks[number], self.ranks[number].wanted
        if wanted is None:
            return
        message = next((m for m in rank.inbox if wanted.src in (None, m.src)), None)
        if message is None:
            return
        rank.inbox.remove(message)
        rank.wanted, since = None, rank.free
        rank.free = message.received = max(rank.free, message.arrived)
        self._message_span(message, number, "wait" if wanted.posted else "recv", since, message.src)
        self._later(rank.free, _GOES_ON, number, (message.src, message.value))
        if message.waits:
            sender = self.ranks[message.src]
            sender.free = max(message.stamp, message.received)
            self._message_span(message, message.src, "send", message.since, number)
            self._later(sender.free, _GOES_ON, message.src, None)

    def _step(self, number: int) -> int:
        holders = self.ranks[number].holders
        return holders[-1][1] if holders else -1

    def _span(
        self, number: int, kind: str, name: str | None, since: float, step: int | None = None,
        peer: int = -1, flow: int = -1, nbytes: int = 0,
    ) -> None:  # fmt: skip
        rank = self.ranks[number]
        step = self._step(number) if step is None else step
        depth = len(rank.holders)
        self.spans.append((number, kind, name, since, rank.free, depth, step, peer, flow, nbytes))

    def _message_span(
        self, message: _Message, number: int, kind: str, since: float, peer: int
    ) -> None:
        about = {"peer": peer, "flow": message.number, "nbytes": message.nbytes}
        self._span(number, kind, None, since, **about)

    def trace(self) -> Trace:
        names = ("rank", "kind", "name", "start", "end", "depth", "step", "peer", "flow", "nbytes")
        spans = dict(zip(names, map(list, zip(*self.spans, strict=True)), strict=False))
        columns = ("src", "dst", "nbytes", "sent", "arrived", "received", "step")
        messages = {name: [getattr(one, name) for one in self.messages] for name in columns}
        meta = {
            "clock": "simulated",
            "ranks": len(self.ranks),
            "machine": str(self.machine),
            "topology": self.machine.topology.outline,
        }
        return Trace({**spans, "lane": ["compute"] * len(self.spans)}, messages, meta=meta)
