"""What a rank of a pipeline computes: the math of F, B, I and W, and what it keeps between them.

    F   the stage's output, of the last stage the loss      keeps the visit until its backward
    B   the gradients of the input and of the weights       lets go of it
    I   the gradient of the input
    W   the gradients of the weights                        lets go of it

Where the schedule does not flush, each backward uses the weights that its forward saw, and the
stage is updated as soon as it is done (stash.py). Sources: as in pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.borders import Known
from dlviz.parallel.fitting import check_output
from dlviz.parallel.kept import Kept
from dlviz.parallel.stash import Stash
from dlviz.parallel.visit import Visit
from dlviz.schedules import Action

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Training:
    """The math of a rank's actions, and what it keeps between them."""

    def __init__(
        self,
        comm: Comm,
        stages: Sequence[nn.Module],
        facts: dict[int, Known],
        row: Sequence[Action],
        targets: Sequence[torch.Tensor],
        loss: Loss,
        optimizer: torch.optim.Optimizer | None,
    ):
        self.comm = comm
        self.stages = stages
        self.facts = facts
        self.targets = targets
        self.loss = loss
        self.losses: list[torch.Tensor] = []
        self.optimizer = optimizer
        self.stashes = {stage: Stash(stages[stage]) for stage in facts} if optimizer else {}
        # What the gradient of a microbatch's loss counts.
        self.share = 1.0 if optimizer else 1 / len(targets)
        halves = [half for action in row for half in action.halves]
        self.split = {(half.stage, half.microbatch) for half in halves if half.kind == "I"}
        self.visits: dict[tuple[int, int], Visit] = {}
        self.held = 0  # bytes of activations
        self.do = {
            "F": self.forward,
            "B": self.backward,
            "I": self.backward_input,
            "W": self.backward_weight,
        }

    def run(self, action: Action, received: torch.Tensor | None) -> torch.Tensor | None:
        """F, B, I or W; returns what it leaves to the next stage, None where nobody waits."""
        return self.do[action.kind]((action.stage, action.microbatch), received)

    def forward(self, at: tuple[int, int], x: torch.Tensor | None) -> torch.Tensor | None:
        assert x is not None
        stage, microbatch = at
        module, fact = self.stages[stage], self.facts[stage]
        weights = self.stashes[stage].now if self.stashes else None
        kept = Kept(module) if fact.output is None else nullcontext()
        with kept:
            visit = Visit(module, x, stage > 0, at in self.split, weights)
            check_output(stage, visit.output)
            if stage == len(self.stages) - 1:
                visit.root = self.loss(visit.output, self.targets[microbatch])
                if visit.root.numel() != 1:
                    raise ValueError(
                        f"the loss has shape {tuple(visit.root.shape)}: make it one number, the "
                        "mean over its microbatch."
                    )
                self.losses.append(visit.root.detach())
        if isinstance(kept, Kept):
            kept.see(x)
            kept.see(visit.output)
            fact.output = visit.output.shape, visit.output.dtype
            fact.nbytes = kept.nbytes
        self.visits[at] = visit
        self.hold(fact.nbytes)
        return None if stage == len(self.stages) - 1 else visit.output.detach()

    def backward(self, at: tuple[int, int], gradient: torch.Tensor | None) -> torch.Tensor | None:
        return self.visits[at].backward(self.seed(at, gradient))

    def backward_input(
        self, at: tuple[int, int], gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        return self.visits[at].backward_input(self.seed(at, gradient))

    def backward_weight(self, at: tuple[int, int], _: torch.Tensor | None) -> None:
        self.visits[at].backward_weight()

    def seed(self, at: tuple[int, int], gradient: torch.Tensor | None) -> torch.Tensor:
        """The gradient with which the backward of a visit begins: the one received, or the loss's
        share of the mean."""
        root = self.visits[at].root
        return torch.full_like(root, self.share) if gradient is None else gradient

    def conclude(self, action: Action) -> None:
        """Let go of what a microbatch needed of a stage once its gradients are there, and update
        the stage where the schedule does not flush."""
        if action.kind not in "BW":
            return
        visit = self.visits.pop((action.stage, action.microbatch))
        self.hold(-self.facts[action.stage].nbytes)
        if self.optimizer is not None:
            with self.comm.span("update", stage=action.stage, microbatch=action.microbatch):
                self.stashes[action.stage].update(visit, self.optimizer)
            self.comm.memory("weights", self.weight_bytes())

    def hold(self, nbytes: int) -> None:
        """Record that so many more bytes of activations are held."""
        self.held += nbytes
        self.comm.memory("activations", self.held)

    def weight_bytes(self) -> int:
        """The bytes of all versions of weights that are kept."""
        kept = {stage: {id(stash.now)} for stage, stash in self.stashes.items()}
        for (stage, _), visit in self.visits.items():
            kept[stage].add(id(visit.weights))
        return sum(len(versions) * self.stashes[stage].nbytes for stage, versions in kept.items())
