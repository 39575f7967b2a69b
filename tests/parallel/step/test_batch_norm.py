"""Batch norm over all ranks against one process, and how far off it is over each shard alone."""

import copy

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn

import dlviz
from dlviz.parallel.data import DDP, average_gradients
from dlviz.parallel.step.batch_norm import SyncBatchNorm

LAYOUTS = [[7], [4, 3], [2, 1]]  # of seven ranks, the groups that train side by side
RANKS = [1, 2, 3, 4, 7]


class Normed(nn.Module):
    """Norms of two kinds, one of them without parameters and with plain averages."""

    def __init__(self, kind=nn.BatchNorm1d):
        super().__init__()
        self.filter = nn.Conv1d(2, 5, 3)
        self.first = kind(5)
        self.middle = nn.Linear(20, 7)
        self.second = kind(7, momentum=None, affine=False)
        self.last = nn.Linear(7, 3)
        generator = torch.Generator().manual_seed(3)
        self.double()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) / 2)

    def forward(self, x):  # (B, 2, 6)
        hidden = self.first(torch.tanh(self.filter(x)))  # (B, 5, 4)
        return self.last(self.second(torch.tanh(self.middle(hidden.flatten(1)))))


def sample(rows=23):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 2, 6, generator=generator, dtype=torch.float64)
    return x + 0.3 * torch.arange(rows)[:, None, None], torch.randn(
        rows, 3, generator=generator, dtype=torch.float64
    )


def shard(comm):
    """Unequal rows; of three ranks or more the last has none."""
    sizes = [*range(comm.size)]
    sizes[-1] = 0 if comm.size > 2 else sizes[-1]
    sizes[0] += 23 - sum(sizes)
    return (whole.split(sizes)[comm.rank] for whole in sample())


def steps(net, model, x, y, average=lambda: None):
    for _ in range(2):
        model.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        average()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
    gradients = {name: p.grad for name, p in model.named_parameters()}
    evaluated = model.eval()(sample()[0]).detach()
    return gradients | {name: b for name, b in model.named_buffers()} | {"evaluated": evaluated}


def worker(comm):
    x, y = shard(comm)
    found = []
    model = SyncBatchNorm.convert_sync_batchnorm(Normed(), comm)
    found.append(steps(DDP(model, comm, bucket_bytes=300), model, x, y))
    model = SyncBatchNorm.convert_sync_batchnorm(Normed(), comm)
    found.append(steps(model, model, x, y, lambda: average_gradients(comm, model, len(x))))
    return found


@pytest.fixture(scope="module")
def run():
    run = dlviz.launch(on_each_size, 7, args=(LAYOUTS, worker))
    run.trace.validate()
    return run


@pytest.mark.parametrize("ranks", RANKS)
def test_synchronised_it_equals_one_process_on_unequal_and_empty_shards(run, ranks):
    model = Normed()
    expected = steps(model, model, *sample())
    results = of_size(run, ranks).values()
    assert len(results) == ranks
    for found in (each for result in results for each in result):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            gap = (found[name] - value).double().norm()
            assert gap <= 1e-12 * max(value.double().norm(), 1), name


def accumulated(comm):
    x, y = shard(comm)
    model = SyncBatchNorm.convert_sync_batchnorm(Normed(), comm)
    net = DDP(model, comm, weight=lambda x: 3.0 * len(x))  # any unit will do
    with net.no_sync():
        nn.functional.mse_loss(net(x), y).backward()
    nn.functional.mse_loss(net(x), y).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def test_it_takes_its_weights_from_ddp_and_may_be_accumulated():
    model = Normed()
    (2 * nn.functional.mse_loss(model(sample()[0]), sample()[1])).backward()
    for found in dlviz.launch(accumulated, 3).results:
        for name, p in model.named_parameters():
            assert (found[name] - p.grad).norm() <= 1e-12 * max(p.grad.norm(), 1), name


def on_digits(comm, synchronised):
    """The gradient of the first weights of a network with batch norm, 16 digits a rank."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
    )
    images, labels = (whole[:64] for whole in dlviz.datasets.digits("train"))
    if synchronised:
        model = SyncBatchNorm.convert_sync_batchnorm(model, comm)
    images, labels = (each.tensor_split(comm.size)[comm.rank] for each in (images, labels))
    nn.functional.cross_entropy(DDP(model, comm)(images), labels).backward()
    return model[1].weight.grad, model[2].running_var


def test_over_each_shard_alone_it_differs_from_one_process():
    """By the share in the docstring of batch_norm.py."""
    ((exact, variance),) = dlviz.launch(on_digits, 1, args=(False,)).results
    own = dlviz.launch(on_digits, 4, args=(False,)).results[0]
    whole = dlviz.launch(on_digits, 4, args=(True,)).results[0]
    gaps = [((each - exact).norm() / exact.norm()).item() for each, _ in (own, whole)]
    assert gaps[0] == pytest.approx(0.32, abs=0.005) and gaps[1] < 1e-5


def test_converting_preserves_parameters_buffers_and_mode():
    def converted(comm):
        model = nn.Sequential(nn.BatchNorm2d(3, eps=0.1, momentum=0.3), nn.Linear(2, 2)).eval()
        before = copy.deepcopy(model.state_dict())
        found = SyncBatchNorm.convert_sync_batchnorm(model, comm)
        norm = found[0]
        assert isinstance(norm, SyncBatchNorm) and not norm.training
        assert (norm.eps, norm.momentum) == (0.1, 0.3)
        assert [*found.state_dict()] == [*before]
        assert SyncBatchNorm.convert_sync_batchnorm(found, comm)[0] is norm
        x = torch.randn(2, 3, 4, 4)
        alone = nn.BatchNorm2d(3, eps=0.1).eval()
        assert torch.equal(norm(x), alone(x))  # evaluation asks no other rank

    dlviz.launch(converted, 1)


def test_too_few_values_and_dimensions_are_refused():
    def bad(comm, shape):
        SyncBatchNorm(comm, 3)(torch.ones(shape))

    for shape, says in (((1, 3), "more than 1 value per channel"), ((3,), "needs \\(B, C")):
        with pytest.raises(dlviz.RankError, match=says):
            dlviz.launch(bad, 1, args=(shape,))
