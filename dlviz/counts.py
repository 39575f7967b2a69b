"""Counts and amounts that a caller gives: invalid ones are refused before any work begins.

    check_counts(ranks=ranks, microbatches=microbatches)      1, 2, 3, ...
    check_counts(0, steps=steps)                              0, 1, 2, ...
    check_amounts(nbytes=nbytes)                              any number from 0 up
    check_per_byte(beta=beta)                                 seconds per byte, no bandwidth

None passes: the caller has left the argument out. A `closed_form` also takes arrays, for a curve.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

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


def closed_form(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Have a formula of numbers take arrays as well: they are broadcast, and its values come as an
    array. A None in place of a number that it needs raises ValueError."""
    signature = inspect.signature(formula)
    needed = {name for name, one in signature.parameters.items() if one.default is not None}

    @wraps(formula)
    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if value is None and name in needed:
                raise ValueError(f"{name}=None has to be a value.")
        several = {name: value for name, value in given.items() if getattr(value, "ndim", 0) > 0}
        if not several:
            return formula(**given)
        import numpy as np

        columns = np.broadcast_arrays(*several.values())
        rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
        values = [formula(**given | dict(zip(several, row, strict=True))) for row in rows]
        return np.array(values).reshape(columns[0].shape)

    return of_arrays


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
