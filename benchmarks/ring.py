"""All-reduce by our ring against the backend's own, on the same ranks, in turn."""

from __future__ import annotations

from benchmarks.collectives import CALLS, ROUNDS, SIZES, beside_gloo
from benchmarks.table import Row, compare
from dlviz import launch

RANKS = 4
TARGETS = {"1 KB": 1.1, "64 KB": 1.1, "1 MB": 1.2, "16 MB": 1.6, "64 MB": 1.5}


def rows() -> list[Row]:
    found = []
    for name, nbytes in SIZES.items():
        args = ("ring", nbytes, CALLS[name], ROUNDS[name])
        times = launch(beside_gloo, ranks=RANKS, args=args, timeout=300).results[0]
        what = f"ring all_reduce, {RANKS} ranks, {name}, beside gloo's"
        found.append(compare(what, times["ours"], times["peer"], target=TARGETS[name]))
    return found
