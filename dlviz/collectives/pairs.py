"""Sparse vectors as `sparse.all_reduce` holds and sends them: checked, merged, cut, joined.

A vector is held as one tensor, and this is one message. int32 (rows, entries) are pairs: the bits
of the values in all rows but the last (one of float32, two of float64), which is the index. Floats
(N,) are a dense vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from dlviz.cluster import Comm, check_tensor
from dlviz.counts import check_counts

LONGEST = 2**31 - 1  # what int32 can index


class Pairs(NamedTuple):
    """A vector of `length` elements that are 0 but for `values`, (entries,) float32 or float64, at
    `index`, (entries,) int32: ascending, each once."""

    index: torch.Tensor
    values: torch.Tensor
    length: int

    def dense(self) -> torch.Tensor:
        """All elements, (length,)."""
        return self.values.new_zeros(self.length).index_add_(0, self.index, self.values)


def checked(vector: torch.Tensor | Pairs) -> Pairs:
    """The vector as pairs. Raises ValueError where they are none."""
    if not isinstance(vector, Pairs):
        check_tensor("sparse all_reduce", vector)
        row = vector.detach().reshape(-1)
        index = row.nonzero()[:, 0]
        vector = Pairs(index.to(torch.int32), row[index], len(row))
    index, values, length = vector
    check_counts(0, length=length)
    for name, tensor, dtypes in (
        ("index", index, (torch.int32,)),
        ("values", values, (torch.float32, torch.float64)),
    ):
        check_tensor("sparse all_reduce", tensor, name)
        if tensor.dtype not in dtypes:
            wanted = " or ".join(map(str, dtypes))
            raise ValueError(f"{name} is of {tensor.dtype}, and travels as {wanted}: convert it.")
    if index.dim() != 1 or index.shape != values.shape:
        raise ValueError(
            f"index has shape {tuple(index.shape)} and values {tuple(values.shape)}: give an index "
            "for each value, both in a row."
        )
    if length > LONGEST:
        raise ValueError(
            f"length={length} is too long for indices of int32: use {LONGEST} or less."
        )
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < length:
        raise ValueError(
            f"index holds {int(index.min())} to {int(index.max())} in a vector of {length} "
            f"elements: use 0 to {length - 1}."
        )
    if len(at := (index[1:] <= index[:-1]).nonzero()):
        first = int(at[0])
        raise ValueError(
            f"index[{first + 1}]={int(index[first + 1])} comes after {int(index[first])}: sort the "
            "pairs, and add up values with the same index."
        )
    return vector


def packed(index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One tensor of both."""
    held = index.new_empty(values.itemsize // 4 + 1, len(index))
    for into, given in zip(unpacked(held), (index, values), strict=True):
        into.copy_(given)
    return held


def unpacked(held: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index and values, (entries,) each, in the same memory."""
    dtype = torch.float64 if len(held) == 3 else torch.float32
    return held[-1], held[:-1].reshape(-1).view(dtype)


def is_dense(held: torch.Tensor) -> bool:
    return held.is_floating_point()


def dense(held: torch.Tensor, length: int) -> torch.Tensor:
    return held if is_dense(held) else Pairs(*unpacked(held), length).dense()


def merged(comm: Comm, one: torch.Tensor, other: torch.Tensor, length: int) -> torch.Tensor:
    """The sum of two vectors, each as pairs or dense; a dense one is changed. x+y is y+x to the
    last bit, so both ranks of a pair get the same."""
    if is_dense(one) and is_dense(other):
        return one.add_(other)
    if is_dense(one) or is_dense(other):
        full, pairs = (one, other) if is_dense(one) else (other, one)
        return full.index_add_(0, *unpacked(pairs))
    (one_index, one_values), (index, values) = unpacked(one), unpacked(other)
    index = torch.cat([one_index, index]).numpy()
    order = np.argsort(index, kind="stable")  # two ascending runs: timsort merges them
    index = index[order]
    first = np.ones(len(index), bool)  # of the one or two with an index
    np.not_equal(index[1:], index[:-1], out=first[1:])
    values = torch.cat([one_values, values]).numpy()[order]
    if len(index):  # reduceat refuses nothing
        index, values = index[first], np.add.reduceat(values, np.flatnonzero(first))
    return settled(comm, packed(torch.from_numpy(index), torch.from_numpy(values)), length)


def settled(comm: Comm, held: torch.Tensor, length: int, **fields: int) -> torch.Tensor:
    """These pairs, made dense where that is fewer bytes; the `fields` are those of the span."""
    if held.nbytes <= length * unpacked(held)[1].itemsize:
        return held
    with holding(comm, "turns dense", held, length, **fields):
        return dense(held, length)


@contextmanager
def holding(
    comm: Comm, name: str, held: torch.Tensor, length: int, **fields: Any
) -> Iterator[None]:
    """A span that says what this rank holds when it begins: `nnz` entries of `length` elements,
    of at most `most` where they are pairs; and of which watched `buffer`, whose snapshots show it,
    they are the contents."""
    full = is_dense(held)
    nnz, size = (length, held.itemsize) if full else (held.shape[1], 4 * len(held) - 4)
    most = length * size // (size + 4)
    if comm.moves is not None:
        fields["buffer"] = comm.moves
    with comm.span("phase", name, nnz=nnz, length=length, most=most, dense=full, **fields):
        comm.moved(held)
        yield


def cut(held: torch.Tensor, bounds: list[int]) -> list[torch.Tensor]:
    """The vector in parts, each with indices from 0."""
    if is_dense(held):
        return [held[low:high] for low, high in pairwise(bounds)]
    index, values = unpacked(held)
    places = torch.searchsorted(index, index.new_tensor(bounds)).tolist()
    return [
        packed(index[start:end] - low, values[start:end])
        for (start, end), low in zip(pairwise(places), bounds, strict=False)
    ]


def joined(chunks: list[torch.Tensor], bounds: list[int]) -> torch.Tensor:
    """The vector of these parts: dense if one of them is."""
    if any(map(is_dense, chunks)):
        sizes = np.diff(bounds).tolist()
        return torch.cat([dense(chunk, n) for chunk, n in zip(chunks, sizes, strict=True)])
    indices, values = zip(*map(unpacked, chunks), strict=True)
    moved = [index + low for index, low in zip(indices, bounds, strict=False)]
    return packed(torch.cat(moved), torch.cat(values))
