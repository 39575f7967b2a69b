"""The operations that combine tensors, as torch names them, and what a Comm is given, checked.

    sum, max, min, product    two tensors to one: a reduction's, or a receive's
    avg                       of a reduction alone: the sum over the number of ranks
    copy                      of a receive alone: the message replaces what the tensor holds

Former names go on working for one release, with a DeprecationWarning at the program's line.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, strided

from dlviz.cluster.control.form import dtype_name
from dlviz.trace.recorder import is_inside

P = ParamSpec("P")
T = TypeVar("T")
# How a message is combined with the tensor that receives it.
REDUCE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copy": torch.Tensor.copy_,
    "sum": torch.Tensor.add_,
    "max": lambda total, incoming: torch.maximum(total, incoming, out=total),
    "min": lambda total, incoming: torch.minimum(total, incoming, out=total),
    "product": torch.Tensor.mul_,
}
REDUCTIONS = ("sum", "avg", "max", "min", "product")
SUM, COPY = "sum", "copy"  # the defaults, which need no check
FORMER = {"add": "sum", "average": "avg", "prod": "product"}


def reduction(op: Any, tensor: torch.Tensor) -> str:
    """The name of a reduction of `tensor`. Raises ValueError for an unknown one, and for one that
    its dtype does not have."""
    if op is SUM:
        return op
    return _checked(op, REDUCTIONS, "reduction", tensor)


def receive_operation(op: Any, tensor: torch.Tensor) -> str:
    """What a receive into `tensor` does with the message. Raises ValueError as `reduction` does."""
    if op is COPY:
        return op
    return _checked(op, tuple(REDUCE), "receive operation", tensor)


def _checked(op: Any, names: tuple[str, ...], what: str, tensor: torch.Tensor) -> str:
    if isinstance(op, str) and op in FORMER:
        warn_renamed(f"op={op!r} is called {FORMER[op]!r} now.")
        op = FORMER[op]
    if not isinstance(op, str) or op not in names:
        hint = ""
        if op == "avg":
            hint = " (it does not know how many tensors there are: receive their sum, and divide)"
        raise ValueError(f"op={op!r} is no {what}{hint}: use one of {', '.join(names)}.")
    dtype = tensor.dtype
    if op == "avg" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"op='avg' of a tensor of {dtype_name(dtype)} would not be whole numbers: convert it "
            "to float32, or use op='sum'."
        )
    if op in ("max", "min") and dtype.is_complex:
        raise ValueError(
            f"op={op!r} of a tensor of {dtype_name(dtype)}: complex numbers have no order; reduce "
            "tensor.abs(), say."
        )
    return op


# -- former names ----------------------------------------------------------------------------------
def warn_renamed(words: str) -> None:
    """DeprecationWarning, at the line of the program that used a former name."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and is_inside(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(words, DeprecationWarning, stacklevel=level)


def renamed(former: str, name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a function take its argument `name` by its former name too."""

    def around(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if former in kwargs:
                warn_renamed(f"{former}= of {function.__name__} is called {name}= now.")
                if name in kwargs:
                    both = f"{name}= and {former}="
                    raise TypeError(f"{function.__name__} got {both}, one argument: drop the last.")
                kwargs[name] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return around


# -- checks ----------------------------------------------------------------------------------------
def check_tensor(call: str, tensor: Any, name: str = "tensor") -> None:
    """Raise TypeError, ValueError for what is not a tensor with values in memory."""
    if type(tensor) is Tensor and tensor.is_cpu and tensor.layout is strided:
        return  # as nearly always
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{call}: {name} is of type {type(tensor).__name__}, not a torch.Tensor: give "
            f"torch.as_tensor({name}), if it holds numbers."
        )
    if tensor.layout is not torch.strided or tensor.is_meta:
        kind = "on the device meta, without values" if tensor.is_meta else f"of {tensor.layout}"
        raise ValueError(f"{call}: {name} is {kind}: give a dense tensor, tensor.to_dense() say.")


def whole_number(value: Any) -> int | None:
    """The int of a whole number (numpy's too), None of anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_rank(comm: Any, name: str, rank: Any) -> int:
    """The int of a rank of `comm`. Raises ValueError for anything else."""
    found = rank if type(rank) is int else whole_number(rank)
    if found is None or not 0 <= found < comm.size:
        raise ValueError(f"{name}={rank!r} is no rank of {comm}: use 0 to {comm.size - 1}.")
    return found


def check_whole(call: str, name: str, value: Any, least: int, most: int) -> int:
    """The int of `value`. Raises ValueError unless it is a whole number from `least` to `most`."""
    found = whole_number(value)
    if found is None or not least <= found <= most:
        raise ValueError(f"{call}: {name}={value!r} has to be a whole number, {least} to {most}.")
    return found


def check_text(call: str, name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{call}: {name}={value!r} has to be a str: give {str(value)!r}, say.")
