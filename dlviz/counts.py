"""Counts and amounts that a caller gives: invalid ones are refused before any work begins.

    check_counts(ranks=ranks, microbatches=microbatches)      1, 2, 3, ...
    check_counts(0, steps=steps)                              0, 1, 2, ...
    check_amounts(nbytes=nbytes)                              any number from 0 up

None passes: the caller has left the argument out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any


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
