"""The halo exchange: what the checks rest on, rehearsals, and the answers of its predictions."""

from __future__ import annotations

import pytest
import torch
from courses import Assignment
from programs import held_to_rows, report
from rows import checks, rows
from torch.nn.functional import conv2d

from dlviz.grading.assignments.halo_exchange import checks as halo_checks
from dlviz.grading.assignments.halo_exchange.checks import SIZES
from dlviz.grading.assignments.halo_exchange.model import (
    CHANNELS,
    FILTERS,
    SAMPLES,
    WIDTH,
    Conv,
    returned,
    times,
    window,
)
from dlviz.grading.assignments.halo_exchange.run import Strips

globals().update(held_to_rows("halo_exchange"))
ROWS = {row.what: row for row in rows("halo_exchange")}
RIGHT = [row for row in ROWS.values() if not row.loses]
HIDDEN = [(5, 12, 5, 2, 2, 3), (1, 6, 3)]
ALL = [Strips(*each) for each in [*SIZES, *HIDDEN]]


def received(kernel, stride=1, dilation=1):
    """The rows that rank 1 of 4 needs and has not, of 32, by every window that it computes."""
    padding = dilation * (kernel - 1) // 2
    out = (32 + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    reads = {
        i * stride - padding + k * dilation
        for i in range(out // 4, out // 2)
        for k in range(kernel)
    }
    return len(reads.intersection(range(32)) - {*range(8, 16)})


FORMULAS = {
    "halo-rows": received(5),
    "halo-rows-dilated": received(3, dilation=3),
    "halo-rows-strided": received(3, stride=2),
}


def test_checks_are_worth_18_points():
    cells = Assignment("halo_exchange").points()
    each = [ROWS["the solution"].check(name) for name in checks("halo_exchange")]
    assert sum(check.points for check in each) == 18 == sum(cells.values()) - 2


@pytest.mark.parametrize("size", ALL, ids=str)
def test_all_ranks_together_are_plain_torch_on_the_whole_image(size):
    draw = torch.Generator().manual_seed(size.rows)
    shapes = (SAMPLES, CHANNELS, size.rows, WIDTH), size.geometry.weight_like()
    x, w = (torch.randn(*n, generator=draw, dtype=torch.float64).requires_grad_() for n in shapes)
    y = conv2d(x, w, None, size.stride, size.padding, size.dilation)
    assert y.shape[:3] == (SAMPLES, FILTERS, size.geometry.rows_out)
    dy = torch.randn(*y.shape, generator=draw, dtype=torch.float64)
    due = torch.autograd.grad(y, (x, w), dy)
    conv = Conv(size.kernel, size.stride, size.dilation, size.padding)
    given = [window(x.detach(), need) for need in size.need]
    found = torch.cat([conv.forward(each, w) for each in given], 2)
    assert torch.allclose(found, y, rtol=0, atol=1e-12)
    parts = [dy[:, :, lo:hi] for lo, hi in size.out]
    gs, dws = zip(*(conv.backward(a, w, b) for a, b in zip(given, parts, strict=True)), strict=True)
    dx = [
        torch.stack([returned(g, *both) for g, both in zip(gs, pairs, strict=True)]).sum(0)
        for pairs in ([(need, own) for need in size.need] for own in size.own)
    ]
    assert torch.allclose(torch.cat(dx, 2), due[0], rtol=0, atol=1e-12)
    assert torch.allclose(torch.stack(dws).sum(0), due[1], rtol=0, atol=1e-12)


def test_sizes_show_what_even_cuts_odd_kernels_and_stride_1_hide():
    cuts = [
        (size, rank, own, size.need[rank])
        for size in ALL
        for rank, own in enumerate(size.own)
        if size.ranks > 1
    ]
    assert {size for size, _, own, _ in cuts if own[1] - own[0] != size.own[0][1]} == {*ALL[:-1]}
    assert any(size.kernel % 2 == 0 for size in ALL) and any(size.dilation > 1 for size in ALL)
    strided = {size for size in ALL if size.stride > 1}
    assert (
        strided == {s for s, _, own, need in cuts if own[0] - need[0] != need[1] - own[1]} & strided
    )
    assert [  # a block thinner than the halo
        size for size, rank, _, need in cuts for r in range(rank - 1) if size.own[r][1] > need[0]
    ]


def test_a_sum_of_parts_says_how_often_each_is_in_it():
    one, two, nothing = torch.randn(3, 2, 5, dtype=torch.float64)
    nothing = torch.zeros_like(nothing)
    assert times(one + 0.5 * two, [one, two, nothing]) == [1, 0.5, 1]
    assert times(one + 1, [one, two]) is None and times(one / 0, [one, two]) is None


@pytest.mark.slow
@pytest.mark.parametrize("about", [{"kernel": 5}, {"dilation": 3}, {"stride": 2}], ids=str)
def test_a_rehearsal_shows_the_answers_of_the_predictions(about):
    (fetch,) = ROWS["the solution"].programs("rows")
    run = halo_checks.rehearse(fetch, **about)
    assert run.right and run.received == received(**{"kernel": 3} | about), run


@pytest.mark.slow
def test_a_rehearsal_of_a_wrong_program_says_what_is_wrong():
    (fetch,) = ROWS["zeros at inner borders: nothing is sent"].programs("rows")
    (layer,) = ROWS["dw averaged over the ranks"].programs("outputs")
    for run in (halo_checks.rehearse(fetch), halo_checks.rehearse_layer(layer, stride=2)):
        assert not run.right and "not yet right" in str(run) and "Hint: " in str(run)
    (stuck,) = ROWS["all send first"].programs("rows")
    run = halo_checks.rehearse(stuck)
    assert not run.right and "every rank is in a send" in run.summary


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", RIGHT, ids=str)
def test_a_right_program_is_right_at_every_size(row):
    sizes = [
        (ranks, rows, kernel, stride, dilation, padding)
        for ranks, rows in ((1, 5), (2, 7), (3, 7), (4, 9), (5, 11))
        for kernel, dilation, padding in ((2, 1, 0), (3, 1, 1), (3, 2, 3), (4, 1, 2), (5, 1, 1))
        for stride in (1, 2)
        if Strips(ranks, rows, kernel, stride, dilation, padding).geometry.rows_out >= ranks
    ]
    assert len(sizes) > 40
    for name in checks("halo_exchange")[1:]:
        found = report(row, name, sizes)
        assert found.failure is None, str(found)
