"""A convolution by three methods, forward and backward, each with its workspace (microbatched.py).

The forward adds to y, which is 0; the backward adds to of_x and of_w, or to neither (None).

Shapes: X (b, C, H, W), W (F, C, K, K), Y and its gradient g (b, F, H', W'); s stride, p padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


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
