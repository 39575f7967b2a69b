"""Predict, then look: a number that its reader commits to before the result opens.

    messages = predict("messages of a ring all-reduce, 4 ranks", ..., "messages")
    messages.compare(24)

The reader types a number in place of `...`. It bears the time at which it was made. `compare` opens
the result: from then on the number is frozen, and running its cell again with another one changes
nothing. Without a number `compare` shows what was measured, and a number typed afterwards is kept
as that and not counted. How far off a prediction was is stated as a factor,
max(predicted/measured, measured/predicted): 1 is right, 2 is off by two either way. Where a
misconception is known that leads to the number (misconceptions.py), it is named.

Predictions outlast the kernel: they are kept beside the notebook (kept.py).
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from datetime import datetime
from numbers import Integral, Real
from statistics import median
from types import EllipsisType
from typing import Any

from dlviz.grading import kept
from dlviz.grading.misconceptions import behind

ASK = "type your number in place of ... and run the cell again"
WIDTH = 88  # columns that a notebook shows without breaking words
TIMES = ("made", "opened")
_made: dict[str, Prediction] = {}


@dataclass
class Prediction:
    """One number somebody committed to: None until it was typed, as `measured` is until `compare`
    opens the result. `late`: it was typed after that."""

    question: str
    unit: str = ""
    value: float | None = None
    made: datetime | None = None
    measured: float | None = None
    opened: datetime | None = None
    late: bool = False

    def __repr__(self) -> str:
        if self.value is None or self.made is None:
            told = ASK if self.measured is None else f"{self._measured()}; nothing was predicted"
        elif self.measured is None:
            told = f"predicted {shown(self.value, self.unit)} at {_clock(self.made)}"
        elif self.late:
            given = shown(self.value, self.unit)
            told = f"{self._measured()}; the guess ({given}) came after the result: not counted"
        else:
            given = f"predicted {shown(self.value, self.unit)} at {_clock(self.made)}"
            told = f"{given}, {self._measured()}; {self._gap()}"
        lines = [f"{self.question}: {told}", self.misconception]
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines if line
        )

    def _measured(self) -> str:
        assert self.measured is not None
        return f"measured {shown(self.measured, self.unit)}"

    @property
    def counts(self) -> bool:
        """Whether it was made before its result was opened, and that is open now."""
        return self.value is not None and self.measured is not None and not self.late

    @property
    def factor(self) -> float:
        """How far off: 1 is right. Infinite where one of the two is 0 or their signs differ; NaN
        as long as one is missing."""
        if self.value is None or self.measured is None:
            return math.nan
        if self.value == self.measured:
            return 1.0
        if not self.value or not self.measured or (self.value < 0) != (self.measured < 0):
            return math.inf
        return max(self.value / self.measured, self.measured / self.value)

    @property
    def misconception(self) -> str:
        """What may have led to the number, in a sentence; empty where nothing is known."""
        if not self.counts or self.value is None or self.measured is None:
            return ""
        return behind(self.question, self.value, self.measured)

    def _gap(self) -> str:
        if math.isinf(self.factor):
            return f"off by {shown(abs((self.value or 0) - (self.measured or 0)), self.unit)}"
        if self.factor < 1.005:
            return "right" if self.factor == 1 else "right within 1 %"
        return f"off by a factor of {self.factor:.2f}"

    def compare(self, measured: float) -> Prediction:
        """Open the result. The prediction is frozen with it."""
        self.measured = _number("measured", measured)
        self.opened = self.opened or _now()
        _keep(self)
        return self


def predict(question: str, value: float | EllipsisType, unit: str = "") -> Prediction:
    """Commit to `value` as the answer to `question`, in `unit`. `...` is no answer yet.

    Asked again after its result was opened, it answers with what was predicted then.
    """
    number = None if value is ... else _number("value", value)
    if question not in _made:
        record = kept.read().get(question, {})
        _made[question] = _restored(question, record) or Prediction(question)
    asked = _made[question]
    asked.unit = unit
    frozen = asked.value is not None and asked.measured is not None
    if number is not None and number != asked.value and not frozen:
        asked.value, asked.made, asked.late = number, _now(), asked.measured is not None
        _keep(asked)
    return asked


def calibration() -> str:
    """Each prediction whose result was opened, and how far off they typically were: the median of
    their factors, which one wild guess does not move."""
    opened = [each for each in _made.values() if each.counts]
    lines = [repr(each) for each in opened]
    factors = [each.factor for each in opened if math.isfinite(each.factor)]
    if factors:
        lines.append(
            f"Typically off by a factor of {median(factors):.2f}: the median of {len(factors)}, so "
            "half of your\npredictions were as close or closer."
        )
    missed = [each for each in _made.values() if each.measured is not None and not each.counts]
    if missed:
        lines.append(f"Not counted: {len(missed)} without a prediction before the result.")
    return "\n".join(lines) or "no prediction was compared yet"


def everything() -> list[Prediction]:
    """What this notebook asked, and what the other notebooks of its folder keep."""
    others = (_restored(*each) for each in kept.read().items() if each[0] not in _made)
    return [*_made.values(), *filter(None, others)]


def shown(value: float, unit: str) -> str:
    """A number with its unit, to four digits where it is no whole number."""
    exact = float(value).is_integer() and abs(value) < 1e15
    return f"{value:,.0f} {unit}".rstrip() if exact else f"{value:,.4g} {unit}".rstrip()


def _restored(question: str, record: dict[str, Any]) -> Prediction | None:
    """What the file beside the notebook keeps of the question; None where somebody edited it."""
    try:
        times = [record[name] and datetime.fromisoformat(record[name]) for name in TIMES]
        numbers = [
            None if record[name] is None else _number(name, record[name])
            for name in ("value", "measured")
        ]
        if [each is None for each in times] != [each is None for each in numbers]:
            return None
        return Prediction(
            question, str(record["unit"]), *(numbers[0], times[0]), *(numbers[1], times[1]),
            late=bool(record["late"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _keep(prediction: Prediction) -> None:
    record: dict[str, Any] = {**vars(prediction)}
    for name in TIMES:
        record[name] = record[name] and record[name].isoformat()
    kept.write({record.pop("question"): record})


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        number = math.inf
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{name}={value!r} is no number: write down the one that you expect.")
    return int(value) if isinstance(value, Integral) else number


def _now() -> datetime:
    return datetime.now().astimezone().replace(microsecond=0)


def _clock(when: datetime) -> str:
    when = when.astimezone()
    today = when.date() == _now().date()
    return f"{when:%H:%M:%S}" if today else f"{when:%H:%M on %d %B %Y}"
