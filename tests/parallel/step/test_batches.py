"""What strategies take as batches, and what they say of others (test_one_form.py trains them)."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import dlviz
from dlviz.parallel import STRATEGIES
from dlviz.parallel.step.batches import batches_of

ROWS, WIDTH = 6, 4


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return torch.randn(3 * ROWS, WIDTH, generator=drawn), torch.arange(3 * ROWS) % 3


def pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(*(part.split(ROWS) for part in examples()), strict=True))


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, 3)


def a_shuffling_loader(comm):
    """As with dropout on one rank: the ranks' generators part during the first epoch."""
    loader = DataLoader(TensorDataset(*examples()), batch_size=ROWS, shuffle=True)
    torch.manual_seed(1)
    for epoch in range(2):
        torch.manual_seed(2 + epoch * comm.rank)
        yield from loader


PARTED = {
    "one label of a list": lambda comm: [*pairs()[:2], (pairs()[2][0], pairs()[2][1] + comm.rank)],
    "an epoch of a loader": a_shuffling_loader,
    "a list that ends": lambda comm: pairs()[: 3 - comm.rank],
    "a stream that ends": lambda comm: iter(pairs()[: 3 - comm.rank]),
}


SAYS = {
    "one label of a list": "rank 0 has labels of batch 2 = .* where rank 1 has labels of batch 2 =",
    "an epoch of a loader": "rank 0 has inputs of batch 3 = .* where rank 1 has inputs of batch 3",
    "a list that ends": "rank 0 has inputs of batch 2 = .* where rank 1 has nothing more",
    "a stream that ends": "rank 0 has inputs of batch 2 = .* rank 1 has no(thing more| batch 2)",
}


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "3d"])
def test_ranks_whose_batches_part_are_named_with_the_batch(name):
    def worker(comm):
        for parted, says in SAYS.items():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, 3))
            says = f"rank 0 and rank 1 hold different batches: {says}.*give all ranks the same"
            with pytest.raises(ValueError, match=says):
                STRATEGIES[name](comm, net, PARTED[parted](comm), lr=0.1)

    dlviz.launch(worker, 2, timeout=60)


def test_shards_that_a_sampler_has_cut_train_as_whole_batches_do():
    def worker(comm, sharded):
        data = TensorDataset(*(part.double() if part.is_floating_point() else part
                               for part in examples()))  # fmt: skip
        batches = DataLoader(data, batch_size=ROWS)
        if sharded:
            sampler = DistributedSampler(data, 2, comm.rank, shuffle=False)
            batches = DataLoader(data, batch_size=ROWS // 2, sampler=sampler)
        net = model().double()
        return STRATEGIES["ddp"](comm, net, batches, lr=0.1, sharded=sharded)

    whole, own = (dlviz.launch(worker, 2, args=(sharded,)).results[0] for sharded in (False, True))
    assert own.losses == pytest.approx(whole.losses, rel=1e-12)
    for key, value in whole.state.items():
        torch.testing.assert_close(own.state[key], value, rtol=1e-12, atol=1e-12)


def test_what_ranks_take_whole_is_no_shard():
    def worker(comm):
        with pytest.raises(ValueError, match="is for strategies whose ranks share the rows"):
            STRATEGIES["async_server"](comm, model(), pairs(), sharded=True)

    dlviz.launch(worker, 2)


def test_batches_are_read_as_training_asks_for_them():
    def worker(comm):
        read, at = [], []

        def batches():
            for number, pair in enumerate(pairs()):
                read.append(number)
                yield pair

        STRATEGIES["ddp"](comm, model(), batches(), callback=lambda *_: at.append(len(read)))
        return at

    assert dlviz.launch(worker, 2).results[0] == [1, 2, 3]


def test_a_rank_whose_loss_is_not_finite_is_named_with_its_step():
    def worker(comm):
        given = pairs()
        given[1][0][-1] = torch.inf  # a row of rank 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            STRATEGIES["ddp"](comm, model(), given, lr=0.1)
        return [str(each.message) for each in caught]

    first, second = dlviz.launch(worker, 2).results
    assert second[0].startswith("rank 1, step 1: the loss of its part of the batch is nan")
    assert first[0].startswith("rank 0, step 2: ") and len(first) == len(second) == 1


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
