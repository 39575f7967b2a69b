"""What the server and all clients of a round have to agree on, and what makes it safe."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from dlviz.federated.secure.fixed_point import FixedPoint


@dataclass(frozen=True)
class Terms:
    """The vectors' shape and dtype, how many `clients` were selected, how many have to stay
    (`threshold`), and the fixed point: values up to `clip`, modulo 2^`bits`."""

    shape: tuple[int, ...]
    dtype: str
    clients: int
    threshold: int
    clip: float
    bits: int

    def __str__(self) -> str:
        return (
            f"shape {self.shape}, {self.dtype}, threshold {self.threshold}, clip {self.clip!r}, "
            f"bits {self.bits}"
        )

    @cached_property
    def code(self) -> FixedPoint:
        return FixedPoint(self.clients, self.clip, self.bits)

    @property
    def count(self) -> int:
        """The number of values in a vector."""
        return math.prod(self.shape)

    def check(self) -> None:
        """Raise ValueError for terms under which the sum would be wrong or hide nothing."""
        n, k = self.clients, self.threshold
        if n < 2:
            raise ValueError(
                f"a secure sum of {n} client{'s' * (n != 1)} hides nothing: a sum of one is its "
                "vector; use 2 clients or more, that is 3 ranks."
            )
        use = f"use {n // 2 + 1} to {n}"
        if not isinstance(k, int) or isinstance(k, bool):
            raise ValueError(f"threshold={k!r} is not a number of clients: {use}.")
        if k > n:
            raise ValueError(f"threshold={k} is more than the {n} clients that take part: {use}.")
        if k <= n / 2:
            raise ValueError(
                f"threshold={k} of {n} clients: with half of them the server could tell one half "
                "that a client has dropped out, the other that it has stayed, and get both its "
                f"secrets; {use}."
            )
        self.code.check()

    def enough(self, left: Collection[int], exchange: str) -> None:
        """Raise ValueError, naming who has dropped out, where too few clients are left after an
        exchange."""
        if len(left) < self.threshold:
            gone = [each for each in range(1, self.clients + 1) if each not in left]
            raise ValueError(
                f"{len(left)} of {self.clients} clients are left after the exchange of {exchange}, "
                f"and threshold={self.threshold} have to be: no vector and no sum is known. "
                f"Dropped out: {', '.join(f'client {each}' for each in gone)}."
            )
