"""What a compressor costs and loses, measured: seconds to encode and decode, and its variance."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from statistics import median
from time import perf_counter
from typing import Any

import torch

from dlviz.compression.compressor import Compressor

TIMES = 5  # that a coding is timed
DRAWS = 10
BUCKETS = 4096  # values, by which feedback is judged


def measure_coding(name: str, n: int, **options: Any) -> tuple[float, float]:
    """Seconds to encode and to decode n Gaussian values on one thread here, medians. Raises
    ValueError for an unknown compressor or invalid options."""
    from dlviz.compression import make

    compressor, flat = make(name, **options), _gaussian(n, 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        code = compressor.encode(flat)  # the first call allocates
        encode = _seconds(lambda: compressor.encode(flat))
        return encode, _seconds(lambda: compressor.decode(code, n))
    finally:
        torch.set_num_threads(threads)


def variance(compressor: Compressor, n: int) -> float:
    """E|v - C(v)|^2 / |v|^2 over Gaussian vectors of n values. The compressor's draws go on as if
    it had not been measured."""
    trial = copy.deepcopy(compressor)
    lost = total = 0.0
    for draw in range(max(DRAWS, 2**17 // n)):
        v = _gaussian(n, draw)
        lost += float((v - trial.decode(trial.encode(v), n)).square().sum())
        total += float(v.square().sum())
    return lost / total


@lru_cache
def stored_variance(kind: type[Compressor], options: tuple[tuple[str, Any], ...]) -> float:
    """The variance of a compressor on several buckets, measured once for the same options."""
    return variance(kind(**dict(options)), BUCKETS)


def _gaussian(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def _seconds(run: Callable[[], Any]) -> float:
    found = []
    for _ in range(TIMES):
        start = perf_counter()
        run()
        found.append(perf_counter() - start)
    return median(found)
