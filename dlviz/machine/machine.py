"""The hardware of a paced or simulated run: one kind of device, and the links between the ranks.

A machine says how long a rank computes and which links its messages cross. An operation is priced
by one of two methods:

    step=0.005   a forward takes 5 ms, whatever it computes, and a backward twice as long
    step=None    per example: a layer's FLOPs / Device.flops, an update's bytes / memory_bandwidth

`factors` make ranks slow: each computation of rank r takes factors[r] times as long, always or by
`Chance`. Messages, and adding their payload, keep their price; a list of links, one for each rank,
makes a rank's messages slow. `classroom` is the machine of the labs: its operations last
milliseconds, so that eight ranks on two cores keep up and a person can see the result.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dlviz.counts import check_per_byte
from dlviz.machine.topology import Link, Topology, count, require

FORWARDS = {
    "forward": 1.0,
    "recompute": 1.0,
    "backward": 2.0,
    "backward_input": 1.0,
    "backward_weight": 1.0,
    "update": 1.0,
}
CLASSROOM = Link(latency=0.5e-3, bandwidth=1e9)


@dataclass(frozen=True)
class Device:
    """A rank's device: peak FLOP/s, bytes of memory, its bytes/s, and gamma, the seconds that
    reducing one byte takes."""

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "memory", "memory_bandwidth"):
            require(f"Device {self.name!r}", name, getattr(self, name), zero=False, infinite=False)
        check_per_byte(f"Device {self.name!r}: ", gamma=self.gamma)


@dataclass(frozen=True)
class Chance:
    """An operation takes `factor` times as long with `probability`, drawn anew for each from
    (`seed`, rank, number of the operation): the same in every run, and in the simulator.
    `together`: so many share a draw; with those of one gradient, a whole step is slow or not."""

    probability: float
    factor: float
    seed: int = 0
    together: int = 1

    def __post_init__(self) -> None:
        require("Chance", "probability", self.probability, zero=True, infinite=False)
        if self.probability > 1:
            raise ValueError(f"Chance: probability={self.probability!r} has to be 0 to 1.")
        require("Chance", "factor", self.factor, zero=False, infinite=False)
        count("Chance", "together", self.together)

    def __str__(self) -> str:
        drawn = f", {self.together} operations together" if self.together > 1 else ""
        return f"{self.factor:g}x as long with probability {self.probability:g}{drawn}"

    def draw(self, rank: int, number: int) -> float:
        """How many times as long operation `number` of `rank` takes: `factor` or 1."""
        drawn = random.Random(f"{self.seed} {rank} {number // self.together}").random()
        return float(self.factor) if drawn < self.probability else 1.0


Factors = tuple[float | Chance, ...]


def check_factors(whose: str, factors: Sequence[float | Chance]) -> Factors:
    """`factors` as a tuple. Raises ValueError, in `whose` name, for one that is neither a number
    above 0 nor a Chance."""
    if not isinstance(factors, Sequence) or isinstance(factors, str):
        raise ValueError(
            f"{whose}: factors={factors!r} has to be a list with a number above 0, or a Chance, "
            "for each rank."
        )
    for rank, factor in enumerate(factors):
        if not isinstance(factor, Chance):
            require(whose, f"factors[{rank}]", factor, zero=False, infinite=False)
    return tuple(factors)


def check_length(whose: str, factors: Factors | None, ranks: int) -> None:
    """Raises ValueError unless there is one factor for each rank."""
    if factors is not None and len(factors) != ranks:
        raise ValueError(
            f"{whose}: {len(factors)} factors do not fit {ranks} ranks: give one for each rank, 1 "
            "for a rank that is not slow."
        )


def slowdown(factors: Factors | None, rank: int, number: int) -> float:
    """How many times as long operation `number` (from 0) of `rank` takes."""
    if factors is None:
        return 1.0
    factor = factors[rank]
    return factor.draw(rank, number) if isinstance(factor, Chance) else float(factor)


def slow_ranks(factors: Factors | None) -> list[str]:
    """A figure's words on the slow ranks: `rank 2 takes 3x as long`; ranks with the same factor are
    named together."""
    ranks: dict[str, list[int]] = {}
    for rank, factor in enumerate(factors or ()):
        if factor != 1:
            summary = str(factor) if isinstance(factor, Chance) else f"{factor:g}x as long"
            ranks.setdefault(summary, []).append(rank)
    return [
        f"rank {of[0]} takes {summary}"
        if len(of) == 1
        else f"ranks {', '.join(map(str, of))} take {summary}"
        for summary, of in ranks.items()
    ]


@dataclass(frozen=True)
class Machine:
    """One device per rank, joined by `topology`. `step`: seconds of a forward; with None a layer
    takes its FLOPs on the given examples / `device.flops`. `factors`: for each rank how many times
    as long its computations take, a number above 0 or a Chance.

    Raises ValueError for a step or a factor that is not above 0, and unless there is one factor for
    each rank."""

    device: Device
    topology: Topology
    step: float | None = 0.005
    factors: Factors | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            require("Machine", "step", self.step, zero=False, infinite=False)
        if self.factors is not None:
            object.__setattr__(self, "factors", check_factors("Machine", self.factors))
            check_length("Machine", self.factors, self.ranks)

    @property
    def ranks(self) -> int:
        return self.topology.ranks

    def __str__(self) -> str:
        """One line for a figure: `classroom, 4 ranks on a switch, 5 ms a forward`, or `1 GFLOP/s`
        where operations are priced per example, and which ranks are slow, or their links."""
        size, unit = (1e9, "GFLOP/s") if self.device.flops >= 1e9 else (1e6, "MFLOP/s")
        pace = f"{self.device.flops / size:g} {unit}"
        if self.step is not None:
            pace = f"{self.step * 1e3:g} ms a forward"
        where = f"{self.ranks} ranks {self.topology}"
        odd = [*slow_ranks(self.factors), *self.topology.odd_links]
        return ", ".join([self.device.name, where, pace, *odd])

    def seconds(self, kind: str) -> float:
        """How long one operation of a compute kind takes, unless its caller says otherwise.

        forward 1, backward 2, backward_input 1, backward_weight 1, update 1 times `step`.
        Raises ValueError for any other kind, and where there is no `step`.
        """
        if self.step is None:
            raise ValueError(
                f"a machine with step=None has no time for kind={kind!r}: it prices layers by "
                "their FLOPs. Give seconds= to the operation (costs= to a pipeline), or a step to "
                "the machine."
            )
        if kind not in FORWARDS:
            raise ValueError(
                f"a machine has no time for kind={kind!r}: give seconds=, or one of the kinds "
                f"{', '.join(FORWARDS)}."
            )
        return FORWARDS[kind] * self.step


def classroom(
    ranks: int,
    *,
    step: float | None = 0.005,
    link: Link | Sequence[Link] = CLASSROOM,
    factors: Sequence[float | Chance] | None = None,
) -> Machine:
    """`ranks` slow devices on a switch: a forward takes 5 ms, a message 0.5 ms + 1 us per KB.

    `step`: another time for a forward (s), or None: priced per example at 1 GFLOP/s. `link`:
    another price of a message, or a link for each rank. `factors` makes ranks slow. The device's
    figures are those of no real device; 1 KB is 1000 bytes.
    """
    device = Device("classroom", flops=1e9, memory=1e9, memory_bandwidth=1e9)
    topology = Topology.switch(count("classroom", "ranks", ranks), link)
    return Machine(device, topology, step, factors)  # pyright: ignore[reportArgumentType]
