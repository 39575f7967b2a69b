"""Products of matrices on grids of ranks: values and gradients against plain torch, words received
against the count. All cases run in one launch of eight ranks; the tests check its results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dlviz
from dlviz.machine import Device, classroom
from dlviz.parallel import summa
from dlviz.sim import matmul_lower_bound, matmul_words

RANKS = 8
EVEN = [  # grid, (m, k, n) that every axis divides
    ((1, 1, 1), (2, 3, 4)),
    ((2, 1, 2), (4, 8, 6)),
    ((2, 1, 3), (4, 12, 6)),
    ((3, 1, 2), (6, 12, 4)),
    ((1, 2, 3), (4, 12, 6)),
    ((2, 2, 2), (4, 8, 12)),
    ((4, 1, 1), (8, 4, 3)),
    ((1, 4, 1), (3, 8, 4)),
    ((1, 1, 4), (3, 4, 8)),
    ((4, 1, 2), (4, 8, 6)),
]
UNEVEN = [
    *((grid, (5, 7, 11)) for grid, _ in EVEN),
    ((3, 1, 2), (3, 1, 2)),  # some ranks own nothing of X, others nothing of W
    ((2, 2, 2), (2, 2, 2)),
]
CASES = EVEN + UNEVEN
KNOWN = [  # (m, k, n), grid, words that each rank receives
    ((64, 512, 2048), (1, 1, 4), 24_576),
    ((64, 4096, 64), (1, 4, 1), 3_072),
    ((64, 4096, 64), (2, 1, 2), 131_072),
    ((512, 512, 512), (2, 2, 2), 98_304),
    ((512, 512, 512), (2, 1, 4), 131_072),
]
TALL = (2, 1, 2), (4, 64, 4)  # whose blocks of X and W are larger than that of Y


def matrices(sizes):
    """X, W and the gradient of Y."""
    m, k, n = sizes
    draw = torch.Generator().manual_seed(prod(sizes))
    shapes = ((m, k), (k, n), (m, n))
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def cut(tensor, rank, grid, which):
    """A rank's part, unlike in the package: index by index, from numpy's split."""
    where = dict(zip("mkn", np.unravel_index(rank, grid), strict=True))
    parts = dict(zip("mkn", grid, strict=True))
    (rows, columns), (axis, shared) = {
        "x": ("mk", ("n", 1)),
        "w": ("kn", ("m", 0)),
        "y": ("mn", ("k", 1)),
    }[which]
    indices = [
        np.array_split(np.arange(length), parts[dim])[where[dim]]
        for length, dim in zip(tensor.shape, (rows, columns), strict=True)
    ]
    indices[shared] = np.array_split(indices[shared], parts[axis])[where[axis]]
    return tensor[indices[0]][:, indices[1]]


def known(comm):
    """Forwards of larger products, of zeros: their words are counted."""
    for sizes, grid, _ in KNOWN:
        part = comm.split(0 if comm.rank < prod(grid) else None)
        if part is not None:
            m, k, n = sizes
            x = summa.block(torch.zeros(m, k, dtype=torch.float64), part.rank, grid, "x")
            w = summa.block(torch.zeros(k, n, dtype=torch.float64), part.rank, grid, "w")
            with comm.span("phase", f"{sizes} on {grid}"):
                summa.multiply(part, x, w, grid)


class Largest(TorchDispatchMode):
    """The elements of the largest tensor that anything made inside the `with`."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.device.type != "meta":
            self.elements = max(self.elements, out.numel())
        return out


def blocks(comm, sizes, grid, needs=(True, True)):
    x, w, dy = matrices(sizes)
    mine = [summa.block(x, comm.rank, grid, "x"), summa.block(w, comm.rank, grid, "w")]
    for each, need in zip(mine, needs, strict=True):
        each.requires_grad_(need)
    return *mine, summa.block(dy, comm.rank, grid, "y")


def each_case(comm, cases):
    """Y, dX and dW of each case, and Y by hand; each part in a span of its own, named."""
    found = {}
    for number, (grid, sizes) in enumerate(cases):
        part = comm.split(0 if comm.rank < prod(grid) else None)
        if part is None:
            continue
        x, w, dy = blocks(part, sizes, grid)
        with comm.span("phase", f"forward {number}"):
            y = summa.multiply(part, x, w, grid)
        with comm.span("phase", f"backward {number}"):
            y.backward(dy)
        with comm.span("phase", f"by hand {number}"):
            by_hand = summa.by_hand(part, x.detach(), w.detach(), grid)
        found[number] = y.detach(), x.grad, w.grad, by_hand
    return found


def held(comm):
    """The largest tensors of a product by panels, and by hand."""
    grid, sizes = TALL
    x, w, _ = blocks(comm, sizes, grid)
    found = []
    for multiply in (summa.multiply, summa.by_hand):
        with Largest() as largest, torch.no_grad():
            multiply(comm, x, w, grid)
        found.append(largest.elements)
    return found


def first_layer(comm):
    """A product whose X needs no gradient, by data parallelism."""
    x, w, dy = blocks(comm, (8, 4, 3), (4, 1, 1), needs=(False, True))
    y = summa.multiply(comm, x, w, (4, 1, 1))
    with comm.span("phase", "first layer"):
        y.backward(dy)
    return x.grad, w.grad


def two_layers(comm):
    """Partition output, GELU, reduce output, on the same parts of the activations."""
    x, w, _ = matrices((6, 8, 12))
    _, v, dy = matrices((6, 12, 8))
    grids = (1, 1, 4), (1, 4, 1)
    mine = [
        summa.block(x, comm.rank, grids[0], "x"),
        summa.block(w, comm.rank, grids[0], "w"),
        summa.block(v, comm.rank, grids[1], "w"),
    ]
    for each in mine:
        each.requires_grad_()
    inner = torch.nn.functional.gelu(summa.multiply(comm, *mine[:2], grids[0]))
    y = summa.multiply(comm, inner, mine[2], grids[1])
    y.backward(summa.block(dy, comm.rank, grids[1], "y"))
    return y.detach(), *(each.grad for each in mine)


SAID = "x of float64, w of float64 and gradients of"
WRONG = {
    "places": "grid=(2, 1, 1) has 2 places for 4 ranks: its product must be 4.",
    "no grid": "grid=(2, 2) cuts no product: give three whole numbers from 1, the parts of m, k "
    "and n.",
    "too long": "grid=(4, 1, 1) cuts m=3 into 4 parts: a rank without a row or column has nothing "
    "to multiply. Use 3 or fewer there.",
    "batch": "x of shape (2, 2, 2) is no matrix: give it two dims, m and k; batch and tokens "
    "together are rows.",
    "inner": "the blocks of x have k=32 columns together and those of w k=8 rows: cut both for "
    "grid=(1, 1, 4), with summa.block.",
    "shape": "rank 3 has x of shape (3, 4), and its block of the whole (4, 8) on grid=(2, 1, 2) is "
    "(2, 4): cut it with summa.block(tensor, 3, (2, 1, 2), 'x').",
    "grids": f"rank 0 and rank 2 multiply differently: rank 0 has grid=(1, 1, 4), {SAID} x and w; "
    f"rank 2 has grid=(4, 1, 1), {SAID} x and w; give all ranks the same.",
    "gradients": f"rank 0 and rank 1 multiply differently: rank 0 has grid=(1, 1, 4), {SAID} x and "
    f"w; rank 1 has grid=(1, 1, 4), {SAID} w; give all ranks the same.",
    "dtypes": "x and w differ: x is of float64 and w of float32; convert one to the other's dtype.",
}


def wrong(comm):
    """The error of each mistake, on this rank of four."""
    x, w, _ = blocks(comm, (4, 8, 4), (1, 1, 4))
    two, other, _ = blocks(comm, (4, 8, 4), (2, 1, 2))
    tall = blocks(comm, (4, 8, 4), (4, 1, 1))
    last = comm.rank == 3
    mistakes = {
        "places": (x, w, (2, 1, 1)),
        "no grid": (x, w, (2, 2)),
        "too long": (tall[0][: comm.rank < 3], tall[1], (4, 1, 1)),
        "batch": (torch.ones(2, 2, 2), w, (1, 1, 4)),
        "inner": (matrices((4, 8, 4))[0], w, (1, 1, 4)),
        "shape": (torch.ones(3, 4, dtype=torch.float64) if last else two.detach(), other.detach(),
                  (2, 1, 2)),
        "grids": (*tall[:2], (4, 1, 1)) if comm.rank == 2 else (x, w, (1, 1, 4)),
        "gradients": (x.detach() if comm.rank == 1 else x, w, (1, 1, 4)),
        "dtypes": (x.detach(), w.detach().float(), (1, 1, 4)),
    }  # fmt: skip
    answers = {}
    for name, (left, right, grid) in mistakes.items():
        try:
            summa.multiply(comm, left, right, grid)
        except ValueError as error:
            answers[name] = str(error)
    return answers


def everything(comm):
    found = {"cases": each_case(comm, CASES)}
    known(comm)
    four = comm.split(0 if comm.rank < 4 else None)
    for work in (held, first_layer, two_layers, wrong) if four is not None else ():
        found[work.__name__] = work(four)
    return found


@cache
def run():
    return dlviz.launch(everything, ranks=RANKS)


def of_rank(rank, what):
    return run().results[rank][what]


def received(part):
    """Words of float64 that each rank received while it was in its span `part`, if it has one."""
    spans, messages = run().trace.spans, run().trace.messages
    words = []
    for rank in range(RANKS):
        inside = (spans.rank == rank) & (spans.name == part)
        if not inside.any():
            continue
        ((start, end),) = zip(spans.start[inside], spans.end[inside], strict=True)
        mine = (messages.dst == rank) & (messages.received >= start) & (messages.received <= end)
        words.append(int(messages.nbytes[mine].sum()) / 8)
    return words


ids = [f"{'x'.join(map(str, grid))} of {'x'.join(map(str, sizes))}" for grid, sizes in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=ids)
def test_values_and_gradients_are_those_of_one_process(number):
    check(*CASES[number], [of_rank(rank, "cases").get(number) for rank in range(RANKS)])


def check(grid, sizes, found):
    """Each rank of the grid has found what one process does."""
    x, w, dy = matrices(sizes)
    wholes = [("y", x @ w), ("x", dy @ w.T), ("w", x.T @ dy), ("y", x @ w)]
    for rank in range(prod(grid)):
        for mine, (which, whole) in zip(found[rank], wholes, strict=True):
            expected = cut(whole, rank, grid, which)
            torch.testing.assert_close(mine, expected, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.sweep
def test_values_and_gradients_on_every_grid_of_up_to_eight_ranks():
    parts = range(1, RANKS + 1)
    grids = [grid for grid in product(parts, repeat=3) if prod(grid) <= RANKS]
    cases = [(grid, sizes) for grid in grids for sizes in ((8, 8, 8), (9, 10, 11))]
    results = dlviz.launch(each_case, ranks=RANKS, args=(cases,)).results
    for number, case in enumerate(cases):
        check(*case, [result.get(number) for result in results])


def terms(sizes, grid):
    """The count's three terms: words of X, W and Y that a rank receives."""
    (m, k, n), (pm, pk, pn) = sizes, grid
    return [
        m * k / (pm * pk) * (1 - 1 / pn),
        k * n / (pk * pn) * (1 - 1 / pm),
        m * n / (pm * pn) * (1 - 1 / pk),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=ids)
def test_the_words_received_are_those_of_the_count(number):
    grid, sizes = CASES[number]
    x, w, y = terms(sizes, grid)
    assert matmul_words(*sizes, grid) == pytest.approx(x + w + y)
    forward, backward, by_hand = (
        received(f"{part} {number}") for part in ("forward", "backward", "by hand")
    )
    assert sum(forward) == sum(by_hand) == matmul_words(*sizes, grid) * prod(grid)
    assert sum(backward) == pytest.approx((2 * x + 2 * w + y) * prod(grid))
    if number < len(EVEN):
        assert forward == by_hand == [matmul_words(*sizes, grid)] * prod(grid)
        assert backward == pytest.approx([2 * x + 2 * w + y] * prod(grid))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "grid", "words"), KNOWN)
def test_known_products_receive_on_ranks_what_the_best_grids_promise(sizes, grid, words):
    assert received(f"{sizes} on {grid}") == [words] * prod(grid)
    assert words == matmul_words(*sizes, grid) >= matmul_lower_bound(*sizes, prod(grid))


@pytest.mark.slow
def test_only_a_panel_is_held_of_what_by_hand_holds_whole():
    grid, (m, k, _) = TALL
    whole = m // grid[0] * k
    assert [of_rank(rank, "held") for rank in range(4)] == [[whole // grid[2], whole]] * 4


@pytest.mark.slow
def test_a_first_layer_sends_nothing_for_the_gradient_that_its_input_does_not_need():
    x, _, dy = matrices((8, 4, 3))
    for rank in range(4):
        no_gradient, gradient = of_rank(rank, "first_layer")
        assert no_gradient is None
        torch.testing.assert_close(gradient, cut(x.T @ dy, rank, (4, 1, 1), "w"))
    # dW is added over the ranks that share W; X stays where it is.
    assert received("first layer") == [terms((8, 4, 3), (4, 1, 1))[1]] * 4


@pytest.mark.slow
def test_partition_output_and_reduce_output_follow_each_other_on_the_same_parts():
    x, w, _ = matrices((6, 8, 12))
    _, v, dy = matrices((6, 12, 8))
    leaves = [each.requires_grad_() for each in (x, w, v)]
    y = torch.nn.functional.gelu(x @ w) @ v
    y.backward(dy)
    for rank in range(4):
        found = of_rank(rank, "two_layers")
        grids = [((1, 4, 1), "y"), ((1, 1, 4), "x"), ((1, 1, 4), "w"), ((1, 4, 1), "w")]
        wholes = [y.detach(), *(leaf.grad for leaf in leaves)]
        for mine, whole, (grid, which) in zip(found, wholes, grids, strict=True):
            torch.testing.assert_close(mine, cut(whole, rank, grid, which), rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_every_rank_reports_a_mistake_before_anything_is_sent(name):
    assert [of_rank(rank, "wrong").get(name) for rank in range(4)] == [WRONG[name]] * 4


@pytest.mark.slow
def test_spans_say_which_rows_and_columns_travel():
    number = CASES.index(((2, 1, 3), (4, 12, 6)))
    spans = run().trace.spans
    here = spans.rank == 4  # (1, 0, 1): rows 2:4 of X, columns 2:4 of W
    (outer,) = np.flatnonzero(here & (spans.name == f"forward {number}"))
    inside = here & (spans.start >= spans.start[outer]) & (spans.end <= spans.end[outer])
    names = [name for name in spans.name[inside & (spans.kind == "collective")] if "[" in name]
    panels = ["0:4", "4:6", "6:8", "8:12"]  # X is cut at 4 and 8, W at 6
    assert names == [piece for each in panels for piece in (f"X[2:4, {each}]", f"W[{each}, 2:4]")]
    assert (spans.kind[inside] == "forward").sum() == len(panels)
    assert {"dX[2:4, 4:6]", "dW[4:6, 2:4]"} <= set(spans.name[here])


# -- without ranks ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("grid", "sizes"), [*CASES, ((2, 3, 4), (9, 31, 17))])
def test_blocks_are_the_parts_of_the_matrix_each_once(grid, sizes):
    for whole, which in zip(matrices(sizes), "xwy", strict=True):
        parts = [summa.block(whole, rank, grid, which) for rank in range(prod(grid))]
        for rank, part in enumerate(parts):
            assert torch.equal(part, cut(whole, rank, grid, which))
        values = torch.cat([part.flatten() for part in parts])
        assert torch.equal(values.sort().values, whole.flatten().sort().values)


@pytest.mark.parametrize(
    ("shape", "rank", "grid", "which", "words"),
    [
        ((4, 4), 0, (1, 1, 1), "z", "which='z' is no matrix of Y = X W: use 'x', 'w' or 'y'"),
        ((4, 4), 4, (2, 1, 2), "x", r"rank=4 is not on grid=\(2, 1, 2\): use 0 to 3"),
        ((4,), 0, (1, 1, 1), "w", r"w of shape \(4,\) is no matrix: give it two dims, k and n"),
        ((4, 3), 0, (1, 1, 5), "y", r"grid=\(1, 1, 5\) cuts n=3 into 5 parts"),
        ((4, 3), 0, (1, 5, 1), "w", r"grid=\(1, 5, 1\) cuts k=4 into 5 parts"),
        ((0, 3), 0, (1, 1, 1), "x", "m=0 has to be a whole number, 1 or more"),
    ],
)
def test_an_invalid_block_is_refused_in_words(shape, rank, grid, which, words):
    with pytest.raises(ValueError, match=words):
        summa.block(torch.ones(shape), rank, grid, which)


# -- a paced run -----------------------------------------------------------------------------------
def train_once(comm):
    x, w, dy = blocks(comm, (4, 8, 6), (2, 1, 2))
    summa.multiply(comm, x, w, (2, 1, 2)).backward(dy)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_a_paced_rank_computes_its_share_of_the_flops():
    device = Device("test", flops=1e4, memory=1e9, memory_bandwidth=1e9)
    machine = replace(classroom(4, step=None), device=device)
    spans = dlviz.launch(train_once, ranks=4, machine=machine).trace.spans
    flops = 2 * 4 * 8 * 6 / 4
    for rank in range(4):
        for kind, products in (("forward", 1), ("backward", 2)):
            mine = (spans.rank == rank) & (spans.kind == kind)
            seconds = (spans.end[mine] - spans.start[mine]).sum()
            assert seconds == pytest.approx(products * flops / 1e4)
