"""Training with every layer cut over all ranks: each sees the whole batch, and has a part of each
layer. Only the layers communicate.

    compute |embed|ar|q k v|output|ar|up|down|ar| ... |loss|ar| ... backward ... |update|

A plain model is cut layer by layer: of two linear layers with an activation between them the first
by columns, the second by rows; a single one stays whole on every rank. A Transformer becomes a
`ParallelTransformer`. Every rank updates the parameters that it holds: whole ones get the same
gradient on all ranks, and stay equal without a message.

In PyTorch: torch.distributed.tensor.parallel.parallelize_module.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models import Transformer
from dlviz.models.language import ignored_by
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.step.batches import Batches, on
from dlviz.parallel.step.layers import LayerSpans, layers_of
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import Loss, Weight, check_weighs, no_mean, rows, trained
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.tensor.cross_entropy import parallel_cross_entropy
from dlviz.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear
from dlviz.parallel.tensor.parameters import (
    add_partial_gradients,
    gradient_norm,
    load_layer,
    whole_state,
)
from dlviz.parallel.tensor.transformer import ParallelTransformer
from dlviz.parallel.update_rules import AnyRule

# Activations that act value by value, so that a rank needs no other's.
ELEMENTWISE = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Identity)


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    all_reduce: str = "ring",
    sequence_parallel: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, a `models.Transformer` or an `nn.Sequential` of linear layers and activations,
    which is cut and left empty. All ranks take each step on the whole of a batch.

    A Transformer's `loss` is `models.token_loss`, or a `functools.partial` of it with another
    `ignore_index`. Returns `losses` on every rank, and as `state` the trained parameters of the
    plain model: on rank 0, assembled one at a time, empty on the others.

    Raises ValueError, before training, for a layer that cannot be cut, and where two ranks hold
    different models or batches.

    Cost, of l blocks and a batch of B * s tokens: 2l + 1 all-reduces of (B, s, h) per direction,
    and three of (B, s).
    """
    check_same_model(comm, model)
    whole = Assembled(comm, model, options)
    net = cut(comm, model, all_reduce, sequence_parallel)
    training = Training(
        comm,
        net,
        rule,
        lr,
        options,
        loss,
        weight,
        whole=partial(whole.model, partial(whole_state, comm, net)),
    )
    training.moves.norm = lambda _: gradient_norm(comm, net, all_reduce)
    pairs = training.read(batches, "tensor parallelism")
    mean_loss = token_loss_over(comm, loss, all_reduce) if isinstance(model, Transformer) else loss
    LayerSpans(comm, net)
    parameters, losses = trained(net), []
    training.record_weights()
    comm.start_line()  # the ranks took unequal times to cut the model
    for step, batch in enumerate(comm.progress(pairs, "training")):
        with comm.span("phase", f"step {step}", step=step):
            inputs, labels = on(comm.device, batch)
            check_weighs(loss, weight, inputs, labels)
            saved = SavedActivations(net)
            with saved:
                value = mean_loss(net(inputs), labels)
            comm.memory("activations", saved.nbytes)
            value.backward()
            comm.memory("activations", 0)
            comm.memory("gradients", sum(p.grad.nbytes for p in parameters if p.grad is not None))
            if sequence_parallel:
                add_partial_gradients(comm, net, all_reduce)
            training.update()
            net.zero_grad()
            comm.memory("gradients", 0)
            losses.append(value.item())
            training.end_step(step, 1, losses[-1])
    return training.result(losses, whole_state(comm, net))


def token_loss_over(comm: Comm, loss: Loss, all_reduce: str) -> Loss:
    """`models.token_loss` of logits that are cut over the ranks. Raises ValueError for another
    `loss`."""
    ignored = ignored_by(loss)
    if ignored is None:
        raise ValueError(
            f"loss={getattr(loss, '__name__', loss)} of a Transformer needs all logits of a token, "
            "and no rank has them: use models.token_loss, whose sums the ranks share."
        )

    def over_ranks(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not (targets != ignored).any():
            no_mean()
        return parallel_cross_entropy(comm, logits, targets, ignored, all_reduce)

    return over_ranks


def cut(comm: Comm, model: nn.Module, all_reduce: str, sequence_parallel: bool) -> nn.Module:
    """This rank's parts of `model`, by the same names; each layer of `model` is emptied as soon as
    it has been cut, so that a rank never holds both as a whole."""
    how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
    if isinstance(model, Transformer):
        sizes = model.layers, model.hidden, model.heads, model.vocabulary, model.sequence
        drop = model.drop
        net = ParallelTransformer(comm, *sizes, model.kv_heads, drop.rate, drop.seed, **how)
    elif sequence_parallel:
        raise ValueError(
            f"sequence_parallel=True has no sequence to cut in a {type(model).__name__}: use it "
            "with models.Transformer."
        )
    else:
        net = cut_pairs(comm, model, all_reduce)
    for name, layer in layers_of(net).items():
        whole = model.get_submodule(name)
        state = dict(whole.named_parameters())
        layer.to(comm.device, next(iter(state.values())).dtype)
        load_layer(comm, name, layer, {key: p.detach() for key, p in state.items()})
        for key, p in state.items():
            layer.get_parameter(key).requires_grad_(p.requires_grad)
            p.data = p.data.new_empty(0)
    return net


def cut_pairs(comm: Comm, model: nn.Module, all_reduce: str) -> nn.Sequential:
    """The layers of a Sequential, the linear ones cut in pairs, by columns and by rows. Raises
    ValueError for a layer that is neither linear nor an activation."""
    layers = dict(model.named_children()) if isinstance(model, nn.Sequential) else {"": model}
    linear = [name for name, layer in layers.items() if type(layer) is nn.Linear]
    net = nn.Sequential()
    cut = False  # whether a rank has some of the columns
    for name, layer in layers.items():
        if type(layer) is nn.Linear:
            sizes = layer.in_features, layer.out_features, layer.bias is not None
            kind = RowParallelLinear if cut else ColumnParallelLinear
            if name == linear[-1] and not cut:
                made: nn.Module = nn.Linear(*sizes)  # no second one to undo the cut: it stays whole
            else:
                made = kind(comm, *sizes, all_reduce=all_reduce)
                made.name, cut = name, not cut
        elif isinstance(layer, ELEMENTWISE) or (isinstance(layer, nn.Flatten) and not cut):
            made = layer
        else:
            raise ValueError(
                f"layer {name or 'model'}, a {type(layer).__name__}, cannot be cut over ranks: use "
                "a models.Transformer, or an nn.Sequential of nn.Linear layers with "
                f"{', '.join(each.__name__ for each in ELEMENTWISE[:-1])} between them."
            )
        net.add_module(name, made)
    return net
