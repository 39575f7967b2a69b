"""What all tests share: a real browser, and the check that a test leaves nothing behind."""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Set
from functools import cache
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

# jsonschema builds the grammars of links that nobody checks here: seconds of each process.
sys.modules["rfc3987_syntax"] = None  # pyright: ignore[reportArgumentType]
importlib.import_module("IPython")  # as a notebook's, our fork server loads what optimizers need
_preload = forkserver.set_forkserver_preload  # and pytest: a rank that checks takes five times as
forkserver.set_forkserver_preload = lambda names: _preload(["pytest", *names])  # long to load it
gc.disable()  # until all tests are there: what is loaded and collected stays
os.environ["DLVIZ_PREDICTIONS"] = ""  # neither a test nor its kernels keep predictions
os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side: more threads than cores take turns

TESTS = str(Path(__file__).parent)
PROC = Path("/proc/self/stat")
SHARED_MEMORY = Path("/dev/shm")
GRACE = 2.0  # seconds that what a test left may take to go
# The files that take longest come first, so that none is begun last: a process runs whole files.
# One that waits beside one that computes.
LONGEST = (
    "test_timeline_browser",
    "test_faults",
    "test_cli",
    "test_every_explorer",
    "test_two_hosts",
    "test_explorer_browser",
    "test_torchrun",
    "test_player_browser",
    "test_transports",
    "test_all_widgets_browser",
    "test_results",
    "test_one_form",
    "test_readme",
    "test_explorer",
    "test_launch",
    "test_federated_explorer",
    "test_collectives",
    "test_schedules_browser",
    "test_nbgrader",
    "test_sim_strategies",
    "test_hybrid",
    "test_schedules",
    "test_fedavg",
    "test_saved_pages_browser",
    "test_pipeline",
    "test_teaching",
)
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-frame-rate-limit",  # a picture when there is one to show, not 60 in a second
    "--disable-gpu-vsync",
]


@pytest.fixture(autouse=True)
def judged_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of tests/grading judge in this process, which has run none of a program; test_judge
    starts the process that judges in a course."""
    if "grading" not in request.path.parts:
        return
    from dlviz.grading.harness import judge

    def ask(check: tuple[str, str], programs: Any, sizes: Any) -> tuple[float, str, str]:
        module, name = check
        report = getattr(sys.modules[module], name).grade(*programs, sizes=sizes)
        return report.points, str(report), ""

    monkeypatch.setattr(judge, "ask", ask)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The LONGEST files come first. A test in a browser that fails is tried once more, and told of:
    three programs take turns on two cores there, any of which may be held up. No other test is
    before `make test` has shown its failure: a race in our ranks must show."""
    order = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    """What tests define goes to ranks by value. A rank that had to import a test's module would
    load pytest, and whatever else the module imports, which takes several times as long as to start
    the rank. And no collection of garbage looks again at a million objects that stay."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000)
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith(TESTS):
            cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course to which all assignments were released: once for all processes that run tests."""
    from courses import Assignment  # beside the tests that ask for it

    course = tmp_path_factory.mktemp("course")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return Assignment("*").release(course)
    released = tmp_path_factory.getbasetemp().parent / "released"
    with open(released.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not released.exists():
            Assignment("*").release(course).rename(released)
    return shutil.copytree(released, course, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A headless Chromium, as playwright's `Browser`; close the pages you open.

    Without one a test skips and says what to install; in CI it fails.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser")  # the first is the quickest
    names += ("google-chrome", "google-chrome-stable")
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


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., object]]:
    """`served(notebook)`: around the use of a notebook's address in the one JupyterLab of all
    tests."""
    from lab_server import JupyterLab

    with JupyterLab(tmp_path_factory.mktemp("jupyterlab")) as lab:
        yield lab.serve


@pytest.fixture(scope="session")
def real_run() -> Callable[[str], Any]:
    """The Trace of a run of real ranks, by name, made when it is first asked for: "ddp 2" and
    "ddp 4" (30 steps by the wall clock), "all_reduce" (every algorithm on 4 ranks by the wall
    clock), and a schedule's name (3 steps of it on 4 paced ranks, a message takes 1 ms; with
    " at once" no time)."""
    return cache(_real_run)


def _real_run(name: str) -> Any:
    import torch

    from dlviz import collectives, datasets, launch, models, schedules
    from dlviz.machine import Link, Machine, Topology, classroom
    from dlviz.parallel import data, pipeline

    if name.startswith("ddp"):
        samples = list(datasets.batches(*datasets.digits("train"), batch=64, steps=30))
        options = {"method": "ddp", "bucket_bytes": 2**16}
        return launch(data.train, int(name[4:]), args=(models.MLP(), samples), kwargs=options).trace
    if name == "all_reduce":

        def worker(comm):
            for algorithm in collectives.ALGORITHMS:
                collectives.trials(comm, algorithm, 4096, repeats=2)

        return launch(worker, 4).trace
    layers = [torch.nn.Linear(4, 4) for _ in range(8)]
    schedule = schedules.make(name.removesuffix(" at once"), 4, 8)
    link = Link(0.0 if name.endswith(" at once") else 1e-3, float("inf"))
    stages = layers[: len(schedule.stage_rank)]
    machine = Machine(classroom(4).device, Topology.switch(4, link), step=0.005)
    arguments = stages, [(torch.ones(16, 4), torch.ones(16, 4))] * 3
    how = {"schedule": schedule, "loss": torch.nn.functional.mse_loss}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lateness: other tests run meanwhile
        return launch(pipeline.train, 4, machine=machine, args=arguments, kwargs=how).trace


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """After each test: no process that it started, zombies included, and no shared memory of ours.

    The forkserver and the resource tracker stay, as they serve the next run; so does whatever was
    there before the test, such as the browser, with its own children.
    """
    before = processes()
    yield
    deadline = time.monotonic() + GRACE
    while (left := leftovers(before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"the test left behind: {', '.join(left)}"


def leftovers(before: Set[int]) -> list[str]:
    left = [f"process {pid} ({name})" for pid, name in descendants(before)]
    folders = SHARED_MEMORY.glob(f"dlviz-{os.getpid()}-*")
    return [*left, *map(str, folders)]


def processes() -> set[int]:
    """The pids of all processes of this machine."""
    return set(map(int, filter(str.isdigit, os.listdir("/proc")))) if PROC.exists() else set()


def descendants(old: Set[int]) -> list[tuple[int, str]]:
    """(pid, name) of this process's descendants, but those in `old` and their own descendants.

    The helpers of multiprocessing are left out, not their children: ranks are the forkserver's.
    Only processes that are not in `old` are looked at: thousands of tests ask.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for pid in processes() - old:
        try:
            text = Path("/proc", str(pid), "stat").read_text()
        except OSError:  # it ended while we looked
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        parent = int(text[text.rindex(")") :].split()[2])
        children.setdefault(parent, []).append((pid, name))
    helpers = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    found, ahead = [], [os.getpid(), *(helpers & old)]
    while ahead:
        for pid, name in children.get(ahead.pop(), []):
            if pid in helpers:
                ahead.append(pid)
            else:
                found.append((pid, name))
                ahead.append(pid)
    return found
