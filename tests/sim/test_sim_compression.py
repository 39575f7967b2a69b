"""What compressed gradients cost, held to worked numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dlviz import compression
from dlviz.sim import (
    code_bytes,
    collective_seconds,
    communication_share,
    compressed_seconds,
    expected_union,
)
from dlviz.sim.compression import FORMS

N = 26_122  # an MLP of 64-128-128-10
ALPHA = 5e-4  # s a message


@pytest.mark.parametrize(
    ("name", "options", "nbytes"),
    [
        ("lossless", {}, 104_488),  # at most
        ("fp16", {}, 52_244),
        ("bf16", {}, 52_244),
        ("qsgd", {}, 13_269),
        ("qsgd", {"bits": 2}, 51 * (4 + 128) + 4 + 3),
        ("qsgd", {"bits": 3, "per": 100}, 261 * (4 + 38) + 4 + 9),
        ("one_bit", {}, 3_682),
        ("topk", {}, 2_096),
        ("topk", {"share": 1.0}, 8 * N),
        ("topk", {"share": 1e-9}, 8),
        ("threshold", {"at": 0.1}, 8 * N),
        ("topk_qsgd", {}, 51 * (4 + 26) + 4 + math.ceil(10 * 13 / 8)),
        ("power", {}, 4 * (162 + 162)),
        ("power", {"rank": 2}, 8 * (162 + 162)),
    ],
)
def test_bytes_of_each_code(name, options, nbytes):
    assert code_bytes(name, N, **options) == nbytes


@pytest.mark.parametrize("n", [1, 7, 511, 512, 513])
def test_the_last_bucket_has_the_rest_alone(n):
    assert code_bytes("one_bit", n) == 8 * math.ceil(n / 512) + math.ceil(n / 8)
    assert code_bytes("qsgd", n) == 4 * math.ceil(n / 512) + math.ceil(n / 2)


def test_the_link_decides_how_much_less_is_faster():
    """10 MB/s and 1 GB/s, 4 ranks."""
    for beta, dense, one_bit in ((1e-7, 18.67e-3, 2.60e-3), (1e-9, 3.16e-3, 1.51e-3)):
        ring = collective_seconds("ring", 4, 4 * N, ALPHA, beta)
        assert ring == pytest.approx(dense, abs=5e-6)
        own = compressed_seconds("all_gather", 4, code_bytes("one_bit", N), ALPHA, beta)
        assert own == pytest.approx(one_bit, abs=5e-6)
        assert compressed_seconds("all_reduce", 4, 4 * N, ALPHA, beta) == pytest.approx(ring)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_coding_takes_its_time_in_each_form(ranks):
    e, d = 0.25, 0.5
    for how, coding in {
        "all_gather": e + ranks * d,
        "all_reduce": e + d,
        "reduce_scatter": e * (1 + 1 / ranks) + 2 * d,
    }.items():
        own = compressed_seconds(how, ranks, 1000, ALPHA, 1e-6, e, d)
        sent = own - compressed_seconds(how, ranks, 1000, ALPHA, 1e-6)
        assert sent == pytest.approx(coding)
    gathered = compressed_seconds("all_gather", ranks, 1000, 0.0, 1e-6)
    dense = compressed_seconds("all_reduce", ranks, 3000, 0.0, 1e-6)
    assert (gathered < dense) == (1 < ranks < 6)  # twice the ratio


def test_the_union_of_sparse_vectors_fills_up():
    assert expected_union(1, 0.01, 8) == pytest.approx(0.0773, abs=5e-5)
    for density, half in ((0.01, 69), (0.1, 7)):
        filled = expected_union(N, density, np.arange(1, 200)) / N
        assert 1 + int(np.argmax(filled > 0.5)) == half
    assert [expected_union(N, density, 3) for density in (0, 1)] == [0, N]
    many = np.random.default_rng(0).random((400, 8, 1000)) < 0.01
    assert many.any(1).sum(1).mean() == pytest.approx(expected_union(1000, 0.01, 8), rel=0.02)


@pytest.mark.parametrize(
    ("speedup", "of_communication", "share"),
    [(1.55, 3.31, 0.51), (1.30, 1.36, 0.87), (3.65, 4.53, 0.93), (19.12, 22.97, 0.99)],
)
def test_amdahl_turned_round_explains_the_table(speedup, of_communication, share):
    found = communication_share(speedup, of_communication)
    assert found == pytest.approx(share, abs=0.005)
    assert 1 / (1 - found + found / of_communication) == pytest.approx(speedup)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: code_bytes("two_bit", 8), "name='two_bit' is not a code: use one of fp16, "),
        (lambda: code_bytes("lossless", 8, bits=4), "bits=4: lossless has no such option, but no"),
        (lambda: code_bytes("topk", 8, bits=4), "bits=4: topk has no such option, but share."),
        (lambda: code_bytes("qsgd", 8, bits=9), "bits=9 has to be a whole number from 2 to 8."),
        (lambda: code_bytes("qsgd", 8, bits=None), "bits=None has to be a value."),
        (lambda: code_bytes("topk", 8, share=1.5), "share=1.5 has to be above 0, and 1 at most."),
        (lambda: code_bytes("topk", 8, share=0), "share=0 has to be above 0"),
        (lambda: code_bytes("one_bit", 8, per=0), "per=0 has to be a whole number, 1 or more."),
        (lambda: code_bytes("topk_qsgd", 8, keep=9, per=8), "keep=9 is more than the per=8"),
        (lambda: code_bytes("power", 8, rank=4), "rank=4 is above 3, of 8 values in 3 x 3."),
        (lambda: code_bytes("topk", None), "n=None has to be a value."),
        (lambda: compressed_seconds("ring", 2, 8, 0, 0), "how='ring' is not known: use one of"),
        (lambda: expected_union(8, 1.5, 2), "density=1.5 has to be from 0 to 1."),
        (lambda: communication_share(3, 2), "speedup=3 has to be from 1 to of_communication=2"),
        (lambda: communication_share(1, 1), "which has to be above 1"),
    ],
)
def test_what_no_code_can_have_is_refused(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value) and str(error.value).endswith(".")


@pytest.mark.parametrize("n", [1, 7, 511, 512, 513, 1025, N])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in FORMS),
        ("qsgd", {"bits": 2, "elias": True}),
        ("qsgd", {"bits": 8, "per": 100, "elias": True}),
        ("topk_qsgd", {"keep": 5, "per": 33, "bits": 7}),
        ("topk", {"share": 0.07}),
    ],
)
def test_a_code_is_as_long_as_is_said_or_shorter_where_that_depends_on_the_values(name, options, n):
    code = compression.make(name, **options)
    sent = sum(part.nbytes for part in code.encode(torch.randn(n)))
    said = code_bytes(name, n, **code.options)
    assert said == code.nbytes(n)
    assert sent == said if code.fixed else sent <= said


def test_there_is_a_closed_form_of_every_code():
    assert {*FORMS} == {*compression.NAMES}
