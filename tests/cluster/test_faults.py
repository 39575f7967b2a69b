"""Whatever happens to a rank, `launch` says what it was, leaves nothing behind, and works again."""

from __future__ import annotations

import ctypes
import linecache
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import out_of_time
import pytest
import torch
import torch.distributed as dist
from torch import nn

import dlviz
from dlviz import DeadlockError, RankError, RunTimeout, launch
from dlviz.cluster.control.board import PID, WAITING
from dlviz.cluster.rank import ControlChannel, Failure
from dlviz.cluster.stuck.verdict import origin
from dlviz.collectives import all_reduce
from dlviz.machine import classroom
from dlviz.parallel.data.ddp import DDP

FOREVER = 10**12
SOON = 10.0  # s within which a deadlock is to be named, on a busy machine too: some 0.3 s else
LONG = 1.5  # s in which a false alarm would come: five times as long as a deadlock takes


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The fork server has loaded torch, so that times are those of a run."""
    launch(lambda comm: None, 1)


def failure(kind, worker, ranks=2, **options):
    """The error that the run ends with, whose trace holds, after which the next run works."""
    with pytest.raises(kind) as caught:
        launch(worker, ranks, **options)
    error = caught.value
    assert type(error) is kind and len(error.output) == ranks
    error.trace.validate()
    assert error.trace.meta["outcome"] == "failed"
    told(error)
    assert launch(lambda comm: comm.rank, 2).results == [0, 1]
    return error


def unfinished(spans):
    return spans[[bool((fields or {}).get("unfinished")) for fields in spans.fields]]


def told(error):
    """What the error's trace says of the failure: the sentence, after the rest was held against the
    error and against the spans that never ended."""
    failure, spans = error.trace.meta["failure"], error.trace.spans
    sentence = failure["message"]
    assert sentence == sentence.strip() and sentence[0].isupper() and sentence[-1] in ".…"
    assert "\n" not in sentence
    assert failure["cycle"] == (error.cycle or [])
    assert [tuple(wait.values())[:4] for wait in failure["waits"]] == [
        (wait.rank, wait.lane, wait.op, wait.peer) for wait in error.waits or []
    ]
    assert len({*unfinished(spans).end.tolist()}) <= 1
    for wait in failure["waits"]:
        own = spans[(spans.rank == wait["rank"]) & (spans.lane == wait["lane"])]
        if isinstance(error, DeadlockError):
            assert own.fields[-1]["unfinished"] and own.end[-1] == own.end.max()
            assert own.start[-1] - 1e-6 <= wait["since"] < own.end[-1]
    return sentence


def run_script(folder, source, *flags, stdin=False, **options):
    """Run a script in a process of its own; returns it with what it printed."""
    source = textwrap.dedent(source)
    (folder / "script.py").write_text(source)
    return subprocess.run(
        [sys.executable, *flags, "-" if stdin else "script.py"],
        input=source if stdin else None,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=60,
        **options,
    )


def line_of(worker, text):
    """file:line of the line of `worker` that holds `text`."""
    code = worker.__code__
    for number in range(code.co_firstlineno, code.co_firstlineno + 40):
        if text in linecache.getline(code.co_filename, number):
            return f"{code.co_filename}:{number}"
    raise AssertionError(text)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


# -- a rank raises or dies -----------------------------------------------------------------------
def test_a_rank_that_raises_is_named_with_its_traceback():
    def worker(comm):
        print("before")
        comm.barrier()
        if comm.rank == 1:
            {}["missing"]  # the culprit
        comm.barrier()

    error = failure(RankError, worker, 3)
    assert error.rank == 1 and error.exitcode is None and error.cycle is None
    assert str(error).startswith("rank 1 raised KeyError: 'missing'\n\nTraceback")
    assert told(error) == "Rank 1 raised KeyError: 'missing'."
    assert error.traceback in str(error)
    assert '{}["missing"]  # the culprit' in error.traceback
    assert "dlviz/cluster" not in error.traceback
    assert error.output == ["before\n"] * 3


def test_the_traceback_holds_the_lines_of_a_cell():
    source = "def worker(comm):\n    wrong = 1 / (comm.rank - 1)\n"
    file = "/tmp/ipykernel_1/2.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), space)
    try:
        error = failure(RankError, space["worker"])
    finally:
        del linecache.cache[file]
    assert "  cell, line 2, in worker\n    wrong = 1 / (comm.rank - 1)\n" in error.traceback
    assert "ZeroDivisionError: division by zero" in str(error)


def test_an_exception_that_cannot_tell_its_text_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def worker(comm):
        raise Mute

    assert "Mute: <exception str() failed>" in str(failure(RankError, worker))


def test_of_several_failures_the_first_that_tells_of_no_lost_peer_is_the_origin():
    early, late = Failure("ValueError", "", False, when=5), Failure("KeyError", "", False, when=7)
    lost, later = Failure("PeerLost", "", True, when=3), Failure("PeerLost", "", True, when=4)
    assert origin({0: late, 1: lost, 2: early, 3: later}) == (2, early)
    assert origin({0: later, 1: lost}) == (1, lost)


@pytest.mark.parametrize(
    "how, exitcode, words",
    [
        (lambda: os._exit(3), 3, "rank 1 exited with code 3 before its worker returned"),
        (lambda: os._exit(0), 0, "rank 1 exited with code 0 before its worker returned"),
        (lambda: sys.exit(3), 3, "rank 1 raised SystemExit: 3"),
        (lambda: sys.exit("no data"), 1, "rank 1 raised SystemExit: no data"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -9, "was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), -15, "was killed by SIGTERM"),
        (lambda: os.kill(os.getpid(), 40), -40, "was killed by signal 40"),
    ],
)
def test_a_rank_that_leaves_is_named_with_its_exit_code_though_others_wait_for_it(
    how, exitcode, words
):
    def worker(comm):
        if comm.rank == 1:
            board = comm.process.board
            while not (board.get(0, WAITING) and board.get(2, WAITING)):
                time.sleep(0.01)
            how()
        comm.recv(torch.zeros(1), src=1)

    error = failure(RankError, worker, 3)
    assert (error.rank, error.exitcode) == (1, exitcode)
    assert words in str(error)
    assert {(wait.rank, wait.op, wait.peer) for wait in error.waits} == {
        (0, "recv", 1),
        (2, "recv", 1),
    }


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_rank_that_is_killed_in_a_collective_of_an_axis_is_named_with_the_axis(by_hand):
    """Rank 5 waits until the two others of its tp group are in the all-reduce, and kills one."""

    def worker(comm):
        mesh, tensor = comm.mesh(dp=2, tp=3), torch.zeros(6)
        board, token = comm.process.board, torch.zeros(1)
        if comm.rank == 5:
            mesh.tp.recv(token, 0), mesh.tp.recv(token, 1)
            while not (board.get(3, WAITING) and board.get(4, WAITING)):
                time.sleep(0.01)
            os.kill(board.get(4, PID), signal.SIGKILL)
            time.sleep(20)
        if comm.rank in (3, 4):
            mesh.tp.isend(token, 2)
        if by_hand:
            all_reduce(mesh.tp, tensor)
        else:
            mesh.tp.all_reduce(tensor)

    error = failure(RankError, worker, 6)
    assert (error.rank, error.exitcode) == (4, -signal.SIGKILL)
    first, *lines = str(error).splitlines()
    assert first.startswith("rank 4 was killed by SIGKILL before its worker returned")
    where = "message 0, group" if by_hand else "call 0 of group"
    (line,) = (each for each in lines if "tp (3" in each)  # others may still be in `mesh`
    assert line.startswith("  rank 3 waits in ") and f"({where} tp (3, 4, 5), shape " in line


@pytest.mark.filterwarnings("ignore:.*fork")
def test_who_waits_for_a_lane_of_its_own_on_a_paced_run_misses_no_rank_that_dies():
    def worker(comm):
        lane, token = comm.lane("side"), torch.zeros(1)
        if comm.rank == 0:
            lane.submit(lambda comm: comm.recv(token, src=2)).wait()
        while comm.rank == 1 and comm.process.board.get(0, WAITING) < 2:
            time.sleep(0.01)
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    error = failure(RankError, worker, 3, machine=classroom(3))
    assert {(wait.lane, wait.group) for wait in error.waits} == {
        ("compute", "world"), ("side", "world.side"),
    }  # fmt: skip
    assert "rank 0 waits in" not in str(error)


def test_a_rank_that_dies_is_named_though_a_child_of_it_keeps_its_connections():
    def worker(comm):
        if comm.rank == 1:
            if os.fork() == 0:
                time.sleep(60)
            os._exit(3)
        comm.recv(torch.zeros(1), src=1)

    error = failure(RankError, worker)
    assert (error.rank, error.exitcode) == (1, 3)


def test_a_crash_is_told_with_the_line_it_happened_at():
    def worker(comm):
        if comm.rank == 0:
            ctypes.string_at(0)  # a segmentation fault
        comm.barrier()

    error = failure(RankError, worker)
    assert (error.rank, error.exitcode) == (0, -signal.SIGSEGV)
    assert "killed by SIGSEGV" in str(error) and "# a segmentation fault" in error.traceback
    assert told(error) == "Rank 0 was killed by SIGSEGV before its worker returned."


def test_a_rank_that_dies_after_its_worker_returned_ends_the_run():
    def worker(comm):
        if comm.rank == 1:
            send = ControlChannel.send

            def send_and_exit(self, *message):
                send(self, *message)
                if message[0] == "done":
                    os._exit(5)

            ControlChannel.send = send_and_exit
            return
        time.sleep(20)

    error = failure(RankError, worker)
    assert (error.rank, error.exitcode) == (1, 5)
    assert "after its worker had returned" in str(error)


def lose_connections():
    """Close this process's connections to the other ranks, which see it as its death."""
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if connection.family in (socket.AF_INET, socket.AF_INET6) and not listens:
                    connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def through_comm(comm):
    comm.recv(torch.zeros(1), src=1)


def through_torch(comm):
    dist.recv(torch.zeros(1), src=1)


def wrapped(comm):
    try:
        comm.barrier()
    except ConnectionError as error:
        raise ValueError("step 3 failed") from error


@pytest.mark.parametrize("talk", [through_comm, through_torch, wrapped])
def test_what_the_others_say_of_a_dead_rank_never_hides_it(talk):
    def worker(comm):
        if comm.rank == 1:
            lose_connections()  # the others fail long before this rank is seen to die
            time.sleep(0.3)
            os._exit(7)
        talk(comm)

    error = failure(RankError, worker, 3)
    assert (error.rank, error.exitcode) == (1, 7)


def test_where_nobody_died_the_lost_connection_is_the_news(monkeypatch, tmp_path):
    monkeypatch.setenv("DLVIZ_TRANSPORT", "gloo")
    lost = tmp_path / "lost"

    def worker(comm):
        if comm.rank == 1:
            comm.isend(torch.zeros(2000), 0)
            lose_connections()
            lost.touch()
            time.sleep(20)
        while not lost.exists():
            time.sleep(0.01)
        comm.recv(torch.zeros(2000), src=1)

    error = failure(RankError, worker)
    assert error.rank == 0 and "rank 0 lost rank 1" in str(error)


def test_an_error_in_a_lane_is_raised_where_the_lane_is_waited_for():
    def worker(comm):
        lane = comm.lane("comm")
        lane.submit(lambda comm: [][comm.rank]).wait()

    assert "IndexError: list index out of range" in str(failure(RankError, worker))


def test_an_error_in_a_lane_that_nobody_waits_for_ends_the_run():
    def worker(comm):
        comm.lane("comm").submit(lambda comm: [][comm.rank])
        return "fine"

    assert "IndexError: list index out of range" in str(failure(RankError, worker))


def test_an_error_in_a_lane_that_was_seen_to_is_over():
    def worker(comm):
        try:
            comm.lane("comm").submit(lambda comm: [][comm.rank]).wait()
        except IndexError:
            return "fine"

    assert launch(worker, 2).results == ["fine", "fine"]


# -- results ---------------------------------------------------------------------------------------
class Poison:
    """Can be pickled; cannot be unpickled."""

    def __reduce__(self):
        return eval, ("1 / 0",)


@pytest.mark.parametrize(
    "make, words",
    [
        (threading.Lock, "rank 0 returned a lock that cannot be sent back (cannot pickle"),
        (lambda: (i for i in [1]), "rank 0 returned a generator that cannot be sent back"),
        (
            Poison,
            "rank 0 returned something that cannot be read back here (ZeroDivisionError: division",
        ),
    ],
)
def test_a_result_that_cannot_be_sent_is_said_to_be_so(make, words):
    error = failure(RankError, lambda comm: make() if comm.rank == 0 else 1)
    assert error.rank == 0 and words in str(error)


def test_a_large_result_and_one_that_needs_a_gradient_come_back():
    def worker(comm):
        weights = torch.ones(2**20, requires_grad=True)
        return weights.detach(), (weights[:2] * 3).sum()

    for whole, loss in launch(worker, 2).results:
        assert whole.sum() == 2**20 and float(loss.detach()) == 6


# -- out of memory ---------------------------------------------------------------------------------
def lower_memory_limit(more):
    with open("/proc/self/statm") as pages:
        used = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


def test_a_tensor_too_large_is_an_error_of_its_rank():
    def worker(comm):
        if comm.rank == 1:
            lower_memory_limit(50 * 2**20)
            torch.ones(100 * 2**20)
        comm.barrier()

    error = failure(RankError, worker)
    assert error.rank == 1 and "can't allocate memory" in str(error)


def test_memory_filled_bit_by_bit_is_an_error_of_its_rank():
    def worker(comm):
        if comm.rank == 1:
            lower_memory_limit(20 * 2**20)
            comm.kept = None  # outlives the error
            while True:
                comm.kept = [comm.kept, bytes(400)]
        comm.barrier()

    error = failure(RankError, worker)
    assert error.rank == 1 and "MemoryError" in str(error)


# -- deadlocks -----------------------------------------------------------------------------------
def deadlock(worker, ranks=2, **options):
    """The DeadlockError, which came in time."""
    with pytest.raises(DeadlockError) as caught:
        launch(worker, ranks, **{"timeout": 30, **options})
    error = caught.value
    last = max(wait.since for wait in error.waits)
    assert (time.perf_counter_ns() - last) * 1e-9 < SOON
    for wait in error.waits:
        assert wait.where in str(error) or wait.op == "lane"
    error.trace.validate()
    told(error)
    assert launch(lambda comm: comm.rank, 2).results == [0, 1]
    return error


def waits(error):
    return [(wait.rank, wait.op, wait.peer) for wait in error.waits]


def test_all_receive_and_none_sends():
    def worker(comm):
        comm.recv(torch.zeros(3, 2), src=(comm.rank + 1) % comm.size, tag=6)

    error = deadlock(worker, 3, timeout=600)
    assert waits(error) == [(0, "recv", 1), (1, "recv", 2), (2, "recv", 0)]
    assert error.cycle == [0, 1, 2] and error.rank is None
    assert told(error) == (
        "Deadlock: rank 0 waits for rank 1, which waits for rank 2, which waits for rank 0."
    )
    assert {(wait.tag, wait.shape, wait.dtype) for wait in error.waits} == {(6, (3, 2), "float32")}
    assert {wait.where for wait in error.waits} == {line_of(worker, "comm.recv")}
    assert "cycle: rank 0 waits for rank 1 waits for rank 2 waits for rank 0" in str(error)
    assert "rank 1 waits in recv from rank 2 (message 0, tag 6, shape (3, 2) float32), for" in str(
        error
    )


def test_all_receive_from_anybody_and_none_sends():
    error = deadlock(lambda comm: comm.recv(torch.zeros(1)), 3)
    assert waits(error) == [(rank, "recv", None) for rank in range(3)]
    assert error.cycle is None and "rank 2 waits in recv from any rank" in str(error)
    assert told(error) == "Deadlock: ranks 0, 1 and 2 wait for each other."


def test_a_receive_from_listed_ranks_none_of_which_sends():
    def worker(comm):
        if comm.rank == 0:
            comm.recv(torch.zeros(1), [1, 2])
        elif comm.rank < 3:
            comm.recv(torch.zeros(1), 0)

    error = deadlock(worker, 4)
    assert "rank 0 waits in recv from rank 1 or 2 (shape (1,) float32)" in str(error)


def test_two_ranks_that_send_and_receive_in_crossed_order():
    def worker(comm):
        t = torch.zeros(1)
        comm.sendrecv(t, 1 - comm.rank, t.clone(), 1 - comm.rank)
        comm.send(t, 1 - comm.rank, tag=1)
        comm.recv(t, 1 - comm.rank, tag=1)

    error = deadlock(worker)
    assert waits(error) == [(0, "send", 1), (1, "send", 0)] and error.cycle == [0, 1]
    assert error.output == ["", ""] and len(error.trace.messages) == 4


def wraps(comm):
    if comm.rank == 0:
        DDP(nn.Linear(2, 2), comm)  # stuck


def goes_forward(comm):
    model = DDP(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), comm)
    if comm.rank == 0:
        model(torch.ones(4, 2))  # stuck: rank 0's buffers are broadcast


def goes_backward(comm):
    model = DDP(nn.Linear(2, 2), comm)
    if comm.rank == 0:
        loss = model(torch.ones(4, 2)).sum()
        loss.backward()  # stuck: on the communication lane


@pytest.mark.parametrize("worker", [wraps, goes_forward, goes_backward])
def test_the_line_of_a_wait_is_the_users_wherever_the_wait_is(worker):
    """In dlviz, in a generator of Python's, in a hook of torch's or on a lane."""
    error = deadlock(worker)
    line = line_of(worker, "# stuck")
    (where,) = {wait.where for wait in error.waits if wait.op != "lane"}
    assert where == line and f"at {line}" in str(error)
    assert {*unfinished(error.trace.spans).where.tolist()} == {line}


def test_what_ranks_do_not_agree_on_is_told_at_the_users_line():
    def worker(comm):
        all_reduce(comm, torch.zeros(3 + comm.rank))

    error = failure(RankError, worker)
    assert error.traceback.splitlines()[-2].strip().startswith("all_reduce(comm, torch.zeros(")


@pytest.mark.parametrize("by_hand", [True, False])
def test_axes_in_crossed_order_are_named_with_their_groups(by_hand):
    def worker(comm):
        mesh, tensor = comm.mesh(dp=2, tp=2), torch.zeros(6)
        first, second = (mesh.dp, mesh.tp) if comm.rank in (0, 3) else (mesh.tp, mesh.dp)
        for axis in (first, second):
            if by_hand:
                all_reduce(axis, tensor)
            else:
                axis.all_reduce(tensor)

    error = deadlock(worker, 4)
    op, where = ("irecv", "message 0, group") if by_hand else ("all_reduce", "call 0 of group")
    lines = str(error).splitlines()
    groups = ["dp (0, 2)", "tp (0, 1)", "tp (2, 3)", "dp (1, 3)"]
    for line, rank, group in zip(lines[1:5], range(4), groups, strict=True):
        assert line.startswith(f"  rank {rank} waits in {op}")
        assert f"({where} {group}, shape " in line
    assert [wait.group for wait in error.waits] == groups
    assert error.cycle == [0, 2, 3, 1]


def test_a_cycle_is_named_while_another_rank_computes_in_c():
    def worker(comm):
        if comm.rank == 1:
            sum(range(FOREVER))  # no other thread of this process runs meanwhile
        comm.recv(torch.zeros(1), src=2 - comm.rank)

    error = deadlock(worker, 3)
    assert waits(error) == [(0, "recv", 2), (2, "recv", 0)] and error.cycle == [0, 2]
    assert "deadlock: none of ranks 0 and 2 can go on" in str(error)


def test_a_cycle_is_named_though_a_rank_that_waits_in_a_lane_does_not_answer():
    def worker(comm):
        if comm.rank == 1:
            lane = comm.lane("comm")
            lane.submit(lambda comm: comm.recv(torch.zeros(1), src=0))
            while not comm.process.board.get(1, WAITING):
                time.sleep(0.01)
            sum(range(FOREVER))
        comm.lane("comm")
        comm.recv(torch.zeros(1), src=2 - comm.rank)

    error = deadlock(worker, 3)
    assert waits(error) == [(0, "recv", 2), (2, "recv", 0)] and error.cycle == [0, 2]


def test_a_receive_from_a_rank_that_finished():
    def worker(comm):
        if comm.rank == 0:
            comm.recv(torch.zeros(1), src=1)

    error = deadlock(worker)
    assert waits(error) == [(0, "recv", 1)] and error.cycle is None
    assert "rank 1 finished and will send no more" in str(error)
    assert told(error) == "Deadlock: rank 0 waits for ever, because rank 1 has finished."


def test_a_rank_that_skips_a_collective_and_finishes():
    def worker(comm):
        comm.all_reduce(torch.zeros(2))
        if comm.rank != 1:
            comm.all_reduce(torch.zeros(4))

    error = deadlock(worker, 3)
    assert waits(error) == [(0, "all_reduce", None), (2, "all_reduce", None)]
    assert {(wait.group, wait.sequence, wait.shape) for wait in error.waits} == {("world", 1, (4,))}
    assert "(rank 1 not in it)" in str(error) and "rank 1 finished" in str(error)
    assert told(error) == "Deadlock: ranks 0 and 2 wait for ever, because rank 1 has finished."


def test_a_rank_that_skips_a_collective_of_a_part_of_the_ranks():
    def worker(comm):
        part = comm.split(comm.rank // 2)
        if comm.rank != 3:
            part.barrier()
        else:
            comm.recv(torch.zeros(1), src=2)

    error = deadlock(worker, 4)
    assert waits(error) == [(2, "barrier", None), (3, "recv", 2)] and error.cycle == [2, 3]


def test_lanes_that_wait_for_each_other():
    def worker(comm):
        lane = comm.lane("comm")
        handle = lane.submit(lambda comm: comm.recv(torch.zeros(1), src=1 - comm.rank))
        handle.wait()

    error = deadlock(worker)
    assert waits(error) == [(0, "lane", None), (0, "recv", 1), (1, "lane", None), (1, "recv", 0)]
    assert [wait.lane for wait in error.waits] == ["compute", "comm"] * 2 and error.cycle == [0, 1]
    assert "rank 1 (lane comm) waits in recv from rank 0" in str(error)


def test_lanes_that_nobody_waits_for():
    def worker(comm):
        comm.lane("comm").submit(lambda comm: comm.recv(torch.zeros(1), src=1 - comm.rank))

    assert deadlock(worker).cycle == [0, 1]


def test_a_deadlock_is_seen_past_threads_of_libraries_that_have_nothing_to_do():
    def worker(comm):
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import get_context

        from tqdm import tqdm

        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()
        queue = get_context("fork").Queue()
        queue.put(1)
        for _ in tqdm(range(2), mininterval=0):
            pass
        comm.recv(torch.zeros(1), src=1 - comm.rank)

    assert deadlock(worker).cycle == [0, 1]


def test_a_deadlock_on_a_paced_run():
    def worker(comm):
        with comm.compute("forward", seconds=0.3):
            pass
        comm.recv(torch.zeros(1), src=1 - comm.rank)

    error = deadlock(worker, machine=classroom(2))
    assert error.cycle == [0, 1]
    assert set(error.trace.spans.kind) == {"forward", "recv"}  # the one it hangs in


def test_the_line_of_a_cell_is_shown_with_its_source():
    source = "def worker(comm):\n    t = comm.size\n    comm.recv(torch.zeros(t), 1 - comm.rank)\n"
    file = "/tmp/ipykernel_1/3.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"__name__": "__main__", "torch": torch}
    exec(compile(source, file, "exec"), space)
    with pytest.raises(DeadlockError) as caught:
        launch(space["worker"], 2)
    del linecache.cache[file]
    line = "at cell line 3: comm.recv(torch.zeros(t), 1 - comm.rank)"
    assert str(caught.value).count(line) == 2


# -- no false alarm ------------------------------------------------------------------------------
def test_ranks_that_compute_or_sleep_are_waited_for():
    def worker(comm):
        until = time.perf_counter() + LONG
        if comm.rank == 0:
            while time.perf_counter() < until:
                pass
        if comm.rank == 1:
            time.sleep(LONG)
        if comm.rank == 2:
            comm.recv(torch.zeros(1), src=0)
        if comm.rank == 3:
            comm.recv(torch.zeros(1))
        if comm.rank == 0:
            comm.send(torch.zeros(1), 2)
            comm.send(torch.zeros(1), 3)
        comm.barrier()
        return comm.rank

    assert launch(worker, 4).results == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:the run was up to")
def test_a_device_that_computes_is_waited_for():
    def worker(comm):
        t = torch.zeros(1)
        if comm.rank == 0:
            with comm.compute("forward", seconds=LONG):
                pass
            comm.send(t, 1)
        else:
            comm.recv(t, src=0)
        return comm.rank

    run = launch(worker, 2, machine=classroom(2))
    assert run.results == [0, 1] and run.seconds > LONG


@pytest.mark.filterwarnings("ignore:the run was up to")
@pytest.mark.parametrize("late", [0, 1], ids=["sender late", "receiver late"])
@pytest.mark.parametrize("machine", [None, classroom(2)], ids=["wall", "paced"])
def test_a_receive_that_stands_lets_its_sender_go_on(machine, late):
    def worker(comm):
        t, u = torch.zeros(1), torch.zeros(1)
        if comm.rank == late:
            time.sleep(0.1)
        if comm.rank == 0:
            comm.send(t + 1, 1, tag=1)
            comm.send(t + 2, 1, tag=2)
        else:
            first = comm.irecv(t, 0, tag=1)
            comm.recv(u, 0, tag=2)
            first.wait()
        return float(t), float(u)

    assert launch(worker, 2, machine=machine, timeout=20).results[1] == (1.0, 2.0)


@pytest.mark.parametrize("daemon", [True, False])
def test_a_thread_that_will_send_is_waited_for(daemon):
    def worker(comm):
        t = torch.full((1,), 7.0)
        if comm.rank == 0:
            thread = threading.Timer(0.8, comm.send, (t, 1))
            thread.daemon = daemon
            thread.start()
            if daemon:
                comm.recv(t.clone(), src=1)
        else:
            comm.recv(t.zero_(), src=0)
            if daemon:
                comm.send(t, 0)
        return float(t)

    assert launch(worker, 2).results == [7.0, 7.0]


def test_a_thread_pool_that_was_never_shut_down_does_not_hold_the_run():
    def worker(comm):
        from concurrent.futures import ThreadPoolExecutor

        comm.pool = ThreadPoolExecutor(2)
        return comm.pool.submit(pow, 2, 5).result()

    assert launch(worker, 2).results == [32, 32]


def test_more_messages_than_the_board_holds_come_in_any_order():
    def worker(comm):
        count = 600
        if comm.rank == 0:
            requests = [comm.isend(torch.tensor([float(i)]), 1, tag=i) for i in range(count)]
            for request in requests:
                request.wait()
            return []
        found = torch.zeros(count)
        for i in reversed(range(count)):
            comm.recv(found[i : i + 1], src=0, tag=i)
        return found.tolist()

    assert launch(worker, 2).results[1] == list(range(600))


# -- collectives and messages that do not match ----------------------------------------------------
@pytest.mark.parametrize(
    "one, other, words",
    [
        (
            lambda comm: comm.all_reduce(torch.zeros(4)),
            lambda comm: comm.barrier(),
            ["all_reduce of shape (4,) float32", "barrier"],
        ),
        (
            lambda comm: comm.all_reduce(torch.zeros(4)),
            lambda comm: comm.all_reduce(torch.zeros(2, 2)),
            ["all_reduce of shape (4,) float32", "all_reduce of shape (2, 2) float32"],
        ),
        (
            lambda comm: comm.all_reduce(torch.zeros(4)),
            lambda comm: comm.all_reduce(torch.zeros(4, dtype=torch.int64)),
            ["all_reduce of shape (4,) float32", "all_reduce of shape (4,) int64"],
        ),
        (
            lambda comm: comm.broadcast(torch.zeros(4), 0),
            lambda comm: comm.broadcast(torch.zeros(4), 1),
            ["shape (4,) float32 from src=0", "shape (4,) float32 from src=1"],
        ),
    ],
)
def test_calls_that_do_not_match_are_named(one, other, words):
    def worker(comm):
        comm.barrier()
        (other if comm.rank == 1 else one)(comm)

    error = failure(RankError, worker, 3)
    text = str(error)
    assert "collective mismatch: as call number 1 in group world" in text
    assert all(word in text for word in words)
    assert "rank 1 makes" in text and ("rank 0 makes" in text or "rank 2 makes" in text)
    assert "dlviz/cluster" not in error.traceback


TRUNCATIONS = {
    "too long": torch.zeros(5),
    "too short": torch.zeros(3),
    "of another dtype": torch.zeros(4, dtype=torch.int32),
}


@pytest.mark.filterwarnings("ignore:rank 0 sent rank 1 a message that it never received")
@pytest.mark.parametrize("first", ["sender", "receiver"])
@pytest.mark.parametrize("message", TRUNCATIONS.values(), ids=TRUNCATIONS)
def test_a_message_that_does_not_fit_is_refused_before_a_byte_moves(message, first):
    def worker(comm):
        t = torch.full((4,), 8.0)
        try:
            if comm.rank == 0 and first == "sender":
                comm.isend(message + 1, 1)
            if comm.rank == 1 and first == "receiver":
                comm.irecv(t, 0)
            comm.barrier()
            if comm.rank == 0 and first == "receiver":
                comm.send(message + 1, 1)
            if comm.rank == 1 and first == "sender":
                comm.recv(t, 0)
        except ValueError as error:
            print(error)
        comm.barrier()
        return t.tolist()

    run = launch(worker, 2)
    assert run.results[1] == [8.0] * 4
    said = run.output[1 if first == "sender" else 0]
    assert "message number 0 from rank 0 to rank 1" in said and "shape (4,) float32" in said
    assert f"shape {tuple(message.shape)} {str(message.dtype)[6:]}" in said


def test_a_message_that_does_not_fit_ends_the_run():
    def worker(comm):
        if comm.rank == 0:
            comm.send(torch.zeros(5), 1)
        else:
            comm.recv(torch.zeros(4))

    error = failure(RankError, worker)
    assert "ValueError: message mismatch" in str(error)
    assert "dlviz/cluster" not in error.traceback and "comm." in error.traceback


# -- time is up ------------------------------------------------------------------------------------
def test_a_loop_without_end_is_told_with_every_ranks_stack(tmp_path, monkeypatch):
    out_of_time.when(monkeypatch, lambda: len(os.listdir(tmp_path)) == 4)

    def worker(comm):
        if comm.rank == 3:
            while not comm.process.board.get(4, WAITING):
                time.sleep(0.01)
        if comm.rank < 4:
            (tmp_path / str(comm.rank)).touch()
        if comm.rank == 0:
            while True:
                pass  # round and round
        if comm.rank == 1:
            sum(range(FOREVER))
        if comm.rank == 2:
            dist.recv(torch.zeros(1), src=0)  # past the Comm
        if comm.rank == 3:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # never
        comm.barrier()

    error = failure(RunTimeout, worker, 5, timeout=50)
    text = str(error)
    assert text.startswith("the run took longer than timeout=50 s\n")
    assert "rank 4 waits in barrier (call 0 of group world)" in text
    for line in ("sum(range(FOREVER))", "src=0)  # past the Comm", "lock.acquire()  # never"):
        assert line in text.partition("\n\n")[0] and line in error.traceback
    assert "rank 0 is at" in text and "worker" in error.traceback
    assert "rank.py" not in error.traceback and "multiprocessing" not in error.traceback
    assert [wait.rank for wait in error.waits] == [4]
    assert told(error) == "The run took longer than timeout=50 s."


def test_time_may_be_up_before_the_ranks_are_there():
    assert "timeout=0.001 s" in str(failure(RunTimeout, lambda comm: time.sleep(9), timeout=0.001))


# -- the launching process -------------------------------------------------------------------------
@pytest.fixture(scope="module")
def interrupted_start(tmp_path_factory):
    """A script that is interrupted while the fork server loads torch, and then launches."""
    script = """
        import os, signal, threading, time

        def interrupt():
            while "dlviz.cluster.messages.comm" not in sys.modules or time.monotonic() < began + 1:
                os.killpg(0, signal.SIGINT)
                time.sleep(0.02)

        def worker(comm):
            blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
            own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                return blocked, own, "may be interrupted"

        import sys
        signal.signal(signal.SIGINT, lambda number, frame: None)  # as a kernel: it goes on
        began, thread = time.monotonic(), threading.Thread(target=interrupt)
        thread.start()
        import dlviz.cluster
        from multiprocessing import forkserver
        server = forkserver._forkserver._forkserver_pid
        thread.join()
        print(dlviz.launch(worker, 2).results)
        print(forkserver._forkserver._forkserver_pid == server)
        """
    return run_script(tmp_path_factory.mktemp("start"), script, start_new_session=True)


def test_an_interrupt_while_the_fork_server_loads_torch_prints_nothing(interrupted_start):
    assert interrupted_start.stderr == ""


def test_an_interrupt_while_the_fork_server_loads_torch_does_not_end_it(interrupted_start):
    results, same = interrupted_start.stdout.splitlines()
    assert results == f"{[(False, True, 'may be interrupted')] * 2}"  # ranks take SIGINT as ever
    assert same == "True"


def test_an_interrupted_cell_leaves_nothing_and_the_next_one_works(tmp_path):
    script = """
        import os, signal, threading, time
        import dlviz

        def worker(comm, path):
            with open(f"{path}/{comm.rank}", "w") as file:
                file.write(str(os.getpid()))
            comm.barrier()
            if comm.rank == 0:
                print("begun")
            with comm.span("forward"):
                open(f"{path}/begun-{comm.rank}", "w").close()
                time.sleep(60)

        def interrupt():
            while len(os.listdir("pids")) < 4:
                time.sleep(0.01)
            for _ in range(3):  # a second and a third one come while the run is cleared away
                os.killpg(0, signal.SIGINT)
                time.sleep(0.002)

        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in the background
        os.setpgid(0, 0)
        os.mkdir("pids")
        threading.Thread(target=interrupt).start()
        try:
            try:
                dlviz.launch(worker, 2, args=("pids",))
            finally:
                time.sleep(0.1)
        except KeyboardInterrupt as error:
            print("interrupted", error.output, error.trace.meta["failure"])
            print([(span.kind, span.fields) for span in error.trace.spans.rows()])
        pids = [int(open(f"pids/{rank}").read()) for rank in range(2)]
        for pid in pids:
            try:
                os.kill(pid, 0)
                print("left behind", pid)
            except ProcessLookupError:
                pass
        print([name for name in os.listdir("/dev/shm") if f"dlviz-{os.getpid()}-" in name])
        print(dlviz.launch(lambda comm: comm.rank, 2).results)
    """
    done = run_script(tmp_path, script)
    failure = {"message": "The run was interrupted.", "cycle": [], "waits": []}
    spans = [("collective", None), ("forward", {"unfinished": True})] * 2
    assert done.stdout.splitlines() == [
        "[rank 0] begun",
        f"interrupted {['begun' + chr(10), '']} {failure}",
        f"{spans}",
        "[]",
        "[0, 1]",
    ], done.stderr


def test_when_the_kernel_is_killed_its_ranks_go_and_the_next_start_cleans_up(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
            import os, subprocess, time
            import dlviz

            def worker(comm):
                child = subprocess.Popen(["sleep", "60"])
                print(os.getpid(), child.pid, flush=True)
                comm.barrier()
                if comm.rank == 0:
                    sum(range(10**12))  # holds the interpreter
                if comm.rank == 1:
                    comm.recv(comm.size, 0) if False else time.sleep(60)
                comm.barrier()

            dlviz.launch(worker, 3)
        """)
    )
    kernel = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        lines = [kernel.stdout.readline().split() for _ in range(3)]
        pids = [int(pid) for _, _, *pair in lines for pid in pair]
        assert len(pids) == 6 and all(map(alive, pids))
        time.sleep(0.2)
        folders = set(Path("/dev/shm").glob(f"dlviz-{kernel.pid}-*"))
        assert len(folders) == 1
    finally:
        kernel.kill()
        kernel.communicate()
    assert wait_until(lambda: not any(map(alive, pids)), 10), [p for p in pids if alive(p)]
    launch(lambda comm: None, 1)
    assert not any(folder.exists() for folder in folders)


def test_a_folder_that_somebody_holds_is_not_cleaned_up():
    import fcntl
    import shutil
    import tempfile

    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True).stdout.strip()
    folder = tempfile.mkdtemp(prefix=f"dlviz-{gone}-", dir="/dev/shm")
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # a run in another container, which shares /dev/shm
        launch(lambda comm: None, 1)
        assert os.path.isdir(folder)
        os.close(handle)
        launch(lambda comm: None, 1)
        assert not os.path.isdir(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_children_of_a_rank_end_with_it():
    def worker(comm):
        return subprocess.Popen(["sleep", "60"]).pid

    pids = launch(worker, 2).results
    assert wait_until(lambda: not any(map(alive, pids)), 10)


def test_a_rank_may_load_data_with_workers():
    def worker(comm):
        from torch.utils.data import DataLoader

        return [int(batch.sum()) for batch in DataLoader(list(range(6)), 3, num_workers=2)]

    assert launch(worker, 1).results == [[3, 12]]  # each rank starts a fork server for them


def test_the_fork_server_may_be_killed():
    from multiprocessing import forkserver

    def worker(comm):
        if comm.rank == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(20)

    failure(RankError, worker)
    server = forkserver._forkserver._forkserver_pid
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    assert children == []  # it started no server of its own
    assert launch(lambda comm: "torch" in sys.modules, 1).results == [True]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.sweep)])
def test_many_runs_leave_nothing(runs):
    def worker(comm):
        t = torch.ones(4)
        comm.all_reduce(t)
        return float(t.sum())

    def held():
        return (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            len(list(Path("/dev/shm").glob(f"dlviz-{os.getpid()}-*"))),
        )

    launch(worker, 2)
    before = held()
    for i in range(runs):
        if i % 10:
            assert launch(worker, 2).results == [8.0, 8.0]
        else:
            with pytest.raises(RankError):
                launch(lambda comm: 1 / 0, 2)
    assert held() == before


def test_errors_travel_between_processes():
    error = failure(RankError, lambda comm: 1 / 0)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.rank == error.rank
    assert isinstance(copy, dlviz.RunError)


def test_what_a_notebook_shows_of_an_error_is_broken_at_spaces():
    line = "  rank 0 waits in recv from rank 3 (message 0), for 0.2 s now, at /tmp/program.py:5: "
    line += "comm.recv(token)"
    first, *rest = dlviz.DeadlockError(f"no rank can go on\n{line}")._render_traceback_()
    assert first == "DeadlockError: no rank can go on"
    assert rest[0].splitlines() == [line.rpartition(" comm")[0], "      comm.recv(token)"]
    (long,) = dlviz.DeadlockError("x" * 90)._render_traceback_()
    assert long.splitlines() == ["DeadlockError:", "    " + "x" * 90]  # a word is whole
