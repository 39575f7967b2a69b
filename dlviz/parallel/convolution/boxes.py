"""Boxes: a range of each dim, as what a rank holds, needs and sends is.

one    ((0, 4), (0, 3))      rows 0 to 3, columns 0 to 2
other  ((3, 6), (1, 5))      both have ((3, 4), (1, 3))
"""

from __future__ import annotations

from math import prod

import torch

Range = tuple[int, int]  # from, to (exclusive)
Box = tuple[Range, ...]


def meet(one: Box, other: Box) -> Box | None:
    """What two boxes share; None where that is nothing."""
    both = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return both if all(lo < hi for lo, hi in both) else None


def part(tensor: torch.Tensor, held: Box, box: Box) -> torch.Tensor:
    """`box` of a tensor whose last dims have the elements of `held`."""
    inside = (slice(lo - own, hi - own) for (lo, hi), (own, _) in zip(box, held, strict=True))
    return tensor[(..., *inside)]


def lengths(box: Box) -> tuple[int, ...]:
    return tuple(hi - lo for lo, hi in box)


def area(box: Box) -> int:
    return prod(lengths(box))


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(lo, hi) for lo, hi in box)
