"""What the explorer of schedules runs: a schedule that trains a small network on real ranks, paced.

All costs are scaled by one factor, so that the shortest action is long enough for the wall clock
and the whole short enough to wait for.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dlviz import metrics
from dlviz.analysis.prediction_error import matched, prediction_error
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.schedules import Schedule
from dlviz.sim import Costs, simulate
from dlviz.trace import Trace
from dlviz.viz.words import text
from dlviz.viz.words.prediction_error import sentence
from dlviz.widgets.running import Found, Progress, late_words

RUNNABLE = 8  # ranks
SHORTEST = 5e-3  # s: what the shortest action takes
LEAST, LONGEST = 0.8, 4.0  # s: what a step takes at least and at most
FLOOR = 2e-3  # s: the wall clock cannot hold shorter actions
STEPS = 2  # of which the last is measured
WIDTH, EXAMPLES = 16, 4  # of a stage; of a microbatch
RATE = 0.5  # of learning
READY = 50e-3  # s before a step, in which ranks that are late catch up
ALIKE = 1e-5  # gradients apart by less, relative to the largest, are equal


def run(made: Schedule, trace: Trace, costs: Costs, progress: Progress) -> Found:
    """Train on real ranks by the schedule `made`; `trace` is its Trace by `costs`.

    Returns what the front end shows, in seconds of `costs` by the wall clock, and the run's Trace.
    ValueError for a schedule that is not complete and for more ranks than can be run.
    """
    made.check()
    if made.ranks > RUNNABLE:
        raise ValueError(f"{made.ranks} ranks are too many to run here: use {RUNNABLE} or fewer.")
    from dlviz.cluster import launch

    lengths = trace.spans.end - trace.spans.start
    shortest = float(lengths[lengths > 0].min())
    whole = metrics.makespan(trace)
    factor = min(max(SHORTEST / shortest, LEAST / whole), LONGEST / whole)
    paced = slower(costs, factor)
    device = Device("explorer", flops=1e9, memory=1e9, memory_bandwidth=1e9)
    link = Link(paced.latency, float("inf"))
    on = Machine(device, Topology.switch(made.ranks, link), step=shortest * factor)
    done = launch(train, made.ranks, on, args=(made, paced), progress=progress)
    step = done.trace.only(step=STEPS - 1, kind=metrics.COMPUTE)
    before, after = matched(simulate(made, paced), step, None, "wall")
    before, after = (
        replace(side, start=side.start / factor, end=side.end / factor) for side in (before, after)
    )
    ran, took = before.other, after.end - after.start
    found = prediction_error((before, after))
    ratio = metrics.bubble_ratio(step, "wall")
    late = float((step.spans.wall_end - step.spans.end).max())
    return {
        "start": [float(after.start[row]) if row >= 0 else None for row in ran],
        "length": [float(took[row]) if row >= 0 else None for row in ran],
        "late": late_words(late, shortest * factor / 2, made.ranks, factor),
        "summary": [
            *learned(made, done.results),
            *pace(factor, shortest * factor),
            " ".join(sentence(found, (before, after))),
        ],
        "seconds": after.makespan,
        "ratio": ratio,
        "fraction": metrics.bubble_fraction(step, "wall"),
        "inside": float(metrics.idle_inside(step, "wall").max()) / factor,
        "peak": int(metrics.peak_in_flight(step, "wall").max()),
    }, done.trace


def slower(costs: Costs, factor: float) -> Costs:
    """The costs, each times `factor`."""

    def times(value: Any) -> Any:
        if isinstance(value, tuple):
            return [factor * one for one in value]
        return None if value is None else factor * value

    return Costs(**{name: times(value) for name, value in asdict(costs).items()})


def train(comm: Any, made: Schedule, costs: Costs) -> dict[str, Any]:
    """What a rank runs: `losses`, one for each step, and `apart`, by how much its gradients of the
    first step (or what an inference gives) differ from those of one process."""
    import torch
    from torch import nn
    from torch.nn.functional import mse_loss

    from dlviz.models import seed_layers
    from dlviz.parallel.pipeline import Shapes, infer, train_step

    kinds = {half.kind for row in made.actions for action in row for half in action.halves}
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in made.stage_rank]
    network = seed_layers(nn.Sequential(*layers), seed=0)
    draw = torch.Generator().manual_seed(0)
    shape = made.microbatches * EXAMPLES, WIDTH
    inputs, targets = (torch.rand(shape, generator=draw) for _ in range(2))
    output = network(inputs)
    mse_loss(output, targets).backward()  # one process
    own = [layers[stage] for stage, rank in enumerate(made.stage_rank) if rank == comm.rank]
    parameters = [*nn.ModuleList(own).parameters()]

    def gradients() -> list[torch.Tensor]:
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    alone = [gradient.clone() for gradient in gradients()]
    optimizer = torch.optim.SGD(parameters, RATE)

    losses, apart, shapes = [], 0.0, Shapes()
    for step in comm.progress(range(STEPS), "step"):
        optimizer.zero_grad()
        comm.barrier()
        with comm.compute("data", "make ready", READY):
            pass
        with comm.span("phase", f"step {step}", step=step):
            if kinds == {"F"}:
                found, expected = [infer(comm, layers, made, inputs)], [output]
                losses.append(mse_loss(found[0], targets).item())
            else:
                updates = None if made.flushes else optimizer
                step_of = comm, layers, made, inputs, targets, mse_loss, updates, costs, shapes
                losses.append(train_step(*step_of))
                found, expected = gradients(), alone
        if step == 0:
            pairs = zip(found, expected, strict=True)
            apart = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
        if kinds != {"F"} and made.flushes:
            optimizer.step()
    return {"losses": losses, "apart": apart}


def learned(made: Schedule, results: list[dict[str, Any]]) -> list[str]:
    """The result of the training, in words."""
    first, *_, last = results[0]["losses"]
    apart = max(result["apart"] for result in results)
    if not any(half.kind != "F" for row in made.actions for one in row for half in one.halves):
        same = "equals" if apart < ALIKE else f"differs by {apart:.1g} of the largest from"
        return [f"Its inference {same} one process's."]
    stages = len(made.stage_rank)
    summary = f"The run trained a network of {stages} stages: loss {first:.4g}, then {last:.4g}"
    if not made.flushes:
        return [f"{summary}; it updates after each backward, so no gradient is a whole step's."]
    if apart < ALIKE:
        return [f"{summary}; its gradients equal one process's."]
    return [f"{summary}; its gradients differ from one process's by {apart:.1g} of the largest."]


def pace(factor: float, shortest: float) -> list[str]:
    """How much faster it was run, and whether that is too fast for the wall clock."""
    summary = [f"1 s of the picture took {text.seconds(factor)} of real time."]
    if shortest < FLOOR:
        summary.append(f"Its shortest action took {text.seconds(shortest)}: too short to be exact.")
    return summary
