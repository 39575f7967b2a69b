"""A server and its workers in one process of plain torch, and what it trains."""

import copy

import torch
from torch import nn

LR, MOMENTUM = 0.1, 0.9


class Mixed(nn.Module):
    """Parameters of two dtypes, so that a push is two messages."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(5, 8), nn.Linear(8, 3).double()

    def forward(self, x):
        return self.outer(self.inner(x).tanh().double())


def batches(count):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 7, 5, generator=generator)
    labels = torch.randint(0, 3, (count, 7), generator=generator)
    return list(zip(inputs, labels, strict=True))


def same_bits(state, other):
    return all(torch.equal(state[name], value) for name, value in other.items())


class Server:
    """Weights, momentum, and what each worker pulled last, in one process."""

    def __init__(self, workers):
        torch.set_num_threads(1)
        self.model = Mixed()
        self.velocity = [torch.zeros_like(p) for p in self.model.parameters()]
        self.pulled = {worker: copy.deepcopy(self.model) for worker in workers}

    def gradient(self, worker, inputs, labels):
        model = self.pulled[worker]
        return torch.autograd.grad(
            nn.functional.cross_entropy(model(inputs), labels), list(model.parameters())
        )

    def apply(self, gradients):
        with torch.no_grad():
            for p, v, g in zip(self.model.parameters(), self.velocity, gradients, strict=True):
                v *= MOMENTUM
                v += g
                p -= LR * v

    def pull(self, worker):
        self.pulled[worker] = copy.deepcopy(self.model)
