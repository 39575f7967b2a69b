"""Ctrl-C on either of two hosts, or the death of a process there, ends the run on both."""

import os
import signal
import sys
import time
from pathlib import Path

import namespaces
import pytest
from namespaces import several_hosts

TORCHRUN = Path(sys.executable).with_name("torchrun")
PORT = 29510
LIMIT = 240  # s
SCRIPT = """
import os, time
import dlviz

with open("/tmp/pid-" + os.environ["RANK"], "w") as file:
    file.write(str(os.getpid()))

def worker(comm):
    if comm.rank == 0:
        print("at it", flush=True)
    time.sleep(100)

dlviz.launch(worker, 4)
"""


@pytest.fixture(scope="module")
def hosts():
    namespaces.need(namespaces.why_not())
    with several_hosts() as pair:
        yield pair


def heard(run, words):
    """Wait until a run has printed these words."""
    for line in run.stdout:
        if words in line:
            return
    raise AssertionError(run.stderr.read())


def interrupt(run):
    """Send SIGINT to torchrun, the child of the process that has entered its host."""
    (torchrun,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(torchrun), signal.SIGINT)


def left(host):
    """What runs on a host (its first process waits for nobody's end), and files of ours."""
    lines = map(str.split, host.run("ps", "-eo", "stat=,comm=").splitlines())
    files = [*host.file("/dev/shm").iterdir(), *host.file("/tmp").glob("dlviz-*")]
    return [comm for stat, comm, *_ in lines if stat[0] != "Z" and comm not in ("sh", "ps")] + files


def start(hosts, port):
    """The same script on both, once its ranks are at work. torchrun looks every 2 s at what its
    processes do: who tells of one that has died is not ended before."""
    for host in hosts:
        host.file("/tmp/script.py").write_text(SCRIPT)
    how = ["--nnodes=2", "--nproc-per-node=2", "--monitor-interval=2", "--rdzv-backend=c10d"]
    how += ["--rdzv-id=a-run", f"--rdzv-endpoint=host-a:{port}"]
    runs = [host.start(TORCHRUN, *how, "/tmp/script.py", **namespaces.ENVIRON) for host in hosts]
    heard(runs[0], "at it")
    return runs


def ended(runs, hosts):
    """What each torchrun has complained of, once all has ended."""
    said = [run.communicate(timeout=LIMIT)[1] for run in runs]
    assert all(run.returncode for run in runs)
    until = time.monotonic() + 5  # what held the output of torchrun has ended; the rest is ending
    while any(map(left, hosts)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [left(host) for host in hosts] == [[], []]
    return said


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("where", [0, 1], ids=["host-a", "host-b"])
def test_an_interrupt_on_either_host_ends_all_ranks_on_both(where, hosts):
    runs = start(hosts, PORT + where)
    interrupt(runs[where])
    said = ended(runs, hosts)
    # apart: what two processes complain of at once may lie between each other's words
    assert "RunInterrupted" in said[0] and "the run was interrupted" in said[0], said[0]
    assert "KeyboardInterrupt" in said[1]
    if where == 0:
        assert "the run was interrupted (host-a shows all of it)" in said[1]


@pytest.mark.slow
@pytest.mark.sweep
def test_a_process_of_torchrun_that_is_killed_ends_the_run_and_is_named(hosts):
    runs = start(hosts, PORT + 2)
    hosts[1].run("kill", "-KILL", hosts[1].file("/tmp/pid-3").read_text())
    said = ended(runs, hosts)
    assert "torchrun's process for rank 3 on host-b ended before the run was over" in said[0]
