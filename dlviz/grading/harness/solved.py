"""How often known parts are in what a program has left: what a hint is computed from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CLOSE = 1e-6  # to a number of times, of one that was solved for


def solved(seen: torch.Tensor, parts: Sequence[torch.Tensor]) -> list[float] | None:
    """The times, by least squares; None where it is no sum of the parts. All are one row."""
    table = torch.stack([*parts], dim=1)  # (numbers, parts)
    if table.shape[1] >= table.shape[0]:  # any row of numbers is a sum of so many
        return None
    found = torch.linalg.lstsq(table, seen.double(), driver="gelsd").solution
    if not (table @ found - seen).abs().max() < 1e-7:
        return None
    return [0.0 if abs(each) < CLOSE else each for each in found.tolist()]
