"""Phase 3: what a client does with the weights it was sent: E epochs of SGD on its own data.

    w ← w_t
    E times:  for each batch of B examples:  w ← w - η (∇ loss(w) + μ (w - w_t))
    send  Δ = w - w_t

μ ties a client to the weights it was sent (FedProx); 0 is FedAvg; with E = 1 and the whole data as
one batch it is FedSGD. The order of the examples follows from (seed, round, client, epoch) alone.
`alone` is the loop for one client; stacked.py trains those of one process at once.

Source: McMahan et al. 2017, algorithm 1 (ClientUpdate); Li et al., "Federated Optimization in
Heterogeneous Networks", MLSys 2020 (FedProx).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.federated.selection import draws_of, generator
from dlviz.federated.weights import Layout

Tensor = torch.Tensor
Data = tuple[Tensor, Tensor]  # inputs (n_k, ...) and labels (n_k, ...)
Loss = Callable[[Tensor, Tensor], Tensor]  # the mean over a batch


@dataclass(frozen=True)
class LocalTraining:
    """How clients train. `batch=None`: the whole data of the client is one batch."""

    epochs: int
    batch: int | None
    lr: float
    loss: Loss
    proximal: float
    seed: int

    def __post_init__(self) -> None:
        """Raises ValueError for what trains nothing."""
        if not (isinstance(self.epochs, int) and self.epochs >= 1):
            raise ValueError(f"epochs={self.epochs!r} trains nothing: use 1 or more.")
        if self.batch is not None and not (isinstance(self.batch, int) and self.batch >= 1):
            raise ValueError(
                f"batch={self.batch!r} holds no example: use 1 or more, or None for the whole data."
            )
        check_counts(epochs=self.epochs, batch=self.batch)
        for name in ("lr", "proximal"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r} has to be a number from 0 up.")

    def steps(self, examples: int) -> int:
        """The updates that a client with so many examples makes in a round."""
        return self.epochs * math.ceil(examples / (self.batch or examples))

    def order(self, number: int, client: int, epoch: int, examples: int) -> Tensor:
        """The order (examples,) in which `client` takes its examples in an epoch of a round; as
        they lie where they are one batch."""
        if self.batch is None or self.batch >= examples:
            return torch.arange(examples)
        return torch.randperm(
            examples, generator=generator(self.seed, "order", number, client, epoch)
        )


def alone(
    comm: Comm,
    start: Tensor,  # (parameters,)
    data: Data,
    layout: Layout,
    how: LocalTraining,
    number: int,
    client: int,
) -> tuple[Tensor, float]:
    """Round `number` of one `client`: its weights after it (parameters,), and the mean of its loss
    over the examples that it saw."""
    (inputs, labels), model, seen = data, layout.model, 0.0
    layout.write(start)
    anchor = [p.detach().clone() for p in layout.parameters]
    with draws_of(how.seed, "forward", number, client):  # a dropout's are this client's own too
        for epoch in range(how.epochs):
            order = how.order(number, client, epoch, len(labels))
            for rows in order.split(how.batch or len(labels)):
                with comm.compute("forward"):
                    value = how.loss(model(inputs[rows]), labels[rows])
                with comm.compute("backward"):
                    gradients = torch.autograd.grad(value, layout.parameters, allow_unused=True)
                with comm.compute("update"), torch.no_grad():
                    for p, w, g in zip(layout.parameters, anchor, gradients, strict=True):
                        if g is not None:
                            p -= how.lr * (g + how.proximal * (p - w) if how.proximal else g)
                seen += value.item() * len(rows)
    return layout.read(), seen / (how.epochs * len(labels))
