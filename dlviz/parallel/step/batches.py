"""The batches of a training, given as torch's users have them: pairs of inputs and labels.

    a DataLoader, a list, a generator, ...  of  (x, y)              net(x),        loss(_, y)
                                                (x1, x2, y)         net(x1, x2)
                                                {"x": x, "labels": y}   net(x=x)

What is given is read once, before the first step, so that every strategy knows how many batches
there are: a generator has to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data.distributed import DistributedSampler

Batches = Iterable[Any]
Batch = tuple[Any, Any]  # inputs: a tensor, a tuple or a dict of tensors; and labels
LABELS = "labels", "label", "targets", "target"  # in a batch that is a dict


def batches_of(batches: Batches, whose: str = "") -> list[Batch]:
    """Each batch as (inputs, labels), arrays of numpy as tensors. With `whose`, a strategy that
    passes one tensor from part to part, inputs have to be one.

    Raises ValueError for batches that a DistributedSampler has cut already, and for a batch without
    labels, with anything but tensors, without rows, or with another number of labels than inputs.
    """
    samplers = [getattr(batches, "sampler", None)]
    samplers.append(getattr(getattr(batches, "batch_sampler", None), "sampler", None))
    if any(isinstance(one, DistributedSampler) and one.num_replicas > 1 for one in samplers):
        raise ValueError(
            "these batches come from a DistributedSampler, which has cut them already: give a "
            "DataLoader without one, of which each rank takes its rows itself."
        )
    if isinstance(batches, str | bytes | torch.Tensor | Mapping) or not isinstance(
        batches, Iterable
    ):
        raise ValueError(
            f"batches is a {type(batches).__name__}: give a DataLoader, or a list or a generator "
            "of (inputs, labels)."
        )
    found = [_pair(batch, number) for number, batch in enumerate(batches)]
    for number, (inputs, _) in enumerate(found):
        if whose and not isinstance(inputs, torch.Tensor):
            raise ValueError(
                f"batch {number} has a {type(inputs).__name__} of inputs: {whose} passes one "
                "tensor on; stack the inputs, or train by data parallelism."
            )
    return found


def _pair(batch: Any, number: int) -> Batch:
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
