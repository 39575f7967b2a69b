"""Predict, then look: a number that its reader commits to before the result opens.

    messages = predict("messages of a ring all-reduce, 4 ranks", ..., "messages")
    messages.compare(24)

The reader types a number in place of `...`. It bears the time at which it was made. `compare` opens
the result: from then on the number is frozen. Without a number `compare` withholds the result, so
that running all cells spoils nothing: it opens as soon as a number is typed, or by a button. A
number typed after that is a second attempt, and counted as one. How far off a prediction was is
stated as a factor, max(predicted/measured, measured/predicted): 1 is right, 2 is off by two either
way. Where a misconception is known that leads to the number (questions/), it is named.

Predictions outlast the kernel: a file beside the notebook holds them (prediction_file.py). Without
that file nothing is withheld.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Integral, Real
from statistics import median
from types import EllipsisType
from typing import Any

from dlviz.grading.predictions import prediction_file
from dlviz.grading.questions import RIGHT, behind

ASK = "type your number in place of ... and run the cell again"
WITHHELD = "the result waits for your number: type it in place of ... and run that cell again"
WIDTH = 88  # columns that a notebook shows without breaking words
NUMBERS = {"value": "made", "measured": "opened", "second": "second_made"}  # each with its time
_made: dict[str, Prediction] = {}


@dataclass
class Prediction:
    """One number somebody committed to: None until it was typed, as `measured` is until the result
    was opened. `second`: the first number typed after that. `withheld`: the result, as long as it
    waits for a number; `shown_by`: what updates its place in a notebook when it opens."""

    question: str
    unit: str = ""
    value: float | None = None
    made: datetime | None = None
    measured: float | None = None
    opened: datetime | None = None
    second: float | None = None
    second_made: datetime | None = None
    withheld: float | None = None
    shown_by: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)

    def __repr__(self) -> str:
        if self.measured is None:
            lines = [f"{self.question}: {self._unopened()}"]
        else:
            parts = [f"measured {shown(self.measured, self.unit)}"]
            if self.value is None:
                parts.append("nothing was predicted")
            else:
                parts = [f"{self._predicted()}, {parts[0]}", self._error(self.value)]
            if self.second is not None:
                again = f"second attempt: {shown(self.second, self.unit)}"
                parts.append(f"{again}, {self._error(self.second)}")
            lines = [f"{self.question}: {'; '.join(parts)}", self.misconception]
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines if line
        )

    def _ipython_display_(self) -> None:
        """Show a withheld result's button; whatever else there is to show is the repr."""
        if self.withheld is None:
            raise NotImplementedError  # as IPython asks for the repr
        from dlviz.grading.predictions.withheld import show

        show(self.__repr__, self.open, self.shown_by.append)

    def _unopened(self) -> str:
        if self.value is not None:
            return self._predicted()
        return ASK if self.withheld is None else WITHHELD

    def _predicted(self) -> str:
        assert self.value is not None and self.made is not None
        return f"predicted {shown(self.value, self.unit)} at {_clock(self.made)}"

    @property
    def counts(self) -> bool:
        """Whether it was made before its result was opened, and that is open now."""
        return self.value is not None and self.measured is not None

    @property
    def factor(self) -> float:
        """How far off: 1 is right."""
        return factor(self.value, self.measured)

    @property
    def misconception(self) -> str:
        """What may have led to the number, in a sentence; empty where nothing is known."""
        if self.value is None or self.measured is None:
            return ""
        return behind(self.question, self.value, self.measured)

    def _error(self, given: float) -> str:
        off = factor(given, self.measured)
        if math.isinf(off):
            return f"off by {shown(abs(given - (self.measured or 0)), self.unit)}"
        if off < 1.005:
            return "right" if off == 1 else "right within 1 %"
        return f"off by a factor of {off:.2f}"

    def compare(self, measured: float) -> Prediction:
        """Open the result, which freezes the prediction; without one withhold it."""
        result = _number("measured", measured)
        if self.value is None and self.measured is None and prediction_file.file is not None:
            self.withheld = result
        else:
            self._open(result)
        return self

    def open(self) -> None:
        """Open a withheld result."""
        if self.withheld is not None:
            self._open(self.withheld)

    def _open(self, result: float) -> None:
        self.measured, self.withheld = result, None
        self.opened = self.opened or _now()
        _store(self)
        for update in self.shown_by:
            update()
        self.shown_by.clear()

    def _answer(self, number: float) -> None:
        """Somebody typed `number`: the prediction until its result opens, which a withheld one does
        with it; then the second attempt, which is frozen as the first one is."""
        if self.measured is None:
            if number != self.value:
                self.value, self.made = number, _now()
                _store(self)
            self.open()
        elif self.second is None and number != self.value:
            self.second, self.second_made = number, _now()
            _store(self)


def predict(question: str, value: float | EllipsisType, unit: str = "") -> Prediction:
    """Commit to `value` as the answer to `question`, in `unit`. `...` is no answer yet.

    Asked again after its result was opened, it answers with what was predicted then, and takes
    another number as a second attempt.
    """
    number = None if value is ... else _number("value", value)
    if question not in _made:
        record = prediction_file.read().get(question, {})
        _made[question] = restored(question, record) or Prediction(question)
    asked = _made[question]
    asked.unit = unit
    if number is not None:
        asked._answer(number)
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
    if again := [each for each in _made.values() if each.second is not None]:
        right = sum(factor(each.second, each.measured) <= RIGHT for each in again)
        lines.append(f"Second attempts: {len(again)}, of which {right} right.")
    if waiting := sum(each.withheld is not None for each in _made.values()):
        lines.append(f"Results that wait for your number: {waiting}.")
    return "\n".join(lines) or "no prediction was compared yet"


def everything() -> list[Prediction]:
    """What this notebook asked, and what the other notebooks of its folder keep."""
    others = (restored(*each) for each in prediction_file.read().items() if each[0] not in _made)
    return [*_made.values(), *filter(None, others)]


def shown(value: float, unit: str) -> str:
    """A number with its unit, to four digits where it is no whole number."""
    exact = float(value).is_integer() and abs(value) < 1e15
    return f"{value:,.0f} {unit}".rstrip() if exact else f"{value:,.4g} {unit}".rstrip()


def restored(question: str, record: dict[str, Any]) -> Prediction | None:
    """What a file keeps of the question; None where somebody edited it."""
    try:
        if record.pop("late", False):  # as files of before kept a second attempt without a first
            record |= {"second": record["value"], "second_made": record["made"]}
            record |= {"value": None, "made": None}
        made = Prediction(question, str(record["unit"]))
        for number, time in NUMBERS.items():
            if (record.get(number) is None) != (record.get(time) is None):
                return None
            if record.get(number) is not None:
                setattr(made, number, _number(number, record[number]))
                setattr(made, time, datetime.fromisoformat(record[time]))
        return made
    except (KeyError, TypeError, ValueError):
        return None


def record_of(prediction: Prediction) -> dict[str, Any]:
    """What a file keeps of it: JSON values alone."""
    record: dict[str, Any] = {"unit": prediction.unit}
    for number, time in NUMBERS.items():
        when = getattr(prediction, time)
        record |= {number: getattr(prediction, number), time: when and when.isoformat()}
    return record


def _store(prediction: Prediction) -> None:
    prediction_file.write({prediction.question: record_of(prediction)})


def factor(given: float | None, measured: float | None) -> float:
    """How far apart the two are: 1 is right. Infinite where one of them is 0 or their signs differ;
    NaN as long as one is missing."""
    if given is None or measured is None:
        return math.nan
    if given == measured:
        return 1.0
    if not given or not measured or (given < 0) != (measured < 0):
        return math.inf
    return max(given / measured, measured / given)


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
