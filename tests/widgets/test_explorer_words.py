"""What all explorers say of controls and runs, in the Node."""

from __future__ import annotations

import json

import node
import pytest

from dlviz.widgets import (
    CollectiveExplorer,
    ConsistencyExplorer,
    FederatedExplorer,
    MeshExplorer,
    PlanExplorer,
    ScheduleExplorer,
    TensorExplorer,
    running,
)

CALLED = {
    "alpha": {"label": "α", "unit": "µs a message", "per": 1e6},
    "node": {"label": "a node"},
    "outputs": {"label": "C_out"},
    "slow_stage": {"label": "slow stage"},
}


def state(explorer):
    return json.loads(explorer.state)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("alpha=1000.0 has to be less.", "α = 1000000000 µs a message has to be less."),
        ("alpha='abc' has to be a number.", "α = “abc” has to be a number."),
        ("node='' has to be a number.", "a node = nothing has to be a number."),
        ("node=0 has to be more.", "a node = 0 has to be more."),
        ("slow_stage=-1 is not a stage.", "slow stage = -1 is not a stage."),
        (
            "outputs=30 (C_out) is odd. Use 2 ranks, or outputs=32.",
            "C_out = 30 is odd. Use 2 ranks, or C_out = 32.",
        ),
        ("backward=None: no control.", "backward=None: no control."),
    ],
)
def test_a_refusal_names_the_control_and_the_value_as_they_were_typed(error, said):
    assert node.run("shared/explorer.js", "return m.asTyped(...v);", error, CALLED) == said


@pytest.mark.parametrize(
    ("Explorer", "control"),
    [
        (CollectiveExplorer, "alpha"),
        (ConsistencyExplorer, "workers"),
        (FederatedExplorer, "epochs"),
        (MeshExplorer, "dp"),
        (PlanExplorer, "devices"),
        (ScheduleExplorer, "ranks"),
        (TensorExplorer, "batch"),
    ],
)
def test_what_is_shown_is_stale_while_a_control_is_refused(Explorer, control):
    explorer = Explorer()

    def stale():
        data = state(explorer)
        typed = {name: getattr(explorer, name) for name in data["controls"]}
        return node.run("shared/explorer.js", "return m.isStale(v[0]);",
                        {"data": data, "controls": typed})  # fmt: skip

    before = getattr(explorer, control)
    assert not stale()
    setattr(explorer, control, "many")
    assert stale()
    setattr(explorer, control, before)
    assert not stale()


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"error": "a rank died"}, "The run failed: a rank died"),
        ({"stopped": "The run was stopped."}, "The run was stopped."),
        ({"late": ""}, "Measured 3 ms, predicted 2 ms (+50.0 %)."),
        ({"late": "Late."}, "Measured 3 ms, predicted 2 ms (+50.0 %). Late."),
    ],
)
def test_a_headline_says_how_far_a_run_is_from_its_prediction_and_that_it_was_late(run, says):
    code = """return m.outcome(v[0], () => [`Measured ${besideWords(3e-3, 2e-3, seconds)}.`]);"""
    also = dict.fromkeys(("besideWords", "seconds"), "shared/numbers.js")
    assert node.run("shared/running.js", code, run, also=also) == says


@pytest.mark.parametrize(
    ("measured", "predicted", "says"),
    [(2.001, 2.0, "2, as predicted"), (0.03, 0.0, "0.03, predicted 0"),
     (2.28, 3.44, "2.28, predicted 3.44 (−33.7 %)")],
)  # fmt: skip
def test_what_was_measured_is_shown_beside_its_prediction(measured, predicted, says):
    code = "return m.besideWords(...v, m.digits);"
    assert node.run("shared/numbers.js", code, measured, predicted) == says


def test_lateness_is_laid_to_other_programs_only_where_each_rank_has_a_core(monkeypatch):
    monkeypatch.setattr(running.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert running.late_words(0.01, 0.01, 8) == ""
    assert running.late_words(0.02, 0.01, 8) == (
        "The run was 20 ms late, since its 8 ranks share 2 cores: run it again, or fewer."
    )
    assert running.late_words(0.02, 0.01, 2, factor=0.1) == (
        "The run was 200 ms late, since other programs slowed it: run it again."
    )


@pytest.mark.parametrize(("memory", "judged"), [(2e6, ""), (3e6, "fits"), (4e6, "")])
def test_a_plan_that_the_limit_judges_otherwise_by_what_was_measured_says_so(memory, judged):
    data = state(PlanExplorer())
    plan = [8, 1, 1, 1, "1f1b", "none"]  # of 3.44 MB
    run = {"seconds": 2.3, "memory": 2.28e6, "bubble": 0.03, "late": "", "summary": ["So."]}
    now = {
        "data": {**data, "runs": [{"plan": plan, "run": run}]},
        "controls": {**data["controls"], "memory": memory, "plan": plan},
    }
    said = node.run("plans/words.js", "return m.ranWords(v[0]);", now)
    assert "2.28 MB, predicted 3.44 MB (−33.6 %)" in said and said.endswith(" So.")
    assert ("By the measurement it fits." in said) == bool(judged)
