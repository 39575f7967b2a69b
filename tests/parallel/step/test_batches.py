"""Batches as torch's users have them go into every strategy, and train what pairs in a list do."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)

import dlviz
from dlviz.parallel import STRATEGIES
from dlviz.parallel.step.batches import batches_of

ROWS, WIDTH, CLASSES = 6, 4, 3
PLACED = {"3d": {"dp": 1, "pp": 2, "tp": 1, "microbatches": 2, "loss": nn.functional.cross_entropy}}
ON_ONE_TENSOR = {"3d", "model", "tensor"}


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    inputs = torch.randn(3 * ROWS, WIDTH, generator=drawn, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (3 * ROWS,), generator=drawn)


def pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(*(part.split(ROWS) for part in examples()), strict=True))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*examples(), strict=True))


FORMS = {
    "a DataLoader": lambda: DataLoader(TensorDataset(*examples()), batch_size=ROWS),
    "a DataLoader of a stream": lambda: DataLoader(Stream(), batch_size=ROWS),
    "a generator": lambda: (pair for pair in pairs()),
    "lists": lambda: [[*pair] for pair in pairs()],
    "numpy": lambda: [tuple(part.numpy() for part in pair) for pair in pairs()],
    "dlviz's own": lambda: dlviz.datasets.batches(*examples(), batch=ROWS, steps=3),
}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES)
    return nn.Sequential(*layers).to(torch.float64)


def trained(comm, name, batches):
    torch.manual_seed(5)  # of `datasets.batches`
    net = model()
    given = [net[:2], net[2:]] if name == "3d" else net  # stages
    found = STRATEGIES[name](comm, given, batches, "momentum", lr=0.1, **PLACED.get(name, {}))
    return found["losses"], found["state"]


def every_form(comm):
    differ = []
    for name in STRATEGIES:
        forms = {form: make for form, make in FORMS.items() if form != "dlviz's own"}
        losses, state = trained(comm, name, pairs())
        for form, make in forms.items():
            again, weights = trained(comm, name, make())
            alike = all(torch.equal(value, weights[key]) for key, value in state.items())
            # Two ranks of Hogwild overwrite each other as it happens.
            if len(again) != 3 or name != "hogwild" and not (again == losses and alike):
                differ.append((name, form))
        assert len(trained(comm, name, FORMS["dlviz's own"]())[0]) == 3, name
    return differ


def test_every_strategy_takes_every_form_of_pairs():
    for differ in dlviz.launch(every_form, 2).results:
        assert differ == []


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model()

    def forward(self, x, scale):
        return self.net(x + scale.square())


def scaled(form: str) -> list:
    found = []
    for number, (inputs, labels) in enumerate(pairs()):
        scale = torch.full((ROWS, 1), 1.0 + number, dtype=torch.float64)
        parts = {"scale": scale, "x": inputs}  # by name, in no order
        found.append(
            {
                "a longer tuple": (inputs, scale, labels),
                "a tuple of inputs": ((inputs, scale), labels),
                "a dict": {**parts, "labels": labels},
                "a dict of inputs": (parts, labels),
            }[form]
        )
    return found


def several_inputs(comm, form):
    names = [name for name in STRATEGIES if name not in ON_ONE_TENSOR]
    found = {}
    for name in names:
        net = TwoInputs()
        found[name] = STRATEGIES[name](comm, net, scaled(form), "sgd", lr=0.1)["losses"]
    for name in ON_ONE_TENSOR:
        with pytest.raises(
            ValueError, match=r"batch 0 has a (tuple|dict) of inputs: .* passes one"
        ):
            trained(comm, name, scaled(form))
    return found


@pytest.mark.parametrize(
    "form", ["a longer tuple", "a tuple of inputs", "a dict", "a dict of inputs"]
)
def test_a_model_of_several_inputs_is_called_with_them(form):
    net, alone = TwoInputs(), []
    for inputs, scale, labels in scaled("a longer tuple"):
        net.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs, scale), labels)
        loss.backward()
        alone.append(loss.item())
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
    found = dlviz.launch(several_inputs, 2, args=(form,)).results[0]
    for name in ("ddp", "naive", "central", "sync_server", "async_server", "stale_synchronous"):
        assert found[name] == pytest.approx(alone, rel=1e-12), name
    assert all(len(losses) == 3 for losses in found.values())


X, Y = torch.ones(2, 3), torch.zeros(2)


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([(X, Y[:1])], "batch 0 has 2 inputs and 1 labels: every batch needs as many of both"),
        ([(X, X[:1], Y)], "batch 0 has 2 and 1 inputs and 2 labels: every batch needs"),
        ([(X, Y), (X[:0], Y[:0])], "batch 1 has 0 inputs and 0 labels"),
        ([X], "batch 0 is a Tensor: give (inputs, labels), (x1, x2, labels) or a dict"),
        ([{"x": X, "y": Y}], "batch 0 is a dict of x, y: give its labels the name 'labels'."),
        ([("a", Y)], "batch 0 holds a str: give tensors, whose dim 0 are the examples."),
        ([(X, torch.tensor(1.0))], "batch 0 holds a Tensor: give tensors, whose dim 0"),
        (X, "batches is a Tensor: give a DataLoader, or a list or a generator of"),
        ({"x": X}, "batches is a dict: give a DataLoader"),
        (3, "batches is a int: give a DataLoader"),
    ],
)
def test_what_is_no_batch_is_refused_in_one_sentence(batches, says):
    with pytest.raises(ValueError) as error:
        batches_of(batches)
    assert str(error.value).startswith(says) and "\n" not in str(error.value)


def test_batches_that_a_sampler_has_cut_are_refused():
    data = TensorDataset(*examples())
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.raises(ValueError, match="come from a DistributedSampler, which has cut them"):
        batches_of(DataLoader(data, batch_size=2, sampler=sampler))
    with pytest.raises(ValueError, match="come from a DistributedSampler, which has cut them"):
        batches_of(DataLoader(data, batch_sampler=BatchSampler(sampler, 2, drop_last=False)))
    one = DistributedSampler(data, num_replicas=1, rank=0)
    assert len(batches_of(DataLoader(data, batch_size=ROWS, sampler=one))) == 3


def test_a_loader_is_read_once_and_what_is_given_is_left_as_it_is():
    reads = []

    class Counted(list):
        def __iter__(self):
            reads.append(1)
            return super().__iter__()

    given = Counted(pairs())
    found = batches_of(given)
    assert reads == [1]
    for own, pair, (x, y) in zip(found, given, pairs(), strict=True):
        assert own[0] is pair[0] and own[1] is pair[1], "no copy is made"
        assert torch.equal(pair[0], x) and torch.equal(pair[1], y)
