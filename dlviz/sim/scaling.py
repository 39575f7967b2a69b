"""What data parallelism comes to on more ranks: the closed form of one step.

    compute           F F F B B B B B B
    communication                 -----     the all-reduce may hide under `overlap` of the compute,
    a step            |<------------->|     what is left of it comes on top

Source: Li et al., "PyTorch Distributed", VLDB 2020, for the overlap; Amdahl 1967 and Gustafson 1988
for the two ways to count.
"""

from __future__ import annotations

from typing import NamedTuple

from dlviz.sim.costs import collective_seconds

WAYS = ("strong", "weak")


class Scaled(NamedTuple):
    """A step on some ranks: its seconds of compute, of communication, and in all; by how much more
    examples go through in a second than on one rank; communication / computation."""

    compute: float
    communication: float
    step: float
    speedup: float
    ratio: float


def scaled(
    ranks: int,
    nbytes: float,
    compute: float,
    alpha: float,
    beta: float,
    overlap: float = 0.0,
    way: str = "strong",
    algorithm: str = "ring",
) -> Scaled:
    """A step of data parallelism on `ranks` ranks, whose gradients are `nbytes` large.

    `compute` is the seconds that one rank takes for a step alone: of a batch that the ranks share
    ("strong") or that each of them has ("weak"). `overlap`, 0 to 1, is the part of a rank's compute
    under which communication can hide; `alpha` in s, `beta` in s/byte. ValueError for values that
    cannot be.
    """
    if way not in WAYS:
        raise ValueError(f"way={way!r} is none: use 'strong' or 'weak'.")
    if not 0 <= overlap <= 1:
        raise ValueError(f"overlap={overlap!r} is no part of the compute: use 0 to 1.")
    if not compute > 0:
        raise ValueError(f"compute={compute!r} s is no time of a step: use more than 0.")
    communication = collective_seconds(algorithm, ranks, nbytes, alpha, beta)
    own = compute / ranks if way == "strong" else compute
    step = own + max(communication - overlap * own, 0.0)
    speedup = compute / step * (1 if way == "strong" else ranks)
    return Scaled(own, communication, step, speedup, communication / own)
