"""Training with convolutions cut over all ranks: each takes each step on the whole of a batch, and
has a block of every layer.

    compute |conv|halo|conv|switch|conv| ... |linear|loss| ... backward ... |update|

Every rank updates the blocks that it holds; those that several hold get the same gradient, so that
they stay equal. The loss is that of the batch: each rank's is the mean over its rows of the
outputs, and counts by their weight.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from torch import nn
from torch.utils._pytree import tree_map

from dlviz.cluster import Comm, Mesh
from dlviz.counts import check_counts
from dlviz.models.mean_of import MeanOverRows, of_batch, weighed
from dlviz.parallel.convolution.cut_layer import CutLayer
from dlviz.parallel.convolution.distribution import Distribution
from dlviz.parallel.convolution.general import DistributedNet, Distributions, cut
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.step.batches import Batch, Batches, on
from dlviz.parallel.step.hooks import Hook
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, counting, no_mean, rows, weigh
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.update_rules import AnyRule


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    mesh: Mesh,
    distributions: Distributions = None,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, which is cut over the ranks of `mesh` by its `distributions` and left empty
    (general.cut says which models can be, and how). Returns `losses` on every rank, and as `state`
    that of the plain model: on rank 0, assembled one tensor at a time, empty on the others.

    Raises ValueError, before training, for a layer that cannot be cut, and where two ranks hold
    different models or batches.

    Cost: that of the layers (layers.py), and of each switch (redistribution.py).
    """
    whole = Assembled(comm, model, options)
    net = cut(comm, model, None, mesh, distributions)
    state = partial(whole.model, net.whole_state)
    training = Training(comm, net, rule, lr, options, loss, weight, whole=state)
    training.moves.norm = lambda _: net.gradient_norm()
    pairs = training.read(batches, "a convolution that is cut")
    LayerSpans(comm, net)
    losses = Losses(comm)
    training.record_weights()
    comm.start_line()  # the ranks took unequal times to cut the model
    for step, batch in enumerate(comm.progress(pairs, "training")):
        with comm.span("phase", f"step {step}", step=step):
            share, mean = learn(comm, net, on(comm.device, batch), training.loss, training.weight)
            training.update()
            net.zero_grad()
            comm.memory("gradients", 0)
            losses.add(step, share, mean)
            training.end_step(step, share, mean)
    return training.result(losses.means(), net.whole_state())


def learn(
    comm: Comm, net: DistributedNet, batch: Batch, loss: Loss, weight: Weight
) -> tuple[float, float]:
    """Forward and backward on a whole batch, which leaves the gradients in `net`; returns the
    weight of this rank's rows, and their loss. Raises ValueError where all weigh nothing, and for a
    loss that is weighed by its rows, but is not their mean."""
    inputs, labels = batch
    mine = net.rows(len(inputs))
    own = inputs[mine], tree_map(lambda each: each[mine], labels)
    counted = counting(loss, weight)
    share = weigh(comm, of_batch(counted), *own)
    total = weighed("the batch", of_batch(counted)(inputs, labels))  # of all ranks' rows
    if not total:
        no_mean()
    saved = SavedActivations(net)
    recorded = [
        layer.register_forward_hook(Hook(lambda *_: comm.memory("activations", saved.nbytes)))
        for layer in net.modules()
        if isinstance(layer, CutLayer)
    ]
    with saved:
        outputs = net(inputs)
    for hook in recorded:
        hook.remove()
    tried = MeanOverRows(loss) if counted is rows and comm.size > 1 else None
    mean = (tried or loss)(outputs, own[1])
    # The mean of rows of which none counts is NaN: their rank has a part in the messages alone.
    value = mean * (share / total) if share else outputs.sum() * 0
    value.backward()
    comm.memory("activations", 0)
    comm.memory("gradients", sum(p.grad.nbytes for p in net.parameters() if p.grad is not None))
    if tried is not None:
        tried.check()
    return share, mean.item()


def spatial(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    height: int | None = None,
    width: int = 1,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """`train` with the rows of all images cut over `height` ranks (None: all), and their columns
    over `width`."""
    height = over(comm, "height", height, "width", width)
    mesh = comm.mesh(h=height, w=width)
    how: Any = {"loss": loss, "weight": weight, "lr": lr, **options}
    images = Distribution(H="h", W="w")
    return train(comm, model, batches, rule, mesh=mesh, distributions=images, **how)


def channel_filter(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    filters: int | None = None,
    channels: int = 1,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """`train` with the filters of the first convolution cut over `filters` ranks (None: all) and
    its channels over `channels`; of each next one with the two exchanged."""
    filters = over(comm, "filters", filters, "channels", channels)
    mesh = comm.mesh(f=filters, c=channels)
    how: Any = {"loss": loss, "weight": weight, "lr": lr, **options}
    images = Distribution(F="f", C="c")
    return train(comm, model, batches, rule, mesh=mesh, distributions=images, **how)


def over(comm: Comm, name: str, ranks: int | None, other: str, others: int) -> int:
    """`ranks`, or all that `others` leave. Raises ValueError where both do not use up all ranks."""
    check_counts(**{other: others})
    ranks = comm.size // others if ranks is None else ranks
    check_counts(**{name: ranks})
    if ranks * others != comm.size:
        raise ValueError(
            f"{name}={ranks} times {other}={others} is {ranks * others}, and there are {comm.size} "
            "ranks: their product has to be that."
        )
    return ranks
