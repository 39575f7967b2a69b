"""Messages by gloo, through sockets: the last resort on one host."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import torch

from dlviz.cluster.transport import Transport


class Gloo:
    name = "gloo"
    pieces = reaches = False
    device = None

    def __init__(self, group: Any):
        self._group = group
        self._in_flight: dict[int, Any] = {}  # gloo ends what nobody holds

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        if wire.nbytes:
            with suppress(RuntimeError):  # its receiver has gone: nobody will take it
                self._in_flight[slot] = self._group.send([wire], dst, slot)
        return slot

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        try:
            self._group.recv([target], src, slot).wait()
        except RuntimeError as error:
            raise OSError(str(error)) from None

    def release(self, slot: int) -> None:
        self._in_flight.pop(slot, None)

    def among(self, members: Collection[int]) -> Transport:
        return self
