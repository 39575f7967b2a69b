"""Sums by codes, beside one process that codes the ranks' vectors one after the other."""

import pytest
import torch

import dlviz
from dlviz import compression, metrics
from dlviz.collectives import coded
from dlviz.machine import Link, classroom
from dlviz.sim import compressed_seconds

N = 1300  # two buckets of 512 and a ragged one
CODES = {
    "fp16": {}, "bf16": {}, "qsgd": {"bits": 6}, "one_bit": {}, "topk": {"share": 0.01},
    "threshold": {"at": 1.0}, "topk_qsgd": {}, "lossless": {}, "power": {"rank": 2},
}  # fmt: skip
ALL = [
    (name, how)
    for name in CODES
    for how in coded.HOW
    if (how == "all_reduce") <= (name in ("fp16", "bf16", "power"))
    and (name != "power" or how == "all_reduce")
]


def vectors(ranks, step=0, n=N):
    drawn = torch.Generator().manual_seed(step)
    return torch.randn(ranks, n, generator=drawn)


def made(name, rank):
    return compression.make(name, **CODES[name]).for_bucket([(26, 50)], rank, 0)


def on_ranks(comm, name, how, feedback, steps=3):
    code = coded.CodedAllReduce(made(name, comm.rank), how, feedback)
    sums = []
    for step in range(steps):
        sums.append(vectors(comm.size, step)[comm.rank].clone())
        comm.barrier()
        with comm.span("step", step=step):
            code(comm, sums[-1])
    return sums, code.state_dict()


def chunks(row, n):
    return [row[i * len(row) // n : (i + 1) * len(row) // n] for i in range(n)]


def alone(name, how, feedback, ranks, steps=3):
    """The same sums by one process."""
    codes = [made(name, rank) for rank in range(ranks)]
    residuals = [torch.zeros(N) for _ in range(ranks)]
    of_sums = [torch.zeros(len(chunk)) for chunk in chunks(torch.zeros(N), ranks)]

    def there_and_back(code, v):
        return code.decode(code.encode(v), len(v))

    def total(rows):
        found = rows[0].clone()
        for row in rows[1:]:
            found += row
        return found

    sums = []
    for step in range(steps):
        vs = [v + e for v, e in zip(vectors(ranks, step), residuals, strict=True)]
        if how == "all_gather":
            decoded = [there_and_back(code, v) for code, v in zip(codes, vs, strict=True)]
            sums.append(total(decoded))
        else:
            pieces = [
                [there_and_back(code, chunk) for chunk in chunks(v, ranks)]
                for code, v in zip(codes, vs, strict=True)
            ]
            decoded = [torch.cat(each) for each in pieces]
            finished = []
            for owner in range(ranks):
                v = total([each[owner] for each in pieces]) + of_sums[owner]
                finished.append(there_and_back(codes[owner], v))
                if feedback:
                    of_sums[owner] = v - finished[-1]
            sums.append(torch.cat(finished))
        if feedback:
            residuals = [v - each for v, each in zip(vs, decoded, strict=True)]
    return sums


GATHERED = [(*pair, on) for pair in ALL if pair[1] != "all_reduce" for on in (False, True)]


def all_on_ranks(comm):
    return {case: on_ranks(comm, *case)[0] for case in GATHERED}


@pytest.fixture(scope="module")
def on_three_ranks():
    return dlviz.launch(all_on_ranks, 3).results


@pytest.mark.parametrize("case", GATHERED, ids=str)
def test_codes_add_up_as_in_one_process_to_the_last_bit(case, on_three_ranks):
    expected = alone(*case, ranks=3)
    for rank in on_three_ranks:
        assert all(map(torch.equal, rank[case], expected))


@pytest.mark.parametrize("name", ["fp16", "bf16", "power"])
def test_codes_that_are_added_on_the_way_come_near_the_dense_sum(name):
    lost = {}
    for feedback in (False, True):
        results = dlviz.launch(on_ranks, 4, args=(name, None, feedback, 1)).results
        sums = [each[0][0] for each in results]
        assert all(torch.equal(sums[0], each) for each in sums)
        lost[feedback] = vectors(4).sum(0) - sums[0]
        residuals = [each[1]["own"] for each in results]
    held = sum(state["residual"] for state in residuals)
    error = lost[True].norm() / vectors(4).sum(0).norm()
    assert error < {"fp16": 1e-3, "bf16": 1e-2, "power": 1.0}[name]
    if name == "power":  # what the ranks hold is what the sum lacks
        assert torch.allclose(held, lost[True], atol=1e-4)


@pytest.mark.parametrize(("name", "how"), ALL)
def test_bytes_in_the_trace_are_those_of_the_formula(name, how):
    ranks, by = 4, made(name, 0)
    run = dlviz.launch(on_ranks, ranks, args=(name, how, False))
    sent = metrics.bytes_sent(run.trace.only(step=1))
    if not by.fixed:
        assert all(0 < each <= (ranks - 1) * (by.nbytes(N) + 8 * 8) * 2 for each in sent)
    elif how == "all_gather":
        assert all(sent == (ranks - 1) * by.nbytes(N))
    elif how == "reduce_scatter":
        piece = by.nbytes(N // ranks)
        assert all(sent == 2 * (ranks - 1) * piece)
    else:
        assert sent.sum() == 2 * (ranks - 1) * by.nbytes(N)


def paced(comm, name, how, seconds, n):
    code = coded.CodedAllReduce(compression.make(name, **CODES[name]), how, seconds=seconds)
    for step in range(2):
        tensor = vectors(comm.size, 0, n)[comm.rank].clone()
        comm.barrier()
        with comm.span("step", step=step):
            code(comm, tensor)


@pytest.mark.parametrize("how", ["all_gather", "reduce_scatter"])
def test_a_paced_sum_takes_what_the_closed_form_says(how):
    ranks, n, link = 4, 40_000, Link(0.5e-3, 1e7)
    args = "one_bit", how, (0.004, 0.003), n
    run = dlviz.launch(paced, ranks, machine=classroom(ranks, link=link), args=args)
    nbytes = compression.make("one_bit").nbytes(n)
    expected = compressed_seconds(how, ranks, nbytes, 0.5e-3, 1e-7, 0.004, 0.003)
    found = metrics.step_seconds(run.trace.only(step=1))[0]
    assert found == pytest.approx(expected, rel=0.01)


def short(comm, length):
    found = []
    for name in ("one_bit", "threshold", "fp16"):
        for how in coded.HOW[::2] if name != "fp16" else ["all_reduce"]:
            tensor = torch.full((length,), float(2**comm.rank))
            coded.all_reduce(comm, tensor, compression.make(name), how)
            found.append(tensor.tolist())
    return found


@pytest.mark.parametrize("length", [0, 1, 2])
def test_vectors_shorter_than_the_ranks_have_codes(length):
    for found in dlviz.launch(short, 4, args=(length,)).results:
        assert found == [[15.0] * length] * 5


def refused(comm, what):
    by = compression.make("one_bit")
    if what == "another":
        by = compression.make("qsgd", bits=2 + comm.rank)
    tensor = torch.ones(600, dtype=torch.int64 if what == "whole" else torch.float32)
    if what == "nan":
        tensor[7] = torch.nan
    coded.all_reduce(comm, tensor, by, "all_reduce" if what == "added" else None)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("another", "rank 0 sums by .*rank 1 by .*"),
        ("whole", "int64 has no code"),
        ("nan", r"element 7 of rank \d is nan"),
        ("added", "cannot be added"),
    ],
)
def test_what_cannot_be_coded_is_refused_in_a_sentence(what, says):
    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(refused, 2, args=(what,))


def dies(comm):
    code = coded.CodedAllReduce(compression.make("topk", share=0.1))
    code(comm, torch.ones(100))
    if comm.rank == 1:
        raise RuntimeError("between code and exchange")
    code(comm, torch.ones(100))


def test_a_rank_that_dies_before_the_exchange_is_named():
    with pytest.raises(dlviz.RankError, match="between code and exchange") as error:
        dlviz.launch(dies, 3)
    assert error.value.rank == 1
