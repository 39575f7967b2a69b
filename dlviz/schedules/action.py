"""One cell of a schedule: what a rank does next, in which stage, on which microbatch.

    2F0    the forward of microbatch 0 through stage 2
    2B0    its whole backward, which may be split into
    2I0        the gradient of the stage's input (the previous stage waits for it), and
    2W0        the gradient of its weights (nobody waits for it)
    (0F7;7B3)OVERLAP_F_B    a forward and a backward at the same time

Source: torch.distributed.pipelining uses the same notation (`_Action`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

KIND_NAMES = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
"""The name of each kind in a Trace and in costs."""
KINDS = tuple(KIND_NAMES)
CODES = {name: kind for kind, name in KIND_NAMES.items()}
OVERLAP = "OVERLAP_F_B"
_ONE = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")
_TWO = re.compile(r"\(([^;()]*);([^;()]*)\)" + OVERLAP)


class Action(NamedTuple):
    """One computation on one microbatch in one stage. `kind` is F, B, I or W.

    An overlap has its two actions in `parts`, the kind OVERLAP_F_B, and -1 for stage and
    microbatch: `overlap` makes one.
    """

    stage: int
    kind: str
    microbatch: int
    parts: tuple[Action, ...] = ()

    @property
    def halves(self) -> tuple[Action, ...]:
        """The two actions of an overlap; any other action alone."""
        return self.parts or (self,)

    def __repr__(self) -> str:
        if self.parts:
            return f"({';'.join(map(repr, self.parts))}){self.kind}"
        return f"{self.stage}{self.kind}{self.microbatch}"

    __str__ = __repr__


def overlap(one: Action, other: Action) -> Action:
    """The action that runs a forward and a backward at the same time."""
    return Action(-1, OVERLAP, -1, (one, other))


def parse(text: str) -> Action:
    """The action written as `text`. Raises ValueError for an invalid one."""
    text = text.strip() if isinstance(text, str) else repr(text)
    if two := _TWO.fullmatch(text):
        return overlap(*(parse(part) for part in two.groups()))
    if one := _ONE.fullmatch(text):
        stage, kind, microbatch = one.groups()
        return Action(int(stage), kind, int(microbatch))
    raise ValueError(
        f"{text[:40]!r} is not an action: write stage, F, B, I or W, and microbatch, as in 2F0."
    )
