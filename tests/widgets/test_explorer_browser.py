"""The explorer of collectives in a real browser: a saved page, and every control in JupyterLab."""

from __future__ import annotations

import re
import subprocess
import time

import conftest
import pytest
from explorer_page import ExplorerPage, open_page, saved_pages
from lab_server import Lab
from nbformat import v4

from dlviz.patterns import TITLES
from dlviz.widgets import CollectiveExplorer, ScheduleExplorer
from dlviz.widgets.collectives.all_reduce import ALGORITHMS, SIZES

pytestmark = pytest.mark.slow

MAPS = "[...document.querySelectorAll('.dlv-map svg > text')].map(text => text.textContent)"
SLOWER = f"""field => {{
    field.value = "200";
    field.dispatchEvent(new Event("change"));
    return {MAPS};
}}"""
NETWORKS = ["a switch", "a ring of links", "two racks", "a tree of switches"]
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
        return self.root.locator(".dlv-player h3").text_content()


@pytest.fixture
def saved(browser, tmp_path):
    with saved_pages(browser, tmp_path, Page, drawn) as show:
        yield show


def drawn(page):
    page.wait_for_selector(".dlv-cost, .dlv-canvas")


def test_a_saved_page_draws_every_algorithm_and_marks_the_crossover(saved):
    shown = saved(CollectiveExplorer())
    assert shown.root.locator("svg.dlv-costs .dlv-cost").count() == len(ALGORITHMS)
    assert shown.root.locator(".dlv-crossed").count() == 1
    table = shown.table()
    assert list(table) == [TITLES[name] for name in ALGORITHMS]
    assert table["halving-doubling"][0] == "1.62 ms" and table["ring"][0] == "1.64 ms"
    words = shown.root.locator(".dlv-cheapest").inner_text()
    assert words == "The cheapest (within 5 %): butterfly, then halving-doubling from 32 KB."
    lines = shown.root.locator(".dlv-costs .dlv-cost").all()
    drawn = {
        (line.get_attribute("stroke"), line.get_attribute("stroke-dasharray")) for line in lines
    }
    assert len(drawn) == len(ALGORITHMS)
    key = shown.root.locator(".dlv-chartmarks p").first.inner_text()
    assert key == "broad band: the least"  # not its grey, which is an algorithm's too


@pytest.mark.parametrize("width", [848, 1200])
def test_the_controls_take_two_rows_and_the_buttons_of_files_stand_beside_others(browser, width):
    page, faults = open_page(browser, CollectiveExplorer(), "collectives/index")
    page.set_viewport_size({"width": width, "height": 900})
    controls = page.locator(".one .dlv-toolbar :is(select, input, button:not(.dlv-end *)):visible")
    found = controls.evaluate_all("""all => all
        .map(one => [one.textContent, one.getBoundingClientRect()])
        .map(([text, { top, height }]) => [text, top + height / 2])""")
    names, middles = zip(*found, strict=True)
    last = [abs(middle - middles[-1]) < 8 for middle in middles]
    assert names[-3:] == ("▶ Run it", "SVG", "PDF")
    assert last == [False] * 4 + [True] * 6  # the link's three numbers too
    assert max(middles[:4]) - min(middles[:4]) < 8
    assert not faults
    page.close()


def test_on_a_saved_page_algorithm_and_size_can_be_chosen_and_the_rest_says_why_not(saved):
    shown = saved(CollectiveExplorer())
    before = shown.picture()
    shown.control("algorithm").select_option("tree")
    assert not shown.root.locator(".dlv-player").is_visible()
    shown.root.get_by_role("tab", name="Messages").click()
    assert not shown.root.locator(".dlv-chart").first.is_visible()
    assert shown.player() == "tree, message by message"
    assert shown.picture() != before
    shown.slide("size", 0)
    assert "100 bytes on 4 ranks" in shown.root.locator("caption").first.inner_text()
    assert shown.table()["butterfly"][0] == "20.2 µs"
    for name in ("ranks", "topology", "run it on real ranks"):
        assert shown.control(name).is_disabled()
    assert "all else needs a kernel" in shown.root.inner_text()


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
    shown.page.keyboard.press("m")
    shown.page.keyboard.press("a")
    assert shown.player() == "parameter server, message by message"
    shown.page.keyboard.press("?")
    assert shown.root.get_by_role("dialog").first.is_visible()
    shown.page.keyboard.press("Escape")
    focused = "document.activeElement.ariaLabel || document.activeElement.textContent"
    stops = []
    for key in ("Tab", "Tab", "ArrowLeft", "ArrowRight", "Tab"):
        shown.page.keyboard.press(key)
        stops.append(shown.page.evaluate(focused))
    assert stops == ["details", "Messages", "Costs", "Messages", "algorithm"]


def test_in_the_map_an_algorithm_has_the_colour_of_its_line_in_both_themes(saved):
    for theme in ("light", "dark"):
        shown = saved(CollectiveExplorer(topology="racks", theme=theme))
        colors = shown.root.evaluate(
            """root => [".dlv-chart .dlv-cost", ".dlv-map rect:not([class])"].map(parts =>
                [...root.querySelectorAll(parts)].map(part => part.getAttribute("stroke")
                    ?? `${part.getAttribute("fill")} ${getComputedStyle(part).fillOpacity}`))"""
        )
        lines, cells = map(set, colors)
        assert len(cells) > 2 and cells <= {f"{color} 1" for color in lines}


def test_a_click_on_the_lines_chooses_a_size(saved):
    shown = saved(CollectiveExplorer())
    box = shown.root.locator("svg.dlv-costs").first.bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    assert int(shown.control("size").input_value()) in range(6, 16)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (360, "light"),
        (800, "light"),
        (1200, "dark"),
        pytest.param(360, "dark", marks=pytest.mark.sweep),
    ],
)
def test_nothing_runs_over_the_edge_and_every_control_has_a_name(saved, width, theme):
    shown = saved(
        CollectiveExplorer(ranks=8, algorithm="direct", theme=theme),
        width=width,
        height=900,
    )
    assert shown.root.get_attribute("data-theme") == theme
    over = shown.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0
    names = shown.root.locator("button, select, input").evaluate_all(
        "all => all.map(it => it.ariaLabel || it.textContent.trim() || it.labels?.[0]?.textContent)"
    )
    assert len(names) > 5 and all(names), names
    outside = shown.root.locator("svg.dlv-costs text").evaluate_all(
        """them => them.filter((it) => {
            const { left, right } = it.getBoundingClientRect();
            return left < 0 || right > innerWidth;
        }).map((it) => it.textContent)"""
    )
    assert outside == []


def test_a_saved_page_has_the_maps_of_all_networks_and_a_click_chooses_a_size_alone(saved):
    shown = saved(CollectiveExplorer(ranks=6, topology="ring"))
    names = shown.page.evaluate(f"() => {MAPS}")
    assert [name for name in names if name in NETWORKS] == NETWORKS
    assert shown.root.locator(".dlv-chosencell").count() == 4
    cells = shown.root.locator(".dlv-chosencell").evaluate_all(
        "them => them.map(it => it.x.baseVal.value)"
    )
    assert cells[0] == cells[2] < cells[1] == cells[3]
    box = shown.root.locator(".dlv-mapedge").nth(2).bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] / 6, box["y"] + 3)
    assert shown.control("size").input_value() == "6"
    assert shown.control("ranks").input_value() == "6"
    assert shown.control("topology").input_value() == "ring"


def test_a_program_of_names_is_never_markup(saved):
    shown = saved(CollectiveExplorer())
    assert shown.root.locator("script, img").count() == 0


def test_each_part_fits_a_laptop_with_the_answer_to_its_controls(saved):
    explorer = CollectiveExplorer(ranks=8, topology="racks")
    explorer._run = {"error": "a sentence"}
    explorer.show()
    shown = saved(explorer, width=833, height=680)
    for part in ("Costs", "Messages"):
        shown.root.get_by_role("tab", name=part).click()
        shown.page.wait_for_timeout(100)
        line = shown.root.locator("header p").first  # of a saved page
        assert shown.root.bounding_box()["height"] - line.bounding_box()["height"] <= 640, part
    for name in ("predict", "tables"):
        shown.root.locator(f"button:text-is('{name}')").click()
        assert shown.root.bounding_box()["height"] <= 640, name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_has_the_widgets_paper_and_disabled_fields_look_disabled(saved, theme):
    shown = saved(CollectiveExplorer(theme=theme))
    paper = "getComputedStyle({}).backgroundColor"
    assert shown.page.evaluate(paper.format("document.documentElement")) == shown.page.evaluate(
        paper.format("document.querySelector('.dlv')")
    )
    field = shown.control("alpha, µs a message")
    assert field.is_disabled() and float(field.evaluate("it => getComputedStyle(it).opacity")) < 0.6


def test_details_open_beside_the_title_and_escape_closes_them(saved):
    shown = saved(CollectiveExplorer(topology="racks"))
    shown.root.get_by_label("details", exact=True).first.click()
    dialog = shown.root.get_by_role("dialog", name="Details of the explorer")
    assert "so a line may jump there" in dialog.inner_text()
    shown.page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert shown.page.evaluate("document.activeElement.className") == "dlv-info"


def test_what_was_put_aside_while_the_theme_changed_is_painted_when_it_is_back(saved):
    shown = saved(ScheduleExplorer())
    corner = """() => {
        const canvas = document.querySelector('.dlv-canvas');
        const at = [canvas.width - 2, canvas.height - 2, 1, 1];
        return [...canvas.getContext('2d').getImageData(...at).data].slice(0, 3);
    }"""
    assert min(shown.page.evaluate(corner)) > 200
    shown.page.evaluate("""async () => {
        const main = document.querySelector('main');
        main.style.display = 'none';
        document.body.style.setProperty('--jp-layout-color0', 'rgb(17, 17, 17)');
        document.body.style.setProperty('--jp-ui-font-color0', 'rgb(238, 238, 238)');
        await Promise.resolve();
        main.style.display = '';
    }""")
    shown.page.wait_for_function(f"() => Math.max(...({corner})()) < 60")


# In JupyterLab: one notebook, in which one test goes on where another ended
CELLS = [
    CELL,
    "dlviz.widgets.ScheduleExplorer()",
    """span = {"rank": 0, "lane": "compute", "kind": "forward", "start": 0.0, "end": 1.0}
trace = dlviz.Trace([span])
dlviz.widgets.Timeline(trace)""",
    "dlviz.widgets.MessagePlayer(trace)",
]


@pytest.fixture(scope="module")
def lab(browser, served):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with served(notebook) as address:
        lab = Lab(browser, address, cells=len(CELLS))
        lab.address = address
        yield lab
        lab.page.close()
    assert lab.far() == []


def command(lab, name):
    lab.page.evaluate("name => { jupyterapp.commands.execute(name); }", name)


def wait_for_words(lab, words):
    """Waits for words in the line of the run; how long that took, in s."""
    began = time.monotonic()
    lab.page.wait_for_function(
        "words => document.querySelector('.dlv-result').textContent.includes(words)", arg=words
    )
    return time.monotonic() - began


def ranks():
    """The processes that fork servers have started."""
    listed = subprocess.run(
        ["ps", "-eww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    own = {pid for pid, _ in conftest.descendants(frozenset())}
    servers = {pid for pid, _, args in rows if "multiprocessing.forkserver" in args}
    return [pid for pid, parent, _ in rows if parent in servers and int(pid) in own]


@pytest.mark.parametrize("how", ["button", pytest.param("interrupt", marks=pytest.mark.sweep)])
def test_in_jupyterlab_a_run_is_stopped_at_once_the_first_of_a_kernel_too(lab, how):
    """By the button while the kernel still loads PyTorch, by an interrupt while ranks run."""
    lab.shown(0)
    shown = Page(lab.page)
    shown.enter("alpha, µs a message", "1000000")  # each of the three turns takes 6 s
    shown.control("run it on real ranks").click()
    if how == "button":
        wait_for_words(lab, "Loading PyTorch")
        shown.control("stop the run").click()
    else:
        wait_for_words(lab, "Running on real ranks, paced: turn")
        deadline = time.monotonic() + 60  # the kernel's first: a server that loads PyTorch
        while (started := len(ranks())) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert started == 4, lab.page.locator(".dlv-result").first.inner_text()
        command(lab, "notebook:interrupt-kernel")
    assert (
        wait_for_words(lab, "The run was interrupted.") < 10
    )  # s, on a busy machine: 18 s to its end
    time.sleep(1)  # nor does any start later
    assert ranks() == []
    assert shown.control("run it on real ranks").is_enabled()


@pytest.mark.sweep
def test_in_jupyterlab_every_control_changes_the_picture_and_run_it_measures(lab):
    lab.shown(0)
    lab.page.wait_for_selector(".dlv-cost")
    shown = Page(lab.page)
    shown_first = []  # by the maps, immediately
    changes = {
        "algorithm": lambda: shown.control("algorithm").select_option("tree"),
        "size": lambda: shown.slide("size", 20),
        "topology": lambda: shown.control("topology").select_option("racks"),
        "ranks": lambda: shown.slide("ranks", 6),
        "alpha": lambda: shown_first.extend(shown.control("alpha, µs a message").evaluate(SLOWER)),
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
    assert shown_first == [text for name in NETWORKS for text in (name, "is being calculated …")]
    lab.page.wait_for_function(
        "() => document.querySelectorAll('.dlv-map rect.dlv-chosencell').length === 4"
    )
    edges = shown.root.locator(".dlv-mapedge")
    chosen = edges.evaluate_all("them => them.map(it => it.matches('.dlv-chosenmap'))")
    assert chosen == [False, False, True, False]
    shown.root.locator(".dlv-map svg").scroll_into_view_if_needed()
    box = edges.nth(3).bounding_box()
    lab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 3)
    lab.page.wait_for_function(
        "() => /of 16 ranks only messages/.test(document.querySelector('.dlv-player').textContent)"
    )
    assert shown.control("topology").input_value() == "tree"
    assert shown.control("size").input_value() == "18"
    shown.slide("ranks", 6)

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
    assert trouble.inner_text() == "α = “a lot” has to be a number, from 0 to 1 s."
    for value in ("200", "50"):  # as it was before, and another
        shown.enter("alpha, µs a message", value)
        lab.page.wait_for_function("() => !document.querySelector('.dlv-trouble').textContent")

    lab.page.evaluate(AT_ONCE)
    lab.page.wait_for_function(
        "() => /measured|failed/.test(document.querySelector('.dlv-result').textContent)"
    )
    result = shown.root.locator(".dlv-result").inner_text()
    found = re.match(r"tree of .*: measured (.*), (as )?predicted( .* \([+−][\d.]+ %\))?\.", result)
    assert found, result
    now = shown.table()["tree"]
    assert now[2] == found[1]
    remarks = shown.root.locator(".dlv-chartmarks").inner_text()
    assert f"The closed form, {now[0]}, is an upper bound" in remarks  # of what was chosen last
    assert shown.control("ranks").input_value() == "3"
    assert shown.root.locator(".dlv-measured").count() == 1


def test_in_jupyterlab_a_restarted_kernel_is_reported_and_its_controls_are_off(lab):
    command(lab, "docmanager:save")
    assert lab.complaints == []
    lab.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    for cell in (0, 1):
        root = lab.shown(cell).locator(".dlv").first
        gone = root.locator("> header .dlv-gone")
        gone.get_by_text("This widget's kernel is gone: run its cell again.").wait_for()
        root.get_by_label("run it on real ranks", exact=True).wait_for()
        assert root.locator(".dlv-toolbar > * :is(select, input):enabled").count() == 0
        assert root.get_by_label("run it on real ranks", exact=True).is_disabled()
        picture = root.inner_html()
        root.locator(".dlv-link").first.click() if cell == 0 else root.press("ArrowRight")
        assert (root.inner_html() == picture) == (cell == 0)  # an action can still be selected


def test_in_jupyterlab_a_notebook_opened_again_shows_every_picture_and_no_error(lab):
    live = [lab.shown(cell).locator(".dlv-still") for cell in range(4)]
    assert [still.count() for still in live] == [1] * 4
    assert not any(still.is_visible() for still in live)
    lab.page.evaluate("jupyterapp.shell.currentWidget.context.save()")
    lab.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    lab.page.goto(lab.address.replace("/workspaces/", "/workspaces/again-"))
    lab.page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.content?.widgets?.length >= 4"
    )
    for cell in range(4):
        shown = lab.shown(cell)
        shown.get_by_text("model not found").wait_for(state="attached")
        assert not shown.get_by_text("model not found").is_visible()
        picture = shown.locator(".dlv-still img")
        assert picture.is_visible() and picture.evaluate("it => it.naturalHeight") > 100
        assert picture.get_attribute("alt")
