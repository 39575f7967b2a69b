"""The blocks of a convolution that is cut over channels and filters: which are whose, and what a
rank computes of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from dlviz.cluster import Comm
from dlviz.parallel.convolution.distribution import Cut
from dlviz.sim.convolution import blocks

Number = int | tuple[int, int]


def weight_block(filters: Cut, channels: Cut, groups: int = 1) -> tuple[slice, slice]:
    """The rows and columns of the whole weight (F, C/groups, K, K) that this rank holds: with
    groups, all columns of those of its filters whose channels it has. Raises ValueError for groups
    that the cut of the channels splits, or that do not divide C and F."""
    (first, end), (lo, hi) = filters.block, channels.block
    if groups == 1:
        return slice(first, end), slice(lo, hi)
    inputs, outputs = channels.length // groups, filters.length // groups  # of a group
    if channels.length % groups or filters.length % groups:
        raise ValueError(
            f"groups={groups} does not divide {channels.length} channels and {filters.length} "
            "filters: each group needs as many as the others."
        )
    if any(a % inputs for a, _ in channels.blocks):
        sizes = ", ".join(str(b - a) for a, b in channels.blocks)
        raise ValueError(
            f"groups={groups} of {inputs} channels each are split by the cut of {channels.length} "
            f"channels over {channels.comm.size} ranks ({sizes}): each rank needs whole groups. "
            "Cut filters instead, or channels over a number of ranks that divides the groups."
        )
    start = min(max(first, lo // inputs * outputs), end)
    return slice(start, max(start, min(end, hi // inputs * outputs))), slice(0, inputs)


def parts_of(cut: Cut, comm: Comm) -> list[tuple[int, int]]:
    """Which channels of this rank's block of `cut` each rank of `comm` has between layers."""
    lo, end = cut.block
    return blocks(end - lo, comm.size)


def check_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, filters: Cut, channels: Cut
) -> None:
    own, rank = parts_of(channels, filters.comm), filters.comm.rank
    who, (lo, end) = f"rank {filters.comm.members[rank]}", own[rank]
    if x.dim() != 4 or x.shape[1] != end - lo:
        raise ValueError(
            f"{who} gave x of shape {tuple(x.shape)}: it holds {end - lo} of "
            f"{channels.length} channels, (N, {end - lo}, H, W), cut over {channels.comm.size} "
            f"ranks of channels and then {filters.comm.size} of filters."
        )
    rows, columns = (each.stop - each.start for each in weight_block(filters, channels, groups))
    if weight.dim() != 4 or weight.shape[:2] != (rows, columns):
        raise ValueError(
            f"{who} gave a weight of shape {tuple(weight.shape)}: its block of {filters.length} "
            f"filters of {channels.length // groups} channels is {rows} x {columns}. Take "
            "weight_block(filters, channels, groups) of the whole weight."
        )
    first, last = filters.block
    if bias is not None and bias.shape != (last - first,):
        raise ValueError(
            f"{who} gave a bias of shape {tuple(bias.shape)}: it has {last - first} filters, and "
            "one of each."
        )


def convolved(
    x: Tensor,
    weight: Tensor,
    convolve: Callable[..., Tensor],
    how: tuple[Number, ...],
    groups: int,
    filters: Cut,
    channels: Cut,
) -> Tensor:
    """The summand (N, F_f, H', W') of this rank's channels."""
    (first, end), (rows, _) = filters.block, weight_block(filters, channels, groups)
    if not len(weight) or not x.shape[1]:
        # torch refuses no filters: one of zeros instead, which is cut off; and so a channel.
        more = int(not x.shape[1])
        inputs = x.shape[1] + more - weight.shape[1]
        padded = F.pad(weight, (0, 0, 0, 0, 0, inputs, 0, int(not len(weight))))
        y = convolve(F.pad(x, (0, 0, 0, 0, 0, more)), padded, None, *how, 1)[:, : len(weight)]
    elif groups == 1:
        y = convolve(x, weight, None, *how, 1)
    else:
        y = _by_groups(x, weight, convolve, how, groups, rows, filters, channels)
    if len(weight) == end - first:
        return y
    return F.pad(y, (0, 0, 0, 0, rows.start - first, end - rows.stop))  # others' channels: 0


def _by_groups(
    x: Tensor,
    weight: Tensor,
    convolve: Callable[..., Tensor],
    how: tuple[Number, ...],
    groups: int,
    rows: slice,
    filters: Cut,
    channels: Cut,
) -> Tensor:
    """Whole groups at once; the cut of the filters may leave a part of one at either end."""
    inputs, outputs = channels.length // groups, filters.length // groups
    inner = {-(-rows.start // outputs) * outputs, rows.stop // outputs * outputs}
    ends = sorted({rows.start, rows.stop} | {e for e in inner if rows.start < e < rows.stop})
    found = []
    for start, stop in pairwise(ends):
        group, last = start // outputs, -(-stop // outputs)
        own = slice(*(each * inputs - channels.block[0] for each in (group, last)))
        part = weight[start - rows.start : stop - rows.start]
        found.append(convolve(x[:, own], part, None, *how, last - group))
    return torch.cat(found, 1) if len(found) > 1 else found[0]
