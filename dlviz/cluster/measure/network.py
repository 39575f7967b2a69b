"""What the network of a run costs: one link inside a host, and one out of each host, which its
ranks share.

    host 0    0   1      inside    a ping-pong between the first two ranks of each host, of all
              |   |                hosts at the same time
    between   |   |      between   alpha: a ping-pong of short messages between the first ranks of
              |   |                host 0 and of each other host, one after the other
    host 1    2   3                beta: all ranks of a host send to those of the next host at the
                                   same time, first from even hosts, then from odd ones

One pair of ranks need not fill the link of its host, and alone it does not share it. So the rate is
all bytes that a host sends, over the seconds until its slowest rank has received; messages grow
until that takes LONG, or they are of MOST bytes. The first round of a size does not count: it uses
up the burst that a network lets through (a token bucket). Of the others the quickest counts:
whatever else the hosts do can only slow it down. It is what a program gets: of 1 Gbit/s the headers
of frames leave about 95 %. If hosts differ the slowest counts.

Source: R. W. Hockney's ping-pong (link.py); all ranks of a host send at the same time in the
multiple-pair bandwidth test of the OSU micro-benchmarks, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from dlviz.cluster.measure.link import (
    REPEATS,
    SIZES,
    LinkCost,
    cost_of,
    link_cost,
    ping_pong,
    seconds_per_byte_added,
)
from dlviz.cluster.messages.comm import Comm
from dlviz.machine import Device, Link, Machine, Topology

SHORT = SIZES[:3]  # bytes of the messages whose ping-pong gives the alpha between hosts
LEAST, MOST = 1 << 18, 1 << 24  # bytes that each rank sends at the same time as the others
LONG = 0.2  # s that all of them together have to take
ROUNDS = 3  # of which the quickest counts


@dataclass(frozen=True)
class NetworkCost:
    """The link `inside` a host and the one `between` hosts, of which each has one; `ranks` is the
    number on each, None if it differs, or ranks are not numbered host by host."""

    hosts: int
    ranks: int | None
    inside: LinkCost
    between: LinkCost

    @property
    def topology(self) -> Topology:
        """For hosts with equally many ranks."""
        assert self.ranks is not None
        return Topology.racks(self.hosts, self.ranks, _link(self.inside), _link(self.between))

    @property
    def machine(self) -> Machine:
        """One to simulate collectives on; its ranks compute as fast as this one adds."""
        rate = 1 / max(self.inside.gamma, 1e-12)
        device = Device("measured", rate, rate, rate, self.inside.gamma)
        return Machine(device, self.topology)


def measure_network(comm: Comm) -> Topology:
    """The network of these ranks, by the wall clock; all of them must call it, and all return the
    same. On several hosts `Topology.racks`, a rack for each host: `inside` is the link between two
    ranks of a host, `between` the one out of a host, with the bytes/s that all its ranks get
    together. With one rank on each host `inside` is `between`. On one host a `Topology.switch`, on
    a paced run of the machine's own link. `Machine(device, topology)` of it imitates the hosts on
    one.

    ValueError, on all ranks, if hosts have different numbers of ranks, or the group is not numbered
    host by host: racks cannot describe that.

    Cost: each rank sends 1 MB, on a slow network, to 80 MB, on a quick one.
    """
    if comm.size == 1:
        return Topology.switch(1, Link(0.0, math.inf))
    if len(comm.hosts) == 1:
        return Topology.switch(comm.size, _link(link_cost(comm)))
    if ranks_a_host(comm.hosts) is None:
        raise ValueError(
            f"the ranks of {comm.name} are on the hosts {comm.hosts}: a network of racks needs "
            "equally many ranks on each, one after the other. Start equally many on every host, or "
            "call it on a group, split from this one, with equally many of each."
        )
    return network_cost(comm).topology


def network_cost(comm: Comm) -> NetworkCost:
    """What the links of a group on several hosts cost, the same on all ranks, which all call it."""
    with comm.span("phase", "measure the network"):
        inside, short = _ping_pongs(comm)
        sent, seconds = _all_together(comm)
    beta = max(seconds - short.alpha, 0.0) / sent
    between = replace(short, beta=beta)
    ranks = ranks_a_host(comm.hosts)
    return NetworkCost(len(comm.hosts), ranks, inside or between, between)


def ranks_a_host(hosts: Sequence[Sequence[int]]) -> int | None:
    """How many; None unless all have equally many, numbered host by host."""
    each = len(hosts[0])
    in_order = [rank for host in hosts for rank in host] == list(range(each * len(hosts)))
    return each if in_order and all(len(host) == each for host in hosts) else None


def _ping_pongs(comm: Comm) -> tuple[LinkCost | None, LinkCost]:
    """The links of two ranks of a host, None where no host has two, and of two hosts."""
    hosts = comm.hosts
    mine = next(host for host in hosts if comm.rank in host)
    near, far = [0.0] * len(SIZES), [0.0] * len(SHORT)
    if len(mine) > 1:
        near = ping_pong(comm, mine[0], mine[1], SIZES, REPEATS)
    gamma = seconds_per_byte_added(comm, SIZES[-1])
    for other, *_ in hosts[1:]:
        comm.barrier()
        times = ping_pong(comm, hosts[0][0], other, SHORT, REPEATS)
        far = list(map(max, far, times))
    found = torch.tensor([gamma, *near, *far], dtype=torch.float64)
    comm.all_reduce(found, "max")
    gamma, *times = found.tolist()
    inside = cost_of(SIZES, times[: len(SIZES)], gamma) if any(times[: len(SIZES)]) else None
    return inside, cost_of(SHORT, times[len(SIZES) :], gamma)


def _all_together(comm: Comm) -> tuple[int, float]:
    """Bytes that each host sends to the next one, and the seconds that this takes the slowest."""
    hosts = comm.hosts
    pairs = min(map(len, hosts))
    nbytes = LEAST
    while _exchange(comm, hosts, pairs, nbytes) < LONG and nbytes < MOST:
        nbytes *= 2
    return pairs * nbytes, min(_exchange(comm, hosts, pairs, nbytes) for _ in range(ROUNDS))


def _exchange(comm: Comm, hosts: Sequence[Sequence[int]], pairs: int, nbytes: int) -> float:
    """Seconds until the slowest rank has what it gets: first the hosts with an even number send to
    the next one, then the others. In both directions at the same time acknowledgements would queue
    behind data."""
    mine = next(number for number, host in enumerate(hosts) if comm.rank in host)
    place = hosts[mine].index(comm.rank)
    onward, back = (mine + 1) % len(hosts), (mine - 1) % len(hosts)
    ball, came = torch.zeros(2, nbytes, dtype=torch.uint8)
    times = torch.zeros(2, dtype=torch.float64)
    for turn in range(2):
        comm.barrier()
        start = perf_counter()
        if place < pairs and mine % 2 == turn:
            sending = comm.isend(ball, hosts[onward][place])
        if place < pairs and back % 2 == turn:
            comm.recv(came, hosts[back][place])
        if place < pairs and mine % 2 == turn:
            sending.wait()
        times[turn] = perf_counter() - start
    comm.all_reduce(times, "max")
    return times.max().item()


def _link(cost: LinkCost) -> Link:
    return Link(cost.alpha, 1 / cost.beta if cost.beta else math.inf)
