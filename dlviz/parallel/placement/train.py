"""Training with the groups of operators on the ranks of a placement."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.machine import Link
from dlviz.parallel.model.layer_split import whole_state
from dlviz.parallel.placement.devices import devices_of, operators_of
from dlviz.parallel.placement.placed_model import PlacedModel
from dlviz.parallel.step.batches import Batches, on
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, check_weighs, rows
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.update_rules import AnyRule
from dlviz.sim.placement import METHODS


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    placement: str | Sequence[int] = "layers",
    by: str = "operators",
    device_bytes: int | None = None,
    link: Link | None = None,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, its groups of operators on the ranks of a `placement`, one step for each whole
    (inputs, labels) of `batches`. A worker for `launch`.

    `placement`: the rank of each group, or a method of dlviz.sim.search that finds it;
    `by` as in `models.graph.graph_of`. `device_bytes`: of parameters and buffers that a rank may
    hold (None: no limit). `link`: what a message costs; None for the machine's, or on a run that is
    not paced HERE. A rank frees parameters of other ranks' groups; it starts from its own values.

    A group takes what the machine says: its `step` (each group's), or the FLOPs over its device's;
    not paced, what rank 0 measures before training. With dropout each rank draws its own masks.

    The Result also has `placement`, `groups` (how many) and `predicted_seconds` of a step, all
    updates left out; as `state`, on rank 0, the trained parameters and buffers.

    Raises ValueError, before training, for a model that torch.export cannot export (`graph_of`), a
    placement with an unknown rank, without one for each group or over `device_bytes`, and where two
    ranks hold different models.
    """
    if isinstance(placement, str) and placement not in METHODS:
        raise ValueError(
            f"placement={placement!r} is unknown: give the rank of each group, or one of "
            f"{', '.join(METHODS)}."
        )
    check_same_model(comm, model)
    whole = Assembled(comm, model, options)
    model.to(comm.device)
    state = partial(whole_state, comm, model)
    training = Training(
        comm, model, rule, lr, options, loss, weight, whole=partial(whole.model, state)
    )
    training.moves.norm = partial(joint_norm, comm)
    pairs = training.read(batches, "a placement")
    devices = devices_of(comm, link, device_bytes)
    shapes = copy.deepcopy(model).to("meta")  # from which rank 0 knows batches of other shapes
    known: dict[torch.Size, PlacedModel] = {}
    losses, placed = Losses(comm), None
    for step, batch in enumerate(comm.progress(pairs, "training")):
        inputs, labels = on(comm.device, batch)
        check_weighs(loss, weight, inputs, labels)
        if inputs.shape not in known:
            like = None if placed is None else placed.operators
            operators = operators_of(comm, model if like is None else shapes, inputs, by, like)
            where = placement if placed is None else placed.placement
            known[inputs.shape] = PlacedModel(comm, model, operators, where, devices)
            if placed is None:
                training.parameters = known[inputs.shape].take()
                training.moves.bind(training.parameters)
            comm.start_line()  # rank 0 alone has exported
        placed = known[inputs.shape]
        with comm.span("phase", f"step {step}", step=step):
            model.zero_grad()
            comm.memory("gradients", 0)
            value = placed.run(inputs, labels, loss)
            gradients = (p.grad for p in training.parameters)
            comm.memory("gradients", sum(each.nbytes for each in gradients if each is not None))
            training.update()
            mean = math.nan if value is None else value
            losses.add(step, value is not None, mean)
            training.end_step(step, value is not None, mean)
    more: dict[str, Any] = {}
    if placed is not None:
        more = {"groups": len(placed.operators), "placement": placed.placement}
        more["predicted_seconds"] = placed.seconds
    return training.result(losses.means(), state(), **more)
