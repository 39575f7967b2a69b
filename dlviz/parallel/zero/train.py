"""Training by ZeRO: forward and backward of each microbatch, then one update.

forward backward | forward backward | update    microbatches=2
"""

from __future__ import annotations

import copy
from functools import partial
from math import nan
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.models.mean_of import Loss, Weight, in_step
from dlviz.parallel.data.ddp import BUCKET_BYTES
from dlviz.parallel.step.batches import Batch, Batches, shard
from dlviz.parallel.step.hooks import Hook
from dlviz.parallel.step.replicas import start_alike
from dlviz.parallel.step.sharded_step import counting, learn, rows
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.update_rules import AnyRule, TorchRule
from dlviz.parallel.zero import checkpoint
from dlviz.parallel.zero.shards import FlatLayer, parameters_by_layer
from dlviz.parallel.zero.stage1 import Stage1
from dlviz.parallel.zero.stage2 import Stage2
from dlviz.parallel.zero.stage3 import Stage3

PRECISIONS = ("float32", "bfloat16")


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "adam",
    *,
    stage: int = 3,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    microbatches: int = 1,
    prefetch: int = 1,
    reshard_after_forward: bool = True,
    naive: bool = False,
    bucket_bytes: int = BUCKET_BYTES,
    precision: str = "float32",
    save: str | None = None,
    load: str | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `model` by ZeRO `stage` 1, 2 or 3: as `data.train`, with the same result.

    Each rank cuts its rows of a batch into `microbatches`, whose gradients make one update; `rule`
    moves each value on its own, as all rules of `update_rules` do. In stage 3 `prefetch` layers are
    gathered ahead of the one that computes, and one is freed after its forward unless
    `reshard_after_forward` is False. `naive` stage 1 reduces gradients by an all-reduce.
    `precision="bfloat16"` computes and sends in it, beside float32 shards that the rule moves;
    "float32" leaves the model's own type. With `save`, shards and state of the rule are written to
    that folder at the end, and `load` begins with those in one (checkpoint.py), of any number of
    ranks.

    In stage 3 `state` is on rank 0, empty on the others, and the model's parameters are free: they
    read as NaN, except in a forward that all ranks call together. Raises ValueError for a stage,
    count or precision that there is not, a rule that looks at a tensor as a whole, a parameter that
    is changed while its layer is gathered, and a checkpoint of another model.

    Cost: stage1.py, stage2.py and stage3.py; and an all-reduce of a number a parameter, by the
    backend.
    """
    check(comm, stage, precision, naive, save)
    check_counts(microbatches=microbatches, bucket_bytes=bucket_bytes)
    check_counts(0, prefetch=prefetch)
    start_alike(comm, model.to(comm.device))
    whole = Assembled(comm, model, options)
    layers = [
        FlatLayer(name, own, comm.rank, comm.size, stage == 3, precision == "bfloat16")
        for name, own in parameters_by_layer(model).items()
    ]
    if precision == "bfloat16":
        compute_in_bfloat16(model)
    state = partial(state_of, comm, model, layers)
    own = [layer.shard[piece.at] for layer in layers for piece in layer.pieces]
    evaluated = partial(whole.model, state)
    training = Training(comm, model, rule, lr, options, loss, weight, own, whole=evaluated)
    check_elementwise(training.moves.rule)
    training.moves.norm = partial(joint_norm, comm)
    of_batches, of_forwards = rows, rows
    if (counted := counting(loss, weight)) is not rows:
        of_batches, of_forwards = in_step(counted)
    net = STAGES[stage](
        comm, model, layers, of_forwards, bucket_bytes,
        naive=naive, prefetch=prefetch, reshard=reshard_after_forward,
    )  # fmt: skip
    if load is not None:
        checkpoint.load(load, model, layers, training.moves.rule, own)
        net.share()

    try:
        result = training.run(
            batches, lambda share: net.update(training), net=net, weight=of_batches,
            learn=partial(learn_in_passes, microbatches),
            state=partial(state, everywhere=stage < 3),
        )  # fmt: skip
        if save is not None:
            checkpoint.save(save, comm, model, layers, training.moves.rule, own)
        return result
    except Exception:
        net.close()
        raise


def check(comm: Comm, stage: int, precision: str, naive: bool, save: str | None) -> None:
    """Raise ValueError for what there is not."""
    if stage not in (1, 2, 3):
        raise ValueError(
            f"stage={stage!r} is no stage of ZeRO: use 1 (shards of the rule's state), 2 (of the "
            "gradients too) or 3 (of the parameters too)."
        )
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known: use 'float32' or 'bfloat16'.")
    if naive and stage != 1:
        raise ValueError(f"naive=True is a form of stage 1, and this is stage={stage}: leave it.")
    if save is not None and comm.size != (ranks := dist.get_world_size()):
        raise ValueError(
            f"save={save!r} needs all {ranks} ranks of the run, and {comm.name} has {comm.size}: "
            "train on all, or leave it out."
        )


STAGES = {1: Stage1, 2: Stage2, 3: Stage3}


def learn_in_passes(
    passes: int, comm: Comm, net: Stage1, batch: Batch, loss: Loss, weight: Weight
) -> tuple[float, float]:
    """Forward and backward of `passes` microbatches of this rank's rows; returns what they weigh
    together, and their mean loss."""
    seen = []
    for number in range(passes):
        net.begin_pass(first=not number, last=number == passes - 1)
        seen.append(learn(comm, net, shard(batch, number, passes), loss, weight))
        net.end_pass()
    total = sum(share for share, _ in seen)
    return total, sum(share * mean for share, mean in seen if share) / total if total else nan


def state_of(
    comm: Comm, model: nn.Module, layers: list[FlatLayer], everywhere: bool = False
) -> dict[str, torch.Tensor]:
    """The state of the plain model from all ranks' shards, a layer at a time, on rank 0 or
    `everywhere`; empty on other ranks."""
    values: dict[Any, torch.Tensor] = {}
    for layer in layers:
        whole = layer.whole(comm, layer.shard)
        if comm.rank == 0 or everywhere:
            values |= zip(layer.parameters, whole, strict=True)
    named: dict[str, Any] = model.state_dict(keep_vars=True) if values else {}
    for tensor in named.values():
        lowered = tensor.dtype == torch.bfloat16 and tensor.dtype != layers[0].shard.dtype
        values.setdefault(tensor, tensor.float() if lowered else tensor)  # a buffer, or frozen
    return {name: values[tensor].detach().cpu() for name, tensor in named.items()}


def compute_in_bfloat16(model: nn.Module) -> None:
    """Have a forward take and return float32."""

    def cast(given: Any, dtype: torch.dtype) -> Any:
        return tree_map(
            lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t,
            given,
        )

    model.to(torch.bfloat16)
    model.register_forward_pre_hook(
        Hook(lambda _, inputs, keywords: cast((inputs, keywords), torch.bfloat16)), with_kwargs=True
    )
    model.register_forward_hook(Hook(lambda _, inputs, output: cast(output, torch.float32)))


def check_elementwise(rule: Any) -> None:
    """Raise ValueError for a rule that moves a value by others than its own: it would see a shard
    as a whole tensor. Tried on one vector, whole and in two parts."""
    start, ends = torch.linspace(-1, 1, 7), []
    for sizes in ([7], [2, 5]):
        one = TorchRule(rule.make) if isinstance(rule, TorchRule) else copy.deepcopy(rule)
        parts = [part.clone().requires_grad_() for part in start.split(sizes)]
        if isinstance(one, TorchRule):
            one.bind(parts)
        for step in (1, 2):
            one.step(parts, [(step - 3 * part.detach()) ** 3 for part in parts])
        ends.append(torch.cat(parts))
    if not torch.allclose(*ends, rtol=1e-4, atol=1e-6):
        name = type(getattr(rule, "optimizer", rule)).__name__
        raise ValueError(
            f"{name} moves a value by others of its tensor (their norm, say), and a rank of ZeRO "
            "sees a shard of it: use a rule that moves each value on its own, as sgd or adam."
        )
