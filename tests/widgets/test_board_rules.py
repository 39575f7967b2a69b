"""The board's rules: what is a fault, what may come next, why a rank idles, what is known."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import node
import pytest
from hand import Hand, at, blank, drawing_of, put, there
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz import metrics
from dlviz.board.board import DrawingBoard
from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.levels import LEVELS
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, TITLES, Action, Schedule, ScheduleError, make, needs
from dlviz.schedules.orders import loop, vee
from dlviz.sim import Costs, simulate
from dlviz.widgets.schedules.drawing import ShadedBoard
from dlviz.widgets.schedules.pipelines import DRAWN, picture_of, played

COSTS = Costs(forward=2.0, backward_input=1.0, backward_weight=3.0, latency=1.0)
SIZES = [(1, 1), (2, 3), (3, 6), (4, 8)]
RULES = "board/rules.js"
FAULTS_OF = """return m.faultsOf(tableOf(v[0], v[1]).present).map(({ placed, law, words, mend }) =>
    [[placed.action.text, placed.rank, placed.slot], law, words, mend]);"""
MOVES_OF = """const { present } = tableOf(v[0], v[1]);
return m.movesOf(present, m.zooOf(present.pipeline, v[1].known)).map(({ placed, end, order }) =>
    [placed.action.text, end, order]);"""
# Draws what `v[2]` picks among the ghosts until there is none, and tries each a slot earlier too.
FOLLOWED = """let table = m.tableOf(v[0], v[1]);
const early = [];
for (let i = 0; ; i++) {
    const { ghosts } = m.stateOf(table);
    if (!ghosts.length) return [m.stateOf(table), early];
    const { action, rank, slot } = ghosts[v[2][i % v[2].length] % ghosts.length];
    const place = (slot) => m.apply(table, { do: "place", action, rank, slot });
    if (slot) early.push(m.stateOf(place(slot - 1)).broken);
    table = place(slot);
    if (m.stateOf(table).broken) return [m.stateOf(table), early];
}"""
# Draws the best of the next moves until there is none; the ends that they promised.
BY_MOVES = """let table = m.tableOf(v[0], v[1]);
const ends = [];
const beaten = [];
for (;;) {
    const { present } = table;
    const moves = movesOf(present, zooOf(present.pipeline, v[1].known));
    if (!moves.length) return { state: m.stateOf(table), ends, beaten };
    ends.push(moves.map(({ end }) => end));
    beaten.push(m.stateOf(table).beaten);
    const [{ placed: { action: { text }, rank, slot } }] = moves;
    table = m.apply(table, { do: "place", action: text, rank, slot });
}"""
KNOWN = {"movesOf": "board/known.js", "zooOf": "board/known.js"}
picks = st.lists(st.integers(0, 99), min_size=1, max_size=30)


def zoo_of(sizes=SIZES):
    for name, (ranks, microbatches) in itertools.product(NAMES, sizes):
        try:
            yield make(name, ranks, microbatches)
        except ValueError:
            continue  # not defined for this size


def given_of(drawing):
    board = ShadedBoard(drawing)
    return board.state(), board.rules()


def state_of(drawing):
    return Hand(drawing).state


def faults_of(drawing):
    return node.run("board/faults.js", FAULTS_OF, *given_of(drawing), also={"tableOf": RULES})


def moves_of(drawing):
    return node.run("board/known.js", MOVES_OF, *given_of(drawing), also={"tableOf": RULES})


def followed(drawing, picked):
    return node.run(RULES, FOLLOWED, *given_of(drawing), picked)


def by_moves(drawing):
    return node.run(RULES, BY_MOVES, *given_of(drawing), also=KNOWN)


def test_a_schedule_comes_to_what_the_metrics_say_of_it_simulated():
    for schedule in zoo_of():
        drawing = drawn(schedule, COSTS)
        state, trace = state_of(drawing), simulate(schedule, COSTS)
        assert state["complete"] and state["broken"] == 0 and state["ghosts"] == []
        assert state["csv"] == schedule.to_csv()
        seconds = state["score"]["slots"] * state["slot"]
        assert seconds == pytest.approx(metrics.makespan(trace))
        assert state["score"]["peak"] == metrics.peak_in_flight(trace).tolist()
        if (
            schedule.name != "dualpipev"
        ):  # its halves run together: the rank is busy once in that time
            assert state["score"]["ratio"] == pytest.approx(metrics.bubble_ratio(trace))


@pytest.mark.parametrize("name", NAMES)
def test_every_known_schedule_can_be_drawn_by_ghosts_alone_by_its_name_and_as_csv(name):
    schedule = make(name, 3, 6)
    whole = drawn(schedule, COSTS)
    code = """let table = m.tableOf(v[0], v[1]);
    const rows = v[2];
    while (rows.some((row) => row.length)) {
        const { ghosts } = m.stateOf(table);
        const row = rows.find(([one]) => ghosts.some(({ action }) => action === one));
        const first = row.shift();
        const ghost = ghosts.find(({ action }) => action === first);
        table = m.apply(table, { do: "place", ...ghost });
    }
    return m.stateOf(table);"""
    rows = [[str(action) for action in row] for row in schedule.actions]
    empty = Drawing(whole.pipeline)
    state = node.run(RULES, code, *given_of(empty), rows)
    assert (state["broken"], state["complete"], state["ghosts"]) == (0, True, [])
    drawing_of(state, whole.pipeline).schedule().check()
    assert state["score"]["slots"] <= whole.slots
    hand = Hand(empty)
    for gesture in ({"do": "known", "name": name}, {"do": "tighten"}, {"do": "reset"},
                    {"do": "csv", "text": schedule.to_csv()}):  # fmt: skip
        state = hand(**gesture)
        expected = () if gesture["do"] == "reset" else whole.placed
        assert drawing_of(state, whole.pipeline).placed == expected


@given(picks, st.sampled_from([None, 3]), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_whoever_follows_ghosts_draws_a_legal_schedule(picked, limit, number, form):
    placement = [loop(3), loop(2, 2), vee(2), loop(1)][number]
    backward = ["whole", "split", "either", "none"][form]
    limit = limit if number != 1 else None
    empty = Drawing(Pipeline(placement, 3, COSTS, backward, limit))
    state, early = followed(empty, picked)
    assert state["broken"] == 0 and all(early), "each could not start a slot earlier"
    if limit is not None:
        assert max(state["score"]["peak"]) <= limit
    drawing = drawing_of(state, empty.pipeline)
    assert drawing.legal
    if limit is None:
        drawing.schedule().check()
        assert state["complete"]


@given(picks, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_what_is_tightened_has_the_simulated_times_and_what_is_not_is_no_earlier(picked, chance):
    empty = blank(3, 2, COSTS, backward="either")
    drawing = drawing_of(followed(empty, picked)[0], empty.pipeline)
    late = tuple(one._replace(slot=2 * one.slot + chance.randrange(2)) for one in drawing.placed)
    for each in (drawing, replace(drawing, placed=late)):
        tight = drawing_of(Hand(each)("tighten"), empty.pipeline)
        if not each.legal:
            assert tight == each
            continue
        assert tight.placed == laid_out(each.schedule(), each.pipeline).placed
        earliest = {one.action: one.slot for one in tight.placed}
        assert all(earliest[one.action] <= one.slot for one in each.placed)


def is_legal(drawing):
    """The rules by brute force over all pairs of what is drawn."""
    pipeline = drawing.pipeline
    ends = {}
    for placed in drawing.placed:
        for half in placed.action.halves:
            ends.setdefault(half, drawing.ends(placed))
    for one, other in itertools.combinations(drawing.placed, 2):
        together = one.rank == other.rank
        if together and one.slot < drawing.ends(other) and other.slot < drawing.ends(one):
            return False
        same = one.action[::2] == other.action[::2]
        if same and {one.action.kind, other.action.kind} in ({"F"}, {"B"}, {"I"}, {"W"}):
            return False
        if same and {one.action.kind, other.action.kind} in ({"B", "I"}, {"B", "W"}):
            return False
    for placed in drawing.placed:
        if pipeline.stage_rank[placed.action.stage] != placed.rank:
            return False
        for choice in needs(placed.action, pipeline.stages):
            far = pipeline.stage_rank[choice[0].stage] != placed.rank
            arrivals = [ends[one] + pipeline.latency * far for one in choice if one in ends]
            if not arrivals or min(arrivals) > placed.slot:
                return False
    return True


cells = st.tuples(
    st.builds("{}{}{}".format, st.integers(0, 2), st.sampled_from("FBIW"), st.integers(0, 1)),
    st.integers(0, 1),
    st.integers(0, 9),
)


@given(st.lists(cells, max_size=6, unique=True))
@settings(max_examples=200, deadline=None)
def test_a_drawing_has_a_fault_exactly_where_a_rule_is_broken_and_is_not_played_then(placed):
    drawing = put(Drawing(Pipeline((0, 1, 0), 2, Costs(latency=1.0), "either")), *placed)
    faults = faults_of(drawing)
    assert (faults == []) == is_legal(drawing) == drawing.legal
    for cell, _, words, mend in faults:
        assert tuple(cell) in placed
        assert cell[0] in words and mend.endswith(".")
        assert f"rank {cell[1]}, slot {cell[2]}" in words


def placing(*cells):
    return [{"do": "place", **at(*cell)} for cell in cells]


def moving(cell, rank, slot):
    return [{"do": "move", "from": at(*cell), "rank": rank, "slot": slot}]


FAULTS = {
    "rank": (
        [("0F0", 1, 0)],
        "0F0 (rank 1, slot 0) is on the wrong rank: stage 0 is on rank 0.",
        "Move 0F0 to the row of rank 0.",
        moving(("0F0", 1, 0), 0, 0),
    ),
    "twice": (
        [("0F0", 0, 0), ("0F0", 0, 4)],
        "0F0 (rank 0, slot 4) is drawn twice: the other is at slot 0 of rank 0.",
        "Remove one of the two.",
        [{"do": "remove", "from": at("0F0", 0, 4)}],
    ),
    "repeated": (
        [("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("1W0", 1, 6)],
        "1W0 (rank 1, slot 6) repeats work of 1B0: a B consists of I and W.",
        "Remove one of the two.",
        [{"do": "remove", "from": at("1W0", 1, 6)}],
    ),
    "together": (
        [("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("0F1", 0, 1), ("1F1", 1, 3)],
        "1F1 (rank 1, slot 3) shares slot 3 with 1B0: a rank runs one action at a time.",
        "Move 1F1 to slot 4.",
        moving(("1F1", 1, 3), 1, 4),
    ),
    "needs": (
        [("0F0", 0, 3), ("1F0", 1, 2)],
        "1F0 (rank 1, slot 2) needs 0F0 of rank 0, which is there only from slot 4 on.",
        "Move 1F0 to slot 4, or move 0F0 to an earlier slot.",
        moving(("1F0", 1, 2), 1, 4),
    ),
    "needs what is not drawn": (
        [("1F0", 1, 2)],
        "1F0 (rank 1, slot 2) needs 0F0 of rank 0, which is not drawn.",
        "Draw 0F0 on rank 0 so that 0F0 ends by slot 2.",
        placing(("0F0", 0, 1)),
    ),
    "needs what cannot be in time": (
        [("1F0", 1, 0)],
        "1F0 (rank 1, slot 0) needs 0F0 of rank 0, which is not drawn.",
        "Draw 0F0 on rank 0, and move 1F0 behind 0F0.",
        placing(("0F0", 0, 0)) + moving(("1F0", 1, 0), 1, 1),
    ),
    "needs what cannot be in time for its own needs": (
        [("1B0", 1, 1)],
        "1B0 (rank 1, slot 1) needs 1F0 of rank 1, which is not drawn.",
        "Draw 1F0 on rank 1, and move 1B0 behind 1F0.",
        placing(("0F0", 0, 0), ("1F0", 1, 1)) + moving(("1B0", 1, 1), 1, 2),
    ),
    "needs what a drawn action holds up": (
        [("0F0", 0, 3), ("1F0", 1, 4), ("0B0", 0, 6)],
        "0B0 (rank 0, slot 6) needs 1B0 of rank 1, which is not drawn.",
        "Draw 1B0 on rank 1, and move 0B0 behind 1B0.",
        placing(("1B0", 1, 5)) + moving(("0B0", 0, 6), 0, 7),
    ),
    "needs what can be in time": (
        [("0F0", 0, 3), ("1F0", 1, 4), ("0B0", 0, 7)],
        "0B0 (rank 0, slot 7) needs 1B0 of rank 1, which is not drawn.",
        "Draw 1B0 on rank 1 so that 1B0 ends by slot 7.",
        placing(("1B0", 1, 5)),
    ),
    "memory": (
        [("0F0", 0, 0), ("0F1", 0, 1), ("0F2", 0, 2)],
        "0F2 (rank 0, slot 2) makes rank 0 hold 3 microbatches; the limit is 2.",
        "Run a B of rank 0 before 0F2.",
        [{"do": "remove", "from": at("0F2", 0, 2)}],
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_illegal_action_is_placed_explained_and_settles_once_mended(case):
    cells, words, mend, mending = FAULTS[case]
    empty = blank(limit=2 if case == "memory" else None)
    law = case.split()[0].replace("repeated", "twice")
    assert faults_of(put(empty, *cells))[0] == [[*cells[-1]], law, words, mend]
    hand = Hand(empty)
    for gesture in placing(*cells):
        state = hand(**gesture)
    assert cells[-1] in there(state)
    (faulty,) = (cell for cell in state["cells"] if there({"cells": [cell]}) == [cells[-1]])
    assert faulty["faults"][0] == f"{words} {mend}"
    many = "1 rule is" if state["broken"] == 1 else f"{state['broken']} rules are"
    assert state["verdict"] == f"{many} broken. {words} {mend}"
    for gesture in mending:
        state = hand(**gesture)
    assert state["broken"] == 0


def test_the_latency_of_a_message_is_in_the_advice_how_to_mend():
    drawing = put(blank(costs=Costs(latency=2.0)), ("1F0", 1, 5))
    assert faults_of(drawing)[0][3] == "Draw 0F0 on rank 0 so that 0F0 ends by slot 3."
    assert faults_of(put(drawing, ("0F0", 0, 2))) == []
    assert faults_of(put(drawing, ("0F0", 0, 3)))[0][1] == "needs"


def test_of_two_in_conflict_the_one_placed_last_is_at_fault():
    hand = Hand(put(blank(), ("0F1", 0, 0), ("0F0", 0, 0)))
    assert [cell["action"] for cell in hand.state["cells"] if cell["faults"]] == ["0F0"]
    hand("move", **{"from": at("0F1", 0, 0)}, rank=0, slot=5)
    state = hand("move", **{"from": at("0F1", 0, 5)}, rank=0, slot=0)
    assert [cell["action"] for cell in state["cells"] if cell["faults"]] == ["0F1"]


def test_what_lies_over_two_others_conflicts_with_the_first_alone():
    drawing = put(
        blank(), ("0F0", 0, 0), ("1F0", 1, 4), ("0F1", 0, 1), ("1F1", 1, 5), ("1B0", 1, 4)
    )
    together = [words for _, law, words, _ in faults_of(drawing) if law == "together"]
    assert together == [
        "1B0 (rank 1, slot 4) shares slot 4 with 1F0: a rank runs one action at a time."
    ]


@pytest.mark.parametrize(
    "action, spot, backward, words",
    [
        ("2F0", (0, 0), "whole", "2F0 cannot be drawn: the stages are 0 to 1."),
        ("0F3", (0, 0), "whole", "0F3 cannot be drawn: the microbatches are 0 to 2."),
        ("0F0", (2, 0), "whole", "rank 2 does not exist: the ranks are 0 to 1."),
        ("0F0", (0, -1), "whole", "slot -1 is off the grid: the slots are 0 to 29."),
        ("0F0", (0, 10**6), "whole", "slot 1000000 is off the grid: the slots are 0 to 29."),
        ("0B0", (0, 0), "none", "0B0 cannot be drawn: this pipeline runs forwards only."),
        (
            "(0F0;0F1)OVERLAP_F_B",
            (0, 0),
            "whole",
            "(0F0;0F1)OVERLAP_F_B is no overlap: an overlap is one forward and one backward.",
        ),
    ],
)
def test_what_the_pipeline_does_not_have_is_refused_in_the_kernels_words(
    action, spot, backward, words
):
    empty = blank(backward=backward)
    assert Hand(empty).place(action, *spot)["said"] == words
    with pytest.raises(ValueError) as caught:
        put(empty, (action, *spot)).check()
    assert str(caught.value) == words


def test_what_is_there_is_not_placed_twice_and_what_is_not_there_is_not_removed():
    hand = Hand(put(blank(), ("0F0", 0, 0)))
    said = hand.place("0F0", 0, 0)["said"]
    assert said == "0F0 is already at slot 0 of rank 0: choose another slot."
    said = hand("remove", **{"from": at("0F0", 0, 3)})["said"]
    assert said == "0F0 is not at slot 3 of rank 0, so it cannot be removed."


def test_every_pair_of_a_forward_and_a_backward_that_may_run_is_offered_as_an_overlap():
    drawing = drawn(make("dualpipev", 2, 4), Costs())
    early = Drawing(drawing.pipeline, drawing.placed[:12])
    pairs = [one for one in state_of(early)["ghosts"] if len(one["parts"]) > 1]
    assert pairs and all("OVERLAP_F_B" in pair["action"] for pair in pairs)
    alone = Drawing(replace(early.pipeline, overlaps=False), early.placed)
    assert all(len(one["parts"]) == 1 for one in state_of(alone)["ghosts"])


def idle_slots(drawing):
    first = min(placed.slot for placed in drawing.placed)
    busy = {
        (placed.rank, slot)
        for placed in drawing.placed
        for slot in range(placed.slot, drawing.ends(placed))
    }
    everything = itertools.product(range(drawing.pipeline.ranks), range(first, drawing.end))
    return sorted(set(everything) - busy)


def could_run(drawing, left, rank, slot):
    """The actions of a rank that have not begun and have all they need at a slot."""
    stage_rank = drawing.pipeline.stage_rank
    begun = {one.action for one in drawing.placed if one.slot < slot}
    ends = {one.action: drawing.ends(one) for one in drawing.placed}
    ahead = {action for action in ends if action not in begun} | left

    def arrived(choice):
        wait = drawing.pipeline.latency * (stage_rank[choice[0].stage] != rank)
        return any(ends[one] + wait <= slot for one in choice if one in ends)

    mine = {one for one in ahead if stage_rank[one.stage] == rank}
    able = {one for one in mine if all(map(arrived, needs(one, len(stage_rank))))}
    return mine, able


@given(picks, st.integers(1, 40), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_every_idle_slot_has_one_cause_and_the_right_one(picked, steps, chance):
    empty = Drawing(Pipeline(loop(2, 2), 3, COSTS, "either"))
    drawing = drawing_of(followed(empty, picked)[0], empty.pipeline)
    drawing = replace(drawing, placed=drawing.placed[:steps])
    spread = tuple(one._replace(slot=one.slot * 2) for one in drawing.placed)
    if chance.random() < 0.5 and replace(drawing, placed=spread).legal:
        drawing = replace(drawing, placed=spread)
    state = state_of(drawing)
    left = {
        Action(one["stage"], one["kind"], number)
        for one in state["left"]
        for number in one["microbatches"]
    }
    areas = [(one["rank"], slot) for one in state["idle"]
             for slot in range(one["start"], one["end"])]  # fmt: skip
    assert sorted(areas) == idle_slots(drawing)
    ends = {str(one.action): drawing.ends(one) for one in drawing.placed}
    for one in state["idle"]:
        for slot in range(one["start"], one["end"]):
            mine, able = could_run(drawing, left, one["rank"], slot)
            assert one["cause"] == ("choice" if able else "waiting" if mine else "done")
            if able:
                assert {*one["actions"]} == {*map(str, able)}
            if one["cause"] == "waiting":
                (missing,) = one["actions"]
                assert drawing.pipeline.stage_rank[int(missing[0])] != one["rank"]
                assert ends.get(missing, 10**6) + drawing.pipeline.latency > slot
                assert missing in one["words"]


def idle_on(drawing, rank):
    return [one for one in state_of(drawing)["idle"] if one["rank"] == rank]


def test_1f1b_waits_by_choice_and_gpipe_for_messages_alone():
    first = idle_on(drawn(make("1f1b", 4, 8), Costs()), 0)[0]
    assert (first["start"], first["end"], first["cause"]) == (4, 10, "choice")
    assert first["words"] == "your choice: 0F4, 0F5, 0F6 and 1 more could have run here"
    idle = state_of(drawn(make("gpipe", 4, 8), Costs()))["idle"]
    assert {one["cause"] for one in idle} == {"waiting", "done"}


def test_with_a_limit_it_is_no_choice_to_wait_for_room():
    first = idle_on(drawn(make("1f1b", 4, 8), Costs(), limit=4), 0)[0]
    assert first["cause"] == "waiting" and first["words"].startswith("waiting for 1B0 of rank 1")
    full = state_of(put(blank(1, 3, limit=1), ("0F0", 0, 0), ("0F1", 0, 4)))["idle"][0]
    assert full["cause"] == "choice" and "0B0 could have run" in full["words"]
    held = put(blank(2, 3, limit=1), ("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 5))
    assert [one["cause"] for one in idle_on(held, 0)] == ["waiting"]


def test_what_waits_for_an_action_that_stands_in_a_wrong_row_says_so():
    drawing = put(blank(backward="split"), ("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 0, 4))
    idle = idle_on(put(drawing, ("1W0", 1, 9)), 1)
    words = {one["words"] for one in idle if one["cause"] == "waiting"}
    assert not any("None" in one or "null" in one or "undefined" in one for one in words)


def test_the_message_that_is_waited_for_is_named_with_its_time():
    first = idle_on(drawn(make("gpipe", 2, 2), Costs(latency=1.0)), 1)[0]
    assert first["words"] == "waiting for 0F0 of rank 0, which is there from slot 2 on"
    last = state_of(put(blank(), ("0F0", 0, 0), ("0F1", 0, 4)))["idle"][-1]
    assert last["words"] == "your choice: 1F0 could have run here"


@pytest.mark.parametrize("size", SIZES)
def test_each_known_schedule_is_recognised_whole_and_so_far_and_no_other_is(size):
    for schedule in zoo_of([size]):
        drawing, title = drawn(schedule, COSTS), TITLES[schedule.name]
        rules = ShadedBoard(drawing).rules()["known"]
        same = {one["title"] for one in rules if one["rows"] == schedule.to_csv()}
        assert {*state_of(drawing)["names"]} == same and title in same
        chance = random.Random(1)
        for length in {1, len(drawing.placed) // 2} - {0}:
            part = Drawing(drawing.pipeline, drawing.placed[:length])
            assert title in state_of(part)["names"]
        for _ in range(10 if len(drawing.placed) > schedule.ranks else 0):
            rows = [[*row] for row in schedule.actions]
            row = chance.choice([row for row in rows if len(row) > 1])
            place = chance.randrange(len(row) - 1)
            row[place : place + 2] = reversed(row[place : place + 2])
            try:
                other = laid_out(Schedule(rows, schedule.stage_rank), drawing.pipeline)
            except ScheduleError:
                continue
            assert title not in state_of(other)["names"]


def test_nothing_drawn_and_what_breaks_a_rule_is_no_known_schedule():
    assert state_of(blank())["names"] == []
    hand = Hand(drawn(make("gpipe", 2, 3), Costs()))
    assert hand.state["names"] == ["GPipe"]
    last = hand.state["cells"][-1]
    moved = hand("move", **{"from": last}, rank=last["rank"], slot=0)
    assert moved["names"] == []


def test_the_best_known_is_that_of_the_simulator_under_the_same_costs_and_limit():
    for costs, backward in itertools.product((Costs(), COSTS), ("whole", "split", "either")):
        state = state_of(Drawing(Pipeline(loop(4), 8, costs, backward)))
        slots = {one["name"]: one["slots"] * state["slot"] for one in state["zoo"]}
        ends = {name: metrics.makespan(simulate(make(name, 4, 8, 1), costs)) for name in slots}
        assert slots == ends and len(ends) >= 6 and not {"inference", "zbv"} & {*ends}
        order = [(one["slots"], max(one["peak"])) for one in state["zoo"]]
        assert order == sorted(order)
        splits = {name for name in ends if name.startswith("zb_") or name == "interleaved_zb"}
        offered = {"whole": {*ends} - splits, "split": splits, "either": {*ends}}[backward]
        assert state["best"] in offered
        assert ends[state["best"]] == min(ends[name] for name in offered)


@pytest.mark.parametrize(
    "pipeline, best",
    [
        (Pipeline(loop(4), 8, Costs()), "1f1b"),
        (Pipeline(loop(4), 8, Costs(), limit=4), "1f1b"),
        (Pipeline(loop(4), 8, Costs(), limit=3), "naive"),
        (Pipeline(loop(4), 8, Costs(), limit=1), "naive"),
        (Pipeline(loop(4), 8, Costs(), "split", limit=3), None),
        (Pipeline(loop(4), 8, Costs(), "none"), "inference"),
        (Pipeline(vee(2), 4, Costs(), "either"), "zbv"),
    ],
)
def test_a_schedule_that_holds_more_than_the_limit_is_not_the_best_known(pipeline, best):
    assert state_of(Drawing(pipeline))["best"] == best


@pytest.mark.parametrize(
    "name, placement, overlaps, best",
    [
        ("dualpipev", vee(2), False, None),
        ("dualpipev", vee(2), True, "dualpipev"),
        ("pipedream", loop(2), False, None),
        ("1f1b", loop(2), False, "1f1b"),
    ],
)
def test_the_best_known_is_one_that_may_be_drawn_and_flushes(name, placement, overlaps, best):
    given, rules = given_of(Drawing(Pipeline(placement, 4, Costs(), "either", None, overlaps)))
    known = [one for one in rules["known"] if one["name"] == name]
    assert len(known) == 1
    code = "return m.stateOf(m.tableOf(v[0], v[1])).best;"
    assert node.run(RULES, code, given, {**rules, "known": known}) == best


def test_a_drawing_that_beats_the_best_known_says_so_and_one_that_equals_it_does_not():
    """Two ranks have 12 slots of work each, and the second starts one later: 13 is the least."""
    empty = Drawing(Pipeline(vee(2), 2, Costs(), "split"))
    hand = Hand(empty)
    known = next(one for one in hand.state["zoo"] if one["name"] == hand.state["best"])
    assert known["slots"] == 14 and not hand("known", name=known["name"])["beaten"]
    found = by_moves(empty)
    state = found["state"]
    assert state["score"]["slots"] == 13 and state["beaten"] and state["names"] == []
    assert not any(found["beaten"])
    shorter = "The drawing is shorter than the best known schedule, ZB-V with 14 slots."
    assert shorter in state["verdict"]
    wrong = Hand(drawing_of(state, empty.pipeline)).place("0F0", 1, 30)
    assert not wrong["beaten"]


@given(picks, st.integers(0, 7), st.sampled_from(["whole", "split"]))
@settings(max_examples=15, deadline=None)
def test_what_a_good_move_promises_is_reached_by_following_the_moves(picked, steps, backward):
    empty = Drawing(Pipeline(loop(3), 3, COSTS, backward))
    drawing = drawing_of(followed(empty, picked)[0], empty.pipeline)
    found = by_moves(replace(drawing, placed=drawing.placed[:steps]))
    assert all(ends == sorted(ends) for ends in found["ends"])
    best = [ends[0] for ends in found["ends"]]
    assert best == sorted(best, reverse=True)
    assert found["state"]["complete"] and found["state"]["end"] == best[-1]


def test_from_an_empty_grid_the_moves_lead_to_a_schedule_as_good_as_the_best_known():
    for backward, name in (("whole", "1f1b"), ("split", "zb_h1")):
        state = by_moves(Drawing(Pipeline(loop(3), 4, Costs(), backward)))["state"]
        known = {one["name"]: one["slots"] for one in state["zoo"]}
        assert state["complete"] and state["score"]["slots"] <= known[name]


def test_the_moves_are_those_of_the_rank_that_may_go_on_first_and_the_worse_one_costs_more():
    """A W early on the rank that others wait for puts all of them off."""
    drawing = put(blank(2, 2, backward="split"), ("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 1, 2))
    found = moves_of(put(drawing, ("0F1", 0, 1), ("0I0", 0, 3)))
    assert [(action, end) for action, end, _ in found] == [("1F1", 7), ("1W0", 8)]
    assert all(order for *_, order in found)


def test_a_good_move_is_to_do_as_the_known_where_whoever_can_start_first_gets_stuck():
    """ZB-V within its own memory, which a forward too early fills for good."""
    known = drawn(make("zbv", 2, 4), Costs(latency=1.0), limit=4)
    found = by_moves(Drawing(known.pipeline))
    assert all(ends[0] is not None and ends[0] <= known.end for ends in found["ends"])
    state = found["state"]
    assert state["complete"] and state["end"] == known.end and state["broken"] == 0


def test_what_a_move_promises_counts_from_where_the_drawn_actions_stand():
    known = drawn(make("zbv", 2, 4), Costs(latency=1.0), limit=4)
    late = tuple(one._replace(slot=one.slot + 10) for one in known.placed[:3])
    _, end, order = moves_of(Drawing(known.pipeline, late))[0]
    assert (order, end) == ("zbv", known.end + 10)


def test_no_move_is_named_while_a_rule_is_broken_or_nothing_is_left():
    for drawing, words in (
        (put(blank(), ("1F0", 1, 0)), "First mend the broken rule."),
        (drawn(make("1f1b", 2, 3), Costs()), "Every action is drawn."),
    ):
        assert Hand(drawing)("advise")["advice"] == {"words": words, "move": None}


gestures = st.lists(
    st.tuples(
        st.sampled_from(["place", "move", "remove", "reset", "known", "limit", "tighten"]), cells
    ),
    max_size=12,
)


@given(gestures)
@settings(max_examples=60, deadline=None)
def test_any_gestures_undone_are_the_start_and_redone_the_end(done):
    hand = Hand(Drawing(Pipeline((0, 1, 0), 2, Costs(), "either")))
    start = hand.state
    for what, cell in done:
        drawn_now = there(hand.state)
        spot = {"rank": cell[1], "slot": cell[2]}
        if what == "limit":
            hand("set", limit=cell[2] + 1)
        elif what in ("move", "remove"):
            if drawn_now:
                hand(what, **{"from": at(*drawn_now[0])}, **spot)
        else:
            hand(what, name="gpipe", action=cell[0], **spot)
    end = hand.state
    for _ in range(len(done) + 1):
        first = hand("undo")
    assert {**first, "redo": 0} == start
    for _ in range(len(done) + 1):
        last = hand("redo")
    assert last == {**end, "said": "", "advice": None}


def test_what_changes_nothing_is_no_step_and_a_new_step_ends_what_was_undone():
    hand = Hand(blank())
    assert hand("reset")["undo"] == 0
    hand.place("0F0", 0, 0)
    hand("undo")
    state = hand.place("0F1", 0, 0)
    assert (state["undo"], state["redo"]) == (1, 0)
    assert there(hand("redo")) == [("0F1", 0, 0)]


def test_an_action_is_added_on_its_own_rank_at_its_first_legal_slot_or_behind_the_last():
    hand = Hand(blank())
    for text in ("0F0", "1F0", "0F1", "1B0", "1F2"):
        state = hand("place", action=text)
    placed = [(cell["action"], cell["rank"], cell["slot"]) for cell in state["cells"]]
    assert placed == [("0F0", 0, 0), ("1F0", 1, 1), ("0F1", 0, 1), ("1B0", 1, 2), ("1F2", 1, 4)]
    assert [cell["action"] for cell in state["cells"] if cell["faults"]] == ["1F2"]
    assert "the stages are 0 to 1" in hand("place", action="2F0")["said"]


CSVS = [
    "", "frog", "0F0,0F0\n1F0", "0F0,0B0\n1F0,1B0", "0B0,0F0\n1F0,1B0\n", "1F0\n0F0",
    "0F0\n\n1F0", "0F0,1F0\n", "0F0,0B0,0I0\n1F0", "\ufeff0F0;\n", "0F0,2F0\n1F0,1F1,1F2,1F3,1F4",
    "0F0 / 1F0 1F1 1F2 1B2 1B1 1F7", "0F0,0F1\n\n", "0F0\n0F1", "\ufeff0F0,0B0\r\n1F0,1B0\r\n",
    "0F0,0F1,0F2,0B0,0F3,0B2,0B1,0B3,0B4,0F4,0B5\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3",
    "0F0,0Z0\n1F0", "(0F0;0F1)OVERLAP_F_B\n1F0", "0F0,(0F1;0B0)OVERLAP_F_B\n1F0,1B0",
    "2F0\n1F0,0F0", "5F0", "0F0\n1F0,1B0,0B0", "0F0 0B0 / 1F0 1B0", "0F0,0B0/1F0,1B0\n",
]  # fmt: skip
LATER = "without a kernel only one of this size"


@pytest.mark.parametrize("level", [None, LEVELS[0]])
def test_a_csv_is_drawn_or_refused_as_by_the_kernel_and_in_its_words(level):
    pipeline = level.pipeline(Costs()) if level else Pipeline(loop(2), 4, Costs())
    seen = []
    for text in CSVS:
        hand, board = Hand(Drawing(pipeline), level), DrawingBoard(Drawing(pipeline), level)
        state, said = hand("csv", text=text), ""
        try:
            board.start(board.read(text))
        except ValueError as error:
            said = str(error)
        if LATER in state["said"]:
            seen.append("away")
            assert board.drawing.pipeline.stage_rank != pipeline.stage_rank or "too many" in said
        else:
            seen.append("refused" if said else "drawn")
            assert state["said"] == said, text
            assert drawing_of(state, pipeline) == board.drawing, text
    assert {"drawn", "refused"} <= {*seen} and ("away" in seen) == (level is None)


LISTS = ("stage", "microbatch", "start", "length", "half", "source")


def spread(picture):
    """A picture with its columns as lists, and without what names it."""
    count = len(picture["kind"])
    picture = {k: v for k, v in picture.items() if k not in ("name", "title")}
    for name in LISTS:
        value = picture[name]
        picture[name] = value if isinstance(value, list) else [value] * count
    total = sum(picture["held"]["counts"])
    for name in ("time", "many"):
        value = picture["held"][name]
        picture["held"][name] = value if isinstance(value, list) else [value] * total
    return json.loads(json.dumps(picture))


def test_a_drawing_is_played_in_the_browser_as_it_is_simulated_in_python():
    values = {"latency": 0.5, "slow_stage": None, "backward": None}
    costs = Costs(1.5, None, 1.0, 0.5, latency=0.5)
    given, expected = [], []
    for name in NAMES:
        for ranks, microbatches in ((1, 2), (2, 4), (3, 6)):
            whole = drawn(make(name, ranks, microbatches), costs)
            for count in {len(whole.placed), 2 * len(whole.placed) // 3, 1}:
                part = Drawing(whole.pipeline, whole.placed[:count])
                board = ShadedBoard(part)
                given.append({"state": board.state(), "rules": {"known": [], "level": None}})
                made = replace(part.schedule(), name=DRAWN)
                expected.append(picture_of(made, played(made, costs), values))
    code = """return v[0].map(({ state, rules }) =>
        pictureOf(m.tableOf(state, rules).present, state.shades));"""
    found = node.run("board/rules.js", code, given, also={"pictureOf": "board/picture.js"})
    for ours, theirs in zip(expected, found, strict=True):
        ours = spread(ours)
        assert [*ours] == [*theirs]
        for key, value in ours.items():
            if key in ("makespan", "ratio", "fraction", "inside"):
                assert theirs[key] == pytest.approx(value, abs=1e-9), key
            else:
                assert theirs[key] == value, (key, theirs["kind"])
