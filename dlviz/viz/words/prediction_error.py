"""The prediction error of a run in words: `analysis.prediction_error` has the numbers."""

from __future__ import annotations

import textwrap

from dlviz.analysis.prediction_error import PredictionError, Side
from dlviz.schedules.action import CODES
from dlviz.trace import Table
from dlviz.trace.trace import TOLERANCE
from dlviz.viz.words import text

BESIDE = 106  # characters of a subtitle's line, which begins right of the rows' names


def sentence(found: PredictionError, sides: tuple[Side, Side]) -> list[str]:
    """The prediction error in a sentence, in lines."""
    whole = sides[0].makespan
    share = f" ({abs(found.seconds) / whole:.1%})" if whole else ""
    takes = (
        f"{_longer(found.seconds)}{share} than" if abs(found.seconds) >= TOLERANCE else "as long as"
    )
    return _wrapped(f"The measured step takes {takes} the predicted one.")


def causes(found: PredictionError, sides: tuple[Side, Side]) -> list[str]:
    """What the prediction error is made of, in a sentence, in lines."""
    words = (
        f"On the measured critical path the actions take {_longer(found.lasted)} and the waits "
        f"take {_longer(found.waited)}"
    )
    if abs(found.most) >= TOLERANCE:
        words += f"; {action(sides[1].spans, found.worst)} differs most ({_longer(found.most)})"
    return _wrapped(f"{words}.")


def _longer(seconds: float) -> str:
    if abs(seconds) < TOLERANCE:
        return "as long"
    return f"{text.seconds(abs(seconds))} {'longer' if seconds > 0 else 'less'}"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, BESIDE, break_on_hyphens=False)


def action(spans: Table, row: int) -> str:
    """An action in words: 2B3 on rank 2."""
    kind = spans.kind[row]
    stage, microbatch = int(spans.stage[row]), int(spans.microbatch[row])
    short = f"{stage if stage >= 0 else ''}{CODES[kind]}{microbatch if microbatch >= 0 else ''}"
    return f"{short} on rank {spans.rank[row]}"


def named(step: int | None, asked: int | None) -> str:
    """Words that name the step drawn, of several."""
    if step is None:
        return ""
    return f", step {step}" + (" (of median length)" if asked is None else "")
