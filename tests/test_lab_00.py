"""The first lab in a real JupyterLab: all cells run, figures are drawn, no request leaves."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lab_server import Lab, served

LAB = Path(__file__).parents[1] / "labs" / "00_start_here.ipynb"
FIGURES = ("viz.curve(", "viz.breakdown(")
WIDGETS = ("widgets.Timeline(", "widgets.MessagePlayer(")
MARKS = ".js-plotly-plot .point, .js-plotly-plot .scatterlayer .js-line"


@pytest.mark.slow
def test_the_lab_runs_in_jupyterlab_and_only_the_deadlock_fails(browser, tmp_path):
    notebook = nbformat.read(LAB, as_version=4)
    with served(notebook, tmp_path) as address:
        lab = Lab(browser, address, cells=len(notebook.cells))
        try:
            cells = lab.cells()
            drawn = {}
            for i, cell in enumerate(cells):
                last = cell["source"].splitlines()[-1]
                if any(name in last for name in FIGURES):
                    lab.shown(i).locator(MARKS).first.wait_for(state="attached")
                    drawn[i] = "figure"
                if any(name in last for name in WIDGETS):
                    lab.shown(i).locator(".dlv canvas, .dlv svg").first.wait_for()
                    drawn[i] = "widget"
        finally:
            lab.page.close()

    failed = [cell for cell in cells if any(o["output_type"] == "error" for o in cell["outputs"])]
    assert [cell["source"].startswith("def everybody_receives_first") for cell in failed] == [True]
    (error,) = failed[0]["outputs"]
    told = error["traceback"]
    assert error["ename"] == "DeadlockError" and len(told) == 1
    assert told[0].count("\n") == 5 and "cell line 4: comm.recv(token, src=left)" in told[0]
    assert told[0].endswith(
        "cycle: rank 0 waits for rank 3 waits for rank 2 waits for rank 1 waits for rank 0"
    )

    assert sorted(drawn.values()) == ["figure"] * 2 + ["widget"] * 5, drawn
    assert lab.complaints == []
    assert lab.far() == []
