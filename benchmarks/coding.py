"""Coding a gradient of a million values on one thread, beside the same in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch

from benchmarks.table import Row, compare, take_turns
from dlviz.compression import make

N, PER, SHARE = 1_000_000, 512, 0.01
CALLS = 5  # of which the fastest counts: other work on the machine only adds
WEIGHTS = 2 ** torch.arange(7, -1, -1, dtype=torch.uint8)


def in_rows(flat: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(flat, (0, -len(flat) % PER)).view(-1, PER)


def one_bit(flat: torch.Tensor) -> Any:
    rows = in_rows(flat)
    above = rows >= 0
    counts = above.sum(1)
    halves = rows.clamp(min=0).sum(1) / counts, rows.clamp(max=0).sum(1) / (PER - counts)
    return (above.view(-1, 8) * WEIGHTS).sum(1, dtype=torch.uint8), halves


def four_bits(flat: torch.Tensor) -> Any:
    rows = in_rows(flat)
    norms = rows.norm(dim=1, keepdim=True)
    levels = (rows.abs() / norms * 7 + torch.rand_like(rows)).to(torch.uint8)
    words = levels | (rows < 0).to(torch.uint8) << 3
    return words[:, ::2] << 4 | words[:, 1::2], norms


def top(flat: torch.Tensor) -> Any:
    indices = flat.abs().topk(int(SHARE * N)).indices
    return indices.int(), flat[indices]


CASES: dict[str, tuple[str, dict[str, Any], Callable[[torch.Tensor], Any], float]] = {
    "one bit": ("one_bit", {}, one_bit, 3e-3),
    "QSGD, 4 bits": ("qsgd", {}, four_bits, 8e-3),
    "top 1 %": ("topk", {"share": SHARE}, top, 12e-3),
}


def seconds(run: Callable[[torch.Tensor], Any], flat: torch.Tensor) -> float:
    took = []
    for _ in range(CALLS):
        start = perf_counter()
        run(flat)
        took.append(perf_counter() - start)
    return min(took)


def rows() -> list[Row]:
    threads, flat = torch.get_num_threads(), torch.randn(N)
    torch.set_num_threads(1)
    try:
        found = []
        for what, (name, options, peer, most) in CASES.items():
            runs = {"ours": make(name, **options).encode, "torch": peer}
            times = take_turns({key: partial(seconds, run, flat) for key, run in runs.items()})
            what = f"encode 1 M values: {what}"
            found.append(compare(what, times["ours"], times["torch"], most=most))
        return found
    finally:
        torch.set_num_threads(threads)
