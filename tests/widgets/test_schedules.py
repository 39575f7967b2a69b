"""The explorer of schedules without a browser: traits in, state out."""

from __future__ import annotations

import json
import re

import node
import numpy as np
import pytest
from hand import draw_on
from kernel import ask
from matplotlib.figure import Figure
from timing import attempts

from dlviz import Costs, RankError, metrics, schedules, simulate
from dlviz.viz import palette
from dlviz.widgets import ScheduleExplorer
from dlviz.widgets.schedules.pipelines import FORMULAS, SIZES
from dlviz.widgets.view import styled

CODES = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
HALF = Costs(0.5, None, 0.5, 0.5)


def state(explorer):
    return json.loads(explorer.state)


def settled_later(explorer):
    """What the front end receives once the reader pauses."""
    shown = state(explorer)
    return shown["settled"] and {**shown["chart"], "csv": shown["csv"]}


def spread(values, count):
    return values if isinstance(values, list) else [values] * count


def spans_of(side):
    """(rank, kind, stage, microbatch, start, end) of every span that the front end receives."""
    count = len(side["kind"])
    ranks = [rank for rank, many in enumerate(side["counts"]) for _ in range(many)]
    start, length = (spread(side[name], count) for name in ("start", "length"))
    ends = [a + b for a, b in zip(start, length, strict=True)]
    stage, microbatch = (spread(side[name], count) for name in ("stage", "microbatch"))
    return [*zip(ranks, side["kind"], stage, microbatch, start, ends, strict=True)]


@pytest.mark.parametrize("name", schedules.NAMES)
def test_the_picture_is_the_simulated_schedule(name):
    made = schedules.make(name, 4, 8)
    costs = Costs() if made.chunks == 1 else HALF
    trace = simulate(made, costs)
    (side,) = state(ScheduleExplorer(name))["sides"]
    shown = spans_of(side)
    spans = trace.spans
    assert [span[0] for span in shown] == spans.rank.tolist()
    assert [span[1] for span in shown] == [CODES[kind] for kind in spans.kind]
    assert [span[2] for span in shown] == spans.stage.tolist()
    assert [span[3] for span in shown] == spans.microbatch.tolist()
    np.testing.assert_allclose([span[4] for span in shown], spans.start, atol=1e-6)
    np.testing.assert_allclose([span[5] for span in shown], spans.end, atol=1e-6)
    assert side["makespan"] == pytest.approx(metrics.makespan(trace))
    assert side["ratio"] == pytest.approx(metrics.bubble_ratio(trace))
    assert side["fraction"] == pytest.approx(metrics.bubble_fraction(trace))
    assert side["peak"] == metrics.peak_in_flight(trace).tolist()
    assert side["path"] == metrics.critical_path(trace).span.tolist()
    held = spread(side["held"]["many"], sum(side["held"]["counts"]))
    assert held == trace.memory.nbytes.tolist()


@pytest.mark.parametrize("name", schedules.NAMES)
def test_an_action_starts_when_its_rank_is_free_and_what_it_receives_is_there(name):
    """So `source` and `half`, which the front end explains gaps by, explain every start."""
    (side,) = state(ScheduleExplorer(name, 3, 6, latency=0.25))["sides"]
    shown = spans_of(side)
    source, half = (spread(side[column], len(shown)) for column in ("source", "half"))
    for i, (rank, kind, stage, microbatch, start, _) in enumerate(shown):
        pair = [i] if not half[i] else [i, i + 1] if half[i] == 1 else [i - 1, i]
        before = [shown[j][5] for j in range(i) if shown[j][0] == rank and j not in pair]
        there = [0.0, *before[-1:]]
        for j in pair:
            if source[j] >= 0:
                came = shown[source[j]]
                there.append(came[5] + (0.25 if came[0] != rank else 0.0))
        assert start == pytest.approx(max(there), abs=1e-6)
        if source[i] >= 0:
            came = shown[source[i]]
            assert came[3] == microbatch
            assert came[2] == stage + (-1 if kind == "F" else 1)


def test_chunks_share_the_costs_of_a_rank_so_that_schedules_compare():
    explorer = ScheduleExplorer("interleaved", 4, 8, chunks=4, beside="1f1b")
    first, second = state(explorer)["sides"]
    assert metrics.busy(explorer.trace) == pytest.approx([24.0] * 4)
    assert metrics.busy(ScheduleExplorer("1f1b", 4, 8).trace) == pytest.approx([24.0] * 4)
    assert first["makespan"] == pytest.approx(24 + 3 * 3 / 4)
    assert second["makespan"] == pytest.approx(24 + 3 * 3)


def test_chunks_have_the_shades_of_the_timeline_and_the_first_the_kinds_own():
    (side,) = state(ScheduleExplorer("interleaved_zb", 2, 4, chunks=3))["sides"]
    assert side["chunk"] == [0, 0, 1, 1, 2, 2] and [*side["shades"]] == ["F", "I", "W"]
    for kind, code in CODES.items():
        for chunk, style in enumerate(side["shades"].get(code, [])):
            assert style == styled(palette.shade(palette.style(kind), chunk, 3))
    assert len({style["color"] for style in side["shades"]["F"]}) == 3


@pytest.mark.parametrize("name", [*FORMULAS])
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 3), (3, 6), (4, 8)])
def test_the_formula_beside_the_bubble_is_right(name, ranks, microbatches):
    (side,) = state(ScheduleExplorer(name, ranks, microbatches, forward=2.0, backward=None,
                                     backward_input=2.0, backward_weight=2.0))["sides"]  # fmt: skip
    if side["formula"]:
        assert side["formula"]["ratio"] == pytest.approx(side["ratio"], abs=1e-9)
    else:
        assert name in ("zb_h2", "zbv") and ranks > 1


def test_no_formula_is_shown_where_it_does_not_hold():
    for values in ({"latency": 0.5}, {"slow_stage": 1}):
        assert state(ScheduleExplorer("1f1b", **values))["sides"][0]["formula"] is None
    assert state(ScheduleExplorer("1f1b", backward=5.0))["sides"][0]["formula"]["ratio"] == 3 / 8
    zero_bubble = state(ScheduleExplorer("zb_h1", backward=5.0))["sides"][0]
    assert zero_bubble["formula"]["ratio"] == pytest.approx(zero_bubble["ratio"])


def test_zb_h2_and_zbv_have_no_idle_time_inside_and_say_that_their_paper_counts_so():
    for name in schedules.NAMES:
        (side,) = state(ScheduleExplorer(name, 4, 8))["sides"]
        assert (side["inside"] == 0) == (name in ("zb_h2", "zbv", "inference")), name
        assert ("Qi et al. count" in side["remark"]) == (name in ("zb_h2", "zbv"))


CHANGES = {
    "schedule": "gpipe", "ranks": 3, "microbatches": 6, "forward": 2.0, "backward": 3.0,
    "backward_input": 2.0, "backward_weight": 0.5, "latency": 0.5, "slow_stage": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", [*CHANGES])
def test_a_change_of_a_control_changes_the_picture(name):
    explorer = ScheduleExplorer()
    before = state(explorer)
    setattr(explorer, name, CHANGES[name])
    shown = state(explorer)
    assert shown["error"] == ""
    assert shown["controls"] == {**before["controls"], name: CHANGES[name]}
    first, second = ({**one["sides"][0], "name": ""} for one in (before, shown))
    assert first != second
    assert explorer.trace.meta["ranks"] == shown["sides"][0]["ranks"]


def test_the_slow_stage_takes_its_factor_and_chunks_matter_to_those_that_take_any():
    explorer = ScheduleExplorer("interleaved", slow_stage=1, slow=3.0)
    assert metrics.busy(explorer.trace) == pytest.approx(
        [24, 48, 24, 24]
    )  # of its two stages one takes three times
    explorer.slow = 5.0
    assert metrics.busy(explorer.trace)[1] == pytest.approx(72)
    explorer.chunks = 4
    assert state(explorer)["sides"][0]["chunks"] == 4
    explorer.schedule = "zbv"
    assert state(explorer)["error"] == "" and state(explorer)["sides"][0]["chunks"] == 2


def test_a_second_schedule_stands_beside_the_first_and_its_trouble_in_its_own_place():
    explorer = ScheduleExplorer("1f1b", 4, 8, beside="zb_h1")
    assert [side["name"] for side in state(explorer)["sides"]] == ["1f1b", "zb_h1"]
    explorer.beside = "interleaved"
    explorer.microbatches = 9
    first, second = state(explorer)["sides"]
    assert state(explorer)["error"] == "" and first["microbatches"] == 9
    assert "9" in second["error"] and "\n" not in second["error"]
    explorer.beside = ""
    assert len(state(explorer)["sides"]) == 1


def test_the_bubble_over_m_and_the_csv_follow_when_they_are_asked_for():
    explorer = ScheduleExplorer("1f1b", 4, 6, beside="zb_h1")
    shown = settled_later(explorer)
    assert 6 in shown["over"]
    for name in ("1f1b", "zb_h1"):
        for m, share, closed in zip(shown["over"], shown["lines"][name], shown["formulas"][name],
                                    strict=True):  # fmt: skip
            trace = simulate(schedules.make(name, 4, m))
            assert share == pytest.approx(metrics.bubble_fraction(trace))
            assert closed is None or closed == pytest.approx(share)
    assert shown["formulas"]["1f1b"].count(None) == 0
    explorer.schedule = "gpipe"
    assert not state(explorer)["settled"] and state(explorer)["chart"] is None
    assert ask(explorer, "settle") == {}
    assert [*settled_later(explorer)["lines"]] == ["gpipe", "zb_h1"]
    assert settled_later(explorer)["csv"] == schedules.make("gpipe", 4, 6).to_csv()


def ahead(explorer, name):
    return json.loads(json.dumps(ask(explorer, "ahead", name=name)["ahead"]))


@pytest.mark.parametrize("beside", ["", "zb_h1"])
@pytest.mark.parametrize("name", ["ranks", "microbatches"])
def test_what_is_sent_ahead_is_what_the_kernel_answers(name, beside):
    explorer = ScheduleExplorer("1f1b", 4, 6, beside=beside)
    setattr(explorer, name, 5)
    shown = ahead(explorer, name)
    assert shown["name"] == name and shown["of"][name] is None
    assert [*shown["pictures"]] == ["3", "4", "6", "7"]
    for value, sides in shown["pictures"].items():
        setattr(explorer, name, int(value))
        assert state(explorer)["sides"] == sides
    explorer.ranks = 2
    assert [*ahead(explorer, "ranks")["pictures"]] == ["1", "3", "4"]
    explorer.schedule = "drawn"
    assert ask(explorer, "ahead", name="ranks") == {}


def test_where_a_schedule_is_not_defined_the_chart_has_no_point():
    shown = settled_later(ScheduleExplorer("dualpipev", 4, 16))
    fractions = dict(zip(shown["over"], shown["lines"]["dualpipev"], strict=True))
    assert fractions[4] is None and fractions[16] is not None


WRONG = [
    ({"schedule": "2f2b"}, "schedule='2f2b' is unknown: use one of naive, gpipe, "),
    ({"schedule": []}, r"schedule=\[\] is unknown"),
    ({"beside": "x"}, "beside='x' is unknown: use one of naive, "),
    *[
        ({name: value}, f"{name}={value!r} has to be a whole number, 1 to {most}")
        for name, most in SIZES.items()
        for value in (0, -1, 2.5, "many", True, most + 1)
    ],
    ({"schedule": "interleaved", "chunks": 2, "ranks": 1}, "chunks=2"),
    ({"schedule": "looped_bfs", "chunks": 2, "ranks": 1}, "chunks=2"),
    *[
        (
            {name: value},
            f"{name}={value!r} is not a cost: it must be a number of seconds, 0 or more",
        )
        for name in ("forward", "backward", "backward_input", "backward_weight", "latency")
        for value in (-1.0, float("nan"), "a lot")
    ],
    ({"slow_stage": -1}, "slow_stage=-1 is not a stage"),
    ({"slow_stage": 1.5}, "slow_stage=1.5 is not a stage"),
    ({"slow_stage": 4}, "slow_stage=4 is not a stage: the stages are 0 to 3"),
    ({"slow": 0}, "slow=0 has to be a number above 0"),
    ({"slow": float("nan")}, "slow=nan has to be a number above 0"),
    ({"forward": 0, "backward_input": 0, "backward_weight": 0}, "costs are 0"),
]


@pytest.mark.parametrize(("wrong", "law"), WRONG)
def test_an_invalid_value_shows_an_error_of_one_sentence_and_changes_nothing(wrong, law):
    with pytest.raises(ValueError, match=law):
        ScheduleExplorer(**wrong)
    explorer = ScheduleExplorer()
    before = state(explorer)
    with explorer.hold_trait_notifications():
        for name, value in wrong.items():
            setattr(explorer, name, value)
    shown = state(explorer)
    assert re.search(law, shown["error"]) and "\n" not in shown["error"]
    assert shown["sides"] == before["sides"] and shown["controls"] == before["controls"]
    with explorer.hold_trait_notifications():
        for name in wrong:
            setattr(explorer, name, before["controls"][name])
    assert state(explorer)["error"] == ""
    explorer.ranks = 5
    assert state(explorer)["error"] == "" and state(explorer)["controls"]["ranks"] == 5


def test_a_csv_is_shown_and_goes_out_as_it_came_in():
    text = schedules.make("zb_h1", 3, 4).to_csv()
    explorer = ScheduleExplorer("drawn", csv=text)
    shown = state(explorer)
    assert {name: shown["controls"][name] for name in SIZES} == {
        "ranks": 3, "microbatches": 4, "chunks": 1,
    }  # fmt: skip
    assert settled_later(explorer)["csv"] == text
    assert shown["sides"][0]["ratio"] == pytest.approx(
        state(ScheduleExplorer("zb_h1", 3, 4))["sides"][0]["ratio"]
    )


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("0F0,0B0\n\n2F0,2B0\n", "row 2 .rank 1. has no actions"),
        ("0F0,0X0\n", "'0X0' is not an action"),
        ("0F0,0F0,0B0\n", "0F0 twice"),
        ("0F0,0B0\n0F1,0B1\n", "a stage is on one rank"),
        ("0F0,0B0\n1B0,1F0\n", "rank 0 stops before its 2nd action"),
        (",".join(f"0F{m},0B{m}" for m in range(200)), "takes 128 at most"),
    ],
)
def test_an_invalid_csv_is_refused_in_one_sentence_and_forgotten(text, law):
    explorer = ScheduleExplorer()
    before = state(explorer)
    explorer.csv = text
    shown = state(explorer)
    assert re.search(law, shown["refused"]) and shown["refused"] == shown["error"]
    assert "\n" not in shown["error"] and shown["sides"] == before["sides"]
    explorer.ranks = 3
    assert state(explorer)["error"] == state(explorer)["refused"] == ""
    assert state(explorer)["sides"][0]["name"] == "1f1b"


def drawn_on(explorer, *gestures):
    for gesture in gestures:
        assert draw_on(explorer, **gesture) == {}


def test_what_is_drawn_is_shown_immediately_and_an_empty_grid_says_so():
    explorer = ScheduleExplorer("1f1b", 2, 1)
    explorer.schedule = "drawn"
    (side,) = state(explorer)["sides"]
    assert side["error"].startswith("Nothing is drawn yet")
    explorer.run()
    assert state(explorer)["run"] == {"error": side["error"]}
    drawn_on(explorer, {"do": "place", "action": "0F0", "rank": 0, "slot": 0})
    explorer.run()
    assert "rank 1 never runs 1F0" in state(explorer)["run"]["error"]
    drawn_on(explorer, {"do": "place", "action": "1F0", "rank": 1, "slot": 1})
    (side,) = state(explorer)["sides"]
    assert [(rank, kind) for rank, kind, *_ in spans_of(side)] == [(0, "F"), (1, "F")]
    assert state(explorer)["run"] is None


def test_what_was_drawn_on_another_drawing_than_the_present_one_comes_late():
    explorer = ScheduleExplorer("drawn", csv="0F0,0B0\n1F0,1B0\n")
    before = explorer.board, explorer.state
    step = {"do": "undo", "on": "another", "name": "next"}
    assert ask(explorer, "draw", step=step) == {"late": True}
    assert ask(ScheduleExplorer(), "draw", step=step) == {"late": True}, "no board is shown"
    assert (explorer.board, explorer.state) == before
    explorer.csv = "0F0\n0F1"
    assert ask(explorer, "draw", step={**step, "on": json.loads(before[0])["name"]}) == {}


def test_inference_holds_one_microbatch_in_number_and_strip():
    (side,) = state(ScheduleExplorer("inference", 4, 8))["sides"]
    assert side["peak"] == [1] * 4 and max(side["held"]["many"]) == 1


def test_what_is_shown_is_titled_as_papers_do():
    explorer = ScheduleExplorer("zb_h1", beside="zbv")
    assert [side["title"] for side in state(explorer)["sides"]] == ["ZB-H1", "ZB-V"]
    assert state(explorer)["titles"] == {**schedules.TITLES, "drawn": "your own drawing"}


def test_the_board_has_the_size_and_the_stages_of_what_was_shown_and_follows_the_controls():
    explorer = ScheduleExplorer("zbv", 3, 6)
    explorer.schedule = "drawn"
    board = json.loads(explorer.board)
    assert board["stages"] == [0, 1, 2, 2, 1, 0] and board["microbatches"] == 6
    explorer.microbatches = 4
    assert json.loads(explorer.board)["microbatches"] == 4
    explorer.ranks = 2
    assert json.loads(explorer.board)["ranks"] == 2
    drawn_on(explorer, {"do": "undo"})
    assert explorer.ranks == 3 and state(explorer)["controls"]["ranks"] == 3


def test_other_costs_keep_what_is_drawn_on_the_board_too():
    explorer = ScheduleExplorer("drawn", csv="0F0,0B0\n1F0,1B0\n")
    assert state(explorer)["sides"][0]["makespan"] == 6
    explorer.forward = 2.0
    assert state(explorer)["sides"][0]["makespan"] == 8
    board = json.loads(explorer.board)
    assert [cell["slot"] * board["slot"] for cell in board["cells"]] == [0, 2, 4, 6]


def test_a_drawing_outlasts_a_look_at_another_schedule():
    explorer = ScheduleExplorer("drawn", csv="0F0,0B0\n1F0,1B0\n")
    explorer.schedule = "gpipe"
    explorer.ranks, explorer.forward = 4, 3.0
    explorer.schedule = "drawn"
    assert explorer.ranks == 2 and state(explorer)["sides"][0]["kind"] == "FBFB"
    assert state(explorer)["sides"][0]["makespan"] == 10
    explorer.csv = "0F0,0B0\n"
    assert state(explorer)["sides"][0]["kind"] == "FB" and explorer.csv == ""
    explorer.csv = "0F0,0B0\n1F0,1B0\n"
    assert state(explorer)["sides"][0]["kind"] == "FBFB"


def test_what_goes_wrong_in_a_run_is_shown_in_one_sentence():
    explorer = ScheduleExplorer(ranks=9)
    explorer.run()
    assert state(explorer)["run"] == {"error": "9 ranks are too many to run here: use 8 or fewer."}
    assert explorer.measured is None


def test_a_run_that_fails_shows_an_error_and_what_was_measured_before_is_gone(monkeypatch):
    def fail(*_):
        raise RankError("rank 1 raised ValueError: no\nTraceback ...", rank=1)

    explorer = ScheduleExplorer("gpipe", 2, 2)
    monkeypatch.setattr("dlviz.widgets.schedules.explorer.run", fail)
    before = state(explorer)
    explorer.run()
    shown = state(explorer)
    assert shown["run"]["error"].startswith("rank 1 raised ValueError: no")
    assert "\n" not in shown["run"]["error"] and explorer.measured is None
    assert shown["ran"] == before["ran"] + 1
    assert shown["sides"] == before["sides"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "zbv",
        "pipedream",
        *(pytest.param(n, marks=pytest.mark.sweep) for n in ("1f1b", "inference")),
    ],
)
def test_run_it_measures_trains_and_says_how_far_it_is_from_predicted(name):
    explorer = ScheduleExplorer(name, 3, 6)
    for attempt in attempts():
        explorer.run()
        shown = state(explorer)
        ran, (side,) = shown["run"], shown["sides"]
        assert "error" not in ran, ran["error"]
        with attempt:
            assert ran["seconds"] == pytest.approx(side["makespan"], rel=0.5)
    count = len(side["kind"])
    assert len(ran["start"]) == len(ran["length"]) == count and None not in ran["start"]
    ends = [a + b for a, b in zip(ran["start"], ran["length"], strict=True)]
    assert max(ends) == pytest.approx(ran["seconds"])
    assert ran["ratio"] == pytest.approx(
        metrics.bubble_ratio(explorer.measured.only(step=1), "wall"), rel=1e-6
    )
    headline = node.run("schedules/words.js", "return m.runWords(v[0], v[1], 0);", ran, side)
    assert "Measured" in headline and "predicted" in headline
    words = " ".join(ran["summary"])
    expected = {
        "1f1b": "gradients equal one process's",
        "zbv": "gradients equal one process's",
        "pipedream": "updates after each backward",
        "inference": "equals one process's",
    }
    assert expected[name] in words
    explorer.microbatches = 5
    assert state(explorer)["run"] is None and explorer.measured is None


@pytest.mark.slow
def test_a_second_schedule_keeps_what_was_measured():
    explorer = ScheduleExplorer("gpipe", 2, 2)
    explorer.run()
    explorer.beside = "1f1b"
    assert state(explorer)["run"]["start"] and explorer.measured is not None


def test_a_saved_page_holds_all_that_needs_no_kernel(tmp_path):
    explorer = ScheduleExplorer("interleaved", beside="gpipe")
    explorer.microbatches = 4
    page = explorer.save_html(tmp_path / "explorer.html").read_text()
    assert '"microbatches":4' in page
    saved = explorer.saved_state()
    shown = json.loads(saved["state"])
    assert shown["settled"] and shown["csv"].startswith("0F0,") and 4 in shown["chart"]["over"]
    assert shown["sides"][1]["name"] == "gpipe"


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_its_picture_stands_beside_it(theme):
    explorer = ScheduleExplorer("zb_h1", theme=theme)
    assert isinstance(explorer.picture(), Figure)


def test_an_unknown_theme_is_refused():
    with pytest.raises(ValueError, match="theme='blue' is unknown"):
        ScheduleExplorer(theme="blue")
