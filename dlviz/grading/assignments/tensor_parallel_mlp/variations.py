"""The MLP over ranks with f or g in the wrong place, for all ranks in one process. A run matches
one if all ranks have its gradients. Shapes: n ranks, B rows, i/n columns of a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import gelu

from dlviz.grading.assignments.tensor_parallel_mlp.run import State
from dlviz.grading.harness.joint import f, g

Tensor = torch.Tensor


@dataclass(frozen=True)
class Parts:
    """The weights of all ranks, each with a leading dim of ranks."""

    up: Tensor  # (n, i/n, h)
    up_bias: Tensor  # (n, i/n)
    down: Tensor  # (n, h, i/n)
    bias: Tensor  # (n, h)

    def widened(self, x: Tensor) -> Tensor:
        """(n, B, h) to (n, B, i/n)."""
        return x @ self.up.mT + self.up_bias[:, None]

    def share(self, z: Tensor) -> Tensor:
        """(n, B, i/n) to (n, B, h)."""
        return z @ self.down.mT


@dataclass(frozen=True)
class MLPVariation:
    why: str
    output: Callable[[Parts, Tensor], Tensor]  # y without the bias, of x


BEHIND = "The gradient there is each rank's own, of other columns: nothing has to be added."
VARIATIONS = (
    MLPVariation(
        f"f comes after up. {BEHIND} Which tensor goes to the columns of all ranks?",
        lambda own, x: g(own.share(gelu(f(own.widened(x))))),
    ),
    MLPVariation(
        f"f comes after GELU. {BEHIND} Which tensor goes to the columns of all ranks?",
        lambda own, x: g(own.share(f(gelu(own.widened(x))))),
    ),
    MLPVariation(
        "in backward the sum is made after down, where the gradient is that of y and the same on "
        "all ranks, and none before up. Is f there, or do f and g do each other's backward?",
        lambda own, x: g(f(own.share(gelu(own.widened(x))))),
    ),
)


def varied(
    x: Tensor, gradient: Tensor, parts: Sequence[State], seen: Sequence[State]
) -> MLPVariation | None:
    """The variation that gives the gradients `seen` on all ranks, if any."""
    for variation in VARIATIONS:
        for own, wanted in zip(seen, taken(variation, x, gradient, parts), strict=True):
            if not all(
                torch.allclose(own[name], each, rtol=1e-9, atol=1e-9)
                for name, each in wanted.items()
            ):
                break
        else:
            return variation
    return None


def taken(
    variation: MLPVariation, x: Tensor, gradient: Tensor, parts: Sequence[State]
) -> list[State]:
    """The gradients of every rank, of its part and of x."""
    names = ("up.weight", "up.bias", "down.weight", "down.bias")
    leaves = [torch.stack([part[name] for part in parts]).requires_grad_() for name in names]
    wide = x.expand(len(parts), *x.shape).clone().requires_grad_()
    own = Parts(*leaves)
    y = variation.output(own, wide) + own.bias[:, None]
    found = torch.autograd.grad(y, [*leaves, wide], gradient.expand_as(y))
    return [
        {name: each[rank] for name, each in zip((*names, "x"), found, strict=True)}
        for rank in range(len(parts))
    ]
