"""Redistribution between any two cuts over a mesh: blocks by index, from numpy's splits of the
whole tensor, values, gradients and bytes. All cases run in one launch of eight ranks."""

from __future__ import annotations

import itertools
from functools import cache
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dlviz
from dlviz.parallel.convolution import Cut, Distribution, blocks, needed, redistribute
from dlviz.parallel.convolution.boxes import area, slices
from dlviz.parallel.convolution.redistribution import messages

RANKS = 8
MESHES = [
    {"a": 1}, {"a": 2}, {"a": 3}, {"a": 2, "b": 2}, {"a": 5}, {"a": 3, "b": 2}, {"a": 7},
    {"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 4}, {"a": 8},
]  # fmt: skip
SHAPES = [(8, 4, 16, 8), (5, 3, 7, 4), (2, 1, 3, 9), (9, 5), (3,)]


@cache
def of_mesh(mesh, dims):
    """All distributions of a tensor of so many dims: each axis cuts one dim or none, in any order
    of those that cut the same dim."""
    found = set()
    for order in itertools.permutations(mesh):
        for chosen in itertools.product([None, *"NCHW"[:dims]], repeat=len(order)):
            cuts = {}
            for axis, dim in zip(order, chosen, strict=True):
                if dim:
                    cuts[dim] = (*cuts.get(dim, ()), axis)
            found.add(Distribution(**cuts))
    return sorted(found, key=repr)


def indices(mesh, shape, distribution, rank):
    """Of each dim, those that a rank holds: by numpy's splits."""
    places = dict(zip(mesh, np.unravel_index(rank, tuple(mesh.values())), strict=True))
    found = []
    for dim, length in zip("NCHW", shape, strict=False):
        held = np.arange(length)
        for axis in getattr(distribution, dim):
            held = np.array_split(held, mesh[axis])[places[axis]]
        found.append(held)
    return found


def taken(whole, held):
    return whole[np.ix_(*held)] if all(map(len, held)) else whole.new_empty(*map(len, held))


def shared(one, other):
    return prod(len(np.intersect1d(a, b)) for a, b in zip(one, other, strict=True))


@cache
def cases():
    """(mesh, shape, src, dst): a drawn sample."""
    draw, found = np.random.default_rng(0), []
    for mesh, shape in itertools.product(MESHES, SHAPES):
        kinds = of_mesh(tuple(mesh), len(shape))
        for pair in draw.choice(len(kinds), (4, 2)):
            found.append((mesh, shape, *(kinds[each] for each in pair)))
    return found


def whole(shape):
    return torch.arange(1.0, 1 + prod(shape), dtype=torch.float64).reshape(shape)


def worker(comm):
    """What differs from slices of the whole tensor, by case; a step for each."""
    wrong, meshes = [], {}
    for number, (axes, shape, src, dst) in enumerate(cases()):
        name = repr(axes)
        if name not in meshes:
            part = comm.split(0 if comm.rank < prod(axes.values()) else None)
            meshes[name] = part and part.mesh(**axes)
        mesh = meshes[name]
        if mesh is None:
            continue
        old, new = (indices(axes, shape, each, comm.rank) for each in (src, dst))
        x = taken(whole(shape), old).clone().requires_grad_()
        with comm.span("step", step=number):
            y = redistribute(x, mesh, src, dst, shape if number % 2 else None)
        with comm.span("step", step=-2 - number):
            y.backward(3 * y.detach() ** 2)
        assert x.grad is not None
        right = torch.equal(y, taken(whole(shape), new)), torch.equal(x.grad, 3 * x.detach() ** 2)
        held = dst.block(mesh, shape)
        if not all(right) or [range(s.start, s.stop) for s in held] != [
            range(i[0], i[-1] + 1) if len(i) else range(s.start, s.start)
            for i, s in zip(new, held, strict=True)
        ]:
            wrong.append((number, right))
    return wrong


@cache
def run():
    return dlviz.launch(worker, RANKS, timeout=200)


def test_any_two_distributions_give_the_slices_of_the_whole_tensor_forward_and_backward():
    assert len(cases()) == 200
    assert run().results == [[]] * RANKS


def test_every_message_is_an_intersection_of_an_old_and_a_new_block():
    by_step = {}
    for row in run().trace.messages.rows():
        by_step.setdefault(row.step, []).append(row)
    both_ways = [*enumerate(cases())]
    both_ways += [(-2 - number, (*case[:2], *case[:1:-1])) for number, case in both_ways]
    for step, (axes, shape, src, dst) in both_ways:
        seen = set()
        for row in by_step.pop(step, ()):
            old, new = indices(axes, shape, src, row.src), indices(axes, shape, dst, row.dst)
            assert row.nbytes == 8 * shared(old, new), (axes, shape, src, dst)
            had = indices(axes, shape, src, row.dst)
            assert not all(map(np.array_equal, old, had))  # it was there already
            key = row.dst, *(tuple(each) for each in old)
            assert key not in seen  # from one rank only
            seen.add(key)
    assert not by_step


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_messages_of_any_pair_give_each_rank_all_of_its_block_once(data):
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    axes = dict(zip("abc", sizes, strict=False))
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)))
    kinds = st.sampled_from(of_mesh(tuple(axes), len(shape)))
    src, dst = data.draw(kinds), data.draw(kinds)
    ranks = prod(axes.values())
    count = {rank: np.zeros(shape, int) for rank in range(ranks)}
    for sender, receiver, box in messages(tuple(axes.items()), shape, src, dst):
        block = slices(box)
        count[receiver][block] += 1
        own = np.zeros(shape, bool)
        own[np.ix_(*indices(axes, shape, src, sender))] = True
        assert own[block].all() and own[block].size
    for rank in range(ranks):
        due = np.zeros(shape, int)
        due[np.ix_(*indices(axes, shape, dst, rank))] = 1
        assert (count[rank] == due).all()


@pytest.mark.parametrize("p", [2, 4, 8])
def test_between_cuts_of_two_dims_each_rank_sends_p_minus_1_of_p_squared_parts(p):
    shape = 8, 3, 16, 5
    for src, dst in itertools.permutations("NHW", 2):
        sent = [0] * p
        length = {**dict(zip("NCHW", shape, strict=True)), "W": 8}
        sizes = tuple(length.values())
        for sender, receiver, box in messages(
            (("a", p),), sizes, Distribution(**{src: "a"}), Distribution(**{dst: "a"})
        ):
            if sender != receiver:
                sent[sender] += area(box)
        assert sent == [prod(sizes) * (p - 1) / p**2] * p


def test_ranks_that_hold_the_same_block_share_its_sending():
    axes = (("a", 2), ("b", 4))
    sent = [0] * 8
    for sender, receiver, box in messages(
        axes, (8, 8), Distribution(N="a"), Distribution(C=("a", "b"))
    ):
        if sender != receiver:
            sent[sender] += area(box)
    assert sent == [4] * 8


@given(
    *(st.integers(0, 9), st.integers(1, 9)),
    *(st.integers(1, 7), st.integers(1, 3), st.integers(1, 2), st.integers(0, 7)),
)
def test_needed_rows_are_those_that_the_outputs_read(lo, more, kernel, stride, dilation, padding):
    read = {
        row * stride - padding + dilation * tap
        for row in range(lo, lo + more)
        for tap in range(kernel)
    }
    args = kernel, stride, dilation, padding
    assert needed(lo, lo + more, *args) == (min(read), max(read) + 1)
    first, end = needed(lo, lo, *args)
    assert first == end


def test_blocks_are_those_of_tensor_split():
    for length, parts in itertools.product(range(9), range(1, 9)):
        ends = [(p[0], p[-1] + 1) for p in np.array_split(range(length), parts) if len(p)]
        found = blocks(length, parts)
        assert found[: len(ends)] == ends
        assert found[len(ends) :] == [(length, length)] * (parts - len(ends))


def test_a_layer_s_input_weight_and_output_are_cut_by_its_axes():
    layer = Distribution(N="n", C="c", F="f", H="h")
    assert layer.x == Distribution(N="n", C=("c", "f"), H="h")
    assert layer.w == Distribution(F="f", C="c")
    assert layer.y == Distribution(N="n", C=("f", "c"), H="h")
    assert layer.y == Distribution(N="n", C="f", F="c", H="h").x  # the axes have changed places
    assert len({layer, Distribution(N=("n",), C="c", F=("f",), H="h", W=())}) == 1
    assert repr(layer.x) == "Distribution(N='n', C=('c', 'f'), H='h')"


def refused(comm):
    mesh, says = comm.mesh(n=2), []
    x = torch.zeros(2 + comm.rank, 3)

    def tried(act):
        try:
            act()
        except (ValueError, AttributeError) as error:
            says.append(str(error))

    tried(lambda: Distribution(N="h").block(mesh, (4, 3)))
    tried(lambda: Distribution(N="n", H="n"))
    tried(lambda: Distribution(C=("n", "n")))
    tried(lambda: Distribution(H="n").block(mesh, (4, 3)))
    tried(lambda: Distribution(N="n", F="f").block(mesh, (4, 3)))
    if comm.rank == 1:  # the other's block would be right
        tried(lambda: redistribute(x, mesh, Distribution(N="n"), Distribution(), (4, 3)))
    tried(lambda: redistribute(x, mesh, Distribution(N="n"), Distribution()))
    tried(lambda: comm.mesh(comm=2))
    cut = Cut(mesh.n, 5)
    return says, cut.block, cut.blocks


def test_what_cannot_be_cut_is_refused_in_a_sentence():
    results = dlviz.launch(refused, 2).results
    for rank, (says, block, all_of_them) in enumerate(results):
        expected = [
            "Distribution(N='h') cuts over the axis 'h', which the mesh lacks: it has n.",
            "Distribution(N='n', H='n') cuts N and H over the axis 'n', which then cuts twice",
            "Distribution(C=('n', 'n')) cuts C over the axis 'n', which then cuts twice",
            "Distribution(H='n') does not fit a tensor of 2 dims",
            "Distribution(N='n', F='f') is that of a layer: take .x, .w or .y",
            "rank 1 has x of shape (3, 3), and its block of (4, 3) under Distribution(N='n') is (2",
            "rank 1 has x of shape (3, 3), and its block of (5, 3) under Distribution(N='n') is (2",
            "mesh.comm has all ranks of the mesh",
        ]
        if rank == 0:
            expected[5:7] = ["rank 0 has x of shape (2, 3), and its block of (5, 3) under"]
        assert [text.startswith(e) for text, e in zip(says, expected, strict=True)]
        assert (block, all_of_them) == ([(0, 3), (3, 5)][rank], [(0, 3), (3, 5)])
