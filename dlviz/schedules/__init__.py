"""Pipeline schedules as data: what each rank does in which order, and the rules of a legal one.

`make("1f1b", ranks=4, microbatches=8)` makes one of the zoo; your own schedule is a `Schedule`, or
a CSV of its rows. `dlviz.simulate` computes its times.

In the pictures of the zoo F, I and W take one unit of time and B two; f, b, i and w are those of a
rank's second chunk. Symbols: p ranks, m microbatches, v chunks (stages on a rank), r a rank; F, B,
I, W the time of a microbatch's pass through a stage.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlviz.counts import check_counts
from dlviz.schedules import (
    dualpipev,
    gpipe,
    inference,
    interleaved,
    interleaved_zb,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    zb_h1,
    zb_h2,
    zbv,
)
from dlviz.schedules.action import Action, overlap, parse
from dlviz.schedules.rules import RECEIVES_FROM, ScheduleError, needs
from dlviz.schedules.schedule import Schedule

_LOOPS = {"interleaved": interleaved, "looped_bfs": looped_bfs, "interleaved_zb": interleaved_zb}
_FIXED = {  # with the number of stages on a rank
    "naive": (naive, 1),
    "gpipe": (gpipe, 1),
    "1f1b": (one_f_one_b, 1),
    "pipedream": (pipedream, 1),
    "zb_h1": (zb_h1, 1),
    "zb_h2": (zb_h2, 1),
    "zbv": (zbv, 2),
    "dualpipev": (dualpipev, 2),
    "inference": (inference, 1),
}
NAMES = (
    "naive", "gpipe", "1f1b", "interleaved", "looped_bfs", "pipedream", "zb_h1", "zb_h2",
    "interleaved_zb", "zbv", "dualpipev", "inference",
)  # fmt: skip
TITLES = {
    "naive": "naive", "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B",
    "looped_bfs": "looped BFS", "pipedream": "PipeDream", "zb_h1": "ZB-H1", "zb_h2": "ZB-H2",
    "interleaved_zb": "interleaved ZB", "zbv": "ZB-V", "dualpipev": "DualPipeV",
    "inference": "inference",
}  # fmt: skip
"""The common name of each of `NAMES`: for labels, never for lookups."""

__all__ = [
    "NAMES", "RECEIVES_FROM", "TITLES", "Action", "Schedule", "ScheduleError", "from_csv", "make",
    "needs", "overlap", "parse",
]  # fmt: skip

from_csv = Schedule.from_csv


def make(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Schedule:
    """The schedule called `name` (one of NAMES).

    `chunks`: how many stages a rank holds: 1, or 2 for zbv and dualpipev, or any number for
    interleaved, looped_bfs and interleaved_zb (by default 2, on a single rank 1). Raises
    ValueError, one sentence, for an invalid size and where the schedule is not defined.
    """
    if name not in NAMES:
        raise ValueError(f"{name!r} is not a schedule: use one of {', '.join(NAMES)}.")
    ranks = _size(name, "ranks", ranks)
    microbatches = _size(name, "microbatches", microbatches)
    if chunks is not None:
        chunks = _size(name, "chunks", chunks)
    if name in _LOOPS:
        with _no_collection():
            return _LOOPS[name].make(ranks, microbatches, chunks or (2 if ranks > 1 else 1))
    module, own = _FIXED[name]
    if chunks not in (None, own):
        raise ValueError(
            f"chunks={chunks}: {name} has {own} stage{'s' * (own > 1)} on a rank; leave chunks "
            f"out, or use one of {', '.join(_LOOPS)}."
        )
    with _no_collection():
        return module.make(ranks, microbatches)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause Python's garbage collection, which finds nothing among the actions of a schedule and,
    for 262,144 of them, takes longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _size(schedule: str, name: str, value: Any) -> int:
    check_counts(1, f"{schedule}: ", **{name: value})
    return operator.index(value)
