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
from torch.nn import functional as F

from dlviz.counts import check_counts
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


# The methods. The forward adds to y, which is 0; the backward adds to of_x and of_w, or to neither.
def direct(x: Tensor, w: Tensor, y: Tensor, stride: int, padding: int) -> None:
    for c in range(x.shape[1]):
        for a, b, to, at in _offsets(w, x, y, stride, padding):
            y[to].addcmul_(x[at][:, c : c + 1], w[:, c, a, b].view(-1, 1, 1))


def direct_backward(
    x: Tensor, w: Tensor, g: Tensor, of_x: Any, of_w: Any, stride: int, padding: int
) -> None:
    for f in range(len(w)):
        for a, b, at, to in _offsets(w, x, g, stride, padding):
            mine = g[at][:, f : f + 1]
            if of_x is not None:
                of_x[to].addcmul_(mine, w[f, :, a, b].view(-1, 1, 1))
            if of_w is not None:
                of_w[f, :, a, b] += torch.einsum("bcij,bij->c", x[to], mine[:, 0])


def im2col(x: Tensor, w: Tensor, y: Tensor, stride: int, padding: int) -> None:
    rows = w.reshape(1, len(w), -1).expand(len(x), -1, -1)  # (b, F, C K²)
    torch.bmm(rows, _columns(x, w, y, stride, padding), out=y.view(*y.shape[:2], -1))


def im2col_backward(
    x: Tensor, w: Tensor, g: Tensor, of_x: Any, of_w: Any, stride: int, padding: int
) -> None:
    flat = g.view(*g.shape[:2], -1)  # (b, F, H' W')
    if of_w is not None:
        columns = _columns(x, w, g, stride, padding)
        for own, column in zip(flat, columns, strict=True):
            of_w.view(len(w), -1).addmm_(own, column.T)
        del own, column, columns  # the workspace, before the next one
    if of_x is not None:
        rows = w.reshape(1, len(w), -1).expand(len(x), -1, -1)
        columns = torch.bmm(rows.mT, flat).view(len(x), *w.shape[1:], *g.shape[2:])
        for a, b, at, to in _offsets(w, x, g, stride, padding):
            of_x[to] += columns[:, :, a, b][at]


def _columns(x: Tensor, w: Tensor, y: Tensor, stride: int, padding: int) -> Tensor:
    """(b, C K², H' W'): for each output a column of the inputs that it sums."""
    columns = x.new_zeros(len(x), *w.shape[1:], *y.shape[2:])
    for a, b, to, at in _offsets(w, x, y, stride, padding):
        columns[:, :, a, b][to] = x[at]
    return columns.view(len(x), w[0].numel(), -1)


def _offsets(w: Tensor, x: Tensor, y: Tensor, stride: int, padding: int) -> Iterator[Any]:
    """Each offset (a, b) in the kernel, the outputs that have an input there, and these inputs."""
    for a, b in product(range(w.shape[2]), range(w.shape[3])):
        own = [
            _along(*each, stride, padding)
            for each in zip((a, b), x.shape[2:], y.shape[2:], strict=True)
        ]
        if all(to.start < to.stop for to, _ in own):
            yield a, b, (..., own[0][0], own[1][0]), (..., own[0][1], own[1][1])


def _along(
    offset: int, inputs: int, outputs: int, stride: int, padding: int
) -> tuple[slice, slice]:
    first = max(0, -((offset - padding) // stride))
    last = min(outputs - 1, (inputs - 1 + padding - offset) // stride)
    start, end = (stride * output + offset - padding for output in (first, last))
    return slice(first, last + 1), slice(start, max(end, 0) + 1, stride)


def fft(x: Tensor, w: Tensor, y: Tensor, stride: int, padding: int) -> None:
    size = _padded_size(x, padding)
    spectrum = _spectrum(x, size, padding)
    weights = _spectrum(w, size).conj_physical_()  # the conjugate correlates, and does not convolve
    outputs = torch.bmm(spectrum, weights.mT)  # (frequencies, b, F)
    del spectrum, weights
    y.copy_(_image(outputs, size)[_every(y, stride)])


def fft_backward(
    x: Tensor, w: Tensor, g: Tensor, of_x: Any, of_w: Any, stride: int, padding: int
) -> None:
    size = _padded_size(x, padding)
    whole = g.new_zeros(*g.shape[:2], *size)
    whole[_every(g, stride)] = g
    gradients = _spectrum(whole, size)  # (frequencies, b, F)
    del whole
    if of_x is not None:
        image = _image(torch.bmm(gradients, _spectrum(w, size)), size)
        inside = (slice(padding, padding + n) for n in x.shape[2:])
        of_x += image[(..., *inside)]
        del image
    if of_w is not None:
        inputs = _spectrum(x, size, padding)
        weights = _image(torch.bmm(gradients.conj_physical_().mT, inputs), size)
        of_w += weights[..., : w.shape[2], : w.shape[3]]


def _padded_size(x: Tensor, padding: int) -> list[int]:
    return [n + 2 * padding for n in x.shape[2:]]


def _every(y: Tensor, stride: int) -> tuple[Any, ...]:
    """Where the outputs are among those of stride 1."""
    return (..., *(slice(0, stride * (n - 1) + 1, stride) for n in y.shape[2:]))


def _spectrum(x: Tensor, size: Sequence[int], padding: int = 0) -> Tensor:
    """(n, m, h, w) to (frequencies, n, m), so that each frequency is a matrix."""
    found = torch.fft.rfft2(F.pad(x, (padding,) * 4) if padding else x, s=size)
    found = found.permute(2, 3, 0, 1).clone(memory_format=torch.contiguous_format)
    return found.view(-1, *x.shape[:2])


def _image(spectrum: Tensor, size: Sequence[int]) -> Tensor:
    """(frequencies, n, m) to (n, m, h, w)."""
    planes = spectrum.view(size[0], -1, *spectrum.shape[1:]).permute(2, 3, 0, 1)
    return torch.fft.irfft2(planes, s=size)


FORWARD = {"im2col": im2col, "fft": fft, "direct": direct}
BACKWARD = {"im2col": im2col_backward, "fft": fft_backward, "direct": direct_backward}


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
