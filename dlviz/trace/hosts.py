"""The hosts of a run: which rank is on which, and how well times of two of them compare.

A run on several hosts says in its meta

    hosts         {"host-a": [0, 1], "host-b": [2, 3]}    the ranks of each
    clock_error   {"host-a": 0.0, "host-b": 9.1e-05}      s by which its times may be wrong

All times are those of one clock, the first host's, into which the times of the others were turned.
So a time of one host is known against a time of another to the sum of both errors, the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def host_of(meta: Mapping[str, Any]) -> dict[int, str]:
    """The name of each rank's host; empty for a run on one machine."""
    return {rank: name for name, ranks in meta.get("hosts", {}).items() for rank in ranks}


def clock_bound(meta: Mapping[str, Any], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """By how much a time of each rank in `one` and a time of that in `other` may be wrong against
    each other, in seconds: 0 on one host."""
    errors = meta.get("clock_error", {})
    hosts = {rank: (name, float(errors.get(name, 0.0))) for rank, name in host_of(meta).items()}
    if not hosts:
        return np.zeros(len(one))
    nowhere = ("", 0.0)
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    known = ((hosts.get(a, nowhere), hosts.get(b, nowhere)) for a, b in pairs)
    return np.array([0.0 if a == b else a[1] + b[1] for a, b in known])


def worst_bound(meta: Mapping[str, Any]) -> float:
    """The largest bound between any two hosts, in seconds."""
    return float(sum(sorted(meta.get("clock_error", {}).values())[-2:]))
