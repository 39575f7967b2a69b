"""One walk through every control of every explorer: by mouse and by key, at both ends, in quick
succession, with a kernel and on a saved page, light and dark, at several widths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from explorer_page import PICTURES, ExplorerPage, only_page, open_page
from explorers import EXPLORERS
from test_all_widgets_browser import FAULTS

from dlviz import widgets

pytestmark = pytest.mark.slow

SIZES = {"900": (900, 800), "1920": (1920, 1000), "200 % of 900": (450, 400)}
# The longest walks are left to the sweep.
LONG = "CollectiveExplorer", "FederatedExplorer", "PlanExplorer"
SOME = [pytest.param(each, marks=[pytest.mark.sweep] * (each in LONG)) for each in EXPLORERS]
ROUND = 8  # a size of a layer is rounded to what so many ranks can share
SETTLED = "() => [...document.querySelectorAll('.dlv')].every(v => v.dataset.asking !== 'true')"
KINDS = {"Choice": "select", "Slider": "input[type=range]", "Field": "input[type=text]"}
Move = tuple[Callable[[], Any], Any]  # and what it sets the trait to, None where that is not known
HURRY = """(inputs) => {
    for (let turn = 0; turn < 6; turn++) {
        for (const one of inputs.filter((input) => !input.disabled)) {
            one.value = turn % 2 ? one.max : one.min;
            one.dispatchEvent(new Event("input"));
        }
    }
}"""


class Walk(ExplorerPage):
    """Moves controls as a reader does."""

    def reveal(self, control):
        """Have a control shown that stands in a tab, or beside one value of another control."""
        tab = self.root.locator(f"[role=tab][data-part='{control['panel']}']")
        if tab.count():
            tab.click()
        if control["where"]:
            other, value = control["where"]
            self.root.locator(f"select[name='{other}']").select_option(value)

    def input(self, control):
        return self.root.locator(f"{KINDS[control['kind']]}[name='{control['name']}']")

    def moves(self, control) -> Iterator[Move]:
        own = self.input(control)
        if control["kind"] == "Choice":
            for place, (value, _) in [*enumerate(control["options"])][::-1]:
                yield lambda place=place: own.select_option(index=place), value
        elif control["kind"] == "Field":
            for text in ("2", "3"):
                yield lambda text=text: self.type(own, text), float(text) / control["per"]
            yield lambda: self.type(own, "much"), "much"
        else:
            low, *_, high = values = control["values"]
            wide = own.bounding_box()["width"]
            yield lambda: own.click(position={"x": wide - 2, "y": 5}), None
            yield lambda: own.click(position={"x": 2, "y": 5}), None
            for key, value in {"End": high, "Home": low, "ArrowRight": values[1]}.items():
                yield lambda key=key: own.press(key), value

    def type(self, field, text):
        field.fill(text)
        field.blur()


def views(page) -> tuple[Walk, Walk]:
    """Both views of the one widget."""
    one, other = Walk(page), Walk(page)
    other.root = page.locator(".other > .dlv")
    return one, other


def described(explorer) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(one)) for group in explorer.described() for one in group]


def payload(state: str) -> dict[str, Any]:
    return {**json.loads(state), "error": "", "settled": True}


@pytest.mark.parametrize("name", SOME)
def test_a_control_sets_its_trait_and_is_shown_in_both_views_or_refused_in_both(browser, name):
    explorer = getattr(widgets, name)()
    page, faults = open_page(browser, explorer, explorer.module)
    page.set_viewport_size({"width": 900, "height": 800})
    one, other = views(page)
    for control in described(explorer):
        one.reveal(control)
        page.wait_for_function(SETTLED)
        first, seen = getattr(explorer, control["name"]), []
        for move, value in one.moves(control):
            before = explorer.state
            move()
            page.wait_for_function(SETTLED)
            now = getattr(explorer, control["name"])
            seen.append(now)
            what = control["name"], value, now
            if control.get("typed") and value is not None:
                assert abs(now - value) < ROUND, what
            elif value is not None:
                assert now == (pytest.approx(value) if control["kind"] == "Field" else value), what
            troubles = [trouble.inner_text() for trouble in page.locator(".dlv-trouble").all()]
            error = json.loads(explorer.state)["error"]
            assert [bool(trouble) for trouble in troubles] == [bool(error)] * 2, what
            if error:
                assert payload(explorer.state) == payload(before), what
                assert one.input(control).get_attribute("aria-invalid") == "true", what
            shown = [view.input(control).input_value() for view in (one, other)]
            assert shown[0] == shown[1], what
        assert len({str(value) for value in seen}) > 1, control["name"]
        setattr(explorer, control["name"], first)
        page.evaluate("state => model.set('state', state)", explorer.state)
    page.close()
    assert not faults


@pytest.mark.parametrize("name", EXPLORERS)
def test_controls_moved_in_quick_succession_end_where_the_last_move_put_them(browser, name):
    explorer = getattr(widgets, name)()
    page, faults = open_page(browser, explorer, explorer.module)
    sliders = [one for one in described(explorer) if one["kind"] == "Slider"]
    page.locator(".one input[type=range][name]").evaluate_all(HURRY)
    page.wait_for_function(SETTLED)
    one, other = [[view.input(each).input_value() for each in sliders] for view in views(page)]
    assert one == other
    for slider in sliders:
        value = getattr(explorer, slider["name"])
        assert value == slider["values"][-1] or value > slider["values"][-1] - ROUND, slider["name"]
    page.close()
    assert not faults


@pytest.mark.parametrize("name", EXPLORERS)
def test_a_saved_page_moves_what_it_holds_and_turns_the_rest_off(browser, tmp_path, name):
    explorer = getattr(widgets, name)()
    address = explorer.save_html(tmp_path / "page.html").as_uri()
    page, faults = only_page(browser)
    faults.clear()
    page.goto(address)
    walk = Walk(page)
    for (width, height), theme in zip(SIZES.values(), ("light", "dark", "light"), strict=True):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        page.evaluate(PICTURES)
        assert walk.root.get_attribute("data-theme") == theme
        assert page.evaluate(FAULTS) == [], width
        for control in described(explorer):
            if control["where"]:
                continue  # beside a choice that this page cannot make
            walk.reveal(control)
            own = walk.input(control)
            if own.is_disabled():
                continue
            shown = set()
            for move, _ in walk.moves(control):
                move()
                shown.add((own.input_value(), walk.root.inner_text()))
                assert not walk.root.locator(".dlv-trouble").inner_text()
            assert len(shown) > 1, control["name"]
        page.evaluate(PICTURES)
        assert page.evaluate(FAULTS) == [], width
    page.goto("about:blank")
    page.emulate_media(color_scheme="light")
    assert not faults
