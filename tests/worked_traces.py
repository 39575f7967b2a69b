"""Traces of ranks that go through batches: a phase for each, a forward inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlviz.trace import Trace

Batch = tuple[int, float, float]  # its number, when a rank began and ended it


def worked(
    batches: Mapping[int, Iterable[Batch]],
    replicas: Mapping[int, Sequence[tuple[int, float, list[float]]]] | None = None,
) -> Trace:
    """What each rank did by its number, after 1 s; and the model with which it began a batch when,
    which messages keep again a little later. By the wall clock all takes twice as long. Rank 0
    serves in a phase of its own if it has no batches."""
    spans = []
    for rank, own in batches.items():
        for number, begin, end in own:
            for depth, kind, last in ((0, "phase", end), (1, "forward", (begin + end) / 2)):
                times = {"start": 1 + begin, "end": 1 + last}
                times |= {"wall_start": 2 * times["start"], "wall_end": 2 * times["end"]}
                spans.append({"rank": rank, "kind": kind, "step": number, "depth": depth, **times})
    if 0 not in batches:
        times = {"start": 0.5, "end": 99.0, "wall_start": 1.0, "wall_end": 198.0}
        spans.append({"rank": 0, "kind": "phase", "step": 0, **times})
    buffers = []
    for rank, own in (replicas or {}).items():
        shots = [(-0.9, [-1, *own[0][2]])]
        for place, (number, when, model) in enumerate(own, 1):
            shots += [(when, [number, *model]), (when + 0.1 * place, [number, *model])]
        for index, (when, held) in enumerate(shots):
            wheres = {"rank": rank, "name": "replica", "index": index, "where": "", "step": 0}
            times = {"time": 1 + when, "wall": 2 * (1 + when)}
            buffers.append({**wheres, **times, "array": np.array(held, float)})
    late = {"worst": 0.03, "median": 0.001}
    meta = {"ranks": 1 + max(batches), "clock": "paced", "machine": "a classroom", "lateness": late}
    return Trace(spans, buffers=buffers, meta=meta)


def dealt(workers: int = 4, batches: int = 400, seconds: float = 0.06, slow: int = 3) -> Trace:
    """Workers 1, 2, ... take whole batches in turn, the last one `slow` times as long for each."""
    plan = {}
    for worker in range(1, workers + 1):
        takes = seconds * (slow if worker == workers else 1)
        numbers = range(worker - 1, batches, workers)
        plan[worker] = [(n, takes * i, takes * (i + 1)) for i, n in enumerate(numbers)]
    return worked(plan)


def lockstep(ranks: int = 4, batches: int = 20, seconds: float = 0.1) -> Trace:
    """All ranks share each batch."""
    steps = [(n, seconds * n, seconds * (n + 1)) for n in range(batches)]
    return worked(dict.fromkeys(range(ranks), steps))
