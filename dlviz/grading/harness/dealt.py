"""The inputs of a check's ranks, drawn without a seed, and plain copies of their results.

A program can read the frames of its callers. So numbers are drawn by generators that are not
stored, and a rank's process holds nothing from which another rank's numbers could be computed.
Results are plain: they bring no code of the program.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def fresh() -> torch.Generator:
    """A generator with a random seed. Do not store it."""
    return torch.Generator().manual_seed(secrets.randbits(63))


def drawn(*shape: int) -> torch.Tensor:
    """Normal numbers in float64. Draw them before the program runs."""
    return torch.randn(*shape, generator=fresh(), dtype=torch.float64)


class Dealt(Generic[T]):
    """Each rank's share. All ranks get all of them; `take` returns a rank's own and deletes the
    rest."""

    def __init__(self, shares: Sequence[T]):
        self._shares = [*shares]

    def take(self, rank: int) -> T:
        own = self._shares[rank]
        self._shares.clear()
        return own


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy as a plain Tensor, whatever subclass the program made."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().clone().as_subclass(torch.Tensor)
