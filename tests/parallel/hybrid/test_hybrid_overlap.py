"""Gradients that are averaged over dp while the last backwards run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import dlviz
from dlviz.analysis.axes import axes
from dlviz.analysis.by_axis import lanes
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models import Transformer, seed_layers
from dlviz.parallel import hybrid

MESH: Any = {"dp": 2, "pp": 2, "tp": 1, "microbatches": 4}
SMALL = {"overlap": True, "bucket_bytes": 2**13}
SWITCH = Machine(Device("d", 3e7, 1e9, 1e9), Topology.switch(4, Link(0, 1e6)), None)


class Sometimes(nn.Module):
    """`extra` counts in rows that begin with a number above 0."""

    def __init__(self):
        super().__init__()
        self.linear, self.extra = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        y, (rows,) = self.linear(x), (x[:, 0] > 0).nonzero(as_tuple=True)
        if len(rows):
            y = y.index_add(0, rows, self.extra(x[rows]))
        return torch.tanh(y)


def stages(count):
    made: list[nn.Module] = [Sometimes(), *(nn.Linear(6, 6) for _ in range(count - 1))]
    return [seed_layers(stage, 3, 10 * place).double() for place, stage in enumerate(made)]


def rows():
    """Of two replicas only the first has rows that use `extra`, in its first microbatch."""
    x = -torch.rand(8, 6, generator=torch.Generator().manual_seed(4)).double()
    x[:2, 0] = 1
    return [(x, x.cos()), (x + 0.01, x.sin())]


def sometimes(comm, pp):
    mesh: Any = {"dp": comm.size // pp, "pp": pp, "tp": 1, "microbatches": 2}
    how: Any = {"loss": functional.mse_loss, "overlap": True, "bucket_bytes": 1}
    return hybrid.train(comm, stages(pp), rows(), "momentum", lr=0.2, **mesh, **how)


@pytest.mark.parametrize("pp", [1, 2])
def test_a_gradient_that_the_last_microbatch_or_a_replica_lacks_equals_one_process(pp):
    run, model = dlviz.launch(sometimes, 2 * pp, args=(pp,)), nn.Sequential(*stages(pp))
    rule, losses = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9), []
    for x, y in rows():
        rule.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        losses.append(loss.item())
        rule.step()
    assert run.results[0]["losses"] == pytest.approx(losses, abs=1e-12)
    state = run.results[0]["state"].values()
    for found, value in zip(state, model.state_dict().values(), strict=True):
        assert torch.allclose(found, value, rtol=0, atol=1e-12)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.linear, x.requires_grad_(), use_reentrant=True)
        return x


def twice(comm):
    how: Any = {"loss": functional.mse_loss, "overlap": True, "bucket_bytes": 1}
    x = torch.ones(4, 6)
    hybrid.train(comm, [Twice()], [(x, x)], dp=2, pp=1, tp=1, microbatches=2, **how)


def test_a_second_gradient_in_a_pass_is_refused_since_the_first_has_left():
    with pytest.raises(dlviz.RankError, match="got a second gradient in one backward pass"):
        dlviz.launch(twice, 2)


def worker(comm, how):
    with torch.device("meta"):
        model = Transformer(4, 32, 4, 64, 32)
    tokens = torch.randint(64, (16, 33), generator=torch.Generator().manual_seed(0))
    hybrid.train(comm, model, 2 * [(tokens[:, :-1], tokens[:, 1:])], **MESH, **how)


@pytest.fixture(scope="module")
def traces():
    """Without overlap, and with it in small buckets."""
    both = SMALL | {"overlap": False}, SMALL
    return [dlviz.launch(worker, 4, SWITCH, args=(how,)).trace for how in both]


def test_buckets_leave_beside_the_last_backward_and_not_before_it(traces):
    spans = traces[1].spans
    for rank in range(4):
        mine = (spans.rank == rank) & (spans.step == 1)
        last = mine & (spans.kind == "backward") & (spans.microbatch == 3)
        begin, end = spans.start[last].min(), spans.end[last].max()
        buckets = mine & (spans.lane == "comm") & (spans.kind == "collective")
        starts = spans.start[buckets]
        assert begin <= starts.min() < end and (starts < end).sum() > 5
        assert set(spans.group[buckets]) == {f"dp {(rank % 2, rank % 2 + 2)}.comm"}
        tied = starts.max()  # with the other stage's part of the gradient
        assert tied >= spans.end[mine & (spans.kind == "backward")].max()


def test_a_row_for_dp_shows_them_and_less_is_exposed_for_the_same_bytes(traces):
    after, beside = (axes(trace, step=1)["dp"] for trace in traces)
    assert (beside.exposed < 0.8 * after.exposed).all()
    more = beside.sent - after.sent  # the embedding's bucket has a weight too
    assert set(more.tolist()) <= {0, 4, 8}
    for trace in traces:
        shown = lanes(trace)
        shown.validate()
        bucket = np.char.startswith(shown.spans.name.astype(str), "bucket")
        assert set(shown.spans.lane[bucket]) == {"dp"}


def test_a_bucket_of_no_bytes_is_refused():
    with pytest.raises(dlviz.RankError, match=r"bucket_bytes=0 holds no gradient: use 1 or more"):
        dlviz.launch(worker, 4, args=({"bucket_bytes": 0},))
