"""What a rank of a pipeline computes: the math of F, B, I and W, and the state between them.

    F   the stage's output, in the last stage the loss      stores the graph
    B   the gradients of the input and of the weights       frees it
    I   the gradient of the input
    W   the gradients of the weights                        frees it

If the schedule does not flush, each backward uses the weights that its forward saw, and immediately
updates the stage (weight_stashing.py). Sources: as in run.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.pipeline.checks import check_output
from dlviz.parallel.pipeline.microbatches import Microbatches
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.pipeline.shapes import StageShape
from dlviz.parallel.pipeline.split_backward import SplitForward
from dlviz.parallel.pipeline.stage_backward import Forward
from dlviz.parallel.pipeline.weight_stashing import Stash
from dlviz.parallel.step.layers import LayerSpans
from dlviz.schedules import Action


class StageWorker:
    """The math of a rank's actions, and the state between them."""

    def __init__(
        self,
        comm: Comm,
        stages: Sequence[nn.Module | None],
        shapes: dict[int, StageShape],
        row: Sequence[Action],
        microbatches: Microbatches,
        optimizer: torch.optim.Optimizer | None,
        layers: LayerSpans | None,
    ):
        self.comm = comm
        self.stages = stages
        self.shapes = shapes
        self.microbatches = microbatches
        self.optimizer = optimizer
        self.layers = layers
        self.stashes = {stage: Stash(own(stages, stage)) for stage in shapes if optimizer}
        halves = [half for action in row for half in action.halves]
        self.split = {(half.stage, half.microbatch) for half in halves if half.kind == "I"}
        self.forwards: dict[tuple[int, int], Any] = {}  # by stage and microbatch
        self.held = 0  # bytes of activations
        self.do = {
            "F": self.forward,
            "B": self.backward,
            "I": self.backward_input,
            "W": self.backward_weight,
        }

    def run(self, action: Action, received: torch.Tensor | None) -> torch.Tensor | None:
        """F, B, I or W; returns its output for the next stage, None where no stage waits."""
        return self.do[action.kind]((action.stage, action.microbatch), received)

    def forward(self, at: tuple[int, int], x: torch.Tensor | None) -> torch.Tensor | None:
        assert x is not None
        stage, microbatch = at
        module, shape = own(self.stages, stage), self.shapes[stage]
        weights = self.stashes[stage].now if self.stashes else None
        # Counted once: every microbatch of a stage saves the same number of bytes.
        saved = SavedActivations(module) if shape.output is None else nullcontext()
        kind = SplitForward if at in self.split else Forward  # W needs the graph after I
        with saved:
            forward = kind(module, x, stage > 0, weights)
            check_output(stage, forward.output)
            if stage == len(self.stages) - 1:
                forward.root = self.microbatches.loss(microbatch, forward.output)
        if isinstance(saved, SavedActivations):
            saved.see(x)
            saved.see(forward.output)
            shape.output = forward.output.shape, forward.output.dtype
            shape.nbytes = saved.nbytes
        self.forwards[at] = forward
        self.hold(shape.nbytes)
        # Detached: the graph ends here; the next stage's begins at its own leaf.
        return None if stage == len(self.stages) - 1 else forward.output.detach()

    def backward(self, at: tuple[int, int], gradient: torch.Tensor | None) -> torch.Tensor | None:
        return self.forwards[at].backward(self.seed(at, gradient))  # dx, for the stage before

    def backward_input(
        self, at: tuple[int, int], gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        return self.forwards[at].backward_input(self.seed(at, gradient))

    def backward_weight(self, at: tuple[int, int], _: torch.Tensor | None) -> None:
        forward = self.forwards[at]
        if self.layers is None:
            forward.backward_weight()
        else:
            forward.backward_weight(self.layers.of_weights)

    def seed(self, at: tuple[int, int], gradient: torch.Tensor | None) -> torch.Tensor:
        """The gradient at which a backward begins: the received one, or the loss's share of the
        mean."""
        if gradient is not None:
            return gradient
        # dL/dL_k: 1 for a microbatch that is a batch by itself.
        share = 1.0 if self.optimizer else self.microbatches.share(at[1])
        return torch.full_like(self.forwards[at].root, share)

    def conclude(self, action: Action) -> None:
        """Free a microbatch's state in a stage after its backward, and update the stage where the
        schedule does not flush."""
        if action.kind not in "BW":
            return  # after an F or an I the backward still needs the graph
        forward = self.forwards.pop((action.stage, action.microbatch))  # frees the graph
        self.hold(-self.shapes[action.stage].nbytes)
        # No step without an example: momentum alone would move the weights.
        if self.optimizer is not None and self.microbatches.weights[action.microbatch]:
            with self.comm.span("update", stage=action.stage, microbatch=action.microbatch):
                self.stashes[action.stage].update(forward, self.optimizer)
            self.comm.memory("weights", self.weight_bytes())

    def hold(self, nbytes: int) -> None:
        """Record `nbytes` more of activations."""
        self.held += nbytes
        self.comm.memory("activations", self.held)

    def weight_bytes(self) -> int:
        """The bytes of all stored versions of weights."""
        stored = {stage: {id(stash.now)} for stage, stash in self.stashes.items()}
        for (stage, _), forward in self.forwards.items():
            stored[stage].add(id(forward.weights))  # one version counts once
        return sum(len(versions) * self.stashes[stage].nbytes for stage, versions in stored.items())


def own(stages: Sequence[nn.Module | None], stage: int) -> nn.Module:
    """A stage of this rank."""
    module = stages[stage]
    assert module is not None
    return module
