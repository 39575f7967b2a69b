"""A real JupyterLab that serves one notebook, and what is asked of it in a browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

LONGEST = 150_000  # ms: on two busy cores
NEAR = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
READY = """cells => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const kernel = widget?.sessionContext?.session?.kernel;
    return widget?.content?.widgets?.length >= cells && kernel?.status === 'idle';
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
SHOW = """async index => {
    const notebook = jupyterapp.shell.currentWidget.content;
    const cell = notebook.widgets.filter(cell => cell.model.type === 'code')[index];
    await notebook.scrollToItem(notebook.widgets.indexOf(cell), 'start');
    cell.node.dataset.code = index;
}"""


@contextmanager
def served(notebook: Any, folder: Path) -> Iterator[str]:
    """The address of `notebook`, without its outputs, in a JupyterLab that ends with the block.

    `folder` is for its files; no setting or file of the reader's own is read.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    home = folder / "labs"
    home.mkdir()
    nbformat.write(notebook, home / "lab.ipynb")
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
    log = (folder / "server.log").open("w")
    running = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"]
        + [f"--{name}={value}" for name, value in options.items()],
        cwd=home,
        env={**os.environ, **{name: str(folder / name) for name in own}},
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
                assert running.poll() is None, (folder / "server.log").read_text()
                time.sleep(0.1)
        yield f"{address}/lab/tree/lab.ipynb?token=lab"
    finally:
        running.terminate()
        running.wait(20)
        log.close()


class Lab:
    """The notebook at `address` in a page of `browser`, with all its cells run.

    `requests` are the addresses that the page asked for, `complaints` its errors.
    """

    def __init__(self, browser: Any, address: str, cells: int):
        self.page = browser.new_page(viewport={"width": 1280, "height": 1000})
        self.page.set_default_timeout(LONGEST)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda opened: self.requests.append(opened.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(address)
        self.page.wait_for_function(READY, arg=cells)
        self.page.evaluate(RUN)
        self.page.wait_for_function(
            f"cells => ({CELLS})().every(cell => cell.count !== null && !cell.busy)"
            f" && ({READY})(cells)",
            arg=cells,
            polling=200,
        )

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def cells(self) -> list[dict[str, Any]]:
        """The code cells: source, count and outputs."""
        return self.page.evaluate(CELLS)

    def shown(self, index: int) -> Any:
        """Code cell `index`, scrolled to the top of the window, as playwright's Locator."""
        self.page.evaluate(SHOW, index)
        return self.page.locator(f"[data-code='{index}']")

    def far(self) -> list[str]:
        """The requests that left this machine."""
        return [url for url in self.requests if not url.startswith(NEAR)]
