"""The front ends' modules: joined into one text, private to it, and asking for nothing outside."""

from __future__ import annotations

import base64
import json
import re

import pytest
from matplotlib.colors import CSS4_COLORS

from dlviz.trace import Trace
from dlviz.widgets import MessagePlayer, Timeline, modules
from dlviz.widgets.page import page
from dlviz.widgets.view import column, indexed

FILES = sorted(modules.STATIC.glob("**/*.js"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(modules.STATIC)))
def test_a_module_fetches_nothing_and_takes_no_keys_from_the_page(file):
    code = file.read_text()
    words = re.compile(r"\b(fetch|XMLHttpRequest|WebSocket|importScripts|eval|innerHTML|import)\(")
    assert not words.search(code) and "innerHTML" not in code and "insertAdjacent" not in code
    addresses = re.findall(r"https?://[^\s\"'`]+", code)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"(document|window|globalThis)\.addEventListener", code)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(modules.STATIC)))
def test_a_module_imports_and_exports_as_joining_reads(file):
    code = file.read_text()
    assert len(re.findall(r"^import\b", code, re.M)) == len(modules.IMPORT.findall(code))
    exports = len(modules.EXPORT.findall(code)) + len(modules.DEFAULT.findall(code))
    assert len(re.findall(r"^export\b(?! {};)", code, re.M)) == exports


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(modules.STATIC)))
def test_what_two_front_ends_need_lies_in_shared(file):
    """A front end may hold a whole other one: a player, the board in its explorer."""
    own, *_ = file.relative_to(modules.STATIC).parts
    held = {"player"} | {"schedules": {"board"}, "board": {"schedules"}}.get(own, set())
    of = set(re.findall(r'^import .* from "\.\./(\w+)/', file.read_text(), re.M))
    assert of <= ({"shared"} if own == "shared" else {"shared", *held})


NAMED = "|".join(CSS4_COLORS)
COLOURS = {  # in a script a colour's name is a text of its own or a declaration's value
    ".css": rf"(?<![\w-])(?:{NAMED})(?![\w-])",
    ".js": rf"[\"'`](?:{NAMED})[\"'`]|: ?(?:{NAMED})(?=[;\"'`]);?",
}


def colours(code: str, suffix: str) -> list[str]:
    """The colours that a style sheet or a module writes down: in hex, as a function, by name."""
    written = r"#(?:[0-9a-f]{8}|[0-9a-f]{6}|[0-9a-f]{3,4})\b|\b(?:rgb|hsl)a?\("
    return re.findall(rf"{written}|{COLOURS[suffix]}", code, re.I)


@pytest.mark.parametrize("file", [*FILES, modules.STATIC / "dlviz.css"], ids=lambda file: file.name)
def test_every_colour_comes_from_python(file):
    code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
    assert colours(code, file.suffix) == []


@pytest.mark.parametrize(
    ("code", "suffix", "found"),
    [
        ("a { fill: #fff; stroke: #80808047 }", ".css", ["#fff", "#80808047"]),
        ("a { box-shadow: 0 0 1px rgb(0 0 0 / 30%) }", ".css", ["rgb("]),
        ("a { border: 1px solid Black; }", ".css", ["Black"]),
        (".dlv-tan { border-color: transparent; white-space: pre; }", ".css", []),
        ('s("rect", { fill: "white" })', ".js", ['"white"']),
        ('`stroke: tan;` + "rgba(0, 0, 0, 1)"', ".js", [": tan;", "rgba("]),
        ('const said = "the stronger the blue of a cell";', ".js", []),
    ],
)
def test_the_check_sees_every_notation_of_a_colour(code, suffix, found):
    assert colours(code, suffix) == found


def test_what_a_module_imports_comes_before_it_and_once():
    order = modules.order("timeline/index")
    assert order[-1] == "timeline/index" and len(set(order)) == len(order)
    for place, name in enumerate(order):
        paths = [path for _, path in modules.IMPORT.findall(modules.read(f"{name}.js"))]
        assert {modules.needed(name, path) for path in paths} <= set(order[:place])


def test_a_column_of_equal_values_is_one_and_texts_are_listed_once():
    assert column([3, 3, 3]) == 3 and column([3, 4]) == [3, 4] and column([]) == []
    assert indexed(["b", "a", "b"]) == {"at": [0, 1, 0], "of": ["b", "a"]}
    assert indexed(["b", "a"], first=["z", "a"]) == {"at": [1, 0], "of": ["a", "b"]}


def test_a_page_holds_its_state_as_text_that_ends_no_script():
    wild = "</script><script>window.hacked = 1</script>"
    written = page(wild, "timeline/index", {"state": wild})
    assert written.count("<script") == 2 and wild not in written
    (state,) = re.findall(r'<script type="application/json" id="state">(.*?)</script>', written)
    assert json.loads(state) == {"state": wild}


def test_widgets_of_one_trace_share_a_name_and_those_of_another_do_not():
    trace = Trace()
    names = [json.loads(Timeline(t).state)["trace"] for t in (trace, trace, Trace())]
    assert names[0] == names[1] != names[2]


def test_widgets_of_one_trace_hold_the_same_selection_wherever_it_is_set():
    trace = Trace([{"rank": 0, "lane": "compute", "kind": "send", "start": 0.0, "end": 1.0}])
    one, two, other = Timeline(trace), MessagePlayer(trace), Timeline(Trace())
    one.selection = {"span": 0}
    assert two.selection == {"span": 0} and other.selection == {}
    two.set_state({"selection": {"where": "cell:1"}})  # as a front end does
    assert one.selection == {"where": "cell:1"}


def test_a_widget_is_shown_with_a_still_picture_behind_it_that_the_widget_alone_hides(monkeypatch):
    span = {"rank": 0, "lane": "compute", "kind": "forward", "start": 0.0, "end": 1.0}
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    widgets = [Timeline(Trace([span]), title='a "<b>"') for _ in range(2)]
    for widget in widgets:
        widget._ipython_display_()
    live, still, _, other = shown
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == widgets[0].model_id
    assert live["text/html"] == "", "a page that has no kernel shows nothing in its place"
    assert f"dlv-still-{widgets[0].still}" in still["text/html"]
    assert f"dlv-still-{widgets[0].still}" not in other["text/html"]
    page = still["text/html"]
    ((alt, png),) = re.findall(r'alt="(.*?)".* src="data:image/png;base64,(.*?)"', page)
    assert alt == "a &quot;&lt;b&gt;&quot;" and base64.b64decode(png).startswith(b"\x89PNG")


def test_a_saved_page_holds_all_it_needs(tmp_path):
    path = Timeline(Trace(), title="A <b>title").save_html(tmp_path / "page.html")
    text = path.read_text()
    assert "<title>A &lt;b&gt;title - dlviz</title>" in text
    assert not re.search(r"""(src|href)=["']""", text)
    assert "default-src 'none'" in text
