"""The front ends in a headless browser: saved pages, up to 1,000,000 spans, keys in JupyterLab."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from nbformat import v4

from benchmarks.table import ROUNDS, Row, compare, take_turns
from dlviz.schedules import make
from dlviz.sim import simulate
from dlviz.trace import Trace
from dlviz.viz import timeline
from dlviz.widgets import Timeline
from tests.conftest import BROWSER_FLAGS
from tests.lab_server import JupyterLab, Lab

RANKS = 8
DRAWN = "() => document.querySelector('.dlv')?.dataset.draws > 0"
PLOTTED = "() => document.querySelectorAll('.js-plotly-plot .point').length > 0"
FRAMES = """async keys => {
    const root = document.querySelector('.dlv');
    root.focus();
    const frames = [];
    for (const key of keys) {
        const begun = performance.now();
        root.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        frames.push((performance.now() - begun) / 1000);
    }
    return frames;
}"""
PLAYED = """async ([selector, key, watched]) => {
    const target = document.querySelector(selector);
    const shown = () => document.querySelector(watched)?.outerHTML;
    target.focus();
    const times = [];
    for (let turn = 0; turn < 20; turn++) {
        const before = shown();
        const begun = performance.now();
        const pressed = { key: turn % 2 ? key[1] : key[0], bubbles: true };
        target.dispatchEvent(new KeyboardEvent('keydown', pressed));
        while (shown() === before) {
            if (performance.now() - begun > 5000) throw new Error(`${key} changed nothing`);
            await new Promise(done => setTimeout(done));
        }
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        times.push((performance.now() - begun) / 1000);
        await new Promise(done => setTimeout(done, 50));
    }
    return times.slice(2);
}"""
NOTEBOOK = [
    """import torch, dlviz
def all_reduce(comm):
    start = dlviz.viz.encode(comm.rank, comm.size, 12)
    tensor = torch.tensor(start, dtype=torch.float64)
    comm.watch(tensor)
    dlviz.collectives.ring.all_reduce(comm, tensor)
dlviz.widgets.MessagePlayer(dlviz.launch(all_reduce, ranks=4).trace)""",
    """import ipywidgets, plotly.graph_objects as go
figure = go.FigureWidget([go.Bar(y=[5, 2, 3]) for _ in range(4)])
figure.update_yaxes(range=[0, 10])
slider = ipywidgets.IntSlider(min=0, max=100)
def moved(change):
    with figure.batch_update():
        for bars in figure.data:
            bars.y = [5 + change.new, 2, 3]
slider.observe(moved, "value")
ipywidgets.VBox([slider, figure])""",
]


def pipeline(count: int) -> Trace:
    """`count` spans of forward and backward on 8 ranks, and a message behind each fourth."""
    turns = count // RANKS
    rank, turn = np.repeat(np.arange(RANKS), turns), np.tile(np.arange(turns), RANKS)
    start = 1e-3 * (turn + rank)
    sends = np.flatnonzero((turn % 4 == 3) & (rank < RANKS - 1))
    flow = np.full(count, -1)
    flow[sends] = np.arange(len(sends))
    kinds = np.array(["forward", "backward"], object)[turn % 2]
    spans = {
        "rank": rank, "lane": ["compute"] * count, "kind": kinds, "microbatch": turn // 2,
        "start": start, "end": start + 0.9e-3, "flow": flow,
    }  # fmt: skip
    sent = start[sends] + 0.9e-3
    messages = {
        "src": rank[sends], "dst": rank[sends] + 1, "sent": sent, "received": sent + 0.1e-3,
        "nbytes": np.full(len(sends), 4096),
    }  # fmt: skip
    return Trace(spans, messages, meta={"clock": "simulated", "ranks": RANKS})


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = next(filter(None, map(shutil.which, names)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=BROWSER_FLAGS)
        yield browser
        browser.close()


def opened(browser: Any, path: Path, drawn: str, then: str = "", *values: Any) -> Any:
    """Seconds from opening a page to its first picture or, with `then`, what that returns."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, bypass_csp=True)
    try:
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_function(drawn, polling=4)
        return page.evaluate(then, *values) if then else page.evaluate("performance.now()") / 1000
    finally:
        page.close()


def rows() -> list[Row]:
    small, large = pipeline(16_384), pipeline(100_000)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        ours, peer, big = (Path(name) / f"{page}.html" for page in ("ours", "peer", "big"))
        made = take_turns(
            {
                "ours": lambda: timed(lambda: Timeline(small).save_html(ours)),
                "peer": lambda: timed(lambda: timeline(small).write_html(peer)),
            }
        )
        shown = take_turns(
            {
                "ours": lambda: opened(browser, ours, DRAWN),
                "peer": lambda: opened(browser, peer, PLOTTED),
            }
        )
        Timeline(large).save_html(big)
        first = [opened(browser, big, DRAWN) for _ in range(ROUNDS)]
        keys = [*"wasd" * 5]  # most of the spans stay in view
        frames = [opened(browser, big, DRAWN, FRAMES, keys) for _ in range(ROUNDS)]
        Timeline(pipeline(1_000_000)).save_html(big)
        vast = [opened(browser, big, DRAWN) for _ in range(ROUNDS)]
        panned = [opened(browser, big, DRAWN, FRAMES, keys) for _ in range(ROUNDS)]
        sizes = [path.stat().st_size / 1e6 for path in (ours, peer)]
        played = in_notebook(browser, Path(name))
    return [
        *of_a_schedule(),
        compare("saved page of 16,384 spans made, beside plotly's", *made.values(), most=0.5),
        compare("the same opened and drawn", *shown.values(), most=1.0),
        Row("its size", *sizes, sizes[1] / sizes[0], unit="MB", most=1.5),
        limited("first draw of 100,000 spans", median(first), 1.0),
        limited("a picture of it while panning and zooming", median(map(median, frames)), 1 / 30),
        limited("first draw of 1,000,000 spans", median(vast), 2.0),
        limited("a picture of it while panning and zooming", median(map(median, panned)), 1 / 30),
        compare(
            "key to redraw in JupyterLab, beside FigureWidget's slider",
            played["ours"],
            played["peer"],
            most=0.040,
        ),
    ]


def of_a_schedule() -> list[Row]:
    """A figure of 16,384 operations of a pipeline with its critical path, made and saved as a page
    (without the plotting library, which takes as long and as much whatever the figure)."""
    trace = simulate(make("1f1b", 16, 512))
    pages: dict[str, str] = {}

    def plotted() -> None:
        pages["figure"] = timeline(trace, critical=True).to_html(include_plotlyjs=False)

    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "page.html"
        took = take_turns(
            {
                "widget": lambda: timed(lambda: Timeline(trace, critical=True).save_html(page)),
                "figure": lambda: timed(plotted),
            }
        )
        sizes = {"widget": page.stat().st_size / 1e6, "figure": len(pages["figure"]) / 1e6}
    found = []
    for which, summary in (("widget", "Timeline"), ("figure", "figure")):
        found += [
            limited(f"{summary} of 16,384 operations, made and saved", median(took[which]), 0.5),
            Row(
                "its size",
                sizes[which],
                1.5,
                1.5 / sizes[which],
                1.0,
                "MB",
                remark="beside its limit",
            ),
        ]
    return found


def limited(what: str, seconds: float, limit: float) -> Row:
    return Row(what, seconds, limit, limit / seconds, target=1.0, remark="beside its limit")


def timed(work: Any) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def in_notebook(browser: Any, folder: Path) -> dict[str, list[float]]:
    """Seconds from a key press to the new picture, of the player and of a plotly FigureWidget."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in NOTEBOOK])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with JupyterLab(folder) as jupyter, jupyter.serve(notebook) as address:
        lab = Lab(browser, address, cells=len(NOTEBOOK))
        lab.page.wait_for_selector(".dlv svg")
        lab.page.wait_for_selector(".noUi-handle")
        lab.page.wait_for_selector(".js-plotly-plot .point path")
        arrows = ["ArrowRight", "ArrowLeft"]
        ours = [".dlv", arrows, ".dlv .dlv-body"]
        peer = [".noUi-handle", arrows, ".js-plotly-plot .point path"]
        found = take_turns(
            {"ours": lambda: lab.page.evaluate(PLAYED, ours),
             "peer": lambda: lab.page.evaluate(PLAYED, peer)},
            rounds=2,
        )  # fmt: skip
        lab.page.close()
    return {name: [time for times in rounds for time in times] for name, rounds in found.items()}
