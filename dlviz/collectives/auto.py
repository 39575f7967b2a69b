"""Which all-reduce is the quickest here: the one that the measured link prices lowest.

A group's link is measured once: ranks 0 and 1 play ping-pong with messages of a few sizes, half of
a round trip is alpha + nbytes * beta, and the line through the measured times is fitted by least
squares of the relative errors. Rank 0 does that and tells the others, so that all choose alike.

    seconds  |            x    slope beta (s/byte)
             |       x
             |  x              where it meets the axis: alpha (s)
             +---------------  bytes

On a paced run it is the device clock that is read, so the line is the Machine's own.

Source: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
Computing, 1994. In PyTorch: what NCCL's tuner and gloo's size thresholds decide.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from dlviz.cluster import Comm
from dlviz.sim import collective_seconds

# hierarchical is none of them: one link does not price it.
CANDIDATES = ("ring", "halving_doubling", "butterfly", "tree", "direct", "parameter_server")
SIZES = (8, 4096, 65_536, 1_048_576)  # bytes of a message that is timed
REPEATS = 5  # round trips of each size, of which the median counts


class LinkCost(NamedTuple):
    """What a message takes: alpha s + beta s/byte; and adding what came: gamma s/byte."""

    alpha: float
    beta: float
    gamma: float


_measured: WeakKeyDictionary[Comm, LinkCost] = WeakKeyDictionary()


def choose(comm: Comm, nbytes: int) -> str:
    """The name of the cheapest all-reduce of `nbytes` on this group. All ranks must call it."""
    if comm.size == 1:
        return CANDIDATES[0]
    link = link_of(comm)
    return min(CANDIDATES, key=lambda name: collective_seconds(name, comm.size, nbytes, *link))


def link_of(comm: Comm) -> LinkCost:
    """What `measure` found, once for each group. All ranks must call it."""
    if comm not in _measured:
        _measured[comm] = measure(comm)
    return _measured[comm]


def measure(comm: Comm) -> LinkCost:
    """Measure the link between ranks 0 and 1, of two or more; every rank returns what rank 0 found.

    Cost: 2 * len(SIZES) * (REPEATS + 1) messages between ranks 0 and 1, and a broadcast.
    """
    found = torch.zeros(3, dtype=torch.float64)
    with comm.span("phase", "measure the link"):
        if comm.rank == 0:
            times = [median(_round_trips(comm, nbytes)) / 2 for nbytes in SIZES]
            found[:] = torch.tensor([*fit(SIZES, times), _seconds_per_byte_added(comm)])
        elif comm.rank == 1:
            for nbytes in SIZES:
                _return(comm, nbytes)
        comm.broadcast(found)
    return LinkCost(*found.tolist())


def fit(sizes: tuple[int, ...], seconds: list[float]) -> tuple[float, float]:
    """alpha and beta of the line through `seconds` over `sizes`, neither below 0."""
    rows = np.stack([np.ones(len(sizes)), np.array(sizes)], axis=1) / np.array(seconds)[:, None]
    alpha, beta = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)[0]
    return max(float(alpha), 0.0), max(float(beta), 0.0)


def _round_trips(comm: Comm, nbytes: int) -> list[float]:
    """Seconds of REPEATS round trips to rank 1, after one that is not counted."""
    ball, now = torch.zeros(nbytes, dtype=torch.uint8), _clock(comm)
    times = []
    for _ in range(REPEATS + 1):
        start = now()
        comm.sendrecv(ball, 1, torch.empty_like(ball), 1)
        times.append(now() - start)
    return times[1:]


def _return(comm: Comm, nbytes: int) -> None:
    ball = torch.zeros(nbytes, dtype=torch.uint8)
    for _ in range(REPEATS + 1):
        comm.recv(ball, 0)
        comm.isend(ball, 0).wait()


def _seconds_per_byte_added(comm: Comm) -> float:
    if comm.process.machine is not None:
        return comm.process.machine.device.gamma
    one, other = torch.ones(2, SIZES[-1] // 4)
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        one.add_(other)
        times.append(perf_counter() - start)
    return median(times) / one.nbytes


def _clock(comm: Comm) -> Callable[[], float]:
    clock = comm.recorder.lane.clock
    return perf_counter if clock is None else lambda: clock.free
