"""The figures in a real browser: the controls move the cells, and names stay text."""

from __future__ import annotations

import pytest
from viz_scenes import ring

from dlviz import viz
from dlviz.schedules import make
from dlviz.sim import simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.figure import STYLE

pytestmark = pytest.mark.slow
STATE = """() => {
    const figure = document.querySelector('.js-plotly-plot');
    return {
        words: figure.layout.annotations[0].text.split('<br>')[0],
        slider: figure.layout.sliders[0].active,
        bars: document.querySelectorAll('.barlayer .point').length,
    };
}"""


LOOKS = """() => {
    const fill = (where) => getComputedStyle(document.querySelector(where)).fill;
    const labelled = document.querySelector('.barlayer .bartext').closest('.point');
    const sheet = getComputedStyle(document.querySelector('.main-svg'));
    return {
        paper: sheet.background.match(/rgb\\(.*?\\)/)[0],
        title: fill('.gtitle'),
        axis: fill('.xtick text'),
        grid: getComputedStyle(document.querySelector('path.xgrid')).stroke,
        legend: fill('.legend rect.bg'),
        forward: getComputedStyle(labelled.querySelector('path')).fill,
        label: fill('.barlayer .bartext'),
    };
}"""


def rgb(color):
    return f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.fixture
def page(browser, tmp_path):
    """Opens a figure as a page of its own, which fetches nothing."""
    opened = browser.new_page(viewport={"width": 1000, "height": 700})
    fetched = []
    opened.on("request", lambda request: fetched.append(request.url))

    def show(figure):
        path = tmp_path / "figure.html"
        figure.write_html(path, include_plotlyjs=True)
        opened.goto(path.as_uri())
        opened.wait_for_selector(".barlayer .point")
        return opened

    yield show
    opened.close()
    assert all(url.startswith(("file:", "data:", "blob:")) for url in fetched), fetched


def test_slider_and_buttons_move_the_cells_both_ways(page):
    trace = ring(3, 6)
    shown = page(viz.messages(trace))

    def wait_for(number):
        name = "start" if number == 0 else f"round {number} of 4"
        shown.wait_for_function(f"() => ({STATE})().words.startsWith('<b>{name}</b>')")
        state = shown.evaluate(STATE)
        assert state["slider"] == number
        return state["bars"]

    def click(label):
        shown.locator(".updatemenu-button", has_text=label).click()

    bars = [wait_for(0)]
    click("back")  # nothing before the start
    assert wait_for(0) == bars[0]
    for number in (1, 2, 3, 4):
        click("next")
        bars.append(wait_for(number))
    assert bars == sorted(set(bars))  # with every step some cell holds more than before
    click("next")  # nothing after the end
    assert wait_for(4) == bars[4]
    for number in (3, 2, 1, 0):
        click("back")
        assert wait_for(number) == bars[number]
    rail = shown.locator(".slider-rail-touch-rect").bounding_box()
    shown.mouse.click(rail["x"] + rail["width"] / 2, rail["y"] + rail["height"] / 2)
    assert wait_for(2) == bars[2]
    click("play")
    assert wait_for(3) == bars[3]
    click("pause")
    shown.wait_for_timeout(1500)
    assert wait_for(3) == bars[3]


def test_markup_in_a_name_is_text_in_the_page(page):
    name = '<b>bold</b> & &lt; <a href="https://example.org">x</a>'
    spans = [{"rank": 0, "kind": "forward", "name": name, "start": 0.0, "end": 1.0}]
    shown = page(viz.timeline(Trace(spans)))
    label = shown.locator(".barlayer .bartext").first
    assert label.text_content() == name[:23] + "…"
    shown.locator(".barlayer .point").first.hover(force=True)
    hover = shown.locator(".hoverlayer .hovertext")
    hover.wait_for()
    assert name in hover.text_content().replace("\xa0", " ")
    assert shown.locator(".plot-container a[href*='example']").count() == 0


def test_a_figure_follows_the_page_from_light_to_dark_and_back_and_its_kinds_stay(page):
    trace = simulate(make("1f1b", 2, 3))

    def looks(shown, light):
        shown.evaluate(
            "light => { document.body.dataset.jpThemeLight = light }", str(light).lower()
        )
        return shown.evaluate(LOOKS)

    def styled(figure):
        shown = page(figure)
        shown.evaluate("style => document.head.insertAdjacentHTML('beforeend', style)", STYLE)
        return shown

    shown = styled(viz.timeline(trace))
    light, dark, again = (looks(shown, on) for on in (True, False, True))
    assert again == light
    themes = {True: (light, palette.FOLLOWING), False: (dark, palette.THEMES["dark"])}
    for found, colors in themes.values():
        assert found["title"] == found["axis"] == rgb(colors["ink"])
        assert found["paper"] == found["legend"] == rgb(colors["paper"])
        assert found["grid"] == rgb(colors["grid"])
    assert dark["forward"] == light["forward"] == rgb(palette.KINDS["forward"].color)
    assert dark["label"] == light["label"] == rgb(palette.KINDS["forward"].ink)

    shown = styled(viz.timeline(trace, theme="light"))
    chosen = looks(shown, False)
    assert chosen["title"] == rgb(palette.THEMES["light"]["ink"])
    assert chosen == looks(shown, True)
