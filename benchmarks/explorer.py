"""The explorer of collectives in JupyterLab: from a slider to the new lines, through the kernel."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from nbformat import v4

from benchmarks.table import Row, compare, take_turns
from benchmarks.widgets import PLAYED, chromium
from tests.lab_server import Lab, served

LIMIT = 0.050  # s
NOTEBOOK = [
    """import dlviz
explorer = dlviz.widgets.CollectiveExplorer(topology="switch")
explorer""",
    """racks = dlviz.widgets.CollectiveExplorer(ranks=6, topology="racks")
racks""",
    """import ipywidgets, plotly.graph_objects as go
from dlviz.widgets.all_reduce import ALGORITHMS, SIZES, closed
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
]
SLID = """async ([index, from]) => {
    const root = document.querySelectorAll(".dlv-player")[index].closest(".dlv");
    const slider = root.querySelector('[aria-label=ranks]');
    const shown = () => root.querySelector('.dlv-costs .dlv-cost').getAttribute('d');
    const times = [];
    for (let turn = 0; turn < 20; turn++) {
        const before = shown();
        const begun = performance.now();
        slider.value = String(from + (turn + 1) % 2);
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


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        found = in_notebook(browser, Path(name))
    return [
        compare(
            f"slider to new lines in JupyterLab, {where}",
            found[where],
            found["peer"],
            most=LIMIT,
            note="beside FigureWidget's with the closed forms",
        )
        for where in ("a switch", "two racks")
    ]


def in_notebook(browser: Any, folder: Path) -> dict[str, list[float]]:
    """Seconds from moving the slider of ranks to the new lines."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in NOTEBOOK])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    with served(notebook, folder) as address:
        lab = Lab(browser, address, cells=len(NOTEBOOK))
        lab.page.wait_for_selector(".noUi-handle")
        lab.page.wait_for_selector(".js-plotly-plot .js-line")
        lab.page.wait_for_function("() => document.querySelectorAll('.dlv-player').length >= 2")
        peer = [".noUi-handle", ["ArrowRight", "ArrowLeft"], ".js-plotly-plot .js-line"]
        found = take_turns(
            {
                "a switch": lambda: lab.page.evaluate(SLID, [0, 4]),
                "two racks": lambda: lab.page.evaluate(SLID, [1, 6]),
                "peer": lambda: lab.page.evaluate(PLAYED, peer),
            },
            rounds=2,
        )
        lab.page.close()
    return {name: [time for times in rounds for time in times] for name, rounds in found.items()}
