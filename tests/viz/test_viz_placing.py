"""Labels beside their points: none covers another, a mark, or what is taken."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.viz.placing import placed


def boxes(middles, sizes):
    return [(*(m - s / 2), *(m + s / 2)) for m, s in zip(middles, sizes, strict=True)]


def apart(one, other):
    return min(one[2], other[2]) <= max(one[0], other[0]) or min(one[3], other[3]) <= max(
        one[1], other[1]
    )


@pytest.mark.parametrize("spread", [70, 15, 0])
def test_labels_of_crowded_points_do_not_overlap_and_stay_inside(spread):
    random = np.random.default_rng(5)
    room = (0.0, 0.0, 700.0, 400.0)
    for _ in range(8):
        points = random.normal((350, 200), (spread, spread / 2), (11, 2))
        sizes = np.array([(random.integers(40, 170), 15) for _ in points])
        labels = boxes(placed(points, sizes, room, 9.0), sizes)
        for i, one in enumerate(labels):
            assert all(apart(one, other) for other in labels[:i])
            assert one[0] >= 0 and one[1] >= 0 and one[2] <= 700 and one[3] <= 400
            assert all(apart(one, (x - 6, y - 6, x + 6, y + 6)) for x, y in points)


def test_a_label_without_a_line_is_nearest_to_its_own_point():
    """Of the methods of lab 04, two of which are as fast as a third."""
    points = np.array([(184, 180), (200, 182), (312, 180), (358, 179), (368, 189), (378, 205.0)])
    sizes = np.array([(75, 15), (82, 15), (109, 15), (102, 15), (163, 15), (163, 15.0)])
    found = placed(points, sizes, (0, 0, 700, 400), 11.0)
    for own, (middle, size) in enumerate(zip(found, sizes, strict=True)):
        off = np.maximum(np.abs(points - middle) - size / 2, 0)
        far = np.linalg.norm(off, axis=1)
        assert far.argmin() == own or (off[own] > 1.5 * 11).any(), own


def test_a_label_lies_right_of_its_point_where_there_is_room_and_else_elsewhere():
    size = np.array([[40.0, 10.0]])
    point = np.array([[50.0, 50.0]])
    assert placed(point, size, (0, 0, 200, 100), 5.0).tolist() == [[75.0, 50.0]]
    assert placed(point, size, (0, 0, 80, 100), 5.0).tolist() == [[25.0, 50.0]]
    taken = [(55.0, 0.0, 99.0, 99.0), (0.0, 45.0, 45.0, 55.0)]
    assert placed(point, size, (0, 0, 200, 100), 5.0, taken).tolist() == [[21.25, 63.75]]


def test_a_line_to_a_label_crosses_no_other_mark_and_a_label_close_by_needs_no_line():
    sizes = np.array([[60.0, 10.0]] * 3)
    room = (0.0, 0.0, 400.0, 200.0)
    close = np.array([[200.0, 100.0], [203.0, 100.0], [206.0, 100.0]])
    found = placed(close, sizes, room, 9.0)
    assert (np.abs(found - close) <= sizes / 2 + 9.0).all()
    # around the first there is room far off alone: above, behind the mark of another, or below
    points = np.array([[200.0, 100.0], [200.0, 128.0]])
    taken = [(0.0, 60.0, 400.0, 99.0), (0.0, 101.0, 400.0, 140.0)]
    first, _ = placed(points, sizes[:2], room, 9.0, taken)
    assert first[1] < 60
