"""A receive whose shape its message tells, sends that are waited for at once, a second lane."""

import time

import pytest
import torch

import dlviz
from dlviz.machine import classroom

SHAPES = [(3, 0, 2), (), (2, 1, 1, 1, 1, 1, 1, 3), (70_000,)]
DTYPES = [torch.float64, torch.int64, torch.bool, torch.bfloat16]
CASES = [(torch.Size(shape), dtype) for shape, dtype in zip(SHAPES, DTYPES, strict=True)]


def tells(comm, early):
    if comm.rank == 0:
        if early:
            comm.recv(torch.empty(1), 1)
        sends = []
        for shape, dtype in CASES:
            with comm.compute("forward"):
                message = torch.ones(shape).to(dtype)
            sends.append(comm.isend(message, 1, tag=3))
        comm.wait_sent(sends)
        return None
    if early:
        comm.send(torch.zeros(1), 0)
    found = []
    for _ in CASES:
        comm.probe(0, tag=3)  # takes nothing
        empty = comm.probe(0, tag=3)
        comm.recv(empty, 0, tag=3)
        found.append((empty.shape, empty.dtype, bool(empty.eq(1).all())))
    return found


@pytest.mark.filterwarnings("ignore:the run")
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("machine", [None, classroom(2)], ids=["wall", "paced"])
def test_probe_tells_shape_and_dtype_of_the_next_message_and_leaves_it(machine, early):
    run = dlviz.launch(tells, ranks=2, machine=machine, args=(early,))
    assert run.results[1] == [(*case, True) for case in CASES]
    waits = run.trace.only(rank=0, kind="wait").spans
    assert [name for name in waits.name if name == "sends"] == ["sends"]
    if machine is not None:  # each message is there 5 ms of work and its way after the one before
        sent = run.trace.messages[run.trace.messages.tag == 3]
        assert (sent.received >= sent.arrived).all()


def never(comm):
    if comm.rank == 0:
        comm.probe(1, tag=7)


def test_a_probe_for_a_message_that_never_comes_is_a_deadlock():
    with pytest.raises(dlviz.DeadlockError, match=r"recv from rank 1 \(message 0, tag 7\)"):
        dlviz.launch(never, ranks=2, timeout=30)


def late(comm):
    with comm.compute("forward"):
        pass
    comm.hold()
    time.sleep(0.05)  # setting up
    if comm.rank:
        comm.begin()
    with comm.compute("backward"):
        pass


@pytest.mark.filterwarnings("ignore:the run")
def test_what_begins_anew_starts_when_the_program_reaches_it_and_else_where_the_last_ended():
    spans = dlviz.launch(late, ranks=2, machine=classroom(2)).trace.spans
    ends = {rank: spans.end[(spans.rank == rank) & (spans.kind == "forward")] for rank in (0, 1)}
    starts = {rank: spans.start[(spans.rank == rank) & (spans.kind == "backward")] for rank in ends}
    assert starts[0] == ends[0] and starts[1] >= ends[1] + 0.05


def both(comm):
    with comm.span("step", step=4):
        for seconds in (0.01, 0.02):
            with (
                comm.beside("backward", stage=1),
                comm.compute("forward", seconds=seconds, stage=0),
            ):
                torch.ones(10).sum()


@pytest.mark.filterwarnings("ignore:the run")
@pytest.mark.parametrize("machine", [None, classroom(1)], ids=["wall", "paced"])
def test_what_runs_beside_lies_on_a_second_lane_over_the_same_stretch(machine):
    spans = dlviz.launch(both, ranks=1, machine=machine).trace.spans
    one, other = spans[spans.lane == "compute"], spans[spans.lane == "compute2"]
    one = one[one.kind == "forward"]
    assert [*other.kind] == ["backward"] * 2 and [*other.step] == [*one.step] == [4, 4]
    assert (other.start <= one.start).all() and (one.end <= other.end).all()
    if machine is not None:
        assert (other.end - other.start).tolist() == pytest.approx([0.01, 0.02])
        assert other.wall_end[1] >= other.wall_start[1] >= other.wall_end[0]
        assert other.wall_end[1] >= other.end[1] - 1e-8  # the debt of both lanes was slept off
