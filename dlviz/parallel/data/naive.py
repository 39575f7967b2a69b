"""Naive data parallelism: after backward, one all-reduce for each gradient.

    compute |forward|--------backward--------|ar|ar|ar|ar|ar|ar|update|

Every gradient pays the latency of its own all-reduce, and nothing hides it.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_amounts
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.hooks import dense
from dlviz.parallel.step.sharded_step import Loss, Weight, all_reduce_called, begin, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def average_gradients(
    comm: Comm, model: nn.Module, examples: float | None = None, all_reduce: str = "ring"
) -> None:
    """Replace each gradient of `model` by its mean over all ranks, one all-reduce per parameter.

    `examples` is how many examples (or target tokens) this rank's loss is the mean of (None: all
    ranks weigh the same). A parameter without a gradient on any rank still has None. Call it after
    `backward()`.
    Cost: for each parameter of n bytes one all-reduce of n bytes, one after the other.
    """
    check_amounts(examples=examples)
    reduce = all_reduce_called(all_reduce)
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    weight = 1 if examples is None else examples
    # Another rank may have used a parameter that this one has not, and an all-reduce needs all
    # ranks: they first agree on the list.
    counts = [weight, *(p.grad is not None for _, p in parameters)]
    counts = torch.tensor(counts, dtype=torch.float64)
    with comm.span("collective", "counts", nbytes=counts.nbytes):  # of examples and gradients
        reduce(comm, counts)
    total, *used = counts.tolist()
    if not total:
        no_mean()
    for (name, p), users in zip(parameters, used, strict=True):
        if not users:
            continue  # used by no rank: all skip it
        if p.grad is None or not weight:
            p.grad = torch.zeros_like(p)  # adds nothing, but the others wait for its message
        p.grad = dense(p.grad)  # an embedding's may be sparse
        p.grad.mul_(weight / total)  # n_r g_r / Σ n_r: the sum is the mean
        with comm.span("collective", name, nbytes=p.grad.nbytes):
            reduce(comm, p.grad)  # backward is over: nothing hides it


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    all_reduce: str = "ring",
    **options: Unpack[Options],
) -> Result:
    """Train with `average_gradients`: as `data.train`."""
    all_reduce_called(all_reduce)
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)

    def finish(share: float) -> None:
        average_gradients(comm, model, share, all_reduce)
        training.update()

    return training.run(batches, finish)
