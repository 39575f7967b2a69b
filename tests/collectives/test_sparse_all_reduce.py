"""Sparse all-reduce against the dense sum, its bytes against its cost, and where it turns dense."""

from __future__ import annotations

import os
import signal
from functools import cache

import numpy as np
import pytest
import torch

import dlviz
from dlviz import patterns
from dlviz.collectives import sparse
from dlviz.collectives.pairs import Pairs

N = 1000
RANKS = [*range(1, 5), *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 6, 7))]
DENSITIES = (0, 1 / N, 0.01, 0.5, 1)
FLOATS = {torch.float32: 1e-5, torch.float64: 1e-12}


def entries(rank: int, density: float, dtype: torch.dtype = torch.float64, n: int = N) -> Pairs:
    """A rank's own vector: round(density * n) entries at random places."""
    generator = torch.Generator().manual_seed(rank)
    index = torch.randperm(n, generator=generator)[: round(density * n)].sort().values
    values = torch.randn(len(index), generator=generator, dtype=torch.float64)
    return Pairs(index.to(torch.int32), values.to(dtype), n)


def as_tensor(vector: Pairs | torch.Tensor) -> torch.Tensor:
    return vector.dense() if isinstance(vector, Pairs) else vector


def every_case(comm):
    """The sum of each case, as a tensor, and whether it stayed Pairs."""
    found = {}
    for algorithm in sparse.ALGORITHMS:
        for dtype in FLOATS:
            for density in DENSITIES:
                total = sparse.all_reduce(comm, entries(comm.rank, density, dtype), algorithm)
                found[algorithm, dtype, density] = as_tensor(total), isinstance(total, Pairs)
        for n in (0, 1, 3):  # fewer elements than ranks
            total = sparse.all_reduce(comm, entries(comm.rank, 1, n=n), algorithm)
            found[algorithm, "short", n] = as_tensor(total), isinstance(total, Pairs)
        mixed = sparse.all_reduce(comm, entries(comm.rank, (0, 0.7)[comm.rank % 2]), algorithm)
        found[algorithm, "mixed", 0.7] = as_tensor(mixed), isinstance(mixed, Pairs)
    return found


@cache
def sums(ranks: int):
    return dlviz.launch(every_case, ranks=ranks).results


@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_ends_with_the_dense_sum_to_the_same_bits(ranks):
    results = sums(ranks)
    for case, (total, stayed) in results[0].items():
        algorithm, kind, size = case
        if kind == "short":
            vectors = [entries(rank, 1, n=size) for rank in range(ranks)]
        elif kind == "mixed":
            vectors = [entries(rank, (0, 0.7)[rank % 2]) for rank in range(ranks)]
        else:
            vectors = [entries(rank, size, kind) for rank in range(ranks)]
        expected = sum(each.dense().double() for each in vectors)
        limit = FLOATS.get(kind, 1e-12)
        assert total.dtype == vectors[0].values.dtype and total.shape == expected.shape
        torch.testing.assert_close(total.double(), expected, rtol=0, atol=limit, msg=str(case))
        for other, also in (result[case] for result in results[1:]):
            assert torch.equal(other, total) and also == stayed, case
        if algorithm == "doubling" and kind in FLOATS:
            union = np.count_nonzero(sum(each.dense().abs() for each in vectors))
            width = 4 + kind.itemsize
            assert stayed == (union * width <= N * kind.itemsize), case


def test_a_tensor_ends_with_the_sum_whatever_its_shape_and_layout():
    def worker(comm):
        matrix = entries(comm.rank, 0.1).dense().view(20, 50)
        column = torch.zeros(N, 2, dtype=torch.float64)[:, 1].view(20, 50)
        column.copy_(matrix)
        parameter = torch.nn.Parameter(matrix.clone())
        given = matrix, column, parameter
        return [sparse.all_reduce(comm, each) is each and each.detach() for each in given]

    expected = sum(entries(rank, 0.1).dense() for rank in range(3)).view(20, 50)
    for result in dlviz.launch(worker, ranks=3).results:
        for each in result:
            torch.testing.assert_close(each, expected, rtol=0, atol=1e-12)


def test_pairs_that_are_given_stay_as_they_were():
    def worker(comm):
        kept = True
        for density in DENSITIES:
            for algorithm in sparse.ALGORITHMS:
                given = entries(comm.rank, density)
                sparse.all_reduce(comm, given, algorithm)
                kept &= all(map(torch.equal, given[:2], entries(comm.rank, density)[:2]))
        return kept

    assert all(dlviz.launch(worker, ranks=2).results)


def test_by_hand_gives_the_same_sum():
    def worker(comm):
        own = entries(comm.rank, 0.01)
        found = dict(zip(own.index.tolist(), own.values.tolist(), strict=True))
        sparse.by_hand(comm, found)
        return found, sparse.all_reduce(comm, own)

    for by_hand, total in dlviz.launch(worker, ranks=4).results:
        assert sorted(by_hand) == total.index.tolist()
        assert [by_hand[i] for i in sorted(by_hand)] == total.values.tolist()


# -- bytes ---------------------------------------------------------------------------------------
def run(ranks: int, density: float, algorithm: str, dtype=torch.float32, n: int = N):
    def worker(comm):
        return sparse.all_reduce(comm, entries(comm.rank, density, dtype, n), algorithm)

    return dlviz.launch(worker, ranks=ranks)


def held(ranks, density, dtype=torch.float32):
    """Where each rank has an entry, (ranks, N)."""
    return np.stack([entries(rank, density, dtype).dense().numpy() != 0 for rank in range(ranks)])


def nbytes(union, dtype=torch.float32) -> int:
    """Of a message that holds these entries."""
    size = dtype.itemsize
    return min(int(union.sum()) * (4 + size), len(union) * size)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("density", [0, 0.01, 0.2, 0.5])
def test_doubling_sends_the_union_of_ever_more_ranks(density, dtype):
    mask = held(4, density, dtype)
    sent = dlviz.metrics.bytes_sent(run(4, density, "doubling", dtype).trace)
    expected = [
        nbytes(mask[rank], dtype) + nbytes(mask[rank] | mask[rank ^ 1], dtype) for rank in range(4)
    ]
    assert sent.tolist() == expected


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("density", [0, 0.01, 0.2])
def test_split_and_dense_send_parts_and_then_sums(ranks, density):
    mask, bounds = held(ranks, density), [rank * N // ranks for rank in range(ranks + 1)]
    parts = [slice(*bounds[rank : rank + 2]) for rank in range(ranks)]
    for algorithm in ("split", "dense"):
        sent = dlviz.metrics.bytes_sent(run(ranks, density, algorithm).trace).tolist()
        for rank in range(ranks):
            given = sum(8 * int(mask[rank, parts[r]].sum()) for r in range(ranks) if r != rank)
            union = mask[:, parts[rank]].any(0)
            own = nbytes(union) if algorithm == "split" else 4 * len(union)
            assert sent[rank] == given + (ranks - 1) * own


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_who_sends_to_whom_in_which_step_is_the_butterflys_and_the_crossbars(ranks):
    def sends(trace):
        table = trace.messages
        columns = table.step, table.src, table.dst
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    butterfly = [each[:3] for each in patterns.butterfly.all_reduce(ranks, N)]
    assert sends(run(ranks, 0.01, "doubling").trace) == sorted(butterfly)
    once = [(each.src, each.dst) for each in patterns.direct.all_reduce(ranks, N)]
    for algorithm in ("split", "dense"):
        twice = sorted((step, *pair) for step in (0, 1) for pair in once)
        assert sends(run(ranks, 0.01, algorithm).trace) == twice


# -- turning dense -------------------------------------------------------------------------------
def test_the_trace_says_where_and_when_a_vector_turns_dense():
    trace = run(8, 0.1, "doubling").trace
    spans = trace.spans[trace.spans.kind == "phase"]
    mask = held(8, 0.1)
    sizes = [100, *(int(mask[: 2**k].any(0).sum()) for k in (1, 2, 3))]  # of rank 0
    assert sizes[2] < N / 2 < sizes[3]  # it turns dense in the last of three steps
    own = spans[spans["rank"] == 0]
    order = own[np.argsort(own.wall_start)]
    assert [*order.name] == ["doubling", "exchange", "exchange", "exchange", "turns dense", "sum"]
    found = [tuple(each[name] for name in ("nnz", "most", "dense")) for each in order.fields]
    begins = [sizes[0], *sizes]  # of the whole, of each step, and when it turns dense
    assert found == [*((size, N // 2, False) for size in begins), (N, N // 2, True)]
    assert [each.get("round") for each in order.fields] == [0, 0, 1, 2, 2, None]


def test_ranks_turn_dense_apart_where_their_entries_differ():
    def worker(comm):
        density = (0.4, 0.4, 0.1, 0.1)[comm.rank]
        return as_tensor(sparse.all_reduce(comm, entries(comm.rank, density, torch.float32)))

    done = dlviz.launch(worker, ranks=4)
    spans = done.trace.spans[done.trace.spans.name == "turns dense"]
    assert [*spans["rank"]] == [0, 1] and [each["round"] for each in spans.fields] == [0, 0]
    assert all(torch.equal(each, done.results[0]) for each in done.results)


def test_exactly_half_stays_sparse():
    half = run(1, 0.5, "doubling")
    assert isinstance(half.results[0], Pairs) and "turns dense" not in half.trace.spans.name
    assert isinstance(run(1, 0.501, "doubling").results[0], torch.Tensor)


def test_an_entry_that_cancels_stays_an_entry():
    def worker(comm):
        index, value = torch.tensor([7], dtype=torch.int32), 1.0 - 2.0 * comm.rank
        return sparse.all_reduce(comm, Pairs(index, torch.tensor([value]), N))

    for total in dlviz.launch(worker, ranks=2).results:
        assert (total.index.tolist(), total.values.tolist()) == ([7], [0.0])


def test_qsgd_codes_the_sums_alike_on_all_ranks():
    pytest.importorskip("dlviz.compression")

    def worker(comm):
        torch.manual_seed(5)  # the same on all ranks: their draws differ nevertheless
        return sparse.all_reduce(comm, entries(comm.rank, 0.05, torch.float32), "dense", bits=8)

    done = dlviz.launch(worker, ranks=3)
    exact = sum(entries(rank, 0.05, torch.float32).dense() for rank in range(3))
    for total in done.results:
        assert torch.equal(total, done.results[0])
        assert 0 < (total - exact).abs().max() < exact.norm() / 127
    sent = dlviz.metrics.bytes_sent(done.trace)
    plain = dlviz.metrics.bytes_sent(run(3, 0.05, "dense").trace)
    assert (sent < 0.5 * plain).all()


# -- bad input and faults ------------------------------------------------------------------------
ONES = torch.ones(2)
NUMBERS = torch.tensor([1, 5], dtype=torch.int32)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (Pairs(NUMBERS.flip(0), ONES, N), r"index\[1\]=1 comes after 5: sort the pairs"),
        (Pairs(NUMBERS * 0 + 3, ONES, N), r"index\[1\]=3 comes after 3: .* add up values"),
        (Pairs(NUMBERS, ONES, 5), "index holds 1 to 5 in a vector of 5 elements: use 0 to 4"),
        (Pairs(-NUMBERS.flip(0), ONES, 5), "index holds -5 to -1 in a vector of 5 elements"),
        (Pairs(NUMBERS, ONES.int(), N), "values is of torch.int32, and travels as torch.float32"),
        (Pairs(NUMBERS.long(), ONES, N), "index is of torch.int64, and travels as torch.int32"),
        (Pairs(NUMBERS, ONES[:1], N), r"index has shape \(2,\) and values \(1,\)"),
        (Pairs(NUMBERS, ONES, -1), "length=-1 has to be a whole number, 0 or more"),
        (Pairs(NUMBERS, ONES, 2**31), "length=2147483648 is too long for indices of int32"),
        (torch.ones(4, dtype=torch.int64), "values is of torch.int64"),
        (torch.ones(4).half(), "values is of torch.float16"),
    ],
)
def test_what_is_no_sparse_vector_is_refused(vector, message):
    with pytest.raises(dlviz.RankError, match=message):
        dlviz.launch(lambda comm: sparse.all_reduce(comm, vector), ranks=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ring",), "algorithm='ring' is no sparse all_reduce: use one of doubling, split, dense"),
        (("split", 4), "bits=4 codes dense vectors, and algorithm='split' sends pairs"),
    ],
)
def test_what_an_algorithm_cannot_do_is_refused(arguments, message):
    with pytest.raises(dlviz.RankError, match=message):
        dlviz.launch(lambda comm: sparse.all_reduce(comm, torch.ones(4), *arguments), ranks=1)


@pytest.mark.parametrize(
    ("vector", "algorithm", "other", "message"),
    [
        (entries(0, 0.1, n=9), "doubling", "doubling", r"shape \(1000,\) .* shape \(9,\)"),
        (entries(0, 0.1, torch.float32), "doubling", "doubling", "float64 .* float32"),
        (entries(0, 0.1), "doubling", "split", "sparse_doubling of .* sparse_split of"),
        (entries(0, 0.1), "dense", "split", "sparse_dense of .* sparse_split of"),
    ],
)
def test_ranks_that_differ_are_named(vector, algorithm, other, message):
    def worker(comm):
        mine = comm.rank == 1
        sparse.all_reduce(comm, *((vector, other) if mine else (entries(0, 0.1), algorithm)))

    with pytest.raises(
        dlviz.RankError, match=r"collective mismatch: .*rank \d makes sparse"
    ) as why:
        dlviz.launch(worker, ranks=2)
    first, last = message.split(" .* ")
    assert first.replace("\\", "") in str(why.value) and last.replace("\\", "") in str(why.value)


@pytest.mark.parametrize("algorithm", sparse.ALGORITHMS)
def test_a_rank_that_dies_is_named_and_the_others_can_go_on(algorithm):
    def dies(comm):
        sparse.all_reduce(comm, entries(comm.rank, 0.1), algorithm)
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        own = entries(comm.rank, 0.1)
        return comm.together(lambda left: sparse.all_reduce(left, own, algorithm)), comm.lost

    with pytest.raises(dlviz.RankError, match="rank 2 was killed by SIGKILL"):
        dlviz.launch(dies, ranks=3)
    expected = entries(0, 0.1).dense() + entries(1, 0.1).dense()
    for total, lost in dlviz.launch(dies, ranks=3, may_lose=(2,)).results[:2]:
        assert torch.equal(as_tensor(total), expected) and [*lost] == [2]
