"""The bytes of messages: how they get from one rank's memory into another's.

To add a transport, implement `Transport`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import torch


class Transport(Protocol):
    """`name` is what `dlviz doctor` calls it. `pieces`: a message may be taken piece by
    piece. `reaches`: any memory of another rank may be read, so that a reduction needs no message.
    """

    name: str
    pieces: bool
    reaches: bool

    @property
    def device(self) -> torch.device | None:
        """The GPU whose tensors it sends directly; those of others go through the host."""

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        """Let `dst` take the bytes of `wire`, which `wire_of` has made, until the message is
        completed; returns their address. `slot` is a number that no other message in flight has."""
        ...

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        """Copy what `src` has exposed into `target`, contiguous and on the CPU. OSError if it has
        gone."""
        ...

    def release(self, slot: int) -> None:
        """What was exposed has been taken."""

    def among(self, members: Collection[int]) -> Transport:
        """The transport of collectives of these ranks alone."""
        ...


def wire_of(tensor: torch.Tensor, transport: Transport | None = None) -> Any:
    """The tensor as a transport takes it: contiguous (itself where it is), and on the CPU unless
    the transport takes it where it is."""
    if tensor.is_cpu and tensor.is_contiguous():
        return tensor.detach() if tensor.requires_grad else tensor
    if transport is not None and tensor.device == transport.device and tensor.nbytes:
        return tensor.detach().contiguous()
    return tensor.detach().to("cpu").contiguous()
