"""The Timeline in a real browser: every key, button and gesture does what it says."""

from __future__ import annotations

import json
import math
import time
import xml.etree.ElementTree as ElementTree

import node
import numpy as np
import pytest
from explorer_page import PICTURES
from viz_scenes import data_parallel, deadlock, lossy, on_hosts

from dlviz import metrics
from dlviz.analysis.stages import chunks_of
from dlviz.analysis.waits import waited_until
from dlviz.schedules import make
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.gantt.pipeline import critical_of
from dlviz.viz.words import text
from dlviz.viz.words.idle import idle
from dlviz.viz.words.waits import waits
from dlviz.widgets import Timeline
from dlviz.widgets.modules import joined, read

pytestmark = pytest.mark.slow

MS = 1e-3
# Where a view shows what: of the page that COMPOSE made, by the front end's own modules.
PLACES = """(root, width, clock) => {
    const { from, to } = root.dataset;
    const scene = timeline_state_js.readScene(JSON.parse(window.shown[0].model.get("state")));
    const plot = root.querySelector(".dlv-rows");
    const none = { arrows: true, message: -1, span: -1, hover: -1, matches: null };
    const height = plot.clientHeight - shared_gantt_paint_js.AXIS - scene.above;
    const view = { from: Number(from), to: Number(to), width, clock, top: plot.scrollTop, height };
    const seen = { ...none, ...view };
    const list = shared_gantt_geometry_js.drawList(scene, scene.clocks[seen.clock], seen);
    const bars = {};
    for (const own of list.bars) {
        for (let i = 0; i < own.length; i += 5) {
            bars[scene.span.row[own[i + 4]]] = own.slice(i, i + 4);
        }
    }
    const { message } = scene;
    const arrows = list.arrows.map((one) => ({ ...one, message: message.row[one.message] }));
    const { idle, heads, lost, groups } = list;
    const top = root.querySelector(".dlv-canvas").getBoundingClientRect().y;
    const axis = shared_gantt_paint_js.AXIS + scene.above;
    return { bars, arrows, idle, heads, lost, groups, axis, top: top + axis };
}"""
PIXEL = """(canvas, [x, y]) => {
    const box = canvas.getBoundingClientRect();
    const ratio = canvas.width / box.width;
    const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, (box.x - x) * ratio, (box.y - y) * ratio);
    return `rgb(${[...copy.getImageData(0, 0, 1, 1).data].slice(0, 3).join(", ")})`;
}"""
AREA = """(canvas, [x, y, wide, tall]) => {
    const box = canvas.getBoundingClientRect();
    const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, box.x - x, box.y - y);
    return JSON.stringify([...copy.getImageData(0, 0, wide, tall).data]);
}"""
EDGES = """root => [...root.querySelectorAll(".dlv-edge")].map((edge) => [
    root.querySelector(".dlv-plot").getBoundingClientRect().x + parseFloat(edge.style.left),
    parseFloat(edge.getAttribute("aria-valuenow")),
])"""
TABLE = """(root, kind) => [...root.querySelectorAll(`table.dlv-${kind} :is(thead, tbody) tr`)].map(
    (row) => [...row.children].map((cell) => cell.innerText))"""
# A model as Jupyter's, of which the test holds the other end: shown[i].model.set("state", text).
COMPOSE = f"""(all) => {{
    {joined("timeline/index", "frontEnd")}
    window.places = {PLACES};
    document.body.replaceChildren();
    const counts = (window.counts = {{ observers: 0, channels: 0 }});
    for (const name of ["ResizeObserver", "MutationObserver"]) {{
        const Known = window[name];
        window[name] = class extends Known {{
            constructor(call) {{ super(call); counts.observers += 1; }}
            disconnect() {{ super.disconnect(); counts.observers -= 1; }}
        }};
    }}
    const Channel = window.BroadcastChannel;
    window.BroadcastChannel = class extends Channel {{
        constructor(name) {{ super(name); counts.channels += 1; }}
        close() {{ super.close(); counts.channels -= 1; }}
    }};
    window.shown = all.map((traits) => {{
        const calls = [];
        const model = {{
            calls, get: (name) => traits[name], save_changes() {{}},
            set(name, value) {{
                traits[name] = value;
                for (const [event, call] of [...calls]) if (event === `change:${{name}}`) call();
            }},
            on: (event, call) => calls.push([event, call]),
            off(event, call) {{
                const at = calls.findIndex((one) => one[0] === event && one[1] === call);
                if (at >= 0) calls.splice(at, 1);
            }},
        }};
        const el = document.createElement("div");
        document.body.append(el);
        return {{ el, model, stop: frontEnd.render({{ model, el }}) }};
    }});
}}"""
AGAIN = """([selection, state]) => {
    window.shown[0].model.set("selection", selection);
    window.shown[0].model.set("state", state);
}"""
# Uses every control, each from a fresh start; names those whose use changes nothing but themselves.
WIRED_TO_NOTHING = (
    f"async () => {{ const picture = {PICTURES};"
    """
    const root = document.querySelector(".dlv");
    const event = (key) => new KeyboardEvent("keydown", { key, bubbles: true });
    const press = (...keys) => keys.forEach((key) => root.dispatchEvent(event(key)));
    const nameOf = (one) => `${one.getAttribute("aria-label") ?? ""} ${one.textContent}`;
    const controls = () => [...root.querySelectorAll(":is(button, select, input):enabled")];
    const look = () => {
        const copy = root.cloneNode(true);
        copy.querySelector("[data-tried]")?.remove();
        copy.removeAttribute("data-draws");
        const canvases = root.querySelectorAll(":is(.dlv-plot, .dlv-minimap) canvas");
        return copy.outerHTML + [...canvases].map((one) => one.toDataURL()).join();
    };
    const use = (one) => {
        if (one.matches("button")) return one.click();
        one.value = one.matches("select") ? one.options[one.options.length - 1].value : "backward";
        one.dispatchEvent(new Event(one.matches("select") ? "change" : "input", { bubbles: true }));
    };
    const prepare = async (keys) => {
        root.querySelector("[aria-pressed=true][title*=source]")?.click();
        press("Escape", "Escape", "0", ...keys, "w", "r");
        await picture();
    };
    const wired = new Map();
    document.documentElement.setAttribute("theme", "dark"); // so that the reader's light is another
    for (const keys of [["."], [".", "ArrowDown"]]) {
        await prepare(keys);
        const names = [...new Set(controls().map(nameOf))];
        for (const name of keys.length > 1 ? names.reverse() : names) {
            await prepare(keys);
            const one = controls().find((control) => nameOf(control) === name);
            if (!one) continue;
            if (one.closest(".dlv-help")) press("?");
            one.setAttribute("data-tried", "");
            const before = look();
            use(one);
            await picture();
            wired.set(name, wired.get(name) || look() !== before);
            one.removeAttribute("data-tried");
        }
    }
    const dead = [...wired].filter(([, does]) => !does).map(([name]) => name.trim());
    return { tried: wired.size, dead };
}"""
)


class Reader:
    """Somebody who reads a Timeline on a page: what they do, and what they see."""

    def __init__(self, page, place=0):
        self.page, self.place = page, place
        self.root = page.locator(".dlv").nth(place)

    def ask(self, code, *values):
        """What a function of the widget's element gives, asked as it is and answered as text: a
        Locator takes several turns, and so does playwright with what is no text."""
        root = f"document.querySelectorAll('.dlv')[{self.place}]"
        asked = f"(values) => JSON.stringify(({code})({root}, ...values)) ?? 'null'"
        return json.loads(self.page.evaluate(asked, values))

    def ready(self):
        self.root.wait_for()
        self.settle()
        self.root.focus()

    def settle(self):
        self.page.evaluate(PICTURES)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    @property
    def data(self):
        return self.ask("root => ({ ...root.dataset })")

    @property
    def view(self):
        data = self.data
        return float(data["from"]), float(data["to"])

    @property
    def length(self):
        low, high = self.view
        return high - low

    @property
    def span(self):
        chosen = self.data["span"]
        return int(chosen) if chosen else None

    @property
    def focused(self):
        return self.page.evaluate(
            "() => document.activeElement.getAttribute('aria-label')"
            " ?? (document.activeElement.textContent || document.activeElement.tagName)"
        )

    @property
    def picture(self):
        return self.ask("root => root.querySelector('.dlv-canvas').toDataURL()")

    def pixel(self, x, y):
        """The colour of a pixel of the canvas, as CSS says it."""
        return self.ask(f"(root, at) => ({PIXEL})(root.querySelector('.dlv-canvas'), at)", [x, y])

    def ground(self, x, y, wide, tall, target=None):
        """The colour that most pixels of an area have, as [red, green, blue]."""
        target = target or self.root.locator(".dlv-canvas")
        found = json.loads(target.evaluate(AREA, [x, y, wide, tall]))
        colors = np.reshape(found, (-1, 4))[:, :3]
        found, count = np.unique(colors, axis=0, return_counts=True)
        return found[count.argmax()].tolist()

    @property
    def range(self):
        return [moment for _, moment in self.edges()]

    def edges(self):
        """Of the range's: where each lies on the page, and its moment."""
        return self.ask(EDGES)

    @property
    def ranged(self):
        return self.root.locator(".dlv-edge[data-side=from]").is_visible()

    def scale(self):
        """(left, width) in pixels of the page of what the view's from and to span."""
        if not hasattr(self, "_scale"):
            self.press("Escape")
            self.root.focus()  # where nothing was to be cleared, Escape left
            self.press("r")
            (first, low), (last, high) = self.edges()
            begin, end = self.view
            pixels = (last - first) / (high - low)
            self._scale = first - (low - begin) * pixels, (end - begin) * pixels
            self.press("Escape")
        return self._scale

    def x(self, time):
        left, width = self.scale()
        begin, end = self.view
        return left + (time - begin) / (end - begin) * width

    def time(self, x):
        left, width = self.scale()
        begin, end = self.view
        return begin + (x - left) / width * (end - begin)

    def places(self, clock=0):
        """Where everything lies on the page: {"bars": {row: (x, y, w, h)}, "idle", "arrows"}."""
        left, width = self.scale()
        found = self.ask("(root, ...view) => window.places(root, ...view)", width, clock)
        top = found["top"]
        for bar in found["bars"].values():
            bar[0] += left
            bar[1] += top
        for one in found["idle"] + found["heads"]:
            one["x"] += left
            one["y"] += top
        for one in found["lost"]:
            one["x"] += left
            one["y"] = (one["top"] + one["bottom"]) / 2 + top
        for arrow in found["arrows"]:
            for end in "12":
                arrow[f"x{end}"] += left
                arrow[f"y{end}"] += top
        found["bars"] = {int(row): bar for row, bar in found["bars"].items()}
        return found

    def middle(self, row):
        x, y, width, height = self.places()["bars"][row]
        return x + width / 2, y + height / 2

    def click(self, x, y):
        self.page.mouse.click(x, y)
        self.settle()

    def drag(self, start, *stops):
        self.page.mouse.move(*start)
        self.page.mouse.down()
        for stop in stops:
            self.page.mouse.move(*stop, steps=3)
        self.page.mouse.up()
        self.settle()

    def wheel(self, x, y, modifier="", across=0, down=0):
        self.page.mouse.move(x, y)
        if modifier:
            self.page.keyboard.down(modifier)
        self.page.mouse.wheel(across, down)
        if modifier:
            self.page.keyboard.up(modifier)
        self.settle()

    def button(self, name):
        return self.root.locator("button", has_text=name).first

    def panel(self, name):
        return self.root.locator(f".dlv-panel[aria-label='{name}']")

    def cells(self, kind):
        """A table of the statistics: {first cell: {column: text}}."""
        names, *rows = self.ask(TABLE, kind)
        rows = [[row[0].removesuffix(" slowest"), *row[1:]] for row in rows]
        return {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}


@pytest.fixture(scope="module")
def only_page(browser):
    """A page, and a list of what went wrong on it: errors, warnings and whatever it fetched."""
    page, wrong = browser.new_page(), []

    def heard(message):
        if message.type in ("error", "warning"):
            wrong.append(f"{message.type}: {message.text}")

    def asked(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"fetched {request.url}")

    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", heard)
    page.on("request", asked)
    yield page, wrong
    page.close()


@pytest.fixture
def page(only_page):
    """The page as new; a test that uses it holds that nothing went wrong on it."""
    page, wrong = only_page
    page.set_viewport_size({"width": 1100, "height": 800})
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.mouse.move(0, 0)
    wrong.clear()
    yield page
    assert not page.evaluate("() => window.hacked")
    assert not wrong, wrong


@pytest.fixture
def notebook(page, tmp_path):
    """Shows widgets below each other, as the cells of a notebook do; gives a Reader of each."""

    def show(*widgets):
        blank = tmp_path / "notebook.html"
        style = f"body {{ margin: 0 }} {read('dlviz.css')}"
        blank.write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>")
        page.goto(blank.as_uri())
        page.locator("html").evaluate("html => html.lang")  # now playwright's own observer is there
        names = ("state", "selection", "theme")
        page.evaluate(COMPOSE, [{name: getattr(own, name) for name in names} for own in widgets])
        readers = [Reader(page, place) for place in range(len(widgets))]
        readers[0].ready()
        return readers

    return show


@pytest.fixture
def read_page(notebook):
    """Shows a Trace's Timeline and gives its Reader, with the focus on the widget."""

    def show(trace, selection=None, **options):
        widget = Timeline(trace, **options)
        widget.selection = selection or {}
        return notebook(widget)[0]

    return show


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program of which every span names a line."""
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text("".join(f"line_{number} = {number}\n" for number in range(1, 13)))
    return path


def data_parallel_of(program, ranks, steps):
    """Paced data-parallel steps, with memory, messages and lines of source."""
    made = data_parallel(ranks, steps)
    lines = {kind: f"{program}:{2 + place}" for place, kind in enumerate([*palette.KINDS][:9])}
    made.spans.where[:] = [lines.get(kind, f"{program}:1") for kind in made.spans.kind]
    memory = [
        {"rank": rank, "time": i * 2 * MS, "what": "activations", "nbytes": 1000 * (1 + i % 5)}
        for rank in range(ranks)
        for i in range(5 * steps)
    ]
    return Trace(made.spans, made.messages, memory, meta=made.meta)


@pytest.fixture(scope="module")
def trace(program):
    return data_parallel_of(program, 4, 3)


@pytest.fixture(scope="module")
def small(program):
    return data_parallel_of(program, 2, 2)


@pytest.fixture(scope="module")
def held_up():
    """Rank 1 has nothing to do from 1 to 3.2 ms, until rank 0's forward is done and sent."""
    spans = [
        {"rank": 0, "kind": "forward", "start": 0.0, "end": 3 * MS, "microbatch": 0},
        {"rank": 0, "kind": "backward", "start": 3 * MS, "end": 5 * MS, "microbatch": 0},
        {"rank": 1, "kind": "forward", "start": 0.0, "end": 1 * MS, "microbatch": 0},
        {"rank": 1, "kind": "forward", "start": 3.2 * MS, "end": 4 * MS, "microbatch": 1},
    ]
    message = {"src": 0, "dst": 1, "sent": 3 * MS, "arrived": 3.2 * MS, "received": 3.2 * MS}
    return Trace(spans, [{**message, "nbytes": 64}], meta={"clock": "simulated", "ranks": 2})


@pytest.fixture(scope="module")
def chunked():
    """Two ranks of two stages each, simulated."""
    return simulate(make("interleaved", 2, 4), Costs(5 * MS, None, 5 * MS, 5 * MS, latency=MS))


def row_of(trace, rank, lane):
    """A row's spans in the order in which a reader walks them."""
    spans = trace.spans
    rows = np.flatnonzero((spans.rank == rank) & (spans.lane == lane))
    return sorted(rows.tolist(), key=lambda row: (spans.start[row], -spans.end[row], row))


def first(trace, **columns):
    """The first span that has these values."""
    found = np.ones(len(trace.spans), bool)
    for name, value in columns.items():
        found &= trace.spans[name] == value
    return int(np.flatnonzero(found)[0])


def last_wait(trace, rank):
    """The rank's last receive that waited for somebody."""
    found = [row for row, wait in waits(trace).items() if wait.span >= 0]
    return max(row for row in found if trace.spans.rank[row] == rank)


def amount(text):
    """Seconds of '3.1 ms'."""
    number, unit = text.replace(",", "").split()
    return float(number) * {"s": 1.0, "ms": MS, "µs": 1e-6}[unit]


def eventually(condition, seconds=10.0):
    """The browser scrolls, and carries words between widgets, in its own time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def near(value):
    return pytest.approx(value, rel=6e-3, abs=6e-10)  # three digits are shown


# ---- keys


@pytest.mark.parametrize(
    "keys, factor", [(["w", "W", "+", "="], 0.7), (["s", "S", "-"], 1 / 0.7)], ids=["in", "out"]
)
def test_zoom_keys_keep_the_middle(read_page, trace, keys, factor):
    reader = read_page(trace)
    reader.press(*"wwwwww")
    for key in keys:
        (low, high), draws = reader.view, int(reader.data["draws"])
        reader.press(key)
        begin, end = reader.view
        assert end - begin == pytest.approx((high - low) * factor)
        assert end + begin == pytest.approx(high + low)
        assert int(reader.data["draws"]) == draws + 1  # immediately, without animation


def test_pan_keys_move_by_a_part_of_the_view_and_stop_at_the_ends(read_page, trace):
    reader = read_page(trace)
    whole = reader.view
    reader.press(*"www")
    for key, sign in (
        ("d", 1),
        ("D", 1),
        ("ArrowRight", 1),
        ("a", -1),
        ("A", -1),
        ("ArrowLeft", -1),
    ):
        low, high = reader.view
        reader.press(key)
        step = sign * 0.15 * (high - low)
        assert reader.view == pytest.approx((low + step, high + step))
    length = reader.length
    reader.press(*"a" * 30)
    assert reader.view == pytest.approx((whole[0], whole[0] + length), abs=1e-12)
    reader.press(*"d" * 60)
    assert reader.view == pytest.approx((whole[1] - length, whole[1]))


def test_0_fits_all_and_zooming_out_ends_there(read_page, trace):
    reader = read_page(trace)
    whole = reader.view
    assert whole[0] < trace.spans.start.min() and whole[1] > trace.spans.end.max()
    reader.press(*"wwd0")
    assert reader.view == whole
    reader.press(*"wss")
    assert reader.view == whole


def test_period_and_comma_walk_along_the_row(read_page, trace):
    order = row_of(trace, 0, "compute")
    reader = read_page(trace, {"span": order[0]})
    for row in order[1:12]:
        reader.press(".")
        assert reader.span == row
    for row in order[10:5:-1]:
        reader.press(",")
        assert reader.span == row
    reader = read_page(trace, {"span": order[-1]})
    reader.press(".")
    assert reader.span == order[-1]


def test_walking_passes_over_none_of_many_spans_of_no_length(read_page):
    lasting = [
        {"rank": 0, "kind": kind, "start": start, "end": start + 1}
        for kind, start in (("forward", 0.0), ("wait", 1.0), ("update", 2.0))
    ]
    sends = [{"rank": 0, "kind": "send", "start": at, "end": at} for at in (1.0, 2.0) * 5]
    made = Trace([*lasting, *sends])
    order = row_of(made, 0, "")
    reader = read_page(made, {"span": order[0]})
    for keys, rows in ((".", order[1:]), (",", order[-2::-1])):
        for row in rows:
            reader.press(keys)
            assert reader.span == row


def test_period_begins_with_a_row_that_has_spans(read_page):
    spans = [{"rank": 2, "kind": "forward", "start": 0.0, "end": 1.0}]
    reader = read_page(Trace(spans, meta={"ranks": 4}))  # ranks 0, 1 and 3 recorded nothing
    reader.press(".")
    assert reader.span == 0
    reader.press("ArrowUp", "ArrowDown")
    assert reader.span == 0


def test_up_and_down_go_to_what_the_next_row_did_then(read_page, trace):
    spans = trace.spans
    lanes = [(rank, lane) for rank in range(4) for lane in ("compute", "comm")]
    start = first(trace, rank=0, kind="wait", step=1)
    reader = read_page(trace, {"span": start})
    row = start
    for key, places in (("ArrowDown", lanes[1:]), ("ArrowUp", lanes[-2::-1])):
        for place in places:
            moment = (spans.start[row] + spans.end[row]) / 2
            reader.press(key)
            row = reader.span
            assert (spans.rank[row], spans.lane[row]) == place
            there = [
                other
                for other in row_of(trace, *place)
                if spans.start[other] - 1e-9 <= moment <= spans.end[other] + 1e-9
            ]
            assert row in there or not there


def test_f_centres_the_selection_and_again_fits_it(read_page, trace):
    row = first(trace, rank=1, kind="backward", step=1)
    start, end = trace.spans.start[row], trace.spans.end[row]
    reader = read_page(trace, {"span": row})
    reader.press(*"wwwaa")
    length = reader.length
    reader.press("f")
    assert reader.length == pytest.approx(length)
    assert sum(reader.view) == pytest.approx(start + end)
    reader.press("F")
    low, high = reader.view
    assert low < start and end < high and high - low < 1.3 * (end - start)


def test_brackets_follow_the_message_to_its_ends(read_page, trace):
    spans = trace.spans
    row = last_wait(trace, 2)
    flow = spans.flow[row]
    src, dst = trace.messages.src[flow], trace.messages.dst[flow]
    reader = read_page(trace, {"span": row})
    reader.press("[")
    assert reader.span == first(trace, flow=flow, rank=src)
    reader.press("]")
    assert reader.span == first(trace, flow=flow, rank=dst) == row
    assert int(reader.data["message"]) == flow


def test_g_goes_to_what_was_waited_for(read_page, trace):
    known = waits(trace)
    row = last_wait(trace, 3)
    reader = read_page(trace, {"span": row})
    for key in "gGgG":
        row = known[row].span
        reader.press(key)
        assert reader.span == row
        if row not in known:
            break
    assert row not in known  # the end of the chain
    reader.press("g")
    assert reader.span == row
    said = reader.root.locator(".dlv-spoken").text_content()
    assert said == "The selected span waited for nobody."


def test_r_takes_the_selection_as_the_range(read_page, trace):
    row = first(trace, rank=2, kind="backward", step=0)
    reader = read_page(trace, {"span": row})
    reader.press("r")
    assert reader.range == pytest.approx([trace.spans.start[row], trace.spans.end[row]])
    length = trace.spans.end[row] - trace.spans.start[row]
    assert reader.panel("statistics of the range").locator("h4").inner_text() == (
        f"Range: {length / MS:.3g} ms"
    )
    reader.press("Escape", "R")  # nothing selected: what is in view of the run
    assert reader.range == pytest.approx([0, trace.spans.end.max()])


def test_m_c_and_t_turn_messages_clock_and_table(read_page, trace):
    reader = read_page(trace)
    messages, table = reader.button("messages"), reader.root.locator(".dlv-wide")
    pictures = [reader.picture]
    for key, pressed in (("m", "true"), ("M", "false")):
        reader.press(key)
        pictures.append(reader.picture)
        assert messages.get_attribute("aria-pressed") == pressed
    assert pictures[0] == pictures[2] != pictures[1]
    for key, clock in (("c", "wall"), ("C", "device")):
        view = reader.view
        reader.press(key)
        assert reader.data["clock"] == clock
        by = 1e-4 if clock == "wall" else -1e-4
        assert reader.view == pytest.approx((view[0] + by, view[1] + by))
        pressed = reader.root.get_by_role("group", name="clock").locator("[aria-pressed=true]")
        assert pressed.inner_text() == {"wall": "wall-clock time", "device": "device time"}[clock]
        line = reader.root.locator("header p").first.inner_text()
        assert line.endswith(pressed.inner_text())
    for key, shown in (("t", True), ("T", False)):
        reader.press(key)
        assert table.is_visible() is shown


def test_p_and_its_button_outline_the_critical_path_of_the_clock_that_shows(read_page, trace):
    reader = read_page(trace)
    spoken = reader.root.locator(".dlv-spoken")
    assert spoken.text_content() == "", "nobody has asked for the critical path"
    button, words = reader.button("critical path"), reader.root.locator("p.dlv-found")
    plain = reader.picture
    assert reader.data["critical"] == "false" and words.inner_text() == ""
    reader.press("p")
    outlined = reader.picture
    assert outlined != plain and button.get_attribute("aria-pressed") == "true"
    assert words.inner_text() == critical_of(trace, None, "device").sentences
    reader.press("c")  # the wall clock has a critical path of its own
    assert words.inner_text() == critical_of(trace, None, "wall").sentences
    reader.press("c", "P")
    assert reader.picture == plain and words.inner_text() == ""
    button.click()
    reader.settle()
    reader.root.focus()
    assert reader.data["critical"] == "true" and reader.picture == outlined


def test_the_outline_lies_on_the_edge_of_the_paths_spans_and_of_no_other(read_page, chunked):
    reader = read_page(chunked, critical=True)
    assert reader.data["critical"] == "true"  # a saved page opens as the widget was made
    on = {*metrics.critical_path(chunked).span.tolist()}
    ink, dark = "rgb(27, 31, 36)", 0
    for row, (x, y, width, _) in reader.places()["bars"].items():
        outlined = ink in [reader.pixel(x + width / 2, y + by) for by in (-1, 0, 1)]
        assert outlined == (row in on), row
        dark += outlined
    assert dark == len(on) > 3


def test_the_panel_the_hover_and_the_table_say_what_is_on_the_critical_path(read_page, chunked):
    path = metrics.critical_path(chunked).span.tolist()
    off = next(row for row in range(len(chunked.spans)) if row not in path)
    reader = read_page(chunked, {"span": path[2]})
    panel = reader.panel("selected span")
    assert f"on it, 3 of {len(path)}" in panel.inner_text()
    reader.page.mouse.move(*reader.middle(path[2]))
    reader.settle()
    assert "on the critical path" in reader.root.locator(".dlv-tip").inner_text()
    reader.page.mouse.move(*reader.middle(off))
    reader.settle()
    assert "critical" not in reader.root.locator(".dlv-tip").inner_text()
    reader.click(*reader.middle(off))
    assert "critical" not in panel.inner_text()
    reader.root.focus()
    reader.press("Escape", "t")
    table = reader.root.locator(".dlv-wide table").first
    assert "critical path" not in table.locator("thead").inner_text()
    reader.root.focus()
    reader.press("p")
    assert "critical path" in table.locator("thead").inner_text()
    cells = table.locator("tbody tr td:last-child").all_inner_texts()
    assert cells.count("on it") == len(path) and len(cells) == len(chunked.spans)


def test_chunks_are_painted_in_their_shades_and_the_legend_shows_them(read_page, chunked):
    reader = read_page(chunked)
    chunk, chunks = chunks_of(chunked)
    assert chunks == 2
    for row, (x, y, _, height) in reader.places()["bars"].items():
        style = palette.KINDS[chunked.spans.kind[row]]
        if style.pattern:
            continue
        color = palette.shade(style, int(chunk[row]), chunks).color
        rgb = ", ".join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))
        assert reader.pixel(x + 3, y + height - 4) == f"rgb({rgb})"
    forward = reader.root.locator(".dlv-legend button", has_text="forward")
    assert forward.locator("canvas").count() == 2


def test_a_simulated_pipelines_memory_is_in_microbatches(read_page, chunked):
    reader = read_page(chunked)
    reader.press("t")
    table = reader.root.locator(".dlv-wide table").nth(1)
    most = metrics.peak_in_flight(chunked)
    cells = [row.locator("td").first.inner_text() for row in table.locator("tbody tr").all()]
    assert cells == [f"{held} microbatches" for held in most]


def test_slash_searches_and_escape_clears_everything(read_page, trace):
    reader = read_page(trace, {"span": 5})
    reader.press("r", "/")
    assert reader.focused == "search spans by name"
    page = reader.page
    page.keyboard.type("layer 1")
    reader.settle()
    assert reader.root.locator(".dlv-found").first.inner_text() == "24 found"
    reader.press("Escape")
    assert "timeline" in reader.focused.lower()  # back on the widget
    assert reader.root.locator("input[type=search]").input_value() == ""
    assert reader.span == 5 and reader.ranged
    reader.press("Escape")
    assert reader.span is None and not reader.ranged
    assert "Click a bar" in reader.panel("selected span").inner_text()


def test_question_mark_opens_the_list_of_keys_and_closing_gives_the_focus_back(read_page, trace):
    reader = read_page(trace)
    help_ = reader.root.get_by_role("dialog", name="Keys of the timeline", include_hidden=True)
    for close in (["?"], ["Escape"], ["Enter"]):
        reader.press("?")
        assert help_.is_visible() and reader.focused == "close"
        reader.press(*close)
        assert not help_.is_visible()
        assert "timeline" in reader.focused
    opener = reader.button("keys ?")
    opener.click()
    assert help_.is_visible() and opener.get_attribute("aria-expanded") == "true"
    reader.press("Escape")
    assert not help_.is_visible() and reader.focused == "keys ?"
    assert opener.get_attribute("aria-expanded") == "false"


LISTED = {  # what stands in the list of keys, and what to press after `before` to see it act
    "W S": ["w", "s"],
    "A D": ["a", "d"],
    "+ − 0": ["+", "-", "0"],
    "Z Y": ["z", "y"],
    ", .": [",", "."],
    "↑ ↓": ["ArrowUp", "ArrowDown"],
    "F": ["f"],
    "[ ]": ["[", "]"],
    "G": ["g"],
    "R": ["r"],
    "N": ["n"],
    "/": ["/"],
    "M": ["m"],
    "P": ["p"],
    "C": ["c"],
    "T": ["t"],
    "Esc": ["Escape"],
    "?": ["?"],
    "Tab": ["Tab"],
}
GESTURES = {"Ctrl+wheel", "Shift+wheel", "drag", "double-click"}


def test_every_key_of_the_list_changes_something(page, notebook, trace):
    widget = Timeline(trace)
    row = last_wait(trace, 2)
    (reader,) = notebook(widget)
    listed = reader.root.locator(".dlv-help kbd").all_text_contents()
    assert {*listed} - GESTURES == {*LISTED}
    look = """root => {
        const copy = root.cloneNode(true);
        copy.removeAttribute('data-draws');
        const picture = root.querySelector('.dlv-canvas').toDataURL();
        return copy.outerHTML + document.activeElement.outerHTML.slice(0, 80) + picture;
    }"""
    for shown, keys in LISTED.items():
        for key in keys:
            page.evaluate(AGAIN, [{"span": row}, widget.state])
            reader.root.focus()
            reader.press("w", "w")
            reader.ask(f"root => {{ window.before = ({look})(root); }}")
            reader.press(*(["[", "]"] if key == "]" else [key]))
            if key == "]":  # there already: coming back from the sender counts
                assert reader.span == row
                continue
            assert reader.ask(f"root => ({look})(root) !== window.before"), (shown, key)


def test_keys_typed_into_the_search_do_nothing_else(read_page, trace):
    reader = read_page(trace)
    reader.press("/")
    before = {**reader.data}
    reader.page.keyboard.type("wsad+-0.,[]grmpct?fWSADF")
    reader.press("ArrowUp", "ArrowDown", "ArrowLeft")
    after = reader.data
    for name in ("from", "to", "clock", "span", "message"):
        assert after[name] == before[name]
    assert not reader.root.get_by_role("dialog").count()
    assert not reader.root.locator(".dlv-wide").is_visible()
    assert reader.root.locator("input[type=search]").input_value() == "wsad+-0.,[]grmpct?fWSADF"


def test_keys_with_ctrl_alt_or_meta_stay_the_browsers(read_page, trace):
    reader = read_page(trace)
    before = reader.view
    for key in ("Control+s", "Alt+d", "Meta+a"):
        prevented = reader.root.evaluate(
            """(root, [modifier, key]) => {
                const names = { Control: "ctrlKey", Alt: "altKey", Meta: "metaKey" };
                const event = new KeyboardEvent("keydown",
                    { key, bubbles: true, cancelable: true, [names[modifier]]: true });
                root.dispatchEvent(event);
                return event.defaultPrevented;
            }""",
            key.split("+"),
        )
        reader.settle()
        assert not prevented and reader.view == before


# ---- pointer


def test_ctrl_wheel_zooms_at_the_pointer(read_page, trace):
    reader = read_page(trace)
    for x, down in ((400, -100), (800, -60), (650, 80)):
        before, length = reader.time(x), reader.length
        reader.wheel(x, 300, "Control", down=down)
        assert (reader.length < length) is (down < 0)
        assert reader.time(x) == pytest.approx(before, abs=1e-6)


def test_the_wheel_alone_scrolls_the_page_and_never_zooms(read_page, trace):
    reader = read_page(trace)
    reader.page.set_viewport_size({"width": 1100, "height": 350})
    reader.settle()
    before = reader.view
    reader.wheel(600, 300, down=120)
    eventually(lambda: reader.page.evaluate("() => window.scrollY") == 120)
    assert reader.view == before


def test_shift_wheel_and_sideways_wheel_pan(read_page, trace):
    reader = read_page(trace)
    reader.press(*"www")
    for options in ({"modifier": "Shift", "down": 100}, {"across": 100}):
        low, high = reader.view
        reader.wheel(600, 300, **options)
        assert reader.view[0] > low and reader.length == pytest.approx(high - low)


def test_double_click_fits_all(read_page, trace):
    reader = read_page(trace)
    whole = reader.view
    reader.press(*"wwd")
    reader.page.mouse.dblclick(600, 300)
    reader.settle()
    assert reader.view == whole


def test_dragging_selects_a_range_whose_edges_move_by_pointer_and_by_key(read_page, trace):
    reader = read_page(trace)
    x1, x2 = reader.x(8 * MS), reader.x(16 * MS)
    reader.drag((x2, 300), (x1, 320))  # backwards as well
    assert reader.range == pytest.approx([8 * MS, 16 * MS], abs=1e-6)
    box = reader.page.locator(".dlv-edge[data-side=to]").bounding_box()
    assert box["x"] + box["width"] / 2 == pytest.approx(x2, abs=1.5)

    reader.drag((x2, 400), (reader.x(20 * MS), 400))
    assert reader.range == pytest.approx([8 * MS, 20 * MS], abs=0.05 * MS)
    reader.drag((x1, 400), (reader.x(4 * MS), 400))
    assert reader.range == pytest.approx([4 * MS, 20 * MS], abs=0.05 * MS)
    heading = reader.panel("statistics of the range").locator("h4").inner_text()
    assert amount(heading.removeprefix("Range: ")) == pytest.approx(16 * MS, rel=0.01)

    low, high = reader.range
    for side, at in (("from", 0), ("to", 1)):
        edge = reader.page.locator(f".dlv-edge[data-side={side}]")
        assert edge.get_attribute("role") == "slider"
        edge.focus()
        for key, by in (
            ("ArrowLeft", -0.01),
            ("PageUp", 0.1),
            ("PageDown", -0.1),
            ("ArrowRight", 0.01),
        ):
            before = reader.range
            reader.press(key)
            moved = before[at] + by * reader.length
            moved = min(moved, before[1]) if side == "from" else max(moved, before[0])
            assert (
                reader.range[at] == pytest.approx(moved) and reader.range[1 - at] == before[1 - at]
            )
            text = edge.get_attribute("aria-valuetext")
            assert amount(text) == near(moved)
            assert edge.evaluate("edge => document.activeElement === edge")
    assert reader.range == pytest.approx([low, high])
    edge = reader.page.locator(".dlv-edge[data-side=from]")
    edge.focus()
    reader.press(*["PageUp"] * 12)
    assert reader.range[0] == reader.range[1]  # never past the other
    reader.press("Home")
    assert reader.range[0] == 0
    reader.press("End")
    assert reader.range[0] == reader.range[1]


def test_a_range_stays_within_the_run(read_page, trace):
    reader = read_page(trace)
    reader.drag((reader.x(8 * MS), 300), (1090, 300), (20, 300))
    begin, end = reader.range
    assert begin == 0 and end == pytest.approx(8 * MS, abs=1e-6)
    edge = reader.page.locator(".dlv-edge[data-side=from]")
    assert float(edge.get_attribute("aria-valuemin")) == 0
    edge.focus()
    reader.press("ArrowLeft")
    assert reader.range[0] == 0


def test_shift_dragging_pans(read_page, trace):
    reader = read_page(trace)
    reader.press(*"www")
    held = reader.time(700)
    reader.page.keyboard.down("Shift")
    reader.drag((700, 300), (600, 310))
    reader.page.keyboard.up("Shift")
    assert reader.time(600) == pytest.approx(held) and not reader.ranged


def test_the_minimap_moves_the_view_by_click_and_by_drag(read_page, trace):
    reader = read_page(trace)
    reader.press(*"wwwww")
    box = reader.root.locator(".dlv-minimap").bounding_box()
    low, high = 0.0, trace.spans.end.max()

    def place(time):
        return box["x"] + time / (high - low) * box["width"], box["y"] + 20

    length = reader.length
    for moment in (10 * MS, 20 * MS):
        reader.click(*place(moment))
        assert sum(reader.view) / 2 == pytest.approx(moment, abs=0.05 * MS)
        assert reader.length == pytest.approx(length)
        window = reader.root.locator(".dlv-window").bounding_box()
        assert window["x"] == pytest.approx(place(reader.view[0])[0], abs=1.5)
        assert window["width"] == pytest.approx(length / (high - low) * box["width"], abs=1.5)
    reader.drag(place(20 * MS), place(15 * MS), place(12 * MS))
    assert sum(reader.view) / 2 == pytest.approx(12 * MS, abs=0.05 * MS)


def test_bars_are_painted_in_their_kinds_colour_and_a_click_selects_the_bar(read_page, trace):
    reader = read_page(trace, step=1)
    waiting = dict(zip(*(column.tolist() for column in waited_until(trace, "device")), strict=True))
    wanted = {
        (rank, kind): first(trace, rank=rank, kind=kind, step=1)
        for rank, kind in ((0, "backward"), (1, "update"), (2, "collective"), (3, "recv"))
    }
    places = reader.places()["bars"]
    for (rank, kind), row in wanted.items():
        x, y, width, height = places[row]
        color, wait = (palette.style(one).color for one in (kind, "wait"))
        for at, own in ((x + 2, wait if row in waiting else color), (x + width - 10, color)):
            assert reader.ground(at, y + 2, 8, 8) == [*bytes.fromhex(own[1:])], kind
        reader.click(x + width / 2, y + height / 2)
        assert reader.span == row
        panel = reader.panel("selected span").inner_text()
        assert f"rank {rank}" in panel and kind in panel


def test_a_click_on_an_arrows_end_goes_to_that_end(read_page, trace):
    reader = read_page(trace, step=1)
    reader.press(*"mww")  # all arrows
    low, high = reader.view
    spans = trace.spans
    arrows = [
        one
        for one in reader.places()["arrows"]
        if all(reader.x(low) + 20 < one[x] < reader.x(high) - 20 for x in ("x1", "x2"))
    ]
    for one in arrows[:3]:
        message = one["message"]
        for x, y, rank in (
            (one["x1"], one["y1"], trace.messages.src[message]),
            (one["x2"], one["y2"], trace.messages.dst[message]),
        ):
            reader.press("Escape")
            reader.click(x, y)
            row = reader.span
            assert spans.rank[row] == rank
            near_by = [
                other["message"]
                for other in arrows
                if math.hypot(other["x1"] - x, other["y1"] - y) < 7
                or math.hypot(other["x2"] - x, other["y2"] - y) < 7
            ]
            assert spans.flow[row] in near_by


def test_a_click_on_idle_time_names_who_made_whom_wait(read_page, held_up):
    reader = read_page(held_up)
    holes = idle(held_up, np.arange(4), 0.0, 5 * MS)
    at = next(i for i in range(len(holes.why)) if holes.rank[i] == 1 and holes.span[i] == 0)
    hole = next(one for one in reader.places()["idle"] if one["width"] > 20)
    x, y = hole["x"] + hole["width"] / 2, hole["y"] + hole["height"] / 2
    reader.page.mouse.move(x, y)
    reader.settle()
    tip = reader.root.locator(".dlv-tip")
    assert holes.why[at] in tip.inner_text() and "rank 0" in holes.why[at]
    reader.click(x, y)
    panel = reader.panel("selected span")
    assert holes.why[at] in panel.inner_text()
    assert "rank 1: 2.2 ms" in panel.inner_text()
    panel.locator("button").click()
    reader.settle()
    assert reader.span == 0  # rank 0's forward


def test_hovering_describes_the_span_and_leaving_hides_the_words(read_page, trace):
    row = last_wait(trace, 3)
    reader = read_page(trace)
    x, y = reader.middle(row)
    tip = reader.root.locator(".dlv-tip")
    plain = reader.picture
    reader.page.mouse.move(x, y)
    reader.settle()
    text = tip.inner_text()
    assert "recv from 2" in text and "4.1 KB" in text and "rank 3 · comm" in text
    assert str(waits(trace)[row]) in text
    assert reader.picture != plain  # outlined
    box = tip.bounding_box()
    assert box["x"] + box["width"] <= 1100
    reader.press("w")
    assert not tip.is_visible()  # its target has moved
    reader.press("s")
    reader.page.mouse.move(x, y - 1)
    reader.settle()
    assert tip.is_visible()
    reader.page.mouse.move(x, 5)
    reader.settle()
    assert not tip.is_visible() and reader.picture == plain


def test_hovering_a_message_describes_it(read_page, trace):
    reader = read_page(trace, step=0)
    reader.press("m")
    arrow = next(one for one in reader.places()["arrows"] if one["x2"] > reader.x(5 * MS))
    reader.page.mouse.move(arrow["x2"], arrow["y2"])
    reader.settle()
    text = reader.root.locator(".dlv-tip").inner_text()
    assert "message rank" in text and "4.1 KB" in text and "click: the " in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], ["rank 0 holds 4 KB at 7", "at most 5 KB"]),
        ([2000], ["rank 0 holds 6 KB at 7", "weights 2 KB", "activations 4 KB", "at most 7 KB"]),
    ],
)
def test_hovering_the_memory_strip_says_what_the_rank_holds(read_page, trace, more, words):
    memory = [row._asdict() for row in trace.memory.rows()]
    memory += [{"rank": 0, "time": 5 * MS, "what": "weights", "nbytes": own} for own in more]
    reader = read_page(Trace(trace.spans, trace.messages, memory, meta=trace.meta))
    box = reader.page.locator(".dlv-canvas").bounding_box()
    inner = first(trace, rank=0, kind="data", step=0)  # on rank 0's first row
    top = reader.places()["bars"][inner][1]
    assert top - 7 > box["y"]
    reader.page.mouse.move(reader.x(7 * MS), top - 7)  # 4,000 bytes since 6 ms
    reader.settle()
    found = reader.root.locator(".dlv-tip").inner_text()
    assert all(each in found for each in words), found


# ---- controls


def test_search_counts_marks_and_walks_through_what_it_finds(read_page, trace):
    spans = trace.spans
    rows = np.flatnonzero([name == "layer 1" for name in spans.name])
    rows = rows[np.lexsort((np.arange(len(rows)), spans.start[rows]))]
    reader = read_page(trace)
    plain = reader.picture
    reader.press("/")
    reader.page.keyboard.type("LAYER 1")
    reader.settle()
    found = reader.root.locator(".dlv-found").first
    assert found.inner_text() == f"{len(rows)} found"
    assert reader.picture != plain  # the others are dimmed
    walked = []
    for _ in range(len(rows)):
        reader.press("Enter")
        walked.append(reader.span)
    assert sorted(walked) == sorted(rows.tolist())
    assert (np.diff(spans.start[walked]) > -1e-9).all()
    reader.press("Enter")
    assert reader.span == walked[0]  # round
    reader.press("Shift+Enter", "Shift+Enter")
    assert reader.span == walked[-2]
    assert found.inner_text() == f"{len(rows)} found"
    reader.page.keyboard.press("Control+a")
    reader.page.keyboard.type("no such name")
    reader.settle()
    assert found.inner_text() == "0 found"
    reader.press("Enter")
    assert reader.span == walked[-2]
    reader.press("Escape")
    assert not found.is_visible()


def test_the_step_select_takes_the_step_as_the_range(read_page, trace):
    reader = read_page(trace)
    whole = reader.view
    select = reader.root.get_by_label("step", exact=True)
    assert select.locator("option").all_inner_texts() == ["all steps", "step 0", "step 1", "step 2"]
    for step in (1, 2):
        select.select_option(str(step))
        reader.settle()
        own = trace.only(step=step)
        window = [own.spans.start.min(), own.spans.end.max()]
        assert reader.range == pytest.approx(window)
        low, high = reader.view
        assert low < window[0] and window[1] < high * (1 + 1e-9)
        assert high - low < 1.2 * (window[1] - window[0])
    select.select_option("")
    reader.settle()
    assert reader.view == whole and not reader.ranged
    select.select_option("1")
    reader.root.focus()
    reader.press("Escape")
    assert select.input_value() == "" and not reader.ranged


def test_the_legend_names_the_kinds_that_take_time_by_the_clock_that_is_shown(read_page):
    spans = [
        {"rank": 0, "kind": kind, "start": 2 * MS * place, "end": 2 * MS * place + device,
         "wall_start": 3 * MS * place, "wall_end": 3 * MS * place + wall}
        for place, (kind, device, wall) in enumerate(
            [("forward", 2 * MS, 2 * MS), ("send", 0, 2 * MS), ("update", 0, 0)])
    ]  # fmt: skip
    reader = read_page(Trace(spans, meta={"clock": "paced", "ranks": 1}))
    buttons = reader.root.locator(".dlv-legend button:visible")
    assert [name.strip() for name in buttons.all_inner_texts()] == ["forward", "idle"]
    reader.press("c")
    assert [name.strip() for name in buttons.all_inner_texts()] == ["forward", "send", "idle"]


def test_each_button_of_the_legend_hides_its_kind_and_shows_it_again(read_page, small):
    trace = small
    reader = read_page(small)
    reader.press("t")
    buttons = reader.root.locator(".dlv-legend button:visible")
    kinds = [text.strip() for text in buttons.all_inner_texts()]
    lasting = trace.spans.kind[trace.spans.end > trace.spans.start]
    assert sorted(kinds) == sorted({*lasting.tolist()})
    caption = reader.root.locator(".dlv-wide caption").first
    for kind, button in zip(kinds, buttons.all(), strict=True):
        left = len(trace.spans) - int((trace.spans.kind == kind).sum())
        button.click()
        reader.settle()
        assert button.get_attribute("aria-pressed") == "false"
        assert caption.inner_text().startswith(f"{left} spans in view")
        button.click()
        reader.settle()
        assert button.get_attribute("aria-pressed") == "true"
        assert caption.inner_text().startswith(f"{len(trace.spans)} spans in view")
    plain = reader.picture
    reader.root.locator(".dlv-legend button", has_text="backward").click()
    reader.settle()
    assert reader.picture != plain


def test_the_toolbar_zooms_fits_and_toggles(read_page, trace):
    reader = read_page(trace)
    whole = reader.view
    length = reader.length
    reader.root.get_by_label("zoom in (W)").click()
    reader.settle()
    assert reader.length == pytest.approx(length * 0.7)
    reader.root.get_by_label("zoom in (W)").click()
    reader.root.get_by_label("zoom out (S)").click()
    reader.settle()
    assert reader.length == pytest.approx(length * 0.7)
    reader.root.get_by_label("fit all (0)").click()
    reader.settle()
    assert reader.view == whole
    plain = reader.picture
    reader.button("messages").click()
    reader.settle()
    assert reader.picture != plain
    reader.button("wall-clock time").click()
    reader.settle()
    assert reader.data["clock"] == "wall"
    reader.button("device time").click()
    reader.settle()
    assert reader.data["clock"] == "device"
    for name, panel in (("table", ".dlv-wide"), ("source", ".dlv-panel[aria-label=source]")):
        for shown in (True, False):
            reader.button(name).click()
            reader.settle()
            assert reader.root.locator(panel).is_visible() is shown


def test_the_theme_button_has_three_states_and_the_colours_follow(read_page, trace):
    reader = read_page(trace)
    button = reader.root.locator(".dlv-theme")
    seen = {}
    for _ in range(3):
        name = button.inner_text()
        paper = reader.root.evaluate("root => getComputedStyle(root).backgroundColor")
        ink = reader.root.evaluate("root => getComputedStyle(root).color")
        box = reader.page.locator(".dlv-canvas").bounding_box()
        assert reader.pixel(box["x"] + 1, box["y"] + 1) == paper  # the canvas as well
        hint = reader.root.locator("input").first.evaluate(
            "input => getComputedStyle(input, '::placeholder').color"
        )
        seen[name] = paper, ink, reader.picture, hint
        button.click()
        reader.settle()
    assert [*seen] == ["theme: page", "theme: light", "theme: dark"]
    assert button.inner_text() == "theme: page"
    light, dark = seen["theme: light"], seen["theme: dark"]
    assert seen["theme: page"] == light
    assert all(a != b for a, b in zip(light, dark, strict=True))
    for (paper, *_, hint), name in ((light, "light"), (dark, "dark")):
        assert paper == rgb(palette.THEMES[name]["paper"])
        assert hint == rgb(palette.THEMES[name]["faint"])


def test_the_small_picture_takes_a_theme_that_came_while_it_was_aside_for_a_frame(read_page, trace):
    shown = read_page(trace)
    shown.page.evaluate("""async () => {
        document.body.style.setProperty('--jp-layout-color0', 'rgb(17, 17, 17)');
        document.body.style.setProperty('--jp-ui-font-color0', 'rgb(238, 238, 238)');
        await Promise.resolve();  // the theme is known, and painted in the next frame
        const root = document.querySelector('.dlv');
        root.style.display = 'none';
        await new Promise(done => requestAnimationFrame(done));
        root.style.display = '';
    }""")
    shown.page.wait_for_timeout(200)
    light, dark = (rgb_of(palette.THEMES[name]["cell"]) for name in ("light", "dark"))
    found = shown.page.evaluate(
        """papers => {
        const canvas = document.querySelector('.dlv-minimap canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const pixels = data.length / 4;
        const at = Array.from({ length: pixels }, (_, i) => data.subarray(4 * i, 4 * i + 3));
        return papers.map(paper => at.filter(pixel => String(pixel) === String(paper)).length);
    }""",
        [light, dark],
    )
    assert found[0] == 0 < found[1]


def rgb_of(color):
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def rgb(color):
    return f"rgb({', '.join(map(str, rgb_of(color)))})"


HOSTS = {
    "JupyterLab, dark": (
        "document.body.style.setProperty('--jp-layout-color0', '#111111');"
        "document.body.style.setProperty('--jp-ui-font-color0', '#eeeeee')",
        ("dark", "rgb(17, 17, 17)"),
    ),
    "JupyterLab, light": (
        "document.body.style.setProperty('--jp-layout-color0', '#fafafa');"
        "document.body.style.setProperty('--jp-ui-font-color0', '#222222')",
        ("light", "rgb(250, 250, 250)"),
    ),
    "VS Code": (
        "document.documentElement.style.setProperty('--vscode-editor-background', '#1e1e1e');"
        "document.documentElement.style.setProperty('--vscode-editor-foreground', '#d4d4d4')",
        ("dark", "rgb(30, 30, 30)"),
    ),
    "Colab": (
        "document.documentElement.setAttribute('theme', 'dark')",
        ("dark", rgb(palette.THEMES["dark"]["paper"])),
    ),
}


def test_the_page_around_gives_the_theme_when_it_changes(page, read_page, held_up):
    for change, (name, paper) in HOSTS.values():
        page.emulate_media(color_scheme="light" if name == "dark" else "dark")
        reader = read_page(held_up)
        assert reader.data["theme"] == "light"  # a preference of the system alone says nothing
        page.evaluate(f"() => {{ {change} }}")
        reader.settle()
        assert reader.data["theme"] == name
        assert reader.root.evaluate("root => getComputedStyle(root).backgroundColor") == paper
        reader.root.locator(".dlv-theme").click()  # the reader's own choice wins
        reader.settle()
        assert reader.data["theme"] == "light"


def test_the_table_lists_the_spans_in_view_and_its_links_select(read_page, trace):
    spans = trace.spans
    reader = read_page(trace)
    reader.press("t", *"wwwwww")
    low, high = reader.view
    inside = np.flatnonzero((spans.end >= low) & (spans.start <= high))
    ends = spans.end[inside].round(9)
    inside = inside[np.lexsort((-ends, spans.start[inside].round(9)))]
    table, held = (reader.root.locator(".dlv-wide table").nth(n) for n in (0, 1))
    memory = trace.memory
    for rank, line in enumerate(held.locator("tbody tr").all_inner_texts()):
        own = memory.nbytes[memory.rank == rank]
        assert line.split("\t") == [str(rank), text.nbytes(int(own.max())), text.nbytes(own[-1])]
    assert table.locator("caption").inner_text() == f"{len(inside)} spans in view"
    rows = table.locator("tbody tr")
    assert rows.count() == len(inside)
    from_, took = (rows.locator(f"td:nth-child({n})").all_inner_texts() for n in (3, 4))
    assert [amount(text) for text in from_] == pytest.approx(spans.start[inside].tolist(), abs=1e-6)
    assert [amount(text) for text in took] == [
        near(length) for length in (spans.end - spans.start)[inside]
    ]
    for place in (0, len(inside) // 2, len(inside) - 1):
        link = rows.nth(place).locator("button")
        words = link.inner_text()
        link.focus()
        reader.press("Enter")
        row = reader.span
        assert spans.start[row] == pytest.approx(spans.start[inside[place]])
        assert spans.kind[row] in words or spans.kind[row] in ("send", "recv")
        assert table.locator("tr[aria-selected=true]").count() == 1
        reader.press("Escape")


def test_statistics_of_a_step_are_those_of_metrics_and_numpy(read_page, trace):
    reader = read_page(trace)
    for clock in ("device", "wall"):
        own = trace.only(step=1)
        reader.root.get_by_label("step", exact=True).select_option("1")
        reader.settle()
        kinds, ranks = reader.cells("kinds"), reader.cells("ranks")
        start, end = (
            (own.spans.start, own.spans.end)
            if clock == "device"
            else (own.spans.wall_start, own.spans.wall_end)
        )
        assert {*kinds} == {*own.spans.kind.tolist()}
        for kind, cells in kinds.items():
            lengths = (end - start)[own.spans.kind == kind]
            assert int(cells["count"]) == len(lengths)
            for name in ("min", "mean", "max"):
                assert amount(cells[name]) == near(getattr(lengths, name)())
            assert amount(cells["total"]) == near(lengths.sum())
        parts = metrics.breakdown(own, clock)
        assert {*ranks} == {"0", "1", "2", "3"}
        for rank, cells in ranks.items():
            mine = own.spans.rank == int(rank)  # its part of the step: first span to last
            lasted = end[mine].max() - start[mine].min()
            parts["idle"][int(rank)] -= (end.max() - start.min()) - lasted
            for name, amounts in parts.items():
                assert amount(cells.get(name, "0 ms")) == near(amounts[int(rank)])
        reader.root.focus()
        reader.press("Escape", "0", "r")  # nothing is selected: all
        parts = metrics.breakdown(trace, clock)
        for rank, cells in reader.cells("ranks").items():
            for name, amounts in parts.items():
                assert amount(cells.get(name, "0 ms")) == near(amounts[int(rank)])
        reader.press("c")


def test_statistics_of_a_dragged_range_count_what_lies_in_it(read_page, trace):
    reader = read_page(trace)
    reader.drag((reader.x(6.1 * MS), 300), (reader.x(17.3 * MS), 300))
    low, high = reader.range
    spans = trace.spans
    inside = (spans.end > low) & (spans.start < high)
    point = (spans.start == spans.end) & (spans.start >= low) & (spans.start <= high)
    kinds = reader.cells("kinds")
    for kind, cells in kinds.items():
        lengths = (spans.end - spans.start)[(inside | point) & (spans.kind == kind)]
        assert int(cells["count"]) == len(lengths)
        assert amount(cells["total"]) == near(lengths.sum())
    columns = {name: spans[name][inside] for name in ("rank", "lane", "kind", "depth")}
    cut = {"start": spans.start[inside].clip(low), "end": spans.end[inside].clip(max=high)}
    parts = metrics.breakdown(Trace({**columns, **cut}, meta={"ranks": 4}))
    ranks = reader.cells("ranks")
    for rank, cells in ranks.items():
        shares = {name: amounts[int(rank)] for name, amounts in parts.items()}
        for name in ("compute", "update", "communication", "other"):
            assert amount(cells.get(name, "0 ms")) == near(shares[name])
        assert amount(cells["idle"]) == near(high - low - sum(shares.values()) + shares["idle"])


def test_statistics_name_the_longest_wait_and_lead_to_it(read_page, trace):
    spans, known = trace.spans, waits(trace)
    own = np.flatnonzero((spans.step == 1) & np.isin(spans.kind, ["wait", "recv"])).tolist()
    lasted = (spans.end - spans.start).round(9)
    reader = read_page(trace)
    reader.root.get_by_label("step", exact=True).select_option("1")
    reader.settle()
    cells = reader.cells("ranks")
    longest = {}
    for rank in range(4):
        mine = [row for row in own if spans.rank[row] == rank]
        longest[rank] = row = max(mine, key=lambda row: (lasted[row], row in known))
        words, why = cells[str(rank)]["its longest wait"], known.get(row)
        whom = f" for {why.whom}" if why else ""  # its wait for gradients does not say for whom
        assert words.startswith(f"{lasted[row] / MS:.3g} ms{whom}")
    bold = reader.root.locator(".dlv-ranks tbody tr", has=reader.page.locator("td strong"))
    first_ = bold.locator("th").inner_text().split()[0]
    assert lasted[longest[int(first_)]] == max(lasted[row] for row in longest.values())
    why = known.get(longest[int(first_)])
    line = reader.root.locator(".dlv-longest").inner_text()
    assert line.startswith(
        f"Rank {first_} waited longest: {lasted[longest[int(first_)]] / MS:.3g} ms"
    )
    assert line.endswith(why.doing if why else "; the Trace does not say for whom")
    reader.root.locator(".dlv-ranks tbody tr").nth(2).locator("button").click()
    reader.settle()
    row = reader.span
    assert spans.rank[row] == 2 and lasted[row] == near(
        max(lasted[r] for r in own if spans.rank[r] == 2)
    )


# ---- the panel of the selection


def test_the_panel_says_all_and_its_links_lead_on(read_page, trace, program):
    spans = trace.spans
    row = last_wait(trace, 3)
    wait, flow = waits(trace)[row], spans.flow[row]
    reader = read_page(trace, {"span": row})
    panel = reader.panel("selected span")
    words = panel.inner_text()
    assert "rank 3 · comm" in words and "4.1 KB" in words and "step 2" in words
    assert f"for {wait.whom}; {wait.doing}" in words
    assert "100 µs (wall clock minus device clock" in words  # late by
    assert f"train.py, line {spans.where[row].rpartition(':')[2]}" in words

    panel.get_by_role("button", name="show it").first.click()
    reader.settle()
    assert reader.span == wait.span
    reader = read_page(trace, {"span": row})
    panel = reader.panel("selected span")
    panel.get_by_role("button", name="go to the sender").click()
    reader.settle()
    sender = reader.span
    assert sender == first(trace, flow=flow, rank=trace.messages.src[flow])
    panel.get_by_role("button", name="go to the receiver").click()
    reader.settle()
    assert reader.span == row
    assert "timeline" in reader.focused  # the link is gone; the focus is not

    panel.get_by_role("button", name="train.py").click()
    reader.settle()
    source = reader.root.locator(".dlv-panel[aria-label=source]")
    assert source.is_visible()
    line = spans.where[row].rpartition(":")[2]
    marked = source.locator("li[aria-current=true]")
    assert marked.count() == 1 and f"line_{line} = {line}" in marked.inner_text()


def test_a_line_of_source_selects_its_spans(read_page, trace):
    reader = read_page(trace)
    reader.button("source").click()
    plain = reader.picture
    kind = "update"
    line = trace.spans.where[first(trace, kind=kind)].rpartition(":")[2]
    reader.root.get_by_role("button", name=f"line {line}:").click()
    reader.settle()
    count = int((trace.spans.kind == kind).sum())
    assert reader.root.locator(".dlv-found").first.inner_text() == f"{count} found"
    assert reader.picture != plain


def test_the_source_shows_the_line_of_the_selection_however_long_the_program(read_page, tmp_path):
    program = tmp_path / "long.py"
    program.write_text("pass\n" * 110)
    spans = [
        {
            "rank": 0,
            "kind": "forward",
            "start": float(i),
            "end": i + 0.5,
            "where": f"{program}:{line}",
        }
        for i, line in enumerate([100, 3, 108, 55])
    ]
    reader = read_page(Trace(spans))
    reader.button("source").click()
    reader.root.focus()
    source = reader.root.locator(".dlv-source")
    for line in (100, 3, 108, 55):
        reader.press(".")
        marked = source.locator("li[aria-current=true]")
        assert marked.get_attribute("value") == str(line)
        inner, outer = marked.bounding_box(), source.bounding_box()
        assert outer["y"] <= inner["y"]
        assert inner["y"] + inner["height"] <= outer["y"] + outer["height"]


# ---- on a laptop, and answers beside their controls


def held_pipeline(ranks):
    """A simulated pipeline as a program on real ranks records it: in a step, in a phase."""
    trace = simulate(make("gpipe", ranks, 8), Costs(10 * MS, None, 5 * MS, 5 * MS))
    own = trace.spans
    names = ("rank", "kind", "start", "end", "stage", "microbatch")
    spans = [
        {**{name: own[name][i] for name in names}, "depth": 2, "step": 0} for i in range(len(own))
    ]
    whole = {"start": 0.0, "end": float(own.end.max()), "step": 0}
    for rank in range(ranks):
        spans.append({"rank": rank, "kind": "step", "depth": 0, **whole})
        spans.append({"rank": rank, "kind": "phase", "name": "gpipe", "depth": 1, **whole})
    return Trace(spans, trace.messages, meta={"clock": "simulated", "ranks": ranks})


@pytest.mark.parametrize("made", ["pipeline", "data parallel", "16 ranks", "deadlock", "hosts"])
def test_all_fits_a_laptop_and_each_answer_is_in_view_beside_its_control(page, read_page, made):
    page.set_viewport_size({"width": 833, "height": 680})
    traces = {"pipeline": held_pipeline(8), "data parallel": data_parallel(4, 3)}
    traces |= {"16 ranks": data_parallel(16, 1), "deadlock": deadlock(4)}
    traces["hosts"] = on_hosts(data_parallel(4, 2))
    reader = read_page(traces[made])
    height = reader.root.bounding_box()["height"]
    assert height <= 640
    rows = reader.root.locator(".dlv-rows")
    scrolls = rows.evaluate("one => one.scrollHeight > one.clientHeight")
    assert scrolls == (made == "16 ranks")  # the others are all in view
    plot, answers = (
        reader.root.locator(name).bounding_box() for name in (".dlv-plot", ".dlv-answers")
    )
    assert answers["y"] + answers["height"] <= plot["y"]  # between the controls and the picture

    def comes_first(panel):
        top = reader.panel(panel).bounding_box()["y"]
        return answers["y"] <= top < answers["y"] + 10

    select = reader.root.get_by_label("step", exact=True)
    if select.count():
        select.select_option("1")
    else:
        reader.press("r")
    reader.settle()
    assert comes_first("statistics of the range")
    reader.click(*reader.middle(next(iter(reader.places()["bars"]))))
    assert comes_first("selected span")
    assert reader.root.bounding_box()["height"] == height  # nothing moves
    assert reader.root.locator(".dlv-plot").bounding_box() == plot
    for key in "pt":  # the critical path in words, and the table beside what is selected
        reader.press(key)
        assert reader.root.bounding_box()["height"] <= 640, key
        assert rows.bounding_box()["height"] > 90
    assert page.evaluate("document.documentElement.scrollHeight") <= 680  # nothing lies below


def test_a_strip_over_all_ranks_is_selected_by_a_click_and_describes_each_rank(read_page):
    reader = read_page(data_parallel(3, 2))
    first_, second = reader.places()["heads"]
    reader.page.mouse.move(second["x"] + 40, second["y"] + 4)
    reader.settle()
    tip = reader.root.locator(".dlv-tip").inner_text()
    assert tip.startswith("step: step 1") and "on all ranks: from " in tip
    plain = reader.picture
    reader.click(second["x"] + 40, second["y"] + 4)
    panel = reader.panel("selected span").inner_text()
    assert "step 1" in panel and "rank 0" in panel and "on all ranks: from " in panel
    assert reader.picture != plain
    reader.click(first_["x"] + 40, first_["y"] + 4)
    assert "step 0" in reader.panel("selected span").inner_text()


def test_statistics_have_a_sum_mark_the_slowest_and_are_sorted_by_any_column(read_page, trace):
    reader = read_page(trace)
    reader.press("r")
    table = reader.root.locator(".dlv-ranks")
    compute = [amount(own["compute"]) for own in reader.cells("ranks").values()]
    total = table.locator("tfoot td").first.inner_text()
    assert amount(total) == pytest.approx(sum(compute), rel=0.01)
    slowest = table.locator("tbody tr", has_text="slowest").locator("th").all_inner_texts()
    assert slowest == ["2 slowest"]  # it computes half as fast again

    def order():
        return [name.split()[0] for name in table.locator("tbody th").all_inner_texts()]

    assert order() == ["0", "1", "2", "3"]
    for name, column in (("compute", "compute"), ("idle", "idle")):
        numbers = {rank: amount(own[column]) for rank, own in reader.cells("ranks").items()}
        for sign, sort in ((-1, "descending"), (1, "ascending")):
            table.locator("thead button", has_text=name).press("Enter")
            reader.settle()
            assert [sign * numbers[rank] for rank in order()] == sorted(
                sign * n for n in numbers.values()
            )
            assert table.locator(f"thead th[aria-sort={sort}]").inner_text().startswith(name)
            assert reader.focused.startswith(name)  # the column's head keeps the focus
    table.locator("thead button", has_text="rank").click()
    reader.settle()
    assert order() == ["0", "1", "2", "3"]


def test_no_word_of_a_table_or_of_the_keys_is_wrong_or_cut(page, read_page, trace):
    page.set_viewport_size({"width": 833, "height": 800})
    reader = read_page(trace)
    reader.press("t")
    heads = reader.root.locator(".dlv-wide thead").first.locator("th").all_inner_texts()
    assert heads == ["span", "where", "from", "took", "waited for"]
    reader.press("t")
    box = reader.root.locator(".dlv-keys").bounding_box()
    shown = [one.bounding_box() for one in reader.root.locator(".dlv-keys > span").all()]
    first_line = [one for one in shown if one["y"] < box["y"] + box["height"] - 2]
    assert 3 < len(first_line) < len(shown)
    assert all(one["x"] + one["width"] <= box["x"] + box["width"] for one in first_line)


def test_waiting_and_idle_time_look_the_same_in_both_themes_and_in_the_legend(read_page, trace):
    reader = read_page(trace, step=0)
    reader.press("m")  # no arrows
    x, y, width, _ = reader.places()["bars"][first(trace, rank=0, kind="wait", step=0)]
    hole = max(reader.places()["idle"], key=lambda one: one["width"])
    seen = {}
    for theme in ("light", "dark"):
        reader.page.evaluate("theme => window.shown[0].model.set('theme', theme)", theme)
        reader.settle()
        wait = reader.ground(x + 2, y + 2, min(width - 4, 20), 8)
        idle = reader.ground(hole["x"] + 2, hole["y"] + 2, 20, 8)
        seen[theme] = wait
        assert idle == [*bytes.fromhex(palette.THEMES[theme]["paper"][1:])]  # hatched paper
        swatch = reader.root.locator(".dlv-legend button", has_text="wait").locator("canvas")
        place = swatch.bounding_box()
        assert reader.ground(place["x"] + 2, place["y"] + 2, 9, 8, swatch) == wait
    assert seen["light"] == seen["dark"]


def test_a_search_dims_the_edges_and_hatches_of_all_that_it_did_not_find(read_page, trace):
    reader = read_page(trace, step=0)
    reader.press("m")
    x, y, _, height = reader.places()["bars"][first(trace, rank=0, kind="wait", step=0)]
    canvas, area = reader.root.locator(".dlv-canvas"), [x - 3, y, 12, height]

    def darkest():
        colors = np.reshape(json.loads(canvas.evaluate(AREA, area)), (-1, 4))[:, :3]
        return colors.sum(axis=1).min()

    assert darkest() < 350
    reader.press("/")
    reader.page.keyboard.type("update")
    reader.settle()
    assert darkest() > 560


def test_the_picture_is_saved_as_an_svg_of_what_is_in_view(page, read_page, trace):
    reader = read_page(trace, title="Four ranks")
    reader.press(*"ww")
    shown = reader.places()["bars"]
    with page.expect_download() as download:
        reader.button("SVG").click()
    assert download.value.suggested_filename == "timeline.svg"
    root = ElementTree.parse(download.value.path()).getroot()
    name = "{http://www.w3.org/2000/svg}"
    words = [one.text for one in root.iter(f"{name}text")]
    assert words[0] == "Four ranks" and "rank 3 · comm" in words
    assert len([*root.iter(f"{name}rect")]) > len(shown) > 20


def test_a_failed_run_says_what_failed_and_leads_round_the_cycle(read_page):
    made = deadlock(4)
    reader = read_page(made)
    assert made.meta["failure"]["message"] in reader.root.locator("header").inner_text()
    reader.click(*reader.middle(2))
    panel = reader.panel("selected span").inner_text()
    assert "never ended" in panel and "2.8 s" not in panel
    canvas = reader.root.locator(".dlv-canvas").bounding_box()
    right = canvas["x"] + canvas["width"] - 22  # the first arrow of the cycle
    _, y, _, height = reader.places()["bars"][1]
    reader.page.mouse.move(right, y + height / 2)
    reader.settle()
    words = reader.root.locator(".dlv-tip").inner_text()
    assert "rank 0 waits for rank 3 in recv" in words and "never ended" in words


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_lost_rank_is_marked_listed_and_in_the_small_picture(read_page, theme):
    reader = read_page(lossy(), theme=theme)
    late, killed = reader.places()["lost"]
    wrong = rgb(palette.MARKS["wrong"])
    assert [reader.pixel(one["x"], one["y"]) for one in (late, killed)] == [wrong, wrong]
    assert reader.pixel(killed["x"] + 9, killed["y"]) != wrong
    small = reader.root.locator(".dlv-minimap canvas")
    box = small.bounding_box()
    x, high = box["x"] + box["width"] / 2, box["height"] / 4
    rows = [small.evaluate(PIXEL, [x, box["y"] + (row + 0.4) * high]) for row in range(4)]
    assert [color == wrong for color in rows] == [False, False, False, True]
    legend = reader.root.locator(".dlv-legend")
    assert "rank lost" in legend.inner_text()
    box = legend.locator("canvas").last.bounding_box()
    middle = [box["x"] + box["width"] / 2, box["y"] + 1]
    assert legend.locator("canvas").last.evaluate(PIXEL, middle) == wrong

    reader.page.mouse.move(killed["x"], killed["y"])
    reader.settle()
    words = "rank 2 was killed by signal 9 at 1.5 s; the run lost it"
    assert reader.root.locator(".dlv-tip").inner_text().splitlines() == ["rank lost", words]
    reader.click(killed["x"], killed["y"])
    listed = reader.panel("marks").get_by_role("button")
    assert listed.nth(1).inner_text() == words and listed.count() == 2
    reader.root.focus()
    reader.press("w", "w", "w", "d", "d", "d", "d", "d", "d")
    assert reader.view[0] > 1.5
    listed.nth(1).focus()
    reader.press("Enter")
    assert sum(reader.view) / 2 == pytest.approx(1.5)


def test_a_cut_trace_says_so_and_counts_all(read_page, trace):
    reader = read_page(trace, max_spans=40)
    assert "not drawn" in reader.root.locator(".dlv-legend").inner_text()
    assert "The longest 40 of" in reader.root.locator("header").inner_text()
    reader.root.get_by_label("step", exact=True).select_option("1")
    reader.settle()
    kinds = reader.cells("kinds")
    own = trace.only(step=1).spans.kind
    assert {kind: int(cells["count"]) for kind, cells in kinds.items()} == {
        kind: int((own == kind).sum()) for kind in set(own)
    }
    reader.root.focus()
    reader.press("t")
    caption = reader.root.locator(".dlv-wide caption").first.inner_text()
    assert f"of the 40 that are drawn ({len(trace.spans)} in all)" in caption


# ---- all controls


def test_every_control_changes_the_page(read_page, small):
    done = read_page(small).page.evaluate(WIRED_TO_NOTHING)
    assert done["tried"] > 30
    assert done["dead"] == []


def test_a_control_that_is_wired_to_nothing_is_found(read_page, held_up):
    reader = read_page(held_up)
    reader.page.evaluate(
        """() => {
            const bar = document.querySelector(".dlv-toolbar");
            const dead = document.createElement("button");
            dead.textContent = "dead";
            const own = document.createElement("button");
            own.textContent = "turns only itself";
            own.onclick = () => own.toggleAttribute("aria-pressed");
            const select = document.createElement("select");
            select.setAttribute("aria-label", "dead select");
            select.append(new Option("a"), new Option("b"));
            bar.append(dead, own, select);
        }"""
    )
    dead = reader.page.evaluate(WIRED_TO_NOTHING)["dead"]
    assert {"dead", "turns only itself", "dead select ab"} == {*dead}


# ---- focus


def test_tab_walks_through_all_controls_and_leaves_at_both_ends(read_page, trace):
    reader = read_page(trace, {"span": last_wait(trace, 3)})
    reader.press("r")
    page = reader.page
    page.evaluate(
        """() => {
            for (const [name, place] of [["before", "prepend"], ["after", "append"]]) {
                const button = document.createElement("button");
                button.id = button.textContent = name;
                document.body[place](button);
            }
        }"""
    )
    controls = page.evaluate(
        "() => [...document.querySelectorAll('.dlv :is(button, select, input, [tabindex])')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    assert controls > 25
    for key, begin, end in (("Tab", "before", "after"), ("Shift+Tab", "after", "before")):
        page.focus(f"#{begin}")
        reached = 0
        for _ in range(controls + 2):
            page.keyboard.press(key)
            if page.evaluate("() => document.activeElement.id") == end:
                break
            reached += 1
            named = page.evaluate(
                "() => (document.activeElement.getAttribute('aria-label')"
                " ?? document.activeElement.textContent).trim()"
            )
            assert named
        assert page.evaluate("() => document.activeElement.id") == end
        assert reached == controls + 1  # and the widget itself


def test_a_visible_focus_and_the_keys_show_on_focus(read_page, held_up):
    reader = read_page(held_up)
    legend = reader.root.locator(".dlv-keys")
    assert legend.is_visible()
    for target in (reader.root, reader.button("fit"), reader.root.locator("input").first):
        target.focus()
        assert target.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    reader.page.evaluate("() => document.activeElement.blur()")
    reader.settle()
    assert not legend.is_visible()
    assert reader.root.get_attribute("data-lm-suppress-shortcuts") == "true"


# ---- several on one page


def test_two_timelines_do_not_take_each_others_keys(page, notebook, trace, held_up):
    one, two = notebook(Timeline(trace), Timeline(held_up))
    page.evaluate(
        "() => { window.heard = [];"
        " document.addEventListener('keydown', (event) => window.heard.push(event.key)); }"
    )
    for own, other in ((one, two), (two, one)):
        own.root.focus()
        before = own.view, {**other.data}
        own.press("w", ".", "m", "x")
        assert own.view != before[0] and own.span is not None
        after = other.data
        del after["draws"], before[1]["draws"]
        assert after == before[1]
    assert page.evaluate("() => window.heard") == ["x", "x"]  # its own keys stay in the widget


def test_timelines_of_one_trace_share_the_selection_and_of_others_not(
    page, notebook, trace, held_up
):
    widgets = [Timeline(trace), Timeline(trace, step=1), Timeline(held_up)]
    one, two, other = notebook(*widgets)
    row = last_wait(trace, 3)
    same = first(trace, rank=3, kind="update", step=1)
    for chosen, reader in ((same, one), (row, one)):
        page.evaluate(
            "row => window.shown[0].model.set('selection', { span: row })", chosen
        )  # as Python would
        reader.settle()
        assert reader.span == chosen
    one.root.focus()
    one.press("Escape", "0", ".")
    assert one.span is not None and other.span is None
    assert two.span is None  # it shows step 1 alone
    two.root.focus()
    two.press(".")
    eventually(lambda: one.span == two.span is not None)
    assert other.span is None
    assert page.evaluate("() => window.shown[1].model.get('selection')") == {"span": two.span}


def test_z_goes_back_to_what_was_in_view_and_y_forward_again(read_page, trace):
    reader = read_page(trace)
    views = [reader.view]
    for keys in ("ww", "d"):
        reader.press(*keys)
        views.append(reader.view)
        reader.page.wait_for_timeout(600)  # what follows later is another change
    for key, place in (("z", 1), ("z", 0), ("y", 1), ("y", 2)):
        reader.press(key)
        assert reader.view == pytest.approx(views[place])
    reader.press("y")
    assert "There is no later view." in reader.panel("selected span").inner_text()


def test_rows_are_hidden_pinned_and_moved_by_their_list(read_page, trace):
    reader = read_page(trace)
    reader.button("rows").click()
    reader.settle()  # the list is painted with the next picture
    panel = reader.panel("rows")
    names = panel.locator("li > span").all_text_contents()
    before = reader.picture
    panel.get_by_label(f"move {names[0]} down").click()
    reader.settle()
    moved = [names[1], names[0], *names[2:]]
    assert panel.locator("li > span").all_text_contents() == moved
    assert reader.focused == f"move {names[0]} down" and reader.picture != before
    panel.get_by_label(f"show {names[2]}", exact=True).click()
    reader.settle()
    assert (
        panel.get_by_label(f"show {names[2]}", exact=True).get_attribute("aria-pressed") == "false"
    )
    panel.get_by_label(f"pin {names[3]}", exact=True).click()
    reader.settle()
    reader.root.focus()
    reader.press(".")  # begins with the first row that shows: the pinned one
    assert f"rank {trace.spans.rank[reader.span]}" == names[3].split(" ·")[0]
    panel.get_by_text("as they were").click()
    reader.root.focus()
    reader.press("Escape")
    assert reader.picture == before


def test_hosts_are_named_over_their_rows_which_their_list_still_moves(read_page):
    long = "gpu-node-of-the-cluster-in-the-cellar-07"
    trace = on_hosts(data_parallel(4, 1), {long: [0, 1], "host-b": [2, 3]})
    reader = read_page(trace)
    canvas = reader.root.locator(".dlv-canvas")
    found = reader.places()
    first, second = (found["axis"] + one["y"] + 7 for one in found["groups"])
    tip = reader.root.locator(".dlv-tip")

    def words_at(y):
        box = canvas.bounding_box()
        reader.page.mouse.move(box["x"] + 20, box["y"] + y)
        reader.settle()
        return tip.inner_text().split("\n") if tip.is_visible() else []

    assert words_at(first) == [long, "ranks 0, 1"] and words_at(second) == ["host-b", "ranks 2, 3"]
    box = canvas.bounding_box()
    right = box["x"] + box["width"] - 40
    for y in (first, second):  # a line across the whole picture
        seen = reader.ground(right, int(box["y"] + y + 1), 30, 1)
        assert seen != reader.ground(right, int(box["y"] + y - 4), 30, 1)

    reader.button("rows").click()
    reader.settle()
    panel = reader.panel("rows")
    names = panel.locator(".dlv-rowgroup").all_inner_texts
    assert names() == ["gpu-node-of-the-…e-cellar-07", "host-b"]
    for row in ("rank 0", "rank 0 · comm"):
        panel.get_by_label(f"show {row}", exact=True).click()
    panel.get_by_label("pin rank 3", exact=True).click()
    reader.settle()
    assert words_at(first) == ["host-b", "ranks 2, 3"]  # over the row that is pinned
    assert words_at(second) == []
    panel.get_by_label("move rank 1 · comm down", exact=True).click()
    reader.settle()
    assert names() == ["gpu-node-of-the-…e-cellar-07", "host-b"] * 2
    panel.get_by_text("as they were").click()
    reader.settle()
    assert words_at(first)[0] == long and words_at(second)[0] == "host-b"


def test_the_pinned_row_stays_in_view_while_the_others_are_scrolled(read_page):
    reader = read_page(data_parallel(16, 1))
    reader.button("rows").click()
    reader.panel("rows").get_by_label("pin rank 15", exact=True).click()
    reader.settle()
    scroller = reader.root.locator(".dlv-rows")
    box = scroller.bounding_box()
    top = [0, reader.places()["axis"] + 2, int(box["width"]), 5]
    first = scroller.locator("canvas").evaluate(AREA, top_of(box, top))
    scroller.evaluate("one => { one.scrollTop = 200; }")
    reader.settle()
    after = scroller.locator("canvas").evaluate(AREA, top_of(box, top))
    assert first == after and scroller.evaluate("one => one.scrollTop") == 200


def top_of(box, part):
    x, y, wide, tall = part
    return [box["x"] + x, box["y"] + y, wide, tall]


def test_a_mark_stores_its_note_by_its_clock_and_can_be_removed(page, notebook, trace):
    (reader,) = notebook(Timeline(trace))
    reader.press(".", "n")
    assert reader.focused == "note of mark 1"
    page.keyboard.type("here it waits")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    stored = page.evaluate("() => window.shown[0].model.get('marks')")
    start = trace.spans.start[reader.span]
    assert stored == [{"clock": "device", "time": pytest.approx(start), "note": "here it waits"}]
    flag = reader.root.locator(".dlv-flag")
    assert flag.get_attribute("title") == "here it waits"
    box = flag.bounding_box()
    assert box["x"] + 8 == pytest.approx(reader.x(start), abs=2)
    reader.root.focus()
    reader.press("c")
    assert not flag.count()  # it is a moment by the other clock
    reader.press("c")
    reader.button("marks").click()  # Escape in the list, of reader.x, has closed it
    reader.panel("marks").get_by_label("remove mark 1").click()
    reader.settle()
    assert page.evaluate("() => window.shown[0].model.get('marks')") == [] and not flag.count()


def test_the_list_of_marks_takes_the_focus_and_escape_gives_it_back(page, notebook, trace):
    (reader,) = notebook(Timeline(trace))
    button = "list the marks; N marks a moment"
    reader.button("marks").click()
    assert reader.focused == "marks"
    page.keyboard.press("Escape")
    assert reader.focused == button and reader.panel("marks").is_hidden()
    reader.press("n")
    page.keyboard.press("Escape")
    assert reader.focused == button and reader.panel("marks").is_hidden()
    reader.button("marks").click()
    assert reader.focused == "note of mark 1"


def test_a_saved_page_keeps_the_marks_and_a_link_brings_its_view_back(browser, trace, tmp_path):
    widget = Timeline(trace)
    widget.marks = [{"clock": "device", "time": 1 * MS, "note": "kept"}]
    path = widget.save_html(tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    reader = Reader(page)
    reader.ready()
    assert reader.root.locator(".dlv-flag").get_attribute("title") == "kept"
    reader.press("w", "w", "d", ".", "c")
    reader.button("link").click()
    reader.settle()
    address, view, span = page.url, reader.view, reader.span
    other = browser.new_page()
    other.goto(address)
    again = Reader(other)
    again.ready()
    assert again.view == pytest.approx(view) and again.span == span
    assert again.data["clock"] == "wall"
    other.goto(path.as_uri() + "#view=nonsense")
    again.ready()
    assert again.data["draws"]
    for one in (page, other):
        one.close()


def test_the_chart_of_steps_chooses_the_step_and_is_as_high_as_they_took(read_page, trace):
    reader = read_page(trace)
    chart = reader.root.locator(".dlv-steptimes")
    lengths = []
    for step in (0, 1):
        own = trace.spans.step == step
        lengths.append(trace.spans.end[own].max() - trace.spans.start[own].min())
    bars = chart.locator("g rect:last-child").all()
    heights = [float(bar.get_attribute("height")) for bar in bars]
    assert heights[:2] == pytest.approx([length / max(lengths) for length in lengths])
    chart.locator("g").nth(1).click()
    reader.settle()
    assert reader.root.get_by_label("step", exact=True).input_value() == "1"
    assert "Step 1" in reader.panel("statistics of the range").inner_text()
    assert chart.locator("g.dlv-own").get_attribute("data-step") == "1"


def test_another_trace_lies_below_on_the_same_axis_and_describes_its_own_spans(browser, tmp_path):
    before, after = (simulate(make(name, 4, 8)) for name in ("gpipe", "zb_h1"))
    page = browser.new_page()
    page.goto(Timeline(before, beside=after).save_html(tmp_path / "two.html").as_uri())
    reader = Reader(page)
    reader.ready()
    assert page.locator(".dlv").bounding_box()["height"] <= 640
    changed = reader.panel("what changed").inner_text()
    assert (
        "the whole" in changed and "33 s" in changed and "27 s" in changed and "−18.2 %" in changed
    )
    first, second = page.locator(".dlv-canvas").all()
    picture = "canvas => canvas.toDataURL()"
    pictures = [one.evaluate(picture) for one in (first, second)]
    reader.press("w")
    assert all(
        one.evaluate(picture) != old for one, old in zip((first, second), pictures, strict=True)
    )
    reader.press("0")
    box = second.bounding_box()
    page.mouse.click(box["x"] + 70, box["y"] + 28)  # the first action of rank 0
    reader.settle()
    assert "forward 0" in reader.panel("selected span of the other Trace").inner_text()
    assert "input gradient (beside)" in page.locator(".dlv-legend").inner_text()
    page.close()


def test_a_new_state_is_shown_live_and_keeps_the_focus(page, notebook, trace, held_up):
    (reader,) = notebook(Timeline(trace))
    reader.root.focus()
    state = Timeline(held_up, title="another").state
    page.evaluate("state => window.shown[0].model.set('state', state)", state)
    reader.settle()
    assert page.locator(".dlv").count() == 1
    assert page.locator("h3").inner_text() == "another"
    assert reader.view == pytest.approx((-0.05 * MS, 5.05 * MS))
    assert "timeline" in reader.focused
    reader.press(".")
    assert reader.span is not None


def test_a_timeline_made_out_of_sight_is_drawn_when_it_shows(page, notebook, trace):
    (reader,) = notebook(Timeline(trace))
    page.evaluate("() => (window.shown[0].el.style.display = 'none')")
    page.evaluate(AGAIN, [{"span": 5}, Timeline(trace).state])
    reader.settle()
    assert "draws" not in reader.data
    page.evaluate("() => (window.shown[0].el.style.display = '')")
    reader.settle()
    assert reader.span == 5
    box = page.locator(".dlv-canvas").bounding_box()
    assert reader.pixel(box["x"] + 1, box["y"] + 1) == rgb(palette.THEMES["light"]["paper"])
    page.evaluate("() => window.shown[0].model.set('theme', 'dark')")  # as Python would
    reader.settle()
    assert reader.data["theme"] == "dark"
    assert reader.pixel(box["x"] + 1, box["y"] + 1) == rgb(palette.THEMES["dark"]["paper"])


def test_stopping_leaves_no_observer_no_listener_and_no_later_picture(
    page, notebook, trace, held_up
):
    (reader,) = notebook(Timeline(trace))
    for own in (held_up, trace):
        state = Timeline(own).state
        page.evaluate("state => window.shown[0].model.set('state', state)", state)
        reader.settle()
    assert page.evaluate("() => window.counts") == {"observers": 3, "channels": 1}
    assert page.evaluate("() => window.shown[0].model.calls.length") == 4
    root = page.query_selector(".dlv")
    reader.root.focus()
    page.keyboard.press("w")  # a picture is asked for
    page.evaluate("() => window.shown[0].stop()")
    draws = root.evaluate("root => root.dataset.draws")
    assert page.evaluate("() => window.counts") == {"observers": 0, "channels": 0}
    assert page.evaluate("() => window.shown[0].model.calls.length") == 0
    page.set_viewport_size({"width": 700, "height": 600})
    page.evaluate("() => document.documentElement.setAttribute('theme', 'dark')")
    page.evaluate("() => window.shown[0].model.set('theme', 'dark')")
    reader.settle()
    reader.settle()
    assert root.evaluate("root => root.dataset.draws") == draws
    assert root.evaluate("root => root.dataset.theme") == "light"


# ---- difficult Traces


def test_an_empty_trace_says_so_and_takes_all_keys(read_page):
    reader = read_page(Trace(meta={"ranks": 2}))
    assert "Nothing was recorded." in reader.panel("selected span").inner_text()
    keys = [key for keys in LISTED.values() for key in keys if key not in ("Tab", "/", "?")]
    reader.press(*keys, *keys)
    reader.drag((300, 150), (500, 150))
    reader.click(400, 150)
    assert reader.span is None


def test_one_span_can_be_selected_and_measured(read_page):
    reader = read_page(Trace([{"rank": 0, "kind": "forward", "start": 1.0, "end": 1.25}]))
    reader.click(*reader.middle(0))
    assert reader.span == 0
    reader.press("r")
    assert reader.cells("kinds")["forward"]["total"] == "250 ms"
    assert amount(reader.cells("ranks")["0"]["compute"]) == 0.25


@pytest.mark.sweep
def test_a_hundred_thousand_spans_are_drawn_and_every_key_still_acts(read_page):
    count = 100_000
    i = np.arange(count)
    names = np.array([f"layer {number}" for number in range(16)], object)
    lengths = np.random.default_rng(0).uniform(0.5, 1.5, count // 8) * MS
    lengths[1::2] *= 2  # backward takes twice as long
    start = (lengths.cumsum() - lengths)[i // 8]
    spans = {
        "rank": i % 8,
        "kind": np.array(["forward", "backward"], object)[(i // 8) % 2],
        "name": names[i % 16],
        "start": start,
        "end": start + lengths[i // 8],
        "step": i // 20_000,
    }
    reader = read_page(Trace(spans))
    assert "100000 spans on 8 rows" in reader.page.locator(".dlv-canvas").get_attribute(
        "aria-label"
    )
    shown = sorted((bar[0], row) for row, bar in reader.places()["bars"].items() if row % 8 == 0)
    x, rows = np.array(shown).T
    assert (np.diff(x) > 0.999).all()  # a pixel shows one span: a backward, which has most of it
    assert np.mean(rows.astype(int) // 8 % 2) > 0.99
    reader.press(".")
    whole = reader.picture
    reader.press(*["."] * 30)
    assert reader.picture != whole  # what is selected shows, however many share its pixel
    reader.press("Escape", *"wwwwwwwwwwwwwwwwwwww")
    assert reader.length < 0.03
    in_view = [row for row in sorted(reader.places()["bars"]) if row % 8 == 3]
    reader.click(*reader.middle(in_view[len(in_view) // 2]))
    row = reader.span
    reader.press(".")
    assert reader.span == row + 8
    reader.press("ArrowDown")
    assert reader.span == row + 9
    reader.press("/")
    reader.page.keyboard.type("layer 3")
    reader.settle()
    assert reader.root.locator(".dlv-found").first.inner_text() == "6,250 found"
    reader.press("Escape", "t")
    reader.root.get_by_label("step", exact=True).select_option("4")
    reader.settle()
    assert reader.cells("kinds")["forward"]["count"] == "10,000"
    assert "the first 300 are listed" in reader.root.locator(".dlv-wide caption").first.inner_text()


def test_a_failed_run_shows_messages_that_nobody_received_and_ranks_that_reported_nothing(
    read_page,
):
    spans = [
        {"rank": 0, "kind": "send", "peer": 1, "flow": 0, "start": 0.0, "end": 1 * MS},
        {"rank": 0, "kind": "recv", "peer": 2, "start": 1 * MS, "end": 8 * MS},
    ]
    message = {"src": 0, "dst": 1, "nbytes": 8, "sent": 0.5 * MS}
    meta = {"ranks": 3, "outcome": "failed", "clock": "simulated"}
    reader = read_page(Trace(spans, [message], meta=meta))
    arrow = reader.places()["arrows"][0]
    assert arrow["never"]
    reader.page.mouse.move(arrow["x2"], arrow["y2"])
    reader.settle()
    assert "never received" in reader.root.locator(".dlv-tip").inner_text()
    reader.click(arrow["x2"], arrow["y2"])
    assert reader.data["message"] == "0"
    reader.click(*reader.middle(0))
    assert reader.span == 0
    assert "never received" in reader.panel("selected span").inner_text()
    reader.press("]")  # nobody is there
    assert reader.span == 0
    reader.press("r")
    assert {*reader.cells("ranks")} == {"0", "1", "2"}
    reader.press(".", "g", "ArrowDown", "f", "f")
    assert "failed" in reader.root.locator("header").inner_text()


NASTY = ["<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>"]


@pytest.mark.parametrize(
    "words", [*NASTY, "wide " * 100], ids=["image", "script", "500 characters"]
)
def test_names_are_text_whatever_they_say_and_however_long(read_page, words):
    spans = [
        {"rank": 0, "lane": words, "kind": words, "name": words, "start": 0.0, "end": 1.0}
        | {"where": f"{words}.py:3", "fields": {"note": words}, "step": 0},
        {"rank": 1, "kind": "wait", "name": words, "peer": 0, "start": 0.5, "end": 2.0, "step": 1},
    ]
    meta = {"ranks": 2, "machine": words, "warning": words, "clock": "simulated"}
    reader = read_page(Trace(spans, meta=meta), {"span": 0}, title=words)
    reader.press("t", "r")
    shown = words.strip()
    assert shown in reader.panel("selected span").inner_text()
    assert shown[:30] in reader.root.locator("h3").inner_text()
    assert shown[:30] in reader.root.locator(".dlv-wide").inner_text()
    assert shown[:30] in reader.root.locator(".dlv-legend").inner_text()
    assert shown[:30] in reader.root.locator("table.dlv-kinds").inner_text()
    reader.page.mouse.move(*reader.middle(0))
    reader.settle()
    assert shown[:30] in reader.root.locator(".dlv-tip").inner_text()
    tip = reader.root.locator(".dlv-tip").bounding_box()
    assert tip["x"] >= 0 and tip["x"] + tip["width"] <= 1100
    reader.press("/")
    reader.page.keyboard.type(shown[:20])
    reader.press("Enter")
    assert reader.root.locator(".dlv-found").first.inner_text() == "2 found"
    assert reader.root.locator("img, script").count() == 0
    wide = reader.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 1100  # nothing pushes the page apart


def test_more_rows_than_fit_are_scrolled_and_selected_ones_come_into_view(read_page):
    ranks = 120
    spans = [
        {"rank": rank, "kind": "forward", "start": rank * MS, "end": (rank + 1) * MS}
        for rank in range(ranks)
    ]
    reader = read_page(Trace(spans))
    rows = reader.root.locator(".dlv-rows")
    assert rows.evaluate("one => one.scrollHeight > one.clientHeight")
    before = reader.picture
    reader.press("/")
    reader.page.keyboard.type("forward")
    reader.press("Shift+Enter")
    reader.press(*["Enter"] * 3)
    reader.press("Shift+Enter", "Shift+Enter", "Shift+Enter", "Shift+Enter")
    reader.settle()
    last = reader.span
    assert last > 100
    assert rows.evaluate("one => one.scrollTop") > 0 and reader.picture != before
    assert last in reader.places()["bars"]
    reader.click(*reader.middle(last))
    assert reader.span == last
    before = rows.evaluate("one => one.scrollTop")
    reader.wheel(600, 400, down=-200)
    eventually(lambda: rows.evaluate("one => one.scrollTop") == before - 200)
    rows.focus()  # a place for Tab, as it scrolls: so it has a name
    assert reader.focused == "rows"
    reader.press("PageUp")
    eventually(lambda: rows.evaluate("one => one.scrollTop") < before - 200)


def test_resizing_draws_the_same_times_in_the_new_width(read_page, trace):
    reader = read_page(trace)
    reader.press("w")
    view = reader.view
    reader.page.set_viewport_size({"width": 700, "height": 800})
    reader.settle()
    canvas = reader.page.locator(".dlv-canvas").bounding_box()
    assert canvas["x"] + canvas["width"] <= 700 and reader.view == view
    assert reader.page.evaluate("() => document.documentElement.scrollWidth") <= 700


def test_reduced_motion_stills_what_would_move(read_page, held_up):
    reader = read_page(held_up)
    moving = """() => {
        const sheet = document.styleSheets[0];
        sheet.insertRule(".dlv-tip { transition: left 1s }", sheet.cssRules.length);
        const moves = (style) => style.animationName !== "none"
            || parseFloat(style.transitionDuration) || style.scrollBehavior === "smooth";
        const all = [...document.querySelectorAll(".dlv, .dlv *")];
        return all.filter((one) => moves(getComputedStyle(one))).length;
    }"""
    assert reader.page.evaluate(moving) == 1  # the one that the test put there
    reader.page.emulate_media(reduced_motion="reduce")
    assert reader.page.evaluate(moving) == 0


def test_escape_clears_and_then_leaves_to_what_holds_the_timeline(browser, trace, tmp_path):
    page = browser.new_page(bypass_csp=True)
    page.goto(Timeline(trace).save_html(tmp_path / "page.html").as_uri())
    page.evaluate("() => document.getElementById('dlviz').setAttribute('tabindex', '-1')")
    page.locator(".dlv[data-draws]").focus()
    at = "() => document.activeElement.id || document.activeElement.className"
    page.keyboard.press(".")
    page.keyboard.press("Escape")
    assert page.evaluate(at) == "dlv"
    page.keyboard.press("Escape")
    assert page.evaluate(at) == "dlviz"
    page.close()


def test_the_page_below_a_dark_timeline_is_as_dark_as_it_is(browser, held_up, tmp_path):
    page = browser.new_page(bypass_csp=True)
    page.goto(Timeline(held_up, theme="dark").save_html(tmp_path / "page.html").as_uri())
    page.locator(".dlv[data-draws]").wait_for()
    papers = page.evaluate(
        """() => [document.documentElement, document.querySelector(".dlv")]
            .map((one) => getComputedStyle(one).backgroundColor)"""
    )
    assert papers == [rgb(palette.THEMES["dark"]["paper"])] * 2
    page.close()


def test_the_keys_take_their_place_before_they_show(browser, trace, tmp_path):
    page = browser.new_page(bypass_csp=True)
    page.goto(Timeline(trace).save_html(tmp_path / "page.html").as_uri())
    root, keys = page.locator(".dlv[data-draws]"), page.locator(".dlv-keys")
    before = root.bounding_box()
    assert not keys.is_visible()
    root.focus()
    assert keys.is_visible() and root.bounding_box() == before
    page.close()


def test_a_timeline_put_aside_takes_the_theme_of_the_page_when_it_is_back(browser, trace, tmp_path):
    page = browser.new_page(bypass_csp=True)
    page.goto(Timeline(trace).save_html(tmp_path / "page.html").as_uri())
    page.wait_for_selector(".dlv[data-draws]")
    page.evaluate(
        """() => {
            window.aside = document.querySelector(".dlv");
            window.aside.remove();
            document.body.style.setProperty("--jp-layout-color0", "#111111");
            document.body.style.setProperty("--jp-ui-font-color0", "#eeeeee");
        }"""
    )
    page.wait_for_timeout(100)
    page.evaluate("() => document.getElementById('dlviz').append(window.aside)")
    page.wait_for_selector(".dlv[data-theme=dark]")
    page.wait_for_timeout(100)
    corner = "c => [...c.getContext('2d').getImageData(c.width - 1, c.height - 1, 1, 1).data]"
    cell = palette.THEMES["dark"]["cell"]
    assert page.locator(".dlv-minimap canvas").evaluate(corner)[:3] == [*bytes.fromhex(cell[1:])]
    page.close()


def test_an_arrow_is_hit_along_its_whole_length_but_behind_bars():
    code = (
        "const groups = []; const arrow = { message: 7, x1: 0, y1: 0, x2: 100, y2: 50 };"
        "const none = { idle: [], gaps: [], memory: [], heads: [], cycle: [], found: [] };"
        "const list = { ...none, groups, lost: [], arrows: [arrow], bars: [[20, 5, 5, 10, 3]] };"
        "return v[0].map(([x, y]) => m.hit(list, x, y));"
    )
    points = [[30, 17], [70, 33], [50, 40], [22, 11]]
    near, far, off, bar = node.run("shared/gantt/hit.js", code, points)
    assert near == {"message": 7, "end": "sender"} and far == {"message": 7, "end": "receiver"}
    assert off is None and bar == {"span": 3}


def test_a_timeline_drawn_before_it_is_put_on_the_page_takes_its_theme_there(
    browser, trace, tmp_path
):
    page = browser.new_page(bypass_csp=True)
    heard = []
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(Timeline(trace).save_html(tmp_path / "page.html").as_uri())
    state = Timeline(trace).state
    page.evaluate(
        f"""async state => {{
            document.body.style.setProperty("--jp-layout-color0", "#111111");
            document.body.style.setProperty("--jp-ui-font-color0", "#eeeeee");
            const traits = {{ state, selection: {{}}, theme: "auto" }};
            const model = {{
                get: name => traits[name], set() {{}}, on() {{}}, off() {{}}, save_changes() {{}},
            }};
            const code = {json.dumps(joined("timeline/index"))};
            const module = new Blob([code], {{ type: "text/javascript" }});
            const frontEnd = (await import(URL.createObjectURL(module))).default;
            const el = document.createElement("div");
            el.id = "second";
            frontEnd.render({{ model, el }});
            document.body.append(el);
        }}""",
        state,
    )
    page.wait_for_selector("#second .dlv[data-theme=dark][data-draws]")
    assert heard == []
    page.close()
