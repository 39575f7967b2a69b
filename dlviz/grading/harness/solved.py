"""Solve for how often known parts are in a program's result; hints are computed from that."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CLOSE = 1e-6  # tolerance of a solved factor


def solved(seen: torch.Tensor, parts: Sequence[torch.Tensor]) -> list[float] | None:
    """The factors of the parts, by least squares; None if `seen` is no sum of them. All are one
    row."""
    table = torch.stack([*parts], dim=1)  # (numbers, parts)
    if table.shape[1] >= table.shape[0]:  # with so many parts any row is such a sum
        return None
    found = torch.linalg.lstsq(table, seen.double(), driver="gelsd").solution
    if not (table @ found - seen).abs().max() < 1e-7:
        return None
    return [0.0 if abs(each) < CLOSE else each for each in found.tolist()]
