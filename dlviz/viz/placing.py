"""Places labels beside their points so that none covers another; in pixels or in inches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

Box = tuple[float, float, float, float]  # left, low, right, high
_TOWARDS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_FAR = (1, 2.5, 4, 6, 9)  # of the gap between a point and its label
_ROUNDS = 3  # from the second on, all other labels have places
_APART = 0.2  # of the gap: no two labels are closer
_STEPS = 40  # places across the room and up it, for a label that cannot be near its point


class _Place(NamedTuple):
    """A place for a label. `covered`: area it hides; `doubt`: how many other points lie closer to
    it, or how many marks and labels its line crosses."""

    covered: float
    doubt: float
    middle: np.ndarray


class _Around(NamedTuple):
    """The surroundings of label number `own`; `labels` are the others and other taken boxes."""

    room: Box
    gap: float
    points: np.ndarray
    labels: list[Box]
    own: int

    def place(self, size: np.ndarray, middle: np.ndarray, line: bool) -> _Place:
        """The label's place around `middle`. With a `line` from its point it may be farther off,
        else its point should be the nearest."""
        wide = _box(middle, size + 2 * _APART * self.gap)
        box, point = _box(middle, size), self.points[self.own]
        marks = [_box(each, np.full(2, 1.4 * self.gap)) for each in self.points]
        covered = _outside(box, self.room) + sum(_common(wide, each) for each in self.labels)
        covered += sum(_common(box, each) for each in marks)
        if line:
            marks.pop(self.own)
            return _Place(covered, _crossed(point, middle, [*self.labels, *marks]), middle)
        away = np.maximum(np.abs(self.points - middle) - size / 2, 0)
        far = np.linalg.norm(away, axis=1)
        return _Place(covered, float((far < far[self.own]).sum()), middle)


def placed(
    points: np.ndarray, sizes: np.ndarray, room: Box, gap: float, taken: Sequence[Box] = ()
) -> np.ndarray:
    """The middles (n, 2) of labels of `sizes` (n, 2) for `points` (n, 2), inside `room`: each as
    near its point as possible, covering no mark, label or `taken` box, and no nearer to another
    point; where that is impossible, it covers as little as possible."""
    middles = np.full((len(points), 2), np.nan)
    for _ in range(_ROUNDS):
        for i, (point, size) in enumerate(zip(points, sizes, strict=True)):
            there = np.isfinite(middles[:, 0]) & (np.arange(len(points)) != i)
            labels = [_box(*each) for each in zip(middles[there], sizes[there], strict=True)]
            around = _Around(room, gap, points, [*labels, *taken], i)
            best = _best(
                around.place(size, point + np.array(towards) * _off(size, gap * far, towards),
                             line=far > 1)
                for far in _FAR
                for towards in _TOWARDS
            )  # fmt: skip
            if best.covered:
                anywhere = (around.place(size, each, line=True) for each in _all(point, size, room))
                best = min(best, _best(anywhere), key=lambda each: each[:2])
            middles[i] = best.middle
    return middles


def _best(places: Iterable[_Place]) -> _Place:
    """The first perfect place, or the best."""
    best = None
    for place in places:
        if best is None or place[:2] < best[:2]:
            best = place
        if best[:2] == (0, 0):
            break
    assert best is not None
    return best


def _off(size: np.ndarray, gap: float, towards: tuple[int, int]) -> np.ndarray:
    return size / 2 + gap * (0.7 if all(towards) else 1.0)


def _all(point: np.ndarray, size: np.ndarray, room: Box) -> np.ndarray:
    """Places all over the room, the nearest first."""
    low, high = np.array(room[:2]) + size / 2, np.array(room[2:]) - size / 2
    across, up = np.linspace(low, high, _STEPS).T
    places = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
    return places[np.argsort(np.linalg.norm(places - point, axis=1), kind="stable")]


def _box(middle: np.ndarray, size: np.ndarray) -> Box:
    (left, low), (right, high) = (middle - size / 2).tolist(), (middle + size / 2).tolist()
    return left, low, right, high


def _common(one: Box, other: Box) -> float:
    """The area that both cover."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)


def _crossed(point: np.ndarray, middle: np.ndarray, others: list[Box]) -> float:
    """How much of the line from a point to its label lies on other marks and labels."""
    on = (point + share * (middle - point) for share in np.linspace(0.0, 1.0, 12))
    inside = (box[0] <= x <= box[2] and box[1] <= y <= box[3] for x, y in on for box in others)
    return float(sum(inside))


def _outside(box: Box, room: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1]) - _common(box, room)
