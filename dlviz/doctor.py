"""What works on this machine, and why the rest does not: `dlviz doctor`.

First the facts: versions of Python and packages beside those that dlviz needs, cores, GPUs,
browser, shared memory, and four ranks that are really started. Then the verdicts: whether each
command of dlviz works here, and if not, why.
"""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlviz import __version__

if TYPE_CHECKING:
    from dlviz.cluster import Comm

RANKS = 4
ENOUGH_SHARED = 16 * 10**6  # bytes: what a run of 12 ranks has in shared memory
SEVERAL_HOSTS = (
    "by torchrun on each: tested in network namespaces of one machine, on separate machines not yet"
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NEEDS = {  # what dlviz does: the facts that it depends on
    "dlviz run, launch and %%ranks": (
        "Python", "torch", "numpy", "cloudpickle", "tqdm", "data", "shared memory", "ranks",
    ),
    "dlviz show and figures": ("Python", "numpy", "pandas", "plotly", "matplotlib"),
    "the labs (make lab)": (
        "Python", "jupyterlab", "ipykernel", "ipywidgets", "anywidget", "torch", "plotly", "ranks",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """What was found. `state` is ok, no (something cannot work) or info."""

    name: str
    state: str
    text: str


def examine() -> int:
    """Print each fact as it is found, then what works. Returns 1 if something does not, else 0."""
    print(f"dlviz {__version__} on {platform.system()} {platform.machine()}\n")
    found = []
    for fact in facts():
        print(_line(fact), flush=True)
        found.append(fact)
    print("\nWhat works here, and what does not")
    verdicts = list(conclude(found))
    for verdict in verdicts:
        print(_line(verdict))
    return int(any(verdict.state == "no" for verdict in verdicts))


def facts() -> Iterator[Fact]:
    """What is here, fact by fact; the last ones take seconds."""
    yield from versions()
    yield cores()
    yield browser()
    yield shared_memory()
    yield gpus()
    yield dataset()
    yield ranks()
    yield messages()


def conclude(found: list[Fact]) -> Iterator[Fact]:
    """The verdicts: whether each thing that dlviz does works here, and if not, why."""
    by_name = {fact.name: fact for fact in found}
    for what, needs in NEEDS.items():
        lacking = [by_name[name] for name in needs if name in by_name]
        lacking = [fact for fact in lacking if fact.state == "no"]
        why = "; ".join(f"{fact.name}: {fact.text}" for fact in lacking)
        yield Fact(what, "no" if why else "ok", why)
    pages = "a page opens by itself" if can_open() else "no display: open the page yourself"
    yield Fact("pages in a browser", "ok" if can_open() else "info", pages)
    yield Fact("ranks on GPUs", "info", by_name["GPUs"].text)
    yield Fact("ranks on several hosts", "info", SEVERAL_HOSTS)


def versions() -> Iterator[Fact]:
    """Python and each package that dlviz needs, with the versions that pyproject.toml asks for."""
    try:
        asked = metadata.metadata("dlviz")["Requires-Python"]
        needs = metadata.requires("dlviz") or []
    except metadata.PackageNotFoundError:
        yield Fact("packages", "info", "dlviz is not installed, so its packages cannot be checked")
        return
    yield _version("Python", platform.python_version(), asked)
    for need in needs:
        name, asked, extra = re.fullmatch(r"([\w.-]+)([^;]*)(.*)", need).groups()  # type: ignore
        if extra:
            continue
        try:
            yield _version(name, metadata.version(name), asked)
        except metadata.PackageNotFoundError:
            yield Fact(name, "no", f"missing: pip install '{name}{asked}'")


def _version(name: str, version: str, asked: str) -> Fact:
    if all(_satisfies(version, clause) for clause in asked.split(",")):
        return Fact(name, "ok", f"{version}  ({asked})")
    return Fact(name, "no", f"{version} is here and {asked} is needed")


def _satisfies(version: str, clause: str) -> bool:
    """Whether a version such as 2.13.0+cpu is within >=2.13, or within <3."""
    here, bound = (
        [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]
        for text in (version, clause)
    )
    return here < bound if clause.startswith("<") else here >= bound


def cores() -> Fact:
    """A paced run is on time as long as the math of all ranks fits the cores."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    most = min(5.0, 5.0 * count / RANKS)
    says = f"{RANKS} paced ranks keep up while the math of each 5 ms takes at most {most:.1f} ms"
    return Fact("cores", "ok", f"{count}; {says}")


def browser() -> Fact:
    """Only PNG pictures and tests need a Chromium."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path:
        return Fact("browser", "ok", path)
    lacking = "no Chromium: no PNG beside a figure, and tests that need one skip (apt-get install"
    return Fact("browser", "info", f"{lacking} chromium)")


def shared_memory(folder: str = "/dev/shm") -> Fact:
    """Ranks of one host read each other's headers there."""
    if not os.access(folder, os.W_OK):
        return Fact("shared memory", "info", f"no {folder} to write to: runs use files in TMPDIR")
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e6:,.0f} MB free in {folder}"
    if free < ENOUGH_SHARED:
        needed = f"{ENOUGH_SHARED // 10**6} MB are needed (docker run --shm-size=256m)"
        return Fact("shared memory", "no", f"{text}: {needed}")
    return Fact("shared memory", "ok", text)


def gpus() -> Fact:
    """What torch finds. No GPU has run dlviz so far."""
    try:
        torch = importlib.import_module("torch")
        count = torch.cuda.device_count()
    except Exception as error:
        return Fact("GPUs", "info", f"torch cannot be asked ({_reason(error)})")
    if count:
        names = ", ".join(sorted({torch.cuda.get_device_name(n) for n in range(count)}))
        untested = "untested, as dlviz has not run on one yet: device='cpu' keeps to the CPU"
        how = f"one for each of up to {count} ranks, and their tensors go by NCCL; else by the host"
        if not torch.distributed.is_nccl_available():
            how = "tensors go by the host, as this torch has no NCCL"
        return Fact("GPUs", "info", f"{count} ({names}), {untested}; {how}")
    why = "this torch is built for the CPU" if torch.version.cuda is None else "torch sees none"
    return Fact("GPUs", "info", f"none ({why}): ranks compute on the CPU; GPUs are untested")


def dataset() -> Fact:
    """The digits, with their checksum."""
    try:
        store = importlib.import_module("dlviz.datasets.store")
        store.read("digits/digits.csv.gz")
    except Exception as error:
        return Fact("data", "no", _reason(error))
    return Fact("data", "ok", "digits, checksum right")


def ranks() -> Fact:
    """Start four ranks twice: the first start also waits for the fork server."""
    try:
        from dlviz.cluster import launch

        runs = [launch(_sum_of_ranks, RANKS, device="cpu", timeout=60.0) for _ in range(2)]
    except Exception as error:
        return Fact("ranks", "no", f"{RANKS} ranks do not start ({_reason(error)})")
    wrong = [run.results for run in runs if run.results != [RANKS * (RANKS - 1) // 2] * RANKS]
    if wrong:
        return Fact("ranks", "no", f"{RANKS} ranks start and add up wrongly: {wrong[0]}")
    first, second = (run.seconds for run in runs)
    return Fact("ranks", "ok", f"{RANKS} start and end in {first:.2f} s, then in {second:.2f} s")


def messages() -> Fact:
    """How the bytes of messages travel, and why so."""
    try:
        from dlviz.cluster import launch

        name, place = launch(_transport_and_folder, 2, device="cpu", timeout=60.0).results[0]
    except Exception as error:
        return Fact("messages", "no", f"none arrives ({_reason(error)})")
    asked = os.environ.get("DLVIZ_TRANSPORT")
    why = f", as DLVIZ_TRANSPORT={asked} asks" if asked else ""
    if name == "memory":
        return Fact("messages", "ok", f"out of the sender's memory{why}")
    if name == "files":
        why = why or ": this system lets no process read another's memory"
        return Fact("messages", "info", f"through files in {place}, at half the speed{why}")
    return Fact("messages", "info", f"by gloo, through sockets, which is slowest{why}")


def _transport_and_folder(comm: Comm) -> tuple[str, str]:
    from dlviz.cluster import place_of_files

    transport = comm.process.transport.name
    place = place_of_files(comm.process.folder) if transport == "files" else ""
    return transport, os.path.dirname(place)


def _sum_of_ranks(comm: Comm) -> int:
    import torch

    total = torch.tensor([comm.rank])
    comm.all_reduce(total)
    return int(total)


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _line(fact: Fact) -> str:
    return f"{fact.state:5} {fact.name:30} {fact.text}".rstrip()


def can_open() -> bool:
    """Whether a page can be opened: on a desktop, or by a BROWSER that the user named."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in named)
