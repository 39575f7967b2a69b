"""A convolution in micro-batches: three methods, the memory that each needs, and the best cut.

    direct    for each channel and offset in the kernel: outputs += inputs * weight. No workspace
    im2col    the inputs of every output become a column of a matrix: one matrix product
    fft       spectra of inputs and weights: a product of matrices for each frequency

    Y[n, f, i, j] = sum over c, a, b of X[n, c, s i + a - p, s j + b - p] W[f, c, a, b]

A faster method needs a workspace (`sim.workspace_bytes`), which grows with the mini-batch and is
freed after the call. Under a limit the whole batch may fit the slow method alone, while pieces of
it, one after the other, fit a fast one: `measure` has the costs, `sim.best_cut` finds the cut, and
`Microbatched` computes by it, forward and backward. The result is that of one call.

Shapes: X (b, C, H, W), W (F, C, K, K), Y (b, F, H', W'); s stride, p padding.

Source: Y. Oyama et al., "Accelerating Deep Learning Frameworks with Micro-batches", CLUSTER 2018
(µ-cuDNN). cuDNN names the methods IMPLICIT_GEMM (direct), GEMM (im2col) and FFT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dlviz.counts import check_counts
from dlviz.parallel.convolution_methods import BACKWARD, FORWARD
from dlviz.sim.workspace import METHODS, workspace_bytes


class Microbatched(nn.Module):
    """`conv`, an nn.Conv2d, by a `cut`: (method, size) of each piece of the mini-batch, in order.
    The parameters are those of `conv`.

    Raises ValueError for an unknown method, a size below 1, and a convolution with groups,
    dilation, another padding than zeros, or a kernel, stride or padding that differs in height and
    width."""

    def __init__(self, conv: nn.Conv2d, cut: Sequence[tuple[str, int]]):
        super().__init__()
        self.stride, self.padding = _check(conv)
        for method, size in cut:
            _check_method(method)
            check_counts(1, "cut: ", size=size)
        self.weight, self.bias, self.cut = conv.weight, conv.bias, [*cut]

    def forward(self, x: Tensor) -> Tensor:
        """(b, C, H, W) to (b, F, H', W'). ValueError where the cut is of another mini-batch."""
        channels, batch = self.weight.shape[1], sum(size for _, size in self.cut)
        if x.dim() != 4 or x.shape[:2] != (batch, channels):
            raise ValueError(
                f"the input has shape {tuple(x.shape)}: give ({batch}, {channels}, height, width), "
                "the examples of the cut and the channels of the convolution."
            )
        y = _Pieces.apply(x, self.weight, self.stride, self.padding, self.cut)
        return y if self.bias is None else y.add_(self.bias.view(-1, 1, 1))

    def extra_repr(self) -> str:
        return f"cut={self.cut}, stride={self.stride}, padding={self.padding}"


def measure(
    conv: nn.Conv2d,
    shape: Sequence[int],
    sizes: Sequence[int] | None = None,
    methods: Sequence[str] = METHODS,
    repeats: int = 5,
) -> dict[tuple[str, int], tuple[float, int]]:
    """The costs of pieces of a mini-batch of `shape` (b, C, H, W) for `sim.best_cut`: by (method,
    size) the least seconds of `repeats` forwards here, and the bytes of workspace. `sizes`: by
    default the powers of two up to b, and b.

    Raises ValueError as `Microbatched`, and for a size above b."""
    stride, padding = _check(conv)
    check_counts(repeats=repeats)
    batch, *image = shape
    powers = [2**power for power in range(batch.bit_length())]
    sizes = sorted({*powers, batch}) if sizes is None else sizes
    check_counts(**{f"sizes[{place}]": size for place, size in enumerate(sizes)})
    if max(sizes) > batch:
        raise ValueError(f"sizes={[*sizes]} has a piece above the batch of {batch}: leave it out.")
    x = torch.randn(batch, *image, dtype=conv.weight.dtype, device=conv.weight.device)
    held = image[0], conv.out_channels, conv.kernel_size[0], *image[1:], stride, padding
    costs = {}
    for method, size in product(methods, sizes):
        piece = Microbatched(conv, [(method, size)])
        with torch.no_grad():
            piece(x[:size])  # what is loaded and cached at the first call
            times = [_seconds(piece, x[:size]) for _ in range(repeats)]
        nbytes = workspace_bytes(method, size, *held) * x.element_size() // 4  # those of float32
        costs[method, size] = min(times), nbytes
    return costs


def _seconds(piece: nn.Module, x: Tensor) -> float:
    def finished() -> float:
        if x.is_cuda:
            torch.cuda.synchronize()
        return perf_counter()

    start = finished()
    piece(x)
    return finished() - start


class _Pieces(torch.autograd.Function):
    """The pieces one after the other; no workspace is saved for the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, stride: int, padding: int, cut: Any) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.how = stride, padding, cut
        sides = ((n + 2 * padding - w.shape[-1]) // stride + 1 for n in x.shape[2:])
        y = x.new_zeros(len(x), len(w), *sides)  # (b, F, H', W')
        for (method, size), at in _places(cut):
            FORWARD[method](x[at : at + size], w, y[at : at + size], stride, padding)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        (x, w), (stride, padding, cut), g = ctx.saved_tensors, ctx.how, g.contiguous()
        of_x, of_w = (
            torch.zeros_like(tensor, memory_format=torch.contiguous_format) if needed else None
            for tensor, needed in zip((x, w), ctx.needs_input_grad, strict=False)
        )
        for (method, size), at in _places(cut):
            piece = slice(at, at + size)
            own = None if of_x is None else of_x[piece]
            BACKWARD[method](x[piece], w, g[piece], own, of_w, stride, padding)  # of_w adds up
        return of_x, of_w, None, None, None


def _places(cut: Sequence[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], int]]:
    """Each piece with its first example."""
    at = 0
    for method, size in cut:
        yield (method, size), at
        at += size


def _check_method(method: str) -> None:
    if method not in FORWARD:
        raise ValueError(f"method={method!r} is not known: use {', '.join(map(repr, METHODS))}.")


def _check(conv: nn.Conv2d) -> tuple[int, int]:
    """Stride and padding of a convolution that the methods compute. Raises ValueError."""
    for name, usual in (("groups", 1), ("dilation", (1, 1)), ("padding_mode", "zeros")):
        if (given := getattr(conv, name)) != usual:
            raise ValueError(f"the convolution has {name}={given!r}: only {usual!r} is supported.")
    found = []
    for name in ("kernel_size", "stride", "padding"):
        given = getattr(conv, name)
        if isinstance(given, str) or given[0] != given[1]:
            raise ValueError(
                f"the convolution has {name}={given!r}: only one number for height and width is "
                "supported."
            )
        found.append(given[0])
    return found[1], found[2]
