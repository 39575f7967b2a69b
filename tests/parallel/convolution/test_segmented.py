"""Segmented all-reduce: which ranks sum, what they send, and that all groups do so at once."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import dlviz
from dlviz.analysis.products import layer_collectives
from dlviz.parallel.convolution.distribution import Distribution
from dlviz.parallel.convolution.segmented import group, summed
from dlviz.parallel.tensor.conjugate import f
from tests.timing import attempts

GRIDS = [(4, 2), (2, 4), (2, 2), (3, 2), (1, 8), (8, 1), (7, 1)]  # p_n, p_f
FILTERS, COLUMNS = 24, 35  # of w; 24 filters for every p_f


def gradient(rank):
    """Of this rank's samples alone, of the whole w."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(FILTERS, COLUMNS, dtype=torch.float64, generator=generator)


def run_all(comm):
    """Of each grid: the group's ranks, and how far the sum is from that of all samples' gradients;
    of the naive way too, in which all ranks sum the whole w and add zeros."""
    found = []
    for step, (p_n, p_f) in enumerate(GRIDS):
        sub = comm.split(0 if comm.rank < p_n * p_f else None)
        if sub is None:
            continue
        mesh = sub.mesh(n=p_n, f=p_f)
        block = Distribution(F="f").block(mesh, (FILTERS, COLUMNS))
        own = group(mesh, ("n",))
        total = sum(gradient(rank)[block] for rank in range(p_n))
        w = torch.zeros_like(total).requires_grad_()
        with comm.span("step", step=step):
            (summed(own, w, layer="segmented")[0] * gradient(mesh.n.rank)[block]).sum().backward()
            whole = torch.zeros(FILTERS, COLUMNS, dtype=torch.float64).requires_grad_()
            of_all = f(sub, whole, layer="over all")
            (of_all[block] * gradient(mesh.n.rank)[block]).sum().backward()
        gaps = [(w.grad - total).abs().max(), (whole.grad[block] - total).abs().max()]
        found.append((p_n, p_f, own.members, max(gaps).item()))
    return found


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(run_all, 8)


def test_groups_are_disjoint_and_their_sums_are_those_of_all_samples(run):
    for p_n, p_f in GRIDS:
        own = [each for found in run.results for each in found if each[:2] == (p_n, p_f)]
        members = {ranks for _, _, ranks, _ in own}
        assert len(own) == p_n * p_f and len(members) == p_f
        assert all(len(ranks) == p_n for ranks in members)
        assert not any({*a} & {*b} for a, b in combinations(members, 2))
        assert max(gap for *_, gap in own) <= 1e-12


def test_a_rank_sends_the_share_of_its_block_and_more_where_all_ranks_sum_the_whole(run):
    nbytes = {}
    for each in layer_collectives(run.trace):
        sent = run.trace.messages.nbytes[list(each.messages)].sum()
        nbytes[each.layer, each.step, each.rank] = int(sent) / (8 * FILTERS * COLUMNS)
    for rank, found in enumerate(run.results):
        for p_n, p_f, *_ in found:
            step = GRIDS.index((p_n, p_f))
            p, share = p_n * p_f, 2 * (p_n - 1) / p_n / p_f
            assert nbytes.get(("segmented", step, rank), 0) == pytest.approx(share, abs=0.01)
            assert nbytes["over all", step, rank] == pytest.approx(2 * (p - 1) / p, abs=0.01)
            if (p_n, p_f) == (4, 2):
                assert nbytes["segmented", step, rank] == 0.75
                assert nbytes["over all", step, rank] == 1.75


def reduce_large(comm):
    mesh = comm.mesh(n=2, f=2)
    own = group(mesh, ("n",))
    w = torch.zeros(2**22, requires_grad=True)
    comm.barrier()
    summed(own, w, layer="w")[0].sum().backward()


def test_all_groups_sum_at_the_same_time():
    for attempt in attempts():
        spans = dlviz.launch(reduce_large, 4).trace.only(kind="collective").spans
        spans = [each for each in spans if each.name == "all-reduce w"]
        assert len(spans) == 4
        with attempt:  # by the wall clock
            assert max(each.wall_start for each in spans) < min(each.wall_end for each in spans)


def groups_of(comm):
    """The members of groups over several axes, one and none, and the error for another axis."""
    mesh = comm.mesh(n=2, f=2, h=2)
    found = [group(mesh, axes).members for axes in (("n", "h"), ("f",), "f", ("h", "f", "n"), ())]
    with pytest.raises(ValueError, match=r"axes=\('n', 'c'\): Mesh\(n=2, f=2, h=2\) has no axis"):
        group(mesh, ("n", "c"))
    return found


def test_a_group_has_the_ranks_that_differ_along_its_axes_alone():
    for rank, found in enumerate(dlviz.launch(groups_of, 8).results):
        n, f, h = rank // 4, rank // 2 % 2, rank % 2
        along_f = 4 * n + h, 4 * n + 2 + h
        along_n_h = 2 * f, 2 * f + 1, 4 + 2 * f, 5 + 2 * f
        assert found == [along_n_h, along_f, along_f, tuple(range(8)), (rank,)]
