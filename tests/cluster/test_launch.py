"""launch: what it takes and refuses, where it may be called from, what reaches the ranks."""

from __future__ import annotations

import importlib
import io
import linecache
import math
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
import torch

import dlviz
from dlviz import RankError, RunTimeout, launch
from dlviz.cluster.parent import arguments, start
from dlviz.machine import classroom


def rank(comm):
    return comm.rank


def run_script(folder, source, *flags, stdin=False, **options):
    """Run a script in a process of its own; returns what it printed."""
    source = textwrap.dedent(source)
    (folder / "script.py").write_text(source)
    command = [sys.executable, *(flags or ("-",) if stdin else flags or ("script.py",))]
    done = subprocess.run(
        command,
        input=source if stdin else None,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=60,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- what a run gives ------------------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [1, 2, 7, np.int64(3)])
def test_a_run_gives_results_output_trace_and_seconds(ranks):
    def worker(comm, factor, *, offset):
        print("rank", comm.rank, "of", comm.size)
        t = torch.ones(1)
        comm.all_reduce(t)
        return comm.rank * factor + offset + float(t)

    began = time.perf_counter()
    run = launch(worker, ranks, args=(10,), kwargs={"offset": 0.5})
    assert run.results == [r * 10 + 0.5 + ranks for r in range(ranks)]
    assert run.output == [f"rank {r} of {ranks}\n" for r in range(ranks)]
    assert 0 < run.seconds < time.perf_counter() - began
    assert run.trace.meta["outcome"] == "completed" and run.trace.meta["ranks"] == ranks
    assert f"Run({ranks} ranks" in repr(run)
    run.trace.validate()


def test_every_run_has_fresh_ranks():
    def worker(comm):
        sys.dlviz_seen = getattr(sys, "dlviz_seen", 0) + 1
        return sys.dlviz_seen, os.getpid()

    first, second = launch(worker, 2).results, launch(worker, 2).results
    assert [seen for seen, _ in first + second] == [1] * 4
    assert len({pid for _, pid in first + second}) == 4


def test_what_students_call_is_loaded_before_ranks_start():
    called = (
        "dlviz.collectives.ring", "dlviz.federated.rounds", "dlviz.grading.harness.check",
        "dlviz.metrics",
        "dlviz.parallel.data.ddp", "dlviz.parallel.hybrid", "dlviz.parallel.pipeline.trainer",
        "dlviz.parallel.tensor.linear", "dlviz.viz",
    )  # fmt: skip

    def worker(comm):
        before = {*sys.modules}
        for name in called:
            importlib.import_module(name)
        return sorted({*sys.modules} - before)

    assert launch(worker, 1).results == [[]]


def test_what_ranks_are_forked_from_lies_in_huge_pages():
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if release < (6, 1) or not setting.exists() or "[never]" in setting.read_text():
        pytest.skip("this system has no huge pages")
    launch(rank, 1)
    pid = forkserver._forkserver._forkserver_pid
    pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
    assert int(re.findall(r"AnonHugePages: +(\d+) kB", pages)[0]) > 0


def test_any_callable_may_be_a_worker():
    class Model:
        def __init__(self):
            self.scale = 3

        def train(self, comm):
            return comm.rank * self.scale

        def __call__(self, comm, more):
            return comm.rank + more

    assert launch(Model().train, 2).results == [0, 3]
    assert launch(partial(Model(), more=5), 2).results == [5, 6]
    assert launch(rank, 2, timeout=math.inf, args=[]).results == [0, 1]


def test_a_worker_of_a_module_is_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def worker(comm):\n    return __name__, comm.rank\n")
    monkeypatch.syspath_prepend(tmp_path)  # after dlviz was imported
    import mine

    try:
        assert launch(mine.worker, 2).results == [("mine", 0), ("mine", 1)]
    finally:
        del sys.modules["mine"]


def test_environment_and_folder_of_the_moment_reach_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("NEW", "1")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth9")  # no such thing: ranks talk on loopback
    monkeypatch.chdir(tmp_path)

    def worker(comm):
        comm.barrier()
        return os.environ.get("NEW"), os.environ.get("HOME"), os.getcwd()

    assert launch(worker, 2).results == [("1", None, str(tmp_path))] * 2


def test_environment_is_there_when_the_workers_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "early.py").write_text("import os\nSEEN = os.environ.get('EARLY')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EARLY", "yes")

    def worker(comm):
        import early

        return early.SEEN

    assert launch(worker, 1).results == ["yes"]


def test_ranks_listen_on_loopback_alone():
    def worker(comm):
        comm.split(0).barrier()  # a group of its own listens too
        inodes = set()
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the one that lists the folder
                inodes.add(os.readlink(f"/proc/self/fd/{fd}")[len("socket:[") : -1])
        found = []
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes and fields[3] in ("0A", "07"):  # LISTEN, bound UDP
                    found.append(fields[1].partition(":")[0])
        comm.barrier()
        return found

    loopback = {"0100007F", "00000000000000000000000001000000"}
    for found in launch(worker, 3).results:
        assert found and set(found) <= loopback


def test_a_rank_reads_nothing_from_the_keyboard():
    with pytest.raises(RankError, match="EOFError"):
        launch(lambda comm: input(), 1)


def test_a_message_that_nobody_takes_is_warned_of_at_the_line_that_launched():
    def worker(comm):
        if comm.rank == 0:
            comm.isend(torch.zeros(1), 1)

    with pytest.warns(RuntimeWarning, match="rank 0 sent rank 1 a message that it never") as caught:
        run = launch(worker, 2)
    assert caught[0].filename == __file__
    assert run.trace.meta["outcome"] == "unreceived"
    run.trace.validate()


# -- where it is called from -----------------------------------------------------------------------
def test_launch_inside_a_rank_is_refused():
    def worker(comm):
        dlviz.launch(rank, 2)

    with pytest.raises(RankError, match="RuntimeError: launch was called inside a rank: a rank"):
        launch(worker, 2)


def test_two_runs_at_once_from_two_threads():
    def worker(comm, value):
        t = torch.tensor([float(value)])
        for _ in range(5):
            comm.barrier()
        comm.all_reduce(t)
        return float(t)

    runs = {}

    def call(value):
        runs[value] = launch(worker, 3, args=(value,)).results

    threads = [threading.Thread(target=call, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == {1: [3.0] * 3, 2: [6.0] * 3}


def test_a_failing_run_does_not_disturb_another_one():
    def worker(comm, wrong):
        time.sleep(0.2)
        if wrong:
            os._exit(1)
        comm.barrier()
        return "fine"

    failed = []

    def fail():
        try:
            launch(worker, 2, args=(True,))
        except RankError as error:
            failed.append(error)

    thread = threading.Thread(target=fail)
    thread.start()
    assert launch(worker, 2, args=(False,)).results == ["fine"] * 2
    thread.join()
    assert len(failed) == 1


def test_where_there_is_no_fork_server_ranks_are_spawned(monkeypatch):
    def worker(comm):
        t = torch.ones(1)
        comm.all_reduce(t)
        return float(t), type(multiprocessing.current_process()).__name__

    monkeypatch.setattr(start, "METHOD", "spawn")
    monkeypatch.setattr(start, "context", multiprocessing.get_context("spawn"))
    assert launch(worker, 2).results == [(2.0, "SpawnProcess")] * 2


def test_a_worker_in_a_notebook_cell_runs():
    source = "class Point:\n    x = 3\n\ndef worker(comm):\n    return Point(), helper(comm)\n"
    file = "/tmp/ipykernel_5/6.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"__name__": "__main__", "helper": lambda comm: comm.rank + offset, "offset": 5}
    offset = 10
    exec(compile(source, file, "exec"), space)
    try:
        results = launch(space["worker"], 2).results
    finally:
        del linecache.cache[file]
    assert [value for _, value in results] == [10, 11]
    assert all(type(point) is space["Point"] for point, _ in results)


SCRIPT = """
    import multiprocessing
    import dlviz

    class Point:
        def __init__(self, x):
            self.x = x

    def plus_one(queue):
        queue.put(Point(queue.get().x + 1))

    def worker(comm):
        if comm.rank:
            return Point(comm.rank)
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.Queue()
        queue.put(Point(6))
        other = spawn.Process(target=plus_one, args=(queue,))
        other.start()
        other.join()
        return queue.get()

    print("once")
    points = dlviz.launch(worker, 2, timeout=300).results  # it loads torch once more
    print([point.x for point in points], all(isinstance(point, Point) for point in points))
"""
CELL = """
class Net(torch.nn.Linear):
    pass

def double(x):
    return 2 * x

class Other:
    lock = threading.Lock()
"""


def test_what_a_cell_defines_is_found_by_pickle_in_a_rank(monkeypatch):
    main = vars(sys.modules["__main__"])
    names = {"__name__": "__main__", "torch": torch, "threading": threading}
    exec(compile(CELL, "/tmp/ipykernel_5/7.py", "exec"), names)
    for name in ("Net", "double", "Other"):
        monkeypatch.setitem(main, name, names[name])
    double = names["double"]

    def worker(comm, model, saved):
        again = io.BytesIO()
        torch.save(model, again)  # its class came with it
        again.seek(0)
        same = type(torch.load(again, weights_only=False)) is type(model)
        asked_for = torch.load(io.BytesIO(saved), weights_only=False)  # of a class not named here
        known = pickle.loads(pickle.dumps(double)) is double
        said = []
        for name in (b"Nut", b"Other"):
            with pytest.raises((AttributeError, pickle.PicklingError)) as caught:
                pickle.loads(b"c__main__\n" + name + b"\n.")
            said.append(str(caught.value))
        return same, type(asked_for), known, said

    saved = io.BytesIO()
    torch.save(names["Net"](2, 2), saved)
    run = launch(worker, 1, args=(names["Net"](2, 2), saved.getvalue()))
    ((same, kind, known, said),) = run.results
    assert same and known and kind is names["Net"]
    assert "Nut" in said[0]
    assert said[1].startswith("__main__.Other cannot be sent to a rank (")
    assert said[1].endswith("or save and load a state_dict.")


@pytest.mark.parametrize(
    "way", ["file", *(pytest.param(way, marks=pytest.mark.sweep) for way in ("stdin", "-m"))]
)
def test_a_script_needs_no_main_guard(way, tmp_path):
    flags = ("-m", "script") if way == "-m" else ()
    printed = run_script(tmp_path, SCRIPT, *flags, stdin=way == "stdin")
    assert printed == "once\n[7, 1] True\n"


def test_a_program_without_a_console_can_launch(tmp_path):
    script = """
        import os, sys
        os.close(0), os.close(1), os.close(2)
        os.execv(sys.executable, [sys.executable, "inner.py"])
    """
    (tmp_path / "inner.py").write_text(
        "import dlviz\n"
        "run = dlviz.launch(lambda comm: print('hi', comm.rank), 2)\n"
        "open('said', 'w').write(repr(run.output))\n"
    )
    run_script(tmp_path, script)
    assert (tmp_path / "said").read_text() == "['hi 0\\n', 'hi 1\\n']"


def launch_and_tell(queue):
    try:
        queue.put(launch(rank, 2).results)
    except Exception as error:
        queue.put(str(error))


def test_a_process_forked_after_the_import_can_launch():
    context = multiprocessing.get_context("fork")
    for daemon in (False, True):
        queue = context.SimpleQueue()
        process = context.Process(target=launch_and_tell, args=(queue,), daemon=daemon)
        process.start()
        told = queue.get()
        process.join()
        if daemon:
            assert "launch was called in a daemonic process, such as a Pool's" in told
        else:
            assert told == [0, 1]


# -- what it refuses -------------------------------------------------------------------------------
@pytest.fixture
def nothing_starts(monkeypatch):
    """Fails the test that starts a process."""

    def refuse(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(start.context, "Process", refuse)


@pytest.mark.parametrize(
    "options, kind, words",
    [
        ({"ranks": 0}, ValueError, "ranks=0 is no number of ranks: use a whole number from 1 up."),
        ({"ranks": -1}, ValueError, "ranks=-1 is no number of ranks"),
        ({"ranks": 2.5}, ValueError, "ranks=2.5 is no number of ranks"),
        ({"ranks": True}, ValueError, "ranks=True is no number of ranks"),
        ({"ranks": "4"}, ValueError, "ranks='4' is no number of ranks"),
        ({"ranks": None}, ValueError, "ranks=None is no number of ranks"),
        ({"ranks": 10**5}, ValueError, "ranks=100000 are more than this machine can hold"),
        ({"timeout": 0}, ValueError, "timeout=0 is no time to wait: use a number of seconds above"),
        ({"timeout": -1}, ValueError, "timeout=-1 is no time to wait"),
        ({"timeout": math.nan}, ValueError, "timeout=nan is no time to wait"),
        ({"timeout": "x"}, ValueError, "timeout='x' is no time to wait"),
        ({"timeout": None}, ValueError, "timeout=None is no time to wait"),
        ({"timeout": True}, ValueError, "timeout=True is no time to wait"),
        (
            {"machine": classroom(3)},
            ValueError,
            "machine has 3 ranks and the run has ranks=2: make the two the same.",
        ),
        (
            {"machine": "classroom"},
            ValueError,
            "machine='classroom' is no Machine: use dlviz.machine.classroom(2), or None.",
        ),
        ({"device": "tpu"}, ValueError, "device='tpu' is not known: use 'auto', 'cpu' or 'cuda'."),
        ({"device": None}, ValueError, "device=None is not known"),
        ({"worker": 5}, TypeError, "worker=5 cannot be called: give a function whose first"),
        ({"args": 5}, TypeError, "args=5 is no tuple: write args=(5,), say."),
        ({"args": "ab"}, TypeError, "args='ab' is no tuple: write args=('ab',), say."),
        ({"kwargs": [1]}, TypeError, "kwargs=[1] is no dict of names"),
        (
            {"args": (1,)},
            TypeError,
            "the worker rank(comm) cannot be called with (comm, 1), as every rank does "
            "(too many positional arguments): let it take the Comm first, then args and kwargs.",
        ),
        ({"kwargs": {"lr": 1}}, TypeError, "cannot be called with (comm, lr=...)"),
        ({"worker": lambda: 0}, TypeError, "the worker <lambda>() cannot be called with (comm)"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_what_cannot_be_used_is_refused_in_one_sentence(options, kind, words):
    with pytest.raises(kind) as caught:
        launch(**{"worker": rank, "ranks": 2, **options})
    text = str(caught.value)
    assert words in text and "\n" not in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.usefixtures("nothing_starts")
def test_a_gpu_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(ValueError, match="device='cuda' is not available here: torch finds no GPU"):
        launch(rank, 2, device="cuda")


LOCK = threading.Lock()


def helper():
    return LOCK


@pytest.mark.usefixtures("nothing_starts")
def test_a_worker_that_cannot_be_sent_is_told_with_what_it_uses(tmp_path):
    lock, numbers = threading.Lock(), (i for i in range(3))

    def closes_over_a_lock(comm):
        return lock

    def closes_over_a_generator(comm):
        return numbers

    def calls_a_helper(comm):
        return helper()

    with open(tmp_path / "log", "w") as log:

        def closes_over_a_file(comm):
            log.write("x")

        for worker, uses in (
            (closes_over_a_lock, "lock, a lock, cannot be sent to the ranks (cannot pickle"),
            (closes_over_a_generator, "numbers, a generator, cannot be sent to the ranks"),
            (closes_over_a_file, "log, a TextIOWrapper, cannot be sent to the ranks"),
            (calls_a_helper, "LOCK, a lock, cannot be sent to the ranks"),
        ):
            with pytest.raises(TypeError) as caught:
                launch(worker, 2)
            text = str(caught.value)
            assert f"the worker {worker.__name__}, which uses {uses}" in text and "\n" not in text


@pytest.mark.parametrize(
    "options, words",
    [
        ({"args": (1, threading.Lock())}, "args[1], a lock, cannot be sent to the ranks (cannot"),
        ({"kwargs": {"data": iter([1]).__iter__}, "args": (2,)}, None),
        ({"kwargs": {"b": (i for i in ())}, "args": (2,)}, "b, a generator, cannot be sent"),
    ],
)
def test_arguments_that_cannot_be_sent_are_named(options, words):
    def worker(comm, a, b=None, data=None):
        return a

    if words is None:
        assert launch(worker, 1, **options).results == [2]
        return
    with pytest.raises(TypeError) as caught:
        launch(worker, 2, **options)
    assert words in str(caught.value)


def test_arguments_that_cannot_be_read_by_the_ranks_are_an_error_of_a_rank():
    class Poison:
        def __reduce__(self):
            return eval, ("1 / 0",)

    def worker(comm, poison):
        return 1

    with pytest.raises(RankError, match="ZeroDivisionError"):
        launch(worker, 2, args=(Poison(),))


def test_a_system_without_room_for_processes_says_so(monkeypatch):
    kind = type(start.context.Process())
    start_one = kind.start
    started = []

    def start_process(process):
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start_one(process)
        started.append(process)

    monkeypatch.setattr(kind, "start", start_process)
    with pytest.raises(RankError, match="rank 1 could not be started .*use fewer ranks") as caught:
        launch(rank, 2)
    assert caught.value.rank == 1 and len(started) == 1


def test_the_timeout_covers_the_whole_run():
    began = time.perf_counter()
    with pytest.raises(RunTimeout):
        launch(lambda comm: time.sleep(60), 2, timeout=0.5)
    assert time.perf_counter() - began < 30


def test_of_the_ranks_of_several_hosts_a_host_has_to_hold_its_own_alone(monkeypatch):
    monkeypatch.setattr(arguments, "most_ranks", lambda: 32)
    wanted = (lambda comm: None, 256, None, "auto", 60.0, (), {})
    with pytest.raises(ValueError, match="ranks=256 are more than this machine can hold"):
        arguments.check(*wanted)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a-run")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "32")
    arguments.check(*wanted)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    with pytest.raises(ValueError, match="ranks=64 are more than this machine can hold"):
        arguments.check(*wanted)
