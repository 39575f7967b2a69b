"""What holds for every widget, on saved pages in a real browser: axe-core, room, panels, keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from explorer_page import PICTURES, ExplorerPage, only_page, open_page
from viz_scenes import data_parallel, ring

from dlviz import widgets

pytestmark = pytest.mark.slow

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
WIDGETS = {
    "Timeline": lambda: widgets.Timeline(data_parallel(4, 3), critical=True, step=1),
    "MessagePlayer": lambda: widgets.MessagePlayer(ring(4, 12)),
    **{
        name: getattr(widgets, name)
        for name in widgets.__all__
        if name not in ("Timeline", "MessagePlayer")
    },
}
# What is drawn over something else, or beyond the room it has.
FAULTS = """() => {
    const found = [];
    const over = (one, other, by = 0) =>
        Math.min(one.right, other.right) - Math.max(one.left, other.left) > by
        && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 3 * by;
    const boxes = (root, which) => [...root.querySelectorAll(which)]
        .map((one) => [one.textContent, one.getBoundingClientRect()])
        .filter(([, box]) => box.width);
    for (const svg of document.querySelectorAll(".dlv svg")) {
        const own = svg.getBoundingClientRect();
        boxes(svg, "text").forEach(([words, box], i, all) => {
            const outside = Math.max(own.left - box.left, box.right - own.right,
                own.top - box.top, box.bottom - own.bottom);
            if (outside > 3) found.push(`${words} is cut`);
            for (const [other, where] of all.slice(i + 1)) {
                if (over(box, where, 1)) found.push(`${words} covers ${other}`);
            }
        });
    }
    const end = document.querySelector(".dlv-end").getBoundingClientRect();
    const title = document.createRange();
    title.selectNodeContents(document.querySelector(".dlv-heading h3"));
    const parts = boxes(document, ".dlv-heading :is(button)").map(([, box]) => box);
    for (const box of [...title.getClientRects(), ...parts]) {
        if (over(box, end)) found.push("a button covers the title");
    }
    const wide = document.documentElement.scrollWidth - innerWidth;
    if (wide > 0) found.push(`the page is ${wide} pixels too wide`);
    return found;
}"""
ROWS = """() => [...document.querySelectorAll(".dlv-rows")]
    .map((rows) => rows.scrollHeight - rows.clientHeight)"""
WINDOW = """() => [...document.querySelectorAll(
    ".dlv-plans, .dlv-runs, .dlv-scroll, .dlv-source, .dlv-rows, .dlv-boardrows"
)].filter((one) => one.clientHeight).map((one) => one.scrollHeight - one.clientHeight)"""
INSIDE = "(panel) => panel.contains(document.activeElement)"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The address of each widget's saved page."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: made().save_html(folder / f"{name}.html").as_uri() for name, made in WIDGETS.items()
    }


@pytest.fixture
def page(browser):
    page, faults = only_page(browser)
    faults.clear()
    yield page
    page.goto("about:blank")
    assert not faults


@pytest.mark.parametrize("name", WIDGETS)
def test_axe_finds_nothing_serious(page, saved, name):
    if not AXE.exists():
        pytest.skip("install axe-core: `make style` brings what package.json names")
    page.goto(saved[name])
    page.wait_for_selector(".dlv")
    page.evaluate(AXE.read_text())
    rules = ["", "runOnly: ['color-contrast'], "]  # all, and in the dark what goes by colour
    for theme, options in zip(("page", "light"), rules, strict=True):
        found = page.evaluate(
            f"() => axe.run(document, {{ {options}resultTypes: ['violations'] }})"
        )
        assert len(found["passes"]) > 0
        serious = [
            (theme, one["id"], one["nodes"][0]["html"])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert not serious
        if theme == "page":
            minor = {one["id"] for one in found["violations"]}
            assert minor <= {"heading-order"}  # headings go by the levels of a notebook
            for _ in range(2):  # light, then dark
                page.locator(".dlv-theme").first.click()


@pytest.mark.parametrize("name", WIDGETS)
def test_no_word_is_cut_or_covered_whatever_the_width(page, saved, name):
    """A cell of JupyterLab beside the file browser, without it, half a window, 200 % zoom."""
    page.goto(saved[name])
    page.wait_for_selector(".dlv")
    for width, height in ((1280, 800), (900, 800), (850, 640), (640, 400), (360, 640)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(PICTURES)
        assert page.evaluate(FAULTS) == [], width
        if (width, height) == (850, 640):
            assert page.locator(".dlv").first.bounding_box()["height"] <= 660  # says: no kernel
            assert all(hidden <= 0 for hidden in page.evaluate(ROWS))  # the last row is whole


@pytest.mark.parametrize("name", ["Timeline", "PlanExplorer", "FederatedExplorer"])
def test_a_saved_page_uses_the_height_of_its_window(page, saved, name):
    hidden = []
    for height in (640, 1000):
        page.set_viewport_size({"width": 850, "height": height})
        page.goto(saved[name])
        page.wait_for_selector(".dlv")
        if name == "Timeline":
            page.get_by_role("button", name="show a table of the spans in view").click()
        hidden.append(sum(page.evaluate(WINDOW)))
    assert hidden[0] > 0 and hidden[1] <= max(0, hidden[0] - 300)
    assert page.evaluate("document.documentElement.scrollHeight") <= 1040


PANELS = {
    "Timeline": {
        "show a table of the spans in view (T)": ".dlv-wide",
        "show, hide, pin and move rows": ".dlv-rowlist",
    },
    "ScheduleExplorer": {
        "show a table of all actions (t)": ".dlv-opened",
        "the schedule as CSV": ".dlv-opened",
    },
    "ScheduleLevels": {"share the drawing as text": ".dlv-opened"},
}


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_takes_the_focus_and_escape_closes_it_and_gives_it_back(page, saved, name):
    page.goto(saved[name])
    for label, which in PANELS[name].items():
        button = page.get_by_role("button", name=label, exact=True)
        button.click()
        panel = page.locator(f"{which}:visible")
        assert panel.evaluate(INSIDE), label
        page.keyboard.press("Escape")
        assert panel.count() == 0 and button.get_attribute("aria-pressed") == "false"
        assert button.evaluate("one => document.activeElement === one")


def test_the_grid_takes_the_keys_that_the_line_below_names_while_the_widget_has_the_focus(
    page, saved
):
    page.goto(saved["ScheduleLevels"])
    root, grid = page.locator(".dlv"), page.get_by_role("application")
    root.focus()
    assert "move on the grid" in page.locator(".dlv-keys").inner_text()
    place = page.locator(".dlv-boardcursor").bounding_box()
    page.keyboard.press("ArrowDown")
    assert grid.evaluate("one => document.activeElement === one")
    assert page.locator(".dlv-boardcursor").bounding_box()["y"] > place["y"]
    root.focus()
    page.keyboard.press("?")
    assert page.locator(".dlv-help:visible").count() == 1  # all others are the widget's


def test_what_is_drawn_on_alone_is_saved_by_one_button(browser):
    page, faults = open_page(browser, widgets.ScheduleLevels(), "schedules/index")
    shown = page.locator(".one button:visible").evaluate_all("all => all.map(one => one.innerText)")
    assert [text for text in shown if "SVG" in text] == ["SVG"]
    page.close()
    assert not faults


def test_a_value_that_is_refused_is_marked_until_it_is_mended(browser):
    """By the explorer whose controls are its own; those of all others are in the walk."""
    page, faults = open_page(browser, widgets.ScheduleExplorer(), "schedules/index")
    label, value = "forward: seconds of a forward", "none"
    shown = ExplorerPage(page)
    field = shown.control(label)
    before = field.input_value()
    settled = "() => [...document.querySelectorAll('.dlv')].every(v => v.dataset.asking !== 'true')"
    marked = "() => [...document.querySelectorAll('.one [aria-invalid=true]')].map(v => v.name)"
    for text, expected in ((value, [field.get_attribute("name")]), (before, [])):
        shown.enter(label, text)
        page.wait_for_function(settled)
        assert sorted({*page.evaluate(marked)}) == expected
        assert bool(page.locator(".one .dlv-trouble").first.inner_text()) == bool(expected)
    page.close()
    assert not faults
