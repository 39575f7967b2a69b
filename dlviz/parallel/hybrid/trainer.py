"""Training on a mesh of three axes: replicas, of pipelines, of stages whose layers are cut.

    replica 0 (dp)   stage 0   tp 0 | tp 1   --activations-->   stage 1   tp 0 | tp 1
                               rank 0 rank 1 <--gradients--               rank 2 rank 3
                       |          |                               |
                       '- gradients, averaged over dp, after the flush: rank 0 with rank 4, ...
                       |          |                               |
    replica 1 (dp)   stage 0   tp 0 | tp 1   --activations-->   stage 1   tp 0 | tp 1
                               rank 4 rank 5 <--gradients--               rank 6 rank 7

A step of rank 2, with 2 microbatches by 1F1B. Messages and computations share a lane; each row is
an axis:

    pp   wait |                       | wait                 |
    tp        |q k v|ar|up|ar| loss ..|    |..  and backward |
    dp                                                        bucket 0 | bucket 1 |
                                                                                   norm | update |

The batch is cut by dp into rows and by pp into microbatches; the model by pp into runs of layers
and by tp inside each layer. With two axes of length 1 this is data, pipeline or tensor parallelism.
dp and tp cut the work of a layer (intra-operator), pp cuts between layers (inter-operator).

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021. In PyTorch: a DeviceMesh, whose axes are given to FSDP or DDP, to
torch.distributed.pipelining and to parallelize_module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

from torch import nn

from dlviz.cluster import Comm
from dlviz.models import Transformer, token_loss
from dlviz.parallel.data.ddp import BUCKET_BYTES
from dlviz.parallel.hybrid import checks
from dlviz.parallel.hybrid.gradients import Averaging, gradient_norm, incomplete
from dlviz.parallel.hybrid.parts import RankPart, stages_part, transformer_part
from dlviz.parallel.hybrid.replica import DropoutPlaces, Replica
from dlviz.parallel.hybrid.whole import state_of
from dlviz.parallel.pipeline import Shapes, train_step
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import (
    Loss,
    Losses,
    Weight,
    all_reduce_called,
    rows,
    trained,
)
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.tensor.parameters import add_partial_gradients
from dlviz.parallel.tensor.train import token_loss_over
from dlviz.parallel.update_rules import AnyRule
from dlviz.schedules import Schedule


def train(
    comm: Comm,
    model: Transformer | Sequence[nn.Module | None],
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    dp: int,
    pp: int,
    tp: int,
    order: Sequence[str] = checks.AXES,
    schedule: str = "1f1b",
    microbatches: int = 4,
    chunks: int | None = None,
    loss: Loss = token_loss,
    weight: Weight = rows,
    lr: float | None = None,
    all_reduce: str = "ring",
    sequence_parallel: bool = False,
    bucket_bytes: int = BUCKET_BYTES,
    overlap: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Train `model` on dp * pp * tp ranks, which are all given the same `batches`. A worker for
    `launch`.

    `model` is a `models.Transformer`, which is cut and left empty; built under
    `torch.device("meta")` it has no values, and each rank draws its part by the model's seed. Or it
    is a list of all stages, of which a rank needs the values of its own: those of other ranks may
    be None, or on the meta device. Over several tp ranks such stages stay as you built them: cut
    over the axis of a mesh like this one, or the same on all its ranks.

    The ranks of the axis that `order` names last are neighbours. `schedule` is one that flushes,
    with `microbatches` per replica and `chunks` stages per rank. `loss` is a mean over rows, or
    `models.token_loss`, a mean over targets; for any other loss `weight` gives what it is the mean
    of, called with (inputs) or, if it needs two arguments, (inputs, labels).

    Returns `losses` on every rank, and as `state` the trained parameters on rank 0, by their names
    in `model`, for a list of stages as `pipeline.train`, empty on the others. Raises ValueError,
    before training, for a mesh that does not fit the ranks, fewer layers than stages, and where two
    ranks hold different models or batches.

    Cost, for b tokens per microbatch and P parameters in all, by the ring: along tp as
    `tensor.train`, of the l/pp layers of a stage; along pp m activations and m gradients of b * h
    numbers, on each tp rank; along dp 2(dp-1)/dp of P/(pp * tp) gradients, or some more: norms and
    biases are on all ranks of tp, the embedding is on two stages.
    """
    mesh = checks.mesh_of(comm, {"dp": dp, "pp": pp, "tp": tp}, order)
    plan = checks.schedule_of(schedule, pp, microbatches, chunks)
    all_reduce_called(all_reduce)  # raises for an unknown name
    whole = Assembled(comm, model, options)
    part, mean_loss = part_of(comm, mesh, model, plan, loss, all_reduce, sequence_parallel)
    net, parameters = part.net, trained(part.net)
    evaluated = partial(whole.model, partial(state_of, mesh, part))
    training = Training(comm, net, rule, lr, options, loss, weight, whole=evaluated)
    training.moves.norm = lambda _: gradient_norm(mesh, part, all_reduce)
    pairs = training.read(batches, "hybrid training")
    layers, shapes, losses = LayerSpans(comm, net), Shapes(), Losses(mesh.dp)
    place_dropout = DropoutPlaces(part.stages, layers)
    later = incomplete(mesh, part, plan, sequence_parallel)
    buckets = bucket_bytes, all_reduce, overlap
    averaging = Averaging(mesh.dp, part, plan.actions[mesh.pp.rank], layers, later, *buckets)
    training.record_weights()
    comm.start_line()  # the ranks took unequal times to cut the model
    for step, batch in enumerate(comm.progress(pairs, "training")):
        with comm.span("phase", f"step {step}", step=step):
            replica = Replica(mesh.dp, batch, microbatches, mean_loss, loss, weight)
            place_dropout.at(step, replica)
            averaging.begin(replica.weight)
            mean = math.nan
            if replica.weight:  # if it is 0, it is 0 on all ranks of the replica
                given = replica.inputs, replica.places, replica.loss
                how = {"shapes": shapes, "layers": layers, "weight": replica.weigh}
                mean = train_step(mesh.pp, part.stages, plan, *given, **how)
                replica.check()
            losses.add(step, replica.weight, mean)
            if sequence_parallel:
                add_partial_gradients(mesh.tp, net, all_reduce)
            averaging.end()
            comm.memory("gradients", sum(p.grad.nbytes for p in parameters if p.grad is not None))
            training.update()
            net.zero_grad()
            comm.memory("gradients", 0)
            training.end_step(step, replica.weight, mean)
    with comm.span("phase", "state"):
        return training.result(losses.means(), state_of(mesh, part, model))


def part_of(
    comm: Comm,
    mesh: Any,
    model: Transformer | Sequence[nn.Module | None],
    plan: Schedule,
    loss: Loss,
    all_reduce: str,
    sequence_parallel: bool,
) -> tuple[RankPart, Loss]:
    """This rank's part of `model`, which is the same on all ranks, and the loss of its last stage's
    output."""
    if isinstance(model, Transformer):
        mean_loss = token_loss_over(mesh.tp, loss, all_reduce)
        checks.check_same_transformer(comm, model)
        return transformer_part(mesh, model, plan, all_reduce, sequence_parallel), mean_loss
    checks.check_stages(comm, mesh, model, plan, sequence_parallel)
    return stages_part(mesh, model, plan), loss
