"""A collective played message by message on a Machine, and the Trace of it.

Its pattern (dlviz/patterns) says who sends what; the machine says how long that takes, by the same
rules as a paced run:

    a message   leaves when its sender has the payload, the sender's port is free and so is each
                shared link on the path; it takes latency + bytes/bandwidth
    a port      is full duplex and carries one message at a time in each direction; outgoing ones
                queue in the order of sending, incoming ones in the order in which they would arrive
                (at the same moment: by step, then by sender)
    a link      that is shared is busy for bytes/bandwidth of each message; it takes them in the
                order in which they became first in their senders' ports
    a switch    whose ranks have their own links: each port is busy for what its own link takes; a
                message takes what the slower of the two does
    a rank      sends all its messages of a step, then receives those of that step; adding takes
                gamma a byte, while its ports go on

If in every step each port and link has at most one message, and messages arrive in the order of
their steps, a step is a few operations on columns; otherwise events are played one by one.
"""

from __future__ import annotations

import gc
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from dlviz.counts import check_counts, of_numbers
from dlviz.machine import Link, Machine, Topology
from dlviz.machine.topology import moment
from dlviz.patterns import (
    Transfer,
    butterfly,
    direct,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    tree,
)
from dlviz.trace import Trace

PATTERNS: dict[str, Callable[[int, int], list[Transfer]]] = {
    "ring": ring.all_reduce,
    "parameter_server": parameter_server.all_reduce,
    "tree": tree.all_reduce,
    "butterfly": butterfly.all_reduce,
    "halving_doubling": halving_doubling.all_reduce,
    "direct": direct.all_reduce,
    "all_reduce": ring.all_reduce,
    "reduce_scatter": ring.reduce_scatter,
    "all_gather": ring.all_gather,
    "broadcast": tree.broadcast,
    "reduce": tree.reduce,
    "gather": tree.gather,
    "scatter": tree.scatter,
    "all_to_all": direct.all_to_all,
}
NAMES = ("to rank {}", "from rank {}", "add what rank {} sent")  # of the spans send, recv, compute
_ROW = np.dtype(
    [("step", "i8"), ("src", "i8"), ("dst", "i8"), ("offset", "i8"), ("count", "i8"), ("op", "U4")]
)


@of_numbers
def collective(algorithm: str, ranks: int, nbytes: int, machine: Machine) -> Trace:
    """The simulated Trace of a collective over ranks 0 to `ranks` - 1 of `machine`.

    Its elements are bytes, so a chunk is a whole number of them; without bytes nothing is sent. The
    nodes of `hierarchical` are the machine's. Every rank has the lanes send and recv for its port,
    and compute for what it adds.

    On a switch, for p that divides `nbytes`, its makespan is `collective_seconds`, except that

    - parameter_server takes no more: the server adds while the next message arrives;
    - off powers of two tree, reduce and butterfly take no more, as some ranks have less to add, and
      halving_doubling no less: ranks that fold nothing run ahead, and their first message can reach
      a port before a fold and hold it up;
    - hierarchical takes more or less where ranks of a node share its uplink (see its cost).

    ValueError for an algorithm without a pattern, and for more ranks than the machine has.
    """
    if not 1 <= ranks <= machine.ranks:
        raise ValueError(
            f"ranks={ranks!r} do not fit on a machine of {machine.ranks}: use 1 to {machine.ranks}."
        )
    check_counts(0, nbytes=nbytes)
    check_counts(ranks=ranks)
    table = transfers(algorithm, ranks, nbytes, machine)
    messages = Messages(table, ranks, machine)
    messages.play()
    return _trace(messages, f"{algorithm} of {nbytes} bytes", ranks, machine)


def transfers(algorithm: str, ranks: int, nbytes: int, machine: Machine) -> np.ndarray:
    """The pattern as one array. ValueError for an algorithm without one."""
    collecting = gc.isenabled()
    gc.disable()  # it would scan millions of transfers again and again
    try:
        if algorithm == "hierarchical":
            found = hierarchical.all_reduce(ranks, nbytes, _nodes(ranks, machine.topology))
        elif algorithm in PATTERNS:
            found = PATTERNS[algorithm](ranks, nbytes)
        else:
            known = ", ".join([*PATTERNS, "hierarchical"])
            raise ValueError(f"algorithm={algorithm!r} has no pattern: use one of {known}.")
        return np.fromiter(found, _ROW, len(found))
    finally:
        if collecting:
            gc.enable()


@of_numbers
def fewest_elements(algorithm: str, ranks: int, topology: Topology) -> int:
    """The fewest elements that an all-reduce by `algorithm` cuts into chunks of equal length: 1
    where it sends the whole tensor. Played on so few, each standing for a share of the bytes, it
    takes as long as on all of them."""
    check_counts(ranks=ranks)
    if algorithm == "ring":
        return ranks
    if algorithm == "halving_doubling":
        return 1 << (ranks.bit_length() - 1)
    if algorithm == "hierarchical":
        nodes = _nodes(ranks, topology)
        return len(nodes) * min(map(len, nodes))
    return 1


def _nodes(ranks: int, topology: Topology) -> list[list[int]]:
    nodes: dict[int, list[int]] = {}
    for rank in range(ranks):
        nodes.setdefault(topology.node(rank), []).append(rank)
    return list(nodes.values())


class Messages:
    """Columns of all messages, in the pattern's order, and when each was sent, had arrived and was
    received. `seconds`: what a message takes; `sending` and `taking`: how long the two ports are
    busy; `adding`: what adding its bytes takes. A message is not sent before its `leaves`, and not
    received before its `takes` (s).

    Of the shared links that messages cross: `link` their numbers, `crossing` the messages, `busy`
    the seconds, message by message.
    """

    def __init__(
        self,
        table: np.ndarray,
        ranks: int,
        machine: Machine,
        leaves: np.ndarray | None = None,
        takes: np.ndarray | None = None,
    ):
        self.leaves = np.zeros(len(table)) if leaves is None else leaves
        self.takes = np.zeros(len(table)) if takes is None else takes
        topology = machine.topology
        self.ranks, self.links = ranks, len(topology.links)
        self.step, self.src, self.dst, self.offset, self.nbytes = (
            np.ascontiguousarray(table[name]) for name in ("step", "src", "dst", "offset", "count")
        )
        self.op = table["op"].astype(object)
        if self.links:
            pairs, pair = np.unique(self.src * ranks + self.dst, return_inverse=True)
            paths = [topology.path(*divmod(each, ranks)) for each in pairs.tolist()]
        else:  # all pairs of ranks are connected alike
            pair = np.zeros(len(table), np.int64)
            paths = [topology.path(0, min(1, topology.ranks - 1))]
        latency = np.array([path.latency for path in paths])
        bandwidth = np.array([path.bandwidth for path in paths])
        self.seconds = self.sending = self.taking = latency[pair] + self.nbytes / bandwidth[pair]
        if topology.own:
            self.sending, self.taking = self._at_ports(topology.own)
            self.seconds = np.maximum(self.sending, self.taking)
        self.adding = np.where(self.op == "sum", self.nbytes * machine.device.gamma, 0.0)
        self.sent, self.arrived, self.received = np.empty((3, len(table)))

        hops = np.array([len(path.shared) for path in paths], np.int64)
        self.crossing = np.repeat(np.arange(len(table)), hops[pair])
        first = np.cumsum(hops) - hops  # of each path among all paths' links
        begin = np.cumsum(hops[pair]) - hops[pair]  # of each message among all crossings
        at = first[pair][self.crossing] + np.arange(len(self.crossing)) - begin[self.crossing]
        shared = [each for path in paths for each in path.shared]
        self.link = np.array([number for number, _ in shared], np.int64)[at]
        width = np.array([link.bandwidth for _, link in shared])[at]
        self.busy = self.nbytes[self.crossing] / width

    def _at_ports(self, own: Sequence[Link]) -> tuple[np.ndarray, np.ndarray]:
        """How long each message occupies its sender's and its receiver's port."""
        latency = np.array([link.latency for link in own])
        bandwidth = np.array([link.bandwidth for link in own])
        sending, taking = (
            latency[end] + self.nbytes / bandwidth[end] for end in (self.src, self.dst)
        )
        return sending, taking

    def play(self) -> None:
        """Find when each message was sent, had arrived and was received."""
        if not self.play_steps():
            self.play_events()

    def play_steps(self) -> bool:
        """Play each step as a whole. Returns False, without usable times, where it cannot."""
        if any(
            _repeats(step, each)
            for step, each in (
                (self.step, self.src),
                (self.step, self.dst),
                (self.step[self.crossing], self.link),
            )
        ):
            return False
        free, out, into, newest = np.zeros((4, self.ranks))
        link_free, booked = np.zeros((2, self.links))
        ends = np.flatnonzero(np.diff(self.step, append=-1)) + 1
        first = crossed = 0
        for end, beyond in zip(ends, np.searchsorted(self.crossing, ends), strict=True):
            src, dst = self.src[first:end], self.dst[first:end]
            start = np.maximum(np.maximum(free[src], out[src]), self.leaves[first:end])
            if beyond > crossed:
                on, of = self.link[crossed:beyond], self.crossing[crossed:beyond] - first
                ready = start[of]
                if (ready < booked[on]).any():  # an earlier step's message crosses after this one
                    return False
                np.maximum.at(start, of, link_free[on])
                link_free[on], booked[on] = start[of] + self.busy[crossed:beyond], ready
            stamp = start + self.seconds[first:end]
            if (stamp < newest[dst]).any():  # an earlier step's message arrives after this one
                return False
            arrived = np.maximum(stamp, into[dst] + self.taking[first:end])
            out[src] = start + self.sending[first:end]
            newest[dst], into[dst] = stamp, arrived
            received = np.maximum(np.maximum(free[dst], arrived), self.takes[first:end])
            free[dst] = received + self.adding[first:end]
            self.sent[first:end], self.arrived[first:end] = start, arrived
            self.received[first:end] = received
            first, crossed = end, beyond
        return True

    def play_events(self) -> None:
        """Play one event at a time, the earliest first: a message departs, or reaches a port."""
        count, programs = len(self.src), self._programs()
        place = [0] * self.ranks
        free, out, into = ([0.0] * self.ranks for _ in range(3))
        link_free = [0.0] * self.links
        crossings: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for message, number, busy in zip(
            self.crossing.tolist(), self.link.tolist(), self.busy.tolist(), strict=True
        ):
            crossings[message].append((number, busy))
        src, dst = self.src.tolist(), self.dst.tolist()
        seconds, adding = self.seconds.tolist(), self.adding.tolist()
        sending, taking = self.sending.tolist(), self.taking.tolist()
        newest: dict[tuple[int, int], float] = {}  # stamp of a pair's newest message
        leaves, takes = self.leaves.tolist(), self.takes.tolist()
        sent, stamp, arrived, received = ([math.nan] * count for _ in range(4))
        events: list[tuple[int, int]] = []  # moment, message; message + count where it departs
        queues: list[deque[tuple[float, int]]] = [deque() for _ in range(self.ranks)]  # at ports

        def go_out(rank: int) -> None:
            """The first message in a rank's queue reaches its links."""
            ready, message = queues[rank][0]
            heapq.heappush(events, (moment(max(ready, out[rank])), message + count))

        def go_on(rank: int) -> None:
            """Let a rank send what it can and receive what is at its port."""
            program, now = programs[rank], free[rank]
            for at in range(place[rank], len(program)):
                message = program[at]
                if message >= 0:
                    queues[rank].append((max(now, leaves[message]), message))
                    if len(queues[rank]) == 1:
                        go_out(rank)
                elif arrived[~message] == arrived[~message]:
                    received[~message] = max(now, arrived[~message], takes[~message])
                    now = received[~message] + adding[~message]
                else:
                    place[rank], free[rank] = at, now
                    return
            place[rank] = len(program)

        for rank in range(self.ranks):
            go_on(rank)
        while events:
            _, message = heapq.heappop(events)
            if message >= count:
                message -= count
                rank = src[message]
                ready, _ = queues[rank].popleft()
                start = max(ready, out[rank], *(link_free[link] for link, _ in crossings[message]))
                for link, busy in crossings[message]:
                    link_free[link] = start + busy
                sent[message] = start
                out[rank], pair = start + sending[message], (rank, dst[message])
                newest[pair] = max(start + seconds[message], newest.get(pair, 0.0))
                stamp[message] = newest[pair]
                heapq.heappush(events, (moment(stamp[message]), message))
                if queues[rank]:
                    go_out(rank)
            else:
                rank = dst[message]
                into[rank] += taking[message]
                into[rank] = arrived[message] = max(stamp[message], into[rank])
                if programs[rank][place[rank]] == ~message:
                    go_on(rank)
        self.sent[:], self.arrived[:], self.received[:] = sent, arrived, received

    def _programs(self) -> list[list[int]]:
        """What each rank does in turn: m where it sends message m, ~m where it receives it."""
        programs: list[list[int]] = [[] for _ in range(self.ranks)]
        count = len(self.src)
        taking = np.repeat([False, True], count)  # first all sends of a step, then all receives
        rank = np.concatenate([self.src, self.dst]).tolist()
        for at in np.lexsort((taking, np.tile(self.step, 2))).tolist():
            programs[rank[at]].append(at if at < count else ~(at - count))
        return programs


def _repeats(step: np.ndarray, values: np.ndarray) -> bool:
    """Whether a value comes twice in a step."""
    keys = np.sort(step * (values.max(initial=0) + 1) + values)
    return bool((keys[1:] == keys[:-1]).any())


def _trace(messages: Messages, what: str, ranks: int, machine: Machine) -> Trace:
    src, dst = messages.src, messages.dst
    adds = np.flatnonzero(messages.adding)
    flow = np.concatenate([np.arange(len(src)), np.arange(len(src)), adds])
    counts = [len(src), len(src), len(adds)]
    names = [name.format(rank) for name in NAMES for rank in range(ranks)]
    peer = np.concatenate([dst, src, src[adds]])
    start = [messages.sent, messages.arrived - messages.taking, messages.received[adds]]
    end = [
        messages.sent + messages.sending, messages.arrived, start[2] + messages.adding[adds],
    ]  # fmt: skip
    spans = {
        "rank": np.concatenate([src, dst, dst[adds]]),
        "lane": np.repeat(np.array(["send", "recv", "compute"], object), counts),
        "kind": np.repeat(np.array(["send", "recv", "collective"], object), counts),
        "name": np.array(names, object)[peer + ranks * np.repeat([0, 1, 2], counts)],
        "start": np.concatenate(start),
        "end": np.concatenate(end),
        "step": messages.step[flow],
        "nbytes": messages.nbytes[flow],
        "peer": peer,
        "flow": flow,
    }
    del start, end
    columns = ("src", "dst", "nbytes", "offset", "op", "sent", "arrived", "received", "step")
    table = {name: getattr(messages, name) for name in columns}
    meta = {
        "clock": "simulated",
        "ranks": ranks,
        "machine": str(machine),
        "topology": machine.topology.outline,
        "collective": what,
    }
    return Trace(spans, {**table, "count": messages.nbytes}, meta=meta)
