"""The levels without a browser: what is drawn solves them, is kept, and goes on from there."""

from __future__ import annotations

import json
import re

import node
import pytest
import traitlets
from hand import draw_on
from matplotlib.figure import Figure

from dlviz import schedules
from dlviz.board.levels import LEVELS
from dlviz.schedules.papers import PAPERS
from dlviz.widgets import ScheduleLevels

ANSWERS = {
    number: schedules.make(
        level.answer,
        max(level.stage_rank) + 1,
        level.microbatches,
        len(level.stage_rank) // (max(level.stage_rank) + 1),
    ).to_csv()
    for number, level in enumerate(LEVELS, 1)
}


def state(levels):
    return json.loads(levels.state)


def board(levels):
    """What the page shows."""
    code = "return m.stateOf(m.tableOf(v[0], v[1], true));"
    return node.run("board/rules.js", code, *map(json.loads, (levels.board, levels.rules)))


def solved(levels):
    return [one["number"] for one in state(levels)["levels"] if one["solved"]]


def gesture(levels, **asked):
    assert draw_on(levels, **asked) == {}


def test_every_level_is_solved_by_its_schedule_and_none_is_locked():
    levels = ScheduleLevels()
    for number in reversed(range(1, len(LEVELS) + 1)):
        levels.level = number
        shown = board(levels)["level"]
        assert shown["question"] == LEVELS[number - 1].question and shown["answer"] is None
        gesture(levels, do="csv", text=ANSWERS[number])
        assert board(levels)["level"]["answer"]["name"] == LEVELS[number - 1].answer
        assert solved(levels) == [*range(number, len(LEVELS) + 1)]
    assert levels.drawings == ANSWERS


def test_what_is_drawn_on_a_level_is_there_again_after_another_and_in_a_new_widget():
    levels = ScheduleLevels([2, 3])
    gesture(levels, do="place", action="0F0", rank=0, slot=0)
    levels.level = 3
    assert board(levels)["cells"] == [] and board(levels)["limit"] == 3
    gesture(levels, do="csv", text=ANSWERS[3])
    levels.level = 2
    assert [cell["action"] for cell in board(levels)["cells"]] == ["0F0"]
    gesture(levels, do="undo")
    assert board(levels)["cells"] == []
    again = ScheduleLevels([3, 2], drawings=levels.drawings)
    assert solved(again) == [3] and again.level == 3
    assert board(again)["csv"] == ANSWERS[3]
    again.level = 2
    assert [cell["action"] for cell in board(again)["cells"]] == ["0F0"]


def test_a_level_once_solved_stays_solved_while_the_reader_draws_on():
    levels = ScheduleLevels([3], drawings={3: ANSWERS[3]})
    gesture(levels, do="reset")
    gesture(levels, do="place", action="0F0")
    assert board(levels)["level"]["answer"] is None
    assert solved(levels) == [3] and levels.drawings == {3: ANSWERS[3]}


def test_the_known_schedule_stands_beside_the_drawing_until_another_level_is_chosen():
    levels = ScheduleLevels([3, 5], drawings={3: ANSWERS[3]})
    levels.beside = "1f1b"
    first, second = state(levels)["sides"]
    assert (first["name"], second["name"]) == ("drawn", "1f1b")
    assert first["makespan"] == second["makespan"] == 21
    levels.level = 5
    assert levels.beside == "" and len(state(levels)["sides"]) == 1


def test_what_was_measured_on_a_level_is_not_shown_on_another_of_the_same_size(monkeypatch):
    monkeypatch.setattr(
        "dlviz.widgets.schedules.explorer.run",
        lambda made, trace, costs, progress: ({"summary": []}, trace),
    )
    levels = ScheduleLevels([3, 5], drawings={3: ANSWERS[3], 5: ANSWERS[5]})
    levels.run()
    assert state(levels)["run"] == {"summary": []} and levels.measured is not None
    levels.level = 5
    assert state(levels)["run"] is None and levels.measured is None


def test_a_level_gives_its_pipeline_whatever_is_set():
    levels = ScheduleLevels([4])
    pipeline = levels._board.drawing.pipeline
    for name, value in (("schedule", "gpipe"), ("ranks", 7), ("forward", 3.0), ("latency", 1.0)):
        setattr(levels, name, value)
        assert levels._board.drawing.pipeline == pipeline and state(levels)["error"] == ""
        assert state(levels)["sides"][0]["name"] == "drawn"
    levels.csv = schedules.make("gpipe", 3, 3).to_csv()
    assert "another size" in state(levels)["error"]
    assert levels._board.drawing.pipeline == pipeline


def test_what_is_no_level_or_no_drawing_of_it_is_refused():
    with pytest.raises(ValueError, match="level 8 does not exist: use 1 to 7"):
        ScheduleLevels([8])
    with pytest.raises(ValueError, match="level 0 does not exist"):
        ScheduleLevels(drawings={0: ""})
    with pytest.raises(ValueError, match="name at least one level"):
        ScheduleLevels([])
    with pytest.raises(ValueError, match="another size or of other kinds"):
        ScheduleLevels([3], drawings={3: ANSWERS[5]})
    levels = ScheduleLevels([1, 2])
    with pytest.raises(traitlets.TraitError, match="level=3 is not offered: use one of 1, 2"):
        levels.level = 3
    assert levels.level == 1


def test_its_picture_is_the_question_then_the_drawing_and_never_a_known_schedule():
    levels = ScheduleLevels([3])
    asked = levels.picture()
    assert isinstance(asked, Figure)
    words = " ".join(text.get_text() for text in asked.texts)
    assert "room for only three microbatches" in words and "Level 3" in words
    gesture(levels, do="csv", text="0F0,0F1\n1F0")
    words = " ".join(text.get_text() for text in levels.picture().texts)
    assert "Level 3: " in words and "critical path" not in words.lower()
    gesture(levels, do="csv", text=ANSWERS[3])
    words = " ".join(text.get_text() for text in levels.picture().texts)
    assert "your own drawing on 3 ranks, 5 microbatches" in words


def test_a_saved_page_shows_the_level(tmp_path):
    levels = ScheduleLevels([5], drawings={5: ANSWERS[5]})
    saved = levels.saved_state()
    assert saved["drawings"] == {5: ANSWERS[5]} and [*json.loads(saved["blanks"])] == ["5"]
    assert len(json.loads(saved["board"])["cells"]) == 45
    assert ANSWERS[5].split(",")[0] in levels.save_html(tmp_path / "levels.html").read_text()


def test_every_level_and_every_schedule_of_training_has_a_paper_to_go_to():
    assert {*PAPERS} == {*schedules.NAMES} - {"inference"}
    for paper in PAPERS.values():
        assert re.fullmatch(
            r"https://(arxiv\.org/abs/\d{4}\.\d{5}|doi\.org/10\.\S+)", paper.address
        )
    for level in LEVELS:
        assert level.source.startswith(PAPERS[level.answer].cited) and level.section
