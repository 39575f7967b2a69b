"""Comm: what arrives is what was sent, and what is recorded is what happened."""

import threading

import pytest
import torch

import dlviz
from dlviz.cluster import grid_of
from dlviz.cluster.control.form import form_of
from dlviz.cluster.messages.buffers import BufferPool

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def exchange(comm):
    """Every kind of tensor from rank 0 to rank 1; returns whether each came unchanged."""
    tensors = [torch.arange(6).to(dtype) for dtype in DTYPES]
    tensors += [torch.zeros(0), torch.tensor(3.5), torch.ones(2, 0, 3), torch.ones(1, 2, 1, 3, 1)]
    tensors += [torch.arange(12.0).view(3, 4).t(), torch.arange(20.0)[::3]]
    if comm.rank == 0:
        for tensor in tensors:
            comm.send(tensor, 1)
        return None
    same = []
    for tensor in tensors:
        found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        comm.recv(found, 0)
        same.append(torch.equal(found, tensor))
    return same


def test_tensors_of_every_dtype_and_layout_arrive_unchanged():
    run = dlviz.launch(exchange, ranks=2)
    assert all(run.results[1]) and len(run.results[1]) == 18
    run.trace.validate()
    assert run.trace.messages.nbytes[:3].tolist() == [24, 48, 12]


def test_messages_with_one_tag_keep_their_order_and_tags_do_not_mix():
    def worker(comm):
        if comm.rank == 0:
            sends = [comm.isend(torch.tensor([float(i)]), 1, tag=i % 2) for i in range(6)]
            for send in sends:
                send.wait()
            return None
        found = []
        x = torch.empty(1)
        for tag in (1, 1, 0, 1, 0, 0):
            comm.recv(x, 0, tag=tag)
            found.append(x.item())
        return found

    run = dlviz.launch(worker, ranks=2)
    assert run.results[1] == [1, 3, 0, 5, 2, 4]
    assert sorted(run.trace.messages.tag) == [0, 0, 0, 1, 1, 1]


def test_a_receive_from_any_source_says_who_it_was():
    def worker(comm):
        x = torch.tensor([10 * comm.rank])
        if comm.rank:
            comm.send(x, 0)
            return None
        return sorted((comm.recv(x), x.item()) for _ in range(comm.size - 1))

    assert dlviz.launch(worker, ranks=4).results[0] == [(1, 10), (2, 20), (3, 30)]


def test_a_message_can_be_added_to_what_the_tensor_holds():
    def worker(comm):
        x = torch.full((3,), 1.0 + comm.rank)
        y = torch.full((3,), 10.0)
        comm.sendrecv(x, (comm.rank + 1) % 3, y, (comm.rank - 1) % 3, op="sum")
        return y.tolist()

    run = dlviz.launch(worker, ranks=3)
    assert [y[0] for y in run.results] == [13, 11, 12]
    assert set(run.trace.messages.op) == {"sum"}


def test_the_larger_of_a_message_and_what_the_tensor_holds_can_be_kept():
    def worker(comm):
        matrix = torch.arange(6.0).view(2, 3)
        comm.watch(matrix)
        columns = matrix[:, 1:]  # not contiguous
        comm.sendrecv(torch.full((2, 2), 3.0), 1 - comm.rank, columns, 1 - comm.rank, op="max")
        return matrix.tolist()

    run = dlviz.launch(worker, ranks=2)
    assert run.results == [[[0, 3, 3], [3, 4, 5]]] * 2
    assert set(run.trace.messages.op) == {"max"}
    assert "maximum taken" in dlviz.viz.timeline(run.trace).to_json()


def test_more_messages_than_the_board_holds_are_sent_ahead():
    def worker(comm):
        if comm.rank == 0:
            sends = [comm.isend(torch.tensor([i]), 1) for i in range(700)]
            for send in sends:
                send.wait()
            return 0
        x, total = torch.empty(1, dtype=torch.int64), 0
        for _ in range(700):
            comm.recv(x, 0)
            total += x.item()
        return total

    assert dlviz.launch(worker, ranks=2).results[1] == 699 * 350


def collectives(comm):
    r, n = comm.rank, comm.size
    found = {}
    x = torch.arange(4.0) + r
    comm.broadcast(x, src=n - 1)
    found["broadcast"] = x
    x = torch.arange(4.0).view(2, 2).t() * (r + 1)
    comm.all_reduce(x)
    found["all_reduce"] = x
    x = torch.tensor([float(r), -float(r)])
    comm.all_reduce(x, "max")
    found["max"] = x
    x = torch.tensor([r + 1])
    comm.reduce(x, dst=0, op="product")
    found["reduce"] = x if r == 0 else None
    out = torch.empty(n, 2)
    comm.all_gather(out, torch.tensor([float(r), 2.0 * r]))
    found["all_gather"] = out
    parts = [torch.empty(1) for _ in range(n)]
    comm.all_gather(parts, torch.tensor([float(r)]))
    found["gathered list"] = torch.cat(parts)
    out = torch.empty(2)
    comm.reduce_scatter(out, torch.arange(2.0 * n) * (r + 1))
    found["reduce_scatter"] = out
    out = torch.empty(n)
    comm.all_to_all(out, torch.arange(float(n)) + 10 * r)
    found["all_to_all"] = out
    comm.barrier()
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_backends_collectives_give_their_closed_forms(n):
    run = dlviz.launch(collectives, ranks=n)
    total = n * (n + 1) // 2
    for r, found in enumerate(run.results):
        assert torch.equal(found["broadcast"], torch.arange(4.0) + n - 1)
        assert torch.equal(found["all_reduce"], torch.arange(4.0).view(2, 2).t() * total)
        assert found["max"].tolist() == [n - 1, 0]
        assert torch.equal(
            found["all_gather"], torch.arange(float(n))[:, None] * torch.tensor([1.0, 2])
        )
        assert torch.equal(found["gathered list"], torch.arange(float(n)))
        assert found["reduce_scatter"].tolist() == [2 * r * total, (2 * r + 1) * total]
        assert found["all_to_all"].tolist() == [r + 10.0 * other for other in range(n)]
    assert run.results[0]["reduce"].item() == torch.arange(1, n + 1).prod().item()
    spans = run.trace.only(kind="collective", rank=0).spans
    assert spans.name.tolist()[:2] == ["broadcast", "all_reduce"]
    assert spans.sequence.tolist() == list(range(9))
    assert set(spans.group) == {"world"}


def groups(comm):
    mesh = comm.mesh(dp=2, pp=3)
    total = torch.tensor([comm.rank])
    mesh.pp.all_reduce(total)
    other = torch.tensor([comm.rank])
    mesh.dp.all_reduce(other)
    token = torch.tensor([comm.rank])
    mesh.pp.sendrecv(
        torch.tensor([comm.rank]), (mesh.pp.rank + 1) % 3, token, (mesh.pp.rank - 1) % 3
    )
    odd = comm.split(0 if comm.rank % 2 else None, key=-comm.rank)
    return (
        total.item(), other.item(), token.item(), mesh.pp.rank, mesh.dp.rank,
        None if odd is None else (odd.rank, odd.members),
    )  # fmt: skip


def test_a_mesh_gives_each_rank_its_row_and_its_column():
    run = dlviz.launch(groups, ranks=6)
    for rank, (row, column, token, pp, dp, odd) in enumerate(run.results):
        first = rank // 3 * 3
        assert row == 3 * first + 3
        assert column == rank % 3 * 2 + 3
        assert token == first + (rank - first - 1) % 3
        assert (dp, pp) == divmod(rank, 3)
        assert odd == (None if rank % 2 == 0 else ((5 - rank) // 2, (5, 3, 1)))
    messages = run.trace.messages
    assert sorted(zip(messages.src, messages.dst, strict=True)) == [
        (0, 1),
        (1, 2),
        (2, 0),
        (3, 4),
        (4, 5),
        (5, 3),
    ]  # fmt: skip  (global ranks)


def grids(comm):
    part = comm.split(comm.rank % 2, key=-comm.rank)  # 11, 9, .. 1 and 10, 8, .. 0
    mesh = part.mesh(h=2, w=3)
    grid, again = grid_of(mesh.h, mesh.w), grid_of(mesh.h, mesh.w)
    other = grid_of(mesh.w, mesh.h)  # w is the column here
    total = torch.tensor([comm.rank])
    grid.all_reduce(total)
    return grid is again, grid.members == part.members, other.members, total.item()


def test_a_column_and_a_row_give_the_whole_grid_once():
    for rank, found in enumerate(dlviz.launch(grids, ranks=12).results):
        ranks = [*range(10 + rank % 2, -1, -2)]
        down = tuple(ranks[3 * h + w] for w in range(3) for h in range(2))
        assert found == (True, True, down, sum(ranks))


def test_a_mesh_that_does_not_fit_and_an_axis_it_lacks_are_named():
    with pytest.raises(dlviz.RankError, match=r"has 4 places for the 3 ranks"):
        dlviz.launch(lambda comm: comm.mesh(dp=2, pp=2), ranks=3)
    with pytest.raises(dlviz.RankError, match="no axis 'tp': it has dp"):
        dlviz.launch(lambda comm: comm.mesh(dp=1).tp, ranks=1)
    for length in (0, -1):
        axes = {"dp": length, "pp": length}
        with pytest.raises(dlviz.RankError, match=rf"mesh axis dp={length} has no rank: an axis"):
            dlviz.launch(lambda comm, axes=axes: comm.mesh(**axes), ranks=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.send(torch.ones(1), 2), r"dst=2 is no rank of .*: use 0 to 1"),
        (lambda c: c.recv(torch.ones(1), -1), r"src=-1 is no rank"),
        (lambda c: c.send(torch.ones(1), c.rank), r"is this rank itself"),
        (
            lambda c: c.isend(1, torch.ones(1)),
            r"isend\(int, Tensor\) has no tensor: the tensor com",
        ),
        (lambda c: c.recv(1 - c.rank, torch.ones(1)), r"tensor comes first, then the rank"),
        (lambda c: c.irecv([0.0], 1 - c.rank), r"irecv\(list, int\) has no tensor"),
        (lambda c: c.send(torch.ones(1), 1 - c.rank, tag=-1), r"tag=-1 is out of range"),
        (
            lambda c: c.irecv(torch.ones(1), 1 - c.rank, op="avg"),
            r"op='avg' is no receive operation .it does not know",
        ),
        (lambda c: c.all_reduce(torch.ones(1), "mean"), r"op='mean' is no reduction"),
        (lambda c: c.broadcast(torch.ones(1), 5), r"src=5 is no rank"),
        (lambda c: c.all_gather(torch.ones(3), torch.ones(2)), r"out holds 3 elements"),
        (lambda c: c.all_to_all(torch.ones(3), torch.ones(3)), r"same multiple of 2"),
        (lambda c: c.watch(torch.ones(2, 2).t()), r"not contiguous"),
        (lambda c: c.split(0).send(torch.ones(1).to(torch.float8_e5m2), 1 - c.rank), "float8_e5m2"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, message):
    with pytest.raises(dlviz.RankError, match=message):
        dlviz.launch(call, ranks=2)


def recorded(comm):
    buffer = torch.arange(10.0) + 100 * comm.rank
    comm.watch(buffer, "gradient")
    with comm.span("phase", "outer", step=7, microbatch=2, note="kept"):
        with comm.compute("forward", "layer"):
            pass
        if comm.rank == 0:
            comm.send(buffer[3:7], 1)
        else:
            comm.recv(buffer[5:9], 0)
    comm.memory("activations", 4096)
    return buffer


def test_fields_of_a_span_hold_for_everything_inside_it():
    trace = dlviz.launch(recorded, ranks=2).trace
    trace.validate()
    for row in trace.spans.rows():
        assert (row.step, row.microbatch, row.fields["note"]) == (7, 2, "kept")
        assert row.where.startswith(__file__)
    assert trace.messages.step.tolist() == [7]
    depths = {row.name: row.depth for row in trace.only(rank=0).spans.rows()}
    assert depths == {"outer": 0, "layer": 1, "to rank 1": 1}


def test_a_message_is_located_in_the_watched_buffer_and_its_snapshots_show_it():
    run = dlviz.launch(recorded, ranks=2)
    (message,) = run.trace.messages.rows()
    assert (message.src, message.dst, message.offset, message.count) == (0, 1, 3, 4)
    assert message.nbytes == 16 and message.op == "copy"
    assert message.wall_sent <= message.wall_received
    shots = [s for s in run.trace.buffers if s["rank"] == 1]
    assert [s["index"] for s in shots] == list(range(len(shots)))
    assert {s["name"] for s in shots} == {"gradient"}
    assert shots[0]["array"].tolist() == (torch.arange(10.0) + 100).tolist()
    assert shots[-1]["array"].tolist() == run.results[1].tolist()
    assert run.results[1][5:9].tolist() == [3, 4, 5, 6]


def test_a_wait_points_at_its_message():
    trace = dlviz.launch(recorded, ranks=2).trace
    flows = {row.kind: row.flow for row in trace.spans.rows() if row.kind in ("send", "recv")}
    assert flows == {"send": 0, "recv": 0}
    peers = {row.kind: row.peer for row in trace.spans.rows() if row.peer is not None}
    assert peers == {"send": 1, "recv": 0}


def test_memory_is_recorded_where_it_was_noted():
    memory = dlviz.launch(recorded, ranks=2).trace.memory
    assert memory.what.tolist() == ["activations"] * 2
    assert memory.nbytes.tolist() == [4096] * 2


def test_a_recorder_that_is_off_records_nothing():
    def worker(comm):
        comm.recorder.on = False
        x = torch.ones(2)
        comm.watch(x)
        with comm.span("phase"), comm.compute("forward"):
            comm.sendrecv(x, 1 - comm.rank, torch.empty(2), 1 - comm.rank)
        comm.all_reduce(x)
        return x[0].item()

    run = dlviz.launch(worker, ranks=2)
    assert run.results == [2, 2]
    assert len(run.trace.spans) == len(run.trace.messages) == len(run.trace.buffers) == 0


def test_a_lane_works_in_order_beside_its_rank_and_hands_back_results():
    def job(comm, number):
        x = torch.tensor([number])
        comm.all_reduce(x)
        return x.item()

    def fails(comm):
        raise KeyError("from the lane")

    def worker(comm):
        lane = comm.lane("side")
        handles = [lane.submit(job, number) for number in range(4)]
        comm.all_reduce(torch.ones(1))
        found = [handle.wait() for handle in handles]
        try:
            lane.submit(fails).wait()
        except KeyError as error:
            found.append(str(error))
        return found

    run = dlviz.launch(worker, ranks=3)
    assert run.results == [[0, 3, 6, 9, "'from the lane'"]] * 3
    run.trace.validate()
    assert set(run.trace.spans.lane) == {"compute", "side"}


def test_who_waits_for_an_idle_lane_does_its_work_on_its_line():
    def job(comm, number):
        x = torch.tensor([number])
        comm.all_reduce(x)
        return x.item(), threading.get_ident()

    def fails(comm):
        raise KeyError("from the lane")

    def worker(comm):
        lane = comm.lane("side")
        gate = threading.Event()
        busy = lane.submit(lambda comm: gate.wait(20) and job(comm, 1))
        next_ = lane.at_wait(job, 2)  # after that, on the lane's thread
        gate.set()
        value, thread = next_.wait()
        assert thread != threading.get_ident()
        found = [busy.wait()[0], value]
        with comm.span("step", step=5):
            handle = lane.at_wait(job, 3)
        value, thread = handle.wait()
        assert handle.wait() == (value, thread)  # and not once more
        with pytest.raises(KeyError):
            lane.at_wait(fails).wait()
        comm.all_reduce(torch.ones(1))  # on this thread's own line again
        return [*found, value, thread == threading.get_ident()]

    run = dlviz.launch(worker, ranks=2)
    assert run.results == [[2, 4, 6, True]] * 2
    run.trace.validate()
    spans = run.trace.spans[run.trace.spans.kind == "collective"]
    on_side = spans[spans.lane == "side"]
    assert len(on_side) == 6 and on_side.step[on_side.step == 5].size == 2
    assert (spans.lane == "compute").sum() >= 2


def test_a_message_that_nobody_receives_is_told_and_loses_no_result():
    def worker(comm):
        if comm.rank == 0:
            comm.isend(torch.ones(1), 1)
        return comm.rank

    with pytest.warns(RuntimeWarning, match="rank 0 sent rank 1 a message that it never received"):
        run = dlviz.launch(worker, ranks=2)
    assert run.results == [0, 1]
    assert run.trace.meta["outcome"] == "unreceived"
    run.trace.validate()


def test_a_thread_of_the_workers_own_gets_a_lane_of_its_own():
    def worker(comm):
        import threading

        def side():
            with comm.span("data", "read"):
                pass

        thread = threading.Thread(target=side, name="reader")
        thread.start()
        thread.join()

    trace = dlviz.launch(worker, ranks=1).trace
    assert trace.only(kind="data").spans.lane.tolist() == ["reader"]


def test_progress_counts_what_was_done():
    def worker(comm):
        return [x for x in comm.progress(range(5), "training")] + list(comm.progress(iter("ab")))

    assert dlviz.launch(worker, ranks=2).results[1] == [0, 1, 2, 3, 4, "a", "b"]


def test_a_span_inside_a_computation_has_its_own_line():
    def worker(comm):
        with comm.compute("forward"):
            with comm.span("data"):
                pass

    trace = dlviz.launch(worker, ranks=1).trace
    lines = {row.kind: int(row.where.rpartition(":")[2]) for row in trace.spans.rows()}
    assert lines["data"] == lines["forward"] + 1


def test_a_watched_buffer_shows_no_message_before_it_was_received():
    def worker(comm):
        buffer = torch.zeros(4)
        comm.watch(buffer)
        if comm.rank == 0:
            comm.send(torch.ones(4), 1)
            comm.barrier()
        else:
            early = comm.irecv(buffer, 0)
            comm.barrier()  # the message has come by now
            seen = buffer.sum().item()
            early.wait()
            return seen, buffer.sum().item()

    # the send is synchronous: gloo has taken the message as soon as the receive is posted
    run = dlviz.launch(worker, ranks=2)
    assert run.results[1] == (0, 4)


def test_choosing_a_training_step_keeps_the_messages_of_its_collectives():
    def worker(comm):
        for step in range(3):
            with comm.span("phase", step=step):
                dlviz.collectives.ring.all_reduce(comm, torch.ones(2))

    trace = dlviz.launch(worker, ranks=2).trace
    for step in range(3):
        chosen = trace.only(step=step)
        assert sorted(chosen.messages.step) == [0, 0, 1, 1]  # rounds of the ring
        assert set(chosen.spans.flow) == {-1, 0, 1, 2, 3}


def test_a_buffer_that_another_lane_has_just_taken_is_not_missed():
    class JustTaken(list):
        def __bool__(self):
            return True  # as it was when somebody looked

    pool = BufferPool()
    form = form_of((3,), torch.float32)
    pool._free = {form: JustTaken(), (torch.float32, 8): JustTaken()}
    assert pool.borrow(form).shape == (3,)
    assert pool.piece(torch.float32, 8).shape == (2,)
