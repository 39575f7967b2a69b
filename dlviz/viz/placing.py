"""Where labels lie beside their points, so that none covers another; in pixels or in inches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Box = tuple[float, float, float, float]  # left, low, right, high
_TOWARDS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_FAR = (1, 2.5, 4, 6, 9)  # of the gap between a point and its label


def placed(
    points: np.ndarray, sizes: np.ndarray, room: Box, gap: float, taken: Sequence[Box] = ()
) -> np.ndarray:
    """The middles (n, 2) of labels of `sizes` (n, 2) for `points` (n, 2), inside `room`: each as
    near its point as it covers no mark, no label before it and nothing of `taken`; where that can't
    be, it covers as little as it can."""
    marks = [_box(point, np.full(2, 1.4 * gap)) for point in points]
    found, labels = np.zeros((len(points), 2)), [*taken]
    for i, (point, size) in enumerate(zip(points, sizes, strict=True)):
        best = np.inf
        for far in _FAR:
            for towards in _TOWARDS:
                short = 0.7 if all(towards) else 1.0
                middle = point + np.array(towards) * (size / 2 + gap * far * short)
                box = _box(middle, size)
                covered = _outside(box, room) + sum(_common(box, one) for one in (*labels, *marks))
                if far > 1:  # then a line leads to it
                    covered += _crossed(point, middle, [*labels, *marks[:i], *marks[i + 1 :]])
                if covered < best:
                    best, found[i] = covered, middle
            if best == 0:
                break
        labels.append(_box(found[i], size))
    return found


def _box(middle: np.ndarray, size: np.ndarray) -> Box:
    (left, low), (right, high) = (middle - size / 2).tolist(), (middle + size / 2).tolist()
    return left, low, right, high


def _common(one: Box, other: Box) -> float:
    """The area that both cover."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)


def _crossed(point: np.ndarray, middle: np.ndarray, others: list[Box]) -> float:
    """Parts of the line from a point to its label that lie on others' marks and labels."""
    on = (point + share * (middle - point) for share in np.linspace(0.0, 1.0, 12))
    inside = (box[0] <= x <= box[2] and box[1] <= y <= box[3] for x, y in on for box in others)
    return float(sum(inside))


def _outside(box: Box, room: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1]) - _common(box, room)
