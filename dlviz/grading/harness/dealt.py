"""What the ranks of a check are given, drawn from no seed, and what is taken from them.

A program can walk the frames of what has called it, and finds there whatever lies in them. So
numbers are drawn by generators that nobody keeps, and the process of a rank holds nothing that
another one's numbers could be worked out from. What is taken is plain: no code of the program's
comes with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def fresh() -> torch.Generator:
    """A generator that begins where no other one does. Draw what is needed, and let it go."""
    return torch.Generator().manual_seed(secrets.randbits(63))


def drawn(*shape: int) -> torch.Tensor:
    """Normal numbers in float64. Draw them before the program runs."""
    return torch.randn(*shape, generator=fresh(), dtype=torch.float64)


class Dealt(Generic[T]):
    """Each rank's share. All ranks get all of them; taking its own, a rank forgets the others'."""

    def __init__(self, shares: Sequence[T]):
        self._shares = [*shares]

    def take(self, rank: int) -> T:
        own = self._shares[rank]
        self._shares.clear()
        return own


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """As a plain Tensor, whatever class of the program's it has."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().clone().as_subclass(torch.Tensor)
