"""What a search finds, and what it may use while it places groups one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlviz.machine.topology import PICOSECONDS
from dlviz.sim.placement.player import Player


@dataclass(frozen=True)
class Found:
    """What a search found: `placement`, its `seconds` as played, the seconds that the method
    `promised`, and the seconds of every sample in order (inf for one that did not fit)."""

    placement: list[int]
    seconds: float
    promised: float
    samples: list[float]


def found(player: Player, placement: Sequence[int], promised: int) -> Found:
    """A method's one placement, with the picoseconds that it promised."""
    seconds = player.seconds(placement)
    return Found([*placement], seconds, promised / PICOSECONDS, [seconds])


class FreeMemory:
    """The bytes that are free on each device while groups are placed one by one."""

    def __init__(self, player: Player):
        self._weights, self._free = player.weights, [*player.devices.room]

    def devices(self, group: int) -> list[int]:
        """Those with room for `group`. Raises ValueError if there is none."""
        weight = self._weights[group]
        fitting = [device for device, free in enumerate(self._free) if weight <= free]
        if not fitting:
            free = max(self._free)
            raise ValueError(
                f"group {group} holds {weight} bytes and no device has more than {free:g} free: "
                f"{weight - free:g} bytes are missing. Give devices more memory, or try another "
                "method."
            )
        return fitting

    def place(self, group: int, device: int) -> None:
        self._free[device] -= self._weights[group]
