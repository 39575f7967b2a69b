"""Collectives by hand against plain torch, against their patterns, and against their costs."""

from __future__ import annotations

import os
import signal
from functools import cache
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
import torch

import dlviz
from dlviz import patterns, viz
from dlviz.collectives import (
    ALGORITHMS,
    all_reduce,
    butterfly,
    direct,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    tree,
    trials,
)
from dlviz.patterns import Transfer

RANKS = [
    *(1, 2, 3, 4),
    pytest.param(8, marks=pytest.mark.slow),
    *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.sweep]) for n in (5, 6, 7, 9)),
]
# Ranks, and whether all dtypes and layouts are tried, which do not depend on the number of ranks.
WIDE = [
    *((n, True) for n in (1, 2, 3, 4)),
    pytest.param(8, False, marks=pytest.mark.slow),
    *(pytest.param(n, True, marks=[pytest.mark.slow, pytest.mark.sweep]) for n in (5, 6, 7, 8, 9)),
]
LENGTHS = (0, 1, 3, 8, 1000, 100003)
WATCHED = (0, 1, 3, 8, 2520)  # elements; 2520 is a multiple of every number of ranks here
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


def reals(rank: int, length: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(length, generator=generator, dtype=torch.float64).to(dtype)


# -- the result ----------------------------------------------------------------------------------
def result(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    """Plain torch's result for the ranks' tensors, in float64 where they are floating."""
    exact = torch.stack([t.double() if t.is_floating_point() else t for t in tensors])
    rules = {"sum": "sum", "avg": "mean", "max": "amax", "min": "amin", "product": "prod"}
    return getattr(exact, rules[op])(0)


def every_case(comm, name, wide):
    """Run all cases, or those of float32 in a row; returns a digest of each result's bits, and the
    errors on this rank."""
    digests, wrong = {}, []

    def check(case, make, op="sum", tolerance=0.0):
        tensor = make(comm.rank)
        all_reduce(comm, tensor, name, op)
        expected = result([make(rank) for rank in range(comm.size)], op)
        found = tensor.detach()
        digests[case] = sha256(found.contiguous().flatten().view(torch.uint8).numpy()).hexdigest()
        error = (found.to(expected.dtype) - expected).abs().max().item() if len(found) else 0.0
        if found.shape != expected.shape or found.dtype != make(0).dtype or not error <= tolerance:
            wrong.append((case, op, error))
        return tensor

    for length in LENGTHS:
        check(length, lambda r, n=length: whole_numbers(r, n, torch.float32))
    for dtype in DTYPES if wide else ():
        for op in ("sum", "max", "min"):
            check((op, dtype), lambda r, d=dtype: whole_numbers(r, 100, d), op)
        signs = ("product", dtype), lambda r, d=dtype: whole_numbers(r, 100, d).clamp(-1, 1)
        check(*signs, "product")
        if dtype.is_floating_point:
            close = 16 * torch.finfo(dtype).eps
            check(("avg", dtype), lambda r, d=dtype: reals(r, 100, d), "avg", close)
    for layout, lay in LAYOUTS.items() if wide else ():
        tensor = check(layout, lambda r, lay=lay: lay(whole_numbers(r, 1000, torch.float32)))
        if layout == "every other" and (tensor.as_strided((1999,), (1,))[1::2] != -1).any():
            wrong.append("elements between those of the tensor were touched")
    for length in (0, 1, 3):
        for op in ("max", "min"):
            check((op, length), lambda r, n=length: reals(r, n), op)
    check("parameter", lambda r: torch.nn.Parameter(whole_numbers(r, 1000, torch.float32)))
    check("reals", lambda r: reals(r, 1001), tolerance=1e-14)
    scalar = torch.tensor(float(comm.rank))
    all_reduce(comm, scalar, name)
    if scalar != sum(range(comm.size)):
        wrong.append(("scalar", scalar))
    in_order, own = sum(reals(r, 1001) for r in range(comm.size)), reals(comm.rank, 1001)
    all_reduce(comm, own, name)
    return digests, wrong, len(comm.process.outstanding.in_flight), torch.equal(own, in_order)


@cache
def every_result(ranks: int, wide: bool) -> dict[str, list]:
    def worker(comm):
        return {name: every_case(comm, name, wide) for name in ALGORITHMS}

    results = dlviz.launch(worker, ranks=ranks).results
    return {name: [result[name] for result in results] for name in ALGORITHMS}


@pytest.mark.parametrize(("ranks", "wide"), WIDE)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_rank_ends_with_the_reduction_to_the_same_bits(algorithm, ranks, wide):
    results = every_result(ranks, wide)[algorithm]
    for digests, wrong, left_open, _ in results:
        assert wrong == [] and left_open == 0
        assert digests == results[0][0]


BY_HAND = [butterfly, direct, halving_doubling, parameter_server, ring, tree]


def sum_by_hand(comm):
    """The algorithms whose sums, written out step by step, are not those of all ranks' tensors."""
    wrong = []
    for module, length in product(BY_HAND, (0, 1, 7, 1000)):
        rows = torch.arange(comm.size * length, dtype=torch.float64).view(comm.size, length)
        row = rows[comm.rank].clone()
        module.by_hand(comm, row)
        if not torch.equal(row, rows.sum(0)):
            wrong.append((module.__name__, length))
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_the_sum_by_hand_is_that_of_all_ranks(ranks):
    assert dlviz.launch(sum_by_hand, ranks).results == [[]] * ranks


@pytest.mark.parametrize(("ranks", "wide"), WIDE)
@pytest.mark.parametrize("algorithm", ["direct", "parameter_server"])
def test_direct_and_the_server_sum_in_rank_order(algorithm, ranks, wide):
    assert all(in_order for *_, in_order in every_result(ranks, wide)[algorithm])


def pieces(comm, length):
    """The result of each piece for rank r's tensor of whole numbers."""
    found = {}
    for name, function in {
        "ring.reduce_scatter": ring.reduce_scatter,
        "ring.all_gather": ring.all_gather,
        "halving": halving_doubling.reduce_scatter,
        "reduce": lambda comm, x: tree.reduce(comm, x, dst=comm.size - 1),
        "reduce avg": lambda comm, x: tree.reduce(comm, x, 0, "avg"),
        "broadcast": lambda comm, x: tree.broadcast(comm, x, src=comm.size - 1),
        "gather": tree.gather,
        "scatter": tree.scatter,
    }.items():
        dtype = torch.float64 if "avg" in name else torch.int64
        found[name] = whole_numbers(comm.rank, length, dtype)
        function(comm, found[name])
    found["doubling"] = found["halving"].clone()
    halving_doubling.all_gather(comm, found["doubling"])
    found["all_to_all"] = whole_numbers(comm.rank, length * comm.size, torch.int64)
    direct.all_to_all(comm, found["all_to_all"])
    return found


@pytest.mark.parametrize(("ranks", "length"), [(1, 5), (2, 9), (3, 2), (4, 103), (6, 7)])
def test_each_piece_does_what_it_says(ranks, length):
    results = dlviz.launch(pieces, ranks=ranks, args=(length,)).results
    values = [whole_numbers(rank, length, torch.int64) for rank in range(ranks)]
    total, last = sum(values), ranks - 1

    def chunk(index):
        return slice(index * length // ranks, (index + 1) * length // ranks)

    shifted, gathered = torch.empty_like(total), torch.empty_like(total)
    for rank in range(ranks):
        shifted[chunk((rank + 1) % ranks)] = values[rank][chunk((rank + 1) % ranks)]
        gathered[chunk(rank)] = values[rank][chunk(rank)]
    whole = [
        whole_numbers(rank, length * ranks, torch.int64).view(ranks, -1) for rank in range(ranks)
    ]
    for rank, found in enumerate(results):
        own, next_one = chunk(rank), chunk((rank + 1) % ranks)
        assert torch.equal(found["ring.reduce_scatter"][next_one], total[next_one])
        assert torch.equal(found["ring.all_gather"], shifted)
        assert torch.equal(found["broadcast"], values[last])
        assert torch.equal(found["scatter"][own], values[0][own])
        assert torch.equal(found["doubling"], total)
        assert torch.equal(found["all_to_all"].view(ranks, -1), torch.stack(whole)[:, rank])
    assert torch.equal(results[last]["reduce"], total)
    assert torch.equal(results[0]["reduce avg"], total.double() / ranks)
    assert torch.equal(results[0]["gather"], gathered)


LAYOUTS_OF_NODES = [
    [[0, 1], [2, 3]],
    [[0, 1, 2], [3, 4]],
    [[0], [1, 2, 3, 4, 5]],
    [[4, 0], [1, 3, 5, 6], [7, 2, 8]],
]


def over_nodes(comm, nodes):
    tensors = [whole_numbers(comm.rank, length, torch.float64) for length in (1, 3, 8, 1000)]
    for tensor in tensors:
        hierarchical.all_reduce(comm, tensor, nodes=nodes)
    biggest = reals(comm.rank, 50)
    hierarchical.all_reduce(comm, biggest, "max", nodes)
    return [*tensors, biggest]


@pytest.mark.parametrize("nodes", LAYOUTS_OF_NODES)
def test_a_hierarchy_of_unequal_nodes_reduces_over_all_ranks(nodes):
    ranks = sum(map(len, nodes))
    results = dlviz.launch(over_nodes, ranks=ranks, args=(nodes,)).results
    expected = [result([whole_numbers(r, n, torch.float64) for r in range(ranks)], "sum")
                for n in (1, 3, 8, 1000)]  # fmt: skip
    expected.append(result([reals(r, 50) for r in range(ranks)], "max"))
    for found in results:
        assert all(map(torch.equal, found, expected))


def in_two_groups(comm):
    half = comm.split(comm.rank % 2)
    found = []
    for name in [*ALGORITHMS, "auto"]:
        tensor = torch.full((10,), 10.0**comm.rank)
        all_reduce(half, tensor, name)
        found.append(tensor[0].item())
    return found


def test_groups_of_ranks_sum_among_themselves():
    run = dlviz.launch(in_two_groups, ranks=4)
    assert run.results == [[total] * (len(ALGORITHMS) + 1) for total in (101.0, 1010.0) * 2]
    messages = run.trace.messages
    sent = set(zip(messages.src.tolist(), messages.dst.tolist(), strict=True))
    assert sent == {(0, 2), (2, 0), (1, 3), (3, 1)}


def refused(comm):
    """The errors of invalid calls, which all ranks raise before any message."""
    found = []
    for call in (
        lambda: parameter_server.all_reduce(comm, torch.zeros(3), server=2),
        lambda: tree.broadcast(comm, torch.zeros(3), src=2),
        lambda: ring.all_reduce(comm, torch.zeros(3), "copy"),
        lambda: all_reduce(comm, torch.zeros(3, dtype=torch.int64), "tree", "avg"),
        lambda: direct.all_to_all(comm, torch.zeros(3)),
        lambda: hierarchical.all_reduce(comm, torch.zeros(3), nodes=[[0], [0]]),
    ):
        with pytest.raises(ValueError) as error:
            call()
        found.append(str(error.value))
    return found


def test_invalid_calls_are_refused():
    with pytest.raises(
        ValueError, match="algorithm='star' is no all_reduce: use one of ring, para.*, auto"
    ):
        all_reduce(None, torch.zeros(3), "star")
    run = dlviz.launch(refused, ranks=2)
    assert len(run.trace.messages) == 0
    for found, part in zip(
        run.results[0],
        (
            "server=2 is no rank of Comm(world, rank 0 of 2): use 0 to 1",
            "src=2 is no rank of Comm(world, rank 0 of 2): use 0 to 1",
            "op='copy' is no reduction: use one of sum, avg, max, min, product",
            "op='avg' of a tensor of int64 would not be whole numbers: convert it to float32",
            "a tensor of 3 elements cannot be exchanged by 2 ranks: use a multiple of 2",
            "nodes=[[0], [0]] does not hold Comm(world, rank 0 of 2): name each of 0 to 1 once",
        ),
        strict=True,
    ):
        assert part in found


# -- the messages --------------------------------------------------------------------------------
def watch_cases(comm, functions, lengths):
    """Each function on a watched tensor of each length, in a span with the name of both."""
    base = torch.ones(sum(lengths))
    comm.watch(base)
    for name, function in functions.items():
        for tensor, length in zip(base.split(lengths), lengths, strict=True):
            comm.barrier()
            with comm.span("phase", f"{name} {length}"):
                function(comm, tensor)


@cache
def traced(ranks: int) -> dlviz.Trace:
    return dlviz.launch(watch_cases, ranks=ranks, args=(ALGORITHMS, WATCHED)).trace


def sent(trace: dlviz.Trace, name: str, length: int, lengths=WATCHED) -> list[list[Transfer]]:
    """What each rank sent in the all_reduce of a tensor of `length`, in its order."""
    messages, found = trace.messages, []
    spans = trace.spans[trace.spans.name == f"{name} {length}"]
    begin = sum(lengths[: lengths.index(length)])
    for rank, start, end in sorted(zip(spans.rank, spans.wall_start, spans.wall_end, strict=True)):
        its = (messages.src == rank) & (messages.wall_sent >= start) & (messages.wall_sent <= end)
        rows = sorted(messages[its].rows(), key=lambda row: row.wall_sent)
        found.append(
            [Transfer(r.step, r.src, r.dst, r.offset - begin, r.count, r.op) for r in rows]
        )
    return found


def by_sender(transfers: list[Transfer], ranks: int) -> list[list[Transfer]]:
    return [[t for t in transfers if t.src == rank] for rank in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_messages_of_a_real_run_are_those_of_the_pattern_in_its_order(name, ranks):
    trace = traced(ranks)
    for length in WATCHED:
        pattern = getattr(patterns, name).all_reduce(ranks, length)
        assert sent(trace, name, length) == by_sender(pattern, ranks)
    assert not np.isnan(trace.messages.received).any()


@pytest.mark.parametrize("nodes", LAYOUTS_OF_NODES)
def test_the_messages_over_nodes_are_those_of_the_pattern(nodes):
    ranks = sum(map(len, nodes))

    def function(comm, tensor):
        hierarchical.all_reduce(comm, tensor, nodes=nodes)

    trace = dlviz.launch(watch_cases, ranks=ranks, args=({"nodes": function}, (3, 60))).trace
    for length in (3, 60):
        pattern = patterns.hierarchical.all_reduce(ranks, length, nodes)
        assert sent(trace, "nodes", length, (3, 60)) == by_sender(pattern, ranks)


PIECES = {
    "ring.reduce_scatter": ring.reduce_scatter,
    "ring.all_gather": ring.all_gather,
    "tree.reduce": tree.reduce,
    "tree.broadcast": tree.broadcast,
    "tree.gather": tree.gather,
    "tree.scatter": tree.scatter,
    "halving_doubling.reduce_scatter": halving_doubling.reduce_scatter,
    "halving_doubling.all_gather": halving_doubling.all_gather,
}


@pytest.mark.parametrize("ranks", [2, 3, 6, 7])
def test_the_messages_of_each_piece_are_those_of_its_pattern(ranks):
    trace = dlviz.launch(watch_cases, ranks=ranks, args=(PIECES, (0, 3, 100))).trace
    for name in PIECES:
        module, function = name.split(".")
        for length in (0, 3, 100):
            pattern = getattr(getattr(patterns, module), function)(ranks, length)
            assert sent(trace, name, length, (0, 3, 100)) == by_sender(pattern, ranks), name


def test_the_messages_of_an_all_to_all_are_those_of_its_pattern():
    function = {"all_to_all": direct.all_to_all}
    trace = dlviz.launch(watch_cases, ranks=3, args=(function, (0, 12))).trace
    for length in (0, 12):
        pattern = patterns.direct.all_to_all(3, length)
        assert sent(trace, "all_to_all", length, (0, 12)) == by_sender(pattern, 3)


def two_to(n: int) -> int:
    """lg n', n' being the largest power of two not above n."""
    return n.bit_length() - 1


def of_a_fold(n: int, inside: int, whole: int) -> list[int]:
    """Bytes per rank where those that stay send `inside`, and fold and unfold cost `whole` each."""
    paired = 2 * (n - (1 << two_to(n)))
    return [whole + (inside if r % 2 else 0) if r < paired else inside for r in range(n)]


CLAIMS = {  # steps, bytes that each of n ranks sends, and how the docstring says it
    "ring": (
        lambda n: 2 * (n - 1),
        lambda n, b: [2 * (n - 1) * b // n] * n,
        "Cost: 2(n-1) steps, each rank sends 2(n-1)/n * nbytes.",
    ),
    "parameter_server": (
        lambda n: 2 * (n - 1),
        lambda n, b: [(n - 1) * b] + [b] * (n - 1),
        "Cost: 2(n-1) steps, the server sends (n-1) * nbytes, each other rank nbytes.",
    ),
    "tree": (
        lambda n: 2 * (n - 1).bit_length(),
        lambda n, b: [
            b * ((r > 0) + sum(r % (2 << k) == 0 and r + (1 << k) < n for k in range(4)))
            for r in range(n)
        ],
        "Cost: 2 ceil(lg n) steps, all ranks together send 2(n-1) * nbytes, "
        "rank 0 ceil(lg n) * nbytes.",
    ),
    "butterfly": (
        lambda n: two_to(n) + 2 * (n != 1 << two_to(n)),
        lambda n, b: of_a_fold(n, two_to(n) * b, b),
        "Cost: lg n steps, each rank sends lg n * nbytes. Off powers of two lg n' + 2 steps,",
    ),
    "halving_doubling": (
        lambda n: 2 * two_to(n) + 2 * (n != 1 << two_to(n)),
        lambda n, b: of_a_fold(n, 2 * (b - b // (1 << two_to(n))), b),
        "Cost: 2 lg n steps, each rank sends 2(n-1)/n * nbytes. Off powers of two 2 lg n' + 2",
    ),
    "direct": (
        lambda n: int(n > 1),
        lambda n, b: [(n - 1) * b] * n,
        "Cost: one step, each rank sends (n-1) * nbytes;",
    ),
    "hierarchical": (  # on one node
        lambda n: 2 * (n - 1),
        lambda n, b: [2 * (n - 1) * b // n] * n,
        "Cost: with m nodes of s ranks 2(s-1) + 2(m-1) steps, each rank sends "
        "(2(s-1)/s + 2(m-1)/(s*m)) * nbytes.",
    ),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_steps_and_bytes_are_those_of_the_docstring(name, ranks):
    steps, nbytes, claim = CLAIMS[name]
    assert claim in " ".join(ALGORITHMS[name].__doc__.split())
    big = sent(traced(ranks), name, 2520)
    assert {t.step for row in big for t in row} == set(range(steps(ranks)))
    claimed = nbytes(ranks, 4 * 2520) if ranks > 1 else [0]
    assert [sum(4 * t.count for t in row) for row in big] == claimed
    if name == "tree":
        assert sum(claimed) == 2 * (ranks - 1) * 4 * 2520
        assert claimed[0] == (ranks - 1).bit_length() * 4 * 2520


def test_two_nodes_exchange_one_tensor_across_the_link_between_them():
    nodes = [[0, 1, 2], [3, 4, 5]]

    def function(comm, tensor):
        hierarchical.all_reduce(comm, tensor, nodes=nodes)

    trace = dlviz.launch(watch_cases, ranks=6, args=({"nodes": function}, (60,))).trace
    rows = [t for row in sent(trace, "nodes", 60, (60,)) for t in row]
    assert {t.step for t in rows} == set(range(2 * 2 + 2 * 1))
    across = sum(t.count for t in rows if t.src < 3 <= t.dst)
    assert across == 60
    assert all(
        sum(t.count for t in rows if t.src == r) == 60 * 4 // 3 + 60 * 2 // 6 for r in range(6)
    )


def watched_all(comm):
    for name in ALGORITHMS:
        for op in ("sum", "max"):
            tensor = torch.tensor(viz.encode(comm.rank, comm.size, 12), dtype=torch.float64)
            comm.watch(tensor, f"{name} {op}")
            with comm.span("phase", f"{name} {op}"):
                all_reduce(comm, tensor, name, op)


def test_a_watched_tensor_is_seen_as_it_ends():
    """So an animation shows whose values each cell holds, up to all of them."""
    trace = dlviz.launch(watched_all, ranks=4).trace
    spans = zip(trace.spans.name, trace.spans.rank, trace.spans.wall_end, strict=True)
    ends = {(name, rank): end for name, rank, end in spans}
    last = {
        (shot["name"], shot["rank"]): shot["array"]
        for shot in trace.buffers
        if shot["wall"] <= ends[shot["name"], shot["rank"]]
    }
    largest = viz.encode(3, 4, 12)
    for name in ALGORITHMS:
        for rank in range(4):
            assert (viz.decode(last[f"{name} sum", rank], 4) == 1).all(), name
            assert last[f"{name} max", rank].tolist() == largest, name


# -- wrong programs ------------------------------------------------------------------------------
def ring_of_the_wrong_chunk(comm, tensor):
    """Sends chunk r+1-s where the ring sends r-s: the right bytes to the right rank, but of other
    elements."""
    n = comm.size
    with_neighbours = (comm.rank + 1) % n, (comm.rank - 1) % n
    for step in range(2 * (n - 1)):
        op = "sum" if step < n - 1 else "copy"
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
    trace = dlviz.launch(watch_cases, ranks=3, args=({"wrong": wrong}, (12,))).trace
    found = sent(trace, "wrong", 12, (12,))
    assert sum(map(len, found)) > 0
    assert found != by_sender(patterns.ring.all_reduce(3, 12), 3)


OTHERS = {  # what rank 1 gives where rank 0 gives 10 of float32
    "longer": (torch.ones(11), r"shape \(11,\) float32"),
    "empty": (torch.ones(0), r"shape \(0,\) float32"),
    "double": (torch.ones(10).double(), r"shape \(10,\) float64"),
}


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        *((name, "longer") for name in [*ALGORITHMS, "auto"]),
        *((name, other) for name in ("ring", "tree") for other in ("empty", "double")),
    ],
)
def test_ranks_with_unlike_tensors_get_an_error_with_both_ranks_and_shapes(algorithm, other):
    tensor, shape = OTHERS[other]

    def worker(comm):
        all_reduce(comm, tensor if comm.rank else torch.ones(10), algorithm)

    with pytest.raises(dlviz.RankError) as error:
        dlviz.launch(worker, ranks=2)
    error.match(rf"rank 1 makes all_reduce of {shape}")
    error.match(r"rank 0 makes all_reduce of shape \(10,\) float32")


def test_a_gather_beside_a_scatter_gives_an_error_with_these_names():
    def worker(comm):
        (tree.gather if comm.rank else tree.scatter)(comm, torch.zeros(4))

    with pytest.raises(dlviz.RankError, match="rank . makes (gather|scatter).* and rank . makes"):
        dlviz.launch(worker, 2)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "direct"])
def test_a_rank_that_fails_or_dies_amid_an_all_reduce_ends_it_for_all(algorithm):
    def raises(comm):
        all_reduce(comm, torch.ones(9), algorithm)
        if comm.rank == 2:
            raise KeyError("lost")
        all_reduce(comm, torch.ones(9), algorithm)

    def dies(comm):
        all_reduce(comm, torch.ones(9), algorithm)
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        all_reduce(comm, torch.ones(9), algorithm)

    with pytest.raises(dlviz.RankError, match="rank 2 raised KeyError"):
        dlviz.launch(raises, ranks=3)
    with pytest.raises(dlviz.RankError, match="rank 2 was killed by SIGKILL"):
        dlviz.launch(dies, ranks=3)


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_a_rank_that_stays_away_is_a_deadlock_with_a_name(algorithm):
    def worker(comm):
        if comm.rank != 1:
            all_reduce(comm, torch.ones(9), algorithm)

    with pytest.raises(dlviz.DeadlockError, match="rank 1 finished and will send no more"):
        dlviz.launch(worker, ranks=3, timeout=30)


def test_each_all_reduce_has_a_name_for_readers():
    assert patterns.TITLES.keys() == ALGORITHMS.keys()


def test_a_trial_is_a_step_in_which_the_algorithm_sends_its_bytes():
    run = dlviz.launch(trials, 3, args=("ring", 3000), kwargs={"repeats": 2})
    assert len(dlviz.metrics.step_seconds(run.trace, "wall")) == 2
    for step in range(2):
        assert dlviz.metrics.bytes_sent(run.trace.only(step=step)).tolist() == [4000] * 3


@pytest.mark.filterwarnings("ignore:.*late")
def test_a_paced_trial_takes_what_the_formula_says():
    link = dlviz.machine.Link(0.02, 1e6)
    machine = dlviz.machine.classroom(2, link=link)
    run = dlviz.launch(trials, 2, machine=machine, args=("direct", 40_000))
    expected = dlviz.sim.collective_seconds("direct", 2, 40_000, 0.02, 1e-6)
    assert dlviz.metrics.step_seconds(run.trace)[0] == pytest.approx(expected, rel=1e-3)
