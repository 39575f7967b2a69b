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


def cheapest(seconds: np.ndarray) -> np.ndarray:
    """The row of the smallest value in each column of (algorithms, sizes); of equals the first."""
    return np.argmax(seconds <= seconds.min(axis=0) * (1 + EQUAL), axis=0)
