"""Pipelines whose actions are computed layer by layer, on ranks that hold only their own stages."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import schedules
from dlviz.metrics import COMPUTE
from dlviz.parallel.pipeline import train_step
from dlviz.parallel.step.layers import LayerSpans
from dlviz.schedules.action import KIND_NAMES
from dlviz.sim import Costs

WIDTH = 5
NAMES = [name for name in schedules.NAMES if name not in ("pipedream", "inference")]


class Block(nn.Module):
    """A layer, one that is used twice, a norm; an in-place ReLU, also on the stage's input; a
    parameter that is frozen."""

    def __init__(self):
        super().__init__()
        self.once, self.twice = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm, self.relu = nn.LayerNorm(WIDTH), nn.LeakyReLU(0.3, inplace=True)
        self.frozen = nn.Parameter(torch.randn(WIDTH), requires_grad=False)

    def forward(self, x):
        h = self.relu(x)
        h = h + self.twice(self.relu(self.once(h))) * self.frozen
        return self.norm(self.twice(h))


def network(stages):
    torch.manual_seed(0)
    return [Block().double() for _ in range(stages)]


def data():
    return torch.randn(2, 12, WIDTH, generator=torch.Generator().manual_seed(1)).double()


def worker(comm):
    """The stages; of those of other ranks half are missing, half on the meta device."""
    gaps, (x, y) = {}, data()
    for name in NAMES:
        schedule = schedules.make(name, comm.size, 6)
        stages, own = network(len(schedule.stage_rank)), nn.ModuleDict()
        given: list[nn.Module | None] = []
        for number, (stage, rank) in enumerate(zip(stages, schedule.stage_rank, strict=True)):
            elsewhere = None if number % 2 else copy.deepcopy(stage).to("meta")
            given.append(stage if rank == comm.rank else elsewhere)
            if rank == comm.rank:
                own[str(number)] = stage
        layers = LayerSpans(comm, own)
        loss = train_step(comm, given, schedule, x, y, functional.mse_loss, layers=layers)
        reference = network(len(stages))
        value = functional.mse_loss(nn.Sequential(*reference)(x.clone()), y)
        value.backward()
        pairs = [
            (p, q)
            for number in own
            for p, q in zip(
                own[number].parameters(), reference[int(number)].parameters(), strict=True
            )
        ]
        assert all((p.grad is None) == (q.grad is None) for p, q in pairs)
        worst = max((p.grad - q.grad).abs().max().item() for p, q in pairs if p.grad is not None)
        gaps[name] = max(worst, abs(loss - value.item()))
    return gaps


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(worker, 3)


def test_a_rank_with_its_own_stages_alone_finds_the_gradients_of_one_process(run):
    for gaps in run.results:
        assert all(gap < 1e-12 for gap in gaps.values()), gaps


def test_each_layer_is_a_span_of_its_action_and_nothing_else_computes(run):
    spans = run.trace.spans
    found: Counter = Counter()
    for n in range(len(spans.kind)):
        if spans.kind[n] in COMPUTE:
            stage, _, layer = spans.name[n].partition(".")
            assert int(stage) == spans.stage[n] and spans.microbatch[n] >= 0
            found[spans.kind[n], layer] += 1
    actions = Counter(
        KIND_NAMES[half.kind]
        for name in NAMES
        for row in schedules.make(name, 3, 6).actions
        for action in row
        for half in action.halves
    )
    times = {"once": 1, "twice": 2, "norm": 1}
    assert found == {
        (kind, layer): times[layer] * count for kind, count in actions.items() for layer in times
    }


def both(comm):
    stages, (x, y) = network(2), data()
    layers = LayerSpans(comm, nn.ModuleList(stages))
    schedule = schedules.make("1f1b", comm.size, 6)
    train_step(comm, stages, schedule, x, y, functional.mse_loss, costs=Costs(), layers=layers)


def test_prices_of_actions_and_of_layers_are_not_taken_together():
    with pytest.raises(dlviz.RankError, match="costs= says what an action takes and layers="):
        dlviz.launch(both, 2)
