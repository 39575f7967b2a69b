"""Sufficient factors: the inputs and output gradients of a linear layer, in place of its gradient.

The gradient of Y = X Wᵀ is a product of two thin matrices, one row a sample or token:

          N                 K
      +-------+           +---+      N
    M |  G    |  =      M | g'| @ +-----+ K        G (M, N) is the sum of K outer products,
      |       |           |   |   |  x  |          so its factors, K (M + N) numbers, say all
      +-------+           +---+   +-----+

Each rank sends the factors of its K samples to the p-1 others, and every rank multiplies those of
all. Against a ring all-reduce of G that is fewer bytes while K < 2MN / (p(M + N)), for p times the
gradient's multiplications. Biases, convolutions and what else has no such factors are all-reduced.

Source: Xie et al., "Lighter-Communication Distributed Machine Learning via Sufficient Factor
Broadcasting", UAI 2016.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.collectives.code_methods import compare
from dlviz.collectives.direct import to_all
from dlviz.parallel.data.linear_factors import Factors, LinearFactors
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.hooks import dense
from dlviz.parallel.step.prices import pricing
from dlviz.parallel.step.sharded_step import Loss, Weight, all_reduce_called, begin, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule
from dlviz.sim import factors_win_below

CHOICES = ("auto", "all", "none")


def gathered(comm: Comm, name: str, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The rows of all ranks in rank order, (ΣK, N+M): `own`, (K, N+M), are this rank's, and
    `counts` has how many each rank has.

    Cost: a rank sends (n-1) K (M + N) elements.
    """
    whole = own.new_empty(sum(counts), own.shape[1])
    parts = [*whole.split(counts)]
    parts[comm.rank].copy_(own)
    with comm.span("collective", name, nbytes=own.nbytes):
        to_all(comm, [own] * comm.size, parts)
    return whole


def multiply(comm: Comm, name: str, factors: torch.Tensor, n: int, others: int) -> torch.Tensor:
    """The sum of the outer products, (M, N), of `factors` (K, N+M), the inputs' `n` columns first,
    which hold the rows of this rank and of `others`."""
    (k, both), device, seconds = factors.shape, pricing(comm), None
    if device is not None:
        seconds = 2 * k * n * (both - n) / device.flops
    elif comm.machine is not None:  # its backward was charged for this rank's own product
        seconds = others * comm.machine.seconds("backward_weight")
    with comm.compute("backward_weight", name, seconds):
        return factors[:, n:].T @ factors[:, :n]  # (M, K) @ (K, N)


def average_gradients(
    comm: Comm,
    model: nn.Module,
    saved: dict[nn.Parameter, Factors],
    share: float,
    factors: str = "auto",
    all_reduce: str = "ring",
) -> None:
    """Replace each gradient of `model` by its mean over all ranks, weighted by their `share`. A
    rank's own gradient is the product of the factors `saved`, and `.grad` if there is one.

    Cost: for a weight by factors (n-1) K (M + N) elements, for another parameter an all-reduce.
    """
    reduce = all_reduce_called(all_reduce)
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    total, *numbers = _counts(comm, [p for _, p in parameters], saved, share)
    scale = share / total  # n_r g_r / Σ n_r: the sum is the mean
    for (name, p), samples, besides in zip(parameters, numbers[::2], numbers[1::2], strict=True):
        linear, others = max(samples) >= 0, any(besides)  # on some rank
        if not linear and not others:
            continue  # used by no rank: all skip it
        least = linear and not others and max(samples) < factors_win_below(*p.shape, comm.size)
        by_factors = linear and (factors == "all" or factors == "auto" and least)
        own = torch.zeros_like(p) if p.grad is None or not share else dense(p.grad) * scale
        product = None
        if linear:
            thin = _rows(p, saved.get(p) if share else None, scale)  # (K, N+M)
            if by_factors:
                thin = gathered(comm, name, thin, [max(k, 0) for k in samples])  # (ΣK, N+M)
            product = multiply(comm, name, thin, p.shape[1], (comm.size - 1) * by_factors)
        if product is not None and not by_factors:
            own += product
        if others or not by_factors:
            with comm.span("collective", name, nbytes=own.nbytes):
                reduce(comm, own)
        if product is not None and by_factors:
            own += product  # all have the same rows in the same order: the same bits
        p.grad = own


def _rows(weight: nn.Parameter, factors: Factors | None, scale: float) -> torch.Tensor:
    """This rank's factors side by side, (K, N+M), the gradients times `scale`."""
    if factors is None:
        return weight.new_empty(0, sum(weight.shape))
    x, g = factors
    return torch.cat([x, g * scale], 1)


def _counts(
    comm: Comm, parameters: list[nn.Parameter], saved: dict[nn.Parameter, Factors], share: float
) -> list[Any]:
    """What all ranks have, by one message: the sum of their shares; then for each parameter the
    rows of each rank's factors (-1: it has none), and whether it has a gradient besides."""
    table = torch.zeros(comm.size, 1 + 2 * len(parameters), dtype=torch.float64)
    own = table[comm.rank]
    own[0] = share
    for place, p in enumerate(parameters):
        if p not in saved:
            own[1 + 2 * place] = -1
        elif share:  # else its rows, which may be NaN, add nothing
            own[1 + 2 * place] = len(saved[p][0])
        own[2 + 2 * place] = p.grad is not None
    with comm.span("collective", "counts", nbytes=own.nbytes):
        to_all(comm, [own] * comm.size, [*table.unbind()])
    shares, *numbers = table.T
    if not shares.sum():
        no_mean()
    return [shares.sum().item(), *(number.long().tolist() for number in numbers)]


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    factors: str = "auto",
    all_reduce: str = "ring",
    **options: Unpack[Options],
) -> Result:
    """Train with factors of the gradients of linear layers: as `data.train`. `factors`: "auto", of
    the layers where they are fewer bytes, by the rows of the rank that has most; "all" or "none".

    Raises ValueError for other `factors`, or where two ranks' differ, and for gradients with a
    graph (create_graph=True).
    """
    all_reduce_called(all_reduce)
    if factors not in CHOICES:
        raise ValueError(f"factors={factors!r} is not known: use {', '.join(map(repr, CHOICES))}.")
    training = Training(comm, model, rule, lr, options, loss, weight)
    compare(comm, f"factors={factors!r}")
    begin(comm, model)
    linear = LinearFactors(model)

    def finish(share: float) -> None:
        average_gradients(comm, model, linear.take(), share, factors, all_reduce)
        training.update()

    return training.run(batches, finish)
