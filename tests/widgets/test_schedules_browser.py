"""The explorer of schedules in a real browser: a saved page, and all of it in JupyterLab."""

from __future__ import annotations

import json
import re

import pytest
from explorer_page import PICTURES, ExplorerPage, saved_pages
from lab_server import LONGEST, Lab
from nbformat import v4
from playwright.sync_api import expect

from dlviz import schedules
from dlviz.viz import palette
from dlviz.widgets import ScheduleExplorer, ScheduleLevels

pytestmark = pytest.mark.slow

PIXELS = """root => JSON.stringify([...root.querySelectorAll('.dlv-side canvas')].map(
    canvas => canvas.width ? canvas.toDataURL() : ''))"""
NUMBERS = (
    "root => [...root.querySelectorAll('.dlv-numbers table td')].map(cell => cell.textContent)"
)
TO_AND_FRO = """async slider => {
    for (let turn = 0; turn <= 40; turn++) {
        slider.value = String(6 + 3 * (turn % 2));
        slider.dispatchEvent(new Event('input'));
        await new Promise(done => setTimeout(done, 5));
    }
}"""
OPENERS = (
    "show a table of all actions (t)",
    "the schedule as CSV",
    "show the known schedules of this size",
    "share the drawing as text",
)
# How wide the names beside the rows are where one of them is "measured".
NAMES = """canvas => {
    const words = document.createElement("canvas").getContext("2d");
    words.font = `11px ${canvas.closest(".dlv").style.fontFamily}`;
    return Math.ceil(words.measureText("measured").width + 14);
}"""
# How many colours a picture has in its first two columns of pixels.
EDGE = """canvas => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, 2, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
}"""
CELLS = (
    """import dlviz
explorer = dlviz.widgets.ScheduleExplorer("1f1b", ranks=3, microbatches=4)
explorer""",
    """levels = dlviz.widgets.ScheduleLevels([1, 3])
levels""",
)
FIELDS = {
    "forward: seconds of a forward": "2",
    "backward: seconds of a whole backward; empty: I + W": "3",
    "latency: seconds that a message takes from rank to rank": "0.5",
    "slow_stage: the number of a slower stage; empty: none": "1",
    "slow: how many times as long the slow stage takes": "3",
}
SPLIT = {
    "backward_input: seconds of an input gradient": "2",
    "backward_weight: seconds of a weight gradient": "0.5",
}


class Page(ExplorerPage):
    """The explorer on an open page."""

    def picture(self):
        self.page.evaluate(PICTURES)
        return self.root.evaluate(PIXELS)

    def numbers(self):
        return self.root.evaluate(NUMBERS)

    def heading(self, place=0):
        return self.root.locator(".dlv-sidename").nth(place).inner_text()

    def chosen(self):
        return self.root.get_attribute("data-chosen")

    def details(self):
        return self.root.locator(".dlv-chosenaction").inner_text()

    def at(self, time, rank, place=0):
        """Where a moment of a rank lies on the page, by the state's own makespan."""
        canvas = self.root.locator(".dlv-side canvas").nth(place)
        box = canvas.bounding_box()
        whole, ranks = (float(n) for n in re.findall(r"[\d.]+", self.shape(place))[:2])
        names = canvas.evaluate(NAMES) if "lower bar: measured" in self.root.inner_text() else 58
        width = box["width"] - names
        axis = 0 if place else 20  # the second one is below that of the first
        row = (box["height"] - axis) / ranks
        return box["x"] + names + time / (whole * 1.002) * width, box["y"] + axis + row * (
            rank + 0.3
        )

    def shape(self, place):
        heading = self.heading(place)
        whole = re.search(r": ([\d.]+) s", heading)
        ranks = re.search(r"p = (\d+)", heading)
        assert whole and ranks, heading
        return f"{whole[1]} {ranks[1]}"


@pytest.fixture
def saved(browser, tmp_path):
    with saved_pages(browser, tmp_path, Page, drawn) as show:
        yield show


def drawn(page):
    page.wait_for_function("() => document.querySelector('.dlv')?.dataset.draws > 0")


def test_a_saved_page_shows_the_present_state_and_says_what_needs_a_kernel(saved):
    explorer = ScheduleExplorer("1f1b", 3, 4, beside="zb_h1")
    explorer.microbatches = 5
    shown = saved(explorer)
    summary = "21 s, bubble ratio (p−1)/m = 0.4, at most 3 in flight."
    assert shown.heading() == f"1F1B (p = 3, m = 5): {summary}"
    assert shown.heading(1).startswith("ZB-H1 (p = 3, m = 5): 17 s")
    assert {"21 s", "17 s", "0.4", "28.6 %"} <= {*shown.numbers()}
    for name in ("schedule", "ranks", "run it on real ranks"):
        assert shown.control(name).is_disabled()
    assert "This saved page has no kernel" in shown.root.inner_text()


def test_on_a_saved_page_a_pointer_names_actions_and_gaps_and_a_click_selects_them(saved):
    shown = saved(ScheduleExplorer("1f1b", 3, 4))
    tip = shown.root.locator(".dlv-tip").first
    shown.page.mouse.move(*shown.at(0.5, 0))
    assert tip.inner_text().startswith("0F0\nforward of microbatch 0 through stage 0")
    shown.page.mouse.move(*shown.at(5, 0))
    assert "the next action, 0B0, waits for 1B0 of rank 1, which ends at 7 s" in tip.inner_text()
    shown.page.mouse.move(*shown.at(0.5, 2))
    assert "the first action, 2F0, waits for 1F0 of rank 1" in tip.inner_text()
    shown.page.mouse.click(*shown.at(5, 0))
    assert shown.chosen() == "idle" and "waits for 1B0" in shown.details()
    shown.root.get_by_role("button", name="go to 1B0").click()
    assert shown.chosen() == "1B0"
    shown.page.mouse.move(*shown.at(17.5, 2))
    assert "this rank is done" in tip.inner_text()


def test_the_critical_path_is_drawn_named_and_can_be_put_away(saved):
    shown = saved(ScheduleExplorer("1f1b", 3, 4))
    with_path = shown.picture()
    shown.page.mouse.click(*shown.at(0.5, 0))
    assert "on the critical path" in shown.details()
    shown.page.keyboard.press("Escape")
    shown.page.mouse.move(2, 2)
    assert shown.picture() == with_path
    shown.page.keyboard.press("c")
    assert shown.picture() != with_path
    shown.control("show the critical path (c)").click()
    assert shown.control("show the critical path (c)").get_attribute("aria-pressed") == "true"


def test_keys_alone_walk_zoom_and_leave_tab_to_the_page(saved):
    shown = saved(ScheduleExplorer("1f1b", 3, 4, beside="gpipe"))
    shown.root.focus()
    walked = []
    for key in ["ArrowRight", "ArrowRight", "ArrowDown", "]", "[", "[", "o"]:
        shown.page.keyboard.press(key)
        walked.append(shown.chosen())
    assert walked == ["0F0", "0F1", "1F0", "2F0", "1F0", "0F0", "0F0"]
    whole = shown.picture()
    shown.page.keyboard.press("w")
    zoomed = shown.picture()
    assert zoomed != whole
    shown.page.keyboard.press("d")
    assert shown.picture() != zoomed
    shown.page.keyboard.press("0")
    assert shown.picture() == whole
    shown.page.keyboard.press("t")
    assert shown.root.locator("caption", has_text="actions of 1F1B").is_visible()
    shown.page.keyboard.press("?")
    assert shown.root.get_by_role("dialog").first.is_visible()
    shown.page.keyboard.press("Escape")
    shown.root.focus()
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement !== document.querySelector('.dlv')")


def test_the_table_lists_every_action_with_its_times_and_selects_it(saved):
    shown = saved(ScheduleExplorer("gpipe", 2, 2))
    shown.control("show a table of all actions (t)").click()
    table = shown.root.locator("table", has=shown.page.locator("caption", has_text="8 actions"))
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert rows[0] == ["0F0", "0", "0 ms", "1 s", ""] and len(rows) == 8
    assert rows[2] == ["0B0", "0", "5 s", "7 s", "1B0"]
    table.get_by_role("button", name="1B1").click()
    assert shown.chosen() == "1B1"


def test_the_csv_of_what_is_shown_can_be_copied(saved):
    shown = saved(ScheduleExplorer("zb_h1", 2, 3))
    shown.control("the schedule as CSV").click()
    text = shown.root.locator("textarea").first.input_value()
    assert text == schedules.make("zb_h1", 2, 3).to_csv()


def as_if_run(made, trace, costs, progress):
    """What a run gives that took what is predicted."""
    spans = trace.spans
    words = ["Measured 33.1 s, predicted 33 s; bubble ratio 0.366, predicted 0.375."] * 5
    return {
        "start": spans.start.tolist(), "length": (spans.end - spans.start).tolist(),
        "summary": words, "seconds": 33.1, "ratio": 0.366, "fraction": 0.268, "inside": 8.7,
        "peak": 4,
    }, trace  # fmt: skip


def ran(explorer):
    explorer.run()
    return explorer


STATES = {
    "a run beside another": lambda: ran(ScheduleExplorer(beside="zb_h1")),
    "a drawing that was run": lambda: ran(
        ScheduleExplorer("drawn", csv=schedules.make("zb_h1", 4, 8).to_csv())
    ),
    "one schedule": lambda: ScheduleExplorer("zb_h2", 8, 16),
    "two with chunks": lambda: ScheduleExplorer("interleaved", beside="zbv"),
    "an empty board": lambda: ScheduleExplorer("drawn"),
    "a drawing": lambda: ScheduleExplorer("drawn", csv=schedules.make("zb_h1", 4, 8).to_csv()),
    "a drawing of 8 ranks": lambda: ScheduleExplorer(
        "drawn", csv=schedules.make("1f1b", 8, 16).to_csv()
    ),
    "a drawing and another": lambda: ScheduleExplorer(
        "drawn", csv=schedules.make("zb_h1", 4, 8).to_csv(), beside="1f1b"
    ),
    "a level": lambda: ScheduleLevels([4]),
    "a level, solved": lambda: ScheduleLevels(
        [7], drawings={7: schedules.make("zbv", 2, 3).to_csv()}
    ),
}


SMALLER = {"one schedule", "a drawing", "a level"}  # than another of its kind


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*STATES.keys() - SMALLER], id="the largest"),
        pytest.param(SMALLER, id="the others", marks=pytest.mark.sweep),
    ],
)
def test_it_fits_a_laptop_whatever_it_shows_and_selecting_moves_nothing(saved, monkeypatch, names):
    """At 1280 x 800 a notebook shows 833 by 680 pixels of a cell."""
    monkeypatch.setattr("dlviz.widgets.schedules.explorer.run", as_if_run)
    for name, made in STATES.items():
        if name not in names:
            continue
        shown = saved(made(), width=833, height=680)
        height = shown.root.bounding_box()["height"]
        assert height <= 640, f"{name}: {height:.0f} pixels"
        if name == "two with chunks":
            assert "Each of a rank's v chunks takes 1/v" in shown.root.inner_text()
        if "run" in name:  # its result is in view, whole, and how it came to that as well
            result = shown.root.locator(".dlv-result")
            assert result.evaluate("box => box.scrollHeight - box.clientHeight") <= 1
            assert "Measured 33.1 s" in result.inner_text() and "Measured" in shown.details()
        for rows in shown.root.locator(".dlv-rows:visible").all():
            assert rows.evaluate("one => one.scrollHeight <= one.clientHeight"), "the last is whole"
            assert rows.locator("canvas").evaluate(EDGE) == 1, "no name begins beyond the edge"
        if shown.root.locator(".dlv-side canvas").first.is_visible():
            charts = shown.root.locator(".dlv-sums").bounding_box()
            shown.page.mouse.click(*shown.at(0.2, 0))
            assert shown.chosen() and "s to" in shown.details()
            assert shown.root.locator(".dlv-sums").bounding_box() == charts
            assert shown.root.bounding_box()["height"] == height
        openers = [shown.root.locator(f"button[aria-label='{label}']") for label in OPENERS]
        openers = [button for button in openers if button.count() and button.is_visible()]
        for button in openers:
            button.click()
            opened = shown.root.locator(".dlv-opened:visible")
            assert opened.count() == 1 and opened.inner_text().strip(), name
            assert opened.bounding_box()["height"] > 10
            assert shown.root.bounding_box()["height"] <= 640, name
            assert [one.get_attribute("aria-pressed") for one in openers].count("true") == 1
        if openers:
            openers[-1].click()
            assert shown.root.bounding_box()["height"] == height, name  # the charts are back


def test_the_line_of_keys_names_those_of_the_grid_while_it_is_drawn_on(saved):
    for made, first in (
        (STATES["a level"], "move on the grid"),
        (STATES["one schedule"], "previous"),
    ):
        shown = saved(made())
        assert (
            shown.root.locator(".dlv-keys")
            .text_content()
            .startswith(f"? all keys← →{' ↑ ↓' * (first[0] == 'm')} {first}")
        )


def test_a_field_has_room_for_the_word_that_stands_in_it_while_it_is_empty(saved):
    room = """root => [...root.querySelectorAll('input[placeholder]')].map(field => {
        const style = getComputedStyle(field), pen = new OffscreenCanvas(1, 1).getContext('2d');
        pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
        return field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
            - pen.measureText(field.placeholder).width; })"""
    left = saved(STATES["an empty board"]()).root.evaluate(room)
    assert len(left) == 4 and min(left) >= 0, left


def test_grid_timeline_and_legend_have_one_hue_for_a_kind_in_both_themes(saved):
    filled = """root => Object.fromEntries(
        [...root.querySelectorAll('.dlv-boardcell')].map(cell => {
            const name = cell.querySelector('rect').getAttribute('fill').slice(5, -1);
            const tile = root.querySelector('#' + name).firstChild;
            return [cell.dataset.action[1], tile.getAttribute('fill')]; }))"""
    kinds = {"F": "forward", "I": "backward_input", "W": "backward_weight"}
    expected = {symbol: palette.style(kind).color for symbol, kind in kinds.items()}
    for theme in ("light", "dark"):
        explorer = ScheduleExplorer(
            "drawn", csv=schedules.make("zb_h1", 2, 3).to_csv(), beside="zb_h1", theme=theme
        )
        shown = saved(explorer)
        assert shown.root.evaluate(filled) == expected
        shades = json.loads(explorer.state)["sides"][1]["shades"]
        assert {symbol: styles[0]["color"] for symbol, styles in shades.items()} == expected


@pytest.mark.parametrize("width, theme", [(360, "light"), (800, "dark")])
def test_nothing_runs_over_the_edge_and_every_control_has_a_name(saved, width, theme):
    explorer = ScheduleExplorer(
        "drawn", csv=schedules.make("interleaved", 4, 4).to_csv(), beside="dualpipev", theme=theme
    )
    shown = saved(explorer, width=width, height=900)
    assert shown.root.get_attribute("data-theme") == theme
    for name in ("the schedule as CSV", "show a table of all actions (t)"):
        shown.control(name).click()
    assert shown.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    names = shown.root.locator("button, select, input, textarea").evaluate_all(
        "all => all.map(it => it.ariaLabel || it.textContent.trim() || it.labels?.[0]?.textContent)"
    )
    assert len(names) > 5 and all(names), names
    for picture in shown.root.locator("[role=img]").all():
        if picture.is_visible():
            assert picture.get_attribute("aria-label")


@pytest.fixture(scope="module")
def lab(browser, served):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(code) for code in CELLS])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with served(notebook) as address:
        lab = Lab(browser, address, cells=2)
        lab.page.wait_for_function("() => document.querySelector('.dlv')?.dataset.draws > 0")
        yield lab
        lab.page.close()
    assert lab.complaints == [] and lab.far() == []


def settled(shown):
    """Waits until the kernel has answered all that was asked."""
    shown.page.wait_for_function(
        "() => [...document.querySelectorAll('.dlv')].every(one => one.dataset.asking === 'false')"
    )


@pytest.mark.sweep
def test_in_jupyterlab_every_control_changes_the_picture(lab):
    shown = Page(lab.page)
    changes = {
        **{name: lambda n=name, v=value: shown.enter(n, v) for name, value in FIELDS.items()},
        "schedule": lambda: shown.control("schedule").select_option("interleaved"),
        "chunks": lambda: shown.slide("chunks", 3),
        "ranks": lambda: shown.slide("ranks", 4),
        "ranks, as a number": lambda: shown.enter("ranks, as a number", "3"),
        "microbatches": lambda: shown.slide("microbatches", 6),
        "beside": lambda: shown.control("schedule beside it").select_option("zb_h1"),
        **{name: lambda n=name, v=value: shown.enter(n, v) for name, value in SPLIT.items()},
    }
    for name, change in changes.items():
        before, numbers = shown.picture(), shown.numbers()
        change()
        lab.page.wait_for_function(
            f"([before]) => ({PIXELS})(document.querySelector('.dlv')) !== before", arg=[before]
        )
        settled(shown)
        assert shown.numbers() != numbers, name
    shown.control("schedule beside it").select_option("")
    settled(shown)
    shown.control("microbatches").focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("ArrowUp")
    settled(shown)
    assert shown.control("microbatches").input_value() == "8"
    assert "m = 8" in shown.heading()
    shown.control("microbatches").evaluate(TO_AND_FRO)
    settled(shown)
    assert shown.control("microbatches").input_value() == "6"
    assert "m = 6" in shown.heading()


@pytest.mark.sweep
def test_in_jupyterlab_a_bad_value_shows_an_error_and_the_last_good_picture_stays(lab):
    shown = Page(lab.page)
    shown.enter("ranks, as a number", "2")
    settled(shown)
    trouble, before = shown.root.locator(".dlv-body > .dlv-trouble"), shown.picture()
    for text, law in (("0", "ranks p = 0 has to be"), ("-3", "ranks p = -3"), ("2.5", "p = 2.5"),
                      ("many", "ranks p = “many” has to be a whole number, 1 to 16.")):  # fmt: skip
        shown.enter("ranks, as a number", text)
        expect(trouble).to_contain_text(law, timeout=LONGEST)
        assert shown.picture() == before
    assert shown.control("run it on real ranks").is_disabled()
    shown.enter("ranks, as a number", "2")
    settled(shown)
    assert trouble.inner_text() == ""

    shown.control("the schedule as CSV").click()
    shown.control("a schedule of your own as CSV").fill("0F0,0B0\n1B0,1F0")
    shown.control("use this CSV").click()
    law = "rank 0 stops before its 2nd action"
    summary = shown.root.locator(".dlv-trouble", has_text=law)
    summary.first.wait_for()
    assert summary.count() == 1, "a fault is shown once, beside the field"
    shown.control("a schedule of your own as CSV").fill("0F0,0B0\n1F0,1B0")
    shown.control("use this CSV").click()
    settled(shown)
    assert shown.root.locator(".dlv-boardcell").count() == 4
    shown.control("the schedule as CSV").click()


@pytest.mark.slow
@pytest.mark.sweep
def test_in_jupyterlab_run_it_measures_what_is_shown_even_while_changes_are_in_transit(lab):
    shown = Page(lab.page)
    shown.control("schedule").select_option("gpipe")
    for value in (5, 4, 3):
        shown.slide("microbatches", value)
    shown.slide("ranks", 2)
    shown.control("run it on real ranks").click()
    lab.page.wait_for_function(
        "() => /Measured|failed/.test(document.querySelector('.dlv-result').textContent)"
    )
    result = shown.root.locator(".dlv-result").inner_text()
    assert re.match(r"Measured .*; bubble ratio .*predicted", result), result
    assert "gradients equal one process's" in shown.details()
    assert shown.heading().startswith("GPipe (p = 2, m = 3)")
    assert "measured" in shown.root.locator(".dlv-numbers thead").inner_text()
    assert shown.root.locator(".dlv-bubble .dlv-measured").count() == 1
    assert shown.root.bounding_box()["height"] <= 640
    before = shown.picture()
    shown.page.mouse.click(*shown.at(0.3, 0))
    assert re.search(r"measured: .* than predicted", shown.details())
    shown.slide("microbatches", 4)
    settled(shown)
    assert shown.root.locator(".dlv-result").inner_text() == "" and shown.picture() != before


@pytest.mark.sweep
def test_in_jupyterlab_no_two_boards_have_a_pattern_of_one_name(lab):
    """Each widget of a page loads its modules for itself: what they count begins anew in each."""
    shown = Page(lab.page)
    shown.control("schedule").select_option("drawn")
    settled(shown)
    boards = lab.page.locator(".dlv-boardgrid")
    expect(boards).to_have_count(2)
    names = lab.page.locator(".dlv [id]").evaluate_all("all => all.map(one => one.id)")
    own = [grid.locator("pattern").count() for grid in boards.all()]
    assert min(own) > 3 and len(names) >= sum(own)
    assert len({*names}) == len(names)


@pytest.mark.sweep
def test_in_jupyterlab_a_level_is_solved_by_mouse_and_by_keys_compared_and_run(lab):
    shown = Page(lab.page, 1)
    shown.root.scroll_into_view_if_needed()
    grid, summary = shown.root.locator(".dlv-boardgrid"), shown.root.locator(".dlv-boardwords")

    def drawn_as(count):
        answered = shown.root.locator(".dlv-boardcell:not([opacity])")
        expect(answered).to_have_count(count, timeout=LONGEST)

    def click(name):
        shown.root.get_by_role("button", name=name).click()
        settled(shown)

    def here(text):
        return shown.root.get_by_text(text, exact=False).first.is_visible()

    assert here("in which order can the four actions run?") and not here("Run it")
    grid.locator(".dlv-boardghost", has_text="0F0").click()
    drawn_as(1)
    shown.root.get_by_role("application").focus()
    for count in range(2, 5):
        lab.page.keyboard.press("n")
        lab.page.keyboard.press("Enter")
        drawn_as(count)
    shown.root.get_by_text("★ Solved.").wait_for()
    assert "Complete and legal." in summary.inner_text() and here(
        "GPipe, NeurIPS 2019, figure 2(b)"
    )
    lab.page.keyboard.press("u")
    drawn_as(3)
    lab.page.keyboard.press("r")
    drawn_as(4)
    for key in "dda":  # in a notebook dd deletes a cell and a adds one
        lab.page.keyboard.press(key)
    assert len(lab.cells()) == 2

    click("Compare with naive")
    assert shown.heading(0).startswith("your own drawing (p = 2, m = 1): 6 s")
    assert shown.heading(1).startswith("naive (p = 2, m = 1): 6 s") and not grid.is_visible()
    click("Back to the grid")
    assert grid.is_visible()
    shown.control("run it on real ranks").click()
    shown.root.get_by_text("gradients equal one process's").first.wait_for()
    assert shown.heading(0).startswith("your own drawing") and not grid.is_visible()
    assert shown.root.bounding_box()["height"] <= 640
    click("Back to the grid")
    click("Level 3 →")
    drawn_as(0)
    assert here("A rank has room for only three microbatches") and not here("★ Solved.")
    click("★ 1")
    drawn_as(4)

    # once their kernel is gone the levels go on
    cells = shown.root.locator(".dlv-boardcell")
    expect(cells).to_have_count(4)
    lab.page.evaluate(
        "() => { window.restart = jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".restart(); }"
    )
    shown.root.locator("> header .dlv-gone").get_by_text("kernel is gone").wait_for()
    expect(shown.root.get_by_role("button", name="Run it")).to_be_disabled()
    shown.control("undo").click()
    expect(cells).to_have_count(3)
    shown.root.get_by_role("button", name="☆ 3").click()
    expect(cells).to_have_count(0)
    shown.root.locator(".dlv-boardghost", has_text="0F0").click()
    expect(cells).to_have_count(1)
    shown.root.get_by_role("button", name="★ 1").click()
    expect(cells).to_have_count(3)
    lab.page.evaluate("() => window.restart")  # a kernel that is starting cannot be ended
