"""Every compressor: what its code stands for, how many bytes it takes, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from dlviz import compression
from dlviz.compression import coding, make, measure_coding
from dlviz.compression.topk import largest

N = 26_122  # an MLP of 64-128-128-10
LENGTHS = (1, 7, 511, 512, 513, N)
MADE = [(name, {}) for name in compression.NAMES] + [
    *(("qsgd", {"bits": bits, "elias": elias}) for bits in (2, 5, 8) for elias in (False, True)),
    ("qsgd", {"bits": 3, "per": 100}), ("one_bit", {"per": 100}), ("one_bit", {"per": 1}),
    ("topk_qsgd", {"keep": 3, "per": 10, "bits": 3}), ("topk_qsgd", {"keep": 1, "per": 1}),
    ("topk_qsgd", {"keep": 5, "bits": 8}), ("topk", {"share": 1.0}),
    ("topk", {"share": 1e-9}), ("topk", {"share": 0.4}),
    ("threshold", {"at": 1.0}), ("fp16", {"scale": 64.0}),
]  # fmt: skip


def drawn(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def there_and_back(code, v):
    return code.decode(code.encode(v), len(v))


def vectors(n):
    huge = drawn(n)
    huge[n // 2] = 3e38
    return {"gaussian": drawn(n), "double": drawn(n).double(), "zeros": torch.zeros(n),
            "huge": huge, "tiny": drawn(n) * 1e-42, "ties": torch.ones(n)}  # fmt: skip


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("name", "options"), MADE)
def test_a_code_has_the_bytes_of_the_formula_and_stands_for_n_finite_values(name, options, n):
    by = make(name, **options)
    for kind, v in vectors(n).items():
        code = by.encode(v)
        nbytes = sum(part.nbytes for part in code)
        most = by.nbytes(n) * (v.element_size() / 4 if name == "lossless" else 1)
        assert nbytes == most if by.fixed else 0 <= nbytes <= most, kind
        found = by.decode(code, n)
        assert found.shape == (n,) and found.dtype == (
            v.dtype if name == "lossless" else v.float().dtype
        )
        overflows = name == "fp16" and kind == "huge"
        assert found.isfinite().all() or overflows, kind
        if kind == "zeros":
            assert not found.any()
        if kind == "ties" and name == "one_bit":
            assert torch.equal(found, v)


@pytest.mark.parametrize(
    ("name", "options", "nbytes"),
    [
        ("fp16", {}, 52_244), ("bf16", {}, 52_244), ("qsgd", {}, 13_269), ("one_bit", {}, 3_682),
        ("topk", {}, 2_096), ("topk_qsgd", {}, 51 * 30 + 4 + 17), ("power", {}, 4 * (162 + 162)),
        ("lossless", {}, 104_488), ("threshold", {}, 8 * N),
    ],
)  # fmt: skip
def test_bytes_of_each_code_of_26122_values(name, options, nbytes):
    assert make(name, **options).nbytes(N) == nbytes


def test_parts_are_as_wide_on_the_wire_as_the_code_needs():
    assert [part.dtype for part in make("qsgd").encode(drawn(600))] == [torch.float32, torch.uint8]
    assert [part.dtype for part in make("topk").encode(drawn(600))] == [torch.int32, torch.float32]
    assert [part.dtype for part in make("bf16").encode(drawn(600))] == [torch.bfloat16]


def test_one_bit_stands_for_the_mean_of_either_sign():
    v = torch.tensor([0.5, -0.25, 0.0, -0.75, -2.0])
    found = there_and_back(make("one_bit", per=4), v)
    assert found.tolist() == [0.25, -0.5, 0.25, -0.5, -2.0]
    bits = make("one_bit", per=4).encode(v)[1]
    assert bits.tolist() == [0b10100000, 0]


@pytest.mark.parametrize("n", [1, 2, 100, 5000, N])
@pytest.mark.parametrize("share", [1e-4, 0.01, 0.07, 0.5, 1.0])
def test_topk_sends_exactly_the_largest(n, share):
    for v in (drawn(n), torch.zeros(n), drawn(n).round(), drawn(n).sort().values):
        indices, values = make("topk", share=share).encode(v)
        k = math.ceil(share * n)
        assert len(indices) == k and (indices.diff() > 0).all()
        assert torch.equal(values.abs().sort().values, v.abs().topk(k).values.sort().values)
        assert torch.equal(v[indices.long()], values)


def test_topk_is_right_where_its_sample_misleads():
    sizes = np.ones(N, np.float32)
    sizes[::61] = 5.0  # the sample alone
    assert set(largest(sizes, 1000)) >= set(range(0, N, 61))
    sizes = np.full(N, 2.0, np.float32)
    sizes[::61] = 1.0
    assert len(largest(sizes, N - 3)) == N - 3


def test_threshold_skips_what_is_below():
    v = torch.tensor([0.1, -0.5, 0.49, 2.0])
    assert torch.equal(there_and_back(make("threshold", at=0.5), v), torch.tensor([0, -0.5, 0, 2]))
    assert make("threshold", at=9.0).encode(v)[0].numel() == 0


def test_what_topk_qsgd_leaves_out_is_zero_and_the_rest_near():
    v = drawn(1100)
    found = there_and_back(make("topk_qsgd", bits=8), v)
    for bucket, decoded in zip(v.split(512), found.split(512), strict=True):
        kept = bucket.abs().topk(16).indices
        level = bucket[kept].norm() / 127
        left = torch.ones(len(bucket), dtype=torch.bool).index_fill(0, kept, False)
        assert not decoded[left].any()
        assert (decoded - bucket)[kept].abs().max() <= level * 1.0001


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lossless_loses_nothing_and_gaussians_shrink_little(dtype):
    v = torch.randn(N, dtype=dtype, generator=torch.Generator().manual_seed(0))
    code = make("lossless").encode(v)
    found = make("lossless").decode(code, N)
    assert torch.equal(found, v) and found.dtype == dtype
    ratio = sum(part.nbytes for part in code) / v.nbytes
    assert ratio == pytest.approx({torch.float32: 0.86, torch.float64: 0.89}[dtype], abs=0.03)


def test_sixteen_bits_have_limits_that_a_scale_moves():
    v = torch.tensor([1e-8, 65_504.0, 70_000.0])
    assert there_and_back(make("fp16"), v).tolist() == [0.0, 65_504.0, math.inf]
    assert there_and_back(make("bf16"), v).isfinite().all()
    small = v[:1]
    assert there_and_back(make("fp16", scale=4096.0), small) == pytest.approx(1e-8, rel=1e-2)
    assert there_and_back(make("fp16", scale=2**-2), v)[2] == pytest.approx(70_000, rel=1e-3)


@pytest.mark.parametrize(("name", "most"), [("fp16", 2048), ("bf16", 256)])
def test_a_sum_of_codes_stagnates(name, most):
    for first, total in ((most, most), (most - 2, most - 1)):
        v = torch.tensor([float(first)])
        for code in make(name).rounds(v, v):
            code += torch.ones_like(code)
        assert v == total


def test_a_value_that_is_not_finite_is_named_before_anything_is_coded():
    for name in compression.NAMES:
        for bad in (math.nan, math.inf, -math.inf):
            v = drawn(600)
            v[7] = bad
            with pytest.raises(ValueError, match=rf"flat\[7\]={bad} has no code by {name}"):
                make(name).encode(v)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make("zip"), "name='zip' is not a compressor: use one of fp16, "),
        (lambda: make("lossless", bits=4), "bits=4: lossless has no such option, but none."),
        (lambda: make("topk", bits=4), "bits=4: topk has no such option, but share."),
        (lambda: make("qsgd", bits=None), "bits=None has to be a value."),
        (lambda: make("qsgd", bits=1), "bits=1 has to be a whole number, 2 or more."),
        (lambda: make("qsgd", bits=9), "bits=9 has to be a whole number from 2 to 8."),
        (lambda: make("topk_qsgd", bits=9), "bits=9 has to be a whole number from 2 to 8."),
        (lambda: make("qsgd", per=0), "per=0 has to be a whole number, 1 or more."),
        (lambda: make("one_bit", per=0.5), "per=0.5 has to be a whole number, 1 or more."),
        (lambda: make("topk", share=0), "share=0 has to be above 0, and 1 at most."),
        (lambda: make("topk", share=1.5), "share=1.5 has to be above 0, and 1 at most."),
        (lambda: make("threshold", at=-1), "at=-1 has to be a finite number, 0 or more."),
        (lambda: make("topk_qsgd", keep=9, per=8), "keep=9 is more than the per=8 values"),
        (lambda: make("topk_qsgd", per=2**25), "per=33554432 is above 16777216, the most"),
        (lambda: make("fp16", scale=0.0), "scale=0.0 has to be above 0"),
        (lambda: make("power", rank=0), "rank=0 has to be a whole number, 1 or more."),
        (lambda: make("power", rank=4).nbytes(8), "rank=4 is above 3, the most that a matrix of"),
        (lambda: make("power", rank=4).encode(drawn(8)), "rank=4 is above 3"),
        (lambda: make("power", rank=4).for_bucket([(10, 3), (10,)], 0, 0), "matrix of 10 x 3"),
        (lambda: make("one_bit").encode(torch.arange(4)), "flat is of torch.int64"),
        (lambda: make("one_bit").encode(torch.ones(2, 2)), "flat, of shape (2, 2), has to be one"),
        (lambda: make("one_bit").encode(torch.ones(0)), "flat, of shape (0,), has to be one row"),
        (
            lambda: next(make("one_bit").rounds(drawn(4), drawn(4))),
            "codes of 'one_bit' cannot be added",
        ),
    ],
)
def test_what_cannot_be_coded_is_refused_in_a_sentence(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value) and str(error.value).endswith(".")


def test_a_sum_that_overflows_is_not_taken_for_a_value_that_does():
    assert there_and_back(make("topk", share=1.0), torch.full((4,), 3e38)).isfinite().all()


def test_ranks_and_buckets_draw_by_themselves_and_each_again_the_same():
    v, by = drawn(600), make("qsgd", bits=2)
    codes = {
        key: by.for_bucket([(20, 30)], *key).encode(v)[1].tolist()
        for key in ((0, 0), (0, 1), (1, 0))
    }
    assert len(set(map(tuple, codes.values()))) == 3
    again = by.for_bucket([(20, 30)], 1, 0)
    assert again.encode(v)[1].tolist() == codes[1, 0] != again.encode(v)[1].tolist()
    assert make("qsgd", seed=1).encode(v)[1].tolist() != make("qsgd").encode(v)[1].tolist()
    assert str(by) == "qsgd(bits=2, per=512, elias=False, seed=0)"


@pytest.mark.parametrize("name", compression.NAMES)
def test_coding_is_measured_on_one_thread_which_is_given_back(name, monkeypatch):
    threads, seen = torch.get_num_threads(), []
    monkeypatch.setattr(coding, "_seconds", lambda run: seen.append(torch.get_num_threads()) or 1.5)
    assert measure_coding(name, 600) == (1.5, 1.5)
    assert seen == [1, 1] and torch.get_num_threads() == threads
    monkeypatch.undo()
    assert min(measure_coding(name, 600)) > 0
