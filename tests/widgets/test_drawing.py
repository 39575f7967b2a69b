"""The drawing board without a browser: gestures in, state out; and the geometry, in Node."""

from __future__ import annotations

import json
import re

import node
import pytest
from hand import Hand, at, blank, drawing_of, put, there
from kernel import MODEL

from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.levels import LEVELS
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, TITLES, Schedule, make, parse
from dlviz.sim import Costs
from dlviz.viz import palette
from dlviz.widgets import ScheduleExplorer
from dlviz.widgets.schedules.drawing import ShadedBoard
from dlviz.widgets.view import styled

ROOM = 168  # pixels of the rows


def test_each_gesture_has_its_effect_and_undo_takes_each_back():
    hand = Hand(blank())
    start = hand.state
    seen = [there(hand.place("0F0", 0, 0)), there(hand.place("1F0", 1, 4))]
    assert seen[-1] == [("0F0", 0, 0), ("1F0", 1, 4)]
    moved = {"from": at("1F0", 1, 4), "rank": 1, "slot": 2}
    assert there(hand("move", **moved)) == [("0F0", 0, 0), ("1F0", 1, 2)]
    assert there(hand("tighten")) == [("0F0", 0, 0), ("1F0", 1, 1)]
    assert there(hand("remove", **{"from": at("0F0", 0, 0)})) == [("1F0", 1, 1)]
    assert there(hand("reset")) == []
    assert len(there(hand("known", name="gpipe"))) == 12
    assert there(hand("csv", text="0F0\n1F0")) == [("0F0", 0, 0), ("1F0", 1, 1)]
    assert hand("set", backward="split")["kinds"] == "FIW"
    assert hand("set", limit=2)["limit"] == 2
    assert hand("set", overlaps=True)["overlaps"] is True
    assert hand.state["undo"] == 11
    for left in range(10, -1, -1):
        assert hand("undo")["undo"] == left
    assert {**hand.state, "redo": 0} == start
    for _ in range(11):
        state = hand("redo")
    assert state["redo"] == 0 and there(state) == [("0F0", 0, 0), ("1F0", 1, 1)]


@pytest.mark.parametrize(
    "gesture, words",
    [
        ({"do": "place", **at("frog", 0, 0)}, "'frog' is not an action"),
        ({"do": "place", **at("7F0", 0, 0)}, "the stages are 0 to 1"),
        ({"do": "place", **at("0F0", 0, -3)}, "off the grid"),
        ({"do": "remove", "from": at("0F1", 0, 9)}, "cannot be removed"),
        ({"do": "known", "name": "zbv"}, "'zbv' is not defined"),
        ({"do": "csv", "text": "0F0,0F0\n1F0"}, "twice"),
        ({"do": "set", "limit": 0}, "limit=0"),
        ({"do": "set", "limit": None, "backward": "both"}, "backward='both'"),
    ],
)
def test_what_cannot_be_done_shows_an_error_and_changes_nothing(gesture, words):
    hand = Hand(blank())
    before = there(hand.place("0F0", 0, 0))
    state = hand(gesture.pop("do"), **gesture)
    assert words in state["said"] and there(state) == before and state["undo"] == 1
    assert hand("undo")["said"] == ""


def test_the_verdict_says_what_is_missing_or_what_it_comes_to():
    hand = Hand(blank(4, 8))
    assert "0F0 can come next, on rank 0 at slot 0" in hand.state["verdict"]
    one = hand.place("0F0", 0, 0)["verdict"]
    assert one.startswith("1 action is drawn, no rule is broken, 63 to go. 0F1 can come next")
    whole = hand("known", name="1f1b")
    assert whole["verdict"] == (
        "Complete and legal. This is 1F1B or PipeDream. No known schedule is shorter."
    )
    assert whole["score"] == {
        "slots": 33, "ratio": 0.375, "fraction": 3 / 11, "peak": [4, 3, 2, 1], "inside": 9,
    }  # fmt: skip
    worse = hand("known", name="naive")
    longer = "The drawing is longer than the best known schedule, 1F1B with 33 slots."
    assert longer in worse["verdict"]
    assert worse["best"] == "1f1b" and worse["beaten"] is False


def test_advice_names_a_move_what_another_costs_and_how_it_was_found():
    hand = Hand(blank(2, 2, backward="split"))
    for cell in (("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 1, 2), ("0F1", 0, 1), ("0I0", 0, 3)):
        hand.place(*cell)
    advice = hand("advise")["advice"]
    assert advice["move"] == at("1F1", 1, 3)
    assert advice["words"] == (
        "A good move is 1F1 on rank 1 at slot 3. The schedule can then end at slot 7. 1W0 instead "
        "costs 1 slot. Estimated by completing the schedule greedily; not proven optimal."
    )
    assert hand.place("1F1", 1, 3)["advice"] is None
    hand.place("1F1", 1, 3)
    hand.place("1W1", 1, 0)
    assert hand("advise")["advice"]["words"] == "First mend the broken rule."


@pytest.mark.parametrize("name", NAMES)
def test_a_known_schedule_is_drawn_with_all_that_it_is_made_of_on_offer(name):
    schedule = make(name, 2, 4)
    pipeline = Pipeline(schedule.stage_rank, 4, Costs(), "none" if name == "inference" else "whole")
    state = Hand(Drawing(pipeline))("known", name=name)
    assert state["complete"] and TITLES[name] in state["names"] and state["said"] == ""
    kinds = {part["kind"] for cell in state["cells"] for part in cell["parts"]}
    assert kinds <= {*state["kinds"]} and state["overlaps"] == (name == "dualpipev")


def test_the_largest_board_is_answered_in_time_and_in_one_text():
    hand = Hand(drawn(make("interleaved_zb", 8, 16), Costs()))
    assert len(hand.state["cells"]) == len(hand.board.state()["cells"]) == 768
    assert len(json.dumps(hand.board.state())) < 40_000


# Geometry, in Node


def listed(state, width=800, ghosts=True):
    code = """const layout = m.layoutOf(v[0], v[1], v[2]);
    return { layout, list: m.drawList(v[0], layout, v[3]) };"""
    found = node.run("board/geometry.js", code, state, width, ROOM, ghosts)
    return found["layout"], found["list"]


def overlap(one, other):
    apart = (
        one["x"] + one["width"] <= other["x"] + 1e-6
        or other["x"] + other["width"] <= one["x"] + 1e-6
        or one["y"] + one["height"] <= other["y"] + 1e-6
        or other["y"] + other["height"] <= one["y"] + 1e-6
    )
    return not apart


@pytest.mark.parametrize("name, size", [("1f1b", (4, 8)), ("zbv", (8, 16)), ("dualpipev", (2, 4))])
def test_cells_lie_at_their_rank_and_slot_and_ghosts_and_idle_beside_them(name, size):
    drawing = drawn(make(name, *size), Costs())
    part = Drawing(drawing.pipeline, drawing.placed[: 2 * len(drawing.placed) // 3])
    state = Hand(part).state
    layout, shown = listed(state)
    slot, rows = layout["slot"], shown["rows"]
    assert len(shown["cells"]) == len(part.placed)
    for cell in shown["cells"]:
        own = cell["cell"]
        assert cell["x"] == pytest.approx(own["slot"] * slot)
        assert cell["width"] == pytest.approx(own["slots"] * slot)
        assert cell["y"] == rows[own["rank"]]["y"] and not cell["faulty"]
        assert len(cell["parts"]) == len(own["parts"])
        assert sum(half["height"] for half in cell["parts"]) == pytest.approx(cell["height"])
    boxes = [*shown["cells"], *shown["ghosts"]["shown"]]
    for number, one in enumerate(boxes):
        assert not any(overlap(one, other) for other in boxes[:number])
    for idle in shown["idle"]:
        assert not any(overlap(idle, cell) for cell in shown["cells"])
    leads = [ghost for ghost in state["ghosts"] if ghost["lead"]]
    hidden = sum(one["count"] for one in shown["ghosts"]["more"])
    assert len(shown["ghosts"]["shown"]) + hidden == len(leads) and leads


def test_a_ghost_lies_where_the_action_could_start_first_and_no_ghost_without_being_asked():
    state = Hand(blank()).place("0F0", 0, 0)
    layout, shown = listed(state)
    ghosts = {one["ghost"]["action"]: one for one in shown["ghosts"]["shown"]}
    assert {*ghosts} == {"0F1", "1F0"}
    assert ghosts["1F0"]["x"] == pytest.approx(layout["slot"])
    assert ghosts["1F0"]["y"] == shown["rows"][1]["y"]
    _, without = listed(state, ghosts=False)
    assert without["ghosts"]["shown"] == []


def test_what_breaks_a_rule_stands_out_of_its_row_in_front_of_what_it_hides():
    hand = Hand(blank())
    hand.place("0F1", 0, 0)
    state = hand.place("0F0", 0, 0)
    _, shown = listed(state)
    last = shown["cells"][-1]
    assert last["faulty"] and last["cell"]["action"] == "0F0"
    assert last["y"] > shown["rows"][0]["y"]
    point = {"x": last["x"] + 5, "y": last["y"] + 5}
    code = """const list = m.drawList(v[0], m.layoutOf(v[0], 800, v[3]), true);
    return [m.hit(list, v[1].x, v[1].y), m.hit(list, v[1].x, v[2])];"""
    upper = shown["rows"][0]["y"] + 2
    front, behind = node.run("board/geometry.js", code, state, point, upper, ROOM)
    assert front["cell"]["action"] == "0F0" and behind["cell"]["action"] == "0F1"


def test_a_point_has_its_slot_and_the_edge_none():
    state = Hand(blank()).state
    layout, shown = listed(state)
    inside = [shown["rows"][1]["y"] + 3, 2.5 * layout["slot"]]
    code = """const layout = m.layoutOf(v[0], 800, v[2]);
    return [m.slotAt(layout, v[1][1], v[1][0]), m.slotAt(layout, -1, v[1][0]),
        m.slotAt(layout, 10, 3), m.slotAt(layout, 10, layout.height + 1),
        m.slotAt(layout, layout.width + 1, v[1][0])];"""
    found = node.run("board/geometry.js", code, state, inside, ROOM)
    assert found == [{"rank": 1, "slot": 2}, None, None, None, None]


def test_a_cell_has_the_hue_of_its_kind_in_its_chunk_as_in_the_timeline():
    state = Hand(drawn(make("interleaved_zb", 2, 4), Costs())).state
    _, shown = listed(state)
    for one in shown["cells"]:
        own = one["cell"]["parts"][0]
        assert (one["parts"][0]["kind"], one["parts"][0]["chunk"]) == (own["kind"], own["chunk"])
    (side,) = json.loads(ScheduleExplorer("interleaved_zb", 2, 4).state)["sides"]
    assert {kind: state["shades"][kind] for kind in "FIW"} == side["shades"]
    assert state["shades"]["B"][0] == styled(palette.style("backward"))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_rows_of_a_grid_take_no_more_than_their_room(ranks):
    layout, shown = listed(Hand(blank(ranks, 4)).state)
    assert ranks * layout["pitch"] <= ROOM
    for above, below in zip(shown["rows"], shown["rows"][1:], strict=False):
        assert above["y"] + above["height"] < below["y"]
    assert shown["rows"][-1]["y"] + shown["rows"][-1]["height"] <= layout["height"]


def test_the_cursor_spans_the_action_that_it_is_on_and_steps_over_it():
    hand = Hand(blank(1, 2))
    hand.place("0F0", 0, 0)
    state = hand.place("0B0", 0, 1)
    code = """const layout = m.layoutOf(v[0], 800, 168);
    const at = (slot) => m.cursorAt(v[0], layout, { rank: 0, slot });
    return [at(1), at(2), at(3).width / layout.slot, at(1).width / layout.slot,
        besides(v[0], { rank: 0, slot: 1 }, 1), besides(v[0], { rank: 0, slot: 2 }, -1),
        besides(v[0], { rank: 0, slot: 3 }, 1)];"""
    also = {"besides": "board/state.js"}
    first, second, empty, wide, *steps = node.run("board/geometry.js", code, state, also=also)
    assert first == second and (empty, wide) == (1, 2) and steps == [3, 0, 4]


def score_words(state):
    return node.run("board/words.js", "return m.scoreWords(v[0]);", state)


def test_a_drawing_that_breaks_rules_has_no_score():
    hand = Hand(blank(2, 2))
    state = hand("known", name="1f1b")
    assert score_words(state) == (
        "Now 9 slots, bubble ratio 0.5, at most 2 in flight. "
        "Best known: GPipe with 9 slots, 2 in flight."
    )
    wrong = hand("move", **{"from": at("0F0", 0, 0), "rank": 0, "slot": 7})
    assert wrong["broken"] > 1
    assert score_words(wrong) == (
        f"This drawing does not count: {wrong['broken']} rules are broken. "
        "Best known: GPipe with 9 slots, 2 in flight."
    )
    assert score_words({**wrong, "broken": 1}).startswith(
        "This drawing does not count: 1 rule is broken."
    )
    part = hand("reset")
    assert score_words(part) == "Best known: GPipe with 9 slots, 2 in flight."
    assert score_words(hand.place("0F0", 0, 0)).startswith("So far 1 slot, bubble ratio ")


def level_board(number, name=None):
    level = LEVELS[number - 1]
    pipeline = level.pipeline(Costs())
    schedule = name and make(name, pipeline.ranks, level.microbatches)
    return Hand(laid_out(schedule, pipeline) if schedule else Drawing(pipeline), level)


def test_on_the_board_of_a_level_no_schedule_is_named_until_it_is_solved():
    hand = level_board(3)
    text = json.dumps({**hand.state, "csv": ""})
    assert not any(json.dumps(title) in text for title in TITLES.values())
    assert hand.state["zoo"] == [] and hand.state["best"] is None
    *part, last = drawn(make("1f1b", 3, 5), Costs()).placed
    for action, rank, slot in part:
        hand.place(str(action), rank, slot)
    state = hand("advise")
    assert state["level"]["answer"] is None and state["names"] == []
    assert "1F1B" not in state["verdict"] + state["advice"]["words"]
    state = hand.place(str(last.action), last.rank, last.slot)
    assert "1F1B" in state["names"]
    assert state["level"]["answer"]["words"].startswith(
        "This schedule is known as 1F1B: Narayanan et al."
    )


def unmet(hand):
    return [goal["words"] for goal in hand.state["level"]["goals"] if not goal["reached"]]


@pytest.mark.parametrize(
    "number, name, lacks",
    [
        (2, "naive", "21 slots"),
        (3, "gpipe", "at most 3 microbatches in flight on a rank"),
        (5, "1f1b", "17 slots"),
        (6, "zb_h1", "no rank is idle between its first action and its last"),
    ],
)
def test_what_solved_the_level_before_lacks_something_of_the_next(number, name, lacks):
    assert lacks in unmet(level_board(number, name))


def test_a_drawing_that_breaks_a_rule_reaches_no_target_and_one_that_is_late_not_that_of_slots():
    hand = level_board(3, "1f1b")
    assert unmet(hand) == []
    last = hand.state["cells"][-1]
    state = hand("move", **{"from": last}, rank=last["rank"], slot=last["slot"] + 1)
    assert unmet(hand) == ["21 slots"] and state["level"]["answer"] is None
    assert not LEVELS[2].solved(drawing_of(state, hand.board.drawing.pipeline))
    hand("undo")
    hand("move", **{"from": last}, rank=last["rank"], slot=0)
    assert unmet(hand) == ["every action is drawn and no rule is broken", "21 slots"]


@pytest.mark.parametrize("number", range(1, len(LEVELS) + 1))
def test_the_target_of_a_level_is_what_the_best_known_takes_and_the_kernel_says_it_is_solved(
    number,
):
    level = LEVELS[number - 1]
    free = Hand(Drawing(level.pipeline(Costs()))).state
    (best,) = (one for one in free["zoo"] if one["name"] == free["best"])
    assert best["slots"] == level.slots
    hand = level_board(number, level.answer)
    assert unmet(hand) == [] and hand.board.solved
    assert hand.state["level"]["answer"]["name"] == level.answer


def test_a_good_move_on_a_level_does_not_say_which_schedule_goes_on_like_this():
    hand = level_board(5)
    reported = []
    for one in (hand, Hand(Drawing(hand.board.drawing.pipeline))):
        reported.append(one("advise")["advice"]["words"])
    move = "A good move is 0F0 on rank 0 at slot 0. The schedule can then end at slot 17"
    assert reported[0].startswith(f"{move}. ") and reported[1].startswith(
        f"{move}, continued like ZB-H1. "
    )


def test_another_order_that_solves_a_level_is_told_the_known_one():
    told = level_board(2, "1f1b").state["level"]["answer"]
    assert told["name"] == "gpipe"
    assert told["words"].startswith("The known schedule for this is GPipe: Huang et al.")
    assert "Your order differs and is just as short." in told["words"]


@pytest.mark.parametrize(
    "gesture, words",
    [
        ({"do": "known", "name": "1f1b"}, "A level is drawn by hand"),
        ({"do": "set", "limit": 5}, "A level is drawn by hand"),
        ({"do": "csv", "text": make("gpipe", 3, 5).to_csv()}, ""),
        ({"do": "csv", "text": make("zb_h1", 3, 5).to_csv()}, "another size or of other kinds"),
        ({"do": "csv", "text": make("1f1b", 4, 5).to_csv()}, "another size or of other kinds"),
    ],
)
def test_the_pipeline_of_a_level_is_fixed(gesture, words):
    hand = level_board(3)
    before = hand.state
    state = hand(**gesture)
    assert words in state["said"] and bool(words) == bool(state["said"])
    assert all(state[name] == before[name] for name in ("stages", "backward", "limit", "overlaps"))


def test_labels_name_stages_where_all_fit_and_else_show_chunks_by_small_characters():
    wide = listed(Hand(drawn(make("1f1b", 2, 3), Costs())).state)[1]
    assert {one["parts"][0]["label"] for one in wide["cells"]} >= {"0F0", "1B2"}
    narrow = listed(Hand(drawn(make("zbv", 8, 16), Costs())).state)[1]
    labels = {one["cell"]["action"]: one["parts"][0]["label"] for one in narrow["cells"]}
    assert labels["0F3"] == "F3" and labels["15F3"] == "f3"
    assert {len(label) for label in labels.values()} == {2, 3}


SESSION = """const { board, rules, others } = v[0];
    Object.assign(traits, { board: JSON.stringify(board), rules: JSON.stringify(rules) });
    const heard = [];
    const own = m.session(model, (done) => heard.push(done?.do ?? null));
    const place = (action, rank, slot) => own.send({ do: "place", action, rank, slot });
    const cells = () => own.shown().cells.map(({ action, rank, slot }) => [action, rank, slot]);
    const steps = () => sent.map(({ step }) => step);
    const deliver = (board) => {
        traits.board = JSON.stringify(board);
        fire("change:board");
    };
    const does = (n = sent.length - unanswered.length) => { // what the page asked for
        const { name, cells } = steps()[n];
        deliver({ ...board, name, cells, undo: n + 1 });
        answer();
    };
"""


def in_session(code, *others, start=None):
    """What `code` finds of a session on an empty board, or `start`; `others` are what else may be
    drawn."""
    board, *others = (ShadedBoard(one) for one in (start or blank(), *others))
    given = {"board": board.state(), "rules": board.rules(), "others": [o.state() for o in others]}
    return node.run("board/session.js", MODEL + SESSION + code, given)


def test_gestures_are_drawn_immediately_and_the_kernel_hears_what_came_of_them():
    code = """place("0F0", 0, 0);
    place("0F1", 0, 4);
    own.send({ do: "advise" });
    place("9F0", 0, 0);
    const before = [cells(), own.shown().said];
    does(); does(); own.send({ do: "undo" });
    return [before, cells(), heard, own.shown().undo, asked(), JSON.parse(traits.board).name];"""
    (before, said), after, heard, undo, requests, name = in_session(code)
    assert before == [["0F0", 0, 0], ["0F1", 0, 4]] and "the stages are 0 to 1" in said
    assert after == before[:1] and undo == 1
    assert heard == ["place", "place", "advise", "place", "undo"], "no answer draws anything anew"
    first, second, third = (request["step"] for request in requests)
    assert {request["kind"] for request in requests} == {"draw"}
    assert first["cells"] == [at("0F0", 0, 0)] and first["backward"] == "whole"
    assert second["on"] == first["name"] and third["on"] == second["name"] == name
    assert third["do"] == "undo" and "cells" not in third


def test_the_kernel_hears_of_a_fault_in_the_pages_words():
    steps = in_session("""place("1F0", 1, 0); place("0F0", 0, 0); return steps();""")
    assert steps[0]["fault"] == (
        "1F0 (rank 1, slot 0) needs 0F0 of rank 0, which is not drawn. Draw 0F0 on rank 0, and "
        "move 1F0 behind 0F0."
    )
    board = ShadedBoard(blank())
    assert board.take({**steps[0], "on": board.name}) and board.take(steps[1])
    assert board.take({"do": "undo", "on": board.name}) and board.take(
        {"do": "redo", "on": board.name}
    )
    with pytest.raises(ValueError, match=re.escape(steps[1]["fault"])):
        board.schedule()


def test_what_only_the_kernel_can_do_is_drawn_once_it_has_answered_and_undone_by_it():
    code = """own.send({ do: "csv", text: "0F0 / 1F0 / 2F0" });
    const before = [cells().length, own.shown().said, steps()[0]];
    traits.rules = JSON.stringify({ known: [], level: null });
    deliver({ ...others[0], undo: 1 }); answer();
    const between = [own.shown().ranks, cells().length, own.shown().undo];
    own.send({ do: "undo" });
    const held = cells().length;
    deliver({ ...board, redo: 1, name: "back" }); answer();
    return [before, between, held, own.shown().ranks, own.shown().redo, steps()[1], heard];"""
    other = drawn(Schedule.from_csv("0F0 / 1F0 / 2F0"), Costs())
    before, between, held, ranks, redo, step, heard = in_session(code, other)
    assert before[:2] == [0, ""] and before[2].pop("on")
    assert before[2] == {"do": "csv", "text": "0F0 / 1F0 / 2F0"}
    assert between == [3, 3, 1] and held == 3 and (ranks, redo) == (2, 1)
    assert step["do"] == "undo" and "name" not in step
    assert heard == ["csv", "undo"]


def test_what_the_kernel_refuses_is_taken_back_in_its_words():
    code = """own.send({ do: "advise" });
    own.send({ do: "csv", text: "0F0 / 1F0 / 2F0" });
    answer({ error: "It is too large." });
    const advised = own.shown().advice != null;
    place("0F0", 0, 0); does();
    own.send({ do: "csv", text: "0F0 / 1F0 / 2F0" });
    place("0F1", 0, 1);
    answer({ error: "It is too large." });
    const said = own.shown().said;
    does();
    own.send({ do: "undo" }); own.send({ do: "undo" });
    return [advised, said, cells(), steps()[4].on === steps()[1].name, heard];"""
    advised, said, left, on, heard = in_session(code)
    assert advised and left == [] and on and said == ""
    assert heard == ["advise", "csv", "place", "place", "csv", "undo", "undo"]


def test_once_the_kernel_is_gone_what_it_has_not_answered_is_taken_back_and_undo_goes_on():
    code = """place("0F0", 0, 0);
    does();
    place("0F1", 0, 4);
    own.turnOff(); const left = cells();
    answer(); // it comes too late
    own.send({ do: "undo" });
    return [left, cells(), JSON.parse(traits.board).redo, heard];"""
    heard = ["place", "place", None, "undo"]
    assert in_session(code) == [[["0F0", 0, 0]], [], 1, heard]


def test_what_another_view_draws_is_not_lost():
    """Two views of one widget: this one's gesture comes late and is done again on what is there."""
    code = """place("0F1", 0, 4);
    own.send({ do: "place", action: "1F0" });
    deliver(others[0]); const between = cells();
    answer({ late: true }); // and the second, which was done on the first
    const after = cells();
    answer({ late: true });
    const { cells: drawn, name } = steps()[2];
    deliver({ ...board, name, cells: drawn }); answer();
    return [between, after, steps().map(({ on }) => on), steps()[3].cells.length, heard];"""
    there = put(blank(), ("0F0", 0, 0))
    between, after, on, count, heard = in_session(code, there)
    assert between == [["0F1", 0, 4], ["1F0", 1, 0]]
    assert after == [["0F0", 0, 0], ["0F1", 0, 4], ["1F0", 1, 1]] and count == 3
    assert len({*on}) == 4 and heard == ["place", "place", None]


def test_the_keys_pick_what_may_come_next_and_turn_through_what_is_left():
    state = Hand(Drawing(drawn(make("interleaved", 2, 4), Costs()).pipeline)).state
    code = """return [m.pick(v[0], 0, "F", null), m.pick(v[0], 0, "F", "0F0"),
        m.pick(v[0], 0, "F", "2F0"), m.pick(v[0], 1, "B", null), m.pick(v[0], 0, "W", null),
        m.turned(v[0], "0F0", 1), m.turned(v[0], "0F0", -1), m.halvesOf(v[0], "9F0"),
        m.halvesOf(v[0], "(0F1;2B0)OVERLAP_F_B").length];"""
    found = node.run("board/state.js", code, state)
    assert found == ["0F0", "2F0", "0F0", "1B0", None, "0F1", "0F3", None, 2]


def test_more_ghosts_than_fit_in_a_row_are_counted():
    drawing = drawn(make("dualpipev", 2, 8), Costs())
    part = Drawing(drawing.pipeline, tuple(one for one in drawing.placed if one.slot < 12))
    state = Hand(part).state
    _, shown = listed(state)
    assert shown["ghosts"]["more"] and min(one["height"] for one in shown["ghosts"]["shown"]) >= 11


def test_a_drawing_is_copied_on_one_line_and_read_again():
    hand = Hand(drawn(make("1f1b", 2, 2), Costs()))
    line = node.run("board/words.js", "return m.onOneLine(v[0]);", hand.state["csv"])
    assert line == "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1"
    assert {*hand.board.read(line).placed} == {*hand.board.drawing.placed}


def test_every_action_of_the_state_is_one():
    state = Hand(drawn(make("dualpipev", 2, 4), Costs())).state
    assert all(str(parse(cell["action"])) == cell["action"] for cell in state["cells"])


def test_a_saved_explorer_has_an_empty_grid_to_draw_on_unless_its_size_cannot_be_drawn():
    saved = ScheduleExplorer("interleaved", 2, 4, 2).saved_state()
    board, rules = json.loads(saved["board"]), json.loads(saved["rules"])
    assert (board["stages"], board["microbatches"], board["cells"]) == ([0, 1, 0, 1], 4, [])
    assert "interleaved" in {one["name"] for one in rules["known"]} and rules["level"] is None
    large = ScheduleExplorer("1f1b", 16, 128).saved_state()
    assert large["board"] == large["rules"] == "{}"
