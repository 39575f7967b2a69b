"""What a message costs here: alpha and beta, fitted to a ping-pong between two real ranks.

Half of a round trip with n bytes is alpha + n * beta. The line through the measured times of a few
sizes is fitted by least squares of the relative errors, so that short messages count as much as
long ones. gamma is what adding costs, measured on rank 0.

    seconds  |            x    slope beta (s/byte)
             |       x
             |  x              intercept alpha (s)
             +---------------  bytes

On a paced run it is the device clock that is read, so the line is the Machine's own.

Source: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
Computing, 1994.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from dlviz.cluster.messages.comm import Comm
from dlviz.cluster.parent.launch import launch
from dlviz.counts import check_counts

if TYPE_CHECKING:
    from dlviz.machine import Machine

SIZES = (8, 4096, 65_536, 1_048_576)  # bytes of a message that is timed
FINE = (8, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)  # where there is time for more
SHORTEST = 1e-12  # s that a message takes at least
REPEATS = 5  # round trips of each size, of which the median counts


@dataclass(frozen=True)
class LinkCost:
    """A message takes alpha s + beta s/byte, adding it gamma s/byte.

    `error` is the fit's: the root mean square of its relative distances from the `seconds` that
    messages of `sizes` bytes took.
    """

    alpha: float
    beta: float
    gamma: float
    error: float
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"alpha {self.alpha * 1e6:.3g} µs, beta {self.beta * 1e9:.3g} ns/byte, "
            f"gamma {self.gamma * 1e9:.3g} ns/byte, off by {self.error:.0%}"
        )


def measure_link(machine: Machine | None = None, repeats: int = 25) -> LinkCost:
    """The link between two ranks that are started for it, by the wall clock; or, with a `machine`
    of two ranks or more, its slowest link, by the device clock. `repeats` round trips of each size
    from 8 bytes to 1 MiB."""
    check_counts(repeats=repeats)
    ranks = 2 if machine is None else machine.topology.ranks
    return launch(link_cost, ranks=ranks, machine=machine, args=(FINE, repeats)).results[0]


def link_cost(comm: Comm, sizes: Sequence[int] = SIZES, repeats: int = REPEATS) -> LinkCost:
    """The link between ranks 0 and 1 of a group of two or more, whose ranks all call this and
    return what rank 0 found. If the machine gives ranks links of their own, it is that between rank
    0 and the rank whose link is the slowest.

    Cost: 2 * len(sizes) * (repeats + 1) messages between two ranks, and a broadcast.
    """
    peer = _slowest(comm, sizes[-1])
    found = torch.zeros(1 + len(sizes), dtype=torch.float64)
    with comm.span("phase", "measure the link"):
        if comm.rank == 0:
            times = ping_pong(comm, 0, peer, sizes, repeats)
            times = [seconds_per_byte_added(comm, sizes[-1]), *times]
            found[:] = torch.tensor(times, dtype=torch.float64)
        else:
            ping_pong(comm, 0, peer, sizes, repeats)
        comm.broadcast(found)
    gamma, *times = found.tolist()
    return cost_of(sizes, times, gamma)


def ping_pong(
    comm: Comm, first: int, other: int, sizes: Sequence[int], repeats: int
) -> list[float]:
    """On `first` half of a round trip to `other` and back for messages of each of `sizes` bytes, in
    seconds: the median of `repeats`. These two call it; on `other`, and on any other rank, all
    times are 0."""
    if comm.rank == first:
        return [median(_round_trips(comm, other, nbytes, repeats)) / 2 for nbytes in sizes]
    if comm.rank == other:
        for nbytes in sizes:
            _return(comm, first, nbytes, repeats)
    return [0.0] * len(sizes)


def cost_of(sizes: Sequence[int], seconds: Sequence[float], gamma: float) -> LinkCost:
    """The line through `seconds` that messages of `sizes` bytes took."""
    alpha, beta = fit(sizes, seconds)
    line, times = alpha + beta * np.array(sizes), np.maximum(seconds, SHORTEST)
    error = float(np.sqrt(np.mean((np.maximum(line, SHORTEST) / times - 1) ** 2)))
    return LinkCost(alpha, beta, gamma, error, tuple(sizes), tuple(times.tolist()))


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha and beta of the line through `seconds` over `sizes`, neither below 0. Times below
    SHORTEST, on a free link say, count as SHORTEST."""
    times = np.maximum(np.array(seconds), SHORTEST)
    rows = np.stack([np.ones(len(sizes)), np.array(sizes)], axis=1) / times[:, None]
    alpha, beta = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)[0]
    return max(float(alpha), 0.0), max(float(beta), 0.0)


def _slowest(comm: Comm, nbytes: int) -> int:
    """The rank to which a message from rank 0 takes longest, by the ranks' own links; else 1."""
    if comm.machine is None or comm.machine.topology.own is None:
        return 1
    path, (first, *others) = comm.machine.topology.path, comm.members
    return 1 + max(range(len(others)), key=lambda at: path(first, others[at]).seconds(nbytes))


def _round_trips(comm: Comm, peer: int, nbytes: int, repeats: int) -> list[float]:
    """Seconds of `repeats` round trips to `peer`, after one that is not counted."""
    ball, now = torch.zeros(nbytes, dtype=torch.uint8), comm.recorder.lane.pace.now
    times = []
    for _ in range(repeats + 1):
        start = now()
        comm.sendrecv(ball, peer, torch.empty_like(ball), peer)
        times.append(now() - start)
    return times[1:]


def _return(comm: Comm, peer: int, nbytes: int, repeats: int) -> None:
    ball = torch.zeros(nbytes, dtype=torch.uint8)
    for _ in range(repeats + 1):
        comm.recv(ball, peer)
        comm.isend(ball, peer).wait()


def seconds_per_byte_added(comm: Comm, nbytes: int) -> float:
    """gamma: what adding a byte of a message of `nbytes` takes this rank."""
    if comm.machine is not None:
        return comm.machine.device.gamma
    one, other = torch.ones(2, nbytes // 4)
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        one.add_(other)
        times.append(perf_counter() - start)
    return median(times) / one.nbytes
