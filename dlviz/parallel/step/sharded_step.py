"""A step on this rank's shard of each batch, and the shard's weight, shared by the strategies.

A loss is a mean over the examples of a shard, or over its target tokens. The mean over the whole
batch is the mean of these means, weighted by how many each is the mean of:

    L = sum_r w_r L_r / sum_r w_r        and the gradients alike

An unweighted average of the means differs from it wherever the weights differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import nn

from dlviz import collectives
from dlviz.cluster import Comm
from dlviz.models.mean_of import Loss, MeanOverRows, Weight, of_batch, weighed
from dlviz.parallel.step.batch_norm import weigh_norms
from dlviz.parallel.step.batches import Batch, Batches, batches_of, on, outputs_of, shard
from dlviz.parallel.step.hooks import tensors_in
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.replicas import start_alike
from dlviz.parallel.update_rules import Rule, as_rule

Result = dict[str, Any]


def rows(*inputs: Any, **keywords: Any) -> int:
    """How many examples the inputs of a forward hold: dim 0 of the first tensor."""
    first = next(tensors_in([*inputs, keywords]), None)
    if first is None or not first.dim():
        raise ValueError(
            "the inputs of this forward have no rows to count: give weight=, a function of the "
            "inputs that says how many examples the loss is the mean of."
        )
    return first.shape[0]  # B of (B, ...)


def weigh(comm: Comm, weight: Weight, *inputs: Any, **keywords: Any) -> float:
    """The weight of this rank's loss. Raises ValueError for an invalid one."""
    return weighed(f"the shard of rank {comm.rank}", weight(*inputs, **keywords))


def no_mean() -> NoReturn:
    """Refuse a batch whose shards all weigh nothing."""
    raise ValueError(
        "the batch weighs 0 on all ranks together, so there is no mean to learn from: it has no "
        "rows, or padding alone; leave it out."
    )


def begin(
    comm: Comm, model: nn.Module, rule: str | Rule, lr: float
) -> tuple[Rule, list[nn.Parameter]]:
    """Before the first step: give every remaining rank rank 0's model, and record its layers.
    Returns the rule, and the parameters that it moves."""
    moves = as_rule(rule, lr)
    model.to(comm.device)
    comm.together(lambda left: start_alike(left, model))
    LayerSpans(comm, model)
    return moves, trained(model)


class Losses:
    """The loss of each step, the mean over what all ranks have seen of it."""

    def __init__(self, comm: Comm, steps: int):
        self._comm = comm
        self._sums = torch.zeros(2, steps, dtype=torch.float64)  # of weighted losses, of weights

    def add(self, step: int, share: float, mean: float) -> None:
        """Add this rank's `mean` over `share` examples or tokens; 0 of them count nothing."""
        if share:  # the loss of no example is NaN, and so is 0 times it
            self._sums[:, step] = torch.tensor([share * mean, share], dtype=torch.float64)

    def means(self, left: Comm | None = None) -> list[float]:
        """The losses; all ranks call this at the end, or those that are `left`. A step that no rank
        has seen raises ValueError, or is nan if a rank was lost."""
        comm, sums = left or self._comm, self._sums.clone()
        comm.all_reduce(sums)  # (2, steps): once, after training
        if comm.size == self._comm.size and not sums[1].all():
            no_mean()
        return (sums[0] / sums[1]).tolist()  # Σ w_r L_r / Σ w_r


def each_step(
    comm: Comm,
    net: nn.Module,
    batches: Batches,
    loss: Loss,
    weight: Weight,
    finish: Callable[[float], Any],
) -> list[float]:
    """Forward and backward on this rank's shard of each batch, then `finish(share)`, the weight of
    the shard; the ranks share the rows as evenly as possible. Returns the loss of each step, the
    mean over the whole batch before its update."""
    pairs = batches_of(batches)
    losses = Losses(comm, len(pairs))
    for step, batch in enumerate(comm.progress(pairs, "training")):
        with comm.span("phase", f"step {step}", step=step):
            share, mean = learn(comm, net, shard(batch, comm.rank, comm.size), loss, weight)
            finish(share)  # where strategies differ: what is sent, when weights move
            losses.add(step, share, mean)
    return losses.means()


def learn(
    comm: Comm,
    net: nn.Module,
    batch: Batch,
    loss: Loss,
    weight: Weight,
    whole: bool = False,
) -> tuple[float, float]:
    """Forward and backward on (inputs, labels), which leaves the gradients in `net`; returns the
    batch's weight and its loss. Unless it is a `whole` batch, raises ValueError for a loss that is
    weighed by its rows, but is not their mean."""
    inputs, labels = on(comm.device, batch)  # (B/n, ...) each
    share = weigh(comm, of_batch(weight), inputs, labels)
    weigh_norms(net, share)  # before the forward: SyncBatchNorm saves it for backward
    net.zero_grad()  # backward adds to .grad
    tried = MeanOverRows(loss) if weight is rows and not whole and comm.size > 1 else None
    mean = (tried or loss)(outputs_of(net, inputs), labels)
    mean.backward()  # DDP's hooks send buckets in here
    if tried is not None:
        tried.check()
    return share, mean.item()


def learn_whole(comm: Comm, net: nn.Module, batch: Batch, loss: Loss, weight: Weight) -> float:
    """As `learn`, on a batch that no other rank shares; returns its loss. Raises ValueError where
    it weighs nothing."""
    share, mean = learn(comm, net, batch, loss, weight, whole=True)
    if not share:
        no_mean()
    return mean


def all_reduce_called(name: str) -> Callable[..., None]:
    """The all-reduce of that name. Raises ValueError for an unknown one."""
    if name == "backend":
        return lambda comm, tensor: comm.all_reduce(tensor)  # its messages are not in the Trace
    if name not in collectives.ALGORITHMS:
        raise ValueError(
            f"all_reduce={name!r} is not known: use 'backend', "
            f"{' or '.join(map(repr, collectives.ALGORITHMS))}."
        )
    return collectives.ALGORITHMS[name]


def update(
    comm: Comm,
    rule: Rule,
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None] | None = None,
    **fields: Any,
) -> None:
    """Move the parameters by `rule` against their `gradients`, by default their `.grad`; `fields`
    are those of the span."""
    if gradients is None:
        gradients = [p.grad for p in parameters]
    with comm.compute("update", seconds=update_seconds(comm, parameters), **fields):
        rule.step(parameters, gradients)


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training moves."""
    return [p for p in model.parameters() if p.requires_grad]


def result(losses: list[float], model: nn.Module) -> Result:
    """What a strategy's `train` returns: the trained parameters and buffers on the CPU."""
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return {"losses": losses, "state": state}
