"""What greets a student: `make lab`, in a home that nobody has used before."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_server import LONGEST, NEAR

ROOT = Path(__file__).parents[1]
MAKE = ["make", "-s", "-n", "-o", ".venv/.installed", "lab"]  # what it runs once all is installed
OWN = ("JUPYTER", "JUPYTERLAB", "IPYTHON", "XDG_")
OPEN = """() => {
    const shell = window.jupyterapp?.shell;
    const kernel = shell?.currentWidget?.sessionContext?.session?.kernel;
    return kernel?.status === 'idle' && document.querySelector('.jp-NotebookPanel-toolbar');
}"""
PLUGINS = "() => jupyterapp.listPlugins().filter(name => name.includes('nbgrader'))"


@contextmanager
def opened(home: Path) -> Iterator[str]:
    """The address that `make lab` prints, with the least that a test has to add to its flags."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    recipe = subprocess.run(MAKE, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    added = {"ServerApp.port": port, "IdentityProvider.token": "lab"}
    added |= {"LabApp.expose_app_in_browser": True}
    added |= {"FileCheckpoints.checkpoint_dir": home / "checkpoints"}
    flags = [f"--{name}={value}" for name, value in added.items()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    log = (home / "server.log").open("w")
    running = subprocess.Popen(
        ["sh", "-c", f"{recipe.rstrip()} {shlex.join(flags)} --no-browser"],
        cwd=ROOT,
        env={**kept, "HOME": str(home)},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=lab", timeout=5).close()
                break
            except OSError:
                assert running.poll() is None, (home / "server.log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/?token=lab"
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(20)
        log.close()


@pytest.mark.slow
def test_a_student_is_greeted_by_lab_00_and_by_nothing_else(tmp_path, browser):
    far: list[str] = []
    with opened(tmp_path) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(LONGEST)
        page.on("request", lambda request: far.append(request.url))
        page.goto(address)
        page.wait_for_function(OPEN)
        page.wait_for_timeout(1500)  # a notification comes when all is restored
        said = page.inner_text("body")
        assert "Start here" in said and page.url.endswith("/lab/tree/00_start_here.ipynb")
        for unwanted in ("official Jupyter news", "Validate", "Create Assignment", "Nbgrader"):
            assert unwanted not in said, unwanted
        assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0
        assert page.evaluate(PLUGINS) == []
        assert not page.locator("[data-id*='nbgrader' i]").count()
        shown = page.inner_text(".jp-DirListing-content").split()
        assert "glossary.md" in shown and not {"build.py", "two_hosts.py", "recorded"} & {*shown}
        page.close()
    assert [url for url in far if not url.startswith(NEAR)] == []
    log = (tmp_path / "server.log").read_text()
    assert [word for word in ("Traceback", "yarn", "nbgrader") if word in log] == []


def test_the_package_is_found_beside_a_folder_of_its_name(tmp_path):
    """As in the folder that holds a clone: an editable install by a hook does not get past it."""
    (tmp_path / "dlviz" / "docs").mkdir(parents=True)
    (tmp_path / "script.py").write_text("import dlviz; print(dlviz.__version__)")
    for how in (["script.py"], ["-c", "import dlviz; print(dlviz.__version__)"]):
        run = [sys.executable, *how]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
