"""Schedules drawn by hand as the kernel has them: their times, what may be played, CSV, history."""

from __future__ import annotations

import itertools

import pytest

from dlviz import metrics
from dlviz.board.board import DrawingBoard
from dlviz.board.csv import from_csv
from dlviz.board.drawing import Drawing, Placed, drawn
from dlviz.board.history import History
from dlviz.board.levels import LEVELS
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, Action, Schedule, ScheduleError, make, overlap, parse
from dlviz.schedules.orders import loop
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
    new = (Placed(parse(action), rank, slot) for action, rank, slot in cells)
    return Drawing(drawing.pipeline, (*drawing.placed, *new))


def times(trace):
    """{(stage, kind code, microbatch, "start" or "end"): seconds} of a simulated schedule."""
    codes = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
    spans = trace.spans
    return {
        (int(stage), codes[kind], int(microbatch), which): at
        for which, column in (("start", spans.start), ("end", spans.end))
        for stage, kind, microbatch, at in zip(
            spans.stage, spans.kind, spans.microbatch, column, strict=True
        )
    }


def drawn_times(drawing):
    slot = float(drawing.pipeline.slot)
    return {
        (*half[:3], which): at * slot
        for placed in drawing.placed
        for half in placed.action.halves
        for which, at in (("start", placed.slot), ("end", drawing.ends(placed)))
    }


@pytest.mark.parametrize("costs", [Costs(), COSTS, Costs(0.5, None, 0.25, 0.75, 0.25)])
def test_a_schedule_is_drawn_at_the_times_that_the_simulator_gives(costs):
    for schedule in zoo_of():
        drawing = drawn(schedule, costs)
        assert drawing.legal and drawing.complete, schedule
        trace = simulate(schedule, costs)
        assert drawn_times(drawing) == pytest.approx(times(trace)), schedule
        seconds = drawing.slots * float(drawing.pipeline.slot)
        assert seconds == pytest.approx(metrics.makespan(trace))
        assert drawing.rows() == schedule.actions
        part = Drawing(drawing.pipeline, drawing.placed[:-1])
        assert part.legal and not part.complete


def test_costs_by_stage_and_of_overlaps_are_drawn_as_they_are_simulated():
    schedule = make("dualpipev", 2, 4)
    costs = Costs(forward=[1.0, 2.0, 1.0, 1.0], overlapped=2.5, latency=0.5)
    drawing = drawn(schedule, costs)
    assert drawn_times(drawing) == pytest.approx(times(simulate(schedule, costs)))


BROKEN = [
    ([("0F0", 1, 0)], {}, "rank 1 cannot run 0F0: stage 0 is on rank 0"),
    ([("0F0", 0, 0), ("0F0", 0, 4)], {}, "rank 0 runs 0F0 twice"),
    ([("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("1W0", 1, 6)], {}, "needs 1I0|a B is its I"),
    (
        [("0F0", 0, 0), ("1F0", 1, 1), ("1B0", 1, 2), ("0F1", 0, 1), ("1F1", 1, 3)],
        {},
        "1F1 is at slot 3 of rank 1, and cannot start before slot 4.",
    ),
    (
        [("0F0", 0, 3), ("1F0", 1, 2)],
        {},
        "1F0 is at slot 2 of rank 1, and cannot start before slot 4.",
    ),
    (
        [("0F0", 0, 0), ("1F0", 1, 2)],
        {"costs": Costs(latency=2.0)},
        "1F0 is at slot 2 of rank 1, and cannot start before slot 3.",
    ),
    ([("1F0", 1, 2)], {}, "rank 1 stops before its 1st action, 1F0: it needs 0F0"),
    (
        [("0F0", 0, 0), ("0F1", 0, 1), ("0F2", 0, 2)],
        {"limit": 2},
        r"0F2 \(rank 0, slot 2\) makes rank 0 hold 3 microbatches; the limit is 2. "
        "Run a B of rank 0 before 0F2.",
    ),
]


@pytest.mark.parametrize("cells, options, words", BROKEN)
def test_what_breaks_a_rule_is_not_played_and_the_place_is_named(cells, options, words):
    drawing = put(blank(**options), *cells)
    assert not drawing.legal and put(blank(**options), *cells[:-1]).legal
    with pytest.raises(ScheduleError, match=words) as caught:
        drawing.schedule()
    assert caught.value.rank == cells[-1][1]
    board = DrawingBoard(drawing)
    with pytest.raises(ValueError, match=words):
        board.schedule()


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
    put(blank(), ("0F0", 0, 0)).check()
    with pytest.raises(ValueError, match=words):
        put(blank(), ("0F0", 0, 0), cell).check()


def test_a_backward_where_there_are_none_and_two_forwards_as_an_overlap_are_refused():
    with pytest.raises(ValueError, match="this pipeline runs forwards only"):
        put(blank(backward="none"), ("0B0", 0, 0)).check()
    both = overlap(parse("0F0"), parse("0F1"))
    with pytest.raises(ValueError, match="one forward and one backward"):
        Drawing(blank().pipeline, (Placed(both, 0, 0),)).check()


def sent(board, *cells, **more):
    """A step of the page's: these cells, on the present drawing."""
    pipeline = board.drawing.pipeline
    names = ("backward", "limit", "overlaps")
    offered = {name: getattr(pipeline, name) for name in names}
    drawn = [dict(zip(("action", "rank", "slot"), cell, strict=True)) for cell in cells]
    return {"do": "draw", "on": board.name, "cells": drawn, "fault": "", **offered, **more}


def test_what_the_page_drew_is_taken_with_its_history_and_only_on_the_present_drawing():
    board = DrawingBoard(blank())
    first = board.name
    assert board.take(sent(board, ("0F0", 0, 0), name="a"))
    assert board.name == "a" and board.drawing == put(blank(), ("0F0", 0, 0))
    assert not board.take({**sent(board, ("0F1", 0, 0)), "on": first})
    assert board.name == "a" and board.state()["undo"] == 1
    assert board.take(sent(board, backward="split", limit=2, overlaps=True))
    assert board.drawing == blank(backward="split", limit=2, overlaps=True) and board.name != "a"
    for do, undo in (("undo", 1), ("undo", 0), ("undo", 0), ("redo", 1)):
        assert board.take({"do": do, "on": board.name})
        assert (board.state()["undo"], board.state()["redo"]) == (undo, 2 - undo)
    assert board.drawing == put(blank(), ("0F0", 0, 0))
    assert board.take({"do": "csv", "on": board.name, "text": "0F0 / 1F0 / 2F0"})
    assert board.drawing.pipeline.ranks == 3 and board.state()["redo"] == 0


@pytest.mark.parametrize(
    "cells, more, words",
    [
        ([("frog", 0, 0)], {}, "'frog' is not an action"),
        ([("7F0", 0, 0)], {}, "the stages are 0 to 1"),
        ([("0F0", 0, 0.5)], {}, "slot 0.5 is off the grid"),
        ([("0F0", "0", 0)], {}, "rank 0 does not exist"),
        ([], {"limit": 0}, "limit=0 has to be a whole number"),
        ([], {"backward": "both"}, "backward='both' is unknown: use one of whole, split, either"),
        ([], {"do": "csv", "text": "0F0,0F0\n1F0"}, "twice"),
    ],
)
def test_what_cannot_have_been_drawn_is_refused_and_changes_nothing(cells, more, words):
    board = DrawingBoard(put(blank(), ("0F0", 0, 0)))
    before = board.state()
    with pytest.raises(ValueError, match=words):
        board.take(sent(board, *cells, **more))
    assert board.state() == before


def test_on_the_board_of_a_level_the_pipeline_is_fixed():
    board = DrawingBoard(Drawing(LEVELS[2].pipeline(Costs())), LEVELS[2])
    for more in ({"limit": 9}, {"backward": "split"}, {"overlaps": True}):
        with pytest.raises(ValueError, match="A level is drawn by hand"):
            board.take(sent(board, **more))
    with pytest.raises(ValueError, match="another size or of other kinds"):
        board.take({"do": "csv", "on": board.name, "text": make("1f1b", 4, 5).to_csv()})
    assert board.take(sent(board, ("0F0", 0, 0))) and not board.solved


def test_a_history_holds_drawings_without_their_cached_properties():
    drawing = drawn(make("1f1b", 2, 3), Costs())
    assert drawing.legal and "legal" in vars(drawing)
    (previous,) = History(drawing).did(Drawing(drawing.pipeline)).past
    assert previous == drawing and {*vars(previous)} == {"pipeline", "placed", "fault"}


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


def test_csv_of_a_part_comes_back_with_its_empty_rows():
    drawing = put(blank(3, 4), ("0F0", 0, 0), ("0F1", 0, 5))
    back = from_csv(drawing.to_csv(), drawing.pipeline)
    assert back.pipeline == drawing.pipeline
    assert [placed.slot for placed in back.placed] == [0, 1]
    assert from_csv("", drawing.pipeline).placed == ()


@pytest.mark.parametrize(
    "text, words",
    [
        ("0F0,frog\n1F0", "'frog' is not an action"),
        ("0F0,0F0\n1F0", "twice"),
        ("1F0\n0F0,0B0", "rank 1 stops before its 2nd action|never ran|rank"),
        ("0B0,0F0\n1F0,1B0", "it needs 0F0"),
        ("0F0\n0F1", "a stage is on one rank"),
        ("0F0,0F999999999\n1F0", "too many to draw"),
        ("0F0 / 0F1", "a stage is on one rank"),
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
