"""What hooks on a model's layers need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in whatever a module takes or returns: a tensor, or lists, tuples and dicts of
    them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def wanted(given: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors given to a layer, its own parameters aside, has a gradient."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    return any(t.requires_grad and t.untyped_storage().data_ptr() not in own for t in given)


def at_end_of_backward(function: Any) -> None:
    """Call `function` when the backward pass under way is over, before `backward()` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(function)  # as torch's own DDP does
