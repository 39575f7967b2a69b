"""Tensors on GPUs: the order of their messages, on ranks that pretend to have one each, and spans
by a GPU's events, by one that only has a clock. What needs real GPUs skips without."""

from __future__ import annotations

import itertools
import os
import time
from time import perf_counter_ns

import pytest
import torch
from pretended import (
    carry_out,
    check_transfers,
    on_device,
    pretend,
    program,
    with_devices,
)
from random_programs import check, check_sent
from timing import attempts

from dlviz.cluster import DeadlockError, RankError, launch
from dlviz.cluster.control.form import DTYPES
from dlviz.cluster.pacing.events import EventClock
from dlviz.cluster.pacing.pace import NoPace
from dlviz.cluster.recording import collect
from dlviz.cluster.recording.log import RankRecord
from dlviz.collectives import ring
from dlviz.trace.recorder import PacedSpan, Recorder


@pytest.mark.parametrize(
    ("seed", "ranks"),
    [(0, 2), (1, 4), *(pytest.param(s, 2 + s % 3, marks=pytest.mark.sweep) for s in range(2, 30))],
)
def test_a_random_program_brings_every_message_to_its_receive(seed, ranks):
    run = launch(pretend, ranks, args=(seed,))
    check(run.results)
    check_transfers(run.results, seed)
    check_sent(run.trace, program(seed, ranks))


@pytest.mark.parametrize("ahead", [False, True])
def test_every_rank_sends_to_all_before_it_receives_from_any(ahead):
    def worker(comm):
        comm, _ = with_devices(comm)
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        places = list(itertools.product((2, 0, 1), reversed(others)))
        came = [on_device(torch.zeros(9000)) for _ in places]

        def post():
            return [comm.irecv(t, rank, tag=i) for t, (i, rank) in zip(came, places, strict=True)]

        receives = post() if ahead else []
        sends = [
            comm.isend(on_device(torch.full((9000,), 10.0 * i + comm.rank)), rank, tag=i)
            for i in range(3)
            for rank in others
        ]
        for receive in reversed(receives or post()):
            receive.wait()
        for send in sends:
            send.wait()
        return [bool((t == 10.0 * i + r).all()) for t, (i, r) in zip(came, places, strict=True)]

    assert launch(worker, 4).results == [[True] * 9] * 4


def test_a_ring_of_tensors_on_gpus_sums_them():
    def worker(comm):
        comm, group = with_devices(comm)
        tensor = on_device(torch.arange(5003.0) * (comm.rank + 1))
        ring.all_reduce(comm, tensor)
        return torch.equal(tensor.cpu(), torch.arange(5003.0) * 6), group.transfers

    assert launch(worker, 3).results == [(True, (4, 4))] * 3


def test_a_message_of_every_dtype_and_of_no_dimension_moves():
    def worker(comm):
        comm, _ = with_devices(comm)
        for dtype in DTYPES:
            for shape in ((3, 5), ()):
                tensor = on_device(torch.ones(shape).to(dtype))
                came = on_device(torch.zeros(shape).to(dtype))
                comm.sendrecv(tensor, 1 - comm.rank, came, 1 - comm.rank)
                assert torch.equal(came.cpu(), tensor.cpu())

    launch(worker, 2)


@pytest.mark.filterwarnings("ignore:rank 0 sent rank 1 a message that it never received")
def test_a_misfit_is_refused_before_a_byte_moves_and_what_follows_arrives():
    def worker(comm):
        comm, group = with_devices(comm)
        with pytest.raises(ValueError, match="message mismatch: message number 0 from rank 0 to"):
            if comm.rank == 0:
                comm.send(on_device(torch.ones(5)), 1)
            else:
                comm.recv(on_device(torch.zeros(4)), 0)
        none = group.transfers
        came = on_device(torch.zeros(4))
        comm.sendrecv(on_device(torch.ones(4)), 1 - comm.rank, came, 1 - comm.rank)
        return none, came.sum().item()

    assert launch(worker, 2).results == [((0, 0), 4.0)] * 2


def test_what_is_sent_next_never_overwrites_what_is_on_its_way_between_gpus():
    def worker(comm):
        comm, _ = with_devices(comm)
        tensor = on_device(torch.zeros(5000))
        if comm.rank == 0:
            for _ in range(100):
                comm.send(tensor, 1)
                tensor += 1
        else:
            return [comm.recv(tensor, 0) or tensor.unique().tolist() for _ in range(100)]

    assert launch(worker, 2).results[1] == [[float(i)] for i in range(100)]


def test_a_rank_that_computes_or_has_finished_still_sends_its_tensor():
    def worker(comm):
        comm, _ = with_devices(comm)
        if comm.rank == 0:
            comm.isend(on_device(torch.ones(10)), 1)
            time.sleep(2.0)
            comm.isend(on_device(torch.ones(10)), 1)
            return None
        start, came = time.perf_counter(), on_device(torch.zeros(10))
        comm.recv(came, 0)
        waited = time.perf_counter() - start
        time.sleep(2.5)
        comm.recv(came, 0)
        return waited

    for attempt in attempts():
        waited = launch(worker, 2).results[1]
        with attempt:
            assert waited < 1.0


def test_three_threads_of_a_rank_exchange_tensors_on_gpus_at_once():
    def worker(comm):
        comm, _ = with_devices(comm)
        lanes = [comm.lane(f"lane {i}") for i in range(3)]

        def exchange(comm, scale):
            total = 0.0
            for i in range(20):
                came, mine = torch.zeros(2000), torch.full((2000,), i * scale)
                came, mine = on_device(came), on_device(mine)
                comm.sendrecv(mine, 1 - comm.rank, came, 1 - comm.rank)
                comm.all_reduce(mine)
                total += came[7].item() + mine[0].item()
            return total

        handles = [lane.submit(exchange, float(i + 1)) for i, lane in enumerate(lanes)]
        own = exchange(comm, 10.0)
        return [own, *(handle.wait() for handle in handles)]

    each = 3.0 * sum(range(20))
    assert launch(worker, 2).results == [[10.0 * each, each, 2.0 * each, 3.0 * each]] * 2


def test_ranks_that_wait_for_each_other_with_gpus_are_named():
    def worker(comm):
        comm, _ = with_devices(comm)
        comm.recv(on_device(torch.zeros(5)), 1 - comm.rank)
        comm.send(on_device(torch.zeros(5)), 1 - comm.rank)

    with pytest.raises(DeadlockError) as caught:
        launch(worker, 2)
    assert sorted(caught.value.cycle) == [0, 1]


def test_a_rank_that_dies_before_it_sends_is_named():
    def worker(comm):
        comm, _ = with_devices(comm)
        if comm.rank == 1:
            comm.isend(on_device(torch.zeros(5000)), 0)
            os.kill(os.getpid(), 9)
        comm.recv(on_device(torch.zeros(5000)), 1)

    with pytest.raises(RankError) as caught:
        launch(worker, 2)
    assert caught.value.rank == 1 and caught.value.exitcode == -9


# -- the backend's own collectives -----------------------------------------------------------------
def test_collectives_of_tensors_on_gpus_stay_there_unless_nccl_lacks_their_type():
    def worker(comm):
        comm, group = with_devices(comm)
        n, mine = comm.size, on_device(torch.arange(4.0) + comm.rank)
        every = torch.stack([torch.arange(4.0) + rank for rank in range(n)])
        total = mine.clone()
        comm.all_reduce(total)
        assert torch.equal(total.cpu(), every.sum(0))
        total = mine.clone()
        comm.reduce(total, 1, "max")
        assert comm.rank != 1 or torch.equal(total.cpu(), every.amax(0))
        comm.broadcast(total, 1)
        assert torch.equal(total.cpu(), every.amax(0))
        whole = on_device(torch.zeros(n, 4))
        comm.all_gather(whole, mine)
        assert torch.equal(whole.cpu(), every)
        parts = [on_device(torch.zeros(4)) for _ in range(n)]
        comm.all_gather(parts, mine)
        assert all(torch.equal(part.cpu(), row) for part, row in zip(parts, every, strict=True))
        part = on_device(torch.zeros(4))
        comm.reduce_scatter(part, whole)
        assert torch.equal(part.cpu(), n * every[comm.rank])
        out = on_device(torch.zeros(n))
        comm.all_to_all(out, on_device(torch.arange(float(n)) + 10 * comm.rank))
        assert out.tolist() == [10.0 * rank + comm.rank for rank in range(n)]
        carried, short = group.carried, on_device(torch.ones(4, dtype=torch.int16))
        comm.all_reduce(short)
        comm.barrier()
        return short.tolist(), carried, group.carried - carried

    assert launch(worker, 3).results == [([3] * 4, 7, 0)] * 3


def test_a_collective_of_a_gpus_tensor_and_one_of_the_hosts_differ():
    def worker(comm):
        comm, _ = with_devices(comm)
        tensor = torch.ones(4)
        comm.all_reduce(tensor if comm.rank else on_device(tensor))

    says = r"all_reduce of shape \(4,\) float32 on its GPU"
    with pytest.raises(RankError, match=f"collective mismatch: .* {says}"):
        launch(worker, 2)


# -- spans -----------------------------------------------------------------------------------------
class FakeGpu:
    """A GPU that does one thing after the other, and has a clock of its own."""

    def __init__(self):
        self.free = 0
        self.off = 123_456_789  # ns that its clock is ahead

    def launch(self, seconds):
        self.free = max(self.free, perf_counter_ns()) + int(seconds * 1e9)

    def record(self):
        return FakeEvent(max(self.free, perf_counter_ns()), self.off)


class FakeEvent:
    def __init__(self, at, off):
        self.at = at
        self.stamp = at + off

    def query(self):
        return perf_counter_ns() >= self.at

    def synchronize(self):
        while not self.query():
            time.sleep(1e-4)

    def elapsed_time(self, other):
        return (other.stamp - self.stamp) * 1e-6


def trace_of(recorder, outcome="completed"):
    lanes = [(lane.name, lane.rows()) for lane in recorder.lanes]
    record = RankRecord(0, lanes, [], [], [], [], {})
    meta = {**collect.clock_of(None), "outcome": outcome, "device": "cuda"}
    return collect.build([record], 1, 0, meta)


def test_a_span_lasts_as_long_as_the_gpu_takes_and_not_as_its_launch():
    for attempt in attempts():
        gpu = FakeGpu()
        clock = EventClock(gpu.record)
        recorder = Recorder(0, pace=clock.lane)
        started = time.perf_counter()
        with recorder.span("step"):
            with recorder.span("forward"):
                gpu.launch(0.06)
            with recorder.span("backward"):
                gpu.launch(0.12)
        launched = time.perf_counter() - started
        clock.finish()
        clock.read_times()
        spans = trace_of(recorder).spans.frame().set_index("kind")
        lasted = spans.end - spans.start
        assert spans.depth.to_dict() == {"step": 0, "forward": 1, "backward": 1}
        with attempt:
            assert launched < 0.05
            assert lasted.forward == pytest.approx(0.06, abs=2e-3)
            assert lasted.backward == pytest.approx(0.12, abs=2e-3)
            assert lasted.step == pytest.approx(0.18, abs=4e-3)
            assert spans.end.forward == pytest.approx(spans.start.backward, abs=1e-4)
            assert spans.start.step == pytest.approx(started, abs=0.02)  # by Python's clock


def test_of_a_run_that_fails_what_the_gpu_has_not_done_lasts_until_then():
    for attempt in attempts():
        gpu = FakeGpu()
        clock = EventClock(gpu.record)
        recorder = Recorder(0, pace=clock.lane)
        with recorder.span("step"), recorder.span("forward"):
            gpu.launch(60.0)
        recorder.span("step").__enter__()
        recorder.span("backward").__enter__()
        time.sleep(0.05)
        clock.read_times()
        asked = time.perf_counter()
        spans = trace_of(recorder, "failed").spans.frame()
        assert len(spans) == 4
        with attempt:
            assert (abs(spans.end - asked) < 0.02).all()


def test_a_run_timed_by_events_has_its_messages_after_the_math_that_made_them():
    def worker(comm):
        gpu, lane = FakeGpu(), comm.recorder.lane
        clock = comm.process.pacing = EventClock(gpu.record)
        clock.epoch = comm.process.board.get(0, 4)
        lane.pace, lane.make = clock.lane("compute"), clock.lane("compute").span
        comm, _ = with_devices(comm)
        tensor = on_device(torch.ones(100))
        for step in range(3):
            with comm.span("step", step=step):
                with comm.compute("forward"):
                    gpu.launch(0.05)
                comm.sendrecv(tensor, 1 - comm.rank, tensor.clone(), 1 - comm.rank)
                comm.all_reduce(tensor)

    trace = launch(worker, 2).trace
    spans = trace.spans.frame()
    for rank in range(2):
        mine = spans[(spans["rank"] == rank) & (spans.lane == "compute")]
        forward = mine[mine.kind == "forward"]
        assert (abs(forward.end - forward.start - 0.05) < 5e-3).all()
        sends = mine[mine.kind == "send"]
        assert (sends.start.to_numpy() >= forward.end.to_numpy() - 1e-4).all()


def test_a_rank_on_the_cpu_knows_no_events():
    def worker(comm):
        lane = comm.recorder.lane
        return type(lane.pace) is NoPace and lane.make is not PacedSpan

    assert launch(worker, 1, device="cpu").results == [True]


# -- on real GPUs ----------------------------------------------------------------------------------
GPUS = torch.cuda.device_count()


def on_gpus(comm, seed):
    found = carry_out(comm, seed, lambda tensor: tensor.to(comm.device))
    return *found, comm.process.transport.name


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs or more")
@pytest.mark.parametrize("seed", range(6))
def test_a_random_program_on_gpus_goes_by_nccl(seed):
    ranks = min(GPUS, 4)
    results = launch(on_gpus, ranks, device="cuda", args=(seed,)).results
    check(results)
    assert all(each[2].endswith(", NCCL") for each in results)


@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
def test_ranks_that_share_a_gpu_send_by_the_host():
    results = launch(on_gpus, GPUS + 1, device="cuda", args=(0,)).results
    check(results)
    assert not any("NCCL" in each[2] for each in results)


@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
def test_a_span_of_kernels_lasts_as_long_as_they_do():
    def worker(comm):
        matrix = torch.ones(4096, 4096, device=comm.device)
        (matrix @ matrix).sum().item()  # what is loaded lazily
        began = time.perf_counter()
        with comm.compute("forward"):
            for _ in range(50):
                matrix @ matrix
        launched = time.perf_counter() - began
        torch.cuda.synchronize()
        return launched, time.perf_counter() - began

    for attempt in attempts():
        run = launch(worker, 1, device="cuda")
        ((launched, took),) = run.results
        spans = run.trace.only(kind="forward").spans
        lasted = float(spans.end[0] - spans.start[0])
        with attempt:
            assert launched < lasted <= took * 1.05
