"""The rules whose formula in the lecture's table differs from torch's, as printed there."""

from __future__ import annotations

from dlviz.parallel.update_rules.rule import Tensor
from dlviz.parallel.update_rules.rules import AdaGrad, Adam, Momentum, RMSProp


class MomentumAsPrinted(Momentum):
    """w ← w + μ (w - w_before) - η g

    The same as momentum while η is constant: w - w_before contains the previous step's η.
    """

    def move(self, w: Tensor, g: Tensor, t: int, before: Tensor) -> None:
        if t == 1:
            before.copy_(w)
        moved = w - before
        before.copy_(w)
        w += self.momentum * moved - self.lr * g


class NesterovAsPrinted(Momentum):
    """w ← w + v_t,  v_(t+1) = μ v_t - η g(w - μ v_t): looks back, and moves by the old v.

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


class AdaGradAsPrinted(AdaGrad):
    """A = Σ_(τ=0..t) g_t², t from 0: the summed g has the index t, so that the sum is t + 1 times
    the newest square, and nothing is stored."""

    state_tensors = 0

    def move(self, w: Tensor, g: Tensor, t: int) -> None:
        w -= self.lr * g / ((t * g**2).sqrt() + self.eps)  # this t counts from 1


class RMSPropAsPrinted(RMSProp):
    """A ← β A + (1 - β) g²,  w ← w - η g / √(A + ε): a gradient below √ε hardly moves w."""

    def root(self, a: Tensor) -> Tensor:
        return (a + self.eps).sqrt()


class AdamAsPrinted(Adam):
    """m ← (β₁ m + (1 - β₁) g) / (1 - β₁ᵗ),  v alike with g²,  w ← w - η m / √(v + ε)

    The division is inside the recursion, so it repeats in every step: v grows without bound (to
    infinity after some steps, in floating point too), and w stops.
    """

    def move(self, w: Tensor, g: Tensor, t: int, m: Tensor, v: Tensor) -> None:
        for moment, beta, power in zip((m, v), self.betas, (g, g**2), strict=True):
            moment *= beta
            moment += (1 - beta) * power
            moment /= 1 - beta**t
        w -= self.lr * m / (v + self.eps).sqrt()
