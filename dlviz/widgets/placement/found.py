"""What the explorer of placements shows: one placement as played, the methods' placements and what
was learned. Each is computed once for the same controls. torch is loaded to learn, not before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any

from dlviz.analysis.path import path_with_messages
from dlviz.machine import Link
from dlviz.sim.placement import (
    BRANCHES,
    LAB,
    Devices,
    Graph,
    bounds,
    count,
    play,
    recurrent,
    search,
)
from dlviz.trace import Trace

GRAPHS = {
    "lab": ("ten groups", LAB),
    "branches": ("four branches", BRANCHES),
    "recurrent": ("recurrent net, 4 × 8", recurrent(4, 8)),
}
FIRST = ("one", "layers", "round_robin", "greedy", "heft")  # methods that play one placement
FEW = 600  # placements: so many are all played at once
BUDGET = 1000  # placements that random, moves and the table of logits play
SHOWN = 9  # moments of what is learned
Values = Mapping[str, Any]  # of the controls


def graph_of(values: Values) -> Graph:
    return GRAPHS[values["graph"]][1]


def devices_of(values: Values) -> Devices:
    """Each value of the graphs has one byte, so that the latency is what a message takes."""
    return Devices(values["devices"], Link(values["message"], math.inf))


def trace_of(values: Values) -> Trace:
    """The placement as played. Raises ValueError for an invalid one."""
    return play(graph_of(values), devices_in(values["placement"]), devices_of(values))


def written(devices: Any) -> str:
    """A placement as the control holds it: "0,1,0"."""
    return ",".join(map(str, devices))


def devices_in(placement: str) -> list[int]:
    """Raises ValueError for other text."""
    try:
        return [int(device) for device in placement.split(",")]
    except (AttributeError, ValueError):
        raise ValueError(
            f"placement={placement!r} is not a list of devices: write one for each group, as in "
            "'0,1,0'."
        ) from None


def played(trace: Trace) -> dict[str, Any]:
    """Its bars, which of them decide how long it takes, and its seconds."""
    spans = trace.spans
    names = ("rank", "lane", "stage", "peer", "start", "end")
    columns = [getattr(spans, name).tolist() for name in names]
    return {
        "bars": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
        "critical": path_with_messages(trace),
        "seconds": max(columns[-1], default=0.0),
    }


def methods(values: Values, settled: bool) -> list[dict[str, Any]]:
    """The placement that each method finds: those that play many only where `settled`."""
    where = values["graph"], values["devices"], values["message"]
    return [*_first(*where), *(_many(*where) if settled else ())]


def places(values: Values) -> int:
    """How many placements there are, up to renaming devices."""
    return count(len(graph_of(values)), values["devices"])


def least(values: Values) -> tuple[float, float]:
    """(critical path, work / devices)."""
    return bounds(graph_of(values), devices_of(values))


@lru_cache(64)
def _first(graph: str, devices: int, message: float) -> list[dict[str, Any]]:
    return [_row(name, graph, devices, message) for name in FIRST]


@lru_cache(64)
def _many(graph: str, devices: int, message: float) -> list[dict[str, Any]]:
    row = [_row(name, graph, devices, message, budget=BUDGET) for name in ("random", "moves")]
    if places({"graph": graph, "devices": devices}) <= FEW:
        row.append(_row("exhaustive", graph, devices, message))
    return row


def _row(name: str, graph: str, devices: int, message: float, **options: Any) -> dict[str, Any]:
    values = {"graph": graph, "devices": devices, "message": message}
    found = search(graph_of(values), devices_of(values), name, **options)
    return _shown(name, found)


def _shown(name: str, found: Any) -> dict[str, Any]:
    """A method's placement as the table shows it."""
    return {
        "name": name.replace("_", " "),
        "placement": written(found.placement),
        "seconds": found.seconds,
        "promised": found.promised,
        "samples": len(found.samples),
    }


def learned(values: Values) -> dict[str, Any]:
    """What REINFORCE finds with a table of logits, beside random search of the same budget: the
    best so far, and each group's probabilities at a few moments."""
    from dlviz.models.placer import learn

    graph, devices = graph_of(values), devices_of(values)
    found = learn(graph, devices, samples=BUDGET, seed=0)
    chance = search(graph, devices, "random", budget=BUDGET, seed=0)
    updates = len(found.probabilities)
    at = [round(place * (updates - 1) / (SHOWN - 1)) for place in range(SHOWN)]
    x = [1, *range(10, BUDGET + 1, 10)]
    best = {
        name: [*accumulate(samples, min)]
        for name, samples in (("learned", found.samples), ("random", chance.samples))
    }
    return {
        "row": _shown("learned", found),
        "x": x,
        "best": {name: [line[place - 1] for place in x] for name, line in best.items()},
        "at": [round(BUDGET * place / updates) for place in at],
        "probabilities": [
            [[round(p, 3) for p in group] for group in found.probabilities[place].tolist()]
            for place in at
        ],
    }
