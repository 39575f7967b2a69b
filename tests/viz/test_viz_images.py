"""viz.images: pictures side by side, each pixel where it belongs."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.viz import palette
from dlviz.viz.charts.images import BETWEEN

TRUE = np.arange(12).reshape(2, 3, 2) / 12  # two pictures of 3 x 2 pixels


def drawn(**options):
    return viz.images({"true": TRUE, "read": TRUE[1:].reshape(1, 6)}, size=(3, 2), **options)


def test_each_picture_lies_in_the_row_of_its_name_with_gaps_between():
    figure = drawn()
    z = np.asarray(figure.data[0].z)
    right, below = 2 + BETWEEN, 3 + BETWEEN
    np.testing.assert_allclose(z[:3, :2], TRUE[0], atol=1e-3)
    np.testing.assert_allclose(z[:3, right : right + 2], TRUE[1], atol=1e-3)
    np.testing.assert_allclose(z[below : below + 3, :2], TRUE[1], atol=1e-3)
    assert np.isfinite(z).sum() == 3 * 6, "between pictures are gaps"
    axis = figure.layout.yaxis
    assert [*axis.ticktext] == ["true", "read"] and [*axis.tickvals] == [1, below + 1]
    assert axis.range[0] > axis.range[1] and axis.scaleanchor == "x", "upright, pixels are squares"
    assert figure.layout.height <= 640


def test_a_pixel_of_0_is_white_and_of_1_black_on_every_page():
    for theme in ("auto", "light", "dark"):
        heat = drawn(theme=theme).data[0]
        assert (heat.zmin, heat.zmax) == (0, 1)
        assert heat.colorscale == ((0.0, palette.WHITE), (1.0, palette.BLACK))


def test_a_frame_goes_around_each_picture():
    line = drawn().data[1]
    boxes = [(x, y) for x, y in zip(line.x, line.y, strict=True) if x is not None]
    assert len(boxes) == 3 * 5
    assert boxes[0] == (-0.5, -0.5) and boxes[2] == (1.5, 2.5)


def test_captions_are_below_their_pictures():
    figure = drawn(captions={"read": ["label 7"]})
    (said,) = figure.layout.annotations
    assert (said.text, said.x, said.y) == ("label 7", 0.5, 3 + BETWEEN + 2.5)


def test_a_name_may_have_no_picture():
    figure = viz.images({"true": TRUE, "read": np.zeros((0, 6))}, size=(3, 2))
    assert np.isfinite(np.asarray(figure.data[0].z)).sum() == 12
    assert [*figure.layout.yaxis.ticktext] == ["true", "read"]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({}, {}, "there is no picture to draw"),
        ({"a": np.zeros((0, 64))}, {}, "there is no picture to draw"),
        ({"a": np.zeros((2, 9))}, {}, r"a has values of shape \(2, 9\): give \(n, ...\) with 8"),
        ({"a": np.full((1, 64), np.nan)}, {}, "a has a pixel that is not finite"),
        ({"a": np.zeros((1, 64))}, {"captions": {"a": []}}, "0 captions do not fit the 1 pictures"),
        ({"a": np.zeros((1, 64))}, {"captions": {"b": ["x"]}}, "do not fit the 0 pictures of b"),
    ],
)  # fmt: skip
def test_an_invalid_picture_is_refused(values, options, message):
    with pytest.raises(ValueError, match=message):
        viz.images(values, **options)
