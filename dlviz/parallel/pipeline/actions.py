"""An action of a pipeline on the timeline: one computation, or one per layer.

in_one_span  |-------- 1F0 --------|          a stage that sends nothing meanwhile
by_layers    |norm|q|k|v|  |up|down|  |       one with collectives: they lie in the gaps
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from dlviz.cluster import Comm
from dlviz.parallel.pipeline.p2p import Message
from dlviz.parallel.step.layers import LayerSpans
from dlviz.schedules import Action
from dlviz.schedules.action import KIND_NAMES

if TYPE_CHECKING:
    from dlviz.sim import Costs

Math = Callable[[Action, torch.Tensor | None], torch.Tensor | None]
Received = Sequence[tuple[torch.Tensor | None, Message | None]]


def in_one_span(
    comm: Comm, action: Action, received: Received, math: Math, costs: Costs | None
) -> list[torch.Tensor | None]:
    """The outputs of an action, computed in one span."""
    spans = [
        {
            "kind": KIND_NAMES[half.kind],
            "stage": half.stage,
            "microbatch": half.microbatch,
            "message": message,
        }
        for half, (_, message) in zip(action.halves, received, strict=True)
    ]
    # Spans of one lane nest: the second half of an overlap is recorded on a lane beside it.
    beside = comm.beside(**spans[1]) if action.parts else nullcontext()
    with beside, comm.compute(**spans[0], seconds=_seconds(comm, action, costs)):
        return [
            math(half, tensor) for half, (tensor, _) in zip(action.halves, received, strict=True)
        ]


def by_layers(
    comm: Comm, action: Action, received: Received, math: Math, layers: LayerSpans
) -> list[torch.Tensor | None]:
    """The outputs of an action, computed layer by layer; communication is no computing."""
    left = []
    for half, (tensor, message) in zip(action.halves, received, strict=True):
        at = {"stage": half.stage, "microbatch": half.microbatch}
        with comm.span("phase", str(half), **at, message=message), layers.work_on(half):
            left.append(math(half, tensor))
    return left


def _seconds(comm: Comm, action: Action, costs: Costs | None) -> float | None:
    """How long `action` takes on a paced run."""
    machine = comm.machine
    if machine is None or costs is not None:
        return None if costs is None else costs.seconds(action)
    return sum(machine.seconds(KIND_NAMES[half.kind]) for half in action.halves)
