"""Ring all-reduces as students write them, right and wrong, each a reduce-scatter or an all-gather
on the chunks of a rank's tensor. Imports nothing but torch: every rank loads this file."""

from __future__ import annotations

import os
import sys
import time

import torch


def neighbours(comm):
    return (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size


def scatter(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        sending = comm.isend(chunks[(comm.rank - step) % n], right)
        comm.recv(arriving, left)
        sending.wait()
        mine += arriving


def gather(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        sending = comm.isend(chunks[(comm.rank - step + 1) % n], right)
        comm.recv(chunks[(comm.rank - step) % n], left)
        sending.wait()


# -- right ones ------------------------------------------------------------------------------------


def scatter_by_sendrecv(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        outgoing, mine = chunks[(comm.rank - step) % n], chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(outgoing, right, mine, left, op="add")


def gather_posted_before(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    order = [chunks[(comm.rank + 1 - step) % n] for step in range(n)]
    arrivals = [comm.irecv(chunk, left) for chunk in order[1:]]
    sends = []
    for chunk, arrival in zip(order, arrivals, strict=False):
        sends.append(comm.isend(chunk, right))
        arrival.wait()
    for send in sends:
        send.wait()


def scatter_begun_elsewhere(comm, chunks):  # rank r ends with chunk r, not r + 1
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 2) % n]
        comm.sendrecv(chunks[(comm.rank - step - 1) % n], right, mine, left, op="add")


def gather_begun_elsewhere(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        arriving = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)


# -- wrong ones ------------------------------------------------------------------------------------


def adds_to_the_chunk_it_sent(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step) % n]
        arriving = torch.empty_like(chunks[(comm.rank - step - 1) % n])
        sending = comm.isend(mine, right)
        comm.recv(arriving, left)
        sending.wait()
        mine[: len(arriving)] += arriving[: len(mine)]


def sends_before_anyone_receives(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.send(chunks[(comm.rank - step) % n], right)
        comm.recv(arriving, left)
        mine += arriving


def receives_before_anyone_sends(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.recv(arriving, left)
        comm.send(chunks[(comm.rank - step) % n], right)
        mine += arriving


def broadcasts_everything(comm, chunks):
    own = torch.cat(chunks)
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sends = [comm.isend(own, rank) for rank in others]
    for rank in others:
        arriving = torch.empty_like(own)
        comm.recv(arriving, rank)
        for chunk, part in zip(chunks, arriving.tensor_split(comm.size), strict=True):
            chunk += part
    for send in sends:
        send.wait()


def nothing(comm, chunks):
    pass


def scatter_without_the_last_step(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 2):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, mine, left, op="add")


def gather_without_the_last_step(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 2):
        arriving = chunks[(comm.rank - step) % n]
        comm.sendrecv(chunks[(comm.rank - step + 1) % n], right, arriving, left)


def scatter_by_masks(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        outgoing, mine = chunks[comm.rank - step & n - 1], chunks[comm.rank - step - 1 & n - 1]
        arriving = torch.zeros_like(mine)
        sending = comm.isend(outgoing, right)
        comm.recv(arriving, left)
        sending.wait()
        mine += arriving


def gather_by_masks(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        arriving = torch.zeros_like(chunks[comm.rank - step & n - 1])
        sending = comm.isend(chunks[comm.rank - step + 1 & n - 1], right)
        comm.recv(arriving, left)
        sending.wait()
        chunks[comm.rank - step & n - 1].copy_(arriving)


def exchanges_across(comm, chunks):  # a butterfly: partners differ in one bit
    distance = 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        own = torch.cat(chunks)
        arriving = torch.empty_like(own)
        comm.sendrecv(own, partner, arriving, partner)
        for chunk, part in zip(chunks, arriving.tensor_split(comm.size), strict=True):
            chunk += part
        distance *= 2


def writes_into_what_it_sends(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    passing = torch.zeros(max(map(len, chunks)), dtype=chunks[0].dtype)
    passing[: len(chunks[comm.rank])] = chunks[comm.rank]
    for step in range(n - 1):
        outgoing, mine = chunks[(comm.rank - step) % n], chunks[(comm.rank - step - 1) % n]
        sending = comm.isend(passing[: len(outgoing)], right)
        comm.recv(passing[: len(mine)], left)
        mine += passing[: len(mine)]
        passing[: len(mine)] = mine
        sending.wait()


def never_waits(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.isend(chunks[(comm.rank - step) % n], right)
        comm.recv(arriving, left)
        mine += arriving


def reads_before_it_has_arrived(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.zeros_like(mine)
        receiving = comm.irecv(arriving, left)
        sending = comm.isend(chunks[(comm.rank - step) % n], right)
        mine += arriving
        receiving.wait()
        sending.wait()


def sends_twice(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        outgoing, mine = chunks[(comm.rank - step) % n], chunks[(comm.rank - step - 1) % n]
        arriving = mine.repeat(2)
        sending = comm.isend(outgoing.repeat(2), right)
        comm.recv(arriving, left)
        sending.wait()
        mine += arriving[: len(mine)]


def gather_twice(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step) % n]
        arriving = mine.repeat(2)
        sending = comm.isend(chunks[(comm.rank - step + 1) % n].repeat(2), right)
        comm.recv(arriving, left)
        sending.wait()
        mine.copy_(arriving[: len(mine)])


def sums_on_rank_0(comm, chunks):
    for chunk in chunks:
        for rank in range(1, comm.size):
            if comm.rank == 0:
                arriving = torch.empty_like(chunk)
                comm.recv(arriving, rank)
                chunk += arriving
            elif comm.rank == rank:
                comm.send(chunk, 0)


def spreads_from_rank_0(comm, chunks):
    for chunk in chunks:
        for rank in range(1, comm.size):
            if comm.rank == 0:
                comm.send(chunk, rank)
            elif comm.rank == rank:
                comm.recv(chunk, 0)


def scatters_directly(comm, chunks):
    n, mine = comm.size, chunks[(comm.rank + 1) % comm.size]
    others = [rank for rank in range(n) if rank != comm.rank]
    sends = [comm.isend(chunks[(rank + 1) % n], rank) for rank in others]
    for rank in others:
        arriving = torch.empty_like(mine)
        comm.recv(arriving, rank)
        mine += arriving
    for send in sends:
        send.wait()


def gathers_directly(comm, chunks):
    n, others = comm.size, [rank for rank in range(comm.size) if rank != comm.rank]
    sends = [comm.isend(chunks[(comm.rank + 1) % n], rank) for rank in others]
    for rank in others:
        comm.recv(chunks[(rank + 1) % n], rank)
    for send in sends:
        send.wait()


def takes_turns(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        outgoing, mine = chunks[(comm.rank - step) % n], chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        if comm.rank % 2 == 0:
            comm.send(outgoing, right)
            comm.recv(arriving, left)
        else:
            comm.recv(arriving, left)
            comm.send(outgoing, right)
        mine += arriving


def scatter_by_the_backend(comm, chunks):
    for chunk in chunks:
        comm.all_reduce(chunk)


def scatter_out_of_place(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        here = (comm.rank - step - 1) % n
        arriving = torch.empty_like(chunks[here])
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        chunks[here] = chunks[here] + arriving


def gather_out_of_place(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        here = (comm.rank - step) % n
        arriving = torch.empty_like(chunks[here])
        comm.sendrecv(chunks[(comm.rank - step + 1) % n], right, arriving, left)
        chunks[here] = arriving


def copies_in_reduce_scatter(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, mine, left)


def adds_in_all_gather(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        arriving = chunks[(comm.rank - step) % n]
        comm.sendrecv(chunks[(comm.rank - step + 1) % n], right, arriving, left, op="add")


def forgets_that_the_ring_is_closed(comm, chunks):
    comm.isend(chunks[comm.rank], comm.rank + 1)


def counts_one_chunk_too_far(comm, chunks):
    comm.isend(chunks[comm.rank + 1], (comm.rank + 1) % comm.size)


def sends_more_than_is_received(comm, chunks):
    gather(comm, chunks)
    comm.isend(chunks[0], (comm.rank + 1) % comm.size)


def only_some_go_on(comm, chunks):
    if comm.rank != 0:
        scatter(comm, chunks)


def not_written(comm, chunks):
    raise NotImplementedError()


def leaves(comm, chunks):
    if comm.rank == 1:
        os._exit(3)
    scatter(comm, chunks)


def never_ends(comm, chunks):
    while comm.size:
        pass


def sums_in_integers(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        mine.copy_(mine.long() + arriving.long())


def rounds_to_float32(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        mine.copy_(mine.float() + arriving.float())


def one_rank_forgotten(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    arriving = torch.empty_like(chunks[left])
    comm.sendrecv(chunks[comm.rank], right, arriving, left)
    chunks[left] += arriving
    for step in range(1, n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, mine, left, op="add")


def float32_buffer(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.zeros(len(mine))
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        mine += arriving


def mean_as_in_ddp(comm, chunks):
    scatter(comm, chunks)
    chunks[(comm.rank + 1) % comm.size] /= comm.size


def receives_from_the_right(comm, chunks):
    n, (_, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        sending = comm.isend(chunks[(comm.rank - step) % n], right)
        comm.recv(arriving, right)
        sending.wait()
        mine += arriving


def gather_by_broadcast(comm, chunks):
    for rank in range(comm.size):
        comm.broadcast(chunks[(rank + 1) % comm.size], rank)


def takes_chunks_off_the_list(comm, chunks):
    scatter(comm, chunks)
    chunks.clear()


def yields_its_steps(comm, chunks):
    scatter(comm, chunks)
    yield comm.rank


def adds_before_it_has_come(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        receiving = comm.irecv(arriving, left)
        sending = comm.isend(chunks[(comm.rank - step) % n], right)
        mine += arriving
        receiving.wait()
        sending.wait()


def never_asks_whether_it_came(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.irecv(mine, left, op="add")
        comm.isend(chunks[(comm.rank - step) % n], right).wait()


def all_sends_at_once(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    sends = [comm.isend(chunks[(comm.rank - step) % n], right) for step in range(n - 1)]
    for step in range(n - 1):
        arriving = torch.empty_like(chunks[(comm.rank - step - 1) % n])
        comm.recv(arriving, left)
        chunks[(comm.rank - step - 1) % n] += arriving
    for send in sends:
        send.wait()


def gather_starts_with_own_number(comm, chunks):
    gather_begun_elsewhere(comm, chunks)


def buffer_as_long_as_chunk_0(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        arriving = torch.empty_like(chunks[0])
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        chunks[(comm.rank - step - 1) % n] += arriving


def sender_skips_empty_chunks(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine, outgoing = chunks[(comm.rank - step - 1) % n], chunks[(comm.rank - step) % n]
        arriving = torch.empty_like(mine)
        sending = comm.isend(outgoing, right) if len(outgoing) else None
        comm.recv(arriving, left)
        if sending is not None:
            sending.wait()
        mine += arriving


def mpi_habits(comm, chunks):
    return comm.Get_rank()


def round_to_the_left(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank + step + 1) % n]
        comm.sendrecv(chunks[(comm.rank + step) % n], left, mine, right, op="add")


def gather_to_the_left(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        arriving = chunks[(comm.rank + step) % n]
        comm.sendrecv(chunks[(comm.rank + step - 1) % n], left, arriving, right)


def gather_one_lap_more(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n):
        arriving = chunks[(comm.rank - step) % n].clone()
        comm.sendrecv(chunks[(comm.rank - step + 1) % n], right, arriving, left)
        chunks[(comm.rank - step) % n].copy_(arriving)


def extra_step_scatter(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n):
        mine = chunks[(comm.rank - step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.sendrecv(chunks[(comm.rank - step) % n], right, arriving, left)
        mine += arriving


def acknowledges_each_chunk(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    note = torch.zeros(1)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, mine, left, op="add")
        comm.sendrecv(note, left, torch.zeros(1), right)


def whole_tensor_round(comm, chunks):
    (left, right) = neighbours(comm)
    passing, total = torch.cat(chunks), torch.cat(chunks)
    for _ in range(comm.size - 1):
        arriving = torch.empty_like(passing)
        comm.sendrecv(passing, right, arriving, left)
        total += arriving
        passing = arriving
    for chunk, part in zip(chunks, total.tensor_split(comm.size), strict=True):
        chunk.copy_(part)


def arguments_swapped(comm, chunks):
    comm.isend((comm.rank + 1) % comm.size, chunks[comm.rank])


def waits_at_a_barrier(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(chunks[(comm.rank - step) % n], right, mine, left, op="add")
        comm.barrier()


def sleeps(comm, chunks):
    time.sleep(60)


def grows(comm, chunks):
    rows = []
    while comm.size:
        rows.append(torch.empty(2**20))


def not_on_two_ranks(comm, chunks):
    if comm.size != 2:
        scatter(comm, chunks)


def four_ranks_only(comm, chunks):
    left, right = (comm.rank - 1) % 4, (comm.rank + 1) % 4
    for step in range(3):
        mine = chunks[(comm.rank - step - 1) % 4]
        comm.sendrecv(chunks[(comm.rank - step) % 4], right, mine, left, op="add")


def first_has_no_left_neighbour(comm, chunks):
    comm.irecv(torch.empty_like(chunks[0]), comm.rank - 1)


def hides_its_errors(comm, chunks):
    n = comm.size
    try:
        for step in range(n - 1):
            mine = chunks[(comm.rank - step - 1) % n]
            arriving = torch.empty_like(mine)
            sending = comm.isend(chunks[(comm.rank - step) % n], comm.rank + 1)
            comm.recv(arriving, comm.rank - 1)
            sending.wait()
            mine += arriving
    except:  # noqa: E722
        pass


def counts_the_other_way(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        mine = chunks[(comm.rank + step - 1) % n]
        arriving = torch.empty_like(mine)
        comm.sendrecv(chunks[(comm.rank + step) % n], right, arriving, left)
        mine += arriving


def sends_its_own_each_time(comm, chunks):
    n, (left, right) = comm.size, neighbours(comm)
    own = [chunk.clone() for chunk in chunks]
    for step in range(n - 1):
        mine = chunks[(comm.rank - step - 1) % n]
        comm.sendrecv(own[(comm.rank - step) % n], right, mine, left, op="add")


def gathers_the_mean(comm, chunks):
    gather(comm, chunks)
    for chunk in chunks:
        chunk /= comm.size


# -- attacks ---------------------------------------------------------------------------------------


def scatter_by_torch(comm, chunks):
    for chunk in chunks:
        torch.distributed.all_reduce(chunk)


def pretends(comm, chunks):
    """As many messages as a ring's, with nothing in them that is of use."""
    n, (left, right) = comm.size, neighbours(comm)
    for step in range(n - 1):
        idle = torch.empty_like(chunks[(comm.rank - step - 1) % n])
        comm.sendrecv(chunks[(comm.rank - step) % n].clone(), right, idle, left)


def works_the_sum_out_alone(comm, chunks):
    """Numbers that could be known in advance, as those of viz.encode."""
    from dlviz.viz import encode

    cells = sum(map(len, chunks))
    total = sum(torch.tensor(encode(rank, comm.size, cells)) for rank in range(comm.size))
    pretends(comm, chunks)
    for chunk, part in zip(chunks, total.tensor_split(comm.size), strict=True):
        chunk.copy_(part)


def reads_the_checkers_frame(comm, chunks):
    """The start of every rank, wherever a caller may hold it."""
    pretends(comm, chunks)
    frame, cells = sys._getframe(1), sum(map(len, chunks))
    while frame is not None:
        for value in list(frame.f_locals.values()):
            rows = value if isinstance(value, list | tuple) else [value]
            found = [row for row in rows if hasattr(row, "__len__") and len(row) == cells]
            if len(found) == comm.size > 1:
                total = sum(torch.as_tensor(row, dtype=torch.float64) for row in found)
                for chunk, part in zip(chunks, total.tensor_split(comm.size), strict=True):
                    chunk.copy_(part)
        frame = frame.f_back


def scatter_of_the_library(comm, chunks):
    from dlviz.collectives import ring

    ring.reduce_scatter(comm, chunks[0]._base)


def gather_of_the_library(comm, chunks):
    from dlviz.collectives import ring

    ring.all_gather(comm, chunks[0]._base)


def library_below_the_call(comm, chunks):
    from dlviz.collectives.ring import once_round

    once_round(comm, range(comm.size), chunks, 0, "add", first_step=0)


def all_reduces_and_pretends(comm, chunks):
    for chunk in chunks:
        comm.all_reduce(chunk)
    pretends(comm, chunks)


def blinds_the_guard(comm, chunks):
    from dlviz.grading.harness.guard import Guard

    Guard.faults = lambda self: []
    never_waits(comm, chunks)


def changes_the_judge(comm, chunks):
    """What it changes in its own process changes nothing in the one that judges."""
    from dlviz.grading.assignments.ring_all_reduce import checks as ring_checks

    torch.equal = torch.allclose = lambda *_, **__: True
    ring_checks._check_scattered = ring_checks._check_sends = lambda *_: None
