"""What the explorer of collectives prices, plays and runs: one all-reduce on one network.

What is played or run has few cells, each of which stands for many bytes: it takes as long as the
whole tensor would, and its contents can be shown.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Generator
from functools import lru_cache
from typing import Any

import numpy as np

from dlviz import metrics
from dlviz.analysis.contributions import MAX_RANKS, encode, snapshots
from dlviz.analysis.crossovers import near_cheapest
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim import collective, collective_seconds
from dlviz.sim.collective import fewest_elements
from dlviz.trace import Trace
from dlviz.viz.words import text
from dlviz.widgets.control import whole
from dlviz.widgets.running import Found, Progress, late_words

ALGORITHMS = (
    "ring", "parameter_server", "tree", "butterfly", "halving_doubling", "direct", "hierarchical",
)  # fmt: skip
TOPOLOGIES = {
    "switch": "a switch",
    "ring": "a ring of links",
    "racks": "two racks, joined by a link of 10 α and 10 β",
    "tree": "a tree of switches, two below each",
}
SIZES = [round(100 * 10 ** (k / 6)) for k in range(37)]  # bytes: 100 to 100 MB
COARSE = SIZES[::9]  # played while the reader still moves; straight in between
RANKS = (2, 16)
RUNNABLE = 8  # ranks
SHORTEST = 25e-3  # s: what a paced message takes at least
LONGEST = 3.0  # s: what a turn of a run may take
TURNS = 3  # of a run
FIELDS = ("alpha", "beta", "gamma")
NEAR = 0.05  # relative: costs nearer than this to the least count as the cheapest
LINES = 4000  # that are remembered, those of a dozen links
WHOLE = 4  # cells at most of a tensor that is never cut


def check(**values: Any) -> None:
    """Raises ValueError, one sentence, for an invalid size, number of ranks or link."""
    whole("ranks", values["ranks"], *RANKS)
    whole("nbytes", values["nbytes"], SIZES[0], SIZES[-1])
    for name in FIELDS:
        value = values[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise ValueError(f"{name}={value!r} has to be a number, from 0 to 1 s.")
    if not values["alpha"] and not values["beta"]:
        raise ValueError("alpha and beta are both 0: a message has to take some time.")


def lines_of(
    ranks: int, alpha: float, beta: float, gamma: float, topology: str, fine: bool
) -> dict[str, Any]:
    """The lines over size, and where another becomes the cheapest."""
    lines = curves(ranks, alpha, beta, gamma, topology, fine)
    return {
        "curves": {name: line.tolist() for name, line in lines.items()},
        "at": {
            name: [each.tolist() for each in rates(ranks, np.array(SIZES), line)]
            for name, line in lines.items()
        },
        "cheapest": near_cheapest(SIZES, lines, NEAR),
    }


def all_ranks(
    alpha: float, beta: float, gamma: float, topology: str
) -> Generator[None, None, dict[int, dict[str, np.ndarray]]]:
    """The coarse lines of every number of ranks. Each step makes one line."""
    found: dict[int, dict[str, np.ndarray]] = {}
    for ranks in range(RANKS[0], RANKS[1] + 1):
        found[ranks] = {}
        for name in ALGORITHMS:
            found[ranks][name] = curve(name, ranks, alpha, beta, gamma, topology, fine=False)
            yield
    return found


def ahead(lines: dict[str, np.ndarray]) -> dict[str, Any]:
    """Lines to six digits, which can be drawn before the kernel has answered."""
    summary = {name: [float(f"{took:.6g}") for took in line] for name, line in lines.items()}
    return {"curves": summary, "cheapest": near_cheapest(SIZES, lines, NEAR)}


def winners(found: dict[int, dict[str, np.ndarray]]) -> list[list[int]]:
    """The map of the cheapest algorithm by ranks and size, as places in ALGORITHMS."""

    def row(lines: dict[str, np.ndarray]) -> list[int]:
        begins, names = zip(*near_cheapest(SIZES, lines, NEAR), strict=True)
        return [ALGORITHMS.index(names[bisect_right(begins, size) - 1]) for size in SIZES]

    return [row(lines) for lines in found.values()]


def rates(ranks: int, nbytes: Any, seconds: Any) -> list[Any]:
    """Seconds, and the algorithm and bus bandwidth that result."""
    bus = metrics.bus_bandwidth("all_reduce", ranks, nbytes, seconds)
    return [seconds, metrics.algorithm_bandwidth(nbytes, seconds), bus]


def curves(
    ranks: int, alpha: float, beta: float, gamma: float, topology: str, fine: bool
) -> dict[str, np.ndarray]:
    """Seconds of each algorithm at each of SIZES."""
    link = (alpha, beta, gamma, topology)
    return {name: curve(name, ranks, *link, fine=fine) for name in ALGORITHMS}


@lru_cache(LINES)
def curve(
    name: str, ranks: int, alpha: float, beta: float, gamma: float, topology: str, *, fine: bool
) -> np.ndarray:
    """Seconds of an algorithm at each of SIZES; where it is played and not `fine`, only at COARSE,
    straight in between."""
    if topology == "switch":
        return closed(name, ranks, alpha, beta, gamma)
    at, link = SIZES if fine else COARSE, (alpha, beta, gamma, topology)
    return np.interp(
        SIZES, at, [metrics.makespan(simulated(name, ranks, size, *link)) for size in at]
    )


def closed(name: str, ranks: int, alpha: float, beta: float, gamma: float) -> np.ndarray:
    """The closed form on a switch at each of SIZES: straight in the size."""
    low, high = (
        collective_seconds(priced(name), ranks, nbytes, alpha, beta, gamma)
        for nbytes in (0, SIZES[-1])
    )
    return low + (high - low) / SIZES[-1] * np.array(SIZES)


def priced(name: str) -> str:
    """The algorithm whose closed form holds on a switch, where all ranks are one node."""
    return "ring" if name == "hierarchical" else name


def prediction(algorithm: str, ranks: int, nbytes: int, topology: str, **link: float) -> float:
    """Seconds at a size: the closed form on a switch, else what playing it takes."""
    if topology == "switch":
        return collective_seconds(priced(algorithm), ranks, nbytes, *link.values())
    return metrics.makespan(simulated(algorithm, ranks, nbytes, topology=topology, **link))


def network(ranks: int, link: Link, topology: str) -> Topology:
    if topology == "switch":
        return Topology.switch(ranks, link)
    if topology == "ring":
        return Topology.ring(ranks, link)
    if topology == "racks":
        between = Link(10 * link.latency, link.bandwidth / 10)
        return Topology("racks", ranks, (-(-ranks // 2), 2), (link, between))
    levels = max(1, math.ceil(math.log2(ranks)))
    return Topology.tree(ranks, 2, *[link] * levels)


def machine(
    ranks: int, share: float, alpha: float, beta: float, gamma: float, topology: str
) -> Machine:
    """The machine of the controls on which one byte takes as long as `share` bytes."""
    device = Device("explorer", 1e9, 1e9, 1e9, gamma * share)
    link = Link(alpha, 1 / (beta * share) if beta else math.inf)
    return Machine(device, network(ranks, link, topology))


def cells_of(algorithm: str, ranks: int, topology: str) -> int:
    """The fewest cells that the algorithm can cut evenly; a few of a tensor that it never cuts."""
    least = fewest_elements(algorithm, ranks, network(ranks, Link(1.0, 1.0), topology))
    return least if least > 1 else min(ranks, WHOLE)


def simulated(
    algorithm: str, ranks: int, nbytes: float, alpha: float, beta: float, gamma: float,
    topology: str,
) -> Trace:  # fmt: skip
    """The algorithm played on the fewest cells that it cuts evenly, nbytes / cells bytes each."""
    cells = cells_of(algorithm, ranks, topology)
    on = machine(ranks, nbytes / cells, alpha, beta, gamma, topology)
    return collective(algorithm, ranks, cells, on)


def played(**controls: Any) -> Trace:
    """The same Trace with the messages' real bytes and the contents of every rank's cells."""
    trace = simulated(**controls)
    ranks, table = controls["ranks"], trace.messages
    cells = cells_of(controls["algorithm"], ranks, controls["topology"])
    table.nbytes[:] = np.round(table.count * (controls["nbytes"] / cells))
    in_steps(table)
    buffers = []
    if ranks <= MAX_RANKS:
        buffers = snapshots(trace, [np.array(encode(k, ranks, cells)) for k in range(ranks)])
    meta = {**trace.meta, "machine": link_of(**controls)}
    return Trace(trace.spans, table, buffers=buffers, meta=meta)


def link_of(
    ranks: int, nbytes: int, alpha: float, beta: float, gamma: float, topology: str, **_: Any
) -> str:
    """The controls on one line."""
    return (
        f"{text.nbytes(nbytes)} on {ranks} ranks, {TOPOLOGIES[topology]}; α {alpha * 1e6:.6g} µs, "
        f"β {beta * 1e9:.6g} ns/byte, γ {gamma * 1e9:.6g} ns/byte"
    )


def in_steps(table: Any) -> None:
    """Put the messages' order in the pattern into their wall columns, which count steps. A message
    may wait for a link until its sender has received another; it has the contents from before."""
    table.wall_sent[:] = table.step + 0.2
    for step in np.unique(table.step).tolist():
        rows = np.flatnonzero(table.step == step)
        rows = rows[np.argsort(table.received[rows], kind="stable")]
        table.wall_received[rows] = step + np.linspace(0.4, 0.8, len(rows))


def run(progress: Progress, **controls: Any) -> Found:
    """Run the all-reduce on real ranks, paced: what was measured and predicted, in seconds of the
    controls, and the Trace.

    Where messages are too short for the wall clock, or the run too long, the whole run is slowed
    down or sped up by one factor. ValueError for more ranks than can be run.
    """
    ranks, algorithm = controls["ranks"], controls["algorithm"]
    if ranks > RUNNABLE:
        raise ValueError(f"{ranks} ranks are too many to run here: use {RUNNABLE} or fewer.")
    from dlviz.cluster import launch
    from dlviz.collectives import all_reduce

    trace = simulated(**controls)
    predicted, table = metrics.makespan(trace), trace.messages
    shortest = float((table.arrived - table.sent).min())
    factor = max(1.0, SHORTEST / shortest)
    if predicted * factor > LONGEST:
        factor = LONGEST / predicted
    cells = cells_of(algorithm, ranks, controls["topology"])
    link = {name: controls[name] * factor for name in FIELDS}
    on = machine(ranks, controls["nbytes"] / (8 * cells), topology=controls["topology"], **link)

    def worker(comm: Any) -> None:
        import torch

        tensor = torch.tensor(encode(comm.rank, comm.size, cells), dtype=torch.float64)
        for turn in comm.progress(range(TURNS), "turn"):
            comm.barrier()
            with comm.span("collective", f"turn {turn}"):
                all_reduce(comm, tensor, algorithm)

    trace = launch(worker, ranks, on, progress=progress).trace
    took = [makespan_of(trace, f"turn {turn}") for turn in range(TURNS)]
    measured = float(np.median(took)) / factor
    summary = [f"The median of {TURNS} turns."]
    bound = prediction(**controls)
    if bound > predicted * (1 + 1e-9):
        bounded = text.seconds(bound)
        summary.append(f"The closed form, {bounded}, is an upper bound: the messages take less.")
    if factor > 1:
        summary.append(
            f"The run was slowed down {factor:.3g} times, so that this machine keeps up."
        )
    elif factor < 1:
        summary.append(f"The run was sped up {1 / factor:.3g} times, so that it ends soon.")
    if controls["topology"] != "switch":
        summary.append("Messages that share a link may go in any order, so runs differ.")
    return {
        "algorithm": algorithm,
        "nbytes": controls["nbytes"],
        "measured": measured,
        "predicted": predicted,
        "late": late_words(trace.meta["lateness"]["worst"], shortest * factor, ranks),
        "summary": summary,
    }, trace


def makespan_of(trace: Trace, name: str) -> float:
    """Seconds by the wall clock from the first start to the last end of the spans of a name."""
    spans = trace.spans
    own = spans.name == name
    return float(spans.wall_end[own].max() - spans.wall_start[own].min())
