"""The model of the assignment: a network whose weights are one row of numbers, and examples that
stay on their rank.

    data.gradient(weights, rows)     of the mean loss of these rows of the rank's own examples
    data.test(weights)               the loss on all of them
    sgd().step(weights, gradient)    v <- momentum v + gradient;  weights <- weights - rate v

All calls are recorded: a check sees which rows a client took, at which weights, and the result
of each step. The numbers are float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dlviz.cluster import Comm
from dlviz.grading.harness.attempt import Left
from dlviz.grading.harness.dealt import drawn, fresh
from dlviz.models import MLP

Data = tuple[torch.Tensor, torch.Tensor]
STEP, TEST = 0.005, 0.001  # s that a gradient and a test take in a rehearsal
CLASSES = 4


class FlatNet:
    """An MLP whose weights are given as one row of numbers."""

    def __init__(self, widths: tuple[int, ...]):
        self.net = MLP(widths, dtype=torch.float64)
        self.size = sum(p.numel() for p in self.net.parameters())

    def loss(self, weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> Any:
        vector_to_parameters(weights.detach().clone(), self.net.parameters())
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def gradient(
        self, weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        with torch.enable_grad():
            loss = self.loss(weights, inputs, labels)
            found = torch.autograd.grad(loss, [*self.net.parameters()])
        return parameters_to_vector(found).detach()

    def accuracy(self, weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        """The share of the examples that it reads right."""
        vector_to_parameters(weights.detach().clone(), self.net.parameters())
        with torch.no_grad():
            return float((self.net(inputs).argmax(1) == labels).double().mean())


@dataclass(frozen=True)
class Problem:
    """A number of examples for each rank, and a network that no notebook shows. The examples are
    random: each rank draws its own, once."""

    counts: Mapping[int, int]  # by rank; those of rank 0 are to test with
    widths: tuple[int, ...] = (3, 4, CLASSES)
    rate: float = 0.125
    momentum: float = 0.5

    @property
    def net(self) -> FlatNet:
        return FlatNet(self.widths)

    @property
    def clients(self) -> dict[int, int]:
        """The examples of each client."""
        return {rank: count for rank, count in self.counts.items() if rank}

    def data(self, rank: int) -> Data:
        """Inputs and labels of a rank's examples."""
        count = self.counts[rank]
        labels = torch.randint(self.widths[-1], (count,), generator=fresh())
        return drawn(count, self.widths[0]), labels

    def weights(self, rank: int) -> torch.Tensor:
        """A rank's weights at the start: the server's, and on a client some older ones."""
        return drawn(self.net.size) / 2


@dataclass(frozen=True)
class DigitsOf(Problem):
    """Handwritten digits, some rows on each rank, for an MLP 64-32-10."""

    rows: Mapping[int, torch.Tensor] = field(default_factory=dict)
    images: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    labels: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def data(self, rank: int) -> Data:
        return self.images[self.rows[rank]], self.labels[self.rows[rank]]

    def weights(self, rank: int) -> torch.Tensor:
        net = MLP(self.widths, rank, torch.float64)
        return parameters_to_vector(net.parameters()).detach()


@dataclass
class LocalStep:
    """A step of a client's optimizer: the weights before and after it, its gradient, and the
    velocity before."""

    before: torch.Tensor
    gradient: torch.Tensor
    after: torch.Tensor
    velocity: torch.Tensor


@dataclass
class ClientsRecord(Left):
    """What one rank did: its weights at the start, each gradient with its weights and rows, its
    steps, the number of steps at each message to the server, the number of optimizers, and the
    weights that it tested."""

    start: torch.Tensor
    data: Data
    asked: list[tuple[torch.Tensor, list[int], torch.Tensor]] = field(default_factory=list)
    steps: list[LocalStep] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    optimizers: int = 0
    tested: list[torch.Tensor] = field(default_factory=list)
    in_full: bool = True  # False in a long run, which records only the tested weights
    faults: list[str] = field(default_factory=list)


class RankExamples:
    """A rank's examples, as a program gets them."""

    def __init__(self, comm: Comm, problem: Problem, record: ClientsRecord):
        self._comm = comm
        self._net = problem.net
        self._inputs, self._labels = record.data
        self._record = record

    def __len__(self) -> int:
        return len(self._labels)

    def gradient(self, weights: torch.Tensor, rows: Any) -> torch.Tensor:
        """Of the mean loss of these rows at `weights`."""
        self._check("gradient", weights)
        chosen = torch.as_tensor(rows)
        if chosen.dtype != torch.int64 or chosen.dim() != 1 or not len(chosen):
            raise TypeError(
                f"gradient(weights, {_form(rows)}) needs rows: a tensor of whole numbers, one or "
                f"more of 0 to {len(self) - 1}."
            )
        with self._comm.compute("backward", f"{len(chosen)} rows", seconds=STEP):
            inputs, labels = self._inputs[chosen], self._labels[chosen]
            found = self._net.gradient(weights, inputs, labels)
        if self._record.in_full:
            self._record.asked.append((weights.detach().clone(), chosen.tolist(), found.clone()))
        return found

    def test(self, weights: torch.Tensor) -> float:
        """The loss on all examples of this rank."""
        self._check("test", weights)
        self._record.tested.append(weights.detach().clone())
        with self._comm.compute("forward", "test", seconds=TEST), torch.no_grad():
            return float(self._net.loss(weights, self._inputs, self._labels))

    def _check(self, call: str, weights: Any) -> None:
        if not isinstance(weights, torch.Tensor) or weights.shape != (self._net.size,):
            raise TypeError(
                f"{call}({_form(weights)}) needs the weights, a tensor of {self._net.size} numbers."
            )


class MomentumSGD:
    """SGD with momentum, which records its steps. A new one has velocity zero."""

    def __init__(self, problem: Problem, record: ClientsRecord):
        self.velocity = torch.zeros(problem.net.size, dtype=torch.float64)
        self._rate, self._momentum = problem.rate, problem.momentum
        self._record = record
        record.optimizers += 1

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move `weights`, in place."""
        before, was = weights.detach().clone(), self.velocity
        self.velocity = self._momentum * was + gradient
        weights.sub_(self._rate * self.velocity)
        if self._record.in_full:
            after = weights.detach().clone()
            self._record.steps.append(LocalStep(before, gradient.detach().clone(), after, was))


def _form(given: Any) -> str:
    """An argument, by its type or shape."""
    if isinstance(given, torch.Tensor):
        return f"a tensor {tuple(given.shape)} of {str(given.dtype).removeprefix('torch.')}"
    return type(given).__name__
