"""Whether ranks, stages, batch and schedule of a pipeline fit together: errors of one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.schedules import Action, Schedule


def checked(comm: Comm, stages: Sequence[nn.Module | None], schedule: Schedule) -> tuple[int, str]:
    """The schedule's number of microbatches, and its kinds of actions ("BF", say). Raises
    ValueError for a schedule that is illegal, or not for these ranks and stages."""
    if isinstance(stages, nn.Module):
        raise ValueError(
            f"a {type(stages).__name__} has no stages: give a list of modules, as "
            "split(model, stages) makes it."
        )
    if schedule.ranks != comm.size:
        raise ValueError(
            f"{schedule!r} is for {schedule.ranks} ranks and {comm.name} has {comm.size}: make it "
            f"for ranks={comm.size}."
        )
    if len(stages) != len(schedule.stage_rank):
        raise ValueError(
            f"{schedule!r} has {len(schedule.stage_rank)} stages and {len(stages)} were given: "
            "give all of them, as split(model, stages) does."
        )
    return _check(tuple(map(tuple, schedule.actions)), schedule.stage_rank)


@lru_cache(maxsize=64)  # the same schedule is run step after step
def _check(rows: tuple[tuple[Action, ...], ...], stage_rank: tuple[int, ...]) -> tuple[int, str]:
    schedule = Schedule([list(row) for row in rows], stage_rank)
    schedule.check()
    kinds = {half.kind for row in rows for action in row for half in action.halves}
    return schedule.microbatches, "".join(sorted(kinds))


def pieces_of(comm: Comm, batch: torch.Tensor, microbatches: int) -> Sequence[torch.Tensor]:
    """The microbatches of a batch, (B/m, ...) each."""
    if len(batch) % microbatches or not len(batch):
        raise ValueError(
            f"a batch of {len(batch)} cannot be cut into {microbatches} equal microbatches: use a "
            f"multiple of {microbatches}."
        )
    return batch.to(comm.device).split(len(batch) // microbatches)


def check_output(stage: int, output: object) -> None:
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"stage {stage} gave a {type(output).__name__}: a stage takes one tensor and gives "
            "one, so pack several into one with torch.cat."
        )


def no_update(schedule: Schedule, tied: int) -> str:
    if tied:
        return (
            f"{schedule!r} updates each stage at its own time, and {tied} parameters are shared by "
            "stages of several ranks: use a schedule that flushes."
        )
    return (
        f"{schedule!r} does not flush, and updates after each backward: give optimizer=, of the "
        "parameters of this rank's stages."
    )
