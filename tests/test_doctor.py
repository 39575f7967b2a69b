"""`dlviz doctor`: the facts, the verdicts, and why."""

from __future__ import annotations

import importlib.metadata as metadata
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import dlviz.cluster
from dlviz import doctor
from dlviz.cli import main
from dlviz.datasets import store
from dlviz.doctor import Fact


def states(text: str) -> dict[str, tuple[str, str]]:
    """What was printed: name -> (state, text)."""
    lines = [line for line in text.splitlines() if line[:5].strip() in ("ok", "no", "info")]
    return {line[6:36].strip(): (line[:5].strip(), line[37:]) for line in lines}


@pytest.fixture
def quick(monkeypatch):
    """No ranks are started."""
    monkeypatch.setattr(doctor, "ranks", lambda: Fact("ranks", "ok", "not started"))
    monkeypatch.setattr(doctor, "messages", lambda: Fact("messages", "ok", "none was sent"))


def test_here_everything_works(capsys):
    code = main(["doctor"])
    out, err = capsys.readouterr()
    found = states(out)
    assert code == 0 and err == "", out
    assert {"Python", "torch", "plotly", "jupyterlab", "cores", "GPUs", "browser"} <= found.keys()
    assert found["torch"] == ("ok", f"{metadata.version('torch')}  (>=2.13)")
    assert found["shared memory"][0] == "ok" and " MB free in " in found["shared memory"][1]
    assert found["ranks"][0] == "ok" and found["ranks"][1].startswith("4 start and end in ")
    assert found["dlviz run, launch and %%ranks"] == ("ok", "")
    assert found["dlviz show and figures"] == found["the labs (make lab)"] == ("ok", "")
    assert found["messages"] == ("ok", "out of the sender's memory")
    state, text = found["ranks on several hosts"]
    assert state == "info" and "in network namespaces" in text and "machines not yet" in text
    assert "pytest" not in found, "what an extra asks for is not needed"


@pytest.mark.parametrize(
    ("version", "asked", "good"),
    [
        ("2.13.0+cpu", ">=2.13", True),
        ("2.12.1", ">=2.13", False),
        ("2.9", ">=2.13", False),
        ("3.0", ">=2.13", True),
        ("3.11.7", "<3.14,>=3.11", True),
        ("3.14.0", "<3.14,>=3.11", False),
        ("3.10.12", "<3.14,>=3.11", False),
    ],
)
def test_a_version_is_compared_with_what_is_asked_for(version, asked, good):
    fact = doctor._version("x", version, asked)
    assert fact.state == ("ok" if good else "no")
    assert version in fact.text and asked in fact.text


def test_an_old_and_a_missing_package_are_named_with_what_they_stop(monkeypatch, quick, capsys):
    def version(name):
        if name == "plotly":
            raise metadata.PackageNotFoundError(name)
        return "1.0" if name == "jupyterlab" else true(name)

    true = metadata.version
    monkeypatch.setattr(metadata, "version", version)
    assert main(["doctor"]) == 1
    found = states(capsys.readouterr().out)
    assert found["plotly"] == ("no", "missing: pip install 'plotly>=7.1'")
    assert found["jupyterlab"] == ("no", "1.0 is here and >=4.6 is needed")
    assert found["dlviz show and figures"] == ("no", f"plotly: {found['plotly'][1]}")
    labs = f"jupyterlab: {found['jupyterlab'][1]}; plotly: {found['plotly'][1]}"
    assert found["the labs (make lab)"] == ("no", labs)
    assert found["dlviz run, launch and %%ranks"][0] == "ok"


def test_without_torch_it_says_so_and_what_still_works():
    code = "import sys; sys.modules['torch'] = None; from dlviz.cli import main; main(['doctor'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    found = states(done.stdout)
    assert done.stderr == ""
    assert found["GPUs"][1].startswith("torch cannot be asked (ModuleNotFoundError: ")
    assert found["ranks"] == (
        "no",
        "4 ranks do not start (ModuleNotFoundError: import of torch halted; None in sys.modules)",
    )
    assert found["dlviz run, launch and %%ranks"][0] == "no"
    assert found["dlviz show and figures"][0] == "ok"


@pytest.mark.parametrize(
    ("transport", "says"),
    [
        ("memory", "out of the sender's memory, as DLVIZ_TRANSPORT=memory asks"),
        ("files", "through files in /dev/shm, at half the speed, as DLVIZ_TRANSPORT=files asks"),
        ("gloo", "by gloo, through sockets, which is slowest, as DLVIZ_TRANSPORT=gloo asks"),
    ],
)
def test_the_transport_of_messages_is_named_with_the_reason(monkeypatch, transport, says):
    monkeypatch.setenv("DLVIZ_TRANSPORT", transport)
    assert doctor.messages() == Fact("messages", "ok" if transport == "memory" else "info", says)


def test_ranks_that_do_not_start_or_add_up_are_reported_with_the_reason(monkeypatch):
    def launch(*args, **kwargs):
        raise dlviz.cluster.RunTimeout("the run took longer than timeout=60 s\n  rank 0 is ...")

    monkeypatch.setattr(dlviz.cluster, "launch", launch)
    says = "4 ranks do not start (RunTimeout: the run took longer than timeout=60 s)"
    assert doctor.ranks() == Fact("ranks", "no", says)
    run = SimpleNamespace(results=[6, 6, 6, 5], seconds=0.1)
    monkeypatch.setattr(dlviz.cluster, "launch", lambda *args, **kwargs: run)
    assert doctor.ranks() == Fact("ranks", "no", "4 ranks start and add up wrongly: [6, 6, 6, 5]")


def test_little_shared_memory_stops_runs_and_none_does_not(monkeypatch, tmp_path):
    usage = SimpleNamespace(total=64 * 10**6, used=0, free=2 * 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    fact = doctor.shared_memory(str(tmp_path))
    assert fact.state == "no"
    assert fact.text.startswith(f"2 MB free in {tmp_path}: 16 MB are needed")
    assert doctor.shared_memory(str(tmp_path / "none")).state == "info"


def test_a_missing_dataset_stops_runs(monkeypatch, tmp_path):
    true = store.read
    monkeypatch.setattr(store, "read", lambda name: true(name, tmp_path))
    fact = doctor.dataset()
    assert fact.state == "no" and "is missing: get it back with `git checkout data`" in fact.text
    verdict = next(doctor.conclude([fact, doctor.gpus()]))
    assert verdict.state == "no" and verdict.text == f"data: {fact.text}"


@pytest.mark.parametrize(
    ("nccl", "path"),
    [
        (True, "one for each of up to 2 ranks, and their tensors go by NCCL; else by the host"),
        (False, "tensors go by the host, as this torch has no NCCL"),
    ],
)
def test_gpus_are_called_untested_with_the_path_of_their_tensors(monkeypatch, nccl, path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "H200")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    fact = doctor.gpus()
    assert fact.state == "info" and fact.text.startswith("2 (H200), untested")
    assert fact.text.endswith(path)


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="has a GPU")
def test_where_no_gpu_is_they_are_called_untested():
    verdicts = {verdict.name: verdict.text for verdict in doctor.conclude([doctor.gpus()])}
    assert verdicts["ranks on GPUs"].endswith("GPUs are untested")


def test_without_a_chromium_it_says_what_that_costs(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    fact = doctor.browser()
    assert fact.state == "info" and fact.text.startswith("no Chromium: no PNG beside a figure")


@pytest.mark.parametrize(("display", "says"), [("", "info"), (":0", "ok")])
def test_whether_a_page_opens_by_itself(monkeypatch, display, says):
    for name in ("BROWSER", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(sys, "platform", "linux")
    verdicts = {verdict.name: verdict.state for verdict in doctor.conclude([doctor.gpus()])}
    assert verdicts["pages in a browser"] == says
