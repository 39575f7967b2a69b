"""The explorer of scaling: it shows the closed form, and every control changes the picture."""

from __future__ import annotations

import inspect
import json

import pytest
from explorer_page import ExplorerPage, open_page, saved_pages

from dlviz.sim.scaling import scaled
from dlviz.widgets import CollectiveExplorer, ConsistencyExplorer, ScalingExplorer
from dlviz.widgets.scaling import MOST, SIZES


def drawn(page):
    page.wait_for_selector(".dlv-spot")


def state_of(explorer):
    return json.loads(explorer.state)


def test_the_lines_are_the_closed_form_of_each_number_of_ranks():
    explorer = ScalingExplorer(nbytes=SIZES[10], compute=0.05, overlap=0.25, scaling="weak")
    state = state_of(explorer)
    known = {name: getattr(explorer, name) for name in explorer.names}
    for ranks in range(1, MOST + 1):
        own = scaled(**{**known, "ranks": ranks})
        for name, value in {"speedup": own.speedup, "ratio": own.ratio}.items():
            line = state["lines"][name]["lines"][-1]
            assert (line["x"][ranks - 1], line["y"][ranks - 1]) == (ranks, value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ranks", 65, "ranks=65 cannot be shown"),
        ("ranks", 2.5, "ranks=2.5 cannot be shown"),
        ("alpha", "fast", "alpha='fast' is not a number"),
        ("overlap", 2, "overlap=2 is not a part"),
        ("buckets", 1.5, "buckets=1.5 has to be a whole number"),
        ("scaling", "up", "scaling='up' is unknown"),
        ("nbytes", -1, "nbytes"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = ScalingExplorer()
    before = state_of(explorer)
    setattr(explorer, name, value)
    state = state_of(explorer)
    assert says in state["error"] and state["lines"] == before["lines"]
    setattr(explorer, name, before["controls"][name])
    assert state_of(explorer)["error"] == ""
    with pytest.raises(ValueError, match=says):
        ScalingExplorer(**{name: value})


def test_the_chart_holds_a_speed_up_below_one_and_all_its_labels(browser):
    slower = ScalingExplorer(ranks=9, nbytes=10**9, beta=2e-9, compute=2e-3, scaling="model_weak")
    assert state_of(slower)["lines"]["speedup"]["lines"][-1]["y"][8] < 0.01
    page, faults = open_page(browser, slower, "scaling/index")
    outside = page.locator(".one .dlv-costs").evaluate_all("""charts => charts.flatMap(chart => {
        const frame = chart.getBoundingClientRect();
        return [...chart.querySelectorAll("text, .dlv-spot, .dlv-cost")].filter(part => {
            const box = part.getBoundingClientRect();
            return box.left < frame.left || box.right > frame.right
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        }).map(part => part.outerHTML);
    })""")
    assert outside == [] and not faults
    page.close()


@pytest.mark.parametrize(
    ("explorer", "name", "value", "other"),
    [
        (ScalingExplorer, "scaling", "weak", "strong"),
        (ConsistencyExplorer, "slowed", "chance", "one"),
    ],
)
def test_a_control_is_found_by_the_name_that_it_had(explorer, name, value, other):
    says = rf"way of {explorer.__name__} is called {name} now\."
    with pytest.warns(DeprecationWarning, match=says) as warned:
        own = explorer(way=value)
    assert warned[0].filename == __file__
    assert getattr(own, name) == value and "way" not in state_of(own)["controls"]
    with pytest.warns(DeprecationWarning, match=says):
        own.way = other
    with pytest.warns(DeprecationWarning, match=says):
        assert own.way == getattr(own, name) == state_of(own)["controls"][name] == other
    with pytest.raises(TypeError, match=f"two values of '{name}'"):
        explorer(**{"way": value, name: other})


def test_a_name_that_is_no_control_is_refused():
    with pytest.raises(TypeError, match="ScalingExplorer has no 'rank'"):
        ScalingExplorer(rank=3)
    with pytest.raises(TypeError, match="two values of 'ranks'"):
        ScalingExplorer(4, ranks=3)
    with pytest.raises(TypeError, match="has 8 controls, and 9 were given"):
        ScalingExplorer(*range(9))


def test_first_values_are_given_in_the_order_that_help_shows():
    explorer = CollectiveExplorer("tree", 8, 2**20, 1e-5, 2e-9, 0.0, "ring")
    shown = [*inspect.signature(CollectiveExplorer).parameters]
    assert shown == [*CollectiveExplorer.names, "theme"]
    assert [getattr(explorer, name) for name in ("ranks", "beta", "topology")] == [8, 2e-9, "ring"]


@pytest.mark.slow
def test_what_was_drawn_while_a_notebook_had_it_aside_fits_when_it_is_back(browser, tmp_path):
    with saved_pages(browser, tmp_path, ExplorerPage, drawn) as show:
        shown = show(ScalingExplorer(ranks=4))
        shown.root.evaluate("""async root => {
            const picture = () => new Promise(requestAnimationFrame);
            root.style.display = "none";
            root.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
            await picture();
            root.style.display = ""; // in the same picture, so that no size has changed
            for (let i = 0; i < 3; i++) await picture();
        }""")
        assert shown.root.locator(".dlv-cheapest").inner_text().startswith("5 ranks")
        for chart in shown.root.locator(".dlv-costs").all():
            wide = chart.evaluate("chart => chart.clientWidth")
            assert chart.get_attribute("viewBox") == f"0 0 {wide} 216"


@pytest.mark.slow
def test_a_saved_page_chooses_ranks_by_key_slider_and_click(browser, tmp_path):
    with saved_pages(browser, tmp_path, ExplorerPage, drawn) as show:
        explorer = ScalingExplorer(ranks=4)
        shown = show(explorer)
        words = state_of(explorer)["words"]
        answer = shown.root.locator(".dlv-cheapest")
        assert answer.inner_text() == words[3]
        shown.root.focus()
        shown.page.keyboard.press("ArrowRight")
        assert answer.inner_text() == words[4]
        shown.slide("ranks", 64)
        assert answer.inner_text() == words[63]
        spot = shown.root.locator(".dlv-costs").first.bounding_box()
        shown.page.mouse.click(spot["x"] + 46, spot["y"] + 50)
        assert answer.inner_text() == words[0]
        assert shown.control("gradients").is_disabled()
