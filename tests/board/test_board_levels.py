"""The levels: each can be solved, by its schedule alone of those before, and no faster."""

from __future__ import annotations

import pytest

from dlviz import Costs, metrics, simulate
from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.levels import LEVELS
from dlviz.schedules import NAMES, TITLES, make

NUMBERS = range(1, len(LEVELS) + 1)


def level_of(number):
    return LEVELS[number - 1]


def chunks_of(level):
    return len(level.stage_rank) // (max(level.stage_rank) + 1)


def schedule_of(level, name=None):
    ranks = max(level.stage_rank) + 1
    return make(name or level.answer, ranks, level.microbatches, chunks_of(level))


def answered(level, name=None):
    """The level's grid with a schedule of the zoo on it, its own if none is named."""
    return laid_out(schedule_of(level, name), level.pipeline(Costs()))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_level_is_solved_by_its_schedule_and_by_no_empty_grid(number):
    level = level_of(number)
    drawing = answered(level)
    assert level.solved(drawing)
    assert not level.solved(Drawing(drawing.pipeline))
    assert not level.solved(Drawing(drawing.pipeline, drawing.placed[:-1]))


def least(level):
    """The fewest slots that any schedule takes: a rank starts after the forwards before its first
    stage, has its own work, and where a backward is whole those of the stages before it follow."""
    work = 3 * level.microbatches * chunks_of(level)
    bounds = []
    for rank in range(max(level.stage_rank) + 1):
        first = level.stage_rank.index(rank)
        bounds.append(first + work + (2 * first if level.backward == "whole" else 0))
    return max(bounds)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_target_is_what_the_best_known_takes_and_no_schedule_can_take_less(number):
    level = level_of(number)
    assert answered(level).slots == level.slots == least(level)


@pytest.mark.parametrize("number, name", [(2, "naive"), (3, "gpipe"), (5, "1f1b"), (6, "zb_h1")])
def test_what_solved_the_level_before_does_not_solve_the_next(number, name):
    assert not level_of(number).solved(answered(level_of(number), name))


def test_chunks_take_less_than_1f1b_on_the_same_ranks_and_a_v_less_memory_than_zb_h2():
    """Where the stages are others than before, the schedule before is measured in the same work."""
    four = level_of(4)
    assert "30 that 1F1B" in four.question
    assert drawn(make("1f1b", 2, four.microbatches), Costs()).slots * 2 == 30 > four.slots
    seven = level_of(7)
    held = metrics.peak_in_flight(simulate(make("zb_h2", 2, seven.microbatches), Costs()))
    assert max(held) * chunks_of(seven) > seven.limit


def test_a_cap_of_one_less_is_impossible():
    """1F1B: a microbatch is held for the 9 slots of its round trip, and one comes every 3.
    ZB-H2 and ZB-V: until the first gradient is back on rank 0, that rank can only run forwards."""
    assert level_of(3).limit == (3 * 3) // 3 == level_of(5).limit
    for number, until in ((6, 2 * 3 - 1), (7, 4)):
        level = level_of(number)
        row = [one for one in answered(level).placed if one.rank == 0][: until + 1]
        assert [one.action.kind for one in row] == ["F"] * until + ["I"]
        assert level.limit == until


def test_idle_slots_inside_are_those_of_the_simulator():
    for number in NUMBERS:
        level = level_of(number)
        spans = simulate(schedule_of(level), Costs()).spans
        gaps = []
        for rank in {*spans.rank.tolist()}:
            mine = spans[spans.rank == rank]
            gaps.append(mine.end.max() - mine.start.min() - (mine.end - mine.start).sum())
        assert answered(level).idle == pytest.approx(max(gaps))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_level_says_what_it_asks_in_a_question_and_names_no_schedule_before_it_is_solved(number):
    level = level_of(number)
    asked = f"{level.title} {level.question}"
    assert level.question.endswith("?") and level.lesson.endswith(".") and level.source
    assert "level" not in asked, "a lab may offer this one alone"
    assert level.answer in NAMES and TITLES[level.answer] not in asked
    ratio = metrics.bubble_ratio(simulate(schedule_of(level), Costs()))
    numbers = [word.rstrip(",.;") for word in level.lesson.split() if word.startswith("0.")]
    if numbers:
        assert float(numbers[0]) == pytest.approx(ratio, abs=5e-4)
