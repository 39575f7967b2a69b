"""Update rules: how a gradient moves the weights, from SGD to Adam, each as the line of a lecture.

    w  the weights           g  their gradient, at w            η  lr
    t  the step, from 1      μ  momentum    β  betas, alpha     ε  eps

A rule is one object for whoever moves weights: a worker with the whole model, a rank with a shard
of the parameters, a server with its slice. What it remembers (`kept` tensors as large as the
weights) stays with it, and `lr` may be set between any two steps.

Each class comes to the numbers of torch.optim. Where the lecture's table prints another formula, a
class beside it, `AsPrinted`, does what is printed, so that the two can be run and compared.

Source: Ben-Nun and Hoefler, "Demystifying Parallel and Distributed Deep Learning", ACM Computing
Surveys 52(4), 2019, table 2, which the lecture shows. PyTorch's names: torch.optim.SGD, Adagrad,
RMSprop, Adam, and lr_scheduler.ExponentialLR for the decaying rate.
"""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

Tensor = torch.Tensor


class Rule(ABC):
    """Moves weights against their gradients. A subclass says how, for one tensor, in `move`."""

    kept: ClassVar[int] = 0  # tensors as large as the weights that the rule remembers

    def __init__(self, lr: float):
        if not lr >= 0:
            raise ValueError(f"lr={lr!r} is no rate: use 0 or more.")
        self.lr = lr
        self._memory: list[list[Any]] = []  # for each tensor its t and what is kept of it

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Move `parameters`, in place, each against its gradient; one without (None) stays.

        Every step takes the same tensors in the same order: the rule remembers them by place.
        Raises ValueError where numbers or shapes do not fit.
        """
        if not self._memory:
            self._memory = [[0, *map(torch.zeros_like, [w] * self.kept)] for w in parameters]
        if not len(parameters) == len(gradients) == len(self._memory):
            raise ValueError(
                f"{len(parameters)} parameters and {len(gradients)} gradients do not fit a rule of "
                f"{len(self._memory)}: give it the same list in every step, None for no gradient."
            )
        for place, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
            if g is not None and w.shape != g.shape:
                raise ValueError(
                    f"parameter {place} has shape {tuple(w.shape)} and its gradient "
                    f"{tuple(g.shape)}: they must be the same."
                )
        for w, g, memory in zip(parameters, gradients, self._memory, strict=True):
            if g is not None:
                memory[0] += 1
                self.move(w, g, *memory)

    @abstractmethod
    def move(self, w: Tensor, g: Tensor, t: int, *kept: Tensor) -> None:
        """Take step `t` of one tensor, counted from 1, and bring what is kept up to date."""

    def stable_rate(self, curvature: float) -> float:
        """The rate below which the rule comes to rest on a quadratic of this `curvature`: the
        eigenvalues of its step lie inside the unit circle there (0 <= μ < 1).

        Raises ValueError for RMSProp and Adam: their steps are scaled by the gradients they saw.
        """
        raise ValueError(
            f"{type(self).__name__} has no stable rate for a curvature: its steps are scaled by "
            "the gradients it saw, whatever the curvature."
        )


class SGD(Rule):
    """w ← w - η g"""

    def move(self, w: Tensor, g: Tensor, t: int) -> None:
        w -= self.lr * g

    def stable_rate(self, curvature: float) -> float:
        return 2 / curvature


class Decay(SGD):
    """w ← w - η_t g,  η_(t+1) = γ η_t: `lr` is the rate of the next step."""

    def __init__(self, lr: float, gamma: float = 0.99):
        super().__init__(lr)
        self.gamma = gamma

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        super().step(parameters, gradients)
        self.lr *= self.gamma


class Momentum(Rule):
    """v ← μ v + g,  w ← w - η v"""

    kept = 1

    def __init__(self, lr: float, momentum: float = 0.9):
        super().__init__(lr)
        self.momentum = momentum

    def move(self, w: Tensor, g: Tensor, t: int, v: Tensor) -> None:
        v *= self.momentum
        v += g
        w -= self.lr * v

    def stable_rate(self, curvature: float) -> float:
        return (2 + 2 * self.momentum) / curvature


class MomentumAsPrinted(Momentum):
    """w ← w + μ (w - w_before) - η g

    The same as momentum while η is constant: w - w_before bears the η of the step before.
    """

    def move(self, w: Tensor, g: Tensor, t: int, before: Tensor) -> None:
        if t == 1:
            before.copy_(w)
        moved = w - before
        before.copy_(w)
        w += self.momentum * moved - self.lr * g


class Nesterov(Momentum):
    """v ← μ v - η g(w + μ v),  w ← w + v: the gradient is that of the point ahead.

    Whoever calls a rule takes the gradient at the parameters, so these hold the point ahead,
    x = w + μ v, as torch's do; with u = -v / η:  u ← μ u + g(x),  x ← x - η (g(x) + μ u).
    """

    def move(self, w: Tensor, g: Tensor, t: int, u: Tensor) -> None:
        u *= self.momentum
        u += g
        w -= self.lr * (g + self.momentum * u)

    def stable_rate(self, curvature: float) -> float:
        return (2 + 2 * self.momentum) / (1 + 2 * self.momentum) / curvature


class NesterovAsPrinted(Momentum):
    """w ← w + v_t,  v_(t+1) = μ v_t - η g(w - μ v_t): it looks back, and moves by the old v.

    As in Nesterov the parameters hold the point at which the gradient is taken, x = w - μ v:
    x ← x + (1 + μ) v_t - μ v_(t+1).
    """

    def move(self, w: Tensor, g: Tensor, t: int, v: Tensor) -> None:
        w += (1 + self.momentum) * v
        v *= self.momentum
        v -= self.lr * g
        w -= self.momentum * v

    def stable_rate(self, curvature: float) -> float:
        return (1 - self.momentum) / (1 + self.momentum) / curvature


class AdaGrad(Rule):
    """A ← A + g²,  w ← w - η g / (√A + ε)"""

    kept = 1

    def __init__(self, lr: float, eps: float = 1e-10):
        super().__init__(lr)
        self.eps = eps

    def move(self, w: Tensor, g: Tensor, t: int, a: Tensor) -> None:
        a += g**2
        w -= self.lr * g / (a.sqrt() + self.eps)

    def stable_rate(self, curvature: float) -> float:
        return math.inf  # A grows until the steps are short enough


class AdaGradAsPrinted(AdaGrad):
    """A = Σ_(τ=0..t) g_t², t from 0: the sum bears the index t, so that it is t + 1 times the
    newest square and nothing is remembered."""

    kept = 0

    def move(self, w: Tensor, g: Tensor, t: int) -> None:
        w -= self.lr * g / ((t * g**2).sqrt() + self.eps)  # this t counts from 1


class RMSProp(Rule):
    """A ← β A + (1 - β) g²,  w ← w - η g / (√A + ε),  β is `alpha`"""

    kept = 1

    def __init__(self, lr: float, alpha: float = 0.99, eps: float = 1e-8):
        super().__init__(lr)
        self.alpha, self.eps = alpha, eps

    def move(self, w: Tensor, g: Tensor, t: int, a: Tensor) -> None:
        a *= self.alpha
        a += (1 - self.alpha) * g**2
        w -= self.lr * g / self.root(a)

    def root(self, a: Tensor) -> Tensor:
        return a.sqrt() + self.eps


class RMSPropAsPrinted(RMSProp):
    """A ← β A + (1 - β) g²,  w ← w - η g / √(A + ε): a gradient below √ε hardly moves w."""

    def root(self, a: Tensor) -> Tensor:
        return (a + self.eps).sqrt()


class Adam(Rule):
    """m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,
    w ← w - η m̂ / (√v̂ + ε)  with  m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ)"""

    kept = 2

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(lr)
        self.betas, self.eps = betas, eps

    def move(self, w: Tensor, g: Tensor, t: int, m: Tensor, v: Tensor) -> None:
        for moment, beta, power in zip((m, v), self.betas, (g, g**2), strict=True):
            moment *= beta
            moment += (1 - beta) * power
        first, second = (1 - beta**t for beta in self.betas)
        w -= self.lr * (m / first) / ((v / second).sqrt() + self.eps)


class AdamAsPrinted(Adam):
    """m ← (β₁ m + (1 - β₁) g) / (1 - β₁ᵗ),  v alike with g²,  w ← w - η m / √(v + ε)

    The division is inside the recursion, so it is done again in every step: v grows beyond all
    bounds (to infinity after some steps, in floating point too), and w stops.
    """

    def move(self, w: Tensor, g: Tensor, t: int, m: Tensor, v: Tensor) -> None:
        for moment, beta, power in zip((m, v), self.betas, (g, g**2), strict=True):
            moment *= beta
            moment += (1 - beta) * power
            moment /= 1 - beta**t
        w -= self.lr * m / (v + self.eps).sqrt()


# name: the rule, and what the lecture's table prints
_RULES: dict[str, tuple[type[Rule], type[Rule]]] = {
    "sgd": (SGD, SGD),
    "decay": (Decay, Decay),
    "momentum": (Momentum, MomentumAsPrinted),
    "nesterov": (Nesterov, NesterovAsPrinted),
    "adagrad": (AdaGrad, AdaGradAsPrinted),
    "rmsprop": (RMSProp, RMSPropAsPrinted),
    "adam": (Adam, AdamAsPrinted),
}
NAMES = tuple(_RULES)


def make(
    name: str,
    lr: float,
    *,
    printed: bool = False,
    curvature: float | None = None,
    **options: Any,
) -> Rule:
    """The rule `name`, one of NAMES; with `printed` as the lecture's table prints it.

    options: torch.optim's: `momentum` (0.9 here), `betas`, `alpha`, `eps`, and `gamma` of decay.
    `curvature`: the largest of the loss, where it is known; a rate outside the stable range warns.
    Raises ValueError for a rule or an option that there is not.
    """
    if name not in _RULES:
        raise ValueError(f"rule={name!r} is not known: use {', '.join(NAMES[:-1])} or {NAMES[-1]}.")
    kind = _RULES[name][printed]
    known = [option for option in inspect.signature(kind).parameters if option != "lr"]
    if unknown := [option for option in options if option not in known]:
        have = f"use {' and '.join(known)}" if known else "it has lr alone"
        raise ValueError(f"rule {name!r} has no option {unknown[0]!r}: {have}.")
    rule = kind(lr, **options)
    if curvature is not None and not lr < rule.stable_rate(curvature):
        warnings.warn(
            f"lr={lr:g} is outside the stable range of {name}{' as printed' * printed} on "
            f"curvature {curvature:g}, where its steps grow: use less than "
            f"{rule.stable_rate(curvature):.4g}.",
            RuntimeWarning,
            stacklevel=2,
        )
    return rule


def as_rule(rule: str | Any, lr: float) -> Any:
    """`rule` itself where it is an object with a `step`, the rule of that name at `lr` else."""
    return make(rule, lr) if isinstance(rule, str) else rule


def descend(
    rule: Rule, surface: Callable[..., Tensor], start: Sequence[float], steps: int
) -> Tensor:
    """Where `rule` leads from `start`: the points (steps + 1, dims) of float64 at which it took the
    gradient of `surface(x, y, ...)`, the start first."""
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    found = [point.detach().clone()]
    for _ in range(steps):
        rule.step([point], torch.autograd.grad(surface(*point), [point]))
        found.append(point.detach().clone())
    return torch.stack(found)
