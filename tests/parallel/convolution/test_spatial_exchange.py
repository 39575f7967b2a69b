"""The halo exchange itself: what is computed while it travels, by the wall clock too, what a rank
holds, which calls are refused, and what is said where a rank dies."""

from __future__ import annotations

import os
import re
import signal
import time
import warnings
from typing import Any

import pytest
import torch
from timing import attempts
from torch import nn
from torch.nn import functional as F

import dlviz
from dlviz.cluster.memory import Storages
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel.convolution import Cut, spatial
from dlviz.parallel.convolution.halo import with_halo
from dlviz.parallel.convolution.windows import Window
from dlviz.parallel.step.layers import LayerSpans

SHAPE = (1, 2, 12, 32)  # on two ranks 6 rows each: 4 of the interior, one at the border, one below
HALO = 2 * 32 * 4  # bytes: a row of each channel
TRAVEL, ROW = 0.04, 0.015  # s that a halo travels, and that a row of the output is computed


class Product(nn.Module):
    def forward(self, *args, **how):
        return F.conv2d(*args, **how)


class Conv(nn.Module):
    """A layer whose spans LayerSpans prices."""

    def __init__(self, height, real):
        super().__init__()
        self.weight, self.height, self.real = nn.Parameter(torch.ones(2, 2, 3, 3)), height, real
        self.product = Product()

    def forward(self, x):
        if self.real:
            how = {"height": self.height, "convolve": self.product, "layer": "conv"}
            return spatial.conv2d(x, self.weight, None, 1, 1, **how)
        comm, length = self.height
        rows, columns = Window(comm, length, 3, 1, 1, 1), Window(None, SHAPE[3], 3, 1, 1, 1)
        return self.product(with_halo(x, rows, columns), self.weight, None, padding=(0, 1))


def step(comm, real):
    height = Cut(comm, SHAPE[2])
    lo, hi = height.block
    net = Conv(height, real)
    LayerSpans(comm, net)
    x = torch.ones(SHAPE)[:, :, lo:hi].clone().requires_grad_()
    for number in range(2):
        comm.barrier()
        with comm.span("step", step=number):
            net(x).sum().backward()


def paced(real):
    flop = 2 * 2 * 2 * 9 * 32  # of a row of the output
    device = Device("d", flop / ROW, 1e9, 1e12)
    machine = Machine(device, Topology.switch(2, Link(0.0, HALO / TRAVEL)), None)
    return dlviz.launch(step, 2, machine=machine, args=(real,), timeout=60).trace


def seconds(trace, clock):
    """Of the second step, in which nothing is loaded any more."""
    spans = trace.only(kind="step", step=1).spans
    start, end = (spans.wall_start, spans.wall_end) if clock == "wall" else (spans.start, spans.end)
    return float((end - start).max())


def of(trace, rank, kind, name):
    spans = trace.only(rank=rank, step=1).spans
    return [row for row in spans.rows() if row.kind == kind and row.name == name]


def test_the_interior_is_computed_while_the_halo_travels_forward_and_backward_by_the_wall_too():
    """A row takes 15 ms forward and 30 backward, a halo 40: naively 6 * 45 ms and two halos; the
    interior of 4 rows hides both."""
    for attempt in attempts():
        with attempt:
            real, naive = paced(True), paced(False)
            work = 6 * 3 * ROW
            for clock in ("device", "wall"):
                assert seconds(naive, clock) == pytest.approx(work + 2 * TRAVEL, abs=0.02)
                assert seconds(real, clock) == pytest.approx(work, abs=0.02)


def test_the_sends_come_before_the_interior_and_the_receives_after_it_on_the_wall_clock():
    trace = dlviz.launch(step, 2, args=(True,)).trace
    for rank in (0, 1):
        (sent,) = of(trace, rank, "collective", "send halo conv")
        (interior,) = of(trace, rank, "phase", "interior conv")
        (received,) = of(trace, rank, "collective", "receive halo conv")
        (rim,) = of(trace, rank, "phase", "rim conv")
        order = sent, interior, received, rim
        assert all(a.wall_end <= b.wall_start for a, b in zip(order, order[1:], strict=False))
        (back,) = of(trace, rank, "collective", "send back halo conv")
        (added,) = of(trace, rank, "collective", "add halo conv")
        work = of(trace, rank, "backward", "Conv")
        assert len(work) == 3  # two parts of the rim, then the interior
        assert max(each.wall_end for each in work[:2]) <= back.wall_start
        assert back.wall_end <= work[2].wall_start and work[2].wall_end <= added.wall_start
        assert {row.fields["direction"] for row in (sent, received)} == {"forward"}
        assert back.fields["direction"] == "backward" and back.fields["pixels"] == 32


def whole(comm, x, weight, height):
    """A convolution that gathers all images first: right, and what no rank should do."""
    images = x.new_empty(comm.size, *x.shape)
    comm.all_gather(images, x.detach())
    own = list(images)
    own[comm.rank] = x
    lo, hi = height.block
    return F.conv2d(torch.cat(own, 2), weight, None, 1, 1)[:, :, lo:hi]


def held(comm, gathers):
    """The most bytes in forward and backward of a net of convolutions."""
    height = Cut(comm, 64)
    lo, hi = height.block
    weight = torch.ones(8, 8, 3, 3, requires_grad=True)
    with Storages() as storages:
        y = x = torch.ones(2, 8, hi - lo, 64).requires_grad_()
        for _ in range(5):
            if gathers:
                y = whole(comm, y, weight, height)
            else:
                y = spatial.conv2d(y, weight, None, 1, 1, height=height if comm.size > 1 else None)
        y.backward(torch.ones_like(y))
    assert x.grad is not None
    return storages.peak.total


def test_on_4_ranks_a_rank_holds_less_than_half_of_what_one_process_does():
    (alone,) = dlviz.launch(held, 1, args=(False,)).results
    assert max(dlviz.launch(held, 4, args=(False,)).results) < 0.4 * alone
    assert (
        min(dlviz.launch(held, 4, args=(True,)).results) > 0.5 * alone
    )  # the bound tells them apart


def first_layer(comm):
    height = Cut(comm, 9)
    lo, hi = height.block
    weight = torch.ones(1, 1, 3, 3, requires_grad=True)
    y = spatial.conv2d(torch.ones(1, 1, hi - lo, 9), weight, padding=1, height=height)
    with torch.no_grad():
        spatial.conv2d(torch.ones(1, 1, hi - lo, 9), weight, padding=1, height=height)
    with comm.span("step", step=7):
        y.sum().backward()
    assert weight.grad is not None
    return float(weight.grad.sum())


def test_images_without_a_gradient_send_nothing_back():
    run = dlviz.launch(first_layer, 3)
    assert sum(run.results) == 25 * 25  # each of the 9 weights sees 9, or 8, rows and columns
    assert 7 not in run.trace.messages.step and len(run.trace.messages) == 2 * 2 * 2


def dies(comm):
    height = Cut(comm, 12)
    lo, hi = height.block
    x, weight = torch.ones(1, 1, hi - lo, 5), torch.ones(1, 1, 5, 5)
    if comm.rank == 1:
        for rank in (0, 2):
            comm.recv(torch.empty(1), rank)
        time.sleep(0.5)  # both wait for the halo by now
        os.kill(os.getpid(), signal.SIGKILL)
    comm.send(torch.ones(1), 1)
    try:
        spatial.conv2d(x, weight, padding=2, height=height, layer="conv1")
    except dlviz.RankLost as error:
        return error.rank, str(error)


def test_where_a_rank_dies_its_neighbours_say_who_and_which_rows():
    results = dlviz.launch(dies, 3, may_lose=(1,), timeout=30).results
    for rank, rows in ((0, "4 to 5"), (2, "6 to 7")):
        who, said = results[rank]
        assert who == 1 and "rank 1 is lost: it was killed by signal 9" in said
        assert f"the halo from rank 1, rows {rows}, columns 0 to 4" in said
    said = r"(?s)rank 1 was killed by SIGKILL.* rank 0 waits in irecv from rank 1 .*conv1"
    with pytest.raises(dlviz.RankError, match=said) as failed:
        dlviz.launch(dies, 3, timeout=30)
    rows = [row for row in failed.value.trace.spans.rows() if (row.fields or {}).get("unfinished")]
    waits = {row.rank: row.fields["halo"] for row in rows if row.kind == "wait"}
    assert waits[0] == "from rank 1, rows 4 to 5, columns 0 to 4"
    assert waits[2] == "from rank 1, rows 6 to 7, columns 0 to 4"


def refused(comm):
    """What is said, on rank 0, of calls that are wrong on all ranks."""
    height, said = Cut(comm, 8), []
    lo, hi = height.block
    x, weight = torch.ones(1, 4, hi - lo, 6), torch.ones(2, 4, 3, 3)
    for call in (
        lambda: spatial.conv2d(x, torch.ones(2, 3, 3, 3), height=height),
        lambda: spatial.conv2d(x, weight, groups=2, height=height),
        lambda: spatial.conv2d(x, torch.ones(2, 4, 9, 3), height=height),
        lambda: spatial.conv2d(x, weight, dilation=(1, 3), height=height),
        lambda: spatial.conv2d(x, weight, height=Cut(comm, 10)),
        lambda: spatial.conv2d(x, weight, stride=0, height=height),
        lambda: spatial.conv2d(x, weight, padding=SAME, height=height),
        lambda: spatial.max_pool2d(x, 2, padding=2, height=height),
        lambda: spatial.conv2d(torch.ones(1, 4, hi - lo, 3), weight, height=height),
        lambda: spatial.conv2d(x, torch.ones(2, 4, 8, 3), height=height),
    ):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                call()
                said.append(str(warned[0].message) if warned else "nothing")
            except ValueError as error:
                said.append(str(error))
    return said


SAME: Any = "same"
SAID = [
    r"x has 4 channels, and weight \(2, 3, 3, 3\) with groups=1 takes 3: give both the same.",
    r"x has 4 channels, and weight \(2, 4, 3, 3\) with groups=2 takes 8",
    r"a kernel of 9 rows and dilation 1 does not fit the 8 rows of the image with padding 0: no ",
    r"a kernel of 3 columns and dilation 3 does not fit the 6 columns of the image",
    r"rank 0 of .* has x of shape \(1, 4, 4, 6\), and its block of 10 x 6 pixels is \(N, C, 5, 6\)",
    r"stride=0 is no whole number of 1 or more",
    r"padding='same' is no whole number of 0 or more",
    r"padding=2 is more than half of a pool's 2 rows: a window would hold padding alone.",
    r"nothing",
    r"ranks 1 of .* are idle: there are 2 for 1 x 4 pixels of output. Cut another",
]


def test_what_does_not_fit_is_refused_before_anything_is_sent_and_idle_ranks_are_warned_of():
    run = dlviz.launch(refused, 2, timeout=30)
    for said, expected in zip(run.results[0], SAID, strict=True):
        assert re.search(expected, said), (said, expected)
    assert run.results[1][-2:] == ["nothing", "nothing"]
