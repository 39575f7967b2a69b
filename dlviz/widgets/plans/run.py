"""A plan on real ranks: the lab Transformer trained along its three axes, held to the machine of
the plan. Every figure is from the Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlviz.analysis.axes import axes
from dlviz.analysis.bubble import bubble_ratio
from dlviz.analysis.memory import peak_memory
from dlviz.analysis.steps import seconds_between_ends
from dlviz.machine import Machine
from dlviz.trace import Trace
from dlviz.widgets.running import Found, Progress, late_words

if TYPE_CHECKING:
    from dlviz.cluster import Comm
    from dlviz.sim import TransformerShape

STEPS = 3  # of a run
AXES = ("dp", "tp", "pp")
SLOW = 0.1  # of a step: so late a run may be


def run(
    shape: TransformerShape, machine: Machine, batch: int, plan: dict[str, Any], progress: Progress
) -> Found:
    """Train on real ranks, paced: what the front end shows, its seconds by the wall clock, and the
    Trace."""
    from dlviz.cluster import launch

    args = (shape, batch, plan)
    done = launch(train, machine.ranks, machine, args=args, progress=progress)
    return found(done.trace, done.results[0]), done.trace


def found(trace: Trace, losses: list[float]) -> dict[str, Any]:
    """What a run measured, under the names of its plan, and remarks."""
    took = seconds_between_ends(trace, "wall")
    exposed = {name: axis.exposed_in_a_step(STEPS) for name, axis in axes(trace).items()}
    summary = [f"The median of {STEPS} steps; losses {losses[0]:.3g} to {losses[-1]:.3g}."]
    late = trace.meta["lateness"]["worst"]
    return {
        "seconds": took,
        "memory": int(peak_memory(trace).max()),
        "bubble": float(bubble_ratio(trace, whole_actions=True)),
        "exposed": {name: exposed.get(name, 0.0) for name in AXES},
        "late": late_words(late, SLOW * took, trace.meta["ranks"]),
        "summary": summary,
    }


def train(comm: Comm, shape: TransformerShape, batch: int, plan: dict[str, Any]) -> list[float]:
    """What a rank runs; returns the losses. The model has no values where it is built: each rank
    draws those of its own layers."""
    import torch

    from dlviz.models import Transformer
    from dlviz.parallel import hybrid

    with torch.device("meta"):
        model = Transformer(
            shape.layers, shape.hidden, shape.heads, shape.vocabulary, shape.sequence
        )
    generator = torch.Generator().manual_seed(0)
    size = (batch, shape.sequence + 1)
    texts = torch.randint(shape.vocabulary, size, generator=generator)  # (B, s + 1)
    batches = [(texts[:, :-1], texts[:, 1:])] * STEPS
    done = hybrid.train(
        comm,
        model,
        batches,
        dp=plan["dp"],
        pp=plan["pp"],
        tp=plan["tp"],
        schedule=plan["schedule"],
        microbatches=batch // plan["dp"] // plan["microbatch"],
    )
    return done["losses"]
