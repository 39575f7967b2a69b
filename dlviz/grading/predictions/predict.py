"""Predict, then look: a number that the reader commits to before the result is shown.

    messages = predict("messages of a ring all-reduce, 4 ranks", ..., "messages")
    messages.compare(24)                        # or, by a formula: compare(24, calculated=True)

The reader types a number in place of `...`, which is stored with the time. `compare` opens the
result and freezes the number. Without a number `compare` withholds the result, so that running all
cells spoils nothing: it opens as soon as a number is typed, or by a button. A number typed after
that counts as a second attempt. The error is a factor, max(predicted/measured, measured/predicted):
1 is right, 2 is twice or half the measured value. If a known misconception leads to the number
(questions/), it is named.

Predictions outlive the kernel in a file beside the notebook (prediction_file.py). Without that
file nothing is withheld.
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
WIDTH = 88  # columns of a notebook's output
NUMBERS = {
    "value": "made",
    "measured": "opened",
    "second": "second_made",
}  # each number with the name of its time
_made: dict[str, Prediction] = {}


@dataclass
class Prediction:
    """One prediction: `value` is None until a number is typed, `measured` until the result is
    opened. `second`: the first number typed after that. `withheld`: the result, while it waits
    for a number; `shown_by`: functions that update the notebook's output when it opens."""

    question: str
    unit: str = ""
    value: float | None = None
    made: datetime | None = None
    measured: float | None = None
    opened: datetime | None = None
    second: float | None = None
    second_made: datetime | None = None
    withheld: float | None = None
    calculated: bool = False  # whether a formula gave the result, and no run
    shown_by: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)

    def __repr__(self) -> str:
        if self.measured is None:
            lines = [f"{self.question}: {self._unopened()}"]
        else:
            how = "calculated" if self.calculated else "measured"
            parts = [f"{how} {shown(self.measured, self.unit)}"]
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
        """Show a withheld result's button; otherwise the repr is shown."""
        if self.withheld is None:
            raise NotImplementedError  # IPython then uses the repr
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
        """Whether it was made before its result was opened, and the result is open."""
        return self.value is not None and self.measured is not None

    @property
    def factor(self) -> float:
        """The factor by which it is off: 1 is right."""
        return factor(self.value, self.measured)

    @property
    def misconception(self) -> str:
        """The misconception that may have led to the number, a sentence; empty if none is known."""
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

    def compare(self, measured: float, *, calculated: bool = False) -> Prediction:
        """Open the result, which freezes the prediction; without a prediction withhold it. Say
        `calculated` of a result that a formula gave."""
        result, self.calculated = _number("measured", measured), calculated
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
        """Take a typed number: the prediction while the result is closed (a withheld result then
        opens), later the second attempt, which is frozen like the first."""
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

    Called again after the result was opened, it returns the earlier prediction, and takes
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
    """Each prediction with an open result, and their typical error: the median factor, which one
    wild guess does not move."""
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
    """The predictions of this notebook, and those stored by others in its folder."""
    others = (restored(*each) for each in prediction_file.read().items() if each[0] not in _made)
    return [*_made.values(), *filter(None, others)]


def shown(value: float, unit: str) -> str:
    """A number with its unit, to four digits unless it is whole."""
    exact = float(value).is_integer() and abs(value) < 1e15
    return f"{value:,.0f} {unit}".rstrip() if exact else f"{value:,.4g} {unit}".rstrip()


def restored(question: str, record: dict[str, Any]) -> Prediction | None:
    """The prediction in a file's record; None if the record was edited."""
    try:
        if record.pop("late", False):  # how older files stored a second attempt without a first
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
    """A prediction's record in the file, JSON values only."""
    record: dict[str, Any] = {"unit": prediction.unit}
    for number, time in NUMBERS.items():
        when = getattr(prediction, time)
        record |= {number: getattr(prediction, number), time: when and when.isoformat()}
    return record


def _store(prediction: Prediction) -> None:
    prediction_file.write({prediction.question: record_of(prediction)})


def factor(given: float | None, measured: float | None) -> float:
    """The factor between the two: 1 is right. Infinite if one of them is 0 or their signs
    differ; NaN while one is missing."""
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
        raise ValueError(f"{name}={value!r} is not a number: write the one that you expect.")
    return int(value) if isinstance(value, Integral) else number


def _now() -> datetime:
    return datetime.now().astimezone().replace(microsecond=0)


def _clock(when: datetime) -> str:
    when = when.astimezone()
    today = when.date() == _now().date()
    return f"{when:%H:%M:%S}" if today else f"{when:%H:%M on %d %B %Y}"
