"""Local SGD: each rank takes `every` steps on its own; then all ranks average their models.

    rank 0   |step|step|step| average |step|step|step| average |
    rank 1   |step|step|step| average |step|step|step| average |

    w_r ← rule(w_r, g_r)            every step, on rank r's shard of the batch
    w_r ← Σ n_i w_i / Σ n_i         every H steps; n_i examples went into model i in them

One all-reduce serves H steps. In between the models drift apart. With H = 1 the average equals the
step of one process on the whole batch for SGD, and for momentum where the shards' shares stay the
same, since both are linear in the gradients; Adam and the others divide by what each rank saw
alone. The state of a rule (momentum, say) is not averaged.

Source: McDonald, Hall and Mann, "Distributed Training Strategies for the Structured Perceptron",
NAACL 2010 ("iterative parameter mixing"); Stich, "Local SGD Converges Fast and Communicates
Little", ICLR 2019. In PyTorch: torch.distributed.algorithms.model_averaging.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_amounts, check_counts
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.replicas import flat_by_dtype, spread
from dlviz.parallel.step.sharded_step import (
    Loss,
    Weight,
    all_reduce_called,
    begin,
    no_mean,
    rows,
    trained,
)
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


def average(
    comm: Comm,
    parameters: list[nn.Parameter],
    examples: float,
    reduce: Callable[[Comm, torch.Tensor], None],
) -> None:
    """Replace the parameters by their mean over the ranks, each weighted by its `examples`."""
    check_amounts(examples=examples)
    if comm.size == 1:
        return
    for alike, flat in flat_by_dtype([p.detach() for p in parameters]):
        # n_i w_i could overflow 16 bits; one all-reduce sums it and n_i.
        whole = flat.to(torch.promote_types(flat.dtype, torch.float32))
        whole = torch.cat([whole * examples, whole.new_tensor([examples])])
        with comm.span("collective", "models", nbytes=whole.nbytes):
            reduce(comm, whole)
        if not whole[-1]:
            no_mean()
        spread((whole[:-1] / whole[-1]).to(flat.dtype), alike)  # Σ n_i w_i / Σ n_i


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    every: int = 8,
    all_reduce: str = "ring",
    **options: Unpack[Options],
) -> Result:
    """Train with models that are averaged after each `every` steps and the last: as `data.train`.

    Raises ValueError where `every` is not 1, 2, 3, ...
    Cost: the bytes of one all-reduce of all parameters for `every` steps.
    """
    check_counts(every=every)
    reduce = all_reduce_called(all_reduce)
    training = Training(comm, model, rule, lr, options, loss, weight)
    begin(comm, model)
    parameters = trained(model)
    steps, examples = 0, 0.0  # of this rank, since the last average

    def finish(share: float) -> None:
        nonlocal steps, examples
        if share:  # without an example no step: momentum alone would move w_r
            training.update()
        steps, examples = steps + 1, examples + share
        if steps == every:
            average(comm, parameters, examples, reduce)
            steps, examples = 0, 0.0

    def end() -> None:
        if steps:  # the last average, so that all ranks return one model
            average(comm, parameters, examples, reduce)

    return training.run(batches, finish, end)
