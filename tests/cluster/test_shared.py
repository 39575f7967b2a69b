"""Memory that ranks share, and its lock."""

from __future__ import annotations

import os
import signal
import threading
import time

import out_of_time
import pytest
import torch

from dlviz import DeadlockError, RankError, RankLost, RunTimeout, launch
from dlviz.cluster.control.board import PID
from dlviz.cluster.parent.start import shared_memory
from dlviz.cluster.shared import TICKETS
from dlviz.machine import classroom

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The fork server has loaded torch, so that times are those of a run."""
    launch(lambda comm: None, 1)


def left(pid):
    """What a launching process has left in shared memory."""
    return [name for name in os.listdir(shared_memory()) if name.startswith(f"dlviz-{pid}-")]


def queued(shared, *ranks):
    """Return when each of `ranks` waits for the lock."""
    while not all(shared._lock._cells[TICKETS + rank] for rank in ranks):
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def clean():
    yield
    assert not left(os.getpid())


# -- the memory ----------------------------------------------------------------------------------
def test_all_ranks_have_rank_0s_values_in_one_piece_of_memory():
    def worker(comm):
        found = []
        for dtype in DTYPES:
            for shape in ((), (0,), (3,), (2, 3, 5)):
                mine = torch.full(shape, comm.rank == 0, dtype=dtype)
                shared = comm.shared(mine).tensor
                assert shared.shape == shape and shared.dtype == dtype and shared.is_contiguous()
                found.append(bool((shared == 1).all()))
                assert not comm.rank or not mine.any(), "the tensor given stays as it is"
        cells = comm.shared(torch.zeros(comm.size)).tensor
        cells[comm.rank] = comm.rank + 1
        comm.barrier()
        return all(found), cells.tolist()

    assert launch(worker, 3).results == [(True, [1, 2, 3])] * 3
    assert launch(worker, 1).results == [(True, [1])]


def test_a_group_and_a_lane_share_among_themselves():
    def worker(comm):
        row = comm.split(comm.rank % 2)
        own = row.shared(torch.tensor([row.rank + 10 * comm.rank]))
        with own.lock():
            own.tensor += 1
        lane = comm.lane("comm")

        def add(beside):
            beside.barrier()  # both threads of a rank want the lock
            for _ in range(20):
                with own.lock():
                    own.tensor += 1

        handle = lane.submit(add)
        add(comm)
        handle.wait()
        comm.barrier()
        return own.tensor.item()

    assert launch(worker, 4).results == [82, 92, 82, 92]


def test_a_tensor_that_cannot_be_shared_is_refused():
    def refused(kind, tensor, message):
        def worker(comm):
            comm.shared(tensor if comm.rank else torch.zeros(3))

        with pytest.raises(RankError, match=message) as caught:
            launch(worker, 2)
        assert kind in str(caught.value)

    refused("ValueError", torch.zeros(2, 3).T, "is not contiguous: give tensor.contiguous")
    refused("ValueError", torch.zeros(3, device="meta"), "is on meta: ranks share memory of the")
    refused("TypeError", [1, 2], r"shared\(list\) has no tensor")
    refused("ValueError", torch.zeros(4), "collective mismatch: .* shared of shape")


def test_while_a_run_lasts_no_file_bears_its_memory_so_that_nothing_is_left_after_a_kill():
    def worker(comm):
        shared = comm.shared(torch.zeros(1 << 16))
        comm.barrier()
        with open("/proc/self/maps") as maps:
            mine = [line for line in maps if f"{shared.tensor.data_ptr() & ~4095:x}-" in line]
        folder = comm.process.folder
        return [name for name in os.listdir(folder) if "shared" in name], mine

    for names, mapped in launch(worker, 2).results:
        assert not names and len(mapped) == 1 and mapped[0].endswith("(deleted)\n")


# -- the lock ------------------------------------------------------------------------------------
def test_what_is_done_under_the_lock_is_never_lost():
    def worker(comm, rounds):
        count = comm.shared(torch.zeros(2, dtype=torch.int64))
        for _ in range(rounds):
            with count.lock():
                value = count.tensor[0].item()
                if comm.rank == 0:
                    os.sched_yield()
                count.tensor[0] = value + 1
        comm.barrier()
        return count.tensor[0].item()

    assert launch(worker, 3, args=(200,), timeout=20).results == [600] * 3


def test_a_thread_that_waits_for_another_one_of_its_rank_is_woken():
    def worker(comm):
        shared, lane, held = comm.shared(torch.zeros(1)), comm.lane("comm"), threading.Event()

        def hold(own):
            with shared.lock():
                held.set()
                while not shared._lock.behind:
                    time.sleep(0.002)
                time.sleep(0.1)

        handle = lane.submit(hold)
        held.wait()
        with shared.lock():
            handle.wait()

    spans = launch(worker, 1, timeout=20).trace.only(kind="lock").spans
    (wait,) = spans[spans.name == "wait"].rows()
    assert (wait.lane, wait.peer) == ("compute", 0) and wait.end - wait.start > 0.05


def test_without_the_lock_updates_are_lost():
    def worker(comm):
        count = comm.shared(torch.zeros(1))
        comm.barrier()
        value = count.tensor.clone()
        comm.barrier()
        count.tensor.copy_(value + 1)
        comm.barrier()
        return count.tensor.item()

    assert launch(worker, 3).results == [1] * 3


def test_waits_and_holds_are_spans_of_kind_lock_that_say_who_held_it():
    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        for turn in range(comm.size):
            if turn:
                comm.barrier()
            if comm.rank:
                comm.barrier()
                with shared.lock():
                    pass
            else:
                with shared.lock():
                    comm.barrier()
                    queued(shared, 1)
                    time.sleep(0.1)

    run = launch(worker, 2, timeout=20)
    spans = run.trace.only(kind="lock").spans
    holds, waits = spans[spans.name == "hold"], spans[spans.name == "wait"]
    assert (holds.rank == 0).sum() == (holds.rank == 1).sum() == 2
    assert waits.rank.tolist() == [1, 1] and waits.peer.tolist() == [0, 0]
    assert (waits.end - waits.start > 0.05).all()
    ends = sorted([*zip(holds.start.tolist(), holds.end.tolist(), strict=True)])
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False)), "one at a time"
    assert all(where.startswith(__file__) for where in spans.where)


@pytest.mark.filterwarnings("ignore:the run")
def test_on_a_paced_run_the_lock_is_held_for_what_the_device_takes():
    """Three ranks want it, 10 ms after one another, each for 40 ms: by the device's clock they have
    it one after another, and by the wall's too."""

    def worker(comm):
        shared = comm.shared(torch.zeros(1, dtype=torch.int64))
        with comm.compute("forward", seconds=0.03 + 0.01 * comm.rank):
            pass
        if comm.rank == 1:
            while shared._lock.owner is None:
                time.sleep(0.002)
        elif comm.rank == 2:
            queued(shared, 1)
        with shared.lock(), comm.compute("update", seconds=0.04):
            queued(shared, *range(1, 3) if comm.rank == 0 else ())
            shared.tensor += 1
            return shared.tensor.item()

    run = launch(worker, 3, machine=classroom(3))
    assert run.results == [1, 2, 3]
    spans = run.trace.only(kind="lock").spans
    for start, end in (("start", "end"), ("wall_start", "wall_end")):
        holds = spans[spans.name == "hold"]
        times = sorted(zip(holds[start].tolist(), holds[end].tolist(), strict=True))
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(times, times[1:], strict=False))
    assert holds.end - holds.start == pytest.approx(0.04, abs=1e-6)
    assert (holds.wall_end >= holds.end - 1e-6).all()
    waits = spans[spans.name == "wait"]
    lengths = {row.rank: row.end - row.start for row in waits.rows()}
    assert (lengths[1], lengths[2]) == pytest.approx((0.03, 0.06), abs=0.01)
    assert all(row.peer == 0 for row in waits.rows() if row.rank), "it is still rank 0's"


def test_who_waits_longest_is_next():
    def worker(comm):
        order = comm.shared(torch.zeros(4, dtype=torch.int64))
        if comm.rank == 0:
            with order.lock():
                comm.barrier()
                queued(order, 1, 2, 3)
            with order.lock():  # asks again at once, and waits behind the others
                order.tensor[0] = order.tensor.max() + 1
        else:
            comm.barrier()
            queued(order, *range(comm.rank + 1, 4))
            with order.lock():
                order.tensor[comm.rank] = order.tensor.max() + 1
        comm.barrier()
        return order.tensor.tolist()

    assert launch(worker, 4).results[0] == [4, 3, 2, 1]


def test_a_rank_that_asks_for_a_lock_it_holds_is_told():
    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        with shared.lock(), shared.lock():
            pass

    with pytest.raises(RankError, match="rank 0 holds this lock already"):
        launch(worker, 1)


# -- who holds it, and dies ----------------------------------------------------------------------
def test_the_owner_is_named_where_the_others_wait_for_ever():
    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        if comm.rank == 1:
            with shared.lock():
                comm.barrier()
                comm.recv(torch.zeros(1), 0)
        else:
            comm.barrier()
            with shared.lock():
                pass
            comm.send(torch.zeros(1), 1)

    with pytest.raises(DeadlockError, match="waits in lock of group world, which rank 1") as caught:
        launch(worker, 3, timeout=30)
    assert caught.value.cycle == [0, 1] and {wait.op for wait in caught.value.waits} > {"lock"}


def test_the_owner_is_named_when_the_time_is_up(tmp_path, monkeypatch):
    there = tmp_path / "there"
    out_of_time.when(monkeypatch, there.exists)

    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        if comm.rank == 1:
            with shared.lock():
                comm.barrier()
                queued(shared, 0)
                there.touch()
                time.sleep(60)
        comm.barrier()
        with shared.lock():
            pass

    words = "rank 0 waits in lock of group world, which rank 1 holds"
    with pytest.raises(RunTimeout, match=words) as caught:
        launch(worker, 2)
    open_spans = [
        (row.rank, row.name, row.peer)
        for row in caught.value.trace.only(kind="lock").spans.rows()
        if row.fields and row.fields.get("unfinished")
    ]
    assert sorted(open_spans) == [(0, "wait", 1), (1, "hold", None)]


@pytest.mark.filterwarnings("ignore:the run was up to")  # it sleeps
@pytest.mark.parametrize(
    ("end", "machine"),
    [("kill", None), ("raise", None), ("waiting", None), ("kill", "paced"), ("waiting", "paced")],
)
def test_the_lock_of_a_rank_that_is_lost_is_free(end, machine):
    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        if comm.rank == 1:
            with shared.lock():
                comm.barrier()
                shared.tensor += 1
                queued(shared, 0, 2, 3)
                if end == "raise":
                    raise ValueError("half done")
                if end == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                os.kill(comm.process.board.get(2, PID), signal.SIGKILL)
                while 2 not in comm.lost:
                    time.sleep(0.002)
        else:
            comm.barrier()
            if comm.rank != 2:
                queued(shared, 2)  # it is the next
            with shared.lock():
                shared.tensor += 1
        if comm.rank == 0:
            with pytest.raises(RankLost) as caught:
                comm.barrier()
            while shared.tensor.item() < (3 if end == "waiting" else 4):
                time.sleep(0.002)
            return caught.value.rank
        return None

    on = None if machine is None else classroom(4)
    may_lose = (1, 2, 3)
    run = launch(worker, 4, timeout=20, may_lose=may_lose, machine=on)
    gone = 2 if end == "waiting" else 1
    assert set(run.lost) == {gone} and run.results[0] == gone


def test_a_death_under_the_lock_ends_a_run_that_may_lose_nobody():
    def worker(comm):
        shared = comm.shared(torch.zeros(1))
        with shared.lock():
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RankError, match="rank 1 was killed by SIGKILL"):
        launch(worker, 3, timeout=20)
