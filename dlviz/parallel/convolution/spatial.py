"""Spatial parallelism: each rank has a block of the rows and columns of every image.

A convolution is a stencil: an output pixel is a sum over the pixels around it,

    Y[k,f,i,j] = sum over c, and over a, b = -O .. O, of  X[k,c,i+a,j+b] w[f,c,a+O,b+O]

with O = floor(K/2), so a rank needs O rows of the block above and O of the one below: its halo. The
functions here are those of torch.nn.functional on a rank's block, of any kernel, stride, dilation,
padding and groups. `height` and `width` say which dims are cut: a Cut of the input's length over
the ranks of a Comm. The output is cut over the same ranks, into the blocks of its own length. An
image of H x W on 2 x 2 ranks, 3 x 3 kernel, and what a corner block is sent:

    +-------+-------+     rank 0 makes Y[0:H/2, 0:W/2]; it is sent a row of rank 2, a column of
    | 0    .|. 1    |     rank 1 and a pixel of rank 3: H/2 + W/2 + 1 pixels, and sends as many
    |.......|.......|
    +-------+-------+     w is whole on every rank. Each has the gradient of its own outputs, a
    |.......|.......|     partial sum: all-reduce dw and db over all ranks that share w
    | 2    .|. 3    |
    +-------+-------+

`halo.py` moves the pixels. `conv2d_by_hand` is a convolution that waits for them first.

Source: N. Dryden, N. Maruyama et al., "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", IPDPS 2019, section III-A; its formula is the lecture's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from dlviz.parallel.convolution.checks import pair
from dlviz.parallel.convolution.distribution import Cut
from dlviz.parallel.convolution.halo import computed, with_halo
from dlviz.parallel.convolution.windows import Window, grid
from dlviz.parallel.tensor.conjugate import g

Two = int | Sequence[int]  # of rows and columns, or of both


def conv2d_by_hand(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    padding: Two = 0,
    *,
    height: Cut,
) -> torch.Tensor:
    """A convolution cut along H alone, of stride 1: read this one first. `conv2d` computes the
    interior meanwhile."""
    above, beside = pair("padding", padding)
    rows = Window(height.comm, height.length, weight.shape[2], 1, 1, above)
    columns = Window(None, x.shape[3], weight.shape[3], 1, 1, beside)
    block = with_halo(x, rows, columns)  # (N, C, h + K - 1, W): halo, own rows, halo
    y = F.conv2d(block, weight, bias, padding=(0, beside))  # (N, F, h, W)
    lo, hi = rows.blocks(rows.outputs)[height.comm.rank]
    return y[:, :, : hi - lo]  # a rank without output rows has computed one


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Two = 1,
    padding: Two = 0,
    dilation: Two = 1,
    groups: int = 1,
    *,
    height: Cut | None = None,
    width: Cut | None = None,
    layer: str = "",
    convolve: Callable[..., torch.Tensor] = F.conv2d,
) -> torch.Tensor:
    """This rank's block (N, F, h', w') of the convolution of images of which `x` (N, C, h, w) is
    its block. `layer` names the spans, `convolve` computes each part as F.conv2d does. The
    gradients of `weight` and `bias` are this rank's summand.

    Raises ValueError where x does not fit its Cut, or weight x, or the kernel the image.

    Cost: forward a rank is sent the pixels that its outputs read minus its own, N C elements each;
    backward it sends back as many.
    """
    if x.dim() == 4 and x.shape[1] != weight.shape[1] * groups:
        raise ValueError(
            f"x has {x.shape[1]} channels, and weight {tuple(weight.shape)} with groups={groups} "
            f"takes {weight.shape[1] * groups}: give both the same."
        )
    cuts = height, width
    rows, columns, how = _sliding(x, weight.shape[2:], stride, padding, dilation, cuts)

    def operation(part: torch.Tensor) -> torch.Tensor:
        return convolve(part, weight, bias, **how, groups=groups)

    return computed(x, rows, columns, operation, layer=layer)


def max_pool2d(
    x: torch.Tensor,
    kernel_size: Two,
    stride: Two | None = None,
    padding: Two = 0,
    dilation: Two = 1,
    *,
    height: Cut | None = None,
    width: Cut | None = None,
    layer: str = "",
) -> torch.Tensor:
    """This rank's block of the largest value of each window; the padding is -inf, as torch's."""
    kernel, cuts = pair("kernel_size", kernel_size), (height, width)
    step = kernel if stride is None else stride
    rows, columns, how = _sliding(x, kernel, step, padding, dilation, cuts, pools=True)
    operation = partial(F.max_pool2d, kernel_size=kernel, **how)
    return computed(x, rows, columns, operation, float("-inf"), layer)


def avg_pool2d(
    x: torch.Tensor,
    kernel_size: Two,
    stride: Two | None = None,
    padding: Two = 0,
    *,
    height: Cut | None = None,
    width: Cut | None = None,
    layer: str = "",
) -> torch.Tensor:
    """This rank's block of the mean of each window, in which padding counts as zeros."""
    kernel, cuts = pair("kernel_size", kernel_size), (height, width)
    step = kernel if stride is None else stride
    rows, columns, how = _sliding(x, kernel, step, padding, 1, cuts, pools=True)
    del how["dilation"]  # it has none
    operation = partial(F.avg_pool2d, kernel_size=kernel, **how)
    return computed(x, rows, columns, operation, layer=layer)


def global_avg_pool(
    x: torch.Tensor, *, height: Cut | None = None, width: Cut | None = None, layer: str = ""
) -> torch.Tensor:
    """The mean of each channel of whole images, (N, C, 1, 1), on every rank; its gradient is whole
    on all of them.

    Cost: forward one all-reduce of N C elements over the ranks that share an image.
    """
    lengths = [
        x.shape[dim] if cut is None else cut.length for dim, cut in ((2, height), (3, width))
    ]
    mean = x.sum((2, 3), keepdim=True) / (lengths[0] * lengths[1])  # (N, C, 1, 1): a summand
    if height is None and width is None:
        return mean
    return g(grid(height and height.comm, width and width.comm), mean, layer=layer)


def _sliding(
    x: torch.Tensor,
    kernel: Two,
    stride: Two,
    padding: Two,
    dilation: Two,
    cuts: tuple[Cut | None, Cut | None],
    pools: bool = False,
) -> tuple[Window, Window, dict[str, Any]]:
    """The kernel along rows and along columns, and torch's arguments: the halo has the padding of a
    dim that is cut. Raises ValueError for a kernel that does not fit."""
    sizes = [pair("kernel_size", kernel), pair("stride", stride), pair("dilation", dilation)]
    sizes.append(pair("padding", padding, least=0))
    windows = []
    for dim, (cut, *about) in enumerate(zip(cuts, *sizes, strict=True)):
        length = x.shape[2 + dim] if cut is None else cut.length
        window = Window(cut and cut.comm, length, *about)
        what = ("rows", "columns")[dim]
        if window.outputs < 1:
            raise ValueError(
                f"a kernel of {window.kernel} {what} and dilation {window.dilation} does not fit "
                f"the {length} {what} of the image with padding {window.padding}: no output is "
                "left. Use a smaller kernel, or more padding."
            )
        if pools and 2 * window.padding > window.kernel:
            raise ValueError(
                f"padding={window.padding} is more than half of a pool's {window.kernel} {what}: a "
                "window would hold padding alone."
            )
        windows.append(window)
    rows, columns = windows
    own = tuple(w.padding if w.comm is None else 0 for w in windows)
    return rows, columns, {"stride": sizes[1], "dilation": sizes[2], "padding": own}
