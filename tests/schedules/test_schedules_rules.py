"""Actions, the rules of a legal schedule, and how a broken one is explained."""

from __future__ import annotations

import re

import pytest

from dlviz import Costs, simulate
from dlviz.analysis.columns import ACTIONS
from dlviz.machine.machine import FORWARDS
from dlviz.schedules import (
    NAMES,
    Action,
    Schedule,
    ScheduleError,
    from_csv,
    make,
    needs,
    overlap,
    parse,
)
from dlviz.schedules.action import CODES
from dlviz.schedules.rules import check_progress
from dlviz.trace import chrome


def schedule(*rows, stage_rank=None):
    """One row a rank, as text; stage r lives on rank r unless it is said."""
    actions = [[parse(cell) for cell in row.split()] for row in rows]
    return Schedule(actions, stage_rank or tuple(range(len(rows))))


def explained(*rows, stage_rank=None):
    """The error that `check` raises."""
    with pytest.raises(ScheduleError) as raised:
        schedule(*rows, stage_rank=stage_rank).check()
    assert isinstance(raised.value, ValueError)
    return raised.value


@pytest.mark.parametrize("text", ["2F0", "10B31", "0I7", "3W2", "(0F7;7B3)OVERLAP_F_B"])
def test_an_action_is_printed_as_it_is_read(text):
    assert str(parse(text)) == repr(parse(f" {text} ")) == text


def test_an_overlap_has_two_parts():
    one, other = Action(0, "F", 7), Action(7, "B", 3)
    assert parse("(0F7;7B3)OVERLAP_F_B") == overlap(one, other)
    assert overlap(one, other).parts == overlap(one, other).halves == (one, other)
    assert (one.parts, one.halves) == ((), (one,))


@pytest.mark.parametrize(
    "text", ["", "F0", "2X0", "2F", "-1F0", "0SEND_F1", "2F0 2F1", "(0F1)OVERLAP_F_B", "٣F0"]
)
def test_what_is_no_action_is_refused(text):
    with pytest.raises(ValueError, match=r"is not an action: write stage, F, B, I or W, and micro"):
        parse(text)


def test_what_an_action_needs():
    def needed(text, stages=4):
        return [[str(one) for one in choice] for choice in needs(parse(text), stages)]

    assert needed("0F5") == []
    assert needed("2F5") == [["1F5"]]
    assert needed("2B5") == needed("2I5") == [["2F5"], ["3B5", "3I5"]]
    assert needed("3B5") == [["3F5"]]
    assert needed("2W5") == [["2I5"]]


def test_the_first_stop_is_explained_with_what_it_needs_and_the_row_up_to_there():
    error = explained("0B0 0F0", "1F0 1B0")
    assert str(error) == (
        "rank 0 stops before its 1st action, 0B0: it needs 0F0 and 1B0, which never ran; rank 1, "
        "which has 1B0, stops before 1F0; its row up to there: [0B0]."
    )
    assert (error.rank, error.index, error.needs) == (0, 0, [parse("0F0"), parse("1B0")])


def test_ranks_that_wait_for_each_other_are_named():
    error = explained("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
    assert str(error) == (
        "rank 0 stops before its 2nd action, 0B0: it needs 1B0, which never ran; rank 1, which has "
        "1B0, stops before 1F1; its row up to there: 0F0 [0B0]."
    )


def test_of_a_long_row_the_last_actions_are_shown():
    forwards = " ".join(f"0F{i}" for i in range(9))
    shown = "... 0F2 0F3 0F4 0F5 0F6 0F7 0F8 [0F8]."
    assert str(explained(f"{forwards} 0F8 0B0")).endswith(f"; its row up to there: {shown}")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            ["0F0 0B0 0B0"],
            "rank 0 runs 0B0 twice, as its 2nd and 3rd action; its row up to there: 0F0",
        ),
        (["0F0 0B0 0I0"], "rank 0 runs both 0B0 and 0I0: a B is its I and its W; its row"),
        (["0F0 0W0 0B0"], "rank 0 runs both 0W0 and 0B0: a B is its I and its W; its row"),
        (["0F0 1F0 1B0 0B0", "1F0 1B0"], "rank 0 cannot run 1F0: stage 1 is on rank 1; its row"),
        (["0F0 2F0 0B0"], "rank 0 cannot run 2F0: the stages are 0 to 0; its row up to there: 0F0"),
        (["0F0 0F1 0B0", "1F0 1B0 1F1 1B1"], "rank 0 never runs 0B1: each F has its B, or its I"),
        (["0F0 0I0"], "rank 0 never runs 0W0: each F has its B, or its I and W; its row: 0F0 0I0"),
        (["0F0 0W0"], "rank 0 never runs 0I0: each F has its B, or its I and W; its row: 0F0 0W0"),
        (["0B0"], "rank 0 never runs 0F0: each F has its B, or its I and W; its row: 0B0"),
        (["0F0 0B0", "1F0"], "rank 1 never runs 1B0: each F has its B, or its I and W; its row"),
        (["0F0 0F1", "1F1"], "rank 1 never runs 1F0: every stage runs each of the 2 microbatches"),
        (["0F0", ""], "rank 1 never runs 1F0: every stage runs each of the 1 microbatches; its "),
        (["0F0 0W0 0I0"], "rank 0 stops before its 2nd action, 0W0: it needs 0I0, which never ran"),
        (["(0F0;0B0)OVERLAP_F_B"], "rank 0 stops before its 1st action, (0F0;0B0)OVERLAP_F_B: it"),
        (["(0F0;0F1)OVERLAP_F_B"], "rank 0 cannot run (0F0;0F1)OVERLAP_F_B: an overlap is one for"),
        (["0F0 (0F1;0W0)OVERLAP_F_B"], "rank 0 cannot run (0F1;0W0)OVERLAP_F_B: an overlap is on"),
        ([""], "the schedule has no actions"),
    ],
)
def test_each_rule_that_is_broken_is_explained(rows, says):
    assert str(explained(*rows)).startswith(says)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (Action(0, "X", 0), "rank 0 cannot run 0X0: 'X' is not one of the kinds F, B, I and W"),
        (Action(0, "F", -1), "rank 0 cannot run 0F-1: microbatches are counted from 0"),
        (Action(-1, "F", 0), "rank 0 cannot run -1F0: the stages are 0 to 0"),
    ],
)
def test_an_action_that_cannot_be_is_explained_by_check_and_by_simulate(action, says):
    wrong = Schedule([[Action(0, "F", 0), action]], (0,))
    for refuse in (wrong.check, lambda: simulate(wrong)):
        with pytest.raises(ScheduleError) as raised:
            refuse()
        assert str(raised.value).startswith(says)


def test_a_stage_on_a_rank_that_is_not_there_is_named():
    assert str(explained("0F0", stage_rank=(1,))) == "stage 0 is on rank 1: the ranks are 0 to 0."


def test_a_forward_alone_is_legal_where_no_stage_has_a_backward():
    schedule("0F0 0F1", "1F1 1F0").check()


def test_i_serves_the_stage_before_and_w_comes_whenever():
    schedule("0F0 0I0 0W0", "1F0 1I0 1W0").check()
    schedule("0F0 0B0", "1F0 1I0 1W0").check()
    schedule("0F0 0I0 0W0", "1F0 1B0").check()


def test_a_row_is_printed_for_each_rank():
    one = make("1f1b", 2, 2)
    assert str(one) == "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1B0 1F1 1B1"
    assert repr(one) == "Schedule('1f1b', ranks=2, microbatches=2, chunks=1)"


SIZES = [(1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_csv_goes_out_and_comes_back(name, ranks, microbatches):
    made = make(name, ranks, microbatches)
    back = from_csv(made.to_csv())
    assert back.actions == made.actions and back.stage_rank == made.stage_rank
    assert Schedule.from_csv(made.to_csv().replace("\n", "\r\n")).actions == made.actions


def test_csv_is_a_line_a_rank_and_a_cell_an_action():
    assert make("1f1b", 2, 2).to_csv() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    spaced = " 0F0 ,,0F1,,0B0,0B1,,\n,1F0,1B0,1F1,1B1\n\n"
    assert from_csv(spaced).to_csv() == make("1f1b", 2, 2).to_csv()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0F0,0B0\n2F0,2B0\n", "no row runs stage 1: a rank's row is missing."),
        ("1F0,1B0\n2F0,2B0\n", "no row runs stage 0: a rank's row is missing."),
        ("0F0,0B0\n,,\n1F0,1B0\n", "row 2 (rank 1) has no actions."),
        ("", "no row runs stage 0: a rank's row is missing."),
        (
            "0F0,0Q0\n",
            "row 1 (rank 0): '0Q0' is not an action: write stage, F, B, I or W, and micro",
        ),
        (
            "0F0,0B0\n1F0,1SEND_B0\n",
            "row 2 (rank 1): '1SEND_B0' is not an action: write stage, F, ",
        ),
        (
            "0F0,0F0,0B0\n",
            "rank 0 runs 0F0 twice, as its 1st and 2nd action; its row up to there: ",
        ),
        (
            "0F0,0B0\n1F0,1B0,0F1\n",
            "row 2 (rank 1) runs 0F1, yet row 1 (rank 0) runs stage 0 as well: a stage is on",
        ),
        ("0F0,0F999999999\n999999999F0\n", "no row runs stage 1: a rank's row is missing."),
    ],
)
def test_a_csv_that_is_wrong_is_refused_in_one_sentence(text, says):
    with pytest.raises(ScheduleError) as raised:
        from_csv(text)
    message = str(raised.value)
    assert message.startswith(says) and message.endswith(".") and "\n" not in message


def test_a_csv_of_an_illegal_order_is_read_and_check_explains_it():
    drawn = from_csv("0B0,0F0\n")
    with pytest.raises(ScheduleError, match="^rank 0 stops before its 1st action, 0B0"):
        drawn.check()
    drawn = from_csv("0F0,0F999999999\n")
    with pytest.raises(ScheduleError, match="^rank 0 never runs 0F1: every stage runs each of the"):
        drawn.check()
    with pytest.raises(ScheduleError, match="^rank 0 never runs 0F1: every stage runs each of the"):
        simulate(drawn)


def test_a_trace_the_costs_and_a_machine_call_the_kinds_alike():
    """The Trace's files spell them themselves: the layer imports nothing."""
    assert chrome.CODES == CODES and ACTIONS == (*CODES,)
    assert {*CODES} <= {*vars(Costs())} and {*CODES} <= {*FORWARDS}


def test_a_rank_that_waits_goes_on_once_one_of_two_that_run_the_same_has():
    """Rank 2 never comes to its 0F0; that of rank 0 is what rank 1 waits for."""
    with pytest.raises(ScheduleError, match="^rank 2 stops before its 1st action, 2B0"):
        check_progress(schedule("0F0", "1F0", "2B0 0F0"))


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_equal_to_what_its_csv_is_read_as(name):
    made = make(name, 3, 6)
    back = from_csv(made.to_csv(), flushes=made.flushes)
    assert back == made and not back.name
    assert made != make(name, 3, 9)
    assert (from_csv(made.to_csv()) == made) == made.flushes


def test_actions_may_be_text_and_rows_may_be_tuples():
    assert Schedule([["0F0", "0B0"], ("1F0", Action(1, "B", 0))], [0, 1]) == make("1f1b", 2, 1)


@pytest.mark.parametrize(
    ("actions", "stage_rank", "says"),
    [
        ([["0F0", "0X0"]], (0,), "row 1 (rank 0): '0X0' is not an action: write stage, F"),
        ([["0F0"], [1.5]], (0, 1), "row 2 (rank 1): '1.5' is not an action"),
        (["0F0", "0B0"], (0,), "row 1 (rank 0): '0F0' is not a row: a row is a list of actions."),
        ([["0F0", "0B0"]], 0, "stage_rank=0 has to be the rank of each stage, as in (0, 1)."),
        ([["0F0", "0B0"]], ("a",), "stage_rank=('a',) has to be the rank of each stage"),
    ],
)
def test_what_holds_no_actions_is_refused_in_a_sentence(actions, stage_rank, says):
    with pytest.raises(ScheduleError, match=re.escape(says)):
        Schedule(actions, stage_rank)


def test_a_schedule_says_what_it_is():
    assert repr(make("1f1b", 3, 4)) == "Schedule('1f1b', ranks=3, microbatches=4, chunks=1)"
    own = from_csv("0F0 0B0", flushes=False)
    assert repr(own) == "Schedule(flushes=False, ranks=1, microbatches=1, chunks=1)"
