"""Phase 3: what a client does with the weights it received: E epochs of SGD on its own data.

    w ← w_t
    E times:  for each batch of B examples:  g = ∇ loss(w) + μ (w - w_t)
                                             w ← w - η g min(1, c / |g|)
    send  Δ = w - w_t, and n_k, its weight: examples, or whatever the loss is a mean of

`weight` counts these: the targets left by `ignore_index`, say. Without it `models.token_loss`
counts its targets, and a loss that is not a mean over the rows of a rank's own clients is refused.

μ ties a client to the weights it received (FedProx); 0 is FedAvg; with E = 1 and the whole data as
one batch it is FedSGD. `clip`, c, bounds the gradient of each batch, and η may be another in each
round. A batch of weight 0, nothing but padding, is left out. The order of the examples depends only
on (seed, round, client, epoch). `alone` is the loop for one client; stacked.py trains those of one
process together.

Source: McMahan et al. 2017, algorithm 1 (ClientUpdate); Li et al., "Federated Optimization in
Heterogeneous Networks", MLSys 2020 (FedProx).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.federated.selection import draws_of, generator
from dlviz.federated.weights import Layout
from dlviz.models.mean_of import (
    Loss,
    MeanOverRows,
    Weight,
    check_loss,
    of_batch,
    weighed,
    weight_of,
)
from dlviz.models.options import RateSchedule, TrainingOptions, clipped, squares

Tensor = torch.Tensor
Data = tuple[Tensor, Tensor]  # inputs (n_k, ...) and labels (n_k, ...)


@dataclass(frozen=True)
class LocalTraining:
    """How clients train. `batch=None`: the whole data of the client is one batch.
    `weight=None`: a loss is the mean over the rows of its batch. `rates`: those of all rounds,
    where they are not `lr`."""

    epochs: int
    batch: int | None
    lr: float
    loss: Loss
    proximal: float
    seed: int
    weight: Weight | None = None
    clip: float | None = None
    rates: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that train nothing."""
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
        check_loss(self.loss, len if self.weight is None else self.weight)

    def by(self, options: TrainingOptions, rounds: int, lr: float | None) -> LocalTraining:
        """The same with clip and rates by `options`. Raises ValueError for a rate `lr` that was
        given beside these."""
        rates, lr_schedule = [], options.get("lr_schedule")
        if lr_schedule is not None:
            schedule = RateSchedule(lr_schedule, self.lr, of="round")
            schedule.refuse_beside(lr)
            for _ in range(rounds):
                rates.append(schedule.rate)
                schedule.advance()
        return replace(self, clip=options.get("clip"), rates=rates)

    def rate(self, number: int) -> float:
        """The rate of round `number`."""
        return self.rates[number] if self.rates else self.lr

    def weigh(self, client: int, inputs: Tensor, labels: Tensor) -> float:
        """How many terms the loss on these rows of a client is the mean of."""
        if self.weight is None or not len(labels):
            return len(labels)
        return weighed(f"a batch of client {client}", of_batch(self.weight)(inputs, labels))

    def steps(self, examples: int) -> int:
        """The updates that a client with so many examples makes in a round."""
        return self.epochs * math.ceil(examples / (self.batch or examples))

    def order(self, number: int, client: int, epoch: int, examples: int) -> Tensor:
        """The order (examples,) in which `client` takes its examples in an epoch of a round;
        unshuffled where they are one batch."""
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
    """Round `number` of one `client`: its new weights (parameters,), and the mean of its loss over
    the examples, or target tokens, that it saw."""
    (inputs, labels), model, seen, count = data, layout.model, 0.0, 0.0
    layout.write(start)
    anchor, rate = [p.detach().clone() for p in layout.parameters], how.rate(number)
    with draws_of(how.seed, "forward", number, client):  # dropout's numbers are the client's own
        for epoch in range(how.epochs):
            order = how.order(number, client, epoch, len(labels))
            for rows in order.split(how.batch or len(labels)):
                share = how.weigh(client, inputs[rows], labels[rows])
                if not share:
                    continue
                with comm.compute("forward"):
                    value = how.loss(model(inputs[rows]), labels[rows])
                with comm.compute("backward"):
                    gradients = torch.autograd.grad(value, layout.parameters, allow_unused=True)
                with comm.compute("update"), torch.no_grad():
                    if how.proximal:
                        gradients = [
                            g if g is None else how.proximal * (p - w) + g
                            for p, w, g in zip(layout.parameters, anchor, gradients, strict=True)
                        ]
                    if how.clip is not None:
                        gradients = clipped(gradients, how.clip, squares(gradients) ** 0.5)
                    for p, g in zip(layout.parameters, gradients, strict=True):
                        if g is not None:
                            p -= rate * g
                seen, count = seen + value.item() * share, count + share
    return layout.read(), seen / count


PARTS = 16  # of a client's rows


def check_mean(layout: Layout, how: LocalTraining, clients: Iterable[Data]) -> None:
    """Raise ValueError where no `weight` is given and the loss on these `clients`' data is not the
    mean over rows."""
    data = [each for each in clients if len(each[1])]
    if how.weight is not None or weight_of(how.loss) is not None or not data:
        return
    layout, how = copy.deepcopy((layout, how))  # a forward or a loss may change their state
    tried: dict[torch.Size, MeanOverRows] = {}
    with draws_of(how.seed, "check"), torch.no_grad():
        for inputs, labels in data:
            for rows in torch.arange(len(labels)).tensor_split(min(PARTS, len(labels) // 2 or 1)):
                outputs, given, alike = layout.model(inputs[rows]), labels[rows], labels.shape[1:]
                if not isinstance(outputs, Tensor) or draws(how.loss, outputs, given):
                    return
                tried.setdefault(alike, MeanOverRows(how.loss))(outputs, given)
    for each in tried.values():
        each.check()


def draws(loss: Loss, outputs: Tensor, labels: Tensor) -> bool:
    """Whether the loss is random: two values on the same rows differ."""
    one, other = (loss(outputs.clone(), labels) for _ in range(2))
    return not torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
