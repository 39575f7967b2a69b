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
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.hooks import Hook, dense, writes_gradients
from dlviz.parallel.step.prices import pricing
from dlviz.parallel.step.sharded_step import Loss, Weight, all_reduce_called, begin, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule
from dlviz.sim import factors_win_below

CHOICES = ("auto", "all", "none")
Factors = tuple[torch.Tensor, torch.Tensor]  # inputs (K, N), gradients of the outputs (K, M)


class LinearFactors:
    """Saves the factors of the linear layers of `model` from now on, and keeps autograd from
    multiplying them: `.grad` of a weight holds only what it has got from other operations."""

    def __init__(self, model: nn.Module):
        self._saved: dict[nn.Parameter, list[Factors]] = {}
        self._weights: dict[nn.Module, nn.Parameter] = {}  # of the layers that are running
        for layer in model.modules():
            # Another forward may do other things with the weight.
            if isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward:
                layer.register_forward_pre_hook(Hook(self._start_forward))
                end = Hook(self._end_forward)
                layer.register_forward_hook(end, prepend=True, with_kwargs=True, always_call=True)

    def _start_forward(self, layer: nn.Module, inputs: Any) -> None:
        weight = layer._parameters.get("weight")  # None where the layer computes it from others
        if weight is not None and weight.requires_grad and torch.is_grad_enabled():
            self._weights[layer] = weight
            layer._parameters["weight"] = weight.detach()  # pyright: ignore[reportArgumentType]

    def _end_forward(self, layer: nn.Module, inputs: Any, keywords: Any, output: Any) -> Any:
        weight = self._weights.pop(layer, None)
        if weight is None:
            return None
        layer._parameters["weight"] = weight
        if output is None:  # the forward failed
            return None
        x = inputs[0] if inputs else keywords["input"]
        return _Save.apply(output, x.detach(), weight, self._saved)

    def take(self) -> dict[nn.Parameter, Factors]:
        """The factors by weight of the backward passes since the last call: the rows of all calls
        of all layers that have the weight."""
        found = {
            weight: (torch.cat([x for x, _ in calls]), torch.cat([g for _, g in calls]))
            for weight, calls in self._saved.items()
        }
        self._saved.clear()
        return found


class _Save(torch.autograd.Function):
    """Forward: the output of a linear layer, as it is. Backward: the output's gradient, as it is,
    which is saved with the layer's input; none for the weight."""

    @staticmethod
    def forward(ctx: Any, output: Any, x: Any, weight: Any, saved: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.weight, ctx.saved = weight, saved
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,), (x,), weight = gradients, ctx.saved_tensors, ctx.weight
        if torch.is_grad_enabled():
            raise ValueError(
                "create_graph=True asks for gradients with a graph, and the factors of a linear "
                "layer have none: train by another strategy, as ddp."
            )
        if writes_gradients([weight]):  # (B, T, N) is B T rows
            pair = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
            factors = tuple(part.to(weight.dtype) for part in pair)
            ctx.saved.setdefault(weight, []).append(factors)
        return gradient, None, None, None


def all_gather(comm: Comm, parts: list[torch.Tensor]) -> None:
    """Give every rank the part of each: `parts[r]` is rank r's, sent to each other rank if it has
    rows.

    Cost: one step, a rank sends n-1 times its part.
    """
    others = [(comm.rank + shift) % comm.size for shift in range(1, comm.size)]
    requests: list[Any] = [comm.irecv(parts[r], r) for r in reversed(others) if len(parts[r])]
    if len(parts[comm.rank]):
        requests += [comm.isend(parts[comm.rank], r) for r in others]
    for request in requests:
        request.wait()


def gathered(comm: Comm, name: str, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The rows of all ranks in rank order, (ΣK, N+M): `own`, (K, N+M), are this rank's, and
    `counts` has how many each rank has.

    Cost: a rank sends (n-1) K (M + N) elements.
    """
    whole = own.new_empty(sum(counts), own.shape[1])
    parts = [*whole.split(counts)]
    parts[comm.rank].copy_(own)
    with comm.span("collective", name, nbytes=own.nbytes):
        all_gather(comm, parts)
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
        all_gather(comm, [*table.unbind()])
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

    Raises ValueError for other `factors`, and for gradients with a graph (create_graph=True).
    """
    all_reduce_called(all_reduce)
    if factors not in CHOICES:
        raise ValueError(f"factors={factors!r} is not known: use {', '.join(map(repr, CHOICES))}.")
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)
    linear = LinearFactors(model)

    def finish(share: float) -> None:
        average_gradients(comm, model, linear.take(), share, factors, all_reduce)
        training.update()

    return training.run(batches, finish)
