"""Sufficient factors against one process of plain torch, and the bytes that they cost."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn
from torch.utils.checkpoint import checkpoint

import dlviz
from dlviz import sim
from dlviz.machine import Device, Link, Machine, Topology, classroom
from dlviz.parallel.data.sufficient_factors import CHOICES, train

MARK = 3.0


class Scaled(nn.Linear):
    """A linear layer whose forward is another: its weight has no factors."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight * 2)


class Odd(nn.Module):
    """Layers that share a weight, used twice, by name, recomputed, frozen, unused, without a bias
    and a gradient of the input; weights that other operations use, alone or besides."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 10, bias=False)
        self.twice, self.shares = nn.Linear(10, 10), nn.Linear(10, 10)
        self.shares.weight = self.twice.weight
        self.recomputed, self.scaled = nn.Linear(10, 10), Scaled(10, 10, bias=False)
        self.frozen = nn.Linear(10, 10)
        self.frozen.weight.requires_grad_(False)
        self.unused, self.some = nn.Linear(3, 3), nn.Linear(10, 10)
        self.attends = nn.MultiheadAttention(10, 2, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(10, 10))
        self.out, self.relu = nn.Linear(10, 4), nn.ReLU(inplace=True)
        self.double()

    def forward(self, x):  # (B, T, 6)
        h = self.relu(self.twice(self.relu(self.first(x))))
        h = self.relu(self.twice(h)) + self.attends(h, h, h)[0]
        h = self.relu(self.shares(input=h))
        h = self.normed(checkpoint(self.recomputed, h, use_reentrant=False))
        if len(x) and x[-1, 0, 0] == MARK:  # on the rank with the marked example
            h = torch.cat([h[:-1], h[-1:] + self.some(h[-1, 0])])  # (10,): a row
        y = self.out(self.frozen(self.scaled(h)))
        return y + h @ self.out.weight.T


def batches():
    """Of 7, 2 and 5 examples: some shards of 3 ranks are uneven, of 7 ranks empty."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for n in (7, 2, 5):
        x = torch.randn(n, 3, 6, generator=generator, dtype=torch.float64)
        x[-1, 0, 0] = MARK
        found.append((x, torch.randn(n, 3, 4, generator=generator, dtype=torch.float64)))
    return found


def gradients_into(seen):
    return lambda step, loss, net: seen.append({n: p.grad for n, p in net.named_parameters()})


LOSS = nn.functional.mse_loss


def every_choice(comm):
    found = {}
    for factors in CHOICES:
        gradients = []
        how = {"lr": 0.1, "loss": LOSS, "callback": gradients_into(gradients)}
        result = train(comm, Odd(), batches(), factors=factors, **how)
        found[factors] = result.losses, result.state, gradients
    return found


def one_process():
    net, losses, gradients = Odd(), [], []
    for x, y in batches():
        net.zero_grad()
        loss = LOSS(net(x), y)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad for name, p in net.named_parameters()})
        with torch.no_grad():
            for p in net.parameters():
                p -= 0 if p.grad is None else 0.1 * p.grad
    return losses, net.state_dict(), gradients


def test_losses_gradients_and_weights_equal_one_process():
    run = dlviz.launch(on_each_size, 7, args=([[7], [4, 3], [2, 1]], every_choice))
    run.trace.validate()
    losses, state, gradients = one_process()
    for ranks in (1, 2, 3, 4, 7):
        same = {}
        for found in of_size(run, ranks).values():
            for factors, (own, weights, steps) in found.items():
                assert own == pytest.approx(losses, rel=1e-12)
                for step, expected in zip(steps, gradients, strict=True):
                    for name, value in expected.items():
                        if value is None:
                            assert step[name] is None, name
                        else:
                            assert (step[name] - value).norm() <= 1e-12 * value.norm(), name
                for name, value in state.items():
                    torch.testing.assert_close(weights[name], value, rtol=1e-12, atol=1e-14)
                    first = same.setdefault((factors, name), weights[name])
                    assert torch.equal(first, weights[name])  # all ranks hold the same bits


def sent(factors, batch, ranks=3, machine=None):
    """The messages and spans of a step with an MLP of 64, 32 and 10 units."""
    images, labels = dlviz.datasets.digits("train")
    args = dlviz.models.MLP((64, 32, 10)), [(images[:batch], labels[:batch])]
    run = dlviz.launch(train, ranks, machine=machine, args=args, kwargs={"factors": factors})
    return run.trace.only(step=0)


COUNTS = 8 * (1 + 2 * 4)  # of four parameters
SHAPES = {"1.weight": (32, 64), "3.weight": (10, 32)}


@pytest.mark.parametrize("factors", CHOICES)
@pytest.mark.parametrize(
    "batch", [2, 15, 16, 42, 43]
)  # K = 1, 5, 6, 14, 15 on the first of 3 ranks
def test_the_bytes_in_the_trace_are_the_closed_form_and_auto_takes_the_fewer(factors, batch):
    expected = 3 * 2 * COUNTS + 2 * 2 * 4 * (32 + 10)  # and rings of the biases
    shards = [len(part) for part in torch.arange(batch).tensor_split(3)]
    for rows, columns in SHAPES.values():
        ring = 2 * 2 * 4 * rows * columns  # of all ranks
        thin = sum(sim.factor_bytes(k, rows, columns, 3) for k in shards)
        few = shards[0] < sim.factors_win_below(rows, columns, 3)
        expected += {"all": thin, "none": ring, "auto": thin if few else ring}[factors]
    assert sent(factors, batch).messages.nbytes.sum() == expected


@pytest.mark.parametrize("batch", [15, 16, 42, 43])
def test_auto_chooses_by_the_rows_of_the_rank_that_has_most(batch):
    found = sent("auto", batch).only(rank=2, kind="collective").spans
    whole = {name: n for name, n in zip(found.name, found.nbytes, strict=True) if name in SHAPES}
    own = len(torch.arange(batch).tensor_split(3)[2])
    for name, (rows, columns) in SHAPES.items():
        thin = {"1.weight": batch < 43, "3.weight": batch < 16}[name]  # 14.2 and 5.08 rows
        assert whole[name] == 4 * (own * (rows + columns) if thin else rows * columns), name


class Tied(nn.Linear):
    """Its weight has a gradient besides, which is all-reduced."""

    def __call__(self, x):
        return super().__call__(x) @ self.weight


def test_auto_all_reduces_a_weight_that_other_operations_use_besides():
    batch = [(torch.ones(3, 64), torch.zeros(3, 64))]
    how = {"loss": LOSS}
    run = dlviz.launch(train, 3, args=(Tied(64, 32, bias=False), batch), kwargs=how)
    counts, ring = 3 * 2 * 8 * 3, 2 * 2 * 4 * 64 * 32
    assert run.trace.only(step=0).messages.nbytes.sum() == counts + ring


def test_a_machine_charges_the_product_of_all_ranks_rows():
    device = Device("test", flops=1e8, memory=1e9, memory_bandwidth=1e8)
    machine = Machine(device, Topology.switch(3, Link(1e-3, 1e9)), step=None)
    for factors, k in (("all", 7), ("none", 3)):
        spans = sent(factors, 7, machine=machine).only(rank=0, kind="backward_weight").spans
        seconds = {name: 2 * k * m * n / 1e8 for name, (m, n) in SHAPES.items()}
        assert dict(zip(spans.name, spans.end - spans.start, strict=True)) == pytest.approx(seconds)
    step = classroom(3)
    for factors, products in (("all", 2), ("none", 0)):  # the ranks' besides its own
        spans = sent(factors, 7, machine=step).only(rank=0, kind="backward_weight").spans
        assert (spans.end - spans.start).tolist() == pytest.approx([0.005 * products] * 2)


def killed(comm):
    def callback(step, loss, net):
        if comm.rank == 1 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return train(comm, Odd(), batches(), loss=LOSS, callback=callback)


def test_the_others_say_which_rank_died():
    with pytest.raises(dlviz.RankError, match="rank 1 was killed by SIGKILL"):
        dlviz.launch(killed, 3, timeout=30)


def with_a_graph(comm):
    layer = nn.Linear(2, 2)

    def loss(outputs, labels):
        graph = torch.autograd.grad(outputs.sum(), layer.bias, create_graph=True)[0]
        return outputs.mean() + graph.sum()

    train(comm, layer, [(torch.ones(2, 2), torch.ones(2, 2))], loss=loss)


def looked_at(comm):
    """A loss that looks at the gradient of its outputs' layer, which is no backward pass."""
    layer = nn.Linear(2, 2)

    def loss(outputs, labels):
        torch.autograd.grad(outputs.sum(), layer.bias, retain_graph=True)
        return nn.functional.mse_loss(outputs, labels)

    torch.nn.init.constant_(layer.weight, 1.0)
    torch.nn.init.constant_(layer.bias, 0.0)
    return train(comm, layer, [(torch.ones(2, 2), torch.ones(2, 2))], loss=loss, lr=1.0).state


def test_a_gradient_with_a_graph_is_refused_and_one_that_is_only_looked_at_is_not_added():
    with pytest.raises(dlviz.RankError, match="create_graph=True asks for gradients with a graph"):
        dlviz.launch(with_a_graph, 1)
    (state,) = dlviz.launch(looked_at, 1).results  # the gradient is (2 - 1) x 2 / 2 = 1
    assert state["weight"].tolist() == [[0.0, 0.0]] * 2


def test_another_word_for_factors_is_refused():
    def bad(comm):
        train(comm, nn.Linear(2, 2), [], factors="some")

    with pytest.raises(dlviz.RankError, match="factors='some' is not known: use 'auto', 'all', 'n"):
        dlviz.launch(bad, 1)


def test_ranks_with_different_factors_are_named():
    def worker(comm):
        train(comm, Odd(), batches(), loss=LOSS, factors=CHOICES[comm.rank])

    with pytest.raises(dlviz.RankError, match="rank 0 sums by factors='auto', rank 1 by .*'all'"):
        dlviz.launch(worker, 2)
