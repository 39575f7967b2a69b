"""Schedules drawn by hand: what is a fault, what may come next, why a rank idles, what is known."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz import metrics
from dlviz.board.csv import from_csv
from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.grid import Placed
from dlviz.board.history import History
from dlviz.board.known import beats, best, recognised, zoo
from dlviz.board.moves import moves
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, Action, Schedule, ScheduleError, make, needs, overlap, parse
from dlviz.schedules.orders import loop, vee
from dlviz.sim import Costs, simulate

COSTS = Costs(forward=2.0, backward_input=1.0, backward_weight=3.0, latency=1.0)
SIZES = [(1, 1), (2, 3), (3, 6), (4, 8)]


def zoo_of(sizes=SIZES):
    for name, (ranks, microbatches) in itertools.product(NAMES, sizes):
        try:
            yield make(name, ranks, microbatches)
        except ValueError:
            continue  # not defined for this size


def blank(ranks=2, microbatches=3, costs=None, **options):
    return Drawing(Pipeline(loop(ranks), microbatches, costs or Costs(), **options))


def put(drawing, *cells):
    """With cells such as ("0F0", 0, 2)."""
    for action, rank, slot in cells:
        drawing = drawing.place(parse(action), rank, slot)
    return drawing


def times(trace):
    """{(stage, kind letter, microbatch, "start" or "end"): seconds} of a simulated schedule."""
    letters = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
    spans = trace.spans
    return {
        (int(stage), letters[kind], int(microbatch), which): at
        for which, column in (("start", spans.start), ("end", spans.end))
        for stage, kind, microbatch, at in zip(
            spans.stage, spans.kind, spans.microbatch, column, strict=True
        )
    }


def drawn_times(drawing):
    slot = float(drawing.pipeline.slot)
    return {
        (*half[:3], which): at * slot
        for half, placed in drawing.where.items()
        for which, at in (("start", placed.slot), ("end", drawing.ends(placed)))
    }


@pytest.mark.parametrize("costs", [Costs(), COSTS, Costs(0.5, None, 0.25, 0.75, 0.25)])
def test_a_schedule_is_drawn_at_the_times_that_the_simulator_gives(costs):
    for schedule in zoo_of():
        drawing = drawn(schedule, costs)
        assert drawing.faults == [] and drawing.complete, schedule
        trace = simulate(schedule, costs)
        assert drawn_times(drawing) == pytest.approx(times(trace)), schedule
        seconds = drawing.score.slots * float(drawing.pipeline.slot)
        assert seconds == pytest.approx(metrics.makespan(trace))
        held = [trace.memory.nbytes[trace.memory.rank == r].max() for r in range(schedule.ranks)]
        assert drawing.score.peak == tuple(held)
        assert drawing.rows() == schedule.actions


def test_costs_by_stage_and_of_overlaps_are_drawn_as_they_are_simulated():
    schedule = make("dualpipev", 2, 4)
    costs = Costs(forward=[1.0, 2.0, 1.0, 1.0], overlapped=2.5, latency=0.5)
    drawing = drawn(schedule, costs)
    assert drawn_times(drawing) == pytest.approx(times(simulate(schedule, costs)))


def test_the_ratio_of_a_drawing_is_that_of_the_metrics():
    for schedule in zoo_of():
        if schedule.name == "dualpipev":
            continue  # its halves run at once, and a rank is busy once in that time
        ratio = metrics.bubble_ratio(simulate(schedule, COSTS))
        assert drawn(schedule, COSTS).score.ratio == pytest.approx(ratio)


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_of_the_zoo_can_be_drawn_by_ghosts_alone(name):
    schedule = make(name, 3, 6)
    whole = drawn(schedule, COSTS)
    drawing, rows = whole.cleared(), [[*row] for row in schedule.actions]
    while any(rows):
        offered = {ghost.placed.action: ghost.placed for ghost in drawing.ghosts}
        rank = next(r for r, row in enumerate(rows) if row and row[0] in offered)
        drawing = drawing.place(*offered[rows[rank].pop(0)])
    assert drawing.faults == [] and drawing.complete and drawing.ghosts == []
    drawing.schedule().check()
    assert drawing.score.slots <= whole.score.slots


@given(st.randoms(use_true_random=False), st.sampled_from([None, 3]), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_whoever_follows_ghosts_draws_a_legal_schedule(chance, limit, way):
    placement = [loop(3), loop(2, 2), vee(2), loop(1)][way]
    backward = ["whole", "split", "either", "none"][chance.randrange(4)]
    drawing = Drawing(Pipeline(placement, 3, COSTS, backward, limit if way != 1 else None))
    while ghosts := drawing.ghosts:
        placed = chance.choice(ghosts).placed
        if placed.slot:
            before = drawing.place(placed.action, placed.rank, placed.slot - 1)
            assert before.faults, f"{placed} could start a slot earlier"
        drawing = drawing.place(*placed)
        assert drawing.faults == []
    if limit is not None and way != 1:
        assert max(drawing.score.peak) <= limit
    if limit is None:
        drawing.schedule().check()
        assert drawing.complete


@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_what_is_drawn_tight_has_the_simulated_times_and_what_is_not_is_no_earlier(chance):
    drawing = blank(3, 2, COSTS, backward="either")
    while ghosts := drawing.ghosts:
        drawing = drawing.place(*chance.choice(ghosts).placed)
    late = Drawing(
        drawing.pipeline,
        tuple(one._replace(slot=2 * one.slot + chance.randrange(2)) for one in drawing.placed),
    )
    for each in (drawing, drawing.tightened()):
        simulated = times(simulate(each.schedule(), COSTS))
        assert all(simulated[one] <= at for one, at in drawn_times(each).items())
    assert drawn_times(drawing.tightened()) == pytest.approx(simulated)
    if not late.faults:
        assert late.tightened().score.slots <= late.score.slots


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
    st.tuples(st.integers(0, 2), st.sampled_from("FBIW"), st.integers(0, 1)).map(
        lambda parts: Action(*parts)
    ),
    st.integers(0, 1),
    st.integers(0, 9),
)


@given(st.lists(cells, max_size=6, unique=True))
@settings(max_examples=200, deadline=None)
def test_a_drawing_has_a_fault_exactly_where_a_rule_is_broken(placed):
    drawing = Drawing(Pipeline((0, 1, 0), 2, Costs(latency=1.0), "either"))
    for one in placed:
        drawing = drawing.place(*one)
    assert (drawing.faults == []) == is_legal(drawing)
    for fault in drawing.faults:
        assert fault.placed in drawing.placed
        assert str(fault.placed.action) in fault.words and fault.mend.endswith(".")
        assert f"rank {fault.placed.rank}, slot {fault.placed.slot}" in fault.words
    if drawing.faults:
        with pytest.raises(ScheduleError, match=f"rank {drawing.faults[0].placed.rank}"):
            drawing.schedule()


FAULTS = {
    "rank": (
        [("0F0", 1, 0)],
        "0F0 (rank 1, slot 0) is on the wrong rank: stage 0 is on rank 0.",
        "Move 0F0 to the row of rank 0.",
        lambda drawing, bad: drawing.move(bad, 0, 0),
    ),
    "twice": (
        [("0F0", 0, 0), ("0F0", 0, 4)],
        "0F0 (rank 0, slot 4) is drawn twice: the other is at slot 0 of rank 0.",
        "Remove one of the two.",
        lambda drawing, bad: drawing.remove(bad),
    ),
    "repeated": (
        [("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("1W0", 1, 6)],
        "1W0 (rank 1, slot 6) repeats work of 1B0: a B consists of I and W.",
        "Remove one of the two.",
        lambda drawing, bad: drawing.remove(bad),
    ),
    "together": (
        [("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("0F1", 0, 1), ("1F1", 1, 3)],
        "1F1 (rank 1, slot 3) shares slot 3 with 1B0: a rank runs one action at a time.",
        "Move 1F1 to slot 4.",
        lambda drawing, bad: drawing.move(bad, 1, 4),
    ),
    "needs": (
        [("0F0", 0, 3), ("1F0", 1, 2)],
        "1F0 (rank 1, slot 2) needs 0F0 of rank 0, which is there only from slot 4 on.",
        "Move 1F0 to slot 4, or move 0F0 to an earlier slot.",
        lambda drawing, bad: drawing.move(bad, 1, 4),
    ),
    "needs what is not drawn": (
        [("1F0", 1, 2)],
        "1F0 (rank 1, slot 2) needs 0F0 of rank 0, which is not drawn.",
        "Draw 0F0 on rank 0 so that 0F0 ends by slot 2.",
        lambda drawing, bad: put(drawing, ("0F0", 0, 1)),
    ),
    "needs what cannot be in time": (
        [("1F0", 1, 0)],
        "1F0 (rank 1, slot 0) needs 0F0 of rank 0, which is not drawn.",
        "Draw 0F0 on rank 0, and move 1F0 behind 0F0.",
        lambda drawing, bad: put(drawing, ("0F0", 0, 0)).move(bad, 1, 1),
    ),
    "needs what cannot be in time for its own needs": (
        [("1B0", 1, 1)],
        "1B0 (rank 1, slot 1) needs 1F0 of rank 1, which is not drawn.",
        "Draw 1F0 on rank 1, and move 1B0 behind 1F0.",
        lambda drawing, bad: put(drawing, ("0F0", 0, 0), ("1F0", 1, 1)).move(bad, 1, 2),
    ),
    "needs what a drawn action holds up": (
        [("0F0", 0, 3), ("1F0", 1, 4), ("0B0", 0, 6)],
        "0B0 (rank 0, slot 6) needs 1B0 of rank 1, which is not drawn.",
        "Draw 1B0 on rank 1, and move 0B0 behind 1B0.",
        lambda drawing, bad: put(drawing, ("1B0", 1, 5)).move(bad, 0, 7),
    ),
    "needs what can be in time": (
        [("0F0", 0, 3), ("1F0", 1, 4), ("0B0", 0, 7)],
        "0B0 (rank 0, slot 7) needs 1B0 of rank 1, which is not drawn.",
        "Draw 1B0 on rank 1 so that 1B0 ends by slot 7.",
        lambda drawing, bad: put(drawing, ("1B0", 1, 5)),
    ),
    "memory": (
        [("0F0", 0, 0), ("0F1", 0, 1), ("0F2", 0, 2)],
        "0F2 (rank 0, slot 2) makes rank 0 hold 3 microbatches; the limit is 2.",
        "Run a B of rank 0 before 0F2.",
        lambda drawing, bad: drawing.remove(bad),
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_illegal_action_is_placed_explained_and_settles_once_mended(case):
    cells, words, mend, mending = FAULTS[case]
    drawing = put(blank(limit=2 if case == "memory" else None), *cells)
    bad = Placed(parse(cells[-1][0]), *cells[-1][1:])
    assert bad in drawing.placed
    fault = drawing.faults[0]
    assert (fault.placed, fault.words, fault.mend) == (bad, words, mend)
    assert fault.law == case.split()[0].replace("repeated", "twice")
    assert mending(drawing, bad).faults == []


def test_the_latency_of_a_message_is_in_the_advice_how_to_mend():
    drawing = put(blank(costs=Costs(latency=2.0)), ("1F0", 1, 5))
    assert drawing.faults[0].mend == "Draw 0F0 on rank 0 so that 0F0 ends by slot 3."
    assert put(drawing, ("0F0", 0, 2)).faults == []
    assert put(drawing, ("0F0", 0, 3)).faults[0].law == "needs"


def test_of_two_in_each_others_way_the_one_put_last_is_told_of():
    drawing = put(blank(), ("0F1", 0, 0), ("0F0", 0, 0))
    assert [str(fault.placed.action) for fault in drawing.faults] == ["0F0"]
    moved = drawing.move(Placed(parse("0F1"), 0, 0), 0, 5).move(Placed(parse("0F1"), 0, 5), 0, 0)
    assert [str(fault.placed.action) for fault in moved.faults] == ["0F1"]


@pytest.mark.parametrize(
    "cell, words",
    [
        (("2F0", 0, 0), "2F0 cannot be drawn: the stages are 0 to 1"),
        (("0F3", 0, 0), "0F3 cannot be drawn: the microbatches are 0 to 2"),
        (("0F0", 2, 0), "rank 2 does not exist: the ranks are 0 to 1"),
        (("0F0", 0, -1), "slot -1 is off the grid"),
        (("0F0", 0, 10**6), "slot 1000000 is off the grid"),
        (("0F0", 0, 0), "0F0 is already at slot 0 of rank 0"),
    ],
)
def test_what_the_pipeline_does_not_have_is_refused(cell, words):
    with pytest.raises(ValueError, match=words):
        put(blank(), ("0F0", 0, 0), cell)


def test_a_backward_is_refused_where_there_are_none():
    with pytest.raises(ValueError, match="this pipeline runs forwards only"):
        put(blank(backward="none"), ("0B0", 0, 0))


def test_two_forwards_are_no_overlap():
    both = overlap(parse("0F0"), parse("0F1"))
    with pytest.raises(ValueError, match="one forward and one backward"):
        blank().place(both, 0, 0)


def test_what_is_not_there_cannot_be_removed():
    with pytest.raises(ValueError, match="0F0 is not at slot 3 of rank 0"):
        put(blank(), ("0F0", 0, 0)).remove(Placed(parse("0F0"), 0, 3))


def test_every_pair_of_a_forward_and_a_backward_that_may_run_is_offered_as_an_overlap():
    drawing = drawn(make("dualpipev", 2, 4), Costs())
    early = Drawing(drawing.pipeline, drawing.placed[:12])
    pairs = {str(one.placed.action) for one in early.ghosts if one.placed.action.parts}
    assert pairs and all("OVERLAP_F_B" in pair for pair in pairs)
    alone = Drawing(replace(early.pipeline, overlaps=False), early.placed)
    assert not any(one.placed.action.parts for one in alone.ghosts)


def idle_slots(drawing):
    first = min(placed.slot for placed in drawing.placed)
    busy = {
        (placed.rank, slot)
        for placed in drawing.placed
        for slot in range(placed.slot, drawing.ends(placed))
    }
    everything = itertools.product(range(drawing.pipeline.ranks), range(first, drawing.end))
    return sorted(set(everything) - busy)


def could_run(drawing, rank, slot):
    """The actions of a rank that have not begun and have all they need at a slot."""
    pipeline = drawing.pipeline
    begun = {half for half, one in drawing.where.items() if one.slot < slot}
    ahead = {half for half in drawing.where if half not in begun} | {*drawing.left()}

    def arrived(choice):
        far = pipeline.stage_rank[choice[0].stage] != rank
        ends = [drawing.ends(drawing.where[one]) for one in choice if one in drawing.where]
        return any(end + pipeline.latency * far <= slot for end in ends)

    mine = {one for one in ahead if pipeline.rank_of(one) == rank}
    able = {one for one in mine if all(map(arrived, needs(one, pipeline.stages)))}
    return mine, able


@given(st.randoms(use_true_random=False), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_every_idle_slot_has_one_cause_and_the_right_one(chance, steps):
    drawing = Drawing(Pipeline(loop(2, 2), 3, COSTS, "either"))
    for _ in range(steps):
        if not drawing.ghosts:
            break
        placed = chance.choice(drawing.ghosts).placed
        later = placed._replace(slot=placed.slot + chance.choice([0, 0, 3]))
        tried = drawing.place(*later)
        drawing = drawing.place(*placed) if tried.faults else tried
    areas = sorted((a.rank, slot) for a in drawing.idle for slot in range(a.start, a.end))
    assert areas == idle_slots(drawing)
    for area in drawing.idle:
        for slot in range(area.start, area.end):
            mine, able = could_run(drawing, area.rank, slot)
            cause = "choice" if able else "waiting" if mine else "done"
            assert area.cause == cause
            if able:
                assert {*area.actions} == able
            if cause == "waiting":
                (missing,) = area.actions
                assert drawing.pipeline.rank_of(missing) != area.rank
                there = drawing.where.get(missing)
                assert there is None or drawing.ends(there) + drawing.pipeline.latency > slot
                assert str(missing) in area.words


def test_1f1b_waits_by_choice_and_gpipe_for_messages_alone():
    first = [one for one in drawn(make("1f1b", 4, 8), Costs()).idle if one.rank == 0][0]
    assert (first.start, first.end, first.cause) == (4, 10, "choice")
    assert first.words == "your choice: 0F4, 0F5, 0F6 and 1 more could have run here"
    causes = {one.cause for one in drawn(make("gpipe", 4, 8), Costs()).idle}
    assert causes == {"waiting", "done"}


def test_with_a_limit_it_is_no_choice_to_wait_for_room():
    idle = drawn(make("1f1b", 4, 8), Costs(), limit=4).idle
    first = next(one for one in idle if one.rank == 0)
    assert first.cause == "waiting" and first.words.startswith("waiting for 1B0 of rank 1")
    full = put(blank(1, 3, limit=1), ("0F0", 0, 0), ("0F1", 0, 4)).idle[0]
    assert full.cause == "choice" and "0B0 could have run" in full.words
    held = put(blank(2, 3, limit=1), ("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 5)).idle
    assert [one.cause for one in held if one.rank == 0] == ["waiting"]


def test_what_waits_for_an_action_that_stands_in_a_wrong_row_says_so():
    drawing = put(blank(backward="split"), ("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 0, 4))
    drawing = put(drawing, ("1W0", 1, 9))
    words = {one.words for one in drawing.idle if one.rank == 1 and one.cause == "waiting"}
    assert not any("None" in one for one in words)


def test_the_message_that_is_waited_for_is_named_with_its_time():
    drawing = drawn(make("gpipe", 2, 2), Costs(latency=1.0))
    first, *_ = [one for one in drawing.idle if one.rank == 1]
    assert first.words == "waiting for 0F0 of rank 0, which is there from slot 2 on"
    assert put(blank(), ("0F0", 0, 0), ("0F1", 0, 4)).idle[-1].words == (
        "your choice: 1F0 could have run here"
    )


@pytest.mark.parametrize("size", SIZES)
def test_each_schedule_of_the_zoo_is_recognised_whole_and_so_far_and_no_other_is(size):
    for schedule in zoo_of([size]):
        drawing = drawn(schedule, COSTS)
        same = [
            one.name for one in zoo(drawing.pipeline) if one.schedule.actions == schedule.actions
        ]
        assert recognised(drawing) == same and schedule.name in same
        chance = random.Random(1)
        for length in {1, len(drawing.placed) // 2} - {0}:
            part = Drawing(drawing.pipeline, drawing.placed[:length])
            assert schedule.name in recognised(part)
        for _ in range(10 if len(drawing.placed) > schedule.ranks else 0):
            rows = [[*row] for row in schedule.actions]
            row = chance.choice([row for row in rows if len(row) > 1])
            at = chance.randrange(len(row) - 1)
            row[at : at + 2] = reversed(row[at : at + 2])
            try:
                other = laid_out(Schedule(rows, schedule.stage_rank), drawing.pipeline)
            except ScheduleError:
                continue
            assert schedule.name not in recognised(other)


def test_nothing_drawn_and_what_breaks_a_rule_is_no_known_schedule():
    assert recognised(blank()) == []
    drawing = drawn(make("gpipe", 2, 3), Costs())
    assert recognised(drawing) == ["gpipe"]
    last = drawing.placed[-1]
    assert recognised(drawing.move(last, last.rank, 0)) == []


def test_the_best_of_the_zoo_is_that_of_the_simulator_under_the_same_costs_and_limit():
    for costs, backward in itertools.product((Costs(), COSTS), ("whole", "split", "either")):
        pipeline = Pipeline(loop(4), 8, costs, backward)
        ends = {
            one.name: metrics.makespan(simulate(make(one.name, 4, 8, 1), costs))
            for one in zoo(pipeline)
        }
        slots = {one.name: one.score.slots * float(pipeline.slot) for one in zoo(pipeline)}
        assert slots == ends and len(ends) >= 6 and not {"inference", "zbv"} & {*ends}
        known = best(pipeline)
        splits = {name for name in ends if name.startswith("zb_") or name == "interleaved_zb"}
        offered = {"whole": {*ends} - splits, "split": splits, "either": {*ends}}[backward]
        assert known and known.name in offered
        assert ends[known.name] == min(ends[name] for name in offered)


def test_a_schedule_that_holds_more_than_the_limit_is_not_the_best_known():
    def named(limit):
        known = best(Pipeline(loop(4), 8, Costs(), limit=limit))
        return known and known.name

    assert [named(limit) for limit in (None, 4, 3, 1)] == ["1f1b", "1f1b", "naive", "naive"]
    assert best(Pipeline(loop(4), 8, Costs(), "split", limit=3)) is None
    assert best(Pipeline(loop(4), 8, Costs(), "none")).name == "inference"
    assert best(Pipeline(vee(2), 4, Costs(overlapped=1.0), "either")).name == "zbv"
    with_overlaps = Pipeline(vee(2), 4, Costs(overlapped=1.0), "either", overlaps=True)
    assert best(with_overlaps).name == "dualpipev"


def test_a_drawing_that_beats_the_best_known_is_noted_and_one_that_equals_it_is_not():
    """Two ranks have 12 slots of work each, and the second starts one later: 13 is the least."""
    pipeline = Pipeline(vee(2), 2, Costs(), "split")
    known = best(pipeline)
    assert known.score.slots == 14 and not beats(laid_out(known.schedule, pipeline))
    drawing = Drawing(pipeline)
    while found := moves(drawing):
        assert not beats(drawing)
        drawing = drawing.place(*found[0].placed)
    assert drawing.score.slots == 13 and beats(drawing) and recognised(drawing) == []
    wrong = drawing.place(Action(0, "F", 0), 1, 30)
    assert not beats(wrong)


@given(st.randoms(use_true_random=False), st.sampled_from(["whole", "split"]))
@settings(max_examples=15, deadline=None)
def test_what_a_good_move_promises_can_be_kept_by_following_the_moves(chance, backward):
    drawing = Drawing(Pipeline(loop(3), 3, COSTS, backward))
    for _ in range(chance.randrange(8)):
        drawing = drawing.place(*chance.choice(drawing.ghosts).placed)
    promised = moves(drawing)[0].end
    assert promised is not None
    while found := moves(drawing):
        assert found[0].end <= promised
        promised = found[0].end
        assert [move.end for move in found] == sorted(move.end for move in found)
        drawing = drawing.place(*found[0].placed)
    assert drawing.complete and drawing.end == promised


def test_from_an_empty_grid_the_moves_lead_to_a_schedule_as_good_as_the_best_known():
    for backward in ("whole", "split"):
        drawing = Drawing(Pipeline(loop(3), 4, Costs(), backward))
        while found := moves(drawing):
            drawing = drawing.place(*found[0].placed)
        known = {one.name: one.score.slots for one in zoo(drawing.pipeline)}
        assert drawing.score.slots <= known["1f1b" if backward == "whole" else "zb_h1"]


def test_the_moves_are_those_of_the_rank_that_may_go_on_first_and_the_worse_one_costs_more():
    """A W early on the rank that others wait for puts all of them off."""
    drawing = put(blank(2, 2, backward="split"), ("0F0", 0, 0), ("1F0", 1, 1), ("1I0", 1, 2))
    drawing = put(drawing, ("0F1", 0, 1), ("0I0", 0, 3))
    found = moves(drawing)
    assert [str(move.placed.action) for move in found] == ["1F1", "1W0"]
    assert [move.end for move in found] == [7, 8]
    assert found[0].way and found[1].way


def test_a_good_move_is_to_do_as_the_zoo_where_whoever_can_start_first_gets_stuck():
    """ZB-V within its own memory, which a forward too early fills for good."""
    known = drawn(make("zbv", 2, 4), Costs(latency=1.0), limit=4)
    drawing = known.cleared()
    while found := moves(drawing):
        assert found[0].end is not None and found[0].end <= known.end
        drawing = drawing.place(*found[0].placed)
    assert drawing.complete and drawing.end == known.end and drawing.faults == []


def test_what_a_move_promises_counts_from_where_the_drawn_actions_stand():
    known = drawn(make("zbv", 2, 4), Costs(latency=1.0), limit=4)
    late = tuple(one._replace(slot=one.slot + 10) for one in known.placed[:3])
    (best_move, *_) = moves(Drawing(known.pipeline, late))
    assert (best_move.way, best_move.end) == ("zbv", known.end + 10)


def test_no_move_is_named_while_a_rule_is_broken_or_nothing_is_left():
    assert moves(put(blank(), ("1F0", 1, 0))) == []
    assert moves(drawn(make("1f1b", 2, 3), Costs())) == []


gestures = st.lists(
    st.tuples(st.sampled_from(["place", "move", "remove", "clear", "known", "limit"]), cells),
    max_size=12,
)


@given(gestures)
@settings(max_examples=60, deadline=None)
def test_any_gestures_undone_are_the_start_and_redone_the_end(done):
    start = Drawing(Pipeline((0, 1, 0), 2, Costs(), "either"))
    history = History(start)
    for what, (action, rank, slot) in done:
        now = history.present
        try:
            if what == "place":
                now = now.place(action, rank, slot)
            elif what == "move" and now.placed:
                now = now.move(now.placed[0], rank, slot)
            elif what == "remove" and now.placed:
                now = now.remove(now.placed[-1])
            elif what == "clear":
                now = now.cleared()
            elif what == "limit":
                now = replace(now, pipeline=replace(now.pipeline, limit=slot + 1))
            elif what == "known":
                now = laid_out(Schedule([[Action(0, "F", 0)], []], (0, 1, 0)), now.pipeline)
        except ValueError:
            continue
        history = history.did(now)
    end = history.present
    for _ in range(len(done) + 1):
        history = history.undo()
    assert history.present == start and history.past == ()
    for _ in range(len(done) + 1):
        history = history.redo()
    assert history.present == end and history.future == ()


def test_a_history_keeps_drawings_and_not_what_was_worked_out_of_them():
    drawing = drawn(make("1f1b", 2, 3), Costs())
    assert drawing.ghosts == [] and "ghosts" in vars(drawing)
    (kept,) = History(drawing).did(drawing.cleared()).past
    assert kept == drawing and {*vars(kept)} == {"pipeline", "placed"}


def test_what_changes_nothing_is_no_step_and_a_new_step_ends_what_was_undone():
    history = History(blank()).did(blank())
    assert history.past == ()
    history = history.did(put(blank(), ("0F0", 0, 0))).undo().did(put(blank(), ("0F1", 0, 0)))
    assert history.redo() == history and str(history.present.placed[0].action) == "0F1"


def test_csv_carries_the_order_and_comes_back_at_the_earliest_times():
    for schedule in zoo_of([(3, 6)]):
        drawing = drawn(schedule, COSTS)
        assert drawing.to_csv() == schedule.to_csv()
        back = from_csv(drawing.to_csv(), drawing.pipeline)
        assert {*back.placed} == {*drawing.placed}
        elsewhere = from_csv(drawing.to_csv(), Pipeline(loop(1), 1, COSTS))
        assert elsewhere.pipeline.stage_rank == schedule.stage_rank
        assert {*elsewhere.placed} == {*drawing.placed}


@pytest.mark.parametrize(
    "text", ["\ufeff0F0,0B0\r\n1F0,1B0\r\n", "0F0 0B0 / 1F0 1B0", "0F0,0B0/1F0,1B0\n"]
)
def test_a_csv_from_a_spreadsheet_and_one_on_one_line_are_read(text):
    drawing = blank(microbatches=1)
    assert from_csv(text, drawing.pipeline).rows() == Schedule.from_csv(text).actions
    assert [len(row) for row in Schedule.from_csv(text).actions] == [2, 2]


def test_an_action_is_added_on_its_own_rank_at_its_first_legal_slot_or_behind_the_last():
    drawing = blank()
    for text in ("0F0", "1F0", "0F1", "1B0", "1F2"):
        drawing = drawing.add(parse(text))
    placed = [(str(action), rank, slot) for action, rank, slot in drawing.placed]
    assert placed == [("0F0", 0, 0), ("1F0", 1, 1), ("0F1", 0, 1), ("1B0", 1, 2), ("1F2", 1, 4)]
    assert [str(fault.placed.action) for fault in drawing.faults] == ["1F2"]
    with pytest.raises(ValueError, match="the stages are 0 to 1"):
        drawing.add(parse("2F0"))


def test_csv_of_a_part_comes_back_with_its_empty_rows():
    drawing = put(blank(3, 4), ("0F0", 0, 0), ("0F1", 0, 5))
    back = from_csv(drawing.to_csv(), drawing.pipeline)
    assert back.pipeline == drawing.pipeline
    assert [placed.slot for placed in back.placed] == [0, 1]
    assert from_csv("", drawing.pipeline).placed == ()


@pytest.mark.parametrize(
    "text, words",
    [
        ("0F0,frog\n1F0", "'frog' is no action"),
        ("0F0,0F0\n1F0", "twice"),
        ("1F0\n0F0,0B0", "rank 1 stops before its 2nd action|never ran|rank"),
        ("0B0,0F0\n1F0,1B0", "it needs 0F0"),
        ("0F0\n0F1", "a stage lives on one rank"),
        ("0F0,0F999999999\n1F0", "too many to draw"),
        ("0F0 / 0F1", "a stage lives on one rank"),
    ],
)
def test_csv_that_is_no_schedule_is_refused_in_one_sentence(text, words):
    with pytest.raises(ValueError, match=words):
        from_csv(text, blank().pipeline)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"microbatches": 0}, "microbatches=0"),
        ({"limit": 0}, "limit=0"),
        ({"limit": 1.5}, "limit=1.5"),
        ({"limit": "many"}, "limit='many'"),
        ({"microbatches": 513}, "their product may be 1024 at most"),
        ({"backward": "both"}, "backward='both'"),
        ({"stage_rank": (0, 2)}, "each of the ranks 0 to 2"),
        ({"stage_rank": ()}, "each of the ranks"),
        ({"costs": Costs(backward_weight=0.0)}, "0W0 takes no time"),
        ({"costs": Costs(forward=1.0, latency=0.001)}, "use rounder costs"),
    ],
)
def test_a_pipeline_that_cannot_be_drawn_is_refused(options, words):
    given = {"stage_rank": (0, 1), "microbatches": 2, "costs": Costs(), **options}
    with pytest.raises(ValueError, match=words):
        Pipeline(**given)


def test_a_slot_is_the_longest_time_of_which_all_costs_are_multiples():
    pipeline = Pipeline((0, 1), 2, Costs(0.006, None, 0.004, 0.002, 0.001))
    assert float(pipeline.slot) == 0.001
    lasts = [pipeline.slots(Action(0, kind, 0)) for kind in "FBIW"]
    assert lasts == [6, 6, 4, 2] and pipeline.latency == 1


def test_a_drawing_in_part_is_a_schedule_of_its_own():
    part = put(blank(), ("0F0", 0, 0), ("1F0", 1, 1))
    part.schedule().check()  # of one forward
    assert metrics.makespan(simulate(part.schedule(), Costs())) == 2.0


def test_the_slots_are_whole_where_the_seconds_cannot_be_held_exactly():
    """0.1, 0.2 and 0.3 s are no binary fractions, and their sums in seconds are not either."""
    for schedule in zoo_of([(3, 6), (4, 8)]):
        drawing = drawn(schedule, Costs(0.1, None, 0.2, 0.3, 0.1))
        assert drawing.placed == drawn(schedule, Costs(1, None, 2, 3, 1)).placed
    costs = Costs(forward=[0.1, 0.2, 0.1, 0.1], overlapped=0.3, latency=0.1)
    ten = Costs(
        forward=[1, 2, 1, 1], backward_input=10, backward_weight=10, overlapped=3, latency=1
    )
    schedule = make("dualpipev", 2, 4)
    assert drawn(schedule, costs).placed == drawn(schedule, ten).placed
