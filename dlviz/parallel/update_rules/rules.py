"""The rules, with the numbers of torch.optim."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlviz.parallel.update_rules.rule import Rule, Tensor


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

    state_tensors = 1

    def __init__(self, lr: float, momentum: float = 0.9):
        super().__init__(lr)
        self.momentum = momentum

    def move(self, w: Tensor, g: Tensor, t: int, v: Tensor) -> None:
        v *= self.momentum
        v += g
        w -= self.lr * v

    def stable_rate(self, curvature: float) -> float:
        return (2 + 2 * self.momentum) / curvature


class Nesterov(Momentum):
    """v ← μ v - η g(w + μ v),  w ← w + v: the gradient is that of the point ahead.

    A rule gets the gradient at the parameters, so these hold the point ahead, x = w + μ v, as in
    torch; with u = -v / η:  u ← μ u + g(x),  x ← x - η (g(x) + μ u).
    """

    def move(self, w: Tensor, g: Tensor, t: int, u: Tensor) -> None:
        u *= self.momentum
        u += g
        w -= self.lr * (g + self.momentum * u)

    def stable_rate(self, curvature: float) -> float:
        return (2 + 2 * self.momentum) / (1 + 2 * self.momentum) / curvature


class AdaGrad(Rule):
    """A ← A + g²,  w ← w - η g / (√A + ε)"""

    state_tensors = 1

    def __init__(self, lr: float, eps: float = 1e-10):
        super().__init__(lr)
        self.eps = eps

    def move(self, w: Tensor, g: Tensor, t: int, a: Tensor) -> None:
        a += g**2
        w -= self.lr * g / (a.sqrt() + self.eps)

    def stable_rate(self, curvature: float) -> float:
        return math.inf  # A grows until the steps are short enough


class RMSProp(Rule):
    """A ← β A + (1 - β) g²,  w ← w - η g / (√A + ε),  β is `alpha`"""

    state_tensors = 1

    def __init__(self, lr: float, alpha: float = 0.99, eps: float = 1e-8):
        super().__init__(lr)
        self.alpha, self.eps = alpha, eps

    def move(self, w: Tensor, g: Tensor, t: int, a: Tensor) -> None:
        a *= self.alpha
        a += (1 - self.alpha) * g**2
        w -= self.lr * g / self.root(a)

    def root(self, a: Tensor) -> Tensor:
        return a.sqrt() + self.eps


class Adam(Rule):
    """m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,
    w ← w - η m̂ / (√v̂ + ε)  with  m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ)"""

    state_tensors = 2

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(lr)
        self.betas, self.eps = betas, eps

    def move(self, w: Tensor, g: Tensor, t: int, m: Tensor, v: Tensor) -> None:
        for moment, beta, power in zip((m, v), self.betas, (g, g**2), strict=True):
            moment *= beta
            moment += (1 - beta) * power
        first, second = (1 - beta**t for beta in self.betas)
        w -= self.lr * (m / first) / ((v / second).sqrt() + self.eps)
