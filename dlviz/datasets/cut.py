"""Cutting a dataset: into seeded batches over time, into shards over ranks.

batch   | image 0 ............................ image N-1 |
shards  | rank 0       | rank 1        | rank 2          |   lengths differ by at most one
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

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


def dealt_by_label(
    images: torch.Tensor,
    labels: torch.Tensor,
    labels_of: Sequence[Collection[int]],
    batch: int,
    steps: int,
    seed: int = 0,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches for n workers that take them in turn, `steps` for each: batch i has only labels in
    `labels_of[i % n]`. Workers of the same labels never have the same row in one pass.

    Raises ValueError where a worker's labels have fewer rows than a batch.
    """
    check_counts(batch=batch, steps=steps)
    own = [tuple(sorted({*chosen})) for chosen in labels_of]
    streams = {}
    for chosen in {*own}:
        rows = torch.isin(labels, torch.tensor(chosen)).nonzero()[:, 0]
        whole = rows[: len(rows) // batch * batch]
        if not len(whole):
            raise ValueError(
                f"labels {chosen} have {len(rows)} rows: a batch needs {batch}. Use a smaller "
                "batch, or give the worker other labels."
            )
        many = steps * own.count(chosen)
        streams[chosen] = _batches(images[whole], labels[whole], batch, seed, many)
    return [next(streams[chosen]) for _ in range(steps) for chosen in own]


def joined(
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]], count: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each `count` batches in a row as one. Raises ValueError where some are left over."""
    check_counts(count=count)
    if len(batches) % count:
        raise ValueError(
            f"{len(batches)} batches cannot be joined {count} at a time: give a multiple of it."
        )
    return [
        (torch.cat([x for x, _ in own]), torch.cat([y for _, y in own]))
        for own in (batches[i : i + count] for i in range(0, len(batches), count))
    ]
