"""A real JupyterLab that serves notebooks, and what is asked of one in a browser."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import nbformat

LONGEST = 150_000  # ms: on two busy cores
NEAR = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
READY = """cells => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const kernel = widget?.sessionContext?.session?.kernel;
    return widget?.content?.widgets?.length >= cells && kernel?.status === 'idle';
}"""
RUN = "() => { jupyterapp.commands.execute('notebook:run-all-cells'); }"
contexts: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # one a browser: it keeps the code
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


class JupyterLab:
    """A JupyterLab in `folder`, which reads no setting or file of the reader's own. A context
    manager: it ends with the block."""

    def __init__(self, folder: Path):
        self.folder, self.home = folder, folder / "labs"
        self.home.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        own = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"]
        own += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.address.rpartition(":")[2],
            "ServerApp.port_retries": 0,
            "IdentityProvider.token": "lab",
            "LabApp.expose_app_in_browser": True,
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "LabApp.news_url": None,
        }
        self.log = (folder / "server.log").open("w")
        self.running = subprocess.Popen(
            [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"]
            + [f"--{name}={value}" for name, value in options.items()],
            cwd=self.home,
            env={**os.environ, **{name: str(folder / name) for name in own}},
            stdout=self.log,
            stderr=self.log,
        )

    def __enter__(self) -> JupyterLab:
        while True:
            try:
                self.ask("GET", "/api")
                return self
            except OSError:
                assert self.running.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.1)

    def __exit__(self, *error: object) -> None:
        self.running.terminate()
        self.running.wait(20)
        self.log.close()

    @contextmanager
    def serve(self, notebook: Any) -> Iterator[str]:
        """The address of `notebook`, without its outputs, by JupyterLab's own settings and in a
        workspace of its own; its kernel ends with the block."""
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        shutil.rmtree(self.folder / "JUPYTERLAB_SETTINGS_DIR", ignore_errors=True)
        name = f"lab-{len(list(self.home.glob('lab-*.ipynb')))}"
        nbformat.write(notebook, self.home / f"{name}.ipynb")
        try:
            yield f"{self.address}/lab/workspaces/{name}/tree/{name}.ipynb?token=lab"
        finally:
            for session in self.ask("GET", "/api/sessions"):
                self.ask("DELETE", f"/api/sessions/{session['id']}")

    def ask(self, method: str, path: str) -> Any:
        """What the server's own API answers."""
        request = urllib.request.Request(f"{self.address}{path}?token=lab", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")


class Lab:
    """The notebook at `address` in a page of `browser`, with all its cells run.

    `requests` are the addresses that the page asked for, `complaints` its errors.
    """

    def __init__(self, browser: Any, address: str, cells: int):
        if browser not in contexts:
            contexts[browser] = browser.new_context(viewport={"width": 1280, "height": 1000})
        self.page = contexts[browser].new_page()
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
