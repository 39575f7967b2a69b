"""What coding takes here: measured, as `measure_link` measures a link."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import torch

from dlviz.counts import check_counts

REPEATS = 7


def measure_coding(name: str, n: int, **options: Any) -> tuple[float, float]:
    """Seconds to encode and to decode n Gaussian values on one thread of this machine, each the
    median of seven. `options` are those of `make`."""
    from dlviz.compression import make

    check_counts(n=n)
    by, row = make(name, **options), torch.randn(n, generator=torch.Generator().manual_seed(0))
    threads, encode, decode = torch.get_num_threads(), [], []
    torch.set_num_threads(1)
    try:
        for _ in range(REPEATS + 1):  # the first loads what is cold
            begun = perf_counter()
            code = by.encode(row)
            coded = perf_counter()
            by.decode(code, n)
            encode.append(coded - begun)
            decode.append(perf_counter() - coded)
    finally:
        torch.set_num_threads(threads)
    return median(encode[1:]), median(decode[1:])
