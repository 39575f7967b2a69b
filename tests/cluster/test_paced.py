"""Paced runs: device times are exact, wall times follow, and what goes wrong shows.

The device columns must equal the closed form to rounding, on any machine. The wall columns are
measured: here only that they move when they must; how near they come is a benchmark.
"""

import math
import os
import statistics
import subprocess
import sys
import time

import pytest
import torch
from timing import attempts

import dlviz
from dlviz import metrics, schedules
from dlviz.cluster.control.board import WAITING
from dlviz.cluster.pacing.load import queued, share_of_others
from dlviz.collectives import ring
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel import pipeline

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")

DEVICE = Device("test", flops=1e9, memory=1e9, memory_bandwidth=1e9)
NO_LINK = Link(0.0, 1e30)
LINK = Link(1e-3, 1e6)  # 1 ms + 1 us a byte


def machine(topology, step=0.005, gamma=0.0):
    return Machine(Device("test", 1e9, 1e9, 1e9, gamma), topology, step)


def gpipe(comm, m, math_seconds=0.0, stop_rank=None):
    """All forwards, then all backwards, of m microbatches through comm.size stages; the math of the
    last one's forwards takes `math_seconds`."""
    p, r = comm.size, comm.rank
    x = torch.zeros(4)
    sends = []
    comm.barrier()
    for i in range(m):
        if r > 0:
            comm.recv(x, src=r - 1)
        with comm.compute("forward", microbatch=i):
            time.sleep(math_seconds if r == p - 1 else 0.0)
            x = x + 1
        if r < p - 1:
            sends.append(comm.isend(x, r + 1))
        if r == stop_rank and i == 2:
            time.sleep(0.05)
    for i in range(m):
        if r < p - 1:
            comm.recv(x, src=r + 1)
        with comm.compute("backward", microbatch=i):
            x = x + 1
        if r > 0:
            sends.append(comm.isend(x, r - 1))
    for send in sends:
        send.wait()


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 5), (4, 8)])
def test_the_device_bubble_of_gpipe_is_the_formula(p, m):
    run = dlviz.launch(gpipe, ranks=p, machine=machine(Topology.switch(p, NO_LINK)), args=(m,))
    run.trace.validate()
    assert metrics.bubble_ratio(run.trace, clock="device") == pytest.approx((p - 1) / m, rel=1e-6)
    window = (m + p - 1) * 0.015
    spans = run.trace.only(kind=("forward", "backward")).spans
    assert spans.end.max() - spans.start.min() == pytest.approx(window, rel=1e-6)


def test_math_longer_than_its_pace_moves_the_measured_bubble_and_warns():
    for attempt in attempts():
        with pytest.warns(RuntimeWarning, match="could not keep its pace: the math of"):
            run = dlviz.launch(
                gpipe, ranks=2, machine=machine(Topology.switch(2, NO_LINK)), args=(6, 0.02)
            )
        device, wall = (metrics.bubble_ratio(run.trace, clock) for clock in ("device", "wall"))
        assert device == pytest.approx(1 / 6, rel=1e-6)
        with attempt:
            assert wall > 2 * device  # the first rank waits
    assert "could not keep its pace" in run.trace.meta["warning"]
    figure = dlviz.viz.timeline(run.trace)
    assert "could not keep its pace" not in figure.layout.title.subtitle.text
    assert any("could not keep its pace" in dlviz.viz.words.text.wrap(line, 999)
               for line in dlviz.viz.words.text.details(run.trace, "device"))  # fmt: skip


def test_a_rank_that_stops_for_50_ms_shows_in_the_wall_columns_and_the_lateness():
    run = dlviz.launch(
        gpipe, ranks=2, machine=machine(Topology.switch(2, NO_LINK)), args=(6, 0.0, 0)
    )
    assert run.trace.meta["lateness"]["worst"] > 0.03
    assert "late" in run.trace.meta["warning"]
    device = metrics.bubble_ratio(run.trace, clock="device")
    assert device == pytest.approx(1 / 6, rel=1e-6)
    forward = run.trace.only(rank=0, kind="forward").spans
    assert forward.wall_start[3] - forward.start[3] > 0.03  # 50 ms, of which it owed 5


def interrupted(comm, given_away):
    from dlviz.cluster.pacing import paced

    class Slow:  # other ranks have the core for 3 ms whenever this one lets them go first
        sched_yield = staticmethod(lambda: time.sleep(0.003 if given_away else 0.0))

    paced.os = Slow
    for _ in range(4):
        with comm.compute("forward"):
            pass
        if not given_away:
            comm.hold()
            time.sleep(0.003)


def gaps_by_the_wall(given_away):
    """Seconds between the operations of `interrupted`."""
    alone = machine(Topology.switch(1, Link(0.0, 1e12)))
    run = dlviz.launch(interrupted, ranks=1, machine=alone, args=(given_away,))
    spans = run.trace.only(kind="forward").spans
    return spans.wall_start[1:] - spans.wall_end[:-1]


def test_a_moment_given_to_other_ranks_belongs_to_no_operation():
    for attempt in attempts():
        with attempt:
            gaps = gaps_by_the_wall(True)
            assert (gaps == 0).all(), gaps


def test_a_pause_of_the_program_shows():
    gaps = gaps_by_the_wall(False)
    assert (gaps > 0.002).all(), gaps


def steps(comm, schedule):
    """Processor seconds of each of a few steps, and what the process held before and after the
    first: descriptors and modules."""
    stages = [torch.nn.Linear(4, 4) for _ in schedule.stage_rank]
    x, shapes = torch.ones(32, 4), pipeline.Shapes()
    times, held = [], [(len(os.listdir("/dev/fd")), len(sys.modules))]
    for step in range(4):
        began = time.process_time()
        with comm.span("step", step=step):
            loss = torch.nn.functional.mse_loss
            pipeline.train_step(comm, stages, schedule, x, x, loss, shapes=shapes)
        times.append(time.process_time() - began)
        held.append((len(os.listdir("/dev/fd")), len(sys.modules)))
    return times, held[:2]


def test_what_is_cold_is_done_before_the_first_step():
    four = machine(Topology.switch(4, NO_LINK))
    for attempt in attempts():
        run = dlviz.launch(steps, 4, machine=four, args=(schedules.make("1f1b", 4, 8),))
        first = sum(one for (one, *_), _ in run.results)
        others = sum(statistics.median(more) for (_, *more), _ in run.results)
        with attempt:  # threads that a busy machine holds up may have a file open
            for _, (before, after) in run.results:
                assert before == after  # all is loaded, and all ranks are connected
            assert first < 1.4 * others  # else some 1.6 times as long


def test_wall_times_are_never_before_device_times():
    run = dlviz.launch(gpipe, ranks=3, machine=machine(Topology.switch(3, NO_LINK)), args=(4,))
    spans = run.trace.only(kind=("forward", "backward")).spans
    assert (spans.wall_end >= spans.end - 1e-6).all()


def around_the_ring(comm):
    for step in range(2):
        with comm.span("step", step=step):
            ring.all_reduce(comm, torch.ones(25_000))


def by_the_backend(comm):
    comm.all_reduce(torch.ones(25_000))


@pytest.mark.parametrize(("worker", "times"), [(around_the_ring, 2), (by_the_backend, 1)])
def test_a_paced_run_begins_with_its_first_operation_and_not_when_the_host_has_started_it(
    worker, times
):
    """The best of some runs: what the host takes is none of the time that the machine does."""
    link = Link(5e-3, 1e8)
    takes = metrics.makespan(
        dlviz.sim.collective("ring", 4, 100_000, machine(Topology.switch(4, link)))
    )
    for _ in range(8):
        trace = dlviz.launch(worker, ranks=4, machine=machine(Topology.switch(4, link))).trace
        steps = metrics.step_seconds(trace)
        if metrics.makespan(trace) == pytest.approx(times * takes, rel=1e-6):
            break
    assert metrics.makespan(trace) == pytest.approx(times * takes, rel=1e-6)
    assert steps == pytest.approx(takes, rel=1e-6)
    assert metrics.breakdown(trace)["idle"] == pytest.approx(0, abs=1e-9)
    assert (trace.spans.wall_start >= trace.spans.start - 1e-6).all()


def behind_others(comm):
    """Rank 1's program takes 5 ms of a core that three others are busy on."""
    if comm.rank:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        began = time.thread_time()
        while time.thread_time() < began + 5e-3:
            pass
    with comm.compute("forward"):
        return queued()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_rank_that_waited_for_a_processor_before_its_first_operation_is_late_and_not_slow():
    script = (
        f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nwhile True: 0"
    )
    others = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    try:
        best = min(
            (
                dlviz.launch(behind_others, 2, machine=machine(Topology.switch(2, LINK)))
                for _ in range(4)
            ),
            key=lambda run: run.trace.spans.start.max(),
        )
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert best.trace.spans.start.max() < 0.03, "its own 5 ms are before the run's first 20"
    assert best.results[1] > 0.01, "it did wait"
    assert best.trace.meta["lateness"]["worst"] > 5e-3


def server_and_clients(comm):
    """Everybody sends rank 0 a message of 1000 bytes at the same time."""
    comm.barrier()
    x = torch.zeros(250)
    if comm.rank:
        comm.isend(x, 0).wait()
        return None
    return [comm.recv(x) for _ in range(comm.size - 1)]


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_messages_to_one_rank_go_through_its_port_one_at_a_time(ranks):
    run = dlviz.launch(
        server_and_clients, ranks=ranks, machine=machine(Topology.switch(ranks, LINK))
    )
    messages = run.trace.messages
    start = messages.sent.min()
    each = 1e-3 + 1000e-6
    assert messages.sent == pytest.approx(start, abs=1e-9)
    assert sorted(messages.arrived - start) == pytest.approx(
        [each * (i + 1) for i in range(ranks - 1)], abs=1e-9
    )
    assert sorted(run.results[0]) == list(range(1, ranks))


def late_first(comm):
    """Rank 1 sends at device time 40 ms, rank 2 at 10 ms, by the wall clock both at once."""
    comm.barrier()
    x = torch.full((1,), float(comm.rank))
    if comm.rank == 0:
        return [comm.recv(x) for _ in range(2)]
    with comm.compute("forward", seconds=0.04 if comm.rank == 1 else 0.01):
        pass
    comm.isend(x, 0).wait()


def test_a_receive_from_any_source_delivers_in_the_order_of_device_time():
    run = dlviz.launch(late_first, ranks=3, machine=machine(Topology.switch(3, LINK)))
    assert run.results[0] == [2, 1]


def served_late(comm):
    """Rank 1 sends 50 ms after rank 0 was seen to wait for anybody."""
    comm.barrier()
    x = torch.zeros(1)
    if comm.rank == 0:
        with comm.compute("update", seconds=0.02):
            pass
        comm.recv(x)
        return
    with comm.compute("forward", seconds=0.01):
        while not comm.process.board.get(0, WAITING):
            time.sleep(0.002)
        time.sleep(0.05)
    comm.isend(x, 0).wait()


def test_a_receive_from_any_source_is_as_long_by_the_wall_clock_as_its_rank_waited():
    run = dlviz.launch(served_late, ranks=2, machine=machine(Topology.switch(2, LINK)))
    (row,) = run.trace.only(rank=0, kind="recv").spans.rows()
    assert row.wall_end - row.wall_start > 0.05


def two_sends(comm):
    comm.barrier()
    x = torch.zeros(250)
    if comm.rank == 0:
        first, second = comm.isend(x, 1), comm.isend(x, 2)
        first.wait()
        second.wait()
    else:
        comm.recv(x, 0)


def test_a_senders_port_takes_one_message_at_a_time():
    run = dlviz.launch(two_sends, ranks=3, machine=machine(Topology.switch(3, LINK)))
    sent = run.trace.messages.sent
    assert abs(sent[1] - sent[0]) == pytest.approx(2e-3, abs=1e-9)


def across(comm):
    """Ranks 0 and 1 of one rack send to ranks 2 and 3 of the other at the same time."""
    comm.barrier()
    x = torch.zeros(250)
    if comm.rank < 2:
        comm.isend(x, comm.rank + 2).wait()
    else:
        comm.recv(x, comm.rank - 2)


def test_two_racks_share_the_link_between_them():
    slow = Link(1e-3, 1e5)
    topology = Topology.racks(2, 2, inside=Link(1e-4, 1e9), between=slow)
    run = dlviz.launch(across, ranks=4, machine=machine(topology))
    arrived = sorted(run.trace.messages.arrived - run.trace.messages.sent.min())
    assert arrived[1] - arrived[0] == pytest.approx(1000 / 1e5, rel=1e-6)


def collectives(comm):
    with comm.compute("forward", seconds=0.01 * (comm.rank + 1)):
        pass
    for _ in range(2):
        comm.all_reduce(torch.zeros(1000))


def test_the_backends_collective_starts_at_the_latest_rank_and_lasts_its_price():
    run = dlviz.launch(collectives, ranks=4, machine=machine(Topology.switch(4, LINK), gamma=1e-7))
    price = dlviz.sim.collective_seconds("ring", 4, 4000, 1e-3, 1e-6, 1e-7)
    ends = run.trace.only(kind="forward").spans.end
    spans = run.trace.only(kind="collective").spans
    first, second = spans.end[spans.sequence == 0], spans.end[spans.sequence == 1]
    assert first == pytest.approx(ends.max() + price, abs=1e-9)
    assert second == pytest.approx(ends.max() + 2 * price, abs=1e-9)


def test_adding_a_received_message_takes_gamma_a_byte():
    def worker(comm):
        comm.barrier()
        x = torch.ones(500)
        if comm.rank:
            comm.isend(x, 0).wait()
        else:
            comm.irecv(x, 1, op="sum").wait()
            with comm.compute("forward"):
                pass
        return x[0].item()

    run = dlviz.launch(worker, ranks=2, machine=machine(Topology.switch(2, LINK), gamma=1e-6))
    assert run.results == [2.0, 1.0]
    arrived = run.trace.messages.arrived[0]
    start = run.trace.only(kind="forward").spans.start[0]
    assert start - arrived == pytest.approx(2000e-6, abs=1e-9)


def test_a_synchronous_send_lasts_until_the_receiver_takes_the_message():
    def worker(comm):
        comm.barrier()
        x = torch.zeros(1)
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            with comm.compute("forward", seconds=0.03):
                pass
            comm.recv(x, 0)

    run = dlviz.launch(worker, ranks=2, machine=machine(Topology.switch(2, LINK)))
    forward_end = run.trace.only(kind="forward").spans.end[0]
    assert run.trace.only(kind="send").spans.end[0] == pytest.approx(forward_end, abs=1e-9)


def test_another_lanes_work_is_waited_for_in_device_time():
    def job(comm):
        with comm.compute("forward", seconds=0.03):
            pass
        return threading_name()

    def threading_name():
        import threading

        return threading.current_thread().name

    def worker(comm):
        lane = comm.lane("side")
        with comm.compute("forward", seconds=0.01):
            pass
        handle = lane.submit(job)
        with comm.compute("backward", seconds=0.01):
            pass
        result = handle.wait()
        with comm.compute("update"):
            pass
        return result

    run = dlviz.launch(worker, ranks=1, machine=machine(Topology.switch(1, LINK)))
    assert run.results == ["side"]
    rows = {(s.lane, s.kind): s for s in run.trace.spans.rows()}
    submitted = rows["compute", "forward"].end
    side = rows["side", "forward"]
    assert side.start == pytest.approx(submitted, abs=1e-9)
    assert rows["compute", "backward"].start == pytest.approx(submitted, abs=1e-9)
    assert rows["compute", "update"].start == pytest.approx(submitted + 0.03, abs=1e-9)


def test_what_comes_before_a_wait_for_a_lane_ends_at_its_own_time_by_the_wall():
    """Not when the wait is over: the picture would show a rank that waits as one that works."""

    def worker(comm):
        lane = comm.lane("side")

        def job(lane_comm):
            with lane_comm.compute("update", seconds=0.2):
                while not comm.process.board.get(0, WAITING):
                    time.sleep(0.002)
                time.sleep(0.1)

        handle = lane.submit(job)
        with comm.compute("forward", seconds=0.02):
            pass
        handle.wait()

    run = dlviz.launch(worker, 1, machine=machine(Topology.switch(1, Link(0, math.inf))))
    rows = {s.kind: s for s in run.trace.only(lane="compute").spans.rows()}
    assert rows["forward"].wall_end == rows["wait"].wall_start
    assert rows["wait"].wall_end - rows["wait"].wall_start > 0.02


def test_hold_sleeps_the_debt_off_at_once():
    def worker(comm):
        before = time.perf_counter()
        with comm.compute("forward", seconds=0.1):
            pass
        comm.hold()
        return time.perf_counter() - before

    (held,) = dlviz.launch(worker, ranks=1, machine=machine(Topology.switch(1, LINK))).results
    assert held > 0.09


def test_an_operation_that_the_machine_has_no_time_for_is_refused():
    def worker(comm):
        with comm.compute("compress"):
            pass

    with pytest.raises(dlviz.RankError, match="give seconds="):
        dlviz.launch(worker, ranks=1, machine=machine(Topology.switch(1, LINK)))


def test_a_paced_run_states_its_clock_machine_and_lateness():
    run = dlviz.launch(gpipe, ranks=2, machine=dlviz.machine.classroom(2), args=(2,))
    meta = run.trace.meta
    assert meta["clock"] == "paced" and "classroom" in meta["machine"]
    assert set(meta["lateness"]) == {"worst", "median"}
    assert meta["tolerance"] == 0.005
    assert not math.isnan(meta["lateness"]["worst"])


def test_a_lane_that_owes_time_at_the_end_still_gets_its_wall_times():
    def job(comm):
        with comm.compute("forward", seconds=0.05):
            pass

    def worker(comm):
        comm.lane("side").submit(job)

    run = dlviz.launch(worker, ranks=1, machine=machine(Topology.switch(1, LINK)))
    (row,) = run.trace.only(kind="forward").spans.rows()
    assert row.end - row.start == pytest.approx(0.05) and row.wall_end >= row.end - 1e-6


def test_a_lane_that_has_nothing_more_to_do_reads_the_clock_when_its_work_ends():
    def job(comm):
        with comm.compute("forward", seconds=0.02):
            pass

    def worker(comm):
        comm.lane("side").submit(job)
        with comm.compute("forward", seconds=0.5):
            pass

    for attempt in attempts():
        run = dlviz.launch(worker, ranks=1, machine=machine(Topology.switch(1, LINK)))
        (row,) = run.trace.only(lane="side").spans.rows()
        with attempt:
            assert row.wall_end - row.wall_start < 0.3


def test_a_paced_run_says_which_share_of_the_processors_other_programs_had():
    def compute(comm):
        with comm.compute("forward", seconds=0.4):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass

    slow = machine(Topology.switch(2, LINK))
    quiet = dlviz.launch(compute, 2, machine=slow).trace.meta["others"]
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        busy = dlviz.launch(compute, 2, machine=slow).trace.meta["others"]
        other.kill()
    assert 0 <= quiet <= 1 and busy > 0.15  # of two processors one has half
    uses = [{"elapsed": 2.0, "own": 1.0, "all": 5.0}, {"elapsed": 1.9, "own": 1.5, "all": 4.9}]
    assert share_of_others(uses) == round(2.5 / (2.0 * os.cpu_count()), 3)
    assert share_of_others([{**uses[0], "all": float("nan")}]) is None


def idle_lane(comm):
    def copy(own):
        with own.compute("copy", seconds=0.001):
            pass

    lane = comm.lane("beside")
    lane.submit(copy)
    for _ in range(20):
        with comm.compute("forward"):
            pass
    lane.close()


def test_a_lane_without_work_before_its_end_is_not_late():
    for attempt in attempts():
        with attempt:
            run = dlviz.launch(idle_lane, 1, machine=machine(Topology.switch(1, NO_LINK)))
            assert run.trace.meta["lateness"]["worst"] < 0.05  # the lane was idle for 99 ms
