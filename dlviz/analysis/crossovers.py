"""Which algorithm is the cheapest for a size, and from which size on another is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

EQUAL = 1e-9  # relative: seconds nearer than this are equal


def crossovers(
    nbytes: Sequence[float] | np.ndarray, seconds: Mapping[str, Sequence[float] | np.ndarray]
) -> list[tuple[float, str, str]]:
    """Where the cheapest algorithm changes: (bytes, the one before, the one after), in order.

    Seconds are interpolated linearly between sizes, which is exact for the alpha-beta-gamma model.
    """
    names, lines = list(seconds), np.array([*seconds.values()], dtype=np.float64)
    found: list[tuple[float, str, str]] = []
    if not len(names):
        return found
    best = cheapest(lines)

    def between(low: float, high: float, ends: np.ndarray, a: int, b: int) -> None:
        """The changes from algorithm a at `low` to b at `high`; `ends`: seconds (algorithms, 2)."""
        if a == b:
            return
        gap = ends[a] - ends[b]
        share = float(np.clip(gap[0] / (gap[0] - gap[1]), 0, 1)) if gap[0] != gap[1] else 1.0
        middle = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
        at, c = low + share * (high - low), int(cheapest(middle[:, None])[0])
        if middle[c] >= middle[a] * (1 - EQUAL):
            found.append((at, names[a], names[b]))
            return
        between(low, at, np.stack([ends[:, 0], middle], axis=1), a, c)
        between(at, high, np.stack([middle, ends[:, 1]], axis=1), c, b)

    for i in np.flatnonzero(np.diff(best)).tolist():
        between(float(nbytes[i]), float(nbytes[i + 1]), lines[:, i : i + 2],
                int(best[i]), int(best[i + 1]))  # fmt: skip
    return found


def near_cheapest(
    nbytes: Sequence[float], seconds: Mapping[str, np.ndarray], near: float
) -> list[tuple[float, str]]:
    """Which algorithm to use from which size on, with few changes: costs up to a share `near` above
    the least count as the least. In order, the first from the first size on.

    Of the algorithms near the least at a size, the one that stays near for longest is used; it
    begins where it starts to cost less than the one before.
    """
    names, costs = [*seconds], np.array([*seconds.values()])  # (algorithms, sizes)
    close = costs <= costs.min(axis=0) * (1 + near)
    found: list[tuple[float, str]] = []
    place = 0
    while place < len(nbytes):
        left = close[:, place:]
        stays = np.where(left.all(axis=1), len(nbytes), np.argmin(left, axis=1))
        best = int(np.lexsort((costs[:, place], -stays))[0])
        at = float(nbytes[0])
        if found:
            before = names.index(found[-1][1])
            low = np.flatnonzero(costs[before, :place] <= costs[best, :place])[-1]
            gap = costs[best, low : low + 2] - costs[before, low : low + 2]
            at = nbytes[low] + gap[0] / (gap[0] - gap[1]) * (nbytes[low + 1] - nbytes[low])
        found.append((float(at), names[best]))
        place += int(stays[best])
    return found


def cheapest(seconds: np.ndarray) -> np.ndarray:
    """The row of the smallest value in each column of (algorithms, sizes); of equals the first."""
    return np.argmax(seconds <= seconds.min(axis=0) * (1 + EQUAL), axis=0)
