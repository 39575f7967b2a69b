"""Vectors of thousands of dimensions in a plane, with their true lengths and angles to their mean.

    away from the mean |        o
                       |     .     o      distance from the start: the vector's length
                       *-----x-- . ---    angle: that between vector and mean
                       |        o

Along: the component along the mean. Away: the length of what is left, on either side by its sign
along the direction in which what is left spreads most (its first right singular vector).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def beside_mean(vectors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """For each name its `vectors` (vectors, dimensions) as (vectors, 2): along their mean and away
    from it. The mean of the first column is the length of the mean. ValueError where there is no
    vector, and where the dimensions differ."""
    found = {name: np.asarray(own, dtype=np.float64) for name, own in vectors.items()}
    shapes = {own.shape[1:] for own in found.values()}
    if len(shapes) != 1 or not all(own.ndim == 2 and own.size for own in found.values()):
        summary = ", ".join(str(own.shape) for own in found.values()) or "of none"
        raise ValueError(
            f"updates of the shapes {summary} cannot be drawn: give each name "
            "(clients, parameters), as many parameters for all."
        )
    return {name: _placed(own) for name, own in found.items()}


def _placed(own: np.ndarray) -> np.ndarray:
    mean = own.mean(0)
    length = np.linalg.norm(mean)
    unit = mean / length if length else mean
    along = own @ unit  # (vectors,)
    rest = own - along[:, None] * unit  # (vectors, dimensions)
    _, _, directions = np.linalg.svd(rest, full_matrices=False)
    side = np.where(rest @ directions[0] < 0, -1.0, 1.0)
    return np.stack([along, side * np.linalg.norm(rest, axis=1)], axis=1)
