"""The chart of scaling: its lines are the curves given, its points what the runs took."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import metrics, viz
from dlviz.machine import Link, classroom
from dlviz.sim import Layer, data_parallel, scaling_curves
from dlviz.trace import Trace

LAB = {"compute": 0.12, "nbytes": 1_024_000, "alpha": 5e-3, "beta": 1e-8}
CURVES = scaling_curves(**LAB, buckets=4, overlap=0.5, activations=8e6)
LAYERS = [Layer(f"layer {i}", 0.01, 0.02, 256_000) for i in range(4)]
OVERLAPPED = "strong, 4 buckets overlapped"


def simulated(*ranks, **options):
    link = Link(LAB["alpha"], 1 / LAB["beta"])
    return {n: data_parallel(LAYERS, classroom(n, link=link), **options) for n in ranks}


def lines(figure, axis):
    return {
        line.name: line
        for line in figure.data
        if line.mode == "lines" and (line.yaxis or "y") == axis and line.x[0] is not None
    }


def marks(figure, axis):
    return [
        mark
        for mark in figure.data
        if mark.mode == "markers" and (mark.yaxis or "y") == axis and mark.x[0] is not None
    ]


def paced(steps, late=0.0):
    """A Trace of 2 ranks whose steps last as long by the wall, and a tenth of it by the device."""
    spans, now = [], 0.0
    for number, seconds in enumerate(steps):
        parts = (("forward", 0.0, 0.6), ("collective", 0.6, 0.9), ("update", 0.9, 1.0))
        for kind, begin, end in parts:
            wall = [now + part * seconds for part in (begin, end)]
            spans += [
                {"rank": rank, "lane": "compute", "kind": kind, "step": number,
                 "start": wall[0] / 10, "end": wall[1] / 10,
                 "wall_start": wall[0], "wall_end": wall[1]}
                for rank in range(2)
            ]  # fmt: skip
        now += seconds
    meta = {"clock": "paced", "ranks": 2, "machine": "classroom"}
    return Trace(spans, meta={**meta, "lateness": {"worst": late, "median": 0.0}})


def test_lines_are_the_curves_and_reach_1024_ranks():
    figure = viz.scaling({}, curves=CURVES)
    speedups, ratios, memory = (lines(figure, axis) for axis in ("y", "y2", "y3"))
    for name, curve in CURVES.items():
        assert max(curve.ranks) == 1024
        np.testing.assert_array_equal(speedups[name].y, curve.speedup)
        assert speedups[name].line.dash == ("solid" if curve.buckets == 1 else "dash")
    assert [*ratios] == [*memory] == ["strong", "batch-weak", "model-weak"]
    np.testing.assert_array_equal(ratios["strong"].y, CURVES["strong"].ratio[1:])  # 1 rank: none
    np.testing.assert_array_equal(memory["strong"].y, CURVES["strong"].memory)
    hues = {speedups[name].line.color for name in ("strong", "batch-weak", "model-weak")}
    assert len(hues) == 3
    assert speedups[OVERLAPPED].line.color == ratios["strong"].line.color
    assert figure.layout.height <= 640


def test_simulated_points_lie_on_the_line_of_their_curve():
    runs = simulated(1, 4, 8, overlap=False)
    figure = viz.scaling(runs, curves=CURVES)
    (mark,) = marks(figure, "y")
    at = [CURVES["strong"].ranks.index(n) for n in mark.x]
    assert list(mark.x) == [1, 4, 8]
    np.testing.assert_allclose(mark.y, [CURVES["strong"].speedup[i] for i in at], rtol=1e-9)
    (ratio,) = marks(figure, "y2")
    np.testing.assert_allclose(ratio.y, [CURVES["strong"].ratio[i] for i in at[1:]], rtol=1e-9)
    assert "simulated on 1, 4, 8 ranks." in figure.layout.title.subtitle.text


def test_paced_points_are_the_median_step_by_the_wall_clock_and_say_how_late_they_were():
    runs = {1: paced([0.3, 0.2, 0.2, 0.1]), 2: paced([0.11, 0.9, 0.11, 0.1], late=0.0123)}
    figure = viz.scaling({"batch-weak": runs}, curves=CURVES)
    (mark,), (ratio,) = marks(figure, "y"), marks(figure, "y2")
    assert list(mark.y) == pytest.approx([1.0, 2 * 0.2 / 0.11])  # two batches in a step
    assert list(ratio.y) == pytest.approx([0.5, 0.5])
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "Points of batch-weak: paced on 1, 2 ranks, by the wall clock, up to 12.3 ms" in subtitle


def test_runs_lie_on_the_curve_that_they_are_named_after_with_a_mark_of_its_own():
    runs = {"strong": simulated(1, 2), OVERLAPPED: simulated(1, 2, bucket_bytes=256_000)}
    figure = viz.scaling(runs, curves=CURVES, theme="dark")
    one, other = marks(figure, "y")
    assert one.marker.color == other.marker.color
    assert one.marker.symbol != other.marker.symbol
    assert one.y[1] != other.y[1]


def test_communication_to_computation_counts_the_steps_alone():
    trace = paced([0.2])
    before = [{"rank": 0, "lane": "compute", "kind": "collective", "start": 0.0, "end": 9.0}]
    with_start = Trace([*before, *map(dict, _rows(trace))], meta=trace.meta)
    assert metrics.communication_ratio(trace) == pytest.approx(0.5)
    assert metrics.communication_ratio(with_start) == pytest.approx(0.5)
    assert np.isnan(metrics.communication_ratio(Trace(before, meta=trace.meta)))


def _rows(trace):
    names = ("rank", "lane", "kind", "step", "start", "end")
    columns = [getattr(trace.spans, name).tolist() for name in names]
    return [zip(names, row, strict=True) for row in zip(*columns, strict=True)]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(
        ValueError, match="'strongly' is not a curve: its runs belong to one of 'str"
    ):
        viz.scaling({"strongly": simulated(1)}, curves=CURVES)
    with pytest.raises(
        ValueError, match="the runs are on 2, 4 ranks: a speed-up needs the run on 1 rank"
    ):
        viz.scaling(simulated(4, 2), curves=CURVES)
