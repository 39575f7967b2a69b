"""An MLP of flat vectors, Adam, and the weights that one process of plain torch trains.

    layer i    tanh(x W^T + b), the last one without tanh; its flat vector is W, row by row, then b

`trained` makes the weights of all ranks' training in one process, or those that a known mistake
would leave: hints are computed from that. Everything is in float64.

Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020.
Kingma and Ba, Adam, ICLR 2015; its epsilon is large here, so that a sum in place of a mean shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

Vectors = list[torch.Tensor]  # of each layer, flat
RATE, BETAS, EPSILON = 0.01, (0.9, 0.999), 0.01


class Net:
    """What a rank does alone: forward and backward of a layer, the loss, Adam."""

    def __init__(self, widths: Sequence[int]):
        self._shapes = [(out, into) for into, out in pairwise(widths)]
        self.lengths = [out * into + out for out, into in self._shapes]
        self.layers = len(self.lengths)

    def forward(self, i: int, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The output (rows, out) of layer i, of its flat weights and x (rows, in)."""
        weight, bias = self._parts("forward", i, w)
        z = torch.addmm(bias, x, weight.T)
        return z if i == self.layers - 1 else z.tanh_()

    def backward(
        self, i: int, w: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of the flat weights and of x, from that of the output."""
        weight, _ = self._parts("backward", i, w)
        if i < self.layers - 1:
            gradient = gradient * (1 - self.forward(i, w, x) ** 2)
        own = torch.empty(self.lengths[i], dtype=x.dtype)
        torch.mm(gradient.T, x, out=own[: weight.numel()].view(weight.shape))
        torch.sum(gradient, 0, out=own[weight.numel() :])
        return own, gradient @ weight

    def loss(self, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The gradient, by y, of the mean over the rows of the squared distances."""
        return (y - target) * (2 / len(y))

    def adam(self, values: int) -> AdamStates:
        return AdamStates(values)

    def _parts(self, what: str, i: int, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """W and b. Raises ValueError if the vector is not whole."""
        if not isinstance(w, torch.Tensor):
            raise ValueError(f"{what} of layer {i} got {type(w).__name__} in place of its weights.")
        if w.untyped_storage().nbytes() < w.numel() * w.element_size():
            raise ValueError(f"{what} of layer {i} got weights that have been freed.")
        if w.shape != (self.lengths[i],):
            whole = f"a row of {self.lengths[i]} values"
            raise ValueError(f"{what} of layer {i} needs {whole}, and w has {tuple(w.shape)}.")
        out, into = self._shapes[i]
        return w[: out * into].view(out, into), w[out * into :]


class AdamStates:
    """Adam's two states of so many values."""

    def __init__(self, values: int):
        self.mean, self.square = torch.zeros(2, values, dtype=torch.float64)
        self._steps = 0

    def update(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Change w in place. Raises ValueError if the states have another length."""
        if not w.shape == gradient.shape == self.mean.shape:
            lengths = [len(each) for each in (w, gradient, self.mean)]
            raise ValueError("update got {} values, {} gradients, states of {}.".format(*lengths))
        self._steps += 1
        self.mean.lerp_(gradient, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        first, second = (1 - beta**self._steps for beta in BETAS)
        w.addcdiv_(self.mean, (self.square / second).sqrt_().add_(EPSILON), value=-RATE / first)


# -- all ranks in one process ----------------------------------------------------------------------

How = Callable[[list[Vectors], float], Vectors]  # [rank][layer], the clip: what Adam gets


def trained(widths: Sequence[int], begin: Vectors, batches: list, clip: float, how: How) -> Vectors:
    """The weights after steps on batches, [step][rank] pairs x and target, by torch's Adam."""
    weights = [w.clone().requires_grad_() for w in begin]
    adam = torch.optim.Adam(weights, RATE, BETAS, EPSILON)
    for step in batches:
        each = [_gradients(widths, weights, *batch) for batch in step]
        for w, gradient in zip(weights, how(each, clip), strict=True):
            w.grad = gradient
        adam.step()
    return [w.detach() for w in weights]


def _gradients(
    widths: Sequence[int], weights: Vectors, x: torch.Tensor, target: torch.Tensor
) -> Vectors:
    for i, (w, (into, out)) in enumerate(zip(weights, pairwise(widths), strict=True)):
        x = torch.nn.functional.linear(x, w[: out * into].view(out, into), w[out * into :])
        x = x if i == len(weights) - 1 else x.tanh()
    loss = ((x - target) ** 2).sum(1).mean()
    return [*torch.autograd.grad(loss, weights)]


def mean(each: list[Vectors]) -> Vectors:
    return [torch.stack(own).mean(0) for own in zip(*each, strict=True)]


def clipped(gradients: Vectors, clip: float) -> Vectors:
    factor = min(1.0, clip / float(torch.cat(gradients).norm()))
    return [g * factor for g in gradients]


def right(each: list[Vectors], clip: float) -> Vectors:
    return clipped(mean(each), clip)


def cut(vector: torch.Tensor, ranks: int, padded: bool = True) -> Vectors:
    """Its shards: of equal length but for the last ones, or of lengths that differ by one."""
    if not padded:
        return [*vector.tensor_split(ranks)]
    k = -(-len(vector) // ranks)
    return [vector[rank * k : (rank + 1) * k] for rank in range(ranks)]


def by_shards(each: list[Vectors], clip: float, padded: bool = True, own: bool = False) -> Vectors:
    """Each rank's shards clipped by their own norm; or shards of its `own` gradients."""
    ranks, total = len(each), mean(each)
    shards = [
        [cut(g, ranks, padded)[rank] for g in (each[rank] if own else total)]
        for rank in range(ranks)
    ]
    if not own:
        return [*map(torch.cat, zip(*(clipped(mine, clip) for mine in shards), strict=True))]
    return clipped([*map(torch.cat, zip(*shards, strict=True))], clip)


def as_they_come(each: list[Vectors], clip: float) -> Vectors:
    """Each layer clipped by the norm of the gradients up to there, the last layer's first."""
    total = mean(each)
    return [clipped(total[i:], clip)[0] for i in range(len(total))]
