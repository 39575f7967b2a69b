"""The figures that the text of labs 09 and 09b states, from their networks and schedules."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
import torch

import dlviz
from dlviz.board.levels import LEVELS
from dlviz.metrics import bubble_ratio, makespan, peak_in_flight, peak_memory
from dlviz.parallel import pipeline
from dlviz.schedules import make
from dlviz.widgets import ScheduleLevels

ROOT = Path(__file__).parents[2]
LABS = {"09": "09_pipelines", "09b": "09b_zero_bubble"}
TEXTS = {
    lab: "\n".join(c.source for c in nbformat.read(ROOT / "labs" / f"{name}.ipynb", 4).cells)
    for lab, name in LABS.items()
}
PAGES = {lab: (ROOT / "docs" / "teaching" / f"{name}.md").read_text() for lab, name in LABS.items()}
PARTS = ("forward", "backward_input", "backward_weight")
TWICE = dlviz.Costs(**dict.fromkeys(PARTS, [1.0, 2.0, 1.0, 1.0]))


def idle(microbatches: int) -> float:
    """Percent of all the time for which four ranks are idle, one of them twice as slow."""
    ratio = bubble_ratio(dlviz.simulate(make("1f1b", 4, microbatches), TWICE))
    return 100 * ratio / (1 + ratio)


FORMULAS = {
    "inference-forwards": makespan(dlviz.simulate(make("inference", 8, 8), dlviz.Costs(1.0))),
    "slow-stage-bubble": idle(128),
}


def test_fewer_stages_have_a_smaller_bubble_and_are_fewer():
    ratio = bubble_ratio(dlviz.simulate(make("gpipe", 4, 8)))
    assert ratio == 3 / 8 and "a bubble ratio of 3/8 instead of 7/8" in TEXTS["09"]
    faster = 4 / (1 + ratio)
    assert f"{faster:.1f} times as fast as one device, not 4.3" in TEXTS["09"]
    assert f"{faster:.2f} times as fast as one device, not 4.27" in PAGES["09"]


def test_the_critical_path_of_gpipe_is_that_of_the_page():
    assert "On ranks 1 to 6 only microbatch 0, forward and backward" in PAGES["09"]
    trace = dlviz.simulate(make("gpipe", 8, 8), dlviz.Costs(1.0))
    spans = trace.spans[dlviz.metrics.critical_path(trace).span]
    path = {rank: spans.microbatch[spans["rank"] == rank].tolist() for rank in range(8)}
    assert path == {0: [0, *range(8)], **{r: [0, 0] for r in range(1, 7)}, 7: [*range(8), 0]}


def test_two_chunks_hold_half_as_many_microbatches_again_and_their_borders():
    model = dlviz.models.MLP((64, *7 * [32], 10))
    linear = [isinstance(layer, torch.nn.Linear) for layer in model]
    data = [tuple(part[:64] for part in dlviz.datasets.digits())]
    found = {}
    for chunks, name, options in ((1, "1f1b", {}), (2, "interleaved", {"chunks": 2})):
        stages = pipeline.split(model, 4 * chunks, linear)
        how = {"schedule": make(name, 4, 8, **options)}
        trace = dlviz.launch(pipeline.train, 4, args=(stages, data), kwargs=how).trace
        found[chunks] = peak_in_flight(trace)[0] / chunks, peak_memory(trace)[0]
    (one, few), (two, many) = found.values()
    assert (one, two) == (4, 5.5) and two / one == 1 + 3 / (4 * 2) == 1.375
    assert "so 5.5 microbatches instead of 4: 1.375 = 1 + (p-1)/(pv)" in TEXTS["09"]
    assert many / two / (few / one) == 1.5 and "1.375 · 1.5 = 2.06" in TEXTS["09"]
    assert f"{many / few:.2f} times, from {few:,} to {many:,}" in PAGES["09"]


def test_all_ranks_of_zb_h1_hold_what_the_first_one_of_1f1b_holds():
    held = {name: peak_in_flight(dlviz.simulate(make(name, 4, 8))) for name in ("1f1b", "zb_h1")}
    assert [*held["1f1b"]] == [4, 3, 2, 1] and [*held["zb_h1"]] == [4, 4, 4, 4]
    assert "1F1B holds 4, 3, 2 and 1, ZB-H1 4 on each: 16 on all four ranks" in PAGES["09b"]


def test_against_a_slow_stage_more_microbatches_help_to_37_and_a_half_percent():
    assert "3/8 = 37.5 %" in TEXTS["09b"]
    assert idle(8) > idle(32) > idle(128) > idle(1024) > 37.5
    assert idle(1024) == pytest.approx(37.5, abs=0.1)


@pytest.mark.parametrize(("lab", "level"), [("09", 3), ("09b", 5)])
def test_a_stored_board_shows_the_forwards_that_fill_rank_0(lab, level):
    start = "0F0,0F1,0F2\n1F0,1F1\n2F0"
    assert f"start = {start!r}".replace("'", '"') in TEXTS[lab]
    board = ScheduleLevels([level], drawings={level: start})
    words = [text.get_text() for axes in board.picture().axes for text in axes.texts]
    assert sorted(words) == ["0", "0", "0", "1", "1", "2"]
    assert LEVELS[level - 1].limit == start.splitlines()[0].count("F") == 3
