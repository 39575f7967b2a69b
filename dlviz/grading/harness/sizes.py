"""A size at which a program is tried, and its text.

@dataclass(frozen=True)
class Team(Size):
    "A number of ranks, and the steps of each."
    legend = "ranks x steps"
    ranks: int
    steps: int
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dlviz.grading.harness.feedback import listed

EVEN = "it works on 2 and on 4 ranks. What in it holds only for even numbers or powers of two?"

ONE_ALONE = "it works only on {} ranks. Where does yours rely on that number?"


@dataclass(frozen=True)
class Size:
    legend: ClassVar[str]  # the fields of the short form

    @property
    def trivial(self) -> bool:
        """Whether a program that does nothing passes here: such sizes alone earn no points."""
        return getattr(self, "ranks", 0) == 1

    @property
    def short(self) -> str:
        values = [getattr(self, each.name) for each in fields(self)]
        return "x".join(f"{v:.10g}" if isinstance(v, float) else str(v) for v in values)

    @classmethod
    def listed(cls, sizes: Sequence[Any]) -> str:
        """Several sizes in a few words."""
        return f"at {cls.legend} = {listed([*dict.fromkeys(size.short for size in sizes)])}"

    @staticmethod
    def in_common(passed: Sequence[Any], failed: Sequence[Any]) -> str:
        """A hint from what distinguishes the failed sizes from those that passed, or ""."""
        return ""


def one_number_alone(passed: Sequence[Any], failed: Sequence[Any]) -> int:
    """The only number of ranks, of several, at which a program is right; 0 if there is no such
    one."""
    right, wrong = ({size.ranks for size in sizes} - {1} for sizes in (passed, failed))
    return min(right) if len(right) == 1 and len(wrong - right) == len(wrong) > 1 else 0
