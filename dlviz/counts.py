"""Counts and amounts that a caller gives: invalid ones are refused before any work begins.

    check_counts(ranks=ranks, microbatches=microbatches)      1, 2, 3, ...
    check_counts(0, steps=steps)                              0, 1, 2, ...
    check_amounts(nbytes=nbytes)                              any number from 0 up
    check_per_byte(beta=beta)                                 seconds per byte, no bandwidth

None passes: the caller has left the argument out. A function `of_numbers` takes numpy's as well,
and a `closed_form` arrays and lists, for a curve.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
SLOWEST = 1e3  # s/byte: what is above is a bandwidth


def check_counts(least: int = 1, whose: str = "", /, **values: Any) -> None:
    """Raise ValueError for a value that is not a whole number, or below `least`."""
    for name, value in values.items():
        if value is not None and not _counts(value, least):
            raise ValueError(f"{whose}{name}={value!r} has to be a whole number, {least} or more.")


def check_amounts(whose: str = "", /, **values: Any) -> None:
    """Raise ValueError for a value that is not a finite number from 0 up, or holds another."""
    for name, value in values.items():
        several = isinstance(value, Iterable) and not isinstance(value, str)
        several = several and getattr(value, "ndim", 1) > 0  # a tensor may be one number
        if value is not None and not all(map(_is_amount, value if several else [value])):
            raise ValueError(f"{whose}{name}={value!r} has to be a finite number, 0 or more.")


def check_per_byte(whose: str = "", /, **values: float) -> None:
    """Raise ValueError for a value that is no amount, or above SLOWEST, as a bandwidth is."""
    check_amounts(whose, **values)
    for name, value in values.items():
        if value > SLOWEST:
            raise ValueError(
                f"{whose}{name}={value!r} has to be seconds per byte, at most {SLOWEST:g}: for "
                f"a bandwidth of {value:g} bytes/s give {1 / value:g}."
            )


def of_numbers(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function take numpy's numbers as Python's, which do not overflow."""
    call: Any = function

    @wraps(function)
    def of_any(*args: P.args, **kwargs: P.kwargs) -> R:
        return call(*map(_plain, args), **{name: _plain(kwargs[name]) for name in kwargs})

    return of_any


def closed_form(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Have a formula of numbers take arrays as well, and lists of numbers in place of one: they are
    broadcast, and its values come as an array. Numbers are as `of_numbers`. A None in place of a
    number that it needs raises ValueError."""
    signature = inspect.signature(formula)
    needed = {name for name, one in signature.parameters.items() if one.default is not None}
    single = {n for n, one in signature.parameters.items() if "Sequence" not in f"{one.annotation}"}

    @wraps(formula)
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if value is None and name in needed:
                raise ValueError(f"{name}=None has to be a value.")
            if name in single:
                given[name] = _array(name, value) if _holds_several(value) else _plain(value)
        several = {name: given[name] for name in single if getattr(given.get(name), "ndim", 0)}
        if not several:
            return formula(**given)
        import numpy as np

        columns = np.broadcast_arrays(*several.values())
        rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
        values = [
            formula(**given | dict(zip(several, map(_plain, row), strict=True))) for row in rows
        ]
        return np.array(values).reshape(columns[0].shape)

    return of_arrays


def _holds_several(value: Any) -> bool:
    return isinstance(value, list | tuple | range)


def _array(name: str, value: Any) -> Any:
    """A list as an array of its numbers, whatever they are."""
    import numpy as np

    found = np.array(value, dtype=object)
    if any(map(_holds_several, found.flat)):
        raise ValueError(f"{name}={value!r} has rows of unequal lengths: give as many in each.")
    return found


def _plain(value: Any) -> Any:
    """A number of numpy's or torch's as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", 1) == 0 else value


def _is_amount(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and 0 <= float(value) < math.inf
    except (TypeError, ValueError):
        return False


def _counts(value: Any, least: int) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        return False
