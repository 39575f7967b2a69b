"""The parameters that the n ranks of a tensor-parallel axis share.

    form     on the ranks                                     gradient
    cut      each rank a part                                 its own
    shared   a few ranks the same: grouped keys and values    summed in backward
    whole    every rank the same: norms, biases after a sum   the same; partial where tokens are cut

Under sequence parallelism a rank only has its tokens' part of a whole parameter's gradient:
`add_partial_gradients` sums them once, after backward.

Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022; M. Shoeybi et al., "Megatron-LM", 2019, whose clip_grad_norm counts a shared parameter once.
In PyTorch: torch.nn.utils.clip_grad_norm_ of DTensors, and
torch.distributed.checkpoint.state_dict.get_model_state_dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.options import check_clip, squares
from dlviz.parallel.step.layers import layers_of
from dlviz.parallel.step.replicas import check_replicas, flat_by_dtype, spread
from dlviz.parallel.tensor.checks import check_shape
from dlviz.parallel.tensor.conjugate import reduced
from dlviz.parallel.tensor.embedding import VocabularyParallelEmbedding
from dlviz.parallel.tensor.linear import ShardedLinear


class AxisParameter(NamedTuple):
    """A parameter of a layer; `cut` is the dim of the cut, None if it is whole, and `copies` how
    many ranks hold the same values."""

    layer: str
    module: nn.Module
    name: str
    parameter: nn.Parameter
    cut: int | None
    copies: int


def axis_parameters(comm: Comm, net: nn.Module) -> Iterator[AxisParameter]:
    """The parameters of `net` on the axis `comm`."""
    for layer, module in layers_of(net).items():
        cuts = getattr(module, "cuts", {})
        share = getattr(module, "share", None)  # the ranks with the same head of keys and values
        for name, p in module.named_parameters(recurse=False):
            copies = comm.size if name not in cuts else 1 if share is None else share.size
            yield AxisParameter(layer, module, name, p, cuts.get(name), copies)


def add_partial_gradients(comm: Comm, net: nn.Module, all_reduce: str = "ring") -> None:
    """Replace each rank's partial gradients of whole parameters, from its tokens, by their sums.
    Call it after `backward()` under sequence parallelism.

    Cost: one all-reduce of the bytes of all whole parameters.
    """
    if comm.size == 1:
        return
    partial = [
        p.grad for *_, p, cut, _ in axis_parameters(comm, net) if cut is None and p.grad is not None
    ]
    for alike, flat in flat_by_dtype(partial):
        total = reduced(flat, comm, all_reduce, "partial gradients", "backward")
        spread(total, alike)


@torch.no_grad()
def clip_gradients(comm: Comm, net: nn.Module, most: float, all_reduce: str = "ring") -> float:
    """Scale all gradients so that their joint norm over all ranks is at most `most`; returns the
    norm before. Values that several ranks hold count once. Call it on every rank after
    `backward()`. Raises ValueError unless `most` is above 0.

    Cost: one all-reduce of 8 bytes.
    """
    check_clip(most)
    norm = gradient_norm(comm, net, all_reduce)
    for *_, p, _, _ in axis_parameters(comm, net):
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))  # as torch's clip_grad_norm_
    return norm


def gradient_norm(comm: Comm, net: nn.Module, all_reduce: str = "ring") -> float:
    """The joint norm of all gradients over all ranks, in which values that several ranks hold count
    once. Every rank must call it.

    Cost: one all-reduce of 8 bytes.
    """
    parts = [
        (p.grad, copies) for *_, p, _, copies in axis_parameters(comm, net) if p.grad is not None
    ]
    own = sum(squares([grad]) / copies for grad, copies in parts)
    total = torch.tensor(own, dtype=torch.float64)
    if comm.size > 1:
        total = reduced(total, comm, all_reduce, "norm", "backward")
    return total.sqrt().item()


def load_whole(comm: Comm, net: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load every layer of `net` with its part of the whole model's `state`, layer by layer. Raises
    ValueError where the state lacks a parameter or has one too many; on all ranks where they are
    given different values."""
    expected = {f"{layer}.{name}" for layer, _, name, *_ in axis_parameters(comm, net)}
    if wrong := sorted(expected ^ state.keys()):
        fault = "the state lacks" if wrong[0] in expected else "the model has no place for"
        raise ValueError(
            f"the state does not fit {type(net).__name__}: {fault} {wrong[0]}. Give the state of "
            "the plain model of the same sizes."
        )
    for layer, module in layers_of(net).items():
        own = (name for name, _ in module.named_parameters(recurse=False))
        load_layer(comm, layer, module, {name: state[f"{layer}.{name}"] for name in own})


def load_layer(
    comm: Comm, layer: str, module: nn.Module, state: Mapping[str, torch.Tensor]
) -> None:
    """Load one layer with its part of the whole one's `state`; one that is not cut takes all."""
    if isinstance(module, ShardedLinear | VocabularyParallelEmbedding):
        module.load(state)
        return
    for name, p in module.named_parameters(recurse=False):
        check_shape(f"{layer}.{name}", state[name], p.shape)
    advice = "load the same weights on every rank of the axis"
    check_replicas(comm, f"weights for {layer}", dict(state), advice)
    module.load_state_dict(state)


def whole_state(comm: Comm, net: nn.Module) -> dict[str, torch.Tensor]:
    """On rank 0 the whole model's parameters by name, on the CPU, assembled one at a time; empty on
    the others. Every rank must call it."""
    found = {}
    for layer, module, name, p, cut, _ in axis_parameters(comm, net):
        value = p.detach()
        if cut is not None:
            ranks = cast(Comm, module.comm)  # with shared heads the ranks of one copy each
            parts = value.new_empty(ranks.size, *value.shape)
            ranks.all_gather(parts, value)
            value = torch.cat(tuple(parts), cut)
        if comm.rank == 0:
            found[f"{layer}.{name}"] = value.cpu()
    return found
