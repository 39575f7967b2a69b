"""Words of a product on a grid, the best grid, and the bound that none goes below."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf, prod, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlviz.sim import best_grid, matmul_lower_bound, matmul_table, matmul_words

SIZES = st.tuples(*[st.integers(1, 5000)] * 3)
RANKS = st.integers(1, 64)
PARTS = st.tuples(*[st.integers(1, 40)] * 3)


def counted(sizes, grid):
    """Words, block by block: each is sent to all but one of the ranks that share it."""
    (m, k, n), (pm, pk, pn) = sizes, grid
    ranks = prod(grid)
    blocks = [
        (Fraction(m * k, pm * pk), pn),
        (Fraction(k * n, pk * pn), pm),
        (Fraction(m * n, pm * pn), pk),
    ]
    return sum(size * (sharers - 1) * (ranks // sharers) for size, sharers in blocks) / ranks


def all_grids(sizes, ranks):
    return [
        grid
        for grid in product(range(1, ranks + 1), repeat=3)
        if prod(grid) == ranks and all(p <= size for p, size in zip(grid, sizes, strict=True))
    ]


@pytest.mark.parametrize(
    ("sizes", "ranks", "grid", "words", "flat"),
    [
        ((64, 512, 2048), 4, (1, 1, 4), 24_576, 24_576),
        ((64, 4096, 64), 4, (1, 4, 1), 3_072, 131_072),
        ((512, 512, 512), 8, (2, 2, 2), 98_304, 131_072),
    ],
)
def test_the_best_grid_of_known_products_reaches_the_bound(sizes, ranks, grid, words, flat):
    assert best_grid(*sizes, ranks) == (grid, words)
    assert matmul_lower_bound(*sizes, ranks) == words
    two_dims = [each for each in all_grids(sizes, ranks) if each[1] == 1]
    assert min(matmul_words(*sizes, each) for each in two_dims) == flat
    assert {row["form"]: row["words"] for row in matmul_table(*sizes, ranks)}["2D"] == flat


def test_the_lecture_s_forms_move_one_matrix_each():
    m, k, n = 64, 512, 2048
    assert matmul_words(m, k, n, (4, 1, 1)) == k * n * 3 / 4  # gathered weights
    assert matmul_words(m, k, n, (1, 4, 1)) == m * n * 3 / 4  # reduced output
    assert matmul_words(m, k, n, (1, 1, 4)) == m * k * 3 / 4  # gathered input
    assert matmul_words(m, k, n, (1, 1, 1)) == matmul_lower_bound(m, k, n, 1) == 0


@given(PARTS, st.data())
def test_words_are_the_blocks_that_ranks_do_not_own(grid, data):
    sizes = [data.draw(st.integers(parts, 5000)) for parts in grid]
    assert matmul_words(*sizes, grid) == float(counted(sizes, grid))


@given(st.tuples(*[st.integers(1, 12)] * 3), st.integers(1, 30))
def test_the_best_grid_is_the_least_of_all_that_fit(sizes, ranks):
    fitting = all_grids(sizes, ranks)
    if not fitting:
        with pytest.raises(ValueError, match=f"ranks={ranks} fit no grid for m={sizes[0]}"):
            best_grid(*sizes, ranks)
        return
    grid, words = best_grid(*sizes, ranks)
    assert grid in fitting
    assert words == matmul_words(*sizes, grid) == min(matmul_words(*sizes, g) for g in fitting)


def test_of_equal_grids_the_best_adds_up_least_and_then_moves_the_weights_least():
    assert best_grid(512, 512, 512, 4)[0] == (2, 1, 2)  # (1, 2, 2) and (2, 2, 1) move as much
    assert best_grid(8, 2, 8, 2)[0] == (1, 1, 2)  # (2, 1, 1) moves as much


@given(PARTS, st.data())
def test_no_grid_goes_below_the_bound(grid, data):
    sizes = [data.draw(st.integers(parts, 5000)) for parts in grid]
    bound = matmul_lower_bound(*sizes, prod(grid))
    assert 0 <= bound <= matmul_words(*sizes, grid) * (1 + 1e-12)


@given(PARTS, st.integers(1, 50))
def test_a_grid_whose_parts_are_cubes_reaches_the_bound_exactly(grid, side):
    sizes = [parts * side for parts in grid]
    assert matmul_words(*sizes, grid) == matmul_lower_bound(*sizes, prod(grid))


@given(SIZES, RANKS)
def test_the_bound_is_the_least_of_what_a_rank_can_use(sizes, ranks):
    """x, y and z words of the matrices with xyz >= (mnk/P)^2, each at least its P-th part: found
    by trying which of them are no more than that part."""
    m, k, n = sizes
    floors = [m * k / ranks, k * n / ranks, m * n / ranks]
    volume, least = (m * k * n / ranks) ** 2, inf
    for fixed in product((False, True), repeat=3):
        held = [floor for floor, is_fixed in zip(floors, fixed, strict=True) if is_fixed]
        free = 3 - len(held)
        each = (volume / prod(held)) ** (1 / free) if free else 0.0
        slack = 1 + 1e-9
        if free and all(
            each * slack >= floor
            for floor, is_fixed in zip(floors, fixed, strict=True)
            if not is_fixed
        ):
            least = min(least, sum(held) + free * each)
    expected = least - sum(floors)
    assert matmul_lower_bound(*sizes, ranks) == pytest.approx(expected, rel=1e-9, abs=1e-6 * least)


@given(SIZES, st.permutations(range(3)), RANKS)
def test_the_bound_does_not_ask_which_dim_is_which(sizes, order, ranks):
    turned = [sizes[place] for place in order]
    assert matmul_lower_bound(*turned, ranks) == matmul_lower_bound(*sizes, ranks)


@given(SIZES, st.integers(1, 216))
def test_the_older_bound_is_not_above_zero_on_216_ranks_or_fewer(sizes, ranks):
    m, k, n = sizes
    held = (m * k + k * n + m * n) / ranks  # the least that a rank holds
    assert m * k * n / (2 * sqrt(2) * ranks * sqrt(held)) - held <= 1e-9 * held


def test_the_older_bound_is_above_zero_on_more_ranks_of_a_cube():
    held = 3 * 512**2 / 217
    assert 512**3 / (2 * sqrt(2) * 217 * sqrt(held)) - held > 0


def test_the_table_leaves_out_the_forms_that_do_not_fit():
    rows = matmul_table(2, 64, 64, 4)
    assert [(row["form"], row["grid"]) for row in rows] == [
        ("split k", (1, 4, 1)),
        ("split n", (1, 1, 4)),
        ("2D", (1, 1, 4)),
        ("best", (1, 2, 2)),
    ]
    assert [row["words"] for row in rows] == [96, 96, 96, 64]
    assert [row["over"] for row in rows] == [1.5, 1.5, 1.5, 1]
    assert [row["over"] for row in matmul_table(1, 1, 1, 1)] == [1.0] * 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: matmul_words(0, 1, 1, (1, 1, 1)),
            "m=0 has to be a whole number, 1 or more",
        ),
        (lambda: matmul_words(4, 4, 4, (2, 2)), r"grid=\(2, 2\) cuts no product: give three whole"),
        (lambda: matmul_words(4, 4, 4, (2, 0, 1)), r"grid=\(2, 0, 1\) cuts no product"),
        (lambda: matmul_words(4, 3, 4, (1, 4, 1)), r"cuts k=3 into 4 parts: .* Use 3 or fewer"),
        (lambda: best_grid(2, 2, 2, 7), "ranks=7 fit no grid for m=2, k=2, n=2"),
        (lambda: best_grid(2, 2, 2, 0), "ranks=0 has to be a whole number, 1 or more"),
        (lambda: matmul_table(2, 2, 2, 9), "ranks=9 fit no grid"),
        (lambda: matmul_lower_bound(1, 1, -1, 1), "n=-1 has to be a whole number, 1 or more"),
    ],
)
def test_what_cuts_no_product_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
