"""docs/clusters.md: what it has its reader type is taken, and what it quotes is said."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

from dlviz.cli import _parse
from dlviz.cli.words import ENDINGS, Unusable, check_target
from dlviz.cluster.hosts import network, rendezvous
from dlviz.cluster.hosts.network import Store, versions
from dlviz.cluster.parent.torchrun import _check
from dlviz.machine import classroom

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "clusters.md").read_text()
LAB = (ROOT / "labs" / "02_collectives.ipynb").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
TOLD = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.S))


def block(kind: str, words: str) -> str:
    """The one block of that kind with these words."""
    (found,) = [text for its, text in BLOCKS if its == kind and words in text]
    return found


def commands(text: str) -> list[list[str]]:
    """What follows each `torchrun` in a text, as its words."""
    text = text.replace("\\\n", " ").replace("\\$", "$")
    lines = re.findall(r"torchrun (--[^#\"\n]*)", text)
    return [shlex.split(line) for line in lines]


COMMANDS = [words for kind, text in BLOCKS if kind != "yaml" for words in commands(text)]


def job() -> dict[str, Any]:
    first, *_ = yaml.safe_load_all(block("yaml", "PyTorchJob"))
    return first


def taken(words: list[str], nodes: str = "2") -> None:
    """torchrun takes the words, and what it starts takes the rest."""
    words = [word.replace("$SLURM_NNODES", nodes) for word in words]
    words = [re.sub(r"\$SLURM_NODEID", "0", word).replace("$port", "29500") for word in words]
    options = get_args_parser().parse_args(words)
    assert options.nnodes == nodes and options.nproc_per_node == "2"
    if options.module:
        assert options.training_script == "dlviz"
        run = _parse(options.training_script_args)
        assert run.ranks == 2 * int(nodes) and run.out.name.endswith(".json.gz")
    else:
        assert (ROOT / "labs" / options.training_script).exists()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_torchrun_and_dlviz_take_each_command(words):
    taken(words)


def test_each_way_to_start_a_run_has_its_command():
    assert len(COMMANDS) == 6
    for kind, words in (("sh", "ssh other"), ("bash", "#SBATCH"), ("sh", "docker run")):
        assert commands(block(kind, words))


def test_the_commands_of_lab_02_are_taken():
    text = LAB.replace("\\n", "\n")
    found = [words for words in commands(text) if "two_hosts.py" in words]
    assert [words[2] for words in found] == ["--node-rank=0", "--node-rank=1"]
    for words in found:
        taken(words)


def test_the_batch_file_is_one_of_bash_and_asks_for_the_nodes_it_uses():
    script = block("bash", "#SBATCH")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.M))
    assert asked["nodes"] == "2" and asked["ntasks-per-node"] == "1"


def test_the_job_starts_two_ranks_in_each_of_two_pods():
    spec = job()["spec"]
    master, worker = (spec["pytorchReplicaSpecs"][name] for name in ("Master", "Worker"))
    pods = [replica["template"]["spec"] for replica in (master, worker)]
    assert master["replicas"] == worker["replicas"] == 1
    assert pods[0]["containers"] == pods[1]["containers"]
    (container,) = pods[0]["containers"]
    assert container["name"] == "pytorch" and container["command"] == ["torchrun"]
    # The operator's own variables stand for these options.
    given = ["--nnodes=2", f"--nproc-per-node={spec['nprocPerNode']}", "--node-rank=0"]
    ports = [word.replace("$(MASTER_PORT)", "23456") for word in container["args"]]
    taken([*given, *ports])
    for pod in pods:
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert volumes == {mount["name"] for mount in container["volumeMounts"]}


def test_the_image_is_made_of_files_that_there_are():
    lines = block("dockerfile", "FROM").splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert {"dlviz", "data", "constraints.txt"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    needed = re.findall(r'"(LICENSE[\w-]*)"|readme = "(.*)"', (ROOT / "pyproject.toml").read_text())
    assert {name for pair in needed for name in pair if name} <= set(copied)


# -- what goes wrong -------------------------------------------------------------------------------
def about(name: str, address: str, **other: str) -> dict[str, Any]:
    about = {"name": name, "address": address, "interface": "eth0", "secret": False, "port": 1}
    about |= {"device": "cpu"}
    return {**about, "versions": {**versions(), "torch": "2.13.0", **other}}


ONE, OTHER = about("host-a", "10.77.0.1"), about("host-b", "10.77.0.2")


def quoted(error: BaseException | str) -> bool:
    """Whether the page has it as code, whole or up to its ellipsis."""
    said = " ".join(str(error).split())
    return any(said.startswith(each[:-1]) if each[-1] == "…" else said == each for each in TOLD)


def test_refusals_are_quoted_as_they_are(monkeypatch):
    with pytest.raises(ValueError) as refused:
        rendezvous.check([ONE, about("host-b", "10.77.0.2", torch="2.12.0")])
    assert quoted(refused.value)
    with pytest.raises(ValueError) as refused:
        rendezvous.check([{**ONE, "secret": True}, OTHER])
    assert quoted(refused.value)
    with pytest.raises(ValueError) as refused:
        rendezvous.check([{**ONE, "device": "cuda"}, OTHER])
    assert quoted(refused.value)
    assert quoted(rendezvous._unauthenticated(OTHER, ONE))
    with pytest.raises(ValueError) as refused:  # nobody listens on port 1, whoever it is
        lo = {"interface": "lo", "address": "127.0.0.1"}
        rendezvous._reach({**OTHER, **lo}, {**ONE, "address": "127.0.0.1"})
    assert quoted(str(refused.value).replace("eth0, 127.0.0.1", "eth0, 10.77.0.1"))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")
    monkeypatch.setattr(rendezvous, "interfaces", lambda: {"lo": "127.0.0.1", "eth0": "10.77.0.2"})
    monkeypatch.setattr(rendezvous.socket, "gethostname", lambda: "host-b")
    with pytest.raises(ValueError) as refused:
        rendezvous.route_to("10.77.0.1", 29500)
    assert quoted(refused.value)
    monkeypatch.setenv("WORLD_SIZE", "4")
    for ranks, machine, may_lose in ((2, None, ()), (4, classroom(4), ()), (4, None, (2,))):
        with pytest.raises(ValueError) as refused:
            _check(ranks, 2, machine, may_lose)
        assert quoted(refused.value)
    with pytest.raises(Unusable) as refused:
        check_target(Path("/out/trace.json.gz"), ENDINGS)
    assert quoted(refused.value)


def test_what_is_said_of_torchruns_store_is_quoted(monkeypatch):
    monkeypatch.setattr(network.socket, "gethostname", lambda: "host-b")
    monkeypatch.setattr(network, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as another:
        port = another.getsockname()[1]
        with pytest.raises(ValueError) as refused:
            Store("127.0.0.1", port, "a run").open()
    there = "10.77.0.1, port 29500"
    assert quoted(str(refused.value).replace(f"127.0.0.1, port {port}", there))
    with pytest.raises(ValueError) as refused:
        Store("127.0.0.1", port, "a run").open()  # nobody has it now
    assert quoted(str(refused.value).replace(f"127.0.0.1, port {port}", there))


def test_what_is_not_said_is_not_quoted():
    assert not quoted("host-a has no route to host-b in any of the tables that there are.")
