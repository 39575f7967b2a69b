"""The explorer of collectives in a real browser: a saved page, and every control in JupyterLab."""

from __future__ import annotations

import re

import pytest
from explorer_page import ExplorerPage, saved_pages
from lab_server import Lab
from nbformat import v4

from dlviz.widgets import CollectiveExplorer
from dlviz.widgets.all_reduce import ALGORITHMS, SIZES

pytestmark = pytest.mark.slow

PICTURE = """root => JSON.stringify([...root.querySelectorAll('.dlv-costs')].map(
    part => part.innerHTML))"""
TABLE = ".dlv .dlv-scroll"
CELL = """import dlviz
explorer = dlviz.widgets.CollectiveExplorer()
explorer"""
AT_ONCE = """() => {
    const named = name => document.querySelector(`.dlv [aria-label="${name}"]`);
    const change = (name, value, event) => {
        named(name).value = value;
        named(name).dispatchEvent(new Event(event));
    };
    change('topology', 'switch', 'change');
    change('ranks', '3', 'input');
    change('alpha, µs a message', '60', 'change');
    named('run it on real ranks').click();
}"""


class Page(ExplorerPage):
    """The explorer on an open page."""

    def picture(self):
        return self.root.evaluate(PICTURE)

    def table(self):
        rows = self.root.locator(".dlv-scroll tbody tr").first.locator("xpath=..").locator("tr")
        cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
        return {row[0].strip(): row[1:] for row in cells}

    def player(self):
        return self.root.locator(".dlv-player h3").inner_text()


@pytest.fixture
def saved(browser, tmp_path):
    with saved_pages(browser, tmp_path, Page, drawn) as show:
        yield show


def drawn(page):
    page.wait_for_selector(".dlv-cost")


def test_a_saved_page_draws_every_algorithm_and_marks_the_crossover(saved):
    shown = saved(CollectiveExplorer())
    assert shown.root.locator("svg.dlv-costs .dlv-cost").count() == len(ALGORITHMS)
    assert shown.root.locator(".dlv-crossed").count() == 1
    table = shown.table()
    assert list(table) == [name.replace("_", " ") for name in ALGORITHMS]
    assert table["halving doubling"][0] == "1.69 ms" and table["ring"][0] == "1.71 ms"
    told = shown.root.locator(".dlv-cheapest").inner_text()
    assert told == "Cheapest: butterfly, then halving doubling from 31.3 KiB."


def test_on_a_saved_page_algorithm_and_size_can_be_chosen_and_the_rest_says_why_not(saved):
    shown = saved(CollectiveExplorer())
    before = shown.picture()
    shown.control("algorithm").select_option("tree")
    assert shown.player() == "tree, message by message"
    assert shown.picture() != before
    shown.slide("size", 0)
    assert "64 bytes on 4 ranks" in shown.root.locator("caption").first.inner_text()
    assert shown.table()["butterfly"][0] == "20.1 µs"
    for name in ("ranks", "topology", "run it on real ranks"):
        assert shown.control(name).is_disabled()
    assert "the rest needs a kernel" in shown.root.inner_text()


def test_keys_choose_size_and_algorithm_and_leave_tab_to_the_page(saved):
    shown = saved(CollectiveExplorer(nbytes=SIZES[20]))
    shown.root.focus()
    shown.page.keyboard.press("ArrowRight")
    assert shown.control("size").input_value() == "21"
    shown.page.keyboard.press("ArrowLeft")
    shown.page.keyboard.press("ArrowLeft")
    assert shown.control("size").input_value() == "19"
    shown.control("size").focus()
    shown.page.keyboard.press("ArrowUp")
    shown.page.keyboard.press("ArrowRight")
    assert shown.control("size").input_value() == "21"
    shown.root.focus()
    shown.page.keyboard.press("a")
    assert shown.player() == "parameter_server, message by message"
    shown.page.keyboard.press("?")
    assert shown.root.get_by_role("dialog").first.is_visible()
    shown.page.keyboard.press("Escape")
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.getAttribute('aria-label')") == "algorithm"


def test_a_click_on_the_lines_chooses_a_size(saved):
    shown = saved(CollectiveExplorer())
    box = shown.root.locator("svg.dlv-costs").first.bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    assert int(shown.control("size").input_value()) in range(6, 16)


@pytest.mark.parametrize("width", [360, 800, 1200])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_runs_over_the_edge_and_every_control_has_a_name(saved, width, theme):
    shown = saved(
        CollectiveExplorer(ranks=8, algorithm="direct", theme=theme),
        viewport={"width": width, "height": 900},
    )
    assert shown.root.get_attribute("data-theme") == theme
    over = shown.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0
    for control in shown.root.locator("button, select, input").all():
        name = control.evaluate(
            "it => it.ariaLabel || it.textContent.trim() || it.labels?.[0]?.textContent"
        )
        assert name
    texts = shown.root.locator("svg.dlv-costs text").all()
    inside = shown.page.evaluate("innerWidth")
    for text in texts:
        box = text.bounding_box()
        assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= inside)


def test_a_program_of_names_is_never_markup(saved):
    shown = saved(CollectiveExplorer())
    assert shown.root.locator("script, img").count() == 0


def test_in_jupyterlab_every_control_changes_the_picture_and_run_it_measures(browser, served):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(CELL)])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with served(notebook) as address:
        lab = Lab(browser, address, cells=1)
        try:
            lab.page.wait_for_selector(".dlv-cost")
            shown = Page(lab.page)
            changes = {
                "algorithm": lambda: shown.control("algorithm").select_option("tree"),
                "size": lambda: shown.slide("size", 20),
                "topology": lambda: shown.control("topology").select_option("racks"),
                "ranks": lambda: shown.slide("ranks", 6),
                "alpha": lambda: shown.enter("alpha, µs a message", "200"),
                "beta": lambda: shown.enter("beta, ns a byte", "5"),
                "gamma": lambda: shown.enter("gamma, ns a byte added", "3"),
            }
            for name, change in changes.items():
                before, answer = shown.picture(), lab.page.locator(TABLE).first.inner_text()
                change()
                lab.page.wait_for_function(
                    f"([before]) => ({PICTURE})(document.querySelector('.dlv')) !== before",
                    arg=[before],
                )
                if name not in ("algorithm", "ranks"):
                    lab.page.wait_for_function(
                        f"([answer]) => document.querySelector('{TABLE}').innerText !== answer",
                        arg=[answer],
                    )
            lab.page.wait_for_function(
                "() => document.querySelector('.dlv-player').textContent.includes('on 6 ranks')"
            )
            assert shown.player() == "tree, message by message"

            shown.control("ranks").focus()
            lab.page.keyboard.press("ArrowRight")
            lab.page.keyboard.press("ArrowUp")
            lab.page.wait_for_function(
                "() => document.querySelector('.dlv-player').textContent.includes('on 8 ranks')"
            )
            assert shown.control("ranks").input_value() == "8"

            shown.enter("alpha, µs a message", "a lot")
            trouble = shown.root.locator(".dlv-trouble")
            lab.page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
            told = "alpha='a lot' has to be a number of seconds, 0 to 1; its box takes µs"
            assert trouble.inner_text().startswith(told)
            for value in ("200", "50"):  # as it was before, and another
                shown.enter("alpha, µs a message", value)
                lab.page.wait_for_function(
                    "() => !document.querySelector('.dlv-trouble').textContent"
                )

            lab.page.evaluate(AT_ONCE)
            lab.page.wait_for_function(
                "() => /measured|did not/.test(document.querySelector('.dlv-result').textContent)"
            )
            result = shown.root.locator(".dlv-result").inner_text()
            found = re.match(
                r"tree of .*: measured (.*), predicted (.*) \([+−][\d.]+ %\)\.", result
            )
            assert found, result
            now = shown.table()["tree"]
            assert now[2] == found[1]
            assert f"The closed form, {now[0]}, is a bound" in result  # of what was chosen last
            assert shown.control("ranks").input_value() == "3"
            assert shown.root.locator(".dlv-measured").count() == 1
        finally:
            lab.page.close()
    assert lab.complaints == [] and lab.far() == []
