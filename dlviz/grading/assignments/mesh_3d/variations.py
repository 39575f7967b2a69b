"""Training steps on a mesh with one known mistake in the network, for all ranks in one process.

A run matches one if all its ranks have its gradients. Sums over dp and over the stages are right
here: hints.py solves for mistakes in those. Shapes: D replicas, T ranks of tp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import cross_entropy, gelu, one_hot

from dlviz.grading.assignments.mesh_3d.model import BLOCKS, State, blocks_of
from dlviz.grading.assignments.mesh_3d.run import Meshed
from dlviz.grading.harness import joint

Tensor = torch.Tensor
Along = Callable[[Tensor], Tensor]
DP, TP = 0, 1  # the dims of the ranks
f, g = partial(joint.f, dim=TP), partial(joint.g, dim=TP)


@dataclass(frozen=True)
class StepVariation:
    """`block`: y from x and from the share of the block's output; `handed`: the next stage's
    input from this one's input and output."""

    why: str
    block: Callable[[Tensor, Along], Tensor] = lambda x, share: x + g(share(f(x)))
    handed: Callable[[Tensor, Tensor], Tensor] = lambda x, y: y


def _gradient_is(y: Tensor, instead: Tensor) -> Tensor:
    """y, whose gradient is something else."""
    y = y.view_as(y)
    y.register_hook(lambda gradient: instead)
    return y


def _round(x: Tensor, share: Along) -> Tensor:
    x = f(x)
    return x + g(share(x))


NOT_F = (
    "the gradients of x are not added over tp: each rank goes on with that of its own columns. "
    "What belongs between y and the block?"
)
VARIATIONS = (
    StepVariation(
        "y is part of the sum over tp too, once for each rank of tp. What is a share, and what is "
        "whole on every rank already?",
        lambda x, share: g(x + share(f(x))),
    ),
    StepVariation(
        "y is whole on every rank, and so is the gradient of the path past the block: f adds this "
        "one over tp too. On which of the two paths of y does f belong?",
        _round,
    ),
    StepVariation(
        "the block's output replaces y. Which formula of part 1 says what is added to x?",
        lambda x, share: g(share(f(x))),
    ),
    StepVariation(NOT_F, lambda x, share: x + g(share(x))),
    StepVariation(
        "the shares of y are not added over tp: each rank goes on with its own. Which function "
        "adds them?",
        lambda x, share: x + share(f(x)),
    ),
    StepVariation(
        "nothing is added over tp, in forward or in backward: which two functions do that?",
        lambda x, share: x + share(x),
    ),
    StepVariation(
        "f and g are swapped: before a block x is whole, after it there are shares. Which of the "
        "two adds in forward?",
        lambda x, share: x + f(share(g(x))),
    ),
    StepVariation(
        "f and g work along dp, whose ranks have other rows. Along which axis do the ranks have "
        "columns of one block?",
        lambda x, share: x + joint.g(share(joint.f(x, DP)), DP),
    ),
    StepVariation(
        "the previous stage runs backward from activations instead of a gradient. What of x has to "
        "be sent back?",
        handed=lambda x, y: _gradient_is(y, y.detach()),
    ),
    StepVariation(
        "the next stage gets this stage's input, not its output.",
        handed=lambda x, y: y + (x - y).detach(),
    ),
)


def varied(tried: Meshed) -> StepVariation | None:
    """The variation that gives all ranks' gradients of the first step, if any."""
    for variation in VARIATIONS:
        left = taken(tried, variation)[1]
        if all(
            same(own.gradients[0].get(name), wanted)
            for own, right in zip(tried.left, left, strict=True)
            for name, wanted in right.items()
        ):
            return variation
    return None


def taken(tried: Meshed, variation: StepVariation) -> tuple[Tensor, list[State]]:
    """The first step: the loss on each rank, (D, T), averaged over the replicas, and the
    gradients of every rank of the mesh."""
    size, weights = tried.size, tried.given.weights
    tokens, targets = tried.given.batches[0]  # (D, B, s)
    leaves = {
        name: _cut(name, weights[name], size.tp)
        .expand(size.dp, size.tp, *_cut(name, weights[name], size.tp).shape[1:])
        .clone()
        .requires_grad_()
        for name in weights
    }
    first, last = leaves["embedding"], leaves["embedding"].detach().clone().requires_grad_()
    x = torch.einsum("dbsv,dtvh->dtbsh", one_hot(tokens, first.shape[-2]).double(), first)
    begun = x
    for i in range(BLOCKS):
        if size.pp > 1 and i:
            x = variation.handed(begun, x)

        def share(x: Tensor, i: int = i) -> Tensor:
            inner = gelu(torch.einsum("dtbsh,dtih->dtbsi", x, leaves[f"{i}.up"]))
            return torch.einsum("dtbsi,dthi->dtbsh", inner, leaves[f"{i}.down"])

        x = variation.block(x, share)
    logits = torch.einsum("dtbsh,dtvh->dtbsv", x, last)
    wanted = targets[:, None].expand(-1, size.tp, -1, -1)
    each = cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
    losses = each.view(size.dp, size.tp, -1).mean(-1)  # (D, T)
    losses.sum().backward()
    found = {name: _mean(leaf) for name, leaf in leaves.items()}
    found["embedding"] = found["embedding"] + _mean(last)
    places = [size.place(rank) for rank in range(size.ranks)]
    own = [
        ("embedding", *(f"{i}.{kind}" for i in blocks_of(size.pp, at["pp"]) for kind in KINDS))
        for at in places
    ]
    gradients = [
        {name: found[name][at["tp"]] for name in names}
        for at, names in zip(places, own, strict=True)
    ]
    return losses.detach().mean(0, keepdim=True).expand_as(losses), gradients


KINDS = {"up": 0, "down": 1}  # and the dim that tp cuts


def _cut(name: str, weight: Tensor, ranks: int) -> Tensor:
    """(T, ...), or (1, ...) if it is whole on each rank."""
    kind = name.partition(".")[2]
    return torch.stack(weight.chunk(ranks, KINDS[kind])) if kind in KINDS else weight[None]


def _mean(leaf: Tensor) -> Tensor:
    """The gradient of a leaf of all ranks, (T, ...): its mean over the replicas."""
    return torch.zeros_like(leaf[0]) if leaf.grad is None else leaf.grad.mean(0)


def same(seen: Tensor | None, wanted: Tensor) -> bool:
    """Equal up to the order of additions."""
    if seen is None or seen.shape != wanted.shape:
        return False
    return torch.allclose(seen.double(), wanted, rtol=1e-9, atol=1e-11)
