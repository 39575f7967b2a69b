"""Shapes of a stage's input and output: learnt from the first microbatch, the same in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlviz.schedules import Schedule

Form = tuple[torch.Size, torch.dtype]


@dataclass
class StageShape:
    """Shape and dtype of a stage's input and output, and the bytes that it saves of a microbatch
    until its backward; None and 0 until its first forward."""

    input: Form | None = None
    output: Form | None = None
    nbytes: int = 0


class Shapes:
    """The shapes of one rank's stages, made once and given to every step: the first step learns
    them, for each shape of batch."""

    def __init__(self) -> None:
        self._learnt: dict[tuple, dict[int, StageShape]] = {}

    def of(
        self, schedule: Schedule, rank: int, pieces: Sequence[torch.Tensor], kinds: str
    ) -> dict[int, StageShape]:
        """The shapes by stage, for microbatches like `pieces` and these kinds of actions."""
        # A smaller last batch of an epoch has its own shapes.
        case = schedule.stage_rank, kinds, tuple(pieces[0].shape), pieces[0].dtype
        own = (stage for stage, on in enumerate(schedule.stage_rank) if on == rank)
        return self._learnt.setdefault(case, {stage: StageShape() for stage in own})
