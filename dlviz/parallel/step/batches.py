"""The batches of a training, given as torch's users have them: pairs of inputs and labels.

    a DataLoader, a list, a generator, ...  of  (x, y)              net(x),        loss(_, y)
                                                (x1, x2, y)         net(x1, x2)
                                                {"x": x, "labels": y}   net(x=x)

All ranks have to hold the same ones. Those of a list are compared before the first step, others as
they are read: where two ranks part, both are named, and the batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data.distributed import DistributedSampler

from dlviz.cluster import Comm
from dlviz.parallel.step.replicas import check_same, stated

Batches = Iterable[Any]
Batch = tuple[Any, Any]  # inputs: a tensor, a tuple or a dict of tensors; and labels
LABELS = "labels", "label", "targets", "target"  # in a batch that is a dict


def read(comm: Comm, batches: Batches, whose: str = "", sharded: bool = False) -> Iterable[Batch]:
    """Each batch as (inputs, labels), arrays of numpy as tensors: a list if `batches` is one, else
    one after the other, as a strategy asks for them. With `whose`, a strategy that passes one
    tensor from part to part, inputs have to be one. `sharded` batches are this rank's own, and only
    their number is compared.

    Raises ValueError for batches that a DistributedSampler has cut already, unless they are
    `sharded`; for a batch without labels, with anything but tensors, without rows, or with another
    number of labels than inputs; and on every rank where two ranks' differ.
    Cost: an all-gather of 32 bytes by the backend, for a list or for each batch that is read.
    """
    if isinstance(batches, list | tuple):
        return _same(comm, batches_of(batches, whose), sharded)
    _check_source(batches, sharded)
    try:
        length = len(batches)  # pyright: ignore[reportArgumentType]
    except TypeError:
        length = None
    stream = _stream(comm, batches, whose, sharded)
    return stream if length is None else _Counted(stream, length)


def read_ahead(comm: Comm, batches: Batches) -> list[Batch]:
    """As `read`, all batches before the first step, for ranks that take them in turn: they have to
    end."""
    return _same(comm, batches_of(batches))


def batches_of(batches: Batches, whose: str = "") -> list[Batch]:
    """As `read`, without the other ranks."""
    _check_source(batches)
    return [_pair(batch, number, whose) for number, batch in enumerate(batches)]


class _Counted(Iterable[Batch]):
    """A stream of known length, for a progress bar."""

    def __init__(self, stream: Iterator[Batch], length: int):
        self._stream, self._length = stream, length

    def __iter__(self) -> Iterator[Batch]:
        return self._stream

    def __len__(self) -> int:
        return self._length


def _stream(comm: Comm, batches: Batches, whose: str, sharded: bool) -> Iterator[Batch]:
    source = iter(batches)
    for number in count():
        pair = next((_pair(batch, number, whose) for batch in source), None)
        _compare(comm, [] if pair is None else [pair], number, sharded)
        if pair is None:
            if not number and comm.rank == 0:
                warnings.warn(
                    "there is no batch to train on: a generator that was read before is empty.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        yield pair


def _same(comm: Comm, pairs: list[Batch], sharded: bool = False) -> list[Batch]:
    comm.together(lambda left: _compare(left, pairs, 0, sharded))
    return pairs


def _compare(comm: Comm, pairs: list[Batch], first: int, sharded: bool) -> None:
    """Raise ValueError unless all ranks have the same pairs, whose first has the number `first`."""
    if comm.size == 1:
        return
    lines = [
        f"a batch {number}" if sharded else f"{what} of batch {number} = {stated(leaf)}"
        for number, pair in enumerate(pairs, first)
        for what, part in zip(("inputs", "labels"), pair, strict=True)
        for leaf in tree_leaves(part)
    ]
    advice = (
        "give all ranks as many"
        if sharded
        else (
            "give all ranks the same; a DataLoader that shuffles needs a generator of its own, "
            "seeded alike on all ranks (generator=torch.Generator().manual_seed(0))"
        )
    )
    check_same(comm, lines or [f"no batch {first}"], "batches", advice)


def _check_source(batches: Batches, sharded: bool = False) -> None:
    samplers = [getattr(batches, "sampler", None)]
    samplers.append(getattr(getattr(batches, "batch_sampler", None), "sampler", None))
    if not sharded and any(
        isinstance(one, DistributedSampler) and one.num_replicas > 1 for one in samplers
    ):
        raise ValueError(
            "these batches come from a DistributedSampler, which has cut them already: give a "
            "DataLoader without one, of which each rank takes its rows itself, or say "
            "sharded=True to a strategy whose ranks share the rows of a batch."
        )
    if isinstance(batches, str | bytes | torch.Tensor | Mapping) or not isinstance(
        batches, Iterable
    ):
        raise ValueError(
            f"batches is a {type(batches).__name__}: give a DataLoader, or a list or a generator "
            "of (inputs, labels)."
        )


def _pair(batch: Any, number: int, whose: str) -> Batch:
    if isinstance(batch, Mapping):
        name = next((name for name in LABELS if name in batch), None)
        if name is None:
            raise ValueError(
                f"batch {number} is a dict of {', '.join(map(str, batch))}: give its labels the "
                f"name {LABELS[0]!r}."
            )
        inputs: Any = {key: value for key, value in batch.items() if key != name}
        labels = batch[name]
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        inputs, labels = batch[0] if len(batch) == 2 else tuple(batch[:-1]), batch[-1]
    else:
        raise ValueError(
            f"batch {number} is a {type(batch).__name__}: give (inputs, labels), (x1, x2, labels) "
            "or a dict with labels."
        )
    inputs, labels = (tree_map(_tensor, each) for each in (inputs, labels))
    for leaf in (*(leaves := tree_leaves(inputs)), *tree_leaves(labels)):
        if not isinstance(leaf, torch.Tensor) or not leaf.dim():
            raise ValueError(
                f"batch {number} holds a {type(leaf).__name__}: give tensors, whose dim 0 are the "
                "examples."
            )
    counts = [len(leaf) for leaf in leaves]
    ends = [len(leaf) for leaf in tree_leaves(labels)]
    if len({*counts, *ends}) != 1 or not counts or not counts[0]:
        raise ValueError(
            f"batch {number} has {_some(counts)} inputs and {_some(ends)} labels: every batch "
            "needs as many of both, and at least one."
        )
    if whose and not isinstance(inputs, torch.Tensor):
        raise ValueError(
            f"batch {number} has a {type(inputs).__name__} of inputs: {whose} passes one tensor "
            "on; stack the inputs, or train by data parallelism."
        )
    return inputs, labels


def _some(counts: list[int]) -> str:
    return " and ".join(map(str, dict.fromkeys(counts))) or "no"


def _tensor(leaf: Any) -> Any:
    return torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def on(device: torch.device, batch: Batch) -> Batch:
    """The batch on a device."""
    return tree_map(lambda leaf: leaf.to(device), tuple(batch))


def shard(batch: Batch, place: int, places: int) -> Batch:
    """Part `place` of the rows of a batch, which `places` share as evenly as possible."""
    # Parts differ by a row at most; with fewer rows than places some are empty.
    return tree_map(lambda whole: whole.tensor_split(places)[place], tuple(batch))


def outputs_of(net: nn.Module | Callable[..., Any], inputs: Any) -> Any:
    """What `net` makes of a batch's inputs: one tensor, several, or several by name."""
    if isinstance(inputs, dict):
        return net(**inputs)
    return net(*inputs) if isinstance(inputs, tuple | list) else net(inputs)
