"""Values as whole numbers modulo 2^bits: a mask hides a number only if numbers wrap around.

    value      clipped to ±clip, in steps of 2^-fraction, rounded to the nearest
    residue    steps modulo 2^bits, from 0 to 2^bits - 1; of the sum, the upper half is negative

Steps are as fine as n clients' largest sum allows: n · clip · 2^fraction < 2^(bits-1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

COARSEST = 16  # steps are 2^-16 or finer
MOST_BITS = 62  # the sum of 64-bit words has a sign


@dataclass(frozen=True)
class FixedPoint:
    """Values up to `clip` of so many clients, modulo 2^`bits`."""

    clients: int
    clip: float
    bits: int

    def check(self) -> None:
        """Raise ValueError unless the modulus holds the sum of the clients' largest values."""
        if not (isinstance(self.bits, int) and 1 < self.bits <= MOST_BITS):
            raise ValueError(
                f"bits={self.bits!r}: the sum is taken modulo 2^bits; use up to {MOST_BITS} bits."
            )
        if not 0 < self.clip < float("inf"):
            raise ValueError(f"clip={self.clip!r} bounds no value: use a number above 0.")
        if self.fraction < COARSEST:
            steps = self.clients * math.ceil(Fraction(self.clip) * 2**COARSEST)
            wanted, most = steps.bit_length() + 1, self.largest >> COARSEST
            remedies = [f"bits={wanted} or more"] * (wanted <= MOST_BITS)
            remedies += [f"clip={most} or less"] * (most > 0)
            raise ValueError(
                f"{self.clients} clients with values up to clip={self.clip:g} add up to "
                f"{self.clients * self.clip:g}, either sign: in steps of 2^-{COARSEST} that takes "
                f"{wanted} bits, and bits={self.bits}. Use {' or '.join(remedies)}."
            )

    @property
    def largest(self) -> int:
        """The largest number of steps of one client."""
        return (2 ** (self.bits - 1) - 1) // self.clients

    @property
    def fraction(self) -> int:
        """The largest f for which clip · 2^f is at most `largest`."""
        ratio = Fraction(self.largest) / Fraction(self.clip)
        if not ratio:
            return -1
        f = ratio.numerator.bit_length() - ratio.denominator.bit_length()
        return min(f if Fraction(2) ** f <= ratio else f - 1, 1000)

    @property
    def word(self) -> np.dtype:
        """The dtype of a sent residue: 4 bytes up to 32 bits, else 8."""
        return np.dtype("<u4" if self.bits <= 32 else "<u8")

    def reduce(self, words: np.ndarray) -> np.ndarray:
        """Words modulo 2^bits."""
        return words & self.word.type(2**self.bits - 1)

    def encode(self, values: torch.Tensor) -> np.ndarray:
        """The residues of finite values, flat."""
        clipped = values.detach().flatten().double().clamp(-self.clip, self.clip)
        steps = np.rint(clipped.cpu().numpy() * 2.0**self.fraction).astype(np.int64)
        return self.reduce(steps.astype(self.word))

    def decode(self, residues: np.ndarray) -> torch.Tensor:
        """The values of residues, float64."""
        steps = residues.astype(np.int64)
        steps -= steps >> (self.bits - 1) << self.bits
        return torch.from_numpy(steps * 2.0**-self.fraction)
