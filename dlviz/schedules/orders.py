"""The parts of the zoo's schedules: which rank has which stage, and how a row is put together."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain, count
from typing import NamedTuple

from dlviz.schedules.action import Action, overlap

Step = tuple[int, str]  # a stage and a kind


class Both(NamedTuple):
    """Two steps at the same time."""

    one: Step
    other: Step


def loop(ranks: int, chunks: int = 1) -> tuple[int, ...]:
    """The rank of each stage where stages go round the ranks: 0 1 2 0 1 2."""
    return tuple(stage % ranks for stage in range(ranks * chunks))


def vee(ranks: int) -> tuple[int, ...]:
    """The rank of each stage where stages go down the ranks and back up: 0 1 2 2 1 0."""
    return (*range(ranks), *reversed(range(ranks)))


def stage_passes(
    kind: str, stages: Iterable[int], microbatches: int, group: int | None = None
) -> list[Action]:
    """All microbatches through each of a rank's stages in turn, `group` of them at a time."""
    stages, group = list(stages), group or microbatches
    return [
        Action(stage, kind, microbatch)
        for first in range(0, microbatches, group)
        for stage in stages
        for microbatch in range(first, first + group)
    ]


def weave(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards left over."""
    warmup = min(warmup, len(forwards))
    steady = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return [*forwards[:warmup], *steady, *backwards[len(forwards) - warmup :]]


def split(row: list[Action], lag: int) -> list[Action]:
    """The row with each B split: I takes its place, W follows `lag` I later; 0: immediately."""
    found, waiting = [], deque()
    for action in row:
        stage, kind, microbatch, _ = action
        if kind != "B":
            found.append(action)
            continue
        found.append(Action(stage, "I", microbatch))
        waiting.append(Action(stage, "W", microbatch))
        if len(waiting) > lag:
            found.append(waiting.popleft())
    return [*found, *waiting]


def numbered(steps: Iterable[Step | Both]) -> list[Action]:
    """Each step with the next microbatch of its stage, B and I counted together. The stage -1
    stands for the W of the oldest I without one."""
    so_far: Counter[Step] = Counter()
    owed: deque[Action] = deque()

    def number(stage: int, kind: str) -> Action:
        if stage == -1:
            return owed.popleft()
        key = stage, "B" if kind == "I" else kind
        action = Action(stage, kind, so_far[key])
        so_far[key] += 1
        if kind == "I":
            owed.append(Action(stage, "W", action.microbatch))
        return action

    return [
        overlap(number(*step.one), number(*step.other)) if isinstance(step, Both) else number(*step)
        for step in steps
    ]


def grouped(name: str, ranks: int, microbatches: int) -> int:
    """How many microbatches go through a chunk before the next chunk's turn.

    g = m // max(1, m // p): p where p divides m. Raises ValueError where g does not divide m.
    """

    def group(microbatches: int) -> int:
        return microbatches // max(1, microbatches // ranks)

    def fits(microbatches: int) -> bool:
        return microbatches % group(microbatches) == 0

    if not fits(microbatches):
        below = next(filter(fits, range(microbatches - 1, 0, -1)))
        above = next(filter(fits, count(microbatches + 1)))
        raise ValueError(
            f"microbatches={microbatches} do not divide into groups of {group(microbatches)}, in "
            f"which {name} takes them through ranks={ranks}: use {below} or {above} microbatches."
        )
    return group(microbatches)


def check_loop(name: str, ranks: int, chunks: int) -> None:
    """Raises ValueError for several chunks on a single rank: there is no loop."""
    if ranks == 1 and chunks > 1:
        raise ValueError(
            f"chunks={chunks} with ranks=1: the chunks of {name} go round two ranks or more; use "
            "chunks=1, or more ranks."
        )
