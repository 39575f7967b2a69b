"""What saved pages of all widgets have in common: the system's theme, what they say, what they save
as SVG and print as PDF."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from explorer_page import only_page

from dlviz import widgets
from dlviz.schedules import make
from dlviz.sim import simulate
from dlviz.viz import palette
from dlviz.widgets import MessagePlayer, Timeline
from dlviz.widgets.collectives.all_reduce import played
from dlviz.widgets.explorer import Explorer

EXPLORERS = {
    name: getattr(widgets, name)
    for name in widgets.__all__
    if issubclass(getattr(widgets, name), Explorer)
}
LINK = {"alpha": 1e-5, "beta": 1e-9, "gamma": 0.0, "topology": "switch"}
WIDGETS = {
    **EXPLORERS,
    "Timeline": lambda: Timeline(simulate(make("1f1b", 2, 3))),
    "MessagePlayer": lambda: MessagePlayer(played(algorithm="ring", ranks=3, nbytes=300, **LINK)),
}
SVG = "{http://www.w3.org/2000/svg}"
# Marks and words of the page that are seen below its controls.
SEEN = """root => {
    const out = ".dlv-toolbar, .dlv-scrub, .dlv-keys, header > p, .dlv-tabs, .dlv-info, .dlv-help,"
        + " .dlv-spoken, .dlv-tip, .dlv-boardfoot > [role=group], progress, defs, style, title,"
        + " select";
    const seen = [...root.querySelectorAll("*")]
        .filter((one) => !one.closest(out) && one.getBoundingClientRect().height > 0);
    const words = seen.flatMap((one) => [...one.childNodes])
        .filter(({ nodeType }) => nodeType === Node.TEXT_NODE)
        .flatMap(({ data }) => data.match(/\\S+/g) ?? []);
    const marks = seen.filter((one) => one.matches("svg path, svg circle"));
    return [marks.map((one) => one.getAttribute("d") ?? one.getAttribute("r")), words,
        seen.filter((one) => one.matches("canvas")).length];
}"""


@pytest.fixture
def opened(browser, tmp_path):
    page, faults = only_page(browser)
    faults.clear()

    def show(made, scheme="light"):
        page.emulate_media(color_scheme=scheme)
        page.goto(WIDGETS[made]().save_html(tmp_path / "page.html").as_uri())
        page.wait_for_selector(".dlv")
        page.wait_for_timeout(100)
        return page

    yield show
    page.emulate_media(color_scheme="light")
    page.goto("about:blank")
    assert not [fault for fault in faults if not fault.startswith("blob:")]


@pytest.mark.slow
@pytest.mark.parametrize("made", WIDGETS)
def test_a_saved_page_follows_the_system_and_asks_for_nothing_that_takes_a_kernel(opened, made):
    page = opened(made, "dark")

    def look():
        return page.evaluate("""() => [document.querySelector(".dlv").dataset.theme,
            getComputedStyle(document.documentElement).backgroundColor]""")

    def paper(name):
        return f"rgb{tuple(bytes.fromhex(palette.THEMES[name]['paper'][1:]))}"

    button = page.locator(".dlv-theme").first
    assert look() == ["dark", paper("dark")] and button.inner_text() == "theme: system"
    page.emulate_media(color_scheme="light")
    page.wait_for_selector(".dlv[data-theme=light]")
    assert look() == ["light", paper("light")]
    for name in ("light", "dark", "system"):
        button.click()
        assert button.inner_text() == f"theme: {name}"
    for tab in page.get_by_role("tab").all() or [None]:
        if tab:
            tab.click()
        said = page.locator(".dlv").first.inner_text().replace("▶ Run it", "")
        assert not re.search(r"\b[rR]un it\b", said)


@pytest.mark.slow
@pytest.mark.parametrize("made", [name for name in EXPLORERS if name != "ScheduleLevels"])
def test_an_explorer_saves_and_prints_what_its_page_shows(opened, made):
    page = opened(made)
    marks, words, canvases = page.locator(".dlv").first.evaluate(SEEN)
    with page.expect_download() as saving:
        page.get_by_role("button", name="save the picture as an SVG file").click()
    assert saving.value.suggested_filename.endswith(".svg")
    text = saving.value.path().read_text()
    root = ElementTree.fromstring(text)
    drawn = {one.get("d") or one.get("r") for one in root.iter()}
    assert marks or canvases
    assert set(marks) <= drawn
    texts = " ".join(one.text or "" for one in root.iter(f"{SVG}text")).split()
    assert {*words} <= {*texts}
    assert canvases <= len(root.findall(f".//{SVG}svg"))
    assert root.get("class") is None and "http" not in text.replace(
        "http://www.w3.org/2000/svg", ""
    )
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(ids) == len({*ids}) and {*re.findall(r"url\(#([^)]*)\)", text)} <= {*ids}

    page.get_by_role("button", name="save it as a PDF file").click()
    frame = page.locator("iframe")
    width, height = root.get("width"), root.get("height")
    given = frame.get_attribute("srcdoc")
    assert f"size: {width}px {height}px" in given and text in given
