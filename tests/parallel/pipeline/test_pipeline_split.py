"""A model cut into stages: balanced as well as possible, and still the same model."""

import itertools
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dlviz import models
from dlviz.parallel.pipeline import split
from dlviz.parallel.pipeline.partition import cut


def worst(costs, starts):
    ends = [*starts[1:], len(costs)]
    return max(sum(costs[start:end]) for start, end in zip(starts, ends, strict=True))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_no_cut_into_runs_has_a_cheaper_costliest_stage(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    starts = cut(costs, stages)
    assert starts[0] == 0 and len(starts) == stages and starts == sorted(set(starts))
    others = itertools.combinations(range(1, len(costs)), stages - 1)
    assert worst(costs, starts) == min(worst(costs, [0, *other]) for other in others)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_the_stages_one_after_the_other_are_the_model(stages):
    model = models.MLP((6, 8, 7, 5), dtype=torch.float64)
    parts = split(model, stages)
    x = torch.randn(4, 6, dtype=torch.float64)
    assert len(parts) == stages and all(len(part) for part in parts)
    torch.testing.assert_close(nn.Sequential(*parts)(x), model(x))
    parameters = [p for part in parts for p in part.parameters()]
    assert [*map(id, parameters)] == [*map(id, model.parameters())]


def test_given_costs_say_where_to_cut():
    layers = nn.Sequential(*(nn.Identity() for _ in range(6)))
    assert [len(part) for part in split(layers, 3, [4, 1, 1, 3, 3, 6])] == [3, 2, 1]
    assert [len(part) for part in split(layers, 2, [9, 0, 0, 0, 0, 1])] == [1, 5]


def test_without_costs_a_layer_counts_its_parameters():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 40))
    assert [len(part) for part in split(model, 2)] == [2, 1]


def test_a_layer_that_a_sequence_runs_twice_is_there_twice():
    act, inner = nn.Tanh(), nn.Linear(3, 3)
    model = nn.Sequential(nn.Linear(3, 3), act, inner, act, inner)
    parts, x = split(model, 3), torch.randn(2, 3)
    assert [layer for part in parts for layer in part] == [*model]
    assert torch.equal(nn.Sequential(*parts)(x), model(x))


class Slow(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        time.sleep(self.seconds)
        return x * 2


def test_a_batch_of_inputs_as_costs_has_the_layers_timed():
    model = nn.Sequential(*(Slow(s) for s in (0.0, 0.0, 0.03, 0.0, 0.02)))
    assert [len(part) for part in split(model, 2, torch.randn(2, 3))] == [3, 2]
    words = nn.Sequential(nn.Embedding(5, 3), Slow(0.02), Slow(0.02))
    assert [len(part) for part in split(words, 2, torch.tensor([1, 2]))] == [2, 1]


class Chain(nn.Module):
    """Children that run in another order than they are registered, one of them twice."""

    def __init__(self):
        super().__init__()
        self.last, self.act, self.first = nn.Linear(4, 2), nn.Tanh(), nn.Linear(3, 4)

    def forward(self, x):
        return self.act(self.last(self.act(self.first(x))))


def test_a_module_whose_forward_is_its_children_in_a_row_is_cut_in_their_order():
    model = Chain()
    parts = split(model, 4)
    assert [part[0] for part in parts] == [model.first, model.act, model.last, model.act]
    x = torch.randn(5, 3)
    torch.testing.assert_close(nn.Sequential(*parts)(x), model(x))


class Residual(Chain):
    def forward(self, x):
        return self.act(x) + x


class Branches(Chain):
    def forward(self, x):
        return self.act(x) if x.sum() > 0 else self.first(x)


class Two(Chain):
    def forward(self, x):
        h = self.first(x)
        return h, self.last(h)


class Listed(nn.Sequential):
    def forward(self, x):
        for layer in reversed(self):
            x = layer(x)
        return x


def test_a_sequential_with_a_forward_of_its_own_is_cut_by_that_forward():
    model = Listed(nn.Linear(4, 2), nn.Linear(3, 4))
    assert [part[0] for part in split(model, 2)] == [model[1], model[0]]


@pytest.mark.parametrize(
    ("model", "stages", "costs", "words"),
    [
        (models.MLP((6, 5)), 4, None, "Sequential has 2 layers for stages=4: a stage has one"),
        (nn.Sequential(), 1, None, "Sequential has 0 layers for stages=1"),
        (models.MLP((6, 5)), 0, None, "stages=0 has to be a whole number, 1 or more"),
        (models.MLP((6, 5)), -1, None, "stages=-1 has to be a whole number"),
        (models.MLP((6, 5)), 1.5, None, "stages=1.5 has to be a whole number"),
        (models.MLP((6, 5)), True, None, "stages=True has to be a whole number"),
        (models.MLP((6, 5)), 2, [1.0], "costs has 1 entries for the 2 layers of Sequential"),
        (models.MLP((6, 5)), 2, [1.0, -1.0], r"costs\[1\]=-1.0 is no cost"),
        (models.MLP((6, 5)), 2, [float("nan"), 1.0], r"costs\[0\]=nan is no cost"),
        (Residual(), 2, None, "Residual cannot be cut into runs of its children.*at 'add'"),
        (Branches(), 2, None, "Branches cannot be cut.*its forward cannot be traced"),
        (Two(), 2, None, "Two cannot be cut.*returns something else"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_sentence(model, stages, costs, words):
    with pytest.raises(ValueError, match=words) as raised:
        split(model, stages, costs)
    assert str(raised.value).count("\n") == 0 and str(raised.value).endswith(".")
