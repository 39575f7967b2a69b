"""What ranks hold: over time by kind, beside a formula, and the first stage that fits."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import annotations_of

from dlviz import viz
from dlviz.analysis.memory import held, held_by_use
from dlviz.schedules import make
from dlviz.sim import simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.words import text

MB = 1_000_000


def row(time, what, nbytes, rank=0):
    return {"rank": rank, "time": time, "what": what, "nbytes": nbytes}


def span(kind, name, start, end):
    return {"rank": 0, "kind": kind, "name": name, "start": start, "end": end}


def step(ranks=1):
    """Two layers forward and back, and an update; the leaked kind is a caller's own."""
    memory = [row(0.0, "leak", 0), row(0.0, "parameters", 4 * MB), row(1.0, "activations", MB),
              row(2.0, "activations", 2 * MB), row(3.0, "activations", 0),
              row(3.0, "gradients", 4 * MB), row(4.0, "leak", MB)]  # fmt: skip
    spans = [span("phase", "step 0", 0.5, 2.5), span("phase", "step 1", 2.5, 4.0),
             span("phase", "inside", 2.6, 3.0), span("forward", "a", 1.0, 1.5),
             span("forward", "b", 1.501, 2.0), span("backward", "b", 2.0, 3.0),
             span("update", "Adam", 3.5, 4.0)]  # fmt: skip
    return Trace(spans=spans, memory=memory, meta={"clock": "paced", "ranks": ranks})


def areas(figure):
    return {one.name: one for one in figure.data if one.type == "scatter"}


def bars(figure):
    return {one.name: one for one in figure.data if one.type == "bar"}


def test_the_stack_is_what_the_rank_held_at_every_change():
    figure = viz.memory_by_kind(step())
    found = areas(figure)
    assert [*found] == ["parameters", "gradients", "activations", "leak"]  # floor first
    assert {one.stackgroup for one in found.values()} == {"held"}
    assert [*found["activations"].x] == [0, 0, 1, 2, 3, 4, 4]
    assert [*found["activations"].y] == [0, 0, 1, 2, 0, 0, 0]
    assert [*found["gradients"].y] == [0, 0, 0, 0, 4, 4, 4]
    total = sum(np.array(one.y) for one in found.values())
    assert total.tolist() == [0, 4, 5, 6, 8, 9, 9]
    assert figure.layout.yaxis.title.text == "held (MB)"
    assert [each.text for each in annotations_of(figure)] == ["peak 9 MB"]
    assert found["parameters"].fillcolor == palette.MEMORY["parameters"].color
    assert found["leak"].fillcolor not in {one.color for one in palette.MEMORY.values()} - {
        palette.BLUE
    }


def test_the_phases_and_passes_lie_below_and_near_spans_of_a_kind_are_one():
    found = bars(viz.memory_by_kind(step()))
    assert [*found] == ["phase", "forward", "backward", "update"]
    assert [*found["phase"].text] == ["step 0", "step 1"]  # not the phase inside
    assert [*found["phase"].base] == [0.5, 2.5] and [*found["phase"].x] == [2.0, 1.5]
    assert [*found["forward"].base] == [1.0] and [*found["forward"].x] == [1.0]
    assert "forward" in found["forward"].customdata[0] and "1 s" in found["forward"].customdata[0]
    assert 0 > found["phase"].y[0] > found["update"].y[0]


def test_a_rank_without_memory_says_so_and_an_unknown_rank_is_refused():
    figure = viz.memory_by_kind(step(ranks=2), rank=1)
    assert "no memory of rank 1 was recorded" in [each.text for each in annotations_of(figure)]
    assert not areas(figure) and not bars(figure)
    viz.memory_by_kind(Trace(meta={"clock": "wall", "ranks": 1}))
    with pytest.raises(ValueError, match="rank=2 is not in this Trace: it has ranks 0, 1."):
        viz.memory_by_kind(step(ranks=2), rank=2)
    with pytest.raises(ValueError, match="theme='pink'"):
        viz.memory_by_kind(step(), theme="pink")


def test_a_simulated_schedule_counts_microbatches():
    figure = viz.memory_by_kind(simulate(make("1f1b", 4, 8)))
    assert figure.layout.yaxis.title.text == "held (microbatches)"
    assert max(areas(figure)["activations"].y) == 4
    assert [each.text for each in annotations_of(figure)] == ["peak 4 microbatches"]


def test_many_changes_are_thinned_to_moments_at_which_most_was_held():
    rng = np.random.default_rng(0)
    rows = [row(i * 1e-3, name, int(rng.integers(MB))) for i in range(20_000) for name in "ab"]
    trace = Trace(memory=rows, meta={"clock": "wall", "ranks": 1})
    time, levels = held_by_use(trace, 0, 100)
    assert len(time) == 100 and {len(level) for level in levels.values()} == {100}
    every, exact = held_by_use(trace, 0)
    (one,) = held(trace)
    np.testing.assert_array_equal(exact["a"] + exact["b"], one.level)
    thinned = levels["a"] + levels["b"]
    assert thinned.max() == one.peak
    pairs = {*zip(exact["a"].tolist(), exact["b"].tolist(), strict=True)}
    assert all(pair in pairs for pair in zip(*(levels[n].tolist() for n in "ab"), strict=True))


HELD = {
    "stage 0": {"parameters": 4 * MB, "optimizer": 8 * MB},
    "stage 1": {"parameters": 4 * MB, "optimizer": 2 * MB, "leak": MB},
}


def test_a_bar_stacks_its_kinds_and_a_mark_is_at_its_formula():
    figure = viz.memory_bars(HELD, formula={"stage 1": 6 * MB})
    found = bars(figure)
    assert [*found] == ["parameters", "optimizer", "leak"] and figure.layout.barmode == "stack"
    assert [*found["optimizer"].y] == [8, 2] and [*found["leak"].y] == [0, 1]
    totals, marks = [one for one in figure.data if one.type == "scatter"]
    assert [*totals.text] == ["12 MB", "7 MB"] and [*totals.y] == [12, 7]
    assert [*marks.x] == ["stage 1"] and [*marks.y] == [6]
    assert marks.customdata[0].endswith("formula 6 MB<br>held 7 MB (+16.7 %)")


def test_bars_named_by_pairs_stand_in_groups():
    held = {("stage 1", f"rank {rank}"): {"parameters": rank * 10} for rank in range(3)}
    figure = viz.memory_bars(held, formula=dict.fromkeys(held, 0))
    assert [[*part] for part in figure.data[0].x] == [
        ["stage 1"] * 3, ["rank 0", "rank 1", "rank 2"],
    ]  # fmt: skip
    assert figure.layout.xaxis.type == "multicategory"
    assert figure.layout.yaxis.title.text == "held (bytes)"


@pytest.mark.parametrize(
    ("held", "formula", "says"),
    [
        ({}, {}, "there is no bar to draw"),
        ({"a": {}, ("b", "c"): {}}, {}, "some names are pairs and others are not"),
        (HELD, {"stage 2": 1}, "the formula of 'stage 2' has no bar"),
        ({"a": {"parameters": -1}}, {}, "a: parameters=-1 has to be a finite number, 0 or more"),
        (HELD, {"stage 0": np.nan}, "stage 0: formula=nan has to be a finite number"),
    ],
)
def test_bars_that_cannot_be_drawn_are_refused(held, formula, says):
    with pytest.raises(ValueError, match=says):
        viz.memory_bars(held, formula=formula)


STAGES = {"stage 0": [[16, 160]] * 2, "stage 3": [[16, 160], [4, 40]]}


def test_a_cell_of_the_map_has_the_first_stage_that_fits():
    figure = viz.memory_map(STAGES, parameters=[1e9, 1e10], ranks=[1, 4], memory=100)
    heat, *key = figure.data
    np.testing.assert_array_equal(heat.z, [[0, 2], [0, 1]])
    assert [series.name for series in key] == ["stage 0", "stage 3", "too large for all"]
    assert heat.customdata[1][1].split("<br>") == [
        "<b>10 B parameters, 4 ranks</b>", "stage 0: 160 bytes", "stage 3: 40 bytes, fits",
    ]  # fmt: skip
    assert heat.customdata[0][0].startswith("<b>1 B parameters, 1 rank</b>")
    assert "100 bytes a rank" in figure.layout.title.text
    exact = viz.memory_map({"all": [[100]]}, parameters=[1], ranks=[1], memory=100).data[0]
    assert exact.z[0][0] == 0  # what is as large as the memory fits


def test_a_map_that_cannot_be_drawn_is_refused():
    sizes = {"parameters": [1e9, 1e10], "ranks": [1, 4]}
    with pytest.raises(ValueError, match=r"the bytes of a have the shape \(1,\)"):
        viz.memory_map({"a": [1]}, memory=1, **sizes)
    with pytest.raises(ValueError, match="memory=-1 has to be a finite number"):
        viz.memory_map(STAGES, memory=-1, **sizes)
    with pytest.raises(ValueError, match="0 stages have no colours"):
        viz.memory_map({}, memory=1, **sizes)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (999, "999"),
        (26_122, "26.1 K"),
        (999_600, "1 M"),
        (7.5e9, "7.5 B"),
        (2e15, "2,000 T"),
    ],
)
def test_numbers_of_parameters_in_few_characters(value, words):
    assert text.count(value) == words
