"""What the explorer of consistency plays and runs: a strategy on a few workers, some of them slow.

A gradient takes 60 ms by the price of its products, whatever the method: a batch that workers share
has as many times the rows as there are workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlviz.analysis.applied import applied
from dlviz.analysis.columns import COMPUTE
from dlviz.analysis.waits import waits_until
from dlviz.analysis.workers import work_rate
from dlviz.machine import Chance, Device, Machine, Topology
from dlviz.machine.machine import CLASSROOM
from dlviz.sim.data_parallel import mlp_layers
from dlviz.sim.strategies import SERVED, beside_bytes, shares_batches, strategy
from dlviz.trace import Trace
from dlviz.widgets.control import Choice, Slider, one_of, whole
from dlviz.widgets.running import Found, Progress, late_words
from dlviz.widgets.view import column

WORKERS = (1, 8)
SLOWEST = 5.0  # times as long
SLOW = [half / 2 for half in range(2, 11)]  # of the slider
PROBABILITY = 0.1  # of an operation that is slow by chance
SLOWED = {"one": "one worker, always", "chance": "1 operation in 10"}
METHODS = {
    "sync_server": "synchronous server",
    "async_server": "asynchronous server",
    "stale_synchronous": "stale-synchronous",
    "easgd": "EASGD",
    "local_sgd": "local SGD",
    "gossip": "gossip",
}
# The controls of one method alone.
KNOBS: dict[str, list[Choice | Slider]] = {
    "sync_server": [Slider("backups", "backup workers", 0, values=range(8))],
    "async_server": [],
    "stale_synchronous": [Slider("bound", "bound s", 1, values=range(9))],
    "easgd": [
        Choice("form", "form", "asynchronous",
               options=("round_robin", "synchronous", "asynchronous")),
        Slider("alpha", "α = ηρ", 0.1, values=(0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)),
    ],
    "local_sgd": [Slider("every", "steps between averages H", 4, values=range(1, 9))],
    "gossip": [Choice("topology", "topology", "ring", options=("ring", "matching"))],
}  # fmt: skip
KNOBS = {
    method: [replace(knob, where=("method", method)) for knob in knobs]
    for method, knobs in KNOBS.items()
}

GRADIENT = 0.06  # s
STEPS = 16  # gradients of a worker
ROWS = 8  # examples of a gradient
WIDTHS = (64, 32, 10)  # of the network
FLOPS = sum(layer.forward + layer.backward for layer in mlp_layers(WIDTHS, ROWS, 1)) / GRADIENT
LR = 0.2
SHOWN = ("forward", "backward", "update", "send", "recv", "wait")
DIGITS = 6  # of a second: the front end's times


def check(values: dict[str, Any]) -> None:
    """Raises ValueError, one sentence, for an invalid value."""
    method, workers = values["method"], values["workers"]
    whole("workers", workers, *WORKERS)
    slow = values["slow"]
    number = isinstance(slow, int | float) and not isinstance(slow, bool)
    if not number or not 1 <= slow <= SLOWEST:
        raise ValueError(f"slow={slow!r} has to be 1 to {SLOWEST:g}: how many times as long.")
    for knob in (knob for knobs in KNOBS.values() for knob in knobs if isinstance(knob, Slider)):
        if isinstance(knob.values, range):
            whole(knob.name, values[knob.name], knob.values[0], knob.values[-1])
        else:
            one_of(knob.name, values[knob.name], knob.values)
    if method == "sync_server" and values["backups"] >= workers:
        raise ValueError(
            f"backups={values['backups']} of {workers} workers leave nobody to wait for: use "
            f"{workers - 1} or fewer."
        )
    if method == "gossip" and values["topology"] == "matching" and workers % 2:
        raise ValueError(f"topology='matching' pairs the workers, and {workers} leave one over.")


def options_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The method's own options."""
    return {knob.name: values[knob.name] for knob in KNOBS[values["method"]]}


def batches_of(values: Mapping[str, Any]) -> tuple[int, int]:
    """How many batches there are, and of how many rows, so that each worker has STEPS gradients of
    ROWS rows."""
    workers = values["workers"]
    shared = shares_batches(values["method"], **options_of(values))
    return (STEPS, ROWS * workers) if shared else (STEPS * workers, ROWS)


def machine_of(values: Mapping[str, Any]) -> Machine:
    """The machine of the controls. A server is never slow."""
    serves = values["method"] in SERVED
    workers, slow = values["workers"], values["slow"]
    factors: list[float | Chance] = [1.0] * workers
    if slow > 1:
        if values["slowed"] == "chance":
            factors = [Chance(PROBABILITY, slow)] * workers
        else:
            factors[-1] = slow
    factors = [1.0] * serves + factors
    device = Device("explorer", flops=FLOPS, memory=1e9, memory_bandwidth=1e9)
    topology = Topology.switch(len(factors), CLASSROOM)
    return Machine(device, topology, None, tuple(factors))


def played(values: Mapping[str, Any]) -> Trace:
    """The predicted Trace."""
    layers, machine = mlp_layers(WIDTHS, ROWS, FLOPS), machine_of(values)
    update = 3 * sum(layer.nbytes for layer in layers) / machine.device.memory_bandwidth
    many, _ = batches_of(values)
    method, options = values["method"], options_of(values)
    beside = beside_bytes(method, 2 * len(layers))
    if method == "easgd":
        del options["alpha"]  # takes no time
        options["samples"] = ROWS * 4 * WIDTHS[0], ROWS * 8  # float32 pixels, int64 labels
    return strategy(method, layers, many, machine, update=update, beside=beside, **options)


def side(trace: Trace, values: Mapping[str, Any], clock: str) -> dict[str, Any]:
    """A Trace as columns for the front end, by the device clock in seconds from the first
    computation, and its figures by `clock`."""
    spans, messages = trace.spans, trace.messages
    computes = np.isin(spans.kind, [*COMPUTE]) & (spans.step >= 0)
    zero = spans.start[computes].min()
    shown = np.isin(spans.kind, SHOWN) & (spans.end > zero) & (spans.step >= 0)
    rows = np.flatnonzero(shown)
    rows = rows[np.lexsort((spans.end[rows], spans.start[rows], spans.rank[rows]))]
    flow = np.unique(spans.flow[rows])
    flow = flow[flow >= 0]
    flow = flow[np.argsort(messages.sent[flow], kind="stable")]
    gradients = applied(trace)

    def ticks(times: np.ndarray) -> list[float]:
        return np.round(np.maximum(times - zero, 0.0), DIGITS).tolist()

    return {
        "counts": np.bincount(spans.rank[rows], minlength=trace.meta["ranks"]).tolist(),
        "kind": column([SHOWN.index(kind) for kind in spans.kind[rows].tolist()]),
        "start": ticks(spans.start[rows]),
        "end": ticks(spans.end[rows]),
        "waited": ticks(waits_until(trace, "device")[rows]),
        "messages": {
            "src": column(messages.src[flow]),
            "dst": column(messages.dst[flow]),
            **{name: ticks(messages[name][flow]) for name in ("sent", "arrived", "received")},
        },
        "applied": {
            "rank": column(gradients.rank),
            "time": ticks(gradients.time),
            "staleness": column(gradients.staleness),
        },
        **figures(trace, 1 if values["method"] in SERVED else 0, clock),
    }


def figures(trace: Trace, first: int, clock: str) -> dict[str, Any]:
    """The figures of a Trace while all workers (the ranks from `first` on) are at work."""
    work = work_rate(trace, first, clock)
    return {**work._asdict(), "workers": [worker._asdict() for worker in work.workers]}


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Train on real ranks, paced: what the front end shows, its figures by the wall clock, and the
    Trace."""
    from dlviz.cluster import launch

    machine = machine_of(values)
    done = launch(train, machine.ranks, machine, args=(values,), progress=progress)
    losses = done.results[0]
    summary = [f"Loss {losses[0]:.3g}, at the end {losses[-1]:.3g}."]
    if values["method"] == "easgd":
        from dlviz.parallel.averaging.easgd import stable_alpha

        bound = stable_alpha(values["workers"], LR, values["form"])
        summary.append(f"Stable for α < {bound:.3g}.")
    late = late_words(done.trace.meta["lateness"]["worst"], GRADIENT / 10, machine.ranks)
    return {"side": side(done.trace, values, "wall"), "late": late, "summary": summary}, done.trace


def train(comm: Any, values: dict[str, Any]) -> list[float]:
    """What a rank runs; returns the losses."""
    from dlviz import datasets, models
    from dlviz.parallel import STRATEGIES

    many, rows = batches_of(values)
    images, labels = datasets.digits("train")
    batches = list(datasets.batches(images, labels, batch=rows, steps=many))
    model = models.MLP(WIDTHS)
    options = {"lr": LR, **options_of(values)}
    return STRATEGIES[values["method"]](comm, model, batches, "sgd", **options)["losses"]
