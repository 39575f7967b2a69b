"""QSGD: unbiased, exactly and in draws; its variance and its codes within the paper's bounds."""

import math

import numpy as np
import pytest
import torch

from dlviz.compression import make, rounding_variance, variance
from dlviz.compression.qsgd import elias_code, elias_words, norms_of, rounded

PYTHAGOREAN = (
    (3, -4, 0, 0),
    (1, -2, 2),
    (1, 1, -1, 1, -4, 4),
    (0.0, 0.0),
    (-5,),
    (2, 2, 4, 5, 0, 0),
)


class Grid:
    """Every value gets the same draw."""

    def __init__(self, draw):
        self.draw = draw

    def random(self, shape, dtype):
        return np.full(shape, self.draw, dtype)


def decoded(v, by, draw=None):
    if draw is not None:
        by.rng = Grid(draw)
    return by.decode(by.encode(v), len(v)).double()


@pytest.mark.parametrize("values", PYTHAGOREAN)
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_the_expected_value_is_exact_and_so_is_the_variance(values, bits):
    """The norm is a whole number of 1s, so each probability is a multiple of 1 / norm."""
    v, by = torch.tensor(values, dtype=torch.float32), make("qsgd", bits=bits)
    many = max(1, round(float(v.norm())))
    draws = [decoded(v, by, (i + 0.5) / many) for i in range(many)]
    assert torch.allclose(sum(draws) / many, v.double(), atol=1e-6)
    spread = sum((draw - v).square().sum() for draw in draws) / many
    s, n = 2 ** (bits - 1) - 1, len(v)
    assert float(spread) == pytest.approx(rounding_variance(v, s), abs=1e-5)
    assert float(spread) <= min(n / s**2, math.sqrt(n) / s) * float(v.square().sum()) + 1e-6


def test_the_variance_of_3_4_0_0_by_levels():
    v = torch.tensor([3.0, -4.0, 0.0, 0.0])
    found = [rounding_variance(v, levels) for levels in (1, 2, 4, 5)]
    assert found == pytest.approx([10, 2.5, 0.625, 0], abs=1e-12)
    assert rounding_variance(torch.zeros(3), 1) == 0


def z_scores(rng, levels=3, draws=20_000):
    """How many standard errors each coordinate's mean is from its value."""
    v = np.random.default_rng(0).standard_normal((1, 6)).astype("f4")
    rows = np.repeat(v, draws, axis=0)
    level = norms_of(v)[0] / levels
    found = rounded(rows, norms_of(rows), levels, rng) * np.sign(v) * level
    fraction = np.abs(v[0]) / level % 1
    return (found.mean(0) - v[0]) / (level * np.sqrt(fraction * (1 - fraction) / draws))


def test_draws_have_the_mean_of_the_value_within_5_sigma_and_a_biased_rounding_has_not():
    assert np.abs(z_scores(np.random.Generator(np.random.SFC64(1)))).max() < 5
    assert np.abs(z_scores(Grid(0.5))).max() > 5  # to the nearest


@pytest.mark.parametrize("s", [1, 3, 7])
def test_few_levels_are_not_0(s):
    n, bits = 512, {1: 2, 3: 3, 7: 4}[s]
    by, v = make("qsgd", bits=bits), torch.randn(n, generator=torch.Generator().manual_seed(0))
    nonzero = np.mean([float((decoded(v, by) != 0).sum()) for _ in range(200)])
    assert nonzero <= s * (s + math.sqrt(n))
    exact = rounding_variance(v, s)
    assert exact <= min(n / s**2, math.sqrt(n) / s) * float(v.square().sum())
    measured = np.mean([float((decoded(v, by) - v).square().sum()) for _ in range(400)])
    assert measured == pytest.approx(exact, rel=0.05)


def test_the_variance_of_few_levels_is_above_the_square_of_the_norm():
    """One level: |v|_1 / |v|_2 - 1, for Gaussian values sqrt(2 n / pi) - 1 = 17.05."""
    assert variance(make("qsgd", bits=2), 512) == pytest.approx(17.05, abs=0.2)
    assert variance(make("qsgd", bits=4), 512) == pytest.approx(1.58, abs=0.03)
    assert variance(make("qsgd", bits=5), 512) < 1


def test_measuring_the_variance_leaves_the_draws_alone():
    by, v = make("qsgd"), torch.ones(512)
    variance(by, 512)
    assert torch.equal(by.encode(v)[1], make("qsgd").encode(v)[1])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_elias_code_loses_nothing(bits):
    drawn = np.random.default_rng(bits)
    for n in (1, 7, 513, 5000):
        for share in (0.0, 0.01, 1.0):
            levels = drawn.integers(1, 2 ** (bits - 1), n) * (drawn.random(n) < share)
            sign = drawn.integers(0, 2, n) * (levels > 0)
            words = (sign << bits - 1 | levels).astype(np.uint8)
            assert np.array_equal(elias_words(elias_code(words, bits), n, bits), words)


def test_elias_code_has_the_words_of_the_paper():
    """x = 1, 2, 3, 4 are 1, 01 0, 01 1, 001 00: here unary parts, then digits, then signs."""
    words = np.array([1, 0, 3, 8 | 2, 4], np.uint8)  # gaps 1 2 1 1, levels 1 3 2 4
    unary, digits, signs = elias_code(words, 4)
    assert np.unpackbits(unary.numpy())[:12].tolist() == [1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0]
    assert np.unpackbits(unary.numpy())[12] == 1
    assert np.unpackbits(digits.numpy())[:5].tolist() == [0, 1, 0, 0, 0]
    assert np.unpackbits(signs.numpy())[:4].tolist() == [0, 0, 1, 0]


def test_elias_code_takes_under_the_papers_2_8_bits_at_sqrt_n_levels():
    n = 31**2
    by = make("qsgd", bits=6, per=n, elias=True)
    v = torch.randn(100 * n, generator=torch.Generator().manual_seed(0))
    bits = 8 * sum(part.nbytes for part in by.encode(v)) / len(v)
    assert bits == pytest.approx(2.77, abs=0.03)
