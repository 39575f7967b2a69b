"""Numbers that only the rank which draws them knows: no seed and no generator is left from which
another rank, or the student's code, could draw them again."""

from __future__ import annotations

import os

import torch


def fresh_seed() -> int:
    """From the operating system, another one at each call."""
    return int.from_bytes(os.urandom(7), "big")


def drawn(*shape: int) -> torch.Tensor:
    """Normal numbers in float64. Call it before the student's code runs."""
    generator = torch.Generator().manual_seed(fresh_seed())
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
