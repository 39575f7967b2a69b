"""The clients of one process trained as one batch of models.

    weights   | client 0 | (K, ...), a row for each client; one forward computes the losses of all
              | client 1 | on a batch of each, one backward all gradients: no row enters another's
              | client 2 |

It comes to what `local.alone` does for each, up to rounding, in a K-th of the operations. In
PyTorch: torch.func.vmap over torch.func.functional_call ("model ensembling").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from dlviz.cluster import Comm
from dlviz.federated.local import Data, LocalTraining
from dlviz.federated.weights import Layout

Tensor = torch.Tensor


def together(
    comm: Comm,
    layout: Layout,
    starts: Tensor,  # (clients, parameters)
    data: Sequence[Data],
    how: LocalTraining,
    number: int,
    clients: Sequence[int],
) -> tuple[Tensor, list[float]]:
    """As `local.alone`, all `clients` at once: (clients, parameters) and their losses.

    A step is one forward of all models on a batch each, of as many examples. So the clients with
    the most full batches come first, and those left after s of them are a slice of the tensors;
    their last, shorter batches are taken after it, those of one length at once.
    """
    sizes = [len(labels) for _, labels in data]
    by_size = sorted(range(len(clients)), key=lambda place: -sizes[place])
    batch = how.batch or max(sizes)
    full = [sizes[place] // batch for place in by_size]
    tails: dict[int, list[int]] = {}
    for row, place in enumerate(by_size):
        if sizes[place] % batch:
            tails.setdefault(sizes[place] % batch, []).append(row)
    models = Models(comm, layout, starts[by_size], [data[place] for place in by_size], how)
    for epoch in range(how.epochs):
        models.shuffle(
            [how.order(number, clients[place], epoch, sizes[place]) for place in by_size]
        )
        for step in range(full[0]):
            many = sum(count > step for count in full)
            models.step(slice(many), torch.full((many, 1), step * batch), batch)
        for length, rows in tails.items():
            begin = torch.tensor([[full[row] * batch] for row in rows])
            models.step(torch.tensor(rows), begin, length)
    back = torch.tensor(by_size).argsort()
    seen = models.seen / (how.epochs * torch.tensor([sizes[place] for place in by_size]))
    return models.weights[back], seen[back].tolist()


class Models:
    """The models of several clients as one: a row of `weights` each, and where their data lie."""

    def __init__(
        self, comm: Comm, layout: Layout, starts: Tensor, data: Sequence[Data], how: LocalTraining
    ):
        self.comm, self.how = comm, how
        self.weights = starts.clone()
        self.start, self.parts = layout.views(starts), layout.views(self.weights)
        self.inputs, self.labels = (torch.cat(parts) for parts in zip(*data, strict=True))
        sizes = torch.tensor([len(labels) for _, labels in data])
        self.offsets = (sizes.cumsum(0) - sizes).tolist()
        self.seen = torch.zeros(len(data), dtype=torch.float64)  # sums of losses
        self.losses = losses_of(layout, how)

    def shuffle(self, orders: list[Tensor]) -> None:
        """The order of an epoch: where example i of client k lies, at [k, i]."""
        places = [order + offset for order, offset in zip(orders, self.offsets, strict=True)]
        self.places = nn.utils.rnn.pad_sequence(places, batch_first=True)

    def step(self, which: slice | Tensor, begin: Tensor, length: int) -> None:
        """A step of SGD of the models `which`, on the `length` examples from `begin` (models, 1)
        of each."""
        rows = self.places[which].gather(1, begin + torch.arange(length))  # (models, length)
        own = {name: part[which].detach().requires_grad_() for name, part in self.parts.items()}
        many, how = len(rows), self.how
        with self._compute("forward", many):
            values = self.losses(own, self.inputs[rows], self.labels[rows])  # (models,)
        with self._compute("backward", many):
            gradients = torch.autograd.grad(values.sum(), [*own.values()], allow_unused=True)
        with self._compute("update", many), torch.no_grad():
            for (name, part), g in zip(own.items(), gradients, strict=True):
                if g is not None:
                    pull = how.proximal * (part - self.start[name][which]) if how.proximal else 0
                    self.parts[name][which] = part - how.lr * (g + pull)
        self.seen[which] += values.detach() * length

    def _compute(self, kind: str, many: int) -> Any:
        """Its device would train the models one after the other."""
        machine = self.comm.machine
        seconds = None if machine is None else many * machine.seconds(kind)
        return self.comm.compute(kind, seconds=seconds, models=many)


def losses_of(layout: Layout, how: LocalTraining) -> Callable[..., Tensor]:
    """The losses (models,) of weights by name (models, ...), each on its own batch of inputs and
    labels (models, examples, ...)."""

    def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return how.loss(functional_call(layout.model, weights, (inputs,)), labels)

    return vmap(loss)


def can_stack(layout: Layout, data: Data, how: LocalTraining) -> bool:
    """Whether models like this one can be trained as one. Those that keep statistics or draw random
    numbers in a forward cannot, nor those whose forward torch has no batched form of."""
    if any(True for _ in layout.model.buffers()):
        return False
    inputs, labels = (part[:1].unsqueeze(0) for part in data)  # one example of one model
    try:
        with torch.no_grad():
            losses_of(layout, how)(layout.views(layout.read()[None]), inputs, labels)
    except RuntimeError:
        return False
    return True
