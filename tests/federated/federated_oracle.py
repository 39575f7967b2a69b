"""Federated averaging in one process of plain torch, a loop that shares no line with ours."""

import copy

import torch
from torch import nn

from dlviz.datasets import digits
from dlviz.federated import partition
from dlviz.models import MLP

WIDTHS = (64, 8, 10)
THETA = 64 * 8 + 8 + 8 * 10 + 10  # values of the model


def model(dtype=torch.float64):
    return MLP(WIDTHS, dtype=dtype)


def dealt(clients, name="unequal", examples=120, dtype=torch.float64, **how):
    images, labels = (part[:examples] for part in digits("train", dtype))
    parts = getattr(partition, name)(labels, clients, **how)
    return [(images[part], labels[part]) for part in parts]


def sgd(net, data, steps, lr):
    """Full-batch SGD on all the data."""
    inputs, labels = (torch.cat(parts) for parts in zip(*data, strict=True))
    rule = torch.optim.SGD(net.parameters(), lr)
    for _ in range(steps):
        rule.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        rule.step()
    return net.state_dict()


def local(net, data, lr, orders, mu=0.0):
    """A copy of the net, trained on `orders`: for each epoch the rows of each batch."""
    trained = copy.deepcopy(net)
    for rows in (rows for epoch in orders for rows in epoch):
        trained.zero_grad()
        nn.functional.cross_entropy(trained(data[0][rows]), data[1][rows]).backward()
        with torch.no_grad():
            for p, w in zip(trained.parameters(), net.parameters(), strict=True):
                p -= lr * (p.grad + mu * (p - w)) if mu else lr * p.grad
    return trained


def averaged(net, trained, sizes):
    """The mean update of the clients, a tensor for each parameter: summed in their order."""
    total = [torch.zeros_like(p) for p in net.parameters()]
    with torch.no_grad():
        for each, size in zip(trained, sizes, strict=True):
            for t, p, w in zip(total, each.parameters(), net.parameters(), strict=True):
                t += size / sum(sizes) * (p - w)
    return total


def gap(one, other):
    """The largest difference of two states."""
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)
