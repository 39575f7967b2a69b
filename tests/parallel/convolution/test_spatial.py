"""Convolution and pooling on blocks of images against one process of plain torch: values, all
gradients, and the pixels that travel. Pixels are distinct; sizes, strides, kernels and blocks are
whatever hypothesis finds, empty blocks too."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import dlviz
from dlviz.parallel.convolution import Cut, blocks, needed, spatial
from dlviz.parallel.convolution.windows import grid
from dlviz.parallel.step.batch_norm import SyncBatchNorm, weigh_norms

RANKS = 8
GRIDS = [(h, w) for h, w in product(range(1, RANKS + 1), repeat=2) if h * w <= RANKS]
CHANNELS = [(1, 2, 1), (2, 3, 1), (4, 6, 2), (3, 3, 3)]  # in, out, groups


class Case(NamedTuple):
    what: str
    grid: tuple[int, int]
    size: tuple[int, int]  # H, W; those below are of rows and columns too
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    channels: tuple[int, int, int]

    @property
    def outputs(self):
        each = zip(self.size, self.kernel, self.stride, self.dilation, self.padding, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in each)

    @property
    def how(self) -> dict[str, Any]:
        """The keywords of torch's function."""
        how: dict[str, Any] = {"stride": self.stride, "padding": self.padding}
        if self.what == "conv":
            return how | {"dilation": self.dilation, "groups": self.channels[2]}
        how |= {"kernel_size": self.kernel}
        return how | ({"dilation": self.dilation} if self.what == "max" else {})


@st.composite
def drawn_cases(draw):
    what = draw(st.sampled_from(["conv", "conv", "conv", "max", "avg"]))
    kernel = draw(st.tuples(*[st.integers(1, 7)] * 2))
    dilation = (1, 1) if what == "avg" else draw(st.tuples(*[st.integers(1, 2)] * 2))
    most = [k if what == "conv" else k // 2 for k in kernel]
    padding = tuple(draw(st.integers(0, each)) for each in most)
    size = []
    for k, d, p in zip(kernel, dilation, padding, strict=True):
        size.append(draw(st.integers(max(5, d * (k - 1) + 1 - 2 * p), 17)))
    stride = draw(st.tuples(*[st.integers(1, 3)] * 2))
    place = draw(st.sampled_from(GRIDS)), (size[0], size[1])
    return Case(what, *place, kernel, stride, dilation, padding, draw(st.sampled_from(CHANNELS)))


def distinct(*shape, seed=0):
    """Numbers from -1 to 1 of which no two are alike."""
    total = torch.Size(shape).numel()
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    return (2 * order.double() / max(total - 1, 1) - 1).reshape(shape)


def plain(case, tensors):
    x, weight, bias = tensors
    if case.what == "conv":
        return F.conv2d(x, weight, bias, **case.how)
    return (F.max_pool2d if case.what == "max" else F.avg_pool2d)(x, **case.how)


def cut(case, tensors, cuts):
    x, weight, bias = tensors
    if case.what == "conv":
        return spatial.conv2d(x, weight, bias, **case.how, **cuts)
    pool = spatial.max_pool2d if case.what == "max" else spatial.avg_pool2d
    return pool(x, **case.how, **cuts)


def gaps(case, mesh, number, comm):
    """How far this rank's results are from its part of one process's."""
    c, f, groups = case.channels
    whole = distinct(2, c, *case.size), distinct(f, c // groups, *case.kernel), distinct(f)
    if case.what == "max":
        whole = whole[0] - 2, *whole[1:]  # all below the zeros of a wrong padding
    rows, columns = Cut(mesh.h, case.size[0]), Cut(mesh.w, case.size[1])
    cuts: Any = {"height": rows, "width": columns if mesh.w.size > 1 else None}
    if mesh.h.size == 1 < mesh.w.size:
        cuts["height"] = None

    def part(x, size):
        (top, bottom), (left, right) = Cut(mesh.h, size[0]).block, Cut(mesh.w, size[1]).block
        return x[:, :, top:bottom, left:right]

    alone = [each.clone().requires_grad_() for each in whole]
    mine = [part(whole[0], case.size), *whole[1:]]
    mine = [each.clone().requires_grad_() for each in mine]
    y = plain(case, alone)
    dy = distinct(*y.shape, seed=1)
    grid(mesh.h, mesh.w)  # the first call for a mesh is collective
    with comm.span("step", step=2 * number):
        ours = cut(case, mine, cuts)
    with comm.span("step", step=2 * number + 1):
        ours.backward(part(dy, y.shape[2:]))
    y.backward(dy)
    pairs = [(ours, part(y, y.shape[2:])), (mine[0].grad, part(alone[0].grad, case.size))]
    for summand, gradient in zip(mine[1:], alone[1:], strict=True):
        if gradient.grad is not None:
            total = summand.grad
            mesh.comm.all_reduce(total)
            pairs.append((total, gradient.grad))
    found = []
    for one, other in pairs:
        assert one.shape == other.shape, (case, comm.rank, one.shape, other.shape)
        found.append(float((one - other).abs().max()) if one.numel() else 0.0)
    return found


def work(comm, cases):
    warnings.simplefilter("ignore")  # of idle ranks
    meshes = {}
    for h, w in sorted({case.grid for case in cases}):
        part = comm.split(0 if comm.rank < h * w else None)
        meshes[h, w] = part and part.mesh(h=h, w=w)
    found = []
    for number, case in enumerate(cases):
        mesh = meshes[case.grid]
        found.append(gaps(case, mesh, number, comm) if mesh else [0.0])
    return found


def halo_pixels(case, rank):
    """What a rank is sent: `needed` minus its own, counted pixel by pixel."""
    place = divmod(rank, case.grid[1])
    needs, own = [], []
    for n, at, ranks, out, *how in zip(
        case.size, place, case.grid, case.outputs,
        case.kernel, case.stride, case.dilation, case.padding, strict=True,
    ):  # fmt: skip
        alone = ranks == 1  # a dim that is not cut is read whole
        first, end = (0, n) if alone else needed(*blocks(out, ranks)[at], *how)
        needs.append({i for i in range(first, end) if 0 <= i < n})
        own.append(set(range(*blocks(n, ranks)[at])))
    return len({*product(*needs)} - {*product(*own)})


def check(cases):
    run = dlviz.launch(work, RANKS, timeout=200, args=(cases,))
    for rank, found in enumerate(run.results):
        for case, off in zip(cases, found, strict=True):
            assert max(off) < 1e-12, (case, rank, off)
    sent, received = {}, {}
    for row in run.trace.messages.rows():
        number, back = divmod(row.step, 2)
        for table, rank in ((sent, row.src), (received, row.dst)):
            key = number, back, rank
            table[key] = table.get(key, 0) + row.nbytes
    for number, case in enumerate(cases):
        for rank in range(case.grid[0] * case.grid[1]):
            due = halo_pixels(case, rank) * 2 * case.channels[0] * 8  # N and C, float64
            assert received.pop((number, 0, rank), 0) == due, (case, rank)
            assert sent.pop((number, 1, rank), 0) == due, (case, rank)
    assert not sent.keys() - {key for key in sent if key[1] == 0}  # nothing else goes back
    assert not received.keys() - {key for key in received if key[1] == 1}


# The case that is wrong is in the message: no need to spend minutes on a shorter list.
SETTINGS: Any = {"deadline": None, "phases": (Phase.explicit, Phase.reuse, Phase.generate)}


@settings(max_examples=5, **SETTINGS)
@given(st.lists(drawn_cases(), min_size=25, max_size=40))
def test_blocks_give_one_process_s_values_and_gradients_and_send_what_is_needed_and_no_more(cases):
    check(cases)


@pytest.mark.sweep
@settings(max_examples=40, **SETTINGS)
@given(st.lists(drawn_cases(), min_size=40, max_size=60))
def test_many_more_blocks(cases):
    check(cases)


SQUARE = ((3, 1), (9, 9), (3, 3), (2, 2), (1, 1), (1, 1))


def test_what_once_went_wrong_and_the_sizes_of_the_lecture():
    """Unequal halos above and below, blocks thinner than the halo, without outputs, of nothing,
    kernels of one pixel and even ones, no interior, rows that nobody reads."""
    wide = (2, 3, 1)
    check(
        [
            Case("conv", (4, 1), (16, 8), (3, 3), (1, 1), (1, 1), (1, 1), wide),
            Case("conv", (2, 2), (16, 16), (3, 3), (1, 1), (1, 1), (1, 1), wide),
            Case("conv", *SQUARE, wide),
            Case("conv", (8, 1), (11, 5), (7, 1), (1, 1), (1, 1), (3, 0), wide),
            Case("conv", (8, 1), (5, 5), (7, 3), (2, 2), (1, 1), (3, 1), wide),
            Case("conv", (2, 4), (7, 6), (4, 2), (1, 3), (1, 2), (2, 0), wide),
            Case("conv", (3, 2), (17, 9), (1, 1), (3, 2), (1, 1), (0, 1), wide),
            Case("conv", (5, 1), (8, 5), (2, 2), (2, 2), (1, 1), (0, 0), wide),
            Case("max", (3, 2), (13, 13), (3, 3), (2, 2), (1, 1), (1, 1), wide),
            Case("avg", (2, 3), (12, 11), (3, 3), (2, 2), (1, 1), (1, 1), wide),
        ]
    )


def test_with_a_stride_of_2_the_halo_above_is_larger_than_below():
    """9 rows on 3 ranks, kernel 3, stride 2, padding 1: 5 outputs, 2 + 2 + 1."""
    case = Case("conv", *SQUARE, (1, 1, 1))
    assert [needed(*made, 3, 2, 1, 1) for made in blocks(5, 3)] == [(-1, 4), (3, 8), (7, 10)]
    assert [halo_pixels(case, rank) for rank in range(3)] == [9, 18, 9 - 9 + 0]


def by_hand(comm, rows):
    """The naive convolution beside the real one; dx from the halo of dy."""
    warnings.simplefilter("ignore")
    x, w, b = distinct(2, 3, rows, 6), distinct(4, 3, 5, 3), distinct(4)
    height = Cut(comm, rows)
    lo, hi = height.block
    found: list[Any] = []
    functions: Any = (spatial.conv2d_by_hand, spatial.conv2d)
    for function in functions:
        leaves = [each.clone().requires_grad_() for each in (x[:, :, lo:hi], w, b)]
        y = function(*leaves, padding=(2, 1), height=height)
        y.backward(distinct(2, 4, rows, 6, seed=1)[:, :, lo:hi])
        found.append([y.detach(), *(each.grad for each in leaves)])
    # The other way to dx: input row i was read by the output rows i - 2 .. i + 2, whose dy come in.
    first, end = max(lo - 2, 0), min(hi + 2, rows)
    dy = distinct(2, 4, rows, 6, seed=1)[:, :, first:end]
    dx = F.conv_transpose2d(dy, w, padding=(0, 1))  # rows first - 2 to end + 2
    found.append([dx[:, :, lo - first + 2 : hi - first + 2] if hi > lo else found[0][1]])
    return found


@pytest.mark.parametrize(("ranks", "rows"), [(1, 5), (2, 7), (3, 8), (5, 4)])
def test_by_hand_and_from_the_halo_of_dy_the_results_are_the_same(ranks, rows):
    for hand, real, other in dlviz.launch(by_hand, ranks, args=(rows,)).results:
        for one, two in zip(hand, real, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
        torch.testing.assert_close(other[0], real[1], rtol=0, atol=1e-12)


class Net(nn.Module):
    """Convolutions, batch norm, pooling that overlaps, a residual; `at` computes them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 5, padding=2)
        self.third = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x, at):
        one, two, three = self.norms
        x = at.max_pool2d(F.relu(one(at.conv2d(x, self.first))), 3, 2, 1)
        x = F.relu(x + three(at.conv2d(F.relu(two(at.conv2d(x, self.second))), self.third)))
        return self.head(at.global_avg_pool(at.avg_pool2d(x, 2)).flatten(1))


class Whole:
    """What one process computes."""

    max_pool2d, avg_pool2d = staticmethod(F.max_pool2d), staticmethod(F.avg_pool2d)

    def conv2d(self, x, layer):
        return layer(x)

    def global_avg_pool(self, x):
        return F.adaptive_avg_pool2d(x, 1)


class Blocks:
    """The same on blocks, of images of so many rows and columns."""

    def __init__(self, mesh, *size):
        self.mesh, self.size = mesh, size

    def cuts(self) -> dict[str, Any]:
        return {"height": Cut(self.mesh.h, self.size[0]), "width": Cut(self.mesh.w, self.size[1])}

    def conv2d(self, x, layer):
        about = layer.stride, layer.padding, layer.dilation
        return spatial.conv2d(x, layer.weight, layer.bias, *about, **self.cuts())

    def max_pool2d(self, x, *how):
        y = spatial.max_pool2d(x, *how, **self.cuts())
        self.size = [(n - 1) // 2 + 1 for n in self.size]
        return y

    def avg_pool2d(self, x, *how):
        y = spatial.avg_pool2d(x, *how, **self.cuts())
        self.size = [n // 2 for n in self.size]
        return y

    def global_avg_pool(self, x):
        return spatial.global_avg_pool(x, **self.cuts())


def train(net, at, x, labels, total=lambda parameters: None):
    """20 steps; the outputs of the first, and the weights after the last."""
    optimizer, seen = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(20):
        optimizer.zero_grad()
        outputs = net(x, at())
        seen.append(outputs.detach())
        F.cross_entropy(outputs, labels).backward()
        total([p for name, p in net.named_parameters() if not name.startswith("head")])
        optimizer.step()
    return seen[0], {name: value.clone() for name, value in net.state_dict().items()}


def on_blocks(comm, h, w, size, joint):
    """How far outputs and weights are from one process's."""
    warnings.simplefilter("ignore")  # of ranks without a part of the last pool's output
    mesh = comm.mesh(h=h, w=w)
    torch.manual_seed(0)
    net = Net().double()
    x, labels = distinct(6, 1, *size), torch.arange(6) % 3
    alone = Net().double()
    alone.load_state_dict(net.state_dict())
    first, weights = train(alone, Whole, x, labels)
    if joint:
        net = SyncBatchNorm.convert_sync_batchnorm(net, grid(mesh.h, mesh.w))
        weigh_norms(net, 1.0)  # all ranks' loss is one loss, not a part of it each

    def total(parameters):
        for p in parameters:
            comm.all_reduce(p.grad)

    (top, bottom), (left, right) = Cut(mesh.h, size[0]).block, Cut(mesh.w, size[1]).block
    block = x[:, :, top:bottom, left:right]
    ours, found = train(net, lambda: Blocks(mesh, *size), block, labels, total)
    off = [float((found[name] - weights[name]).abs().max()) for name in weights]
    return float((ours - first).abs().max()), max(off)


@pytest.mark.parametrize(("h", "w", "size"), [(2, 2, (13, 10)), (3, 1, (11, 8)), (1, 5, (8, 12))])
def test_a_net_with_batch_norm_pooling_and_a_residual_trains_as_one_process(h, w, size):
    for found in dlviz.launch(on_blocks, h * w, args=(h, w, size, True)).results:
        assert max(found) < 1e-9


def test_batch_norm_by_a_block_s_own_statistics_is_another_net_from_the_first_step_on():
    for outputs, weights in dlviz.launch(on_blocks, 4, args=(2, 2, (13, 10), False)).results:
        assert outputs > 0.01 and weights > 0.01
