"""Convolutions cut over channels and filters: outputs and all gradients against one process of
torch, the words in the Trace against the closed form, and what a rank saves for the backward."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dlviz
from dlviz.analysis.products import layer_collectives
from dlviz.cluster import Storages
from dlviz.parallel.convolution.channel_filter import conv2d, weight_block
from dlviz.parallel.convolution.distribution import Cut, Distribution, blocks
from dlviz.parallel.convolution.segmented import group, summed

GRIDS = [(f, c) for f in range(1, 9) for c in range(1, 8 // f + 1)]  # p_f, p_c
WITHIN, STEP = 1e-12, 100


class Case(NamedTuple):
    """Sizes of a layer, and how it is run."""

    n: int = 2
    c: int = 16
    f: int = 24
    h: int = 4
    w: int = 5
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    padding: int | tuple[int, int] = 1
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    keep: bool = False

    @property
    def how(self):
        return self.stride, self.padding, self.dilation, self.groups


EVEN = Case(n=1, c=840, f=1680, h=1, w=1, kernel=(1, 1), padding=0)  # on every grid
CASES = [
    Case(),
    Case(keep=True, bias=False),
    Case(c=7, f=11, kernel=(2, 3), stride=2, padding=0),
    Case(c=11, f=7, h=7, kernel=(3, 1), padding=(2, 0), dilation=2, keep=True),
    Case(n=3, c=3, f=5, bias=False),  # fewer than ranks
    Case(n=1, c=1, f=2, stride=3, keep=True),
    Case(c=2, f=1),
    EVEN,
]
GROUPED = [  # of channels that 1, 2, 4 and 8 ranks of channels cut between groups, or none
    Case(c=8, f=24, groups=8),
    Case(c=16, f=8, groups=8, keep=True),
    Case(c=16, f=24, groups=2, stride=2),
    Case(c=4, f=8, groups=4, keep=True, bias=False),
    Case(c=6, f=15, groups=3),
]


def drawn(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def whole(case):
    """x, w, b, the weights of a loss that sums y, and what torch makes of them: y, dx, dw, db."""
    x = drawn(case.n, case.c, case.h, case.w, seed=1).requires_grad_()
    w = drawn(case.f, case.c // case.groups, *case.kernel, seed=2).requires_grad_()
    b = drawn(case.f, seed=3).requires_grad_() if case.bias else None
    y = F.conv2d(x, w, b, *case.how)
    loss = drawn(*y.shape, seed=4)
    (y * loss).sum().backward()
    return x, w, b, loss, [y, x.grad, w.grad, *([b.grad] if case.bias else [])]


def gap(found, expected):
    assert found is not None and found.shape == expected.shape
    return ((found - expected).abs().max() / expected.abs().max()).item() if found.numel() else 0.0


def run_case(mesh, case):
    """How far y, dx, dw and db of this rank are from its blocks of torch's."""
    x, w, b, loss, (y, dx, dw, *db) = whole(case)
    filters, channels = Cut(mesh.f, case.f), Cut(mesh.c, case.c)
    of_x = Distribution(N="n", C=("c", "f")).block(mesh, x.shape)
    of_y = Distribution(N="n", C=("f", "c")).block(mesh, y.shape)
    of_w = weight_block(filters, channels, case.groups)
    of_b = slice(*filters.block)
    own_x, own_w = (p.detach().clone().requires_grad_() for p in (x[of_x], w[of_w]))
    own_b = b[of_b].detach().clone().requires_grad_() if case.bias else None
    samples = group(mesh, ("n",))
    found = conv2d(
        own_x,
        summed(samples, own_w, "w"),
        None if own_b is None else summed(samples, own_b, "b"),
        *case.how,
        filters=filters,
        channels=channels,
        keep_gathered=case.keep,
        layer="conv",
    )
    (found * loss[of_y]).sum().backward()
    pairs = [(found.detach(), y[of_y]), (own_x.grad, dx[of_x]), (own_w.grad, dw[of_w])]
    pairs += [(own_b.grad, each[of_b]) for each in db]
    return [gap(mine, torchs.detach()) for mine, torchs in pairs]


def run_all(comm, everywhere):
    """(case, p_f, p_c, place, gaps) of each case on each grid, or of a third of them and of the
    even one, with as many ranks of samples as are left; each is a step."""
    found = []
    for step, (p_f, p_c) in enumerate(GRIDS):
        p_n = comm.size // (p_f * p_c)
        sub = comm.split(0 if comm.rank < p_n * p_f * p_c else None)
        if sub is None:
            continue
        mesh = sub.mesh(n=p_n, f=p_f, c=p_c)
        for number, case in enumerate(CASES + GROUPED):
            if tried(everywhere, step, number, p_c):
                with comm.span("step", step=STEP * step + number):
                    gaps = run_case(mesh, case)
                found.append((number, p_f, p_c, (mesh.n.rank, mesh.f.rank, mesh.c.rank), gaps))
    return found


def tried(everywhere, step, number, p_c):
    case = (CASES + GROUPED)[number]
    chosen = everywhere or case.c == EVEN.c or (step + number) % 3 == 0
    return chosen and not any(lo % (case.c // case.groups) for lo, _ in blocks(case.c, p_c))


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.sweep)], ids=str
)
def run(request):
    run = dlviz.launch(run_all, 8, timeout=300, args=(request.param,))
    run.everywhere = request.param
    return run


def test_on_every_grid_of_1_to_8_ranks_output_and_gradients_are_torch_s(run):
    ran = set()
    for rank, found in enumerate(run.results):
        for number, p_f, p_c, _, gaps in found:
            case = (CASES + GROUPED)[number]
            assert len(gaps) == 3 + case.bias
            assert max(gaps) <= WITHIN, (rank, p_f, p_c, case, gaps)
            ran.add((number, p_f, p_c))
    assert ran == {
        (number, p_f, p_c)
        for step, (p_f, p_c) in enumerate(GRIDS)
        for number in range(len(CASES + GROUPED))
        if tried(run.everywhere, step, number, p_c)
    }
    assert {number for number, *_ in ran} == {*range(len(CASES + GROUPED))}


def share(length, parts, rank):
    lo, end = blocks(length, parts)[rank]
    return end - lo


def words(case, p_f, p_c, place, samples):
    """(direction, collective) -> the elements that the ring sends, of its chunks by hand."""
    n, f, c = place
    images, (*_, h, w) = share(case.n, samples, n), whole(case)[-1][0].shape
    of_x = [share(share(case.c, p_c, c), p_f, rank) for rank in range(p_f)]
    of_y = [share(share(case.f, p_f, f), p_c, rank) for rank in range(p_c)]
    cells = {"x": images * case.h * case.w, "y": images * h * w}
    gather_x = cells["x"] * (sum(of_x) - of_x[(f + 1) % p_f])  # all but the next rank's
    gather_y = cells["y"] * (sum(of_y) - of_y[(c + 1) % p_c])
    return {
        ("forward", "all_gather"): gather_x,
        ("forward", "reduce_scatter"): cells["y"] * (sum(of_y) - of_y[c]),  # all but its own
        ("backward", "all_gather"): gather_y + (0 if case.keep else gather_x),
        ("backward", "reduce_scatter"): cells["x"] * (sum(of_x) - of_x[f]),
    }


def test_a_rank_sends_the_words_of_the_closed_form_and_gathers_x_again_unless_it_keeps_it(run):
    sent = defaultdict(lambda: defaultdict(int))
    for each in layer_collectives(run.trace):
        if each.layer == "conv":
            nbytes = run.trace.messages.nbytes[list(each.messages)].sum()
            sent[each.rank, each.step][each.direction, each.collective] += int(nbytes)
    for rank, found in enumerate(run.results):
        for number, p_f, p_c, place, _ in found:
            case = (CASES + GROUPED)[number]
            measured = sent[rank, STEP * GRIDS.index((p_f, p_c)) + number]
            due = words(case, p_f, p_c, place, 8 // (p_f * p_c))
            assert {k: v for k, v in measured.items() if v} == {
                k: 8 * v for k, v in due.items() if v
            }, (rank, p_f, p_c, case)
            if case == EVEN:
                images = share(case.n, 8 // (p_f * p_c), place[0])
                closed = ((p_f - 1) * case.c + (p_c - 1) * case.f) * images / (p_f * p_c)
                assert due["forward", "all_gather"] + due["forward", "reduce_scatter"] == closed
                assert sum(due.values()) == 2 * closed + (p_f - 1) * case.c * images / (p_f * p_c)
