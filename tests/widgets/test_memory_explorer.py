"""The explorer of memory: what it predicts of each stage of ZeRO, and a run beside it."""

from __future__ import annotations

import json

import kernel
import node
import pytest
from timing import changed_within

from dlviz.cluster.memory import KINDS as COUNTED
from dlviz.sim.recompute import best_segments, recompute_peak
from dlviz.sim.zero import largest_model, zero_bytes, zero_traffic
from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets import MemoryExplorer
from dlviz.widgets.memory.parts import KINDS, PARAMETER, STAGES, parameters

STATES = KINDS[:3]


def state(explorer):
    return json.loads(explorer.state)


def held(explorer, stage, *kinds):
    row = state(explorer)["rows"][stage]
    return sum(row["parts"][KINDS.index(kind)] for kind in kinds or KINDS)


def test_a_control_is_answered_immediately_and_loads_no_torch():
    changes = [{"ranks": 64}, {"stage": 3}, {"parameters": 10**10}, {"recompute": True}]
    changed_within(0.05, "widgets.MemoryExplorer()", changes)


def test_its_kinds_are_those_that_are_counted_and_each_has_a_look():
    assert KINDS == COUNTED == tuple(palette.MEMORY)


@pytest.mark.parametrize("precision", PARAMETER)
@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_states_traffic_and_largest_model_are_those_of_the_closed_forms(precision, ranks):
    explorer = MemoryExplorer(10**7, precision=precision, ranks=ranks, microbatches=3)
    count, each = parameters(explorer._now), PARAMETER[precision]
    for stage in STAGES:
        row = state(explorer)["rows"][stage]
        assert held(explorer, stage, *STATES) == pytest.approx(
            zero_bytes(count, ranks, stage, *each)
        )
        assert row["total"] == pytest.approx(held(explorer, stage))
        assert row["units"] == zero_traffic(stage, 3)
        assert row["sent"] == row["units"] * (ranks - 1) / ranks * count * each[0]
        assert row["largest"] == text.count(largest_model(explorer.memory, ranks, stage, *each))
        lines = state(explorer)["lines"]
        at = lines["x"].index(ranks)
        assert lines["y"][stage][at] == pytest.approx(row["total"], rel=1e-3)


def test_the_papers_table_at_seven_and_a_half_billion_parameters():
    explorer = MemoryExplorer(7_500_000_000, precision="bfloat16", ranks=64, memory=32 * 10**9)
    gigabytes = [held(explorer, stage, *STATES) / 1e9 for stage in STAGES]
    assert gigabytes == pytest.approx([120, 31.4, 16.6, 1.875], rel=3e-3)
    largest = [row["largest"] for row in state(explorer)["rows"]]
    assert largest == ["2 B", "7.64 B", "14.4 B", "128 B"]


def test_a_bucket_that_holds_all_gradients_makes_stage_2_as_large_as_stage_1():
    explorer = MemoryExplorer(10**6, layers=16, ranks=4)  # layers of 250 × 250
    layer = 4 * 250 * 250
    assert held(explorer, 1, "communication") == 0
    assert held(explorer, 2, "communication") == 16 * layer
    assert held(explorer, 2) > held(explorer, 1)
    explorer.bucket = 10**4  # less than a layer
    assert held(explorer, 2, "communication") == layer
    assert held(explorer, 3, "communication") == 3 * layer  # one at work, one ahead
    assert held(explorer, 2) < held(explorer, 1)
    explorer.recompute = True
    assert held(explorer, 3, "communication") == (1 + 4) * layer  # those of a segment


def test_recomputed_activations_are_those_of_the_closed_form():
    explorer = MemoryExplorer(10**6, layers=16, rows=64)
    assert held(explorer, 0, "activations") == 16 * 64 * 250 * 4
    explorer.recompute = True
    assert best_segments(16) == 4
    assert held(explorer, 0, "activations") == recompute_peak(16, 4) * 64 * 250 * 4
    explorer.precision = "bfloat16"
    assert held(explorer, 0, "activations") == recompute_peak(16, 4) * 64 * 250 * 2


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "Stage 2 holds 12 MB a rank, 2.02 MB too much; its largest part is parameters (4 MB). "
             "Stage 3 fits."),
        ({"stage": 3}, "Stage 3 holds 9.52 MB a rank; its largest part is communication (4.5 MB). "
                       "It fits into 10 MB, the first stage that does."),
        ({"stage": 3, "bucket": 10**4}, "It fits into 10 MB, as stage 2 does."),
        ({"rows": 2**13}, "No stage fits: recompute them, or take fewer rows in more microb"),
        ({"memory": 4 * 10**6}, "No stage fits: take smaller buckets, or more layers"),
        ({"memory": 10**6, "bucket": 10**4}, "No stage fits: take more ranks, or a smaller model."),
    ],
)  # fmt: skip
def test_it_says_what_limits_and_what_would_fit(values, says):
    assert says in state(MemoryExplorer(**values))["answer"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("stage", 4, "stage=4 is unknown: use one of 0, 1, 2, 3."),
        ("ranks", 0, "ranks=0 has to be a whole number from 1 to 1024."),
        ("parameters", 1.5, "parameters=1.5 has to be a whole number from 1000"),
        ("precision", "float8", "precision='float8' is unknown: use one of float32, bfloat16."),
        ("microbatches", 65, "microbatches=65 has to be a whole number"),
        ("recompute", 1, "recompute=1 is unknown: use one of False, True."),
        ("memory", "much", "memory='much' has to be a whole number"),
        ("bucket", 0, "bucket=0 has to be a whole number from 1"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = MemoryExplorer()
    before = state(explorer)
    assert says in kernel.ask(explorer, "change", values={name: value})["error"]
    assert says in state(explorer)["error"] and state(explorer)["rows"] == before["rows"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before
    with pytest.raises(ValueError):
        MemoryExplorer(**{name: value})


SMALL = {"parameters": 100_000, "layers": 9, "rows": 256, "bucket": 50_000}
RUNS = [
    {"stage": 0, "ranks": 2},
    {"stage": 1, "ranks": 3, "microbatches": 2},
    {"stage": 2, "ranks": 4, "recompute": True},
    {"stage": 3, "ranks": 3, "microbatches": 2},
    {"stage": 2, "ranks": 2, "precision": "bfloat16"},
    {"stage": 3, "ranks": 3, "precision": "bfloat16"},
    {"stage": 3, "ranks": 3, "recompute": True},
]


@pytest.mark.parametrize("values", RUNS, ids=str)
def test_a_run_holds_and_sends_what_is_predicted_and_is_shown_again(values):
    explorer = MemoryExplorer(**SMALL, **values)
    explorer.run()
    run, row = state(explorer)["run"], state(explorer)["rows"][explorer.stage]
    assert run["sent"] == pytest.approx(row["sent"], rel=0.002)
    measured, predicted = (
        dict(zip(KINDS, each, strict=True)) for each in (run["held"], row["parts"])
    )
    layer, rows = 4 * 105**2, 4 * 256 * 105  # bytes of a layer's gradient, and of its output
    rooms = {
        "parameters": 0,
        "gradients": layer,  # until a bucket has it
        "optimizer": predicted["optimizer"] * 2 / 9,  # Adam's temporaries, one parameter at a time
        "activations": 3 * rows,  # of the loss, and casts
    }
    for kind, room in rooms.items():
        least, most = 0.99 * predicted[kind], 1.01 * predicted[kind] + room
        if kind == "activations" and values.get("recompute"):
            least -= rows  # a linear layer needs its input alone, which is the segment's
        assert least <= measured[kind] <= most, (kind, measured[kind] - predicted[kind])
    assert run["peak"] == sum(run["together"]) <= sum(run["held"])
    explorer.memory = 10**9  # a run does not depend on it
    assert state(explorer)["run"] == run
    explorer.rows = 128
    assert state(explorer)["run"] is None and explorer.measured is None
    explorer.rows = 256
    assert state(explorer)["run"] == run
    page = json.loads(explorer.saved_state()["pages"])[0]
    assert page["state"]["run"] == run and page["controls"]["stage"] == explorer.stage


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"ranks": 5}, "4 ranks can be run here: choose as many, or fewer."),
        ({"parameters": 10**7}, "4 M parameters can be run here: choose as many, or fewer."),
        (
            {"stage": 0, "microbatches": 2},
            "Stage 0 can be run here in float32 with one microbatch.",
        ),
        ({"rows": 2**16}, "So many activations cannot be run here: choose fewer rows."),
    ],
)
def test_what_cannot_be_run_here_says_why(values, says):
    explorer = MemoryExplorer(**values)
    assert state(explorer)["long"] == says
    explorer.run()
    assert state(explorer)["run"]["error"] == says


def test_a_saved_page_has_the_other_stages():
    explorer = MemoryExplorer()
    pages = json.loads(explorer.saved_state()["pages"])
    assert [page["controls"]["stage"] for page in pages] == [*STAGES]
    assert pages[3]["state"]["answer"].startswith("Stage 3 holds")


def test_a_bars_parts_lie_end_to_end_and_the_measured_ones_below():
    explorer = MemoryExplorer(stage=1)
    ran = {"held": [1] * 6, "together": [10, 0, 5, 0, 0, 5], "peak": 20}
    code = "return m.partsOf({ ...v[0], run: v[1] }, (value) => value / 1e6);"
    parts = node.run("memory/bars.js", code, state(explorer), ran)
    for stage in STAGES:
        own = [one for one in parts if one["stage"] == stage and one["height"] > 10]
        row = state(explorer)["rows"][stage]
        assert sum(one["width"] for one in own) == pytest.approx(row["total"] / 1e6)
        assert [one["x"] + one["width"] for one in own[:-1]] == pytest.approx(
            [one["x"] for one in own[1:]]
        )
    below = [one for one in parts if one["height"] < 10]
    assert [(one["stage"], one["kind"]) for one in below] == [(1, 0), (1, 2), (1, 5)]
    assert below[0]["words"] == ["measured at the peak: parameters", "10 bytes"]
