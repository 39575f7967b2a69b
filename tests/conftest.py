"""What all tests share: a real browser, and the check that a test leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest

os.environ["DLVIZ_PREDICTIONS"] = ""  # neither a test nor its kernels keep predictions

PROC = Path("/proc/self/stat")
SHARED_MEMORY = Path("/dev/shm")
GRACE = 2.0  # seconds that what a test left may take to go
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A headless Chromium, as playwright's `Browser`; close the pages you open.

    Without one a test skips and says what to install; in CI it fails.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        missing = "install chromium: `apt-get install chromium`, or Google Chrome"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=BROWSER_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """After each test: no process that it started, zombies included, and no shared memory of ours.

    The forkserver and the resource tracker stay, as they serve the next run; so does whatever was
    there before the test, such as the browser, with its own children.
    """
    before = {pid for pid, _ in descendants(frozenset())}
    yield
    deadline = time.monotonic() + GRACE
    while (left := leftovers(before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"the test left behind: {', '.join(left)}"


def leftovers(before: set[int]) -> list[str]:
    processes = [f"process {pid} ({name})" for pid, name in descendants(frozenset(before))]
    folders = SHARED_MEMORY.glob(f"dlviz-{os.getpid()}-*")
    return [*processes, *map(str, folders)]


def descendants(old: frozenset[int]) -> list[tuple[int, str]]:
    """(pid, name) of this process's descendants, but those in `old` and their own descendants.

    The helpers of multiprocessing are left out, not their children: ranks are the forkserver's.
    """
    if not PROC.exists():
        return []
    children: dict[int, list[tuple[int, str]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it ended while we looked
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        parent = int(text[text.rindex(")") :].split()[2])
        children.setdefault(parent, []).append((int(stat.parent.name), name))
    helpers = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    found, ahead = [], [os.getpid()]
    while ahead:
        for pid, name in children.get(ahead.pop(), []):
            if pid in helpers:
                ahead.append(pid)
            elif pid not in old:
                found.append((pid, name))
                ahead.append(pid)
    return found
