"""How far apart the models of a run's ranks are, as `parallel.replicas.watch_replica` recorded.

disagreement |   /|  /|  /|      local SGD: models drift apart, and are averaged
             |  / | / | / |
             |_/  |/  |/  |_
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlviz.trace import Table, Trace

REPLICA = "replica"  # the name of the watched buffer
_TIMES = {"device": "time", "wall": "wall"}


def disagreement(trace: Trace, clock: str = "wall") -> Table:
    """The root mean square distance of the replicas from their mean, over the length of that mean;
    at `seconds` since the first forward of a batch. A server has no replica: it computes nothing.

    Where all ranks compute the same batches their models are compared batch by batch, since ranks
    do not begin one at the same moment; otherwise, whenever a rank begins a batch, with the models
    at the others' latest begins. Raises ValueError for a Trace without recorded replicas.
    """
    recorded = {rank: _of_rank(trace, rank, clock) for rank in trace.ranks}
    recorded = {rank: replicas for rank, replicas in recorded.items() if len(replicas[0])}
    if not recorded:
        raise ValueError(
            "no rank of this Trace recorded its replica: have the worker call "
            "parallel.replicas.watch_replica(comm, model) before it trains."
        )
    steps, begins, models = zip(*recorded.values(), strict=True)
    if all(np.array_equal(step, steps[0]) for step in steps):
        when = np.stack(begins).max(axis=0)
        apart = [_apart(np.stack(each)) for each in zip(*models, strict=True)]
    else:
        events = [(t, r, i) for r, begin in enumerate(begins) for i, t in enumerate(begin.tolist())]
        events.sort()
        newest, apart = [model[0] for model in models], []
        for _, r, i in events:
            newest[r] = models[r][i]
            apart.append(_apart(np.stack(newest)))
        when = np.array([t for t, _, _ in events])
    first = min(begin.min() for begin in begins)
    return Table({"seconds": when - first, "disagreement": np.array(apart)})


def _of_rank(trace: Trace, rank: int, clock: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The batches of a rank, when it began the first forward of each, and the model with which it
    did. The buffer holds the batch (-1 before the first), then weights; messages repeat it."""
    shots = [b for b in trace.buffers if b["rank"] == rank and b["name"] == REPLICA]
    shots.sort(key=lambda shot: shot["wall"])
    first: dict[int, Any] = {}
    for shot in shots:
        if shot["array"][0] >= 0:
            first.setdefault(int(shot["array"][0]), shot)
    when = np.array([shot[_TIMES[clock]] for shot in first.values()])
    models = np.array([shot["array"][1:] for shot in first.values()], dtype=np.float64)
    return np.array([*first]), when, models


def _apart(models: np.ndarray) -> float:
    """The disagreement of models (ranks, values)."""
    mean = models.mean(axis=0)
    distance = np.sqrt(np.square(models - mean).sum(axis=1).mean())
    length = np.linalg.norm(mean)
    return float(distance / length) if length else float("nan")
