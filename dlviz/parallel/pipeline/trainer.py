"""A worker that trains a pipeline, step after step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.models.mean_of import Loss, Weight
from dlviz.parallel.pipeline.checks import checked
from dlviz.parallel.pipeline.run import train_step
from dlviz.parallel.pipeline.shapes import Shapes
from dlviz.parallel.pipeline.shared_parameters import shared_by_ranks
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.sharded_step import rows
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled, by_stage_names, gathered_state
from dlviz.parallel.update_rules import AnyRule
from dlviz.schedules import Schedule, make


def train(
    comm: Comm,
    stages: Sequence[nn.Module],
    batches: Batches,
    rule: AnyRule = "sgd",
    *former: Any,
    schedule: str | Schedule = "1f1b",
    microbatches: int = 4,
    chunks: int | None = None,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    steps: int | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `stages`, all stages of a model, one step for each (inputs, labels) of `batches`; all
    ranks are given the same. A worker for `launch`.

    `schedule` is a Schedule, or the name of one, with `microbatches` and `chunks` stages per rank.
    One that flushes updates the weights after each step, others during it, after each microbatch.
    `loss` and `weight` are as in `train_step`, the rest as in `data.train`. (Formerly the arguments
    were stages, schedule, inputs, targets, loss, steps=3: still taken, with a warning.)

    Returns, on every rank, `losses` (before each step's updates) and, for the parameters of this
    rank's stages, `gradients` (of the first step) and `parameters` (after the last); as `state`, on
    rank 0, the whole state by the names that parameters have in their stages, which are those of
    the model that `split` has cut; where two stages use one name, by nn.Sequential(*stages)'s.
    Empty on the others.

    Raises ValueError, before training, where schedule and stages do not fit together, and where two
    ranks hold different batches.
    """
    if isinstance(batches, Schedule):
        schedule, loss, batches, rule = _as_formerly(batches, rule, *former, steps=steps)
    elif former or steps is not None:
        raise TypeError("train() takes stages, batches and a rule: give the others by their names.")
    if isinstance(schedule, str):
        schedule = make(schedule, comm.size, microbatches, chunks)
    checked(comm, stages, schedule)
    place = enumerate(zip(stages, schedule.stage_rank, strict=True))
    own = nn.ModuleDict({str(n): stage for n, (stage, rank) in place if rank == comm.rank})
    state = partial(gathered_state, comm)
    whole = Assembled(comm, stages, options)
    training = Training(
        comm,
        own,
        rule,
        lr,
        options,
        loss,
        weight,
        whole=lambda: whole.model(lambda: state(_on_cpu(own))),
    )
    moves, parameters = training.moves, training.parameters
    if moves.clip is not None and not schedule.flushes:
        raise ValueError(
            f"clip= needs the gradients of all stages at once, and by {schedule!r} each is updated "
            "at its own time: use a schedule that flushes."
        )
    shared = shared_by_ranks(stages, schedule.stage_rank)
    copied = {p for p, ranks in shared if ranks[0] != comm.rank}
    moves.norm = lambda found: joint_norm(
        comm, [g for p, g in zip(parameters, found, strict=True) if p not in copied]
    )
    updates = None if schedule.flushes else Updates(training)
    losses, gradients, shapes = [], [], Shapes()
    for step, (inputs, labels) in enumerate(training.read(batches, "a pipeline")):
        own.zero_grad()
        with comm.span("step", step=step):
            how: Any = {"optimizer": updates, "shapes": shapes, "weight": weight}
            losses.append(train_step(comm, stages, schedule, inputs, labels, loss, **how))
            if step == 0:  # before any update: comparable with one process's
                gradients = [None if p.grad is None else p.grad.clone() for p in own.parameters()]
            if schedule.flushes:
                found = moves.clipped([p.grad for p in parameters])
                moves.step(parameters, found)
            training.end_step(step, 1, losses[-1])
    last = [p.detach() for p in own.parameters()]
    found = by_stage_names(state(_on_cpu(own)))
    return training.result(losses, found, gradients=gradients, parameters=last)


def _as_formerly(
    schedule: Schedule, inputs: Any, targets: torch.Tensor, loss: Loss, steps: int | None
) -> tuple[Schedule, Loss, Batches, str]:
    warnings.warn(
        "pipeline.train(comm, stages, schedule, inputs, targets, loss, steps=3) is now "
        "pipeline.train(comm, stages, [(inputs, targets)] * 3, schedule=schedule, loss=loss).",
        DeprecationWarning,
        stacklevel=3,
    )
    steps = 3 if steps is None else steps
    check_counts(steps=steps)
    return schedule, loss, [(inputs, targets)] * steps, "sgd"


class Updates:
    """The updates of a schedule that does not flush, as `train_step` takes an optimizer."""

    def __init__(self, training: Training):
        self._training = training

    def zero_grad(self) -> None:
        self._training.model.zero_grad()

    def step(self) -> None:
        own = self._training.parameters
        self._training.moves.step(own, [p.grad for p in own])


def _on_cpu(own: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in own.state_dict().items()}
