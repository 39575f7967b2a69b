"""Pipeline parallelism: the model is cut into stages on ranks, the batch into microbatches that go
through them. A Schedule gives the order of the computations; this module runs any schedule.

    rank 0   0F0 0F1 0F2         0B0 ...       F: wait for activations, pass on activations
                \\   \\   \\        /              B: wait for a gradient, pass on a gradient
    rank 1       1F0 1F1 ... 1B0 ...           I: as B, and leaves to W what nobody waits for

A rank works through its row of the schedule. Before an action it waits for the neighbouring stage's
output, after it it passes on the result. Every message has its own tag, sends do not block, and
receives are posted ahead, so that no legal order can deadlock.

The gradient of the mean over the batch is the mean of the microbatches' gradients, weighted by what
each loss is a mean of (microbatches.py), so a flushing schedule adds up the gradients of one
process. A schedule that does not flush (`pipedream`) treats each microbatch as a batch: its
backward uses the weights that its forward saw, and is immediately followed by an update.

Source: Huang et al., GPipe, NeurIPS 2019; Narayanan et al., PipeDream, SOSP 2019; the schedules'
own sources are in dlviz/schedules. In PyTorch: torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from dlviz.cluster import Comm, rehearsed
from dlviz.models.mean_of import Loss, Weight
from dlviz.parallel.pipeline.actions import Math, by_layers, in_one_span
from dlviz.parallel.pipeline.checks import check_output, checked, no_update, pieces_of
from dlviz.parallel.pipeline.microbatches import Microbatches
from dlviz.parallel.pipeline.p2p import P2P
from dlviz.parallel.pipeline.shapes import Shapes
from dlviz.parallel.pipeline.shared_parameters import SharedParameters
from dlviz.parallel.pipeline.stage_worker import StageWorker
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import rows
from dlviz.schedules import Action, Schedule, make

if TYPE_CHECKING:
    from dlviz.sim import Costs


def train_step(
    comm: Comm,
    stages: Sequence[nn.Module | None],
    schedule: Schedule,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Loss,
    optimizer: torch.optim.Optimizer | None = None,
    costs: Costs | None = None,
    shapes: Shapes | None = None,
    layers: LayerSpans | None = None,
    weight: Weight = rows,
) -> float:
    """Run one step of `schedule`; every rank calls it. Returns the mean loss, on every rank.

    `stages` are all stages of the model, each from one tensor to one tensor whose shape follows
    from the input's; a rank uses its own, on its device. Another rank's stage may lie on the meta
    device, or be None where it shares no parameter with this rank's. `inputs` (B, ...) and
    `targets` (B, ...) are the whole batch, which is cut into equal microbatches;
    `loss(output, target)` is the mean over one, and counts by `weight`, called with (inputs) or, if
    it needs two arguments, (inputs, targets): by default rows. The gradients are added to the
    `.grad` of the parameters of a rank's stages; a parameter that stages of several ranks share
    gets the sum on each. `optimizer`, of the parameters of a rank's stages, is only used by
    schedules that do not flush.

    On a paced run `costs` price an action, by default the machine's step for each forward (a
    machine without a step needs `costs`); the machine prices a message. For stages that communicate
    give `layers`, the spans of this rank's layers: an action is then a phase, in which each layer
    has its own price, beside the messages. `shapes`, the same object for all steps of the same
    stages, lets later steps post every receive ahead. Raises ValueError where schedule, stages and
    batch do not fit together, and where the loss is no mean over rows and `weight` is not given.

    Cost: a microbatch crosses each border between ranks twice, as activations and as a gradient:
    2(p-1)m messages for p stages on p ranks and m microbatches, then p-1 of the loss.
    """
    microbatches, kinds = checked(comm, stages, schedule)
    if kinds == "F":
        raise ValueError(f"{schedule!r} has no backwards to train with: call infer, or use gpipe.")
    if costs is not None:
        if layers is not None:
            raise ValueError(
                "costs= says what an action takes and layers= what its layers: give one."
            )
        costs.check_stages(len(stages))
    if len(inputs) != len(targets):
        raise ValueError(
            f"the batch has {len(inputs)} inputs and {len(targets)} targets: give one for each."
        )
    row = schedule.actions[comm.rank]
    pieces = pieces_of(comm, inputs, microbatches)
    mine = (shapes or Shapes()).of(schedule, comm.rank, pieces, kinds)
    # A stage takes 2m tags, for activations and gradients; the tags above are shared parameters'.
    shared = SharedParameters(comm, stages, schedule.stage_rank, 2 * len(stages) * microbatches)
    if schedule.flushes and optimizer is not None:
        raise ValueError(
            f"{schedule!r} flushes, and an optimizer moves weights where a schedule does not: call "
            "optimizer.step() after train_step, once all gradients of the batch are there."
        )
    if not schedule.flushes and (optimizer is None or shared.count):
        raise ValueError(no_update(schedule, shared.count))
    batch = Microbatches(pieces, pieces_of(comm, targets, microbatches), loss, weight)
    worker = StageWorker(comm, stages, mine, row, batch, optimizer, layers)
    p2p = P2P(comm, schedule.stage_rank, row, pieces, mine)
    mean, last, tag = torch.zeros(1).double(), schedule.stage_rank[-1], shared.next_tag
    # Posted before the first action: the loss may arrive while this rank still computes.
    request = None if comm.rank == last else comm.irecv(mean, last, tag)
    with comm.span("phase", schedule.name or "pipeline"):
        _work_through(comm, row, p2p, worker.run, worker.conclude, costs, layers)
        if request is None:
            mean += batch.mean()
            p2p.send_to_all(mean, tag)  # matches the irecv above
        shared.add_up()  # after the last backward: earlier a gradient lacks microbatches
        p2p.finish()  # no send was waited for so far: no rank can be stuck in one
        if request is not None:
            request.wait()
    return mean.item()


@rehearsed
def _rehearsal(comm: Comm) -> None:
    from dlviz.sim import Costs

    stages, x = [nn.Linear(2, 2) for _ in range(comm.size)], torch.ones(2, 2)
    schedule = make("1f1b", comm.size, 2)
    train_step(comm, stages, schedule, x, x, nn.functional.mse_loss, costs=Costs())


def infer(
    comm: Comm, stages: Sequence[nn.Module], schedule: Schedule, inputs: torch.Tensor
) -> torch.Tensor:
    """The model's outputs (B, ...), on every rank: the forwards of `schedule`, without autograd.

    `stages` and `inputs` are as in `train_step`; any schedule will do, `inference` has only
    forwards. Cost: (p-1)m messages of activations, then p-1 of the outputs.
    """
    microbatches, _ = checked(comm, stages, schedule)
    actions = [half for action in schedule.actions[comm.rank] for half in action.halves]
    row = [action for action in actions if action.kind == "F"]  # in a training schedule's order
    pieces = pieces_of(comm, inputs, microbatches)
    outputs: dict[int, torch.Tensor] = {}

    def forward(action: Action, x: torch.Tensor | None) -> torch.Tensor | None:
        output = stages[action.stage](x)
        check_output(action.stage, output)
        if action.stage < len(stages) - 1:
            return output
        outputs[action.microbatch] = output
        return None

    shapes = Shapes().of(schedule, comm.rank, pieces, "F")
    p2p = P2P(comm, schedule.stage_rank, row, pieces, shapes)
    last, tag = schedule.stage_rank[-1], 2 * len(stages) * microbatches
    with torch.no_grad(), comm.span("phase", "inference"):
        _work_through(comm, row, p2p, forward)
        if comm.rank == last:
            # (B, ...), in the order of the batch, whatever the schedule's.
            whole = torch.cat([outputs[microbatch] for microbatch in range(microbatches)])
            p2p.send_to_all(whole, tag)
        else:
            whole = comm.probe(last, tag)  # for the outputs' shape
            comm.recv(whole, last, tag)
        p2p.finish()
    return whole


def _work_through(
    comm: Comm,
    row: Sequence[Action],
    p2p: P2P,
    math: Math,
    conclude: Callable[[Action], None] = lambda half: None,
    costs: Costs | None = None,
    layers: LayerSpans | None = None,
) -> None:
    """Run the actions of a rank, one after the other, the two halves of an overlap as one."""
    if layers is None and row and row[0].halves[0].stage == 0:  # this rank waits for no other
        comm.begin()
    for action in row:
        received = [p2p.receive(half) for half in action.halves]  # an overlap needs both to begin
        if layers is None:
            left = in_one_span(comm, action, received, math, costs)
        else:
            left = by_layers(comm, action, received, math, layers)
        for half, tensor in zip(action.halves, left, strict=True):
            p2p.pass_on(half, tensor)  # first, since the next stage waits for it
            conclude(half)
