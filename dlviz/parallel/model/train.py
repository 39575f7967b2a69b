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
from collections.abc import Sequence
from functools import partial
from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.model.layer_split import free_others, parts_of, whole_state
from dlviz.parallel.model.part_messages import Exchange
from dlviz.parallel.model.side_by_side import SideBySide, hold, side_by_side
from dlviz.parallel.model.tied_parameters import Ties
from dlviz.parallel.pipeline.checks import check_output
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.pipeline.stage_backward import Forward, differentiable
from dlviz.parallel.step.batches import Batches, on
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, check_weighs, rows, trained
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.update_rules import AnyRule


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
    state = partial(whole_state, comm, model)
    training = Training(
        comm, own, rule, lr, options, loss, weight, led, whole=partial(whole.model, state)
    )
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
    return training.result(losses.means(), state(), **exchange.totals())
