"""Predict, then look: a number that its reader commits to before the result opens.

A prediction bears the time at which it was made. `compare` opens the result: from then on the
number is frozen, and running its cell again with another one changes nothing. How far off it was
is stated as a factor, max(predicted/measured, measured/predicted): 1 is right, 2 is off by two
either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Real
from statistics import geometric_mean

_made: dict[str, Prediction] = {}


@dataclass
class Prediction:
    """One number somebody committed to. `measured` is None until `compare` opens the result."""

    question: str
    value: float
    unit: str = ""
    made: datetime = field(default_factory=datetime.now)
    measured: float | None = None

    def __repr__(self) -> str:
        said = f"predicted {self._show(self.value)} at {self.made:%H:%M:%S}"
        if self.measured is None:
            return f"{self.question}: {said}"
        return f"{self.question}: {said}, measured {self._show(self.measured)}; {self._gap()}"

    def _show(self, value: float) -> str:
        return f"{value:.4g} {self.unit}".rstrip()

    @property
    def factor(self) -> float:
        """How far off: 1 is right. Infinite where one of the two is 0 or their signs differ."""
        measured = math.nan if self.measured is None else self.measured
        if self.value == measured:
            return 1.0
        if self.value * measured <= 0:
            return math.inf
        return max(self.value / measured, measured / self.value)

    def _gap(self) -> str:
        if math.isinf(self.factor):
            return f"off by {self._show(abs(self.value - (self.measured or 0.0)))}"
        return "right" if self.factor == 1 else f"off by a factor of {self.factor:.2f}"

    def compare(self, measured: float) -> Prediction:
        """Open the result. The prediction is frozen with it."""
        self.measured = _number("measured", measured)
        return self


def predict(question: str, value: float, unit: str = "") -> Prediction:
    """Commit to `value` as the answer to `question`, in `unit`.

    Asked again after its result was opened, it answers with what was predicted then.
    """
    before = _made.get(question)
    if before is not None and before.measured is not None:
        return before
    _made[question] = Prediction(question, _number("value", value), unit)
    return _made[question]


def calibration() -> str:
    """Every prediction of this session whose result was opened, and their typical error factor."""
    opened = [each for each in _made.values() if each.measured is not None]
    lines = [repr(each) for each in opened]
    factors = [each.factor for each in opened if math.isfinite(each.factor)]
    if factors:
        lines.append(f"typically off by a factor of {geometric_mean(factors):.2f}")
    return "\n".join(lines) or "no prediction was compared yet"


def _number(name: str, value: float) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name}={value!r} is no number: write down the one that you expect.")
    return value
