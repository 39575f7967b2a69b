"""Four ranks from start to result: `launch` against torch.multiprocessing.spawn."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from benchmarks.spawning import RANKS, add_up, spawned
from benchmarks.table import Row, compare, take_turns
from dlviz import launch


def worker(comm: Any) -> float:
    return add_up()


def launched() -> float:
    """Seconds from start to results."""
    start = perf_counter()
    results = launch(worker, ranks=RANKS).results
    seconds = perf_counter() - start
    assert results == [float(RANKS)] * RANKS
    return seconds


def rows() -> list[Row]:
    launched()  # warm: the fork server has started
    times = take_turns({"ours": launched, "peer": spawned})
    what = f"launch of {RANKS} ranks, beside multiprocessing.spawn"
    return [compare(what, times["ours"], times["peer"], target=36.0, most=0.15)]
