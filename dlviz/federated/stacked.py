"""The clients of one process trained as one batch of models.

    weights   | client 0 | (K, ...), a row for each client; one forward computes the losses of all
              | client 1 | on a batch of each, one backward all gradients: no row enters another's
              | client 2 |

The result is that of `local.alone` for each, up to rounding, in a K-th of the operations. Any model
is batched by torch.func.vmap, an MLP by hand (mlp.py). PyTorch's tutorials: "model ensembling".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from dlviz.cluster import Comm
from dlviz.federated.local import Data, LocalTraining
from dlviz.federated.mlp import Losses, mlp_losses
from dlviz.federated.weights import Layout

Tensor = torch.Tensor


@torch.no_grad()
def together(
    comm: Comm,
    layout: Layout,
    starts: Tensor,  # (clients, parameters)
    data: Sequence[Data],
    how: LocalTraining,
    number: int,
    clients: Sequence[int],
) -> tuple[Tensor, list[float]]:
    """As `local.alone`, all `clients` together: (clients, parameters) and their losses.

    A step is one forward of all models on a batch each, of the same length. So the clients with the
    most full batches come first, and those with more than s of them are a slice of the tensors;
    shorter last batches follow, those of one length together.
    """
    by_size = sorted(range(len(clients)), key=lambda place: -len(data[place][1]))
    sizes = [len(data[place][1]) for place in by_size]
    batch = how.batch or max(sizes)
    full = [size // batch for size in sizes]
    tails: dict[int, list[int]] = {}
    for row, size in enumerate(sizes):
        if size % batch:
            tails.setdefault(size % batch, []).append(row)
    own = [data[place] for place in by_size]
    models = Models(comm, layout, starts[by_size], own, how, how.rate(number))
    for epoch in range(how.epochs):
        orders = [
            how.order(number, clients[place], epoch, size)
            for place, size in zip(by_size, sizes, strict=True)
        ]
        models.shuffle(orders)
        for step in range(full[0]):
            models.step_of_first(sum(count > step for count in full), step * batch, batch)
        for length, rows in tails.items():
            models.step_of(torch.tensor(rows), [full[row] * batch for row in rows], length)
    back = torch.tensor(by_size).argsort()
    seen = models.seen / (how.epochs * torch.tensor(sizes))
    return models.weights[back], seen[back].tolist()


class Models:
    """The models of several clients as one: a row of `weights` each, and their data."""

    def __init__(
        self,
        comm: Comm,
        layout: Layout,
        starts: Tensor,
        data: Sequence[Data],
        how: LocalTraining,
        rate: float,
    ):
        self.comm, self.layout, self.how, self.rate = comm, layout, how, rate
        self.weights, self.start = starts.clone(), layout.views(starts)
        self.inputs, self.labels = (torch.cat(parts) for parts in zip(*data, strict=True))
        sizes = torch.tensor([len(labels) for _, labels in data])
        self.offsets = (sizes.cumsum(0) - sizes).tolist()
        self.seen = torch.zeros(len(data), dtype=torch.float64)  # sums of losses
        self.losses = losses_of(layout, how, self.labels)
        self._first: dict[int, dict[str, Tensor]] = {}  # the weights of the first so many

    def shuffle(self, orders: list[Tensor]) -> None:
        """The data in the order of an epoch: (models, most examples, ...), padded."""
        places = [order + offset for order, offset in zip(orders, self.offsets, strict=True)]
        rows = nn.utils.rnn.pad_sequence(places, batch_first=True)
        self.x, self.y = self.inputs[rows], self.labels[rows]

    def step_of_first(self, many: int, begin: int, length: int) -> None:
        """A step of SGD of the first so many models, on `length` examples each."""
        if many not in self._first:
            self._first[many] = self.layout.views(self.weights[:many])
        own, rows, columns = self._first[many], slice(many), slice(begin, begin + length)
        self._step(own, rows, self.x[rows, columns], self.y[rows, columns])

    def step_of(self, rows: Tensor, begins: list[int], length: int) -> None:
        """A step of the models `rows`, each from its own first example."""
        columns = torch.tensor(begins)[:, None] + torch.arange(length)  # (models, length)
        weights = self.weights[rows]
        own = self.layout.views(weights)
        self._step(own, rows, self.x[rows[:, None], columns], self.y[rows[:, None], columns])
        self.weights[rows] = weights

    def _step(self, own: dict[str, Tensor], rows: slice | Tensor, x: Tensor, y: Tensor) -> None:
        many, how = len(x), self.how
        with self._compute("forward", many):
            values, backward = self.losses(own, x, y)
        with self._compute("backward", many):
            gradients = backward()
        with self._compute("update", many):
            if how.proximal:
                gradients = [
                    g if g is None else g + how.proximal * (part - self.start[name][rows])
                    for (name, part), g in zip(own.items(), gradients, strict=True)
                ]
            if how.clip is not None:
                gradients = clipped_each(gradients, how.clip)
            for part, g in zip(own.values(), gradients, strict=True):
                if g is not None:
                    part.sub_(g, alpha=self.rate)
        self.seen[rows] += values * y.shape[1]

    def _compute(self, kind: str, many: int) -> Any:
        """Priced as if the device trained the models one after the other."""
        machine = self.comm.machine
        seconds = None if machine is None else many * machine.seconds(kind)
        return self.comm.compute(kind, seconds=seconds, models=many)


def clipped_each(gradients: Sequence[Tensor | None], clip: float) -> list[Tensor | None]:
    """As `models.options.clipped` for each model, whose gradients are a row of each tensor."""
    wide = [g.to(torch.promote_types(g.dtype, torch.float64)) for g in gradients if g is not None]
    squares = sum(torch.linalg.vector_norm(g.flatten(1), dim=1) ** 2 for g in wide)
    factors = (clip / (torch.as_tensor(squares).sqrt() + 1e-6)).clamp(max=1.0)  # (models,)
    return [
        g if g is None else g * factors.to(g.dtype).view(-1, *[1] * (g.dim() - 1))
        for g in gradients
    ]


def losses_of(layout: Layout, how: LocalTraining, labels: Tensor) -> Losses:
    """The losses of models like this one, each on its own batch of such `labels`."""
    known = how.loss is nn.functional.cross_entropy and labels.dtype == torch.int64
    if known and labels.dim() == 1 and bool((labels >= 0).all()):  # none to be ignored
        by_hand = mlp_losses(layout)
        if by_hand is not None:
            return by_hand

    def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return how.loss(functional_call(layout.model, weights, (inputs,)), labels)

    def losses(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor):
        leaves = {name: part.detach().requires_grad_() for name, part in weights.items()}
        with torch.enable_grad():
            values = vmap(loss)(leaves, inputs, labels)  # (models,)

        def gradients() -> list[Tensor | None]:
            own, ones = list(leaves.values()), torch.ones_like(values)
            return list(torch.autograd.grad(values, own, ones, allow_unused=True))

        return values.detach(), gradients

    return losses


def can_stack(layout: Layout, data: Data, how: LocalTraining) -> bool:
    """Whether models like this one can be trained as one. Not if they hold statistics, draw random
    numbers in a forward, or have a forward that torch cannot batch."""
    if any(True for _ in layout.model.buffers()):
        return False
    inputs, labels = (part[:1].unsqueeze(0) for part in data)  # one example of one model
    try:
        with torch.no_grad():
            losses_of(layout, how, data[1])(layout.views(layout.read()[None]), inputs, labels)
    except RuntimeError:
        return False
    return True
