"""The ways of a message's bytes: what holds on each of them, and which one is taken."""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from random_programs import check, check_sent, sums, wait_shuffled, wrong
from timing import attempts

import dlviz
from dlviz.cluster import DeadlockError, RankError, launch
from dlviz.cluster.control import waiting
from dlviz.cluster.control.board import ACTIVITY
from dlviz.cluster.control.form import DTYPES, form_of
from dlviz.cluster.control.group import CALLS, SHORT
from dlviz.cluster.control.pipes import (
    HEAD,
    INLINE,
    LONGEST,
    SOURCE,
    TAKEN,
    Inbox,
    Pipes,
    bell,
    refusal,
)
from dlviz.cluster.groups.reduction import LONG
from dlviz.cluster.messages.buffers import OutstandingSends
from dlviz.cluster.messages.requests import PIECE
from dlviz.machine import Link, Machine, Topology, classroom

WAYS = ("memory", "files", "gloo")


def thinned(cases, now):
    """Of all cases those that are for now, so that each value is among them; all in the sweep."""
    return [pytest.param(*each, marks=() if each in now else pytest.mark.sweep) for each in cases]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", request.param)
    return request.param


def test_the_fastest_way_is_taken_and_another_where_it_is_asked_for(way):
    assert launch(lambda comm: comm.process.transport.name, 2).results == [way] * 2


def test_a_way_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", "pigeon")
    with pytest.raises(RankError, match="DLVIZ_TRANSPORT='pigeon' is no transport: use memory"):
        launch(lambda comm: None, 2)


def test_where_one_rank_may_not_read_anothers_memory_all_take_files():
    def worker(comm):
        from dlviz.cluster.transport import choose
        from dlviz.cluster.transport.memory import Memory

        class Refused(Memory):
            def pull(self, src, slot, address, target):
                if comm.rank == 1:
                    raise PermissionError(1, "Operation not permitted")
                super().pull(src, slot, address, target)

        choose.Memory = Refused
        process = comm.process
        chosen = choose.choose(process.folder, comm.rank, process.board, process.gloo, comm.barrier)
        return chosen.name

    assert launch(worker, 3).results == ["files"] * 3


def test_files_lie_on_the_disk_where_shared_memory_is_small_and_go_with_the_run(monkeypatch):
    def worker(comm):
        from dlviz.cluster.parent.start import on_disk
        from dlviz.cluster.transport import choose

        choose.ENOUGH = 2**60
        place = choose.place_of_files(comm.process.folder)
        assert place == on_disk(comm.process.folder)
        return place, os.path.isdir(place)

    ((place, there),) = launch(worker, 1).results
    assert there and not os.path.exists(place)


# -- messages --------------------------------------------------------------------------------------
# Of float64. The first three follow their headers.
LENGTHS = (0, 1, LONGEST // 8, LONGEST // 8 + 1, PIECE // 8 - 1, PIECE // 8, 3 * PIECE // 8 + 5)


def test_every_length_and_way_to_receive_brings_what_was_sent(way):
    def worker(comm):
        wrong = []
        for length, op in product(LENGTHS, ("copy", "sum", "max", "min", "product")):
            sent = torch.arange(length, dtype=torch.float64) * (comm.rank + 1)
            came = torch.full((length,), 2.5, dtype=torch.float64)
            other = torch.arange(length, dtype=torch.float64) * (2 - comm.rank)
            what = {
                "copy": other, "sum": came + other, "max": torch.maximum(came, other),
                "min": torch.minimum(came, other), "product": came * other,
            }[op]  # fmt: skip
            comm.sendrecv(sent, 1 - comm.rank, came, 1 - comm.rank, op=op)
            if not torch.equal(came, what):
                wrong.append((length, op))
        return wrong

    assert launch(worker, 2).results == [[], []]


def test_every_dtype_and_tensors_that_are_not_contiguous_or_want_gradients(way):
    def worker(comm):
        wrong = []
        for dtype in DTYPES:
            whole = torch.zeros(60, 140, dtype=dtype)
            whole[:] = (torch.arange(8400).view(60, 140) % 3).to(dtype)
            here = torch.zeros(140, 60, dtype=dtype).t()
            if comm.rank == 0:
                comm.send(whole, 1)
                comm.send(whole[:, ::2], 1)
                comm.send(torch.tensor(1, dtype=dtype), 1)
            else:
                part, one = torch.zeros(60, 70, dtype=dtype), torch.zeros((), dtype=dtype)
                for tensor in (here, part, one):
                    comm.recv(tensor, 0)
                right = torch.equal(here, whole) and torch.equal(part, whole[:, ::2])
                if not (right and one.item() == 1):
                    wrong.append(str(dtype))
        weight = torch.ones(3, requires_grad=True)
        comm.sendrecv(weight * 2, 1 - comm.rank, weight.data, 1 - comm.rank)
        return wrong, weight.tolist(), weight.requires_grad

    assert launch(worker, 2).results == [([], [2.0] * 3, True)] * 2


@pytest.mark.parametrize("length", [2, 1000])
def test_tags_in_any_order_receives_ahead_and_sends_that_nobody_waits_for(way, length):
    def worker(comm):
        other, many = 1 - comm.rank, 300
        landed = [torch.zeros(length) for _ in range(many)]
        ahead = [comm.irecv(landed[i], other, tag=i % 3) for i in range(0, many, 2)]
        for i in range(many):
            comm.isend(torch.full((length,), float(i)), other, tag=i % 3)
        for receive in reversed(ahead):
            receive.wait()
        for i in range(1, many, 2):
            comm.recv(landed[i], other, tag=i % 3)
        return [int(tensor[0]) for tensor in landed]

    # Of each tag the messages come in order: the even places were posted first.
    expected = [0] * 300
    for tag in range(3):
        places = [i for i in range(0, 300, 2) if i % 3 == tag]
        places += [i for i in range(1, 300, 2) if i % 3 == tag]
        for place, sent in zip(places, range(tag, 300, 3), strict=True):
            expected[place] = sent
    assert launch(worker, 2).results == [expected] * 2


@pytest.mark.parametrize("length", [1, 1000])
def test_more_messages_than_a_pipe_takes_wait_for_room(way, length):
    def worker(comm):
        count = 3000 if length == 1 else 500  # 2 MB
        if comm.rank == 0:
            for i in range(count):
                comm.isend(torch.full((length,), float(i)), 1)
        else:
            time.sleep(0.3)  # the pipe is full by then
            came, seen = torch.zeros(length), []
            for _ in range(count):
                comm.recv(came, 0)
                seen.append(came[-1].item())
            return seen == list(range(count))

    assert launch(worker, 2).results[1] is True


def test_what_is_sent_next_never_overwrites_what_is_on_its_way(way):
    def worker(comm):
        tensor = torch.zeros(5000)
        if comm.rank == 0:
            for _ in range(200):
                comm.isend(tensor, 1).wait()
                tensor += 1
        else:
            return [comm.recv(tensor, 0) or tensor.unique().tolist() for _ in range(200)]

    assert launch(worker, 2).results[1] == [[float(i)] for i in range(200)]


def test_records_that_are_read_in_two_parts_are_put_together():
    form = form_of((5,), torch.float64)
    head = HEAD.pack(3 * SOURCE + 7, INLINE, 11, 12, 0, 13, 0.5, form)
    data = head + bytes(range(40)) + refusal(9, form) + bell(5) + head + bytes(range(40, 80))
    for cut in range(len(data)):
        inbox = Inbox()
        came = [*inbox.headers(data[:cut]), *inbox.headers(data[cut:])]
        assert [each.data for each in came] == [bytes(range(40)), bytes(range(40, 80))]
        assert {(each.src, each.key, each.slot) for each in came} == {(3, 7, 12)}
        assert inbox.refused == {9: form} and inbox.heard == {3: 2, 5: 1}


def test_what_is_written_to_a_rank_that_is_not_there_yet_waits_for_it(tmp_path):
    early = Pipes(str(tmp_path), 0, 2)
    early.ring(1)
    late = Pipes(str(tmp_path), 1, 2)
    inbox = Inbox()
    assert not [*inbox.headers(late.read())] and inbox.heard == {0: 1}
    for pipes in (early, late):
        pipes.close()


def test_three_threads_of_a_rank_wait_at_once(way):
    def worker(comm):
        lanes = [comm.lane(f"lane {i}") for i in range(3)]

        def exchange(comm, scale):
            total = 0.0
            for i in range(60):
                came = torch.zeros(2000)
                comm.sendrecv(torch.full((2000,), i * scale), 1 - comm.rank, came, 1 - comm.rank)
                total += came[7].item()
            return total

        handles = [lane.submit(exchange, float(i + 1)) for i, lane in enumerate(lanes)]
        own = exchange(comm, 10.0)
        return [own, *(handle.wait() for handle in handles)]

    each = sum(range(60))
    assert launch(worker, 2).results == [[10.0 * each, each, 2.0 * each, 3.0 * each]] * 2


def test_a_rank_that_computes_is_served_so_that_its_sender_goes_on():
    def worker(comm):
        comm.barrier()
        if comm.rank == 0:
            came = torch.zeros(10)
            request = comm.irecv(came, 1)
            time.sleep(2.0)
            request.wait()
            return came[0].item()
        time.sleep(0.2)
        start = time.perf_counter()
        comm.send(torch.ones(10), 0)
        return time.perf_counter() - start

    for attempt in attempts():
        came, waited = launch(worker, 2).results
        assert came == 1.0
        with attempt:
            assert waited < 1.0


@pytest.mark.filterwarnings("ignore:rank 1 sent rank 0 a message that it never received")
def test_a_rank_that_has_finished_still_takes_what_it_posted():
    def worker(comm):
        if comm.rank == 0:
            comm.irecv(torch.zeros(10), 1)
        else:
            time.sleep(0.5)
            comm.send(torch.ones(10), 0)

    launch(worker, 2, timeout=20)


def test_waiting_leaves_the_cores_to_others():
    def worker(comm):
        if comm.rank == 0:
            time.sleep(2.0)
            comm.send(torch.zeros(1), 1)
            comm.send(torch.zeros(1), 2)
        start = time.process_time()
        if comm.rank == 1:
            comm.irecv(torch.zeros(1), 0).wait()
        elif comm.rank == 2:
            comm.recv(torch.zeros(1))
        comm.barrier()
        return time.process_time() - start

    for attempt in attempts():
        took = launch(worker, 4).results
        with attempt:
            assert max(took) < 0.15  # s of the 2 that they waited


def test_a_rank_sleeps_only_for_what_takes_longer_than_a_wake():
    """What comes while it looks costs no sleep, and so registers no wait; a wake is measured."""

    def worker(comm):
        ball, board, rank = torch.zeros(1), comm.process.board, comm.rank

        def slept(trips, pause):
            before = board.get(rank, ACTIVITY)
            for _ in range(trips):
                if rank == 0:
                    time.sleep(pause)
                    comm.isend(ball, 1).wait()
                    comm.recv(ball, 1)
                else:
                    comm.recv(ball, 0)
                    comm.isend(ball, 0).wait()
            return (board.get(rank, ACTIVITY) - before) / 2  # sleeps

        slept(50, 0.0)
        often, seldom = slept(100, 0.005), slept(400, 0.0)
        return often, seldom, comm.waiting.wake

    for attempt in attempts():
        (_, seldom, _), (often, seldom_too, wake) = launch(worker, 2).results
        with attempt:
            assert often >= 100  # rank 1, for each of the first
            assert seldom + seldom_too < 400
            assert waiting.SHORTEST <= wake <= waiting.LONGEST


def test_two_ranks_that_wait_for_their_sends_take_each_others_messages_before_they_sleep():
    def worker(comm):
        own, other, partner = torch.ones(300), torch.zeros(300), 1 - comm.rank
        before = comm.process.board.get(comm.rank, ACTIVITY)
        for _ in range(200):
            receive = comm.irecv(other, partner)
            comm.isend(own, partner).wait()
            receive.wait()
        assert torch.equal(other, own)
        return comm.process.board.get(comm.rank, ACTIVITY) - before

    for attempt in attempts():
        counts = launch(worker, 2).results
        with attempt:
            assert sum(counts) < 400  # twice for each sleep: each slept in every round


# -- the backend's own collectives -----------------------------------------------------------------
SIZES = (0, 1, SHORT // 4, SHORT // 4 + 1, LONG // 4, LONG // 4 + 3, 2 * LONG // 4 + 1)  # float32


@pytest.mark.parametrize(
    ("way", "ranks"),
    thinned(
        product(WAYS, (1, 2, 3, 5, 9)), [("memory", 5), ("files", 3), ("gloo", 2), ("memory", 1)]
    ),
    indirect=["way"],
)
def test_collectives_of_every_size_give_what_their_names_say(way, ranks):
    def worker(comm):
        n, wrong = comm.size, []
        for length in SIZES:

            def make(rank, length=length):
                return torch.arange(length, dtype=torch.float32) % 13 + rank + 1

            every, mine = [make(rank) for rank in range(n)], make(comm.rank)
            stack = torch.stack(every)
            for op, result in {
                "sum": stack.sum(0), "max": stack.amax(0) if length else mine,
                "min": stack.amin(0) if length else mine, "product": stack.prod(0),
                "avg": stack.mean(0),
            }.items():  # fmt: skip
                tensor = mine.clone()
                comm.all_reduce(tensor, op)
                wrong += [] if torch.allclose(tensor, result) else [("all_reduce", op, length)]
                tensor = mine.clone()
                comm.reduce(tensor, n - 1, op)
                if comm.rank == n - 1 and not torch.allclose(tensor, result):
                    wrong.append(("reduce", op, length))
            tensor = mine.clone()
            comm.broadcast(tensor, n - 1)
            wrong += [] if torch.equal(tensor, every[-1]) else [("broadcast", length)]
            whole = torch.zeros(n * length)
            comm.all_gather(whole, mine)
            wrong += [] if torch.equal(whole, torch.cat(every)) else [("all_gather", length)]
            part = torch.zeros(length)
            comm.reduce_scatter(part, torch.cat([make(r + comm.rank) for r in range(n)]))
            expected = sum(make(comm.rank + r) for r in range(n))
            wrong += [] if torch.allclose(part, expected) else [("reduce_scatter", length)]
            comm.reduce_scatter(part, torch.cat([make(r + comm.rank) for r in range(n)]), "avg")
            wrong += [] if torch.allclose(part, expected / n) else [("average part", length)]
            found = [torch.zeros(length) for _ in range(n)] if comm.rank == n - 1 else None
            comm.gather(mine, found, n - 1)
            if found is not None and not all(map(torch.equal, found, every)):
                wrong.append(("gather", length))
            part = torch.zeros(length)
            comm.scatter(part, torch.cat(every) if comm.rank == n - 1 else None, n - 1)
            wrong += [] if torch.equal(part, mine) else [("scatter", length)]
            out = torch.zeros(n * length)
            comm.all_to_all(out, torch.cat([make(10 * comm.rank + r) for r in range(n)]))
            expected = torch.cat([make(10 * r + comm.rank) for r in range(n)])
            wrong += [] if torch.equal(out, expected) else [("all_to_all", length)]
        return wrong

    assert launch(worker, ranks).results == [[]] * ranks


def test_all_gather_takes_tensors_of_two_dimensions_and_lists(way):
    def worker(comm):
        mine = torch.full((2, 3), float(comm.rank))
        whole, parts = torch.zeros(4, 3), [torch.zeros(2, 3) for _ in range(2)]
        comm.all_gather(whole, mine)
        comm.all_gather(parts, mine.t().contiguous().t())
        return whole.tolist() == [[0.0] * 3] * 2 + [[1.0] * 3] * 2 and torch.equal(
            torch.cat(parts), whole
        )

    assert launch(worker, 2).results == [True, True]


def test_a_sum_is_the_same_to_the_bit_on_every_rank(way):
    def worker(comm):
        torch.manual_seed(comm.rank)
        found = []
        for length in (100, 5000, 300_000):
            tensor = torch.randn(length)
            comm.all_reduce(tensor)
            found.append(tensor.numpy().tobytes())
        return found

    first, *others = launch(worker, 4).results
    assert all(each == first for each in others)


def test_a_thousand_collectives_in_a_row_never_mix(way):
    def worker(comm):
        wrong = 0
        for i in range(1000 if comm.process.transport.reaches else 200):
            tensor = torch.full((3 if i % 3 else 4000,), float(i + comm.rank))
            comm.all_reduce(tensor)
            wrong += not bool((tensor == 3 * i + 3).all())
            if i % 5 == 0:
                comm.broadcast(tensor, i % 3)
        return wrong

    assert launch(worker, 3).results == [0] * 3


def test_groups_and_lanes_have_collectives_of_their_own_at_the_same_time(way):
    def worker(comm):
        row, lane = comm.split(comm.rank % 2), comm.lane("comm")

        def sums(comm, times):
            total = torch.zeros(1)
            for i in range(times):
                one = torch.tensor([float(i)])
                comm.all_reduce(one)
                total += one
            return total.item()

        handle = lane.submit(sums, 2 * CALLS)
        inside = sums(row, 2 * CALLS)
        return handle.wait(), inside

    each = sum(range(2 * CALLS))
    assert launch(worker, 4).results == [(4.0 * each, 2.0 * each)] * 4


@pytest.mark.parametrize(
    ("way", "lane", "late"),
    thinned(
        product(WAYS, (False, True), (0, 1)),
        [("memory", True, 0), ("memory", False, 1), ("files", True, 1), ("gloo", False, 0)],
    ),
    indirect=["way"],
)
def test_a_collective_that_is_not_the_others_is_always_named(way, lane, late):
    def worker(comm):
        def differ(comm):
            for _ in range(70):  # more than a member's calls are remembered
                comm.barrier()
            if comm.rank == late:
                time.sleep(0.1)
            if comm.rank == 0:
                comm.reduce_scatter(torch.zeros(4), torch.zeros(8))
            else:
                comm.all_to_all(torch.zeros(8), torch.zeros(8))

        if lane:
            comm.lane("comm").submit(differ).wait()
        else:
            differ(comm)

    with pytest.raises(RankError, match="collective mismatch: as call number 70 .* makes all_to_a"):
        launch(worker, 2)


# -- what a run leaves and needs -------------------------------------------------------------------
@pytest.mark.slow
def test_64_ranks_talk_all_to_all_in_little_memory():
    def worker(comm):
        came = [torch.zeros(4) for _ in range(comm.size)]
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        receives = [comm.irecv(came[rank], rank) for rank in others]
        for rank in others:
            comm.isend(torch.full((4,), float(comm.rank)), rank)
        for receive in receives:
            receive.wait()
        comm.barrier()
        used = sum(file.stat().st_blocks * 512 for file in Path(comm.process.folder).iterdir())
        right = all(came[rank][0] == rank for rank in others)
        return right, used, len(os.listdir("/proc/self/fd"))

    results = launch(worker, 64, timeout=300).results
    assert all(right for right, _, _ in results)
    assert max(used for _, used, _ in results) < 16e6  # bytes of shared memory, of all ranks
    assert max(handles for _, _, handles in results) < 300


@pytest.mark.filterwarnings("ignore:the run (was up to|could not)")  # device time is what it is
def test_a_paced_run_has_the_same_device_times_on_every_way(monkeypatch):
    def worker(comm):
        tensor = torch.ones(1000)
        comm.barrier()  # all start together
        for _ in range(3):
            with comm.compute("forward"):
                pass
            dlviz.collectives.ring.all_reduce(comm, tensor)
            comm.all_reduce(tensor)
        comm.send(tensor, 1) if comm.rank == 0 else None
        comm.recv(tensor, 0) if comm.rank == 1 else None

    times = []
    for way in WAYS:
        monkeypatch.setenv("DLVIZ_TRANSPORT", way)
        trace = launch(worker, 3, machine=classroom(3)).trace
        columns = trace.messages.frame().sort_values(["src", "sent"])
        base = columns.sent.min()
        times.append(
            [
                (
                    int(row.src),
                    int(row.dst),
                    round(row.sent - base, 9),
                    round(row.received - base, 9),
                )
                for row in columns.itertuples()
            ]
        )
    assert times[0] == times[1] == times[2] and len(times[0]) == 3 * 12 + 1


def test_a_rank_that_is_killed_while_others_read_its_memory_is_named():
    def worker(comm):
        if comm.rank == 1:
            comm.isend(torch.zeros(50_000_000), 0)
            os.kill(os.getpid(), 9)
        time.sleep(0.3)
        comm.recv(torch.zeros(50_000_000), 1)

    with pytest.raises(RankError) as caught:
        launch(worker, 2)
    assert caught.value.rank == 1 and caught.value.exitcode == -9


def test_nobody_waits_for_ever_where_a_collective_meets_a_receive(way):
    def worker(comm):
        if comm.rank == 0:
            comm.barrier()
        else:
            comm.recv(torch.zeros(1), 0)

    with pytest.raises(DeadlockError) as caught:
        launch(worker, 2, timeout=60)
    assert {wait.op for wait in caught.value.waits} == {"barrier", "recv"}


def test_a_rank_holds_no_more_descriptors_after_many_groups():
    def worker(comm):
        comm.split(0).barrier()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            comm.split(0).all_reduce(torch.ones(1))
        return len(os.listdir("/proc/self/fd")) - before

    assert max(launch(worker, 2).results) <= 1


# -- random programs -------------------------------------------------------------------------------
def program(seed, ranks, length=120):
    """Messages of a random program: (src, dst, tag, elements), the same on every rank."""
    draw = random.Random(seed)
    sizes = (0, 7, LONGEST // 4, LONGEST // 4 + 1, PIECE // 4 + 1)
    found = []
    for _ in range(length):
        src, dst = draw.sample(range(ranks), 2)
        found.append((src, dst, draw.randrange(3), draw.choice(sizes)))
    return found


def carry_out(comm, seed):
    """Every rank sends in order and receives in an order of its own, some receives posted ahead;
    between them it takes part in collectives of the whole group, and of its half on a lane."""
    messages, draw = program(seed, comm.size), random.Random(seed * 100 + comm.rank)
    half, lane = comm.split(comm.rank % 2), comm.lane("side")
    beside = lane.submit(sums, half, 5, lambda tensor: tensor)
    sends, receives = [], []
    for number, (src, dst, tag, length) in enumerate(messages):
        if src == comm.rank:
            sends.append(comm.isend(torch.full((length,), float(number)), dst, tag))
        elif dst == comm.rank:
            op = draw.choice(("copy", "sum", "max", "min", "product"))
            target = torch.full((length,), -1.0)
            receives.append((comm.irecv(target, src, tag, op=op), target, number, op))
        if number % 30 == 29:
            comm.barrier()
            wait_shuffled(receives[::2], draw)
    wait_shuffled(receives, draw)
    for send in sends:
        send.wait()
    return wrong(receives), beside.wait()


def check_random_program(seed, ranks, machine=None):
    run = launch(carry_out, ranks, machine=machine, args=(seed,))
    check(run.results)
    check_sent(run.trace, program(seed, ranks))


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in (1, 2))]
)
def test_a_random_program_brings_every_message_to_its_receive(way, seed):
    check_random_program(seed, 2 + seed)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4, 60))
def test_many_random_programs_bring_every_message_to_its_receive(way, seed):
    check_random_program(seed, 2 + seed % 5)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:the run (was up to|could not)")
@pytest.mark.parametrize("seed", range(20))
def test_random_programs_on_paced_machines(seed):
    ranks = 2 + seed % 4
    link = Link(1e-4, 1e9)
    network = Topology.ring(ranks, link) if seed % 2 and ranks > 2 else Topology.switch(ranks, link)
    check_random_program(seed, ranks, Machine(classroom(ranks).device, network))


def test_threads_of_a_rank_that_send_at_the_same_time_never_share_a_tick():
    cells = 99
    board = SimpleNamespace(
        cells=[0] * cells, times=[0.0] * cells, completion_slots=lambda rank: range(3, cells, 3)
    )
    sending = OutstandingSends(board, rank=0)

    def send(count):
        for number in range(count):
            request = SimpleNamespace(awaited=False, slot=0, wire=None)
            while not sending.begin(request):
                time.sleep(0)
            assert sending.in_flight[request.slot] is request
            waits = number % 2  # the others are left to whoever looks for a slot
            if waits:
                sending.claim(request)
            board.cells[request.slot] = TAKEN  # as its receiver does
            if waits:
                sending.end(request)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(send, 5000) for _ in range(4)]:
                done.result()
    finally:
        sys.setswitchinterval(switching)
