"""Model distribution, and sub-networks side by side: the parts of a network on several ranks.

    in sequence    rank 0   forward 1 |                               | backward 1 | update
                   rank 1             | forward 2   loss   backward 2 | update
    side by side   rank 0   forward a | join   loss   their backward  | backward a | update
                   rank 1   forward b |                               | backward b | update

Model distribution computes net(X) = net_m(... net_2(net_1(X)) ...) with a part on each rank. A part
waits for the previous part, so a step is no faster, but a rank holds only one part: its weights,
their gradients, its activations. This is GPipe (pipeline/gpipe_by_hand.py) with one microbatch.
Sub-networks that do not need each other's outputs (`SideBySide`) are computed at the same time:
less memory and less time.

A rank updates the parameters of its own part without a message. Of a parameter that parts on
several ranks share, each rank has a copy: the gradients go to the first rank, which adds them and
updates; then the new values go back.

Source: Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 3. In PyTorch:
layers on several devices and `x.to(device)` between them, the "naive" model parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.model.layer_split import free_others, parts_of, whole_state
from dlviz.parallel.model.part_messages import Exchange
from dlviz.parallel.model.tied_parameters import Ties
from dlviz.parallel.pipeline.checks import check_output
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.pipeline.stage_backward import Forward, differentiable
from dlviz.parallel.step.batches import Batches, on
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import (
    Loss,
    Losses,
    Weight,
    check_weighs,
    rows,
    trained,
)
from dlviz.parallel.step.training import Assembled, Options, Result, Training, joint_norm
from dlviz.parallel.update_rules import AnyRule


class SideBySide(nn.Module):
    """Sub-networks that take the same input (B, ...). `join` makes one output from the list of
    theirs; it may be a module with weights. The default, the built-in `sum`, adds them."""

    def __init__(
        self,
        branches: Sequence[nn.Module],
        join: Callable[[list[torch.Tensor]], torch.Tensor] = sum,  # pyright: ignore
    ):
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.join = join

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.join([branch(x) for branch in self.branches])


def in_sequence(
    exchange: Exchange, part: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, loss: Loss
) -> float | None:
    """Forward and backward of one batch through the parts, one rank after the other. Gradients stay
    in this rank's `part`; the last rank returns the loss.

    Cost: activations and as many bytes of gradients cross each border between two ranks.
    """
    comm, before, after = exchange.comm, exchange.comm.rank - 1, exchange.comm.rank + 1
    is_first, is_last = comm.rank == 0, after == comm.size
    x = inputs if is_first else exchange.receive("activations", before)
    saved = SavedActivations(part)
    with saved:
        forward = Forward(part, x, wanted=not is_first)
        check_output(comm.rank, forward.output)
        if is_last:
            forward.root = loss(forward.output, labels)
    hold(comm, saved, [x, forward.output])
    gradient = torch.ones_like(forward.root)  # dL/dL; other ranks receive theirs
    if not is_last:
        exchange.send("activations", forward.output.detach(), after)
        if differentiable(forward.output.dtype):
            gradient = exchange.receive("gradients", after)
    gradient = forward.backward(gradient)
    comm.memory("activations", 0)
    if gradient is not None:
        exchange.send("gradients", gradient, before)
    return forward.root.item() if is_last else None


def side_by_side(
    exchange: Exchange,
    model: SideBySide,
    rank_of: Sequence[int],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Loss,
) -> float | None:
    """Forward and backward of one batch through the branches, branch i on rank `rank_of[i]`
    (ascending), and through `model.join`, on rank 0. Rank 0 returns the loss.

    Cost: a branch on another rank than 0 sends its output there, and receives as many bytes back.
    """
    comm, saved, value = exchange.comm, SavedActivations(model), None
    with saved:
        forwards = [
            Forward(branch, inputs, wanted=False)
            for branch, rank in zip(model.branches, rank_of, strict=True)
            if rank == comm.rank
        ]
    outputs = [forward.output.detach() for forward in forwards]
    hold(comm, saved, outputs)
    if comm.rank == 0:
        others = rank_of[len(forwards) :]
        outputs += [exchange.receive("activations", rank) for rank in others]
        value, gradients = join(comm, saved, model.join, outputs, labels, loss)
        for rank, gradient in zip(others, gradients[len(forwards) :], strict=True):
            exchange.send("gradients", gradient, rank)  # first: the others wait for it
    else:
        for output in outputs:
            exchange.send("activations", output, 0)
        gradients = [exchange.receive("gradients", 0) for _ in outputs]
    for forward, gradient in zip(forwards, gradients, strict=False):  # rank 0 has all gradients
        forward.backward(gradient)
    comm.memory("activations", 0)
    return value


def join(
    comm: Comm,
    saved: SavedActivations,
    joined: Callable[[list[torch.Tensor]], torch.Tensor],
    outputs: Sequence[torch.Tensor],
    labels: torch.Tensor,
    loss: Loss,
) -> tuple[float, list[torch.Tensor]]:
    """Rank 0's work between the branches' forward and backward. Returns the loss, and the gradient
    of each branch's output."""
    leaves = [output.requires_grad_() for output in outputs]
    with saved:
        root = loss(joined([leaf.clone() for leaf in leaves]), labels)  # it may work in place
    hold(comm, saved, leaves)
    root.backward()
    gradients = [
        torch.zeros_like(leaf) if leaf.grad is None else leaf.grad  # None: `joined` left it out
        for leaf in leaves
    ]
    return root.item(), gradients


def hold(comm: Comm, saved: SavedActivations, tensors: Sequence[torch.Tensor]) -> None:
    """Record this rank's bytes of activations: those that autograd has saved, and `tensors`."""
    for tensor in tensors:
        saved.see(tensor)
    comm.memory("activations", saved.nbytes)


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    cuts: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, its parts on the ranks, one step for each whole (inputs, labels) of `batches`.
    A worker for `launch`.

    `model` is a sequence of layers (an nn.Sequential, say) or a SideBySide; `cuts` cuts its layers
    or branches (`parts_of`, layer_split.py). A rank frees what is not its part. A part starts from
    its own rank's values, a shared parameter from those of its first rank. Returns, on every rank,
    `losses` (before each step's update), and the bytes that all ranks have sent, by name:
    `bytes_of_activations` and so on; as `state`, on rank 0, the trained parameters and buffers by
    their names in `model`, on the CPU, empty on the others.

    Raises ValueError, before training, as `parts_of` does, where two ranks hold different models,
    and for batches with unequal numbers of inputs and labels.
    """
    check_same_model(comm, model)
    whole = Assembled(comm, model, options)
    net = model if isinstance(model, SideBySide) else None
    parts = parts_of(model, comm.size, cuts, None if net is None else [*net.branches])
    rank_of = [rank for rank, part in enumerate(parts) for _ in part]
    if net is not None and isinstance(net.join, nn.Module):
        parts[0].append(net.join)
    stages = [nn.Sequential(*part) for part in parts]
    exchange, own = Exchange(comm), stages[comm.rank].to(comm.device)
    ties = Ties(exchange, stages, range(comm.size))
    free_others(model, own)
    led = [p for p in trained(own) if p not in ties.copied]
    gathered = partial(whole_state, comm, model)
    assembled = partial(whole.model, gathered)
    training = Training(comm, own, rule, lr, options, led, whole=assembled)
    training.moves.norm = partial(joint_norm, comm)
    pairs = training.read(batches, "model distribution")
    LayerSpans(comm, model)
    comm.memory("weights", sum(t.nbytes for t in [*own.parameters(), *own.buffers()]))
    losses = Losses(comm)
    ties.copy()
    exchange.finish()
    for step, batch in enumerate(comm.progress(pairs, "training")):
        with comm.span("phase", f"step {step}", step=step):
            inputs, labels = on(comm.device, batch)
            check_weighs(loss, weight, inputs, labels)
            own.zero_grad()
            comm.memory("gradients", 0)
            if net is None:
                value = in_sequence(exchange, own, inputs, labels, loss)
            else:
                value = side_by_side(exchange, net, rank_of, inputs, labels, loss)
            comm.memory("gradients", sum(p.grad.nbytes for p in trained(own) if p.grad is not None))
            ties.add_up()
            training.update()
            ties.copy()
            exchange.finish()
            mean = math.nan if value is None else value
            losses.add(step, value is not None, mean)
            training.end_step(step, value is not None, mean)
    return training.result(losses.means(), gathered(), **exchange.totals())
