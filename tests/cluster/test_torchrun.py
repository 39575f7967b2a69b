"""Under torchrun, on one host, a run is what it is without."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tried_under_torchrun
from tried_under_torchrun import FAILING, MINE, RANKS, everything, tried

import dlviz
from dlviz import RunInterrupted, Trace, cli, launch
from dlviz.cluster.parent.interrupts import sigterm_too

TORCHRUN = Path(sys.executable).with_name("torchrun")
SCRIPT = Path(tried_under_torchrun.__file__)
PAIR = ("--standalone", "--nproc-per-node=2")
LIMIT = 400  # s, on a machine that does much else


class Torchrun:
    """torchrun in a folder of its own, which holds its temporary files too."""

    def __init__(self, folder, *command, how=("--standalone", f"--nproc-per-node={RANKS}")):
        self.folder = folder
        (folder / "tmp").mkdir(exist_ok=True)
        self.environ = {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(dlviz.__file__).parents[1]),
            "TMPDIR": str(folder / "tmp"),
        }
        self.process = subprocess.Popen(
            [TORCHRUN, *how, *map(str, command)],
            cwd=folder,
            env={**os.environ, **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_at_the_last(self):
        """Wait until each process has begun the last of its runs."""
        until = time.monotonic() + LIMIT
        while not all((self.folder / f"last-{rank}").exists() for rank in range(RANKS)):
            assert time.monotonic() < until and self.process.poll() is None, self.wait().complained
            time.sleep(0.05)

    def wait(self):
        self.said, self.complained = self.process.communicate(timeout=LIMIT)
        self.code = self.process.returncode
        return self

    def outcomes(self, rank):
        lines = (self.folder / f"outcomes-{rank}").read_text().splitlines()
        return {each.pop("name"): each for each in map(json.loads, lines)}

    def left(self):
        """Processes that have its temporary folder in their environment, and files of ours."""
        mark = f"TMPDIR={self.environ['TMPDIR']}\0".encode()
        processes = [p.parent.name for p in Path("/proc").glob("[0-9]*/environ") if mark in read(p)]
        files = [*(self.folder / "tmp").glob("dlviz-*")]
        return processes + [*map(str, files)]


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def gone(run):
    until = time.monotonic() + 5
    while left := run.left():
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """All of it in one start of torchrun, which takes longer than the runs; it is interrupted in
    the last of them."""
    run = Torchrun(tmp_path_factory.mktemp("torchrun"), SCRIPT, "works")
    run.until_at_the_last()
    run.process.send_signal(signal.SIGINT)
    return run.wait()


def as_json(value):
    return json.loads(json.dumps(value, default=tried_under_torchrun.in_short))


# -- what completes --------------------------------------------------------------------------------
@pytest.mark.slow
def test_results_and_messages_are_those_of_one_launch(done):
    owns = [10**rank for rank in range(RANKS)]
    here = as_json(tried(lambda comm: everything(comm, owns[comm.rank])))
    there = done.outcomes(0)["everything"]
    assert there["results"] == here["results"]
    assert [result[3] for result in there["results"]] == [[MINE, own, own] for own in owns]
    assert there["messages"] == here["messages"]
    assert there["meta"] == here["meta"]
    for rank in range(1, RANKS):
        own = done.outcomes(rank)["everything"]
        assert own["results"] == [there["results"][rank]]
        assert "meta" not in own  # it has no Trace


@pytest.mark.slow
def test_a_rank_has_the_environment_of_its_process(done):
    found = done.outcomes(0)["where"]["results"]
    for rank in range(RANKS):
        assert found[rank] == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "OWN": f"of rank {rank}",
        }


@pytest.mark.slow
def test_a_process_group_of_the_script_is_not_in_the_way(done):
    for rank in range(RANKS):
        found = done.outcomes(rank)
        assert found["beside"]["results"] == found["where"]["results"]


@pytest.mark.slow
def test_output_and_progress_are_shown_once(done):
    for rank in range(RANKS):
        line = f"rank {rank} has {10**rank}\n"
        assert done.outcomes(0)["everything"]["output"][rank] == line
        assert done.said.count(line) == done.said.count(f"[rank {rank}] {line}") == 1
    assert "steps: " in done.complained


@pytest.mark.slow
def test_a_paced_run_takes_what_it_takes_without(done):
    here = tried(tried_under_torchrun.paced, machine=dlviz.machine.classroom(RANKS))
    there = done.outcomes(0)["paced"]
    assert there["meta"] == here["meta"] and here["meta"]["clock"] == "paced"
    assert there["pace"] == pytest.approx(here["pace"], rel=1e-6)
    assert here["pace"] > 2 * 0.02


@pytest.mark.slow
def test_every_process_knows_whom_the_run_has_lost(done):
    for rank in range(RANKS):
        found = done.outcomes(rank)["loses"]
        assert found["lost"] == {"1": "was killed by signal 9"}
        assert found["results"] == ([[1], None, [1]] if rank == 0 else [[None, [1]][rank - 1]])


# -- what does not ---------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("worker", FAILING, ids=lambda worker: worker.__name__)
def test_what_fails_is_called_what_it_is_called_without(worker, done):
    here = tried(worker, timeout=0.7 if worker is tried_under_torchrun.too_long else 40.0)
    there = done.outcomes(0)[worker.__name__]
    if worker is tried_under_torchrun.mismatch:  # whoever sees it first says whom it saw
        assert all("collective mismatch: as call number 0" in it["message"] for it in (here, there))
    else:
        for what in ("error", "rank", "exitcode", "cycle", "meta"):
            assert there[what] == here[what], there["message"]
        assert there["message"].partition("\n")[0] == here["message"].partition("\n")[0]
    for rank in range(1, RANKS):
        own = done.outcomes(rank)[worker.__name__]
        assert own["message"] == there["message"].partition("\n")[0]
        assert all(own[what] == there[what] for what in ("error", "rank", "exitcode", "cycle"))


@pytest.mark.slow
def test_a_deadlock_is_named_within_3_s(done):
    found = done.outcomes(0)["ring"]
    assert found["cycle"] == [0, 1, 2]
    lines = [line for line in found["message"].splitlines() if " now, at " in line]
    assert len(lines) == RANKS
    assert max(float(line.split(" for ")[1].split()[0]) for line in lines) < 3


@pytest.mark.slow
def test_another_number_of_ranks_is_refused(done):
    for rank in range(RANKS):
        found = done.outcomes(rank)["five"]
        assert "ranks=5 is not what torchrun started: it started 3" in found["message"]


@pytest.mark.slow
def test_runs_leave_no_descriptor_open(done):
    for rank in range(RANKS):
        found = done.outcomes(rank)
        assert found["before"] == found["after"]


# -- torchrun's processes die ----------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.sweep
def test_processes_that_die_end_the_run_and_torchrun_starts_the_next(tmp_path):
    interval = "--monitor-interval=2"  # s: we tell of a death before torchrun acts on it
    run = Torchrun(tmp_path, SCRIPT, "fails", how=(*PAIR, "--max-restarts=2", interval)).wait()
    assert run.code != 0
    found = [run.outcomes(rank) for rank in range(2)]
    told = found[0]["attempt 0"]
    assert told["error"] == "RankError" and told["rank"] == 1 and told["seconds"] < 40
    assert told["message"] == "torchrun's process for rank 1 ended before the run was over"
    told = found[1]["attempt 1"]
    assert told["message"].startswith("rank 1 has lost the process that started it")
    assert found[0]["once more 2"]["results"][1]["OWN"] == "of rank 1"
    assert "once more 0" not in found[0] and "once more 1" not in found[1]
    assert "KeyError: 'nothing here'" in run.complained
    gone(run)
    launch(lambda comm: None, 1)  # sweeps away what the parent that was killed had in memory
    for pid in (run.process.pid, found[0]["started 1"]["pid"]):
        assert not [*Path("/dev/shm").glob(f"dlviz-{pid}-*")]


@pytest.mark.slow
def test_an_interrupt_of_torchrun_ends_all(done):
    # apart: what processes complain of at once may lie between each other's words
    assert "RunInterrupted" in done.complained and "the run was interrupted" in done.complained
    assert done.code != 0
    gone(done)


def test_sigterm_interrupts_where_it_is_to():
    def worker(comm):
        if comm.rank == 0:
            os.kill(int(os.environ["HERE"]), signal.SIGTERM)
        time.sleep(100)

    os.environ["HERE"] = str(os.getpid())
    try:
        with pytest.raises(RunInterrupted), sigterm_too():
            launch(worker, 2)
    finally:
        del os.environ["HERE"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# -- dlviz run, and two torchruns ------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.sweep
def test_two_torchruns_on_one_host_are_two_hosts_of_one_run(tmp_path):
    """With a memory and a name of one host; the command says its summary once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"--rdzv-endpoint=localhost:{server.getsockname()[1]}"
    how = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=pair", endpoint)
    command = ("-m", "dlviz", "run", "ddp", "--steps", "2", "--out", "trace.json.gz")
    runs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        runs.append(Torchrun(tmp_path / name, *command, how=how))
    for run in runs:
        assert run.wait().code == 0, run.complained
        gone(run)
    (written,) = tmp_path.glob("*/trace.json.gz")
    name = socket.gethostname()
    trace = Trace.load(written)
    assert trace.meta["hosts"] == {f"{name} (node 0)": [0, 1], f"{name} (node 1)": [2, 3]}
    assert trace.meta["outcome"] == "completed"
    said = "".join(run.said for run in runs)
    assert said.count("ddp on 4 ranks") == 1


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_the_command_complains_once(rank, lines, monkeypatch, capsys):
    started = {"TORCHELASTIC_RUN_ID": "x", "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    for name, value in {**started, "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["run", "ddp", "--ranks", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == lines
