"""The figures in a real browser: the slider moves the cells, and names stay text."""

from __future__ import annotations

import pytest
from viz_scenes import ring

from dlviz import viz
from dlviz.schedules import make
from dlviz.sim import simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.charts.figure import STYLE

pytestmark = pytest.mark.slow
STATE = """() => {
    const figure = document.querySelector('.js-plotly-plot');
    return {
        words: figure.layout.annotations.at(-1).text.split('<br>')[0],
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


def test_the_slider_moves_the_cells_in_both_directions(page):
    trace = ring(3, 6)
    shown = page(viz.messages(trace))
    rail = shown.locator(".slider-rail-touch-rect").bounding_box()

    def go_to(number):
        at = rail["x"] + rail["width"] * (0.02 + 0.96 * number / 4)
        shown.mouse.click(at, rail["y"] + rail["height"] / 2)
        name = "start" if number == 0 else f"round {number} of 4"
        shown.wait_for_function(f"() => ({STATE})().words.startsWith('<b>{name}</b>')")
        state = shown.evaluate(STATE)
        assert state["slider"] == number
        return state["bars"]

    bars = [go_to(number) for number in range(5)]
    assert bars == sorted(set(bars))  # with every step some cell holds more than before
    assert [go_to(number) for number in (3, 0, 2)] == [bars[3], bars[0], bars[2]]


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


def test_no_button_of_a_figure_would_upload_it(page):
    shown = page(viz.timeline(simulate(make("1f1b", 2, 2))))
    titles = [one.get_attribute("data-title") for one in shown.locator(".modebar-btn").all()]
    assert titles[:2] == ["Download plot as a PNG", "Reset axes"]
    assert not [title for title in titles if "Share" in title]


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
