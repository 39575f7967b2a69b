"""What a layer has to be so that it can be cut."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from torch import nn

from dlviz.cluster import Mesh
from dlviz.parallel.convolution.distribution import Distribution
from dlviz.sim.convolution import output_length

Shape = tuple[int, ...]


def pair(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """One for rows and one for columns. Raises ValueError for others than whole numbers, `least` or
    more."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or not all(isinstance(each, int) and each >= least for each in both):
        raise ValueError(
            f"{name}={value!r} is no whole number of {least} or more, and no pair of them: give "
            "one for rows and columns, or one for each."
        )
    return both


def slid(
    name: str,
    lengths: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> list[int]:
    """Rows and columns of what a kernel makes of an image of `lengths`. Raises ValueError where the
    kernel is larger than the padded image."""
    with naming(name):
        each = zip(lengths, kernel, stride, dilation, padding, strict=True)
        return [output_length(*sizes) for sizes in each]


@contextmanager
def naming(layer: str) -> Iterator[None]:
    """Name the layer in a ValueError from inside."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"layer {layer or 'conv'}: {error}") from None


def check_conv(name: str, conv: nn.Module) -> None:
    """Raise ValueError for a convolution whose padding is not by zeros, or in words."""
    mode, padding = getattr(conv, "padding_mode", "zeros"), getattr(conv, "padding", 0)
    if mode != "zeros" or isinstance(padding, str):
        what = f"padding_mode={mode!r}" if mode != "zeros" else f"padding={padding!r}"
        raise ValueError(
            f"layer {name or 'conv'} has {what}, which cannot be cut: pad with zeros, by a number "
            "of rows."
        )


def check_pool(name: str, pool: Any) -> None:
    """Raise ValueError for a pool with options that are not cut."""
    sizes = pair("output_size", getattr(pool, "output_size", 1))
    plain = {
        "ceil_mode": False,
        "return_indices": False,
        "count_include_pad": True,
        "divisor_override": None,
    }
    for key, value in plain.items():
        if getattr(pool, key, value) != value:
            raise ValueError(
                f"layer {name} has {key}={getattr(pool, key)!r}, which cannot be cut: leave it out."
            )
    if sizes != (1, 1):
        raise ValueError(f"layer {name} pools to {sizes}: use AdaptiveAvgPool2d(1).")


def check_images(name: str, shape: Shape) -> None:
    """Raise ValueError for what is not (N, C, H, W)."""
    if len(shape) != 4:
        raise ValueError(f"layer {name} takes images (N, C, H, W), and x is {tuple(shape)}.")


def check_flatten(name: str, flatten: nn.Flatten, distribution: Distribution) -> None:
    """Raise ValueError for a Flatten of others than (C, H, W), and where one of them is cut."""
    if (flatten.start_dim, flatten.end_dim) != (1, -1):
        raise ValueError(f"layer {name} flattens other dims than all but the first: use Flatten().")
    if distribution.axes != distribution.N:
        raise ValueError(
            f"layer {name} under {distribution} would flatten a part of an image: cut N alone."
        )


def one_axis(name: str, distribution: Distribution, dims: str) -> None:
    """Raise ValueError where several axes cut one dim that a layer communicates along."""
    for dim in dims:
        axes = getattr(distribution, dim)
        if len(axes) > 1:
            raise ValueError(
                f"layer {name or 'conv'} under {distribution} has {dim} cut over {len(axes)} axes: "
                "make one axis of them, or cut another dim."
            )


def warn_of_idle(mesh: Mesh, name: str, what: str, length: int, axes: tuple[str, ...]) -> None:
    """Warn, on rank 0, of the ranks for which there is none of `length` channels, say."""
    along = Distribution(N=axes)
    blocks = [along.block(mesh, (length,), rank)[0] for rank in range(mesh.comm.size)]
    idle = [str(rank) for rank, each in enumerate(blocks) if each.start == each.stop]
    if idle and mesh.comm.rank == 0:
        parts = prod(getattr(mesh, axis).size for axis in axes)
        warnings.warn(
            f"ranks {', '.join(idle)} are idle in layer {name or 'conv'}: there are {parts} ranks "
            f"for {length} {what}. Cut another dim too.",
            stacklevel=2,
        )
