"""What the explorer of placements runs: the placement on real ranks, paced, a forward at a time.

A second of the graph takes UNIT there, and so do the messages; what is shown is in the graph's
seconds again.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any, cast

from dlviz.machine import Device, Link, Machine, Topology
from dlviz.trace import Trace
from dlviz.widgets.placement import found
from dlviz.widgets.running import Found, Progress, late_words

UNIT = 0.01  # s that a second of the graph takes
REPEATS = 5
LATE = 5e-3  # s that a rank may be late


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Run the placement: what the front end shows, and the Trace."""
    import torch

    from dlviz.cluster import launch
    from dlviz.models import GraphNet, graph_of
    from dlviz.parallel.placement import measure

    graph, ranks = found.graph_of(values), values["devices"]
    link = Link(UNIT * values["message"], float("inf"))
    machine = Machine(Device("explorer", 1e9, 1e9, 1e9), Topology.switch(ranks, link), None)
    net, batch = GraphNet(graph.parents), torch.ones(2, 8)
    seconds = tuple(UNIT * own for own in cast("tuple[float, ...]", graph.seconds))
    operators = replace(graph_of(net, batch, by="children"), forward=seconds)
    where = [found.devices_in(values["placement"])]
    more = {"repeats": REPEATS, "link": link}
    done = launch(
        measure, ranks, machine, args=(net, operators, where, batch), kwargs=more,
        progress=progress,
    )  # fmt: skip
    return shown(values, done.results[0][0], done.trace), done.trace


def shown(values: dict[str, Any], took: list[float], trace: Trace) -> dict[str, Any]:
    """The median of the seconds that the runs `took`, as seconds of the graph, beside `play`'s."""
    predicted = found.played(found.trace_of(values))["seconds"]
    return {
        "placement": values["placement"],
        "seconds": median(took) / UNIT,
        "predicted": predicted,
        "late": late_words(trace.meta["lateness"]["worst"], LATE, values["devices"]),
        "summary": [f"The median of {len(took)} forwards, a second in {1000 * UNIT:g} ms."],
    }
