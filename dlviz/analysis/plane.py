"""The plane that represents vectors of thousands of dimensions with the least loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def projected(updates: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], float]:
    """The updates of each name projected to the plane of their first two right singular vectors,
    (vectors, 2), and the share of their squared length that lies in it. `updates`: (vectors,
    dimensions) each; ValueError where the dimensions differ."""
    found = {name: np.asarray(own, dtype=np.float64) for name, own in updates.items()}
    shapes = {own.shape[1:] for own in found.values()}
    if len(shapes) != 1 or not all(own.ndim == 2 and own.size for own in found.values()):
        summary = ", ".join(str(own.shape) for own in found.values()) or "of none"
        raise ValueError(
            f"updates of the shapes {summary} cannot be drawn: give each name "
            "(clients, parameters), as many parameters for all."
        )
    every = np.concatenate([*found.values()])
    _, lengths, directions = np.linalg.svd(every, full_matrices=False)
    plane = np.zeros((2, every.shape[1]))
    plane[: len(directions[:2])] = directions[:2]  # one update alone lies on a line
    squared = lengths**2
    share = float(squared[:2].sum() / squared.sum()) if squared.sum() else 1.0
    return {name: own @ plane.T for name, own in found.items()}, share
