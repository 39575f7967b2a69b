"""Convolutions cut over channels and filters: outputs and all gradients against one process of
torch, the words in the Trace against the closed form, and what a rank saves for the backward."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache, partial
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dlviz
from dlviz.analysis.products import layer_collectives
from dlviz.cluster import Storages
from dlviz.parallel.convolution import blocks, spatial
from dlviz.parallel.convolution.channel_blocks import weight_block
from dlviz.parallel.convolution.channel_filter import conv2d
from dlviz.parallel.convolution.distribution import Cut, Distribution
from dlviz.parallel.convolution.segmented import group, summed

GRIDS = [(f, c) for f in range(1, 9) for c in range(1, 8 // f + 1)]  # p_f, p_c
WITHIN, STEP = 1e-12, 100


class Case(NamedTuple):
    """Sizes of a layer, and how it is run."""

    n: int = 2
    c: int = 24
    f: int = 48
    h: int = 9
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


CASES = [
    Case(),  # whose channels and filters most grids cut evenly
    Case(keep=True, bias=False),
    Case(c=7, f=11, kernel=(2, 3), stride=2, padding=0),
    Case(c=11, f=7, h=11, kernel=(3, 1), padding=(2, 0), dilation=2, keep=True),
    Case(n=3, c=3, f=5, bias=False),  # fewer than ranks
    Case(n=1, c=1, f=2, h=12, stride=3, keep=True),
    Case(c=2, f=1),
    # Groups, which 1, 2, 4 or 8 ranks of channels do not split.
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
    gaps = (found - expected).detach().abs()
    return (gaps.max() / expected.abs().max()).item() if found.numel() else 0.0


def leaves(whole, blocks):
    """This rank's blocks, of which torch computes gradients."""
    return [p[b].detach().clone().requires_grad_() for p, b in zip(whole, blocks, strict=True)]


def run_case(mesh, case):
    """How far y, dx, dw and db of this rank are from its blocks of torch's."""
    x, w, b, loss, (y, *gradients) = whole(case)
    cuts = {"filters": Cut(mesh.f, case.f), "channels": Cut(mesh.c, case.c)}
    d = Distribution(N="n", C="c", F="f", H="h")
    of_x, of_y = d.x.block(mesh, x.shape), d.y.block(mesh, y.shape)
    parts = [of_x, weight_block(**cuts, groups=case.groups), slice(*cuts["filters"].block)]
    own = leaves([x, w, *([b] if case.bias else [])], parts[: 2 + case.bias])
    same = group(mesh, ("n", "h"))
    weights = summed(same, *own[1:])
    if mesh.h.size > 1:
        cuts["convolve"] = partial(spatial.conv2d, height=Cut(mesh.h, case.h))
    found = conv2d(
        own[0],
        *(weights if case.bias else (*weights, None)),
        *case.how,
        **cuts,
        keep_gathered=case.keep,
        layer="conv",
    )
    (found * loss[of_y]).sum().backward()
    pairs = zip(own, gradients, parts, strict=False)
    return [gap(found, y[of_y]), *(gap(p.grad, whole[part]) for p, whole, part in pairs)]


def meshes(comm, grids):
    """(number, mesh) of each grid. The ranks that are left cut samples and rows in turn."""
    for number, (p_f, p_c) in enumerate(grids):
        left = comm.size // (p_f * p_c)
        sub = comm.split(0 if comm.rank < left * p_f * p_c else None)
        if sub is not None:
            p_n = left if number % 2 or left == 8 else 1
            yield number, sub.mesh(n=p_n, h=left // p_n, f=p_f, c=p_c)


def run_all(comm, everywhere):
    """(case, sizes of the mesh's axes, places on them, gaps) of each case on each grid, or of the
    first and a third of the others; each is a step."""
    found = []
    for step, mesh in meshes(comm, GRIDS):
        for number, case in enumerate(CASES):
            inputs = case.c // case.groups
            split = case.groups > 1 and any(lo % inputs for lo, _ in Cut(mesh.c, case.c).blocks)
            if not split and (everywhere or not number or (step + number) % 3 == 0):
                with comm.span("step", step=STEP * step + number):
                    gaps = run_case(mesh, case)
                axes = vars(mesh).values()
                sizes, place = (tuple(getattr(a, k) for a in axes) for k in ("size", "rank"))
                found.append((STEP * step + number, sizes, place, gaps))
    return found


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.sweep)], ids=str
)
def run(request):
    return dlviz.launch(run_all, 8, timeout=300, args=(request.param,))


def test_on_every_grid_of_1_to_8_ranks_output_and_gradients_are_torch_s(run):
    ran = set()
    for rank, found in enumerate(run.results):
        for step, sizes, _, gaps in found:
            case = CASES[step % STEP]
            assert len(gaps) == 3 + case.bias
            assert max(gaps) <= WITHIN, (rank, sizes, case, gaps)
            ran.add((step % STEP, sizes))
    grids = {sizes for number, sizes in ran if not number}
    assert {sizes[2:] for sizes in grids} == {*GRIDS} and len(GRIDS) == 20
    assert max(n for n, *_ in grids) == 8 and max(h for _, h, *_ in grids) == 4
    assert {number for number, *_ in ran} == {*range(len(CASES))}
    assert {c for number, (*_, c) in ran if CASES[number].groups > 1} >= {1, 2, 4, 8}


def share(length, parts, rank):
    lo, end = blocks(length, parts)[rank]
    return end - lo


def words(case, sizes, place):
    """(direction, collective) -> the elements that the ring sends, of its chunks by hand."""
    (p_n, p_h, p_f, p_c), (n, h, f, c) = sizes, place
    *_, y_rows, y_columns = whole(case)[-1][0].shape
    images = share(case.n, p_n, n)
    of_x = [share(share(case.c, p_c, c), p_f, rank) for rank in range(p_f)]
    of_y = [share(share(case.f, p_f, f), p_c, rank) for rank in range(p_c)]
    x, y = (images * share(rows, p_h, h) for rows in (case.h, y_rows))
    x, y = x * case.w, y * y_columns
    gather_x = x * (sum(of_x) - of_x[(f + 1) % p_f])  # all but the next rank's
    gather_y = y * (sum(of_y) - of_y[(c + 1) % p_c])
    found = {
        ("forward", "all_gather"): gather_x,
        ("forward", "reduce_scatter"): y * (sum(of_y) - of_y[c]),  # all but its own
        ("backward", "all_gather"): gather_y + (0 if case.keep else gather_x),
        ("backward", "reduce_scatter"): x * (sum(of_x) - of_x[f]),
    }
    return {call: elements for call, elements in found.items() if elements}


def test_a_rank_sends_the_words_of_the_closed_form_and_gathers_x_again_unless_it_keeps_it(run):
    sent, even = defaultdict(lambda: defaultdict(int)), set()
    for each in layer_collectives(run.trace):
        if each.layer == "conv" and each.collective and each.messages:
            nbytes = run.trace.messages.nbytes[list(each.messages)].sum()
            sent[each.rank, each.step][each.direction, each.collective] += int(nbytes) / 8
    for rank, found in enumerate(run.results):
        for step, sizes, place, _ in found:
            case, p = CASES[step % STEP], sizes[2] * sizes[3]
            due = words(case, sizes, place)
            assert sent[rank, step] == due, (rank, sizes, case)
            if case.how == CASES[0].how and case.c % p == case.f % p == 0:
                (p_n, p_h, p_f, p_c), (n, h, *_) = sizes, place
                cells = share(case.n, p_n, n) * share(case.h, p_h, h) * case.w
                closed = ((p_f - 1) * case.c + (p_c - 1) * case.f) * cells / p
                again = 0 if case.keep else (p_f - 1) * case.c * cells / p
                assert sum(due[call] for call in due if "forward" in call) == closed
                assert sum(due.values()) == 2 * closed + again
                even.add((p_f, p_c))
    assert len(even) == 16  # all but those of 5 and 7 ranks


def run_two_layers(comm):
    """Gaps of two layers, of which the second has the axes of the first in each other's place."""
    x, one, two = drawn(2, 7, 5, 4, seed=1), drawn(11, 7, 3, 3, seed=2), drawn(5, 11, 2, 2, seed=3)
    whole = [p.requires_grad_() for p in (x, one, two)]
    y = F.conv2d(F.conv2d(x, one, padding=1).relu(), two)
    y.square().sum().backward()
    found = []
    for _, mesh in meshes(comm, ((3, 2), (2, 4), (8, 1))):
        first = {"filters": Cut(mesh.f, 11), "channels": Cut(mesh.c, 7)}
        second = {"filters": Cut(mesh.c, 5), "channels": Cut(mesh.f, 11)}
        of_x, of_y = (Distribution(C=("c", "f")).block(mesh, each.shape) for each in (x, y))
        parts = [of_x, weight_block(**first), weight_block(**second)]
        own = leaves(whole, parts)
        middle = conv2d(own[0], own[1], padding=1, **first).relu_()
        mine = conv2d(middle, own[2], **second)
        mine.square().sum().backward()
        pairs = zip(own, whole, parts, strict=True)
        found += [gap(mine, y[of_y]), *(gap(p.grad, q.grad[part]) for p, q, part in pairs)]
    return found


def test_the_next_layer_takes_y_as_it_is_if_the_axes_change_places():
    results = dlviz.launch(run_two_layers, 8).results
    assert [len(found) for found in results] == [12] * 6 + [8] * 2
    assert max(max(found) for found in results) <= WITHIN


MEMORY = Case(n=2, c=16, f=16, h=128, w=128)
GRIDS_OF_4 = [(4, 1, 1), (1, 4, 1), (2, 2, 1), (2, 1, 2)]  # p_f, p_c, p_h


def run_saved(comm):
    """By grid and whether x is kept gathered: bytes saved between forward and backward, and all
    bytes after it."""
    found = {}
    for p_f, p_c, p_h in GRIDS_OF_4:
        mesh = comm.mesh(f=p_f, c=p_c, h=p_h)
        cuts = {"filters": Cut(mesh.f, MEMORY.f), "channels": Cut(mesh.c, MEMORY.c)}
        if p_h > 1:
            cuts["convolve"] = partial(spatial.conv2d, height=Cut(mesh.h, MEMORY.h))
        for keep in (True, False):
            channels, rows = MEMORY.c // (p_f * p_c), MEMORY.h // p_h
            x = torch.zeros(MEMORY.n, channels, rows, MEMORY.w, requires_grad=True)
            w = nn.Parameter(torch.zeros(MEMORY.f // p_f, MEMORY.c // p_c, 3, 3))
            with Storages(comm) as storages:
                y = conv2d(x, w, padding=1, **cuts, keep_gathered=keep)
                saved = storages.now.by_kind["activations"]
                y.backward(y.detach())
            found[p_f, p_c, p_h, keep] = saved, storages.now.total
    return found


def test_a_rank_saves_the_gathered_x_if_it_keeps_it_and_its_own_part_otherwise():
    own = 4 * MEMORY.n * MEMORY.c * MEMORY.h * MEMORY.w // 4  # of x, and of y
    for found in dlviz.launch(run_saved, 4).results:
        for (p_f, p_c, p_h, keep), (saved, after) in found.items():
            due = p_f * own if keep else own
            halo = 0 if p_h == 1 else own // 4  # and what else its rim reads
            assert due <= saved <= due + halo, (p_f, p_c, p_h, keep)
            # x, w, their gradients, y and buffers of messages, but nothing that was gathered.
            assert after <= 3 * own + 2 * 4 * MEMORY.f * MEMORY.c * 9 // (p_f * p_c) + 2 * own


def run_backwards(comm):
    """dw by one backward, and by two through the same graph, of a grouped layer; that of a frozen
    weight's x; and an output without gradients."""
    case = Case(c=8, f=12, groups=4, bias=False)
    x, w, *_, loss, (_, dx, dw) = whole(case)
    filters, channels = Cut(comm, case.f), Cut(comm.split(comm.rank), case.c)
    own_w, own_x = (
        p.detach().clone().requires_grad_()
        for p in (
            w[weight_block(filters, channels, case.groups)],
            x.tensor_split(comm.size, 1)[comm.rank],
        )
    )
    part = slice(*filters.block)

    def run():
        return conv2d(own_x, own_w, None, *case.how, filters=filters, channels=channels)

    y = run()
    gaps = []
    for times in (1, 2):
        (y * loss[:, part]).sum().backward(retain_graph=times == 1)
        gaps += [gap(own_w.grad, times * dw[part])]
    own_w.requires_grad_(False)
    own_x.grad = None
    (run() * loss[:, part]).sum().backward()
    gaps += [gap(own_x.grad, dx.tensor_split(comm.size, 1)[comm.rank])]
    with torch.no_grad():
        gaps += [gap(run(), y.detach())]
    return gaps


def test_a_graph_may_be_used_twice_and_a_weight_be_frozen():
    for gaps in dlviz.launch(run_backwards, 3).results:
        assert len(gaps) == 4 and max(gaps) <= WITHIN


def run_refused(comm):
    """The error of each call."""
    filters, channels = Cut(comm.split(comm.rank), 6), Cut(comm, 8)
    x, w, b = torch.ones(2, 2, 4, 4), torch.ones(6, 2, 3, 3), torch.ones(6)
    said = []
    for args, options in [
        ((x[:, :1], w, b), {}),
        ((x[0], w, b), {}),
        ((x, torch.ones(6, 3, 3, 3), b), {}),
        ((x, w, b[:2]), {}),
        ((x, w, b), {"groups": 2}),
        ((x, w, b), {"groups": 3}),
    ]:
        try:
            conv2d(*args, **options, filters=filters, channels=channels)
            said.append("nothing")
        except ValueError as error:
            said.append(str(error))
    return said


def test_what_does_not_fit_the_cut_is_refused_with_what_does():
    for rank, said in enumerate(dlviz.launch(run_refused, 4).results):
        for found, pattern in zip(
            said,
            [
                rf"rank {rank} gave x of shape \(2, 1, 4, 4\): it holds 2 of 8 channels, \(N, 2, ",
                rf"rank {rank} gave x of shape \(2, 4, 4\)",
                rf"rank {rank} gave a weight of shape \(6, 3, 3, 3\): its block of 6 filters of 8 "
                r"channels is 6 x 2. Take weight_block",
                rf"rank {rank} gave a bias of shape \(2,\): it has 6 filters, and one",
                r"groups=2 of 4 channels each are split by the cut of 8 channels over 4 ranks "
                r"\(2, 2, 2, 2\): each rank needs whole groups. Cut filters instead",
                r"groups=3 does not divide 8 channels and 6 filters",
            ],
            strict=True,
        ):
            assert re.search(pattern, found), (pattern, found)


def run_other_samples(comm):
    """Rank 1 has one sample fewer than the others."""
    x = torch.ones(3 - comm.rank % 2, 2, 4, 4)
    conv2d(x, torch.ones(2, 8, 3, 3), filters=Cut(comm, 8), channels=Cut(comm.split(comm.rank), 8))


def test_another_number_of_samples_is_refused_before_anything_is_sent():
    shapes = r"all_gather of shape \(\d, 0, 4, 4\) .* all_gather of shape \(\d, 0, 4, 4\)"
    with pytest.raises(dlviz.RankError, match=shapes):
        dlviz.launch(run_other_samples, 4)
