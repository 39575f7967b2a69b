"""Drawing on saved pages, where no kernel answers: levels, and the explorer of schedules."""

from __future__ import annotations

import re

import pytest
from board_page import BoardPage
from explorer_page import saved_pages

from dlviz.board.levels import LEVELS
from dlviz.schedules import make
from dlviz.widgets import ScheduleExplorer, ScheduleLevels

pytestmark = pytest.mark.slow


class SavedPage(BoardPage):
    """A saved page of an explorer, which may show a board."""

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def click(self, name):
        self.page.get_by_label(name, exact=True).first.click()

    def press_button(self, words):
        self.page.get_by_role("button", name=words).click()

    def sides(self):
        return self.page.locator(".dlv-sidename:visible").all_inner_texts()


@pytest.fixture
def saved(browser, tmp_path):
    def wait(page):
        page.wait_for_selector(".dlv[data-asking]", state="attached")

    with saved_pages(browser, tmp_path, SavedPage, wait) as show:
        yield show


def test_a_saved_page_of_levels_is_played_from_level_to_level(saved):
    shown = saved(ScheduleLevels())
    assert shown.ghosts() == ["0F0"]
    for rank, slot in ((0, 0), (1, 1), (1, 2), (0, 4)):
        shown.click_at(rank, slot)
    assert shown.cells() == {"0F0": (0, 0), "1F0": (1, 1), "1B0": (1, 2), "0B0": (0, 4)}
    assert shown.page.locator(".dlv-goals [data-reached=true]").count() == 2
    solved = shown.text(".dlv-solved")
    assert "★ Solved. This schedule is known as naive: Huang et al." in solved
    assert shown.page.get_by_role("button", name="★ 1").is_visible()
    link = shown.page.locator(".dlv-solved a")
    assert link.get_attribute("href") == "https://arxiv.org/abs/1811.06965"
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener")

    shown.press_button("Compare with naive")
    ours, known = shown.sides()
    assert ours.startswith("your own drawing (p = 2, m = 1): 6 s, bubble ratio 1,")
    assert known.startswith("naive (p = 2, m = 1): 6 s, bubble ratio p−1 = 1,")
    shown.press_button("Back to the grid")
    assert len(shown.cells()) == 4 and shown.sides() == []

    shown.press_button("Level 2 →")
    assert LEVELS[1].question in shown.text(".dlv-question") and shown.cells() == {}
    assert shown.page.locator(".dlv-solved").is_hidden()
    shown.click_at(0, 0)
    shown.click_at(0, 1)
    shown.click("undo")
    assert shown.cells() == {"0F0": (0, 0)}
    shown.press_button("★ 1")
    assert len(shown.cells()) == 4 and "★ Solved" in shown.text(".dlv-solved")
    shown.click("undo")
    assert len(shown.cells()) == 3, "the history of a level outlasts a look at another one"
    assert shown.page.get_by_role("button", name="★ 1").is_visible(), "once solved, always solved"
    shown.press_button("☆ 2")
    assert shown.cells() == {"0F0": (0, 0)}
    run = shown.page.get_by_label("run it on real ranks", exact=True)
    assert run.is_disabled() or run.is_hidden()
    assert "for other sizes or real ranks, run the notebook's cell" in shown.text(".dlv header")


def test_a_saved_page_of_a_drawing_names_a_fault_and_shows_what_was_mended(saved):
    explorer = ScheduleExplorer("drawn", csv=make("1f1b", 2, 4).to_csv(), beside="gpipe")
    shown = saved(explorer, width=1200, height=1000)
    shown.drop((1, 1), (1, 0))
    assert "1F0 (rank 1, slot 0) needs 0F0 of rank 0" in shown.words()
    assert shown.grid.locator(".dlv-boardfault").count() >= 1
    assert "This drawing does not count" in shown.text(".dlv-boardscore")
    shown.drop((1, 0), (1, 1))
    assert shown.grid.locator(".dlv-boardfault").count() == 0
    assert shown.text(".dlv-boardscore").startswith("Now 15 slots")
    shown.click("undo")
    assert shown.cells()["1F0"] == (1, 0)
    shown.click("undo")
    assert shown.cells()["1F0"] == (1, 1) and "Complete and legal" in shown.words()
    sides = shown.sides()
    assert len(sides) == 1 and sides[0].startswith("GPipe (p = 2, m = 4)")
    shown.focus()
    shown.press("e")
    assert shown.cells() == {} and "Nothing is drawn yet" in shown.words()
    assert shown.sides() == ["your own drawing", *sides]


def test_a_saved_page_of_a_known_schedule_has_an_empty_grid_to_draw_on_and_leads_back(saved):
    shown = saved(ScheduleExplorer("zb_h1", 2, 3))
    (before,) = shown.sides()
    shown.press_button("✎ Draw your own")
    assert shown.cells() == {} and shown.ghosts() == ["0F0"]
    shown.focus()
    shown.press("n", "Enter", "n", "Enter")
    assert len(shown.cells()) == 2
    shown.click("the schedule as CSV")
    csv = shown.page.locator("textarea[readonly]")
    assert csv.input_value().split() == ["0F0,0F1"]
    shown.click("the schedule as CSV")
    shown.press_button("✎ Draw your own")
    assert shown.sides() == [before] and re.match("ZB-H1", before)
    shown.press_button("✎ Draw your own")
    assert len(shown.cells()) == 2
