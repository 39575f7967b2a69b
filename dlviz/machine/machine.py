"""What a paced or simulated run is held to: one kind of device, and how the ranks are joined.

A machine says how long a rank computes (a backward takes twice its forward) and what its messages
cross. `classroom` is the one the labs use: its steps last milliseconds, so that eight ranks on two
cores keep up and a person can see the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlviz.machine.topology import Link, Topology, count, require

FORWARDS = {
    "forward": 1.0,
    "backward": 2.0,
    "backward_input": 1.0,
    "backward_weight": 1.0,
    "update": 1.0,
}
CLASSROOM = Link(latency=0.5e-3, bandwidth=1e9)


@dataclass(frozen=True)
class Device:
    """What a rank computes on: peak FLOP/s, bytes of memory, bytes/s of it, and gamma, the seconds
    that reducing one byte takes."""

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "memory", "memory_bandwidth"):
            require(f"Device {self.name!r}", name, getattr(self, name), zero=False, infinite=False)
        require(f"Device {self.name!r}", "gamma", self.gamma, zero=True, infinite=False)


@dataclass(frozen=True)
class Machine:
    """One device per rank, joined by `topology`; `step` is the seconds that a forward takes."""

    device: Device
    topology: Topology
    step: float = 0.005

    def __post_init__(self) -> None:
        require("Machine", "step", self.step, zero=False, infinite=False)

    @property
    def ranks(self) -> int:
        return self.topology.ranks

    def __str__(self) -> str:
        """One line for a figure: `classroom, 4 ranks on a switch, 5 ms a forward`."""
        step = f"{self.step * 1e3:g} ms a forward"
        return f"{self.device.name}, {self.ranks} ranks {self.topology}, {step}"

    def seconds(self, kind: str) -> float:
        """How long one operation of a compute kind takes, unless its caller says otherwise.

        forward 1, backward 2, backward_input 1, backward_weight 1, update 1 times `step`.
        Raises ValueError for any other kind.
        """
        if kind not in FORWARDS:
            raise ValueError(
                f"a machine has no time for kind={kind!r}: give seconds=, or one of the kinds "
                f"{', '.join(FORWARDS)}."
            )
        return FORWARDS[kind] * self.step


def classroom(ranks: int, *, step: float = 0.005, link: Link = CLASSROOM) -> Machine:
    """`ranks` slow devices on a switch: a forward takes 5 ms, a message 0.5 ms + 1 us per KB.

    `step` is another time for a forward (s), `link` another price of a message. The device's
    figures stand for no real device; 1 KB is 1000 bytes.
    """
    device = Device("classroom", flops=1e9, memory=1e9, memory_bandwidth=1e9)
    return Machine(device, Topology.switch(count("classroom", "ranks", ranks), link), step)
