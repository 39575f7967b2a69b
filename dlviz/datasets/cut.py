"""Cutting a dataset: into seeded batches over time, into shards over ranks.

batch   | image 0 ............................ image N-1 |
shards  | rank 0       | rank 1        | rank 2          |   lengths differ by at most one
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dlviz.counts import check_counts


def shard(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Rank `rank`'s part of the N rows of `tensor`: rows rank*N//size to (rank+1)*N//size, a view.

    Shards are contiguous, disjoint and together the whole; where `size` does not divide N their
    lengths differ by one, and with N < size some are empty.
    Raises ValueError for an invalid rank.
    """
    check_counts(size=size)
    if not 0 <= rank < size:
        raise ValueError(
            f"rank={rank} has no shard among size={size}: ranks count from 0 to size-1."
        )
    length = len(tensor)
    return tensor[rank * length // size : (rank + 1) * length // size]


def trim(
    inputs: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of padded text without its last columns, in which all targets (B, n) are
    `ignore_index` (by default torch's); views."""
    learnt = (targets != ignore_index).any(0).nonzero()
    longest = int(learnt.max()) + 1 if len(learnt) else 0
    return inputs[:, :longest], targets[:, :longest]


def batches(
    images: torch.Tensor,
    labels: torch.Tensor,
    batch: int,
    seed: int = 0,
    steps: int | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield `steps` batches (images, labels) of `batch` rows, by default those of one pass.

    Each pass takes every row once, in an order that depends only on `seed` and the pass, not on
    torch's global generator; its last batch is shorter where `batch` does not divide N.
    Raises ValueError where batch < 1, steps < 0, the lengths differ or there are no rows.
    """
    check_counts(0, steps=steps)
    check_counts(batch=batch)
    if len(images) != len(labels) or len(labels) == 0:
        raise ValueError(
            f"{len(images)} images and {len(labels)} labels make no batches: "
            "give one label to each of at least one image."
        )
    return _batches(images, labels, batch, seed, steps)


def _batches(
    images: torch.Tensor, labels: torch.Tensor, batch: int, seed: int, steps: int | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    left = -(-len(labels) // batch) if steps is None else steps
    while left:
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(batch)[:left]:
            left -= 1
            yield images[rows], labels[rows]
