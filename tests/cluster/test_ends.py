"""How runs end that do not simply complete: last words, interrupts, children, what is printed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
import torch

import dlviz
from dlviz.cluster import DeadlockError, RankError, RunTimeout, launch
from dlviz.cluster.measure.link import fit, link_cost
from dlviz.cluster.parent import start, supervise
from dlviz.collectives import all_reduce
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.trace.recorder import Recorder


def run_script(folder, source, timeout=100, **options):
    (folder / "script.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "script.py"]
    return subprocess.run(
        command, cwd=folder, text=True, capture_output=True, timeout=timeout, **options
    )


# -- a link that costs nothing -------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:the run (was up to|could not)")
def test_auto_takes_a_link_that_costs_nothing_in_a_group_too():
    def worker(comm):
        row, tensor = comm.split(comm.rank % 2), torch.ones(1000)
        all_reduce(row, tensor, "auto")
        found = link_cost(row)
        return tensor[0].item(), found.alpha < 1e-9, found.beta < 1e-15, found.error

    free = Machine(classroom(4).device, Topology.switch(4, Link(0.0, float("inf"))))
    for total, *nothing, error in launch(worker, 4, machine=free).results:
        assert total == 2 and all(nothing) and error < 1e-6


def test_a_line_through_nothing_is_nothing():
    assert max(fit((8, 1024, 65_536), (0.0, 0.0, 0.0))) < 1e-11


# -- the Trace of a run that failed ----------------------------------------------------------------
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (2, 3))]
)
def test_a_paced_run_that_fails_beside_its_lanes_has_a_trace_and_says_what_failed(seed):
    def worker(comm, seconds):
        began, lane = time.perf_counter(), comm.lane("comm")
        tensor = torch.ones(200)
        for step in range(1000):
            with comm.span("step", step=step), comm.compute("forward"):
                if comm.rank == 2 and time.perf_counter() - began > seconds:
                    raise RuntimeError("enough")
            lane.submit(dlviz.collectives.ring.all_reduce, tensor)
            with comm.beside("backward_input"), comm.compute("backward_weight"):
                pass

    seconds = random.Random(seed).uniform(0.3, 0.6)
    with pytest.raises(RankError, match="rank 2 raised RuntimeError: enough") as caught:
        launch(worker, 4, machine=classroom(4), args=(seconds,))
    assert len(caught.value.trace.spans) > 10


def test_a_span_that_ends_while_a_failed_rank_is_asked_lies_within_the_open_one():
    recorder = Recorder(0)

    class Going(list):
        def __iter__(self):  # the rank goes on while its spans are read
            with recorder.span("forward", "inside"):
                pass
            return super().__iter__()

    with recorder.span("step"):
        lane = recorder.lane
        lane.spans = Going()
        inside, around = lane.rows()
    assert (inside.name, around.kind, around.fields) == ("inside", "step", {"unfinished": True})
    assert around.wall_start <= inside.wall_start <= inside.wall_end <= around.wall_end


def test_a_message_that_comes_later_and_does_not_fit_a_max_is_named():
    def worker(comm):
        if comm.rank == 0:
            with comm.compute("forward", seconds=0.05):
                pass
            comm.isend(torch.ones(7), 1).wait()
        else:
            comm.irecv(torch.ones(5), 0, op="max").wait()

    for _ in range(3):
        with pytest.raises(RankError, match="message mismatch: message number 0 from rank 0"):
            launch(worker, 2, machine=classroom(2))


# -- last words ------------------------------------------------------------------------------------
def test_a_rank_that_is_asked_just_before_it_returns_is_believed_to_have_finished():
    def worker(comm):
        if comm.rank == 0:
            state = comm.process.state

            def slowly(finished=False):
                told = state(finished)
                if not finished:
                    time.sleep(0.3)  # meanwhile its worker returns
                return told

            comm.process.state = slowly
            came = torch.zeros(1)
            comm.recv(came, 1)  # sits still, so that it is asked
            return
        if comm.rank == 1:
            time.sleep(0.2)
            comm.send(torch.zeros(1), 0)
        comm.barrier()

    began = time.perf_counter()
    with pytest.raises(DeadlockError, match="rank 0 finished and will send no more"):
        launch(worker, 4, timeout=30)
    assert time.perf_counter() - began < 10


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- children, and what is printed -----------------------------------------------------------------
def of_its_own(comm):
    return subprocess.Popen(["sleep", "60"], start_new_session=True).pid


def left_by_a_shell(comm):
    start = "setsid sleep 60 >/dev/null 2>&1 & echo $!"
    return int(subprocess.run(["sh", "-c", start], capture_output=True, check=True).stdout)


@pytest.mark.parametrize("worker", [of_its_own, left_by_a_shell])
def test_a_child_in_a_session_of_its_own_ends_with_the_run(worker):
    for pid in launch(worker, 2).results:
        until = time.monotonic() + 20
        while time.monotonic() < until and alive(pid):
            time.sleep(0.02)
        assert not alive(pid)


def test_a_worker_that_prints_for_ever_ends_when_its_time_is_up(capsys, monkeypatch):
    def patient(sources, timeout):  # so that there is always more to take in
        return ready(sources, max(timeout, 0.1))

    def worker(comm):
        began = time.perf_counter()
        while time.perf_counter() - began < 9:
            print("again and again " * 20)

    launch(lambda comm: None, 1)  # from here on what starts ranks is there
    ready = supervise.wait_for
    monkeypatch.setattr(supervise, "wait_for", patient)
    monkeypatch.setattr(supervise, "GRACE", 0.3)
    began = time.perf_counter()
    with pytest.raises(RunTimeout):
        launch(worker, 2, timeout=0.8)
    assert time.perf_counter() - began < 6


@pytest.mark.sweep
def test_the_fork_servers_folder_goes_when_its_kernel_was_killed():
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # a short path: it holds a socket
        killed_and_swept(Path(place))


def killed_and_swept(tmp_path):
    """The fork server removes it, or the next launch where that was killed before."""
    script = """
        import os, dlviz
        from multiprocessing import forkserver
        print(len(dlviz.launch(lambda comm: None, 1).results), flush=True)
        os.kill(forkserver._forkserver._forkserver_pid, {signal})
        os.kill(os.getpid(), 9)
    """
    left = {}
    for number in (15, 9):  # 15 is blocked there
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        done = run_script(tmp_path, script.replace("{signal}", str(number)), env=environ)
        assert done.stdout == "1\n"
        left[number] = len([*tmp_path.glob("dlviz-*")])
    assert left == {15: 0, 9: 1}
    script = "import dlviz; dlviz.launch(lambda comm: None, 1)"
    done = run_script(tmp_path, script, env={**os.environ, "TMPDIR": str(tmp_path)})
    left = [each.name for each in tmp_path.iterdir() if each.is_dir()]
    assert not any(name.startswith(("dlviz-", "pymp-")) for name in left), (left, done.stderr)


@pytest.mark.sweep
def test_a_temporary_folder_with_a_long_name_is_no_hindrance(tmp_path):
    long = tmp_path / ("long" * 30)
    long.mkdir()
    script = "import dlviz; print(len(dlviz.launch(lambda comm: None, 1).results))"
    assert run_script(tmp_path, script, env={**os.environ, "TMPDIR": str(long)}).stdout == "1\n"


# -- interrupts ------------------------------------------------------------------------------------
INTERRUPTED = """
    import os, signal, sys, time
    import dlviz, dlviz.cluster.parent
    from dlviz.cluster.parent import launch as launching

    home = os.path.dirname(dlviz.cluster.parent.__file__)

    def worker(comm):
        comm.barrier()

    def handles():
        return sorted(os.listdir("/proc/self/fd"))

    dlviz.launch(worker, 2)
    before, at, seen = handles(), 0, 0

    def trace(frame, event, argument):
        global seen
        if not frame.f_code.co_filename.startswith(home):
            return None
        if event == "line":
            seen += 1
            if seen in (at, at + 3):
                signal.raise_signal(signal.SIGINT)
        return trace

    ended = {"interrupted": 0, "completed": 0}
    for at in range(1, 2000, STEP):
        seen = 0
        sys.settrace(trace)
        try:
            dlviz.launch(worker, 2)
            ended["completed"] += 1
        except KeyboardInterrupt:
            ended["interrupted"] += 1
        finally:
            sys.settrace(None)
        if seen < at:
            break
    time.sleep(0.2)
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        children = len(file.read().split())
    # How many lines a run takes depends on how often the launching side wakes up.
    print(ended["interrupted"] > 3, handles() == before, children <= 2)
    print(dlviz.launch(worker, 2).results)
"""


@pytest.mark.parametrize(
    "step",
    [pytest.param(97, id="some"), pytest.param(3, id="every third", marks=pytest.mark.sweep)],
)
def test_an_interrupt_at_any_line_of_the_launching_side_and_one_more_leave_nothing(tmp_path, step):
    script = INTERRUPTED.replace("STEP", str(step))
    done = run_script(tmp_path, script, timeout=600)  # of up to 667 runs
    assert done.stdout.splitlines() == ["True True True", "[None, None]"], done.stderr


def test_an_interrupt_at_any_line_of_finding_main_leaves_its_lock_free():
    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(os.path.dirname(start.__file__)):
            return None
        left -= event == "line"
        if event == "line" and not left:
            signal.raise_signal(signal.SIGINT)
        return trace

    for at in range(1, 100):
        left, before = at, sys.gettrace()
        sys.settrace(trace)
        try:
            start.program()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert not start._lock.locked(), at
        if left > 0:
            break
    assert 3 < at < 99
