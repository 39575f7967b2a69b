"""viz.plans: the best plan of each pipeline length and tensor-parallel degree, and what fits."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import viz
from dlviz.sim import why_none_fits
from dlviz.viz import palette
from dlviz.viz.charts.plans import SLOWEST


def row(dp: int, tp: int, pp: int, seconds: float, memory: float, fits: bool, **more) -> dict:
    plan = {"microbatch": 1, "schedule": "1f1b", "recompute": "none", "bubble": 0.1, "stage": 0}
    return {"dp": dp, "tp": tp, "pp": pp, "seconds": seconds, "memory": memory, "fits": fits,
            "limited_by": "compute", "over": 0.0, **plan, **more}  # fmt: skip


ROWS = [
    row(4, 1, 2, 2.0, 5e9, True, microbatch=2),
    row(4, 1, 2, 1.5, 9e9, False),  # faster, and too large
    row(4, 1, 2, 2.5, 4e9, True),
    row(4, 2, 1, 1.0, 8e9, True),
    row(8, 1, 1, 0.5, 3e10, False),
    row(8, 1, 1, 0.6, 2e10, False, recompute="full"),
    row(1, 2, 4, 40.0, 1e9, True),
]


def test_a_cell_is_the_fastest_plan_that_fits_and_the_smallest_where_none_does():
    found = viz.plans(ROWS).layout.annotations
    words = {(a.x, a.y): a.text for a in found}  # columns tp 1, 2; rows pp 1, 2, 4
    assert words == {
        (0, 1): "2 s<br>dp 4",
        (1, 0): "1 s<br>dp 4",
        (0, 0): "20 GB<br>dp 8",
        (1, 2): "40 s<br>dp 1",
    }


def test_the_tint_grows_with_the_seconds_and_ends_at_the_slowest():
    (heat,) = viz.plans(ROWS).data
    tint = np.asarray(heat.z, dtype=float)
    assert tint.shape == (3, 2) and tint[0, 1] == 0.0 and tint[2, 1] == 1.0
    assert tint[1, 0] == pytest.approx(np.log(2) / np.log(SLOWEST))
    assert np.isnan(tint[0, 0]), "no plan of the cell fits"
    assert np.isnan(tint[2, 0]) and np.isnan(tint[1, 1]), "there is no such plan"


def test_the_best_is_framed_and_named_and_those_that_fit_are_counted():
    figure = viz.plans(ROWS)
    (frame,) = [s for s in figure.layout.shapes if s.line.width == 3]
    assert (round(frame.x0 + frame.x1) / 2, round(frame.y0 + frame.y1) / 2) == (1, 0)
    subtitle = figure.layout.title.subtitle.text
    assert "4 of 7 plans fit" in subtitle
    assert "dp 4, pp 1, tp 2, microbatches of 1, 1F1B" in subtitle


def test_where_nothing_fits_the_smallest_plan_is_named_with_what_it_lacks_and_where():
    """In the bytes and on the stage of the planner's own sentence."""
    rows = [{**each, "fits": False, "over": each["memory"] - 6e8, "stage": 1} for each in ROWS]
    figure = viz.plans(rows)
    assert not [s for s in figure.layout.shapes if s.line.width == 3]
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "0 of 7 plans fit" in subtitle and "best" not in subtitle
    smallest = "The smallest, dp 1, pp 4, tp 2, needs 1 GB on each rank of stage 1: 400 MB too many"
    assert smallest in subtitle
    planner = why_none_fits(rows)
    assert "dp 1, tp 2, pp 4" in planner and "400,000,000 bytes too many" in planner
    assert "on each rank of stage 1" in planner
    alone = [{**each, "pp": 1} for each in rows]
    assert "needs 1 GB on each rank: 400 MB" in viz.plans(alone).layout.title.subtitle.text


def test_the_details_of_a_cell_name_what_limits_it():
    (heat,) = viz.plans(ROWS).data
    words = heat.customdata[1][0]
    assert "dp 4, pp 2, tp 1" in words and "limited by compute; 3 plans" in words
    assert (
        "which does not fit" in heat.customdata[0][0] and "recompute: full" in heat.customdata[0][0]
    )


def test_a_map_of_512_devices_is_no_higher_than_a_notebook_shows_and_of_no_plan_is_refused():
    powers = [2**k for k in range(10)]
    many = [row(512 // t // p, t, p, 1.0 + t, 1e9, True) for t in powers for p in powers
            if t * p <= 512]  # fmt: skip
    assert viz.plans(many).layout.height <= 640
    with pytest.raises(ValueError, match="there is no plan to draw"):
        viz.plans([])


def test_on_paper_cells_frame_and_words_are_those_of_a_page():
    page, figure = viz.plans(ROWS), viz.print.plans(ROWS)
    (axes,) = figure.axes
    words = {text.get_text() for text in axes.texts}
    assert words == {each.text.replace("<br>", "\n") for each in page.layout.annotations}
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array().filled(np.nan), np.asarray(page.data[0].z, float))
    frames = [patch for patch in axes.patches if not patch.get_fill()]
    assert [patch.get_xy() for patch in frames] == [(0.5, -0.5)]
    hatched = [patch.get_xy() for patch in axes.patches if patch.get_hatch()]
    assert hatched == [(-0.5, -0.5)]
    assert palette.THEMES["dark"]["ink"] in [
        text.get_color() for text in viz.print.plans(ROWS, theme="dark").axes[0].texts
    ]
