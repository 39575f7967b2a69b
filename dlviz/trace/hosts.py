"""The hosts of a run: which rank is on which, and how exactly times of two hosts compare.

A run on several hosts has in its meta

    hosts         {"host-a": [0, 1], "host-b": [2, 3]}    the ranks of each
    clock_error   {"host-a": 0.0, "host-b": 9.1e-05}      s by which its times may be wrong

All times are on the first host's clock; those of the others were converted to it. So the difference
of times of two hosts is known up to the sum of both errors, the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def host_of(meta: Mapping[str, Any]) -> dict[int, str]:
    """The name of each rank's host; empty for a run on one machine."""
    return {rank: name for name, ranks in meta.get("hosts", {}).items() for rank in ranks}


def clock_bound(meta: Mapping[str, Any], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The bound on the error of the difference between times of each rank in `one` and in `other`,
    in seconds: 0 on one host."""
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
