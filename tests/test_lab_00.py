"""The first lab in a real JupyterLab: all cells run, figures are drawn, no request leaves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

LAB = Path(__file__).parents[1] / "labs" / "00_start_here.ipynb"
FIGURES = ("viz.messages_grid(", "viz.messages(", "viz.curve(", "viz.timeline(", "viz.breakdown(")
LONGEST = 150_000  # ms: on two busy cores
READY = """() => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const kernel = widget?.sessionContext?.session?.kernel;
    return widget?.content?.widgets?.length > 10 && kernel?.status === 'idle';
}"""
RUN = "() => { jupyterapp.commands.execute('notebook:run-all-cells'); }"
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code')
    .map(cell => ({
        source: cell.model.sharedModel.source,
        count: cell.model.executionCount,
        busy: cell.model.executionState === 'running',
        outputs: cell.model.outputs.toJSON(),
    }))"""
DRAWN = """async index => {
    const notebook = jupyterapp.shell.currentWidget.content;
    const cell = notebook.widgets.filter(cell => cell.model.type === 'code')[index];
    await notebook.scrollToItem(notebook.widgets.indexOf(cell), 'start');
    for (let turn = 0; turn < 300; turn++) {
        const plot = cell.node.querySelector('.js-plotly-plot');
        const marks = plot?.querySelectorAll('.point, .scatterlayer .js-line').length;
        if (marks) return marks;
        await new Promise(done => setTimeout(done, 100));
    }
    return 0;
}"""


@pytest.fixture
def server(tmp_path) -> Iterator[str]:
    """A JupyterLab that serves a copy of the lab without its outputs; the lab's address."""
    folder = tmp_path / "labs"
    folder.mkdir()
    lab = nbformat.read(LAB, as_version=4)
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(lab, folder / LAB.name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"]
    own += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "IdentityProvider.token": "lab",
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": None,
    }
    log = (tmp_path / "server.log").open("w")
    running = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"]
        + [f"--{name}={value}" for name, value in options.items()],
        cwd=folder,
        env={**os.environ, **{name: str(tmp_path / name) for name in own}},
        stdout=log,
        stderr=log,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}/api?token=lab", timeout=5).close()
                break
            except OSError:
                assert running.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.1)
        yield f"{address}/lab/tree/{LAB.name}?token=lab"
    finally:
        running.terminate()
        running.wait(20)
        log.close()
        shutil.rmtree(folder)


@pytest.mark.slow
def test_the_lab_runs_in_jupyterlab_and_only_the_deadlock_fails(browser, server):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(LONGEST)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("websocket", lambda opened: requests.append(opened.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    try:
        page.goto(server)
        page.wait_for_function(READY)
        page.evaluate(RUN)
        page.wait_for_function(
            f"() => ({CELLS})().every(cell => cell.count !== null && !cell.busy) && ({READY})()",
            polling=200,
        )
        cells = page.evaluate(CELLS)
        figures = [i for i, cell in enumerate(cells) if is_figure(cell["source"])]
        drawn = {cells[i]["source"]: page.evaluate(DRAWN, i) for i in figures}
    finally:
        page.close()

    failed = [cell for cell in cells if any(o["output_type"] == "error" for o in cell["outputs"])]
    assert [cell["source"].startswith("def everybody_receives_first") for cell in failed] == [True]
    (error,) = failed[0]["outputs"]
    told = error["traceback"]
    assert error["ename"] == "DeadlockError" and len(told) == 1
    assert told[0].count("\n") == 5 and "cell line 4: comm.recv(token, src=left)" in told[0]
    assert told[0].endswith(
        "cycle: rank 0 waits for rank 3 waits for rank 2 waits for rank 1 waits for rank 0"
    )

    assert len(drawn) == 7 and all(drawn.values()), drawn
    assert complaints == []
    near = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
    assert [url for url in requests if not url.startswith(near)] == []


def is_figure(source: str) -> bool:
    """Whether the cell ends with a call that draws."""
    return source.splitlines()[-1].startswith("dlviz.") and any(f in source for f in FIGURES)
