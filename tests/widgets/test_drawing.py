"""The drawing board without a browser: gestures in, state out; and the geometry, in Node."""

from __future__ import annotations

import json

import node
import pytest

from dlviz.schedules import NAMES, make, parse
from dlviz.schedules.drawing import Drawing, Pipeline, drawn
from dlviz.schedules.orders import loop, vee
from dlviz.sim import Costs
from dlviz.widgets.drawing import Board

LOOK = {"hue": "microbatch", "ghosts": True}


class Hand:
    """Gestures on a board, numbered as the front end numbers them."""

    def __init__(self, drawing):
        self.board, self.number = Board(drawing), 0

    def __call__(self, do, **more):
        self.number += 1
        self.board.apply(json.dumps([{"n": self.number, "do": do, **more}]))
        state = self.board.state()
        json.dumps(state, allow_nan=False)
        return state

    def place(self, action, rank, slot):
        return self("place", action=action, rank=rank, slot=slot)


def blank(ranks=2, microbatches=3, costs=None, **options):
    return Drawing(Pipeline(loop(ranks), microbatches, costs or Costs(), **options))


def there(state):
    return sorted((cell["action"], cell["rank"], cell["slot"]) for cell in state["cells"])


def at(action, rank, slot):
    return {"action": action, "rank": rank, "slot": slot}


def test_each_gesture_has_its_effect_and_undo_takes_each_back():
    hand = Hand(blank())
    start = hand.board.drawing
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
    assert hand.board.state()["undo"] == 11
    for left in range(10, -1, -1):
        assert hand("undo")["undo"] == left
    assert hand.board.drawing == start
    for _ in range(11):
        state = hand("redo")
    assert state["redo"] == 0 and there(state) == [("0F0", 0, 0), ("1F0", 1, 1)]


def test_a_gesture_that_comes_twice_is_done_once_and_none_is_lost():
    board = Board(blank())
    gestures = [{"n": n, "do": "place", **at(f"0F{n}", 0, n)} for n in (1, 2)]
    gestures += [{"n": 3, "do": "undo"}, {"n": 4, "do": "place", **at("0F0", 0, 0)}]
    board.apply(json.dumps(gestures[:1]))
    board.apply(json.dumps(gestures[:3]))  # the second text has the first gesture still
    assert there(board.state()) == [("0F1", 0, 1)]
    board.apply(json.dumps(gestures))
    board.apply(json.dumps(gestures))
    assert there(board.state()) == [("0F0", 0, 0), ("0F1", 0, 1)]
    assert board.state()["answer"] == 4 and board.state()["said"] == ""


@pytest.mark.parametrize(
    "gesture, words",
    [
        ({"do": "place", **at("frog", 0, 0)}, "'frog' is no action"),
        ({"do": "place", **at("7F0", 0, 0)}, "the stages are 0 to 1"),
        ({"do": "place", **at("0F0", 0, -3)}, "off the grid"),
        ({"do": "remove", "from": at("0F1", 0, 9)}, "nothing to remove"),
        ({"do": "known", "name": "zbv"}, "'zbv' is not defined"),
        ({"do": "csv", "text": "0F0,0F0\n1F0"}, "twice"),
        ({"do": "set", "limit": 0}, "limit=0"),
        ({"do": "set", "limit": None, "backward": "both"}, "backward='both'"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(gesture, words):
    hand = Hand(blank())
    before = there(hand.place("0F0", 0, 0))
    state = hand(gesture.pop("do"), **gesture)
    assert words in state["said"] and there(state) == before and state["undo"] == 1
    assert hand("undo")["said"] == ""


def test_an_illegal_action_stands_in_the_state_with_words_until_it_is_mended():
    hand = Hand(blank())
    state = hand.place("1F0", 1, 0)
    (cell,) = state["cells"]
    assert cell["faults"] == [
        "1F0 (rank 1, slot 0) needs 0F0 of rank 0, which is not drawn. Draw 0F0 on rank 0, and "
        "move this one behind it."
    ]
    assert state["legal"] is False and state["verdict"].startswith("1 of 1 actions breaks a rule.")
    hand.place("0F0", 0, 0)
    state = hand("move", **{"from": at("1F0", 1, 0), "rank": 1, "slot": 1})
    assert state["legal"] and all(cell["faults"] == [] for cell in state["cells"])


def test_the_verdict_says_what_is_missing_or_what_it_comes_to():
    hand = Hand(blank(4, 8))
    assert "0F0 may come next, on rank 0 from slot 0 on" in hand.board.state()["verdict"]
    assert hand.place("0F0", 0, 0)["verdict"].startswith("1 drawn, no rule broken, 63 to go")
    assert hand("known", name="1f1b")["verdict"] == (
        "Complete and legal: 33 slots, idle / work 37.5 %, at most 4 in flight. This is 1f1b or "
        "pipedream. That equals the best known, 1f1b with 33 slots."
    )
    worse = hand("known", name="naive")
    assert "The best known is 1f1b with 33 slots." in worse["verdict"]
    assert worse["best"] == "1f1b" and worse["beaten"] is False


def test_beating_the_best_known_is_noted():
    hand = Hand(Drawing(Pipeline(vee(2), 2, Costs(), "split")))
    while (move := hand("advise")["advice"]["move"]) is not None:
        state = hand.place(**move)
    assert state["beaten"] and "It beats the best known, zbv with 14 slots." in state["verdict"]


def test_advice_names_a_move_what_another_costs_and_how_it_was_found():
    hand = Hand(blank(2, 2, backward="split"))
    for cell in (("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 1, 2), ("0F1", 0, 1), ("0I0", 0, 3)):
        hand.place(*cell)
    advice = hand("advise")["advice"]
    assert advice["move"] == at("1F1", 1, 3)
    assert advice["words"].startswith("A good move is 1F1 on rank 1 at slot 3: finished ")
    assert "1W0 instead costs 1 slot. " in advice["words"]
    assert advice["words"].endswith("no proof of the best.")
    assert hand.place("1F1", 1, 3)["advice"] is None
    hand.place("1F1", 1, 3)
    hand.place("1W1", 1, 0)
    assert hand("advise")["advice"]["words"] == "First mend what breaks a rule."


@pytest.mark.parametrize("name", NAMES)
def test_a_known_schedule_is_drawn_with_all_that_it_is_made_of_on_offer(name):
    schedule = make(name, 2, 4)
    pipeline = Pipeline(schedule.stage_rank, 4, Costs(), "none" if name == "inference" else "whole")
    state = Hand(Drawing(pipeline))("known", name=name)
    assert state["complete"] and name in state["names"] and state["said"] == ""
    kinds = {part["kind"] for cell in state["cells"] for part in cell["parts"]}
    assert kinds <= {*state["kinds"]} and state["overlaps"] == (name == "dualpipev")


def test_the_largest_board_is_answered_in_time_and_in_one_text():
    board = Board(drawn(make("interleaved_zb", 8, 16), Costs()))
    assert len(board.state()["cells"]) == 768
    assert len(json.dumps(board.state())) < 200_000


# Geometry, in Node


def listed(state, width=800, look=LOOK):
    code = """const layout = m.layoutOf(v[0], v[1]);
    return { layout, list: m.drawList(v[0], layout, v[2]) };"""
    found = node.run("drawing_list.js", code, state, width, look)
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
    state = Board(part).state()
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
    _, without = listed(state, look={**LOOK, "ghosts": False})
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
    code = """const list = m.drawList(v[0], m.layoutOf(v[0], 800), v[1]);
    return [m.hit(list, v[2].x, v[2].y), m.hit(list, v[2].x, v[3])];"""
    upper = shown["rows"][0]["y"] + 2
    front, behind = node.run("drawing_list.js", code, state, LOOK, point, upper)
    assert front["cell"]["action"] == "0F0" and behind["cell"]["action"] == "0F1"


def test_a_point_has_its_slot_and_the_edge_none():
    state = Hand(blank()).board.state()
    layout, shown = listed(state)
    inside = [shown["rows"][1]["y"] + 3, 2.5 * layout["slot"]]
    code = """const layout = m.layoutOf(v[0], 800);
    return [m.slotAt(layout, v[1][1], v[1][0]), m.slotAt(layout, -1, v[1][0]),
        m.slotAt(layout, 10, 3), m.slotAt(layout, 10, layout.height + 1),
        m.slotAt(layout, layout.width + 1, v[1][0])];"""
    found = node.run("drawing_list.js", code, state, inside)
    assert found == [{"rank": 1, "slot": 2}, None, None, None, None]


def test_hue_is_the_microbatch_or_the_chunk():
    state = Board(drawn(make("interleaved", 2, 4), Costs())).state()
    for hue in ("microbatch", "chunk"):
        _, shown = listed(state, look={**LOOK, "hue": hue})
        parts = [(one["cell"]["parts"][0][hue], one["parts"][0]["hue"]) for one in shown["cells"]]
        assert len({*parts}) == (4 if hue == "microbatch" else 2)
        assert all(value == shown for value, shown in parts)


def test_labels_name_stages_where_all_fit_and_else_tell_chunks_by_small_letters():
    wide = listed(Board(drawn(make("1f1b", 2, 3), Costs())).state())[1]
    assert {one["parts"][0]["label"] for one in wide["cells"]} >= {"0F0", "1B2"}
    narrow = listed(Board(drawn(make("zbv", 8, 16), Costs())).state())[1]
    labels = {one["cell"]["action"]: one["parts"][0]["label"] for one in narrow["cells"]}
    assert labels["0F3"] == "F3" and labels["15F3"] == "f3"
    assert {len(label) for label in labels.values()} == {2, 3}


def test_a_gesture_is_foreseen_as_the_kernel_will_answer_it():
    hand = Hand(blank())
    before = hand.place("0F0", 0, 0)
    gestures = [
        {"do": "place", **at("1B2", 1, 7)},
        {"do": "move", "from": at("1B2", 1, 7), "rank": 0, "slot": 3},
        {"do": "remove", "from": at("0F0", 0, 0)},
    ]
    for count in (1, 2, 3):
        code = "return m.foreseen(v[0], v[1]).cells;"
        seen = node.run("drawing_list.js", code, before, gestures[:count])
        gesture = dict(gestures[count - 1])
        answered = hand(gesture.pop("do"), **gesture)
        strip = ("action", "rank", "slot", "slots", "parts")
        assert [[cell[name] for name in strip] for cell in seen] == [
            [cell[name] for name in strip] for cell in answered["cells"]
        ]


def test_the_keys_pick_what_may_come_next_and_turn_through_what_is_left():
    state = Board(drawn(make("interleaved", 2, 4), Costs()).cleared()).state()
    code = """return [m.pick(v[0], 0, "F", null), m.pick(v[0], 0, "F", "0F0"),
        m.pick(v[0], 0, "F", "2F0"), m.pick(v[0], 1, "B", null), m.pick(v[0], 0, "W", null),
        m.turned(v[0], "0F0", 1), m.turned(v[0], "0F0", -1), m.halvesOf(v[0], "9F0"),
        m.halvesOf(v[0], "(0F1;2B0)OVERLAP_F_B").length];"""
    found = node.run("drawing_list.js", code, state)
    assert found == ["0F0", "2F0", "0F0", "1B0", None, "0F1", "0F3", None, 2]


def test_more_ghosts_than_fit_in_a_row_are_counted():
    drawing = drawn(make("dualpipev", 2, 8), Costs())
    part = Drawing(drawing.pipeline, tuple(one for one in drawing.placed if one.slot < 12))
    state = Board(part).state()
    _, shown = listed(state)
    assert shown["ghosts"]["more"] and min(one["height"] for one in shown["ghosts"]["shown"]) >= 11


def test_every_action_of_the_state_is_one():
    state = Board(drawn(make("dualpipev", 2, 4), Costs())).state()
    assert all(str(parse(cell["action"])) == cell["action"] for cell in state["cells"])
