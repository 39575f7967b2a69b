"""The explorers in JupyterLab: from a slider to the new picture.

Collectives: on a switch the front end has the lines in advance, on other topologies the kernel
plays them. Schedules: the kernel sends a few steps of the slider ahead; the slider passes new
values all the time. Tensor parallelism: the kernel answers each move.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from nbformat import v4

from benchmarks.table import Row, amount, compare, take_turns
from benchmarks.widgets import PLAYED, chromium
from dlviz.widgets import ScheduleExplorer
from tests.lab_server import JupyterLab, Lab

LIMIT = 0.050  # s
SCHEDULES = 0.060  # s
NOTEBOOK = [
    """import dlviz
explorer = dlviz.widgets.CollectiveExplorer(topology="switch")
explorer""",
    """racks = dlviz.widgets.CollectiveExplorer(ranks=6, topology="racks")
racks""",
    """import ipywidgets, plotly.graph_objects as go
from dlviz.widgets.collectives.all_reduce import ALGORITHMS, SIZES, closed
def lines(ranks):
    return [closed(name, ranks, 10e-6, 1e-9, 1e-10) for name in ALGORITHMS]
figure = go.FigureWidget([go.Scatter(x=SIZES, y=line) for line in lines(4)])
figure.update_xaxes(type="log")
figure.update_yaxes(type="log")
slider = ipywidgets.IntSlider(value=4, min=2, max=16)
def moved(change):
    with figure.batch_update():
        for series, line in zip(figure.data, lines(change.new)):
            series.y = line
slider.observe(moved, "value")
ipywidgets.VBox([slider, figure])""",
    """import anywidget, traitlets
class Echo(anywidget.AnyWidget):
    _esm = '''export default { render({ model, el }) {
        const shown = el.appendChild(document.createElement("b"));
        Object.assign(shown, { className: "echo", model });
        model.on("change:answer", () => (shown.textContent = model.get("answer")));
    } }'''
    asked = traitlets.Int(0).tag(sync=True)
    answer = traitlets.Int(0).tag(sync=True)
    @traitlets.observe("asked")
    def _answer(self, change):
        self.answer = change.new
Echo()""",
    """schedules = dlviz.widgets.ScheduleExplorer("1f1b", ranks=16, microbatches=64)
schedules""",
    """both = dlviz.widgets.ScheduleExplorer("1f1b", ranks=16, microbatches=64, beside="zb_h1")
both""",
    """layer = dlviz.widgets.TensorExplorer()
layer""",
]
ECHOED = """async () => {
    const shown = document.querySelector('.echo');
    const times = [];
    for (let turn = 0; turn < 20; turn++) {
        const [before, begun] = [shown.textContent, performance.now()];
        shown.model.set('asked', Math.floor(begun));
        shown.model.save_changes();
        while (shown.textContent === before) await new Promise(done => setTimeout(done));
        times.push((performance.now() - begun) / 1000);
        await new Promise(done => setTimeout(done, 50));
    }
    return times.slice(2);
}"""
SLID = """async ([within, index, label, places, picture]) => {
    const root = document.querySelectorAll(within)[index].closest('.dlv');
    const slider = root.querySelector(`input[aria-label=${label}]`);
    const shown = () => root.querySelector(picture).outerHTML;
    const times = [];
    for (let turn = 0; turn < 20; turn++) {
        const before = shown();
        const begun = performance.now();
        slider.value = String(places[(turn + 1) % 2]);
        slider.dispatchEvent(new Event('input'));
        while (shown() === before) {
            if (performance.now() - begun > 5000) throw new Error('nothing changed');
            await new Promise(done => setTimeout(done));
        }
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        times.push((performance.now() - begun) / 1000);
        await new Promise(done => setTimeout(done, 50));
    }
    return times.slice(2);
}"""

REDRAWN = """async ([index, from]) => {
    const root = [...document.querySelectorAll('.dlv-bubble')][index].closest('.dlv');
    const slider = root.querySelector('[aria-label=microbatches]');
    const times = [];
    for (let turn = 0; turn < 20; turn++) {
        const { draws } = root.dataset;
        const begun = performance.now();
        slider.value = String(from + turn);
        slider.dispatchEvent(new Event('input'));
        const shown = () => root.querySelector('.dlv-sidename').textContent;
        while (root.dataset.draws === draws || !shown().includes(`m = ${from + turn})`)) {
            if (performance.now() - begun > 5000) throw new Error('nothing changed');
            await new Promise(done => setTimeout(done));
        }
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        times.push((performance.now() - begun) / 1000);
        await new Promise(done => setTimeout(done, 50));
    }
    return times.slice(2);
}"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        found = in_notebook(browser, Path(name))
    echo = median(found["echo"])
    kernel = {beside: answering(beside) for beside in ("", "zb_h1")}
    lines = [
        compare(
            f"slider to new lines in JupyterLab, {where}",
            found[where],
            found["peer"],
            most=LIMIT,
            remark=f"beside FigureWidget's; a bare echo of the kernel takes {amount(echo)}",
        )
        for where in ("a switch", "two racks")
    ]
    timelines = [
        compare(
            f"slider to timeline in JupyterLab, p=16, m=64, {which}",
            found[which],
            found["echo"],
            most=most,
            remark=f"beside a bare echo; the kernel's part, four ahead, {amount(kernel[beside])}",
        )
        for which, beside, most in (
            ("1f1b", "", SCHEDULES),
            ("1f1b and zb_h1", "zb_h1", None),
        )
    ]
    layer = compare(
        "slider to bytes and blocks in JupyterLab, a layer on 4 ranks",
        found["layer"],
        found["echo"],
        most=LIMIT,
        remark="beside a bare echo",
    )
    return [*lines, *timelines, layer]


def answering(beside: str) -> float:
    """Seconds that the kernel takes to make, simulate and describe a schedule."""
    explorer = ScheduleExplorer("1f1b", ranks=16, microbatches=64, beside=beside)
    times = []
    for microbatches in (63, 64) * 10:
        begun = perf_counter()
        explorer.microbatches = microbatches
        times.append(perf_counter() - begun)
    return median(times)


def in_notebook(browser: Any, folder: Path) -> dict[str, list[float]]:
    """Seconds from moving a slider, of ranks or of microbatches, to the new picture."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in NOTEBOOK])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with JupyterLab(folder) as jupyter, jupyter.serve(notebook) as address:
        lab = Lab(browser, address, cells=len(NOTEBOOK))
        lab.page.wait_for_selector(".noUi-handle")
        lab.page.wait_for_selector(".echo", state="attached")
        lab.page.wait_for_selector(".js-plotly-plot .js-line")
        lab.page.wait_for_function("() => document.querySelectorAll('.dlv-player').length >= 2")
        lab.page.wait_for_function("() => document.querySelectorAll('.dlv-bubble').length >= 2")
        lab.page.wait_for_selector(".dlv-amounts")
        peer = [".noUi-handle", ["ArrowRight", "ArrowLeft"], ".js-plotly-plot .js-line"]
        lines = ".dlv-costs .dlv-cost"
        switch = [".dlv-player", 0, "ranks", [4, 5], lines]
        racks = [".dlv-player", 1, "ranks", [6, 7], lines]
        layer = [".dlv-amounts", 0, "B", [4, 6], ".dlv-amounts tbody"]
        found = take_turns(
            {
                "a switch": lambda: lab.page.evaluate(SLID, switch),
                "two racks": lambda: lab.page.evaluate(SLID, racks),
                "peer": lambda: lab.page.evaluate(PLAYED, peer),
                "1f1b": lambda: lab.page.evaluate(REDRAWN, [0, 46]),
                "1f1b and zb_h1": lambda: lab.page.evaluate(REDRAWN, [1, 46]),
                "layer": lambda: lab.page.evaluate(SLID, layer),
                "echo": lambda: lab.page.evaluate(ECHOED),
            },
            rounds=2,
        )
        lab.page.close()
    return {name: [time for times in rounds for time in times] for name, rounds in found.items()}
