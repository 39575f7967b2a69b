"""One weird trick: all crossings train as one process does; bytes, memory, time and faults."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timing import attempts
from torch import nn

import dlviz
from dlviz import models, sim
from dlviz.cluster import Storages
from dlviz.machine import Link, classroom
from dlviz.parallel import STRATEGIES
from dlviz.parallel.convolution.crossings import CROSSINGS, parts_of

train = STRATEGIES["cnn_hybrid"]
CLASSES, PIXELS = 3, 30
# by the number of dense layers: their widths, and what lies between them
WIDTHS = {1: (CLASSES,), 2: (5, CLASSES), 3: (7, 4, CLASSES), 4: (4, 6, 2, CLASSES)}
WEIGHTS = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)


def net(dense: int = 2, frozen: str = "") -> nn.Sequential:
    torch.manual_seed(dense)
    layers = [nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 5, 2, padding=1)]
    layers += [nn.ReLU(), nn.Flatten()]
    for before, width in zip((PIXELS, *WIDTHS[dense]), WIDTHS[dense], strict=False):
        layers += [nn.Linear(before, width, bias=width != 4), nn.GELU()]
    made = nn.Sequential(*layers[:-1]).double()
    for name, p in made.named_parameters():
        of_convolutions = int(name.split(".")[0]) < 6
        p.requires_grad_(not (frozen and of_convolutions or frozen == "weights" and p.dim() > 1))
    return made


def batches(rows: int, steps: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(rows)
    x = torch.randn(steps * rows, 2, 6, 4, generator=drawn, dtype=torch.float64)
    y = torch.randint(CLASSES, (steps * rows,), generator=drawn)
    y[::4] = -100  # ignored: shards and slices weigh unequally, some nothing
    return list(zip(x.split(rows), y.split(rows), strict=True))


LOSS = nn.CrossEntropyLoss(WEIGHTS)


def trained(comm, crossing, dense, rows, frozen):
    """Losses, state, and of each step the gradients of the convolutions."""
    seen = []

    def keep(step, loss, model):
        seen.append([p.grad.clone() for p in model[:6].parameters() if p.grad is not None])

    found = train(comm, net(dense, frozen), batches(rows), "sgd", lr=0.5, loss=LOSS,
                  crossing=crossing, bucket_bytes=300, callback=keep)  # fmt: skip
    return found["losses"], found["state"], seen


def each_way(comm, dense, rows, frozen):
    return [trained(comm, crossing, dense, rows, frozen) for crossing in CROSSINGS]


def alone(dense, rows, frozen):
    model, losses, seen = net(dense, frozen), [], []
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for x, y in batches(rows):
        optimizer.zero_grad()
        loss = LOSS(model(x), y)
        loss.backward()
        seen.append([p.grad.clone() for p in model[:6].parameters() if p.grad is not None])
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict(), seen


@pytest.mark.parametrize(
    ("ranks", "dense", "rows", "frozen"),
    [
        (1, 2, 3, ""),
        (2, 3, 7, ""),
        (3, 2, 10, ""),  # 5 outputs of a dense layer on 3 ranks
        (3, 4, 8, "convolutions"),
        (3, 3, 4, "weights"),  # rank 0 alone has the bias of a sum
        (4, 1, 5, ""),  # slices of a row or none
        (5, 2, 3, ""),  # ranks without rows, and without classes
    ],
)
def test_every_crossing_trains_as_one_process(ranks, dense, rows, frozen):
    losses, state, gradients = alone(dense, rows, frozen)
    close: Any = {"rtol": 1e-11, "atol": 1e-12}
    results = dlviz.launch(each_way, ranks, args=(dense, rows, frozen)).results
    for rank, found in enumerate(results):
        for crossing, (own_losses, own_state, own_gradients) in zip(CROSSINGS, found, strict=True):
            assert own_losses == pytest.approx(losses, rel=1e-12), crossing
            torch.testing.assert_close(own_gradients, gradients, **close)
            if rank == 0:
                assert list(own_state) == list(state)
                torch.testing.assert_close(own_state, dict(state), **close)
            else:
                assert own_state == {}


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6), crossing=st.sampled_from(CROSSINGS)
)
def test_crossings_take_each_row_once_and_are_of_the_size_of_a_shard(counts, crossing):
    ranks = range(len(counts))
    by_rank = [parts_of(crossing, counts, rank) for rank in ranks]
    for rank, parts in enumerate(by_rank):
        taken = sorted(row for part in parts for row in range(counts[rank])[part.own])
        assert taken == [*range(counts[rank])]
        assert all(len(range(counts[rank])[part.own]) == part.counts[rank] for part in parts)
    assert all(
        part.counts == other.counts
        for parts in by_rank
        for part, other in zip(parts, by_rank[0], strict=True)
    )
    sizes = [sum(part.counts) for part in by_rank[0]]
    if crossing == "all":
        assert sizes == [sum(counts)][: sum(counts)]
    elif crossing == "one":
        assert sizes == [count for count in counts if count]
    elif sum(counts):
        least = sum(count // len(counts) for count in counts)
        assert all(least <= size <= least + len(counts) for size in sizes)
        if len({*counts}) == 1:
            assert sizes == counts  # also where shards of a few rows make slices of one or none


def of_small_alexnet(comm, name, b, how):
    drawn = torch.Generator().manual_seed(0)
    pairs = [
        (torch.rand(b * comm.size, 1, 32, 32, generator=drawn), torch.arange(b * comm.size) % 10)
        for _ in range(2)
    ]
    return STRATEGIES[name](comm, models.SmallAlexNet(), pairs, **how)["losses"]


def sent(run: dlviz.Run) -> dict[str, Counter[int]]:
    """Bytes that each rank sends in step 1, by what for."""
    found: dict[str, Counter[int]] = {"x": Counter(), "dx": Counter(), "outputs": Counter()}
    found["buckets"] = Counter()
    spans = [row for row in run.trace.only(step=1).spans if row.kind == "send"]
    collectives = [row for row in run.trace.only(step=1).spans if row.kind == "collective"]
    for row in spans:
        around: str = next(
            str(c.name).split()[0]
            for c in collectives
            if (c.rank, c.lane) == (row.rank, row.lane)
            and c.wall_start <= row.wall_start <= row.wall_end <= c.wall_end
        )
        what = {"gradients": "outputs", "bucket": "buckets"}.get(around, around)
        found[what][row.rank] += row.nbytes
    return found


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_a_whole_step_of_the_small_net_sends_240_kb_and_by_data_parallelism_1624(crossing):
    ranks, b, inputs, dense, convolutions = 4, 4, 2048, 263562, 7120
    run = dlviz.launch(of_small_alexnet, ranks, args=("cnn_hybrid", b, {"crossing": crossing}))
    by = sent(run)
    crossed, averaged = sim.one_weird_trick(b, inputs, dense, ranks)
    flags = 6 + 2  # a flag for each parameter of the convolutions, a counter, the weight
    for rank in range(ranks):
        assert by["x"][rank] + by["dx"][rank] == crossed == 2 * (ranks - 1) * b * inputs * 4
        assert by["x"][rank] == by["dx"][rank]
        assert by["outputs"][rank] == 2 * (ranks - 1) * b * 10 * 4
        most = 2 * (ranks - 1) * 4 / ranks * (convolutions + flags)
        assert by["buckets"][rank] == pytest.approx(most, abs=8 * ranks)
    assert round(sum(count[0] for count in by.values()) / 1000) == 240
    assert dense // (ranks * inputs) == 32  # images a worker up to which the crossings send less
    if crossing == "slices":
        run = dlviz.launch(of_small_alexnet, ranks, args=("ddp", b, {}))
        whole = sum(count[0] for count in sent(run).values())
        assert round(whole / 1000) == 1624
        most = averaged + 2 * (ranks - 1) * 4 / ranks * (convolutions + flags + 4)
        assert whole == pytest.approx(most, abs=8 * ranks)


class Mark(torch.autograd.Function):
    """Between convolutions and crossings: what is held when these begin, and their peak."""

    @staticmethod
    def forward(ctx, x, storages, seen):  # pyright: ignore[reportIncompatibleMethodOverride]
        storages.begin_step()
        ctx.storages, ctx.seen = storages, seen
        seen.append(storages.now.total)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.seen.append(ctx.storages.peak.total)
        return gradient, None, None


class Marked(nn.Module):
    def __init__(self, *how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return Mark.apply(x, *self.how)


def thin(frozen: bool = False) -> nn.Sequential:
    """D = 2048 inputs of dense layers that are small."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 1, 1).requires_grad_(not frozen)
    return nn.Sequential(convolution, nn.Flatten(), nn.Linear(2048, 4), nn.Linear(4, CLASSES))


def of_thin(rows: int):
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(2 * rows, 1, 32, 64, generator=drawn), torch.arange(2 * rows) % CLASSES
    return list(zip(x.split(rows), y.split(rows), strict=True))


def held(comm, crossing, b):
    """In units of b D elements: what a rank holds more at the peak of the crossings of a step."""
    seen: list[int] = []
    with Storages(comm) as storages:
        model = thin()
        model.insert(2, Marked(storages, seen))
        train(comm, model, of_thin(b * comm.size), crossing=crossing)
    return (seen[-1] - seen[-2]) / (b * 2048 * 4)


def test_all_at_once_holds_k_times_what_slices_hold():
    ranks, b = 4, 32
    most = {
        crossing: dlviz.launch(held, ranks, args=(crossing, b)).results for crossing in CROSSINGS
    }
    for rank in range(ranks):
        # x and dx of a crossing, beside this rank's own dx.
        assert most["all"][rank] == pytest.approx(1 + 2 * ranks, abs=0.1)
        assert most["one"][rank] == pytest.approx(1 + 2, abs=0.1)
        assert most["slices"][rank] == pytest.approx(1 + 2, abs=0.1)


def of_thin_net(comm, crossing, b, frozen):
    return train(comm, thin(frozen), of_thin(b * comm.size), crossing=crossing)["losses"]


def crossings_of(crossing: str, frozen: bool, ranks: int = 4, b: int = 16) -> list[list]:
    """The spans of step 1, on links of 1 MB/s, whose names begin with x or dx."""
    machine = classroom(ranks, step=1e-4, link=Link(1e-4, 1e6))
    run = dlviz.launch(of_thin_net, ranks, args=(crossing, b, frozen), machine=machine)
    spans = [row for row in run.trace.only(step=1).spans if row.kind == "collective"]
    return [[row for row in spans if row.name.split()[0] == name] for name in ("x", "dx")]


def through(spans: list, clock: str) -> float:
    """Seconds from the first rank's start to the last one's end."""
    ends, starts = ([getattr(row, clock + edge) for row in spans] for edge in ("end", "start"))
    return max(ends) - min(starts)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a busy host is late
def test_slices_are_through_k_times_sooner_than_one_worker_after_the_other():
    for attempt in attempts():
        with attempt:
            one, slices = (crossings_of(crossing, True)[0] for crossing in ("one", "slices"))
            b_d = 16 * 2048 * 4 / 1e6  # seconds on a link
            for clock, error in ("", 0.03), ("wall_", 0.1):
                assert through(slices, clock) == pytest.approx(3 * b_d, rel=error)
                assert through(one, clock) == pytest.approx(4 * 3 * b_d, rel=error)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("crossing", ["one", "slices"])
def test_a_gradient_goes_home_while_the_next_activations_come(crossing):
    for attempt in attempts():
        with attempt:
            x, dx = crossings_of(crossing, False)
            for number in range(3):
                back = [row for row in dx if row.name == f"dx {number}"]
                forth = [row for row in x if row.name == f"x {number + 1}"]
                for clock in ("", "wall_"):
                    starts, ends = (
                        [[getattr(row, clock + edge) for row in rows] for rows in (back, forth)]
                        for edge in ("start", "end")
                    )
                    both = min(map(max, ends)) - max(map(min, starts))
                    least = min(through(back, clock), through(forth, clock))
                    assert both > 0.7 * least > 0.01, (number, clock)


def refused(comm, kind):
    model, crossing = net(), "slices"
    if kind == "crossing":
        crossing = "slice"
    elif kind == "differ":
        crossing = CROSSINGS[comm.rank == 2]
    elif kind == "dropout":
        model.insert(7, nn.Dropout())
    elif kind == "no dense":
        model = model[:6]
    elif kind == "module":
        model = models.Residual(nn.Linear(2, 2))
    train(comm, model, batches(6), loss=LOSS, crossing=crossing)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("crossing", "crossing='slice' is not known: use 'all', 'one', 'slices'"),
        ("differ", "rank 0 and rank 2 hold different crossings: rank 0 has crossing='all' where "
         "rank 2 has crossing='one'; give all ranks the same"),
        ("dropout", "layer 7, a Dropout, lies behind the first nn.Linear, where layers are cut"),
        ("no dense", "a Sequential without an nn.Linear among its own layers has no dense part"),
        ("module", "a Residual without an nn.Linear among its own layers has no dense part"),
    ],
)  # fmt: skip
def test_what_cannot_cross_is_refused(kind, says):
    with pytest.raises(dlviz.RankError, match=f"ValueError: {says}"):
        dlviz.launch(refused, 3, args=(kind,))


class Dies(nn.Module):
    """Of the second batch rank 1 convolves its rows, and sends none."""

    def __init__(self, rank: int):
        super().__init__()
        self.rank, self.calls = rank, 0

    def forward(self, x):
        self.calls += 1
        if self.rank == 1 and self.calls == 2:
            time.sleep(0.5)  # the others wait for its rows by now
            os.kill(os.getpid(), signal.SIGKILL)
        return x


def dies(comm, crossing):
    model = net()
    model.insert(6, Dies(comm.rank))
    train(comm, model, batches(6), loss=LOSS, crossing=crossing)


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_a_worker_that_dies_is_named(crossing):
    with pytest.raises(
        dlviz.RunError,
        match=r"(?s)rank 1 was killed by SIGKILL.*rank 0 waits in i(recv|send)\b.*rank 1",
    ):
        dlviz.launch(dies, 3, args=(crossing,), timeout=60)
