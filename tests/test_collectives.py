"""Collectives by hand against plain torch, against their patterns, and against their costs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import dlviz
from dlviz import patterns
from dlviz.collectives import ALGORITHMS, all_reduce, parameter_server, ring
from dlviz.machine import Device, Link, Machine, Topology, classroom
from dlviz.metrics import bytes_sent
from dlviz.patterns import Transfer
from dlviz.sim import collective_seconds

RANKS = [
    1,
    2,
    3,
    4,
    pytest.param(5, marks=pytest.mark.slow),
    pytest.param(7, marks=pytest.mark.slow),
]
LENGTHS = (0, 1, 3, 8, 1000, 100003)
WATCHED = (0, 1, 3, 8, 420)  # elements; 420 is a multiple of every number of ranks here
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)
LAYOUTS = {  # how a tensor of 1000 elements may lie in memory
    "row": lambda values: values.clone(),
    "matrix": lambda values: values.clone().view(20, 50),
    "transposed": lambda values: values.clone().view(20, 50).T,
    "every other": lambda values: torch.full((2000,), -1, dtype=values.dtype)[::2].copy_(values),
    "columns": lambda values: torch.full((100, 20), -1, dtype=values.dtype)[:, 5:15].copy_(
        values.view(100, 10)
    ),
}


def whole_numbers(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Values of a rank whose sums every dtype holds exactly."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-8, 9, (length,), generator=generator).to(dtype)


def reals(rank: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(length, generator=generator, dtype=torch.float64)


# -- the result ----------------------------------------------------------------------------------
def every_case(comm, algorithm):
    found = {}
    for length in LENGTHS:
        for dtype in DTYPES if length < 2000 else (torch.float32,):
            tensor = whole_numbers(comm.rank, length, dtype)
            all_reduce(comm, tensor, algorithm)
            found[length, dtype] = tensor
    for name, lay in LAYOUTS.items():
        tensor = lay(whole_numbers(comm.rank, 1000, torch.float32))
        all_reduce(comm, tensor, algorithm)
        found[name] = tensor.flatten()
        if name == "every other":
            found["between"] = tensor.as_strided((1999,), (1,))[1::2].clone()
    scalar = torch.tensor(float(comm.rank))
    all_reduce(comm, scalar, algorithm)
    found["scalar"] = scalar
    parameter = torch.nn.Parameter(whole_numbers(comm.rank, 1000, torch.float32))
    all_reduce(comm, parameter, algorithm)
    found["parameter"] = parameter.data
    tensor = reals(comm.rank, 1001)
    all_reduce(comm, tensor, algorithm)
    found["reals"] = tensor
    found["requests left open"] = torch.tensor(len(comm.process.pending))
    return found


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_rank_ends_with_the_sum_to_the_same_bits(algorithm, ranks):
    results = dlviz.launch(every_case, ranks=ranks, args=(algorithm,)).results
    for other in results[1:]:
        assert all(torch.equal(results[0][case], other[case]) for case in results[0])
    found = results[0]
    for length in LENGTHS:
        expected = sum(whole_numbers(rank, length, torch.float64) for rank in range(ranks))
        for case in (case for case in found if isinstance(case, tuple) and case[0] == length):
            assert found[case].dtype == case[1] and found[case].shape == (length,)
            assert torch.equal(found[case].double(), expected), case
    expected = sum(whole_numbers(rank, 1000, torch.float32) for rank in range(ranks))
    for case in (*LAYOUTS, "parameter"):
        assert torch.equal(found[case], laid(case, expected)), case
    assert (found["between"] == -1).all(), "elements between those of the tensor were touched"
    assert found["scalar"] == sum(range(ranks))
    assert found["requests left open"] == 0
    expected = sum(reals(rank, 1001) for rank in range(ranks))
    assert (found["reals"] - expected).norm() <= 1e-14 * expected.norm()
    if algorithm == "parameter_server":
        assert torch.equal(found["reals"], expected), "not summed in rank order"


def laid(case: str, values: torch.Tensor) -> torch.Tensor:
    return LAYOUTS[case](values).flatten() if case in LAYOUTS else values


def halves(comm, length):
    own = whole_numbers(comm.rank, length, torch.int64)
    ring.reduce_scatter(comm, own)
    given = whole_numbers(comm.rank, length, torch.int64)
    ring.all_gather(comm, given)
    return own, given


@pytest.mark.parametrize(("ranks", "length"), [(2, 9), (3, 2), (4, 103)])
def test_the_halves_of_the_ring_do_what_they_say(ranks, length):
    results = dlviz.launch(halves, ranks=ranks, args=(length,)).results
    values = [whole_numbers(rank, length, torch.int64) for rank in range(ranks)]
    gathered = torch.empty(length, dtype=torch.int64)
    for rank, (own, _) in enumerate(results):
        chunk = (rank + 1) % ranks
        mine = slice(chunk * length // ranks, (chunk + 1) * length // ranks)
        assert torch.equal(own[mine], sum(values)[mine])
        gathered[mine] = values[rank][mine]
    assert all(torch.equal(given, gathered) for _, given in results)


def in_two_groups(comm):
    half = comm.split(comm.rank % 2)
    tensor = torch.full((10,), 10.0**comm.rank)
    ring.all_reduce(half, tensor)
    return tensor[0].item()


def test_groups_of_ranks_sum_among_themselves():
    run = dlviz.launch(in_two_groups, ranks=4)
    assert run.results == [101.0, 1010.0, 101.0, 1010.0]
    messages = run.trace.messages
    sent = set(zip(messages.src.tolist(), messages.dst.tolist(), strict=True))
    assert sent == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_what_there_is_not_is_refused():
    with pytest.raises(
        ValueError, match="algorithm='star' is no all_reduce: use one of ring, para"
    ):
        all_reduce(None, torch.zeros(3), "star")
    with pytest.raises(dlviz.RankError, match="server=2 is no rank of .* use 0 to 1"):
        dlviz.launch(parameter_server.all_reduce, ranks=2, args=(torch.zeros(3), 2))


# -- the messages --------------------------------------------------------------------------------
def each_length(comm, function, lengths):
    """`function` on a watched tensor of each length, each inside a span with the length's name."""
    for length in lengths:
        tensor = torch.ones(length)
        comm.watch(tensor)
        comm.barrier()
        with comm.span("phase", f"length {length}"):
            function(comm, tensor)


@cache
def traced(name: str, ranks: int) -> dlviz.Trace:
    return dlviz.launch(each_length, ranks=ranks, args=(ALGORITHMS[name], WATCHED)).trace


def sent(trace: dlviz.Trace, length: int) -> list[Transfer]:
    """The messages of the all_reduce of a tensor of `length`, sorted as a pattern is."""
    messages, found = trace.messages, []
    spans = trace.spans[trace.spans.name == f"length {length}"]
    for rank, start, end in zip(spans.rank, spans.wall_start, spans.wall_end, strict=True):
        its = (messages.src == rank) & (messages.wall_sent >= start) & (messages.wall_sent <= end)
        rows = sorted(messages[its].rows(), key=lambda row: row.wall_sent)
        steps = [row.step for row in rows]
        assert steps == sorted(steps), f"rank {rank} sends its steps in order {steps}"
        found += [Transfer(r.step, r.src, r.dst, r.offset, r.count, r.op) for r in rows]
    return sorted(found)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_messages_of_a_real_run_are_those_of_the_pattern(name, ranks):
    trace = traced(name, ranks)
    total = 0
    for length in WATCHED:
        pattern = getattr(patterns, name).all_reduce(ranks, length)
        assert sent(trace, length) == pattern
        total += len(pattern)
    assert len(trace.messages) == total
    assert not np.isnan(trace.messages.received).any()


def cost(name: str, ranks: int, nbytes: int) -> tuple[int, list[int]]:
    """Steps and bytes that each rank sends, as the docstrings claim them."""
    if name == "ring":
        return 2 * (ranks - 1), [2 * (ranks - 1) * nbytes // ranks] * ranks
    return 2 * (ranks - 1), [(ranks - 1) * nbytes] + [nbytes] * (ranks - 1)


CLAIMS = {
    "ring": "Cost: 2(n-1) steps, each rank sends 2(n-1)/n * nbytes.",
    "parameter_server": "Cost: 2(n-1) steps, the server sends (n-1) * nbytes, "
    "each other rank nbytes.",
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_steps_and_bytes_are_those_of_the_docstring(name, ranks):
    assert CLAIMS[name] in ALGORITHMS[name].__doc__
    messages = traced(name, ranks).messages
    steps, claimed = cost(name, ranks, 4 * 420)
    big = [t for t in sent(traced(name, ranks), 420)]
    assert {t.step for t in big} == set(range(steps))
    nbytes = np.zeros(ranks, dtype=int)
    np.add.at(nbytes, [t.src for t in big], [4 * t.count for t in big])
    assert nbytes.tolist() == (claimed if ranks > 1 else [0])
    assert (messages.nbytes == 4 * messages.count).all()


# -- wrong programs ------------------------------------------------------------------------------
def ring_of_the_wrong_chunk(comm, tensor):
    """Sends chunk r+1-s where the ring sends r-s: the right bytes to the right rank, but of other
    elements."""
    n = comm.size
    with_neighbours = (comm.rank + 1) % n, (comm.rank - 1) % n
    for step in range(2 * (n - 1)):
        op = "add" if step < n - 1 else "copy"
        first = comm.rank + 1 if step < n - 1 else comm.rank + 2
        mine, theirs = (part(tensor, (first - step + back) % n, n) for back in (0, -1))
        with comm.span("phase", step=step):
            comm.sendrecv(mine, with_neighbours[0], theirs, with_neighbours[1], op=op)


def all_through_rank_0(comm, tensor):
    parameter_server.all_reduce(comm, tensor)


def ring_that_copies_where_it_should_add(comm, tensor):
    n = comm.size
    for step in range(2 * (n - 1)):
        first = comm.rank if step < n - 1 else comm.rank + n
        mine, theirs = (part(tensor, (first - step + back) % n, n) for back in (0, -1))
        with comm.span("phase", step=step):
            comm.sendrecv(mine, (comm.rank + 1) % n, theirs, (comm.rank - 1) % n)


def part(tensor, index, n):
    return tensor[index * len(tensor) // n : (index + 1) * len(tensor) // n]


@pytest.mark.parametrize(
    "wrong",
    [ring_of_the_wrong_chunk, all_through_rank_0, ring_that_copies_where_it_should_add],
)
def test_a_wrong_ring_shows_in_its_messages(wrong):
    trace = dlviz.launch(each_length, ranks=3, args=(wrong, (12,))).trace
    assert len(sent(trace, 12)) > 0
    assert sent(trace, 12) != patterns.ring.all_reduce(3, 12)


def unequal(comm, algorithm):
    all_reduce(comm, torch.ones(10 + comm.rank), algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ranks_with_tensors_of_unequal_length_are_told_so(algorithm):
    with pytest.raises(dlviz.RankError, match="message mismatch: .* same number of elements"):
        dlviz.launch(unequal, ranks=2, args=(algorithm,))


# -- the time it takes ---------------------------------------------------------------------------
LATE_OR_NOT = pytest.mark.filterwarnings("ignore:the run was up to:RuntimeWarning")


def after_a_barrier(comm, algorithm, length):
    tensor = torch.ones(length)
    comm.barrier()
    all_reduce(comm, tensor, algorithm)


def seconds(algorithm: str, length: int, machine: Machine) -> tuple[float, dlviz.Trace]:
    """Device seconds of a paced run, from the first message's departure to the last one's arrival.

    Device times do not depend on how busy this machine is, so a run that was late counts as well.
    """
    trace = dlviz.launch(
        after_a_barrier, ranks=machine.ranks, machine=machine, args=(algorithm, length)
    ).trace
    return trace.messages.received.max() - trace.messages.sent.min(), trace


@LATE_OR_NOT
@pytest.mark.parametrize(("ranks", "length"), [(2, 100_000), (3, 300_000), (4, 100_000)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_paced_run_takes_what_the_closed_form_says(algorithm, ranks, length):
    link = classroom(ranks).topology.path(0, 1)
    expected = collective_seconds(algorithm, ranks, 4 * length, link.latency, 1 / link.bandwidth)
    measured, trace = seconds(algorithm, length, classroom(ranks))
    assert measured == pytest.approx(expected, abs=1e-9)
    assert bytes_sent(trace).sum() == 2 * (ranks - 1) * 4 * length


@LATE_OR_NOT
def test_adding_costs_gamma_on_the_ring_and_hides_behind_the_next_message_at_the_server():
    link, gamma, nbytes = Link(1e-3, 1e9), 2e-9, 400_000  # a message 1.4 ms, adding it 0.8 ms
    device = Device("slow adder", flops=1e9, memory=1e9, memory_bandwidth=1e9, gamma=gamma)
    machine = Machine(device, Topology.switch(4, link))
    priced = {
        name: collective_seconds(name, 4, nbytes, link.latency, 1 / link.bandwidth, gamma)
        for name in ALGORITHMS
    }
    measured = {name: seconds(name, nbytes // 4, machine)[0] for name in ALGORITHMS}
    assert measured["ring"] == pytest.approx(priced["ring"], abs=1e-9)
    hidden = (
        2 * nbytes * gamma
    )  # all additions but the last: the port takes the next message meanwhile
    assert measured["parameter_server"] == pytest.approx(
        priced["parameter_server"] - hidden, abs=1e-9
    )
