"""The notebooks' questions: each with its answer, and the misconceptions behind wrong guesses.

The questions of a lab or an assignment are in one file here, in the notebook's order:

    [[question]]
    id = "ring-messages"                             # what tests name
    asks = "messages of a ring all-reduce, 4 ranks"  # what the notebook passes to predict
    unit = "messages"
    answer = 24
    within = 0.02      # where it is measured: how far off a run may be, relative to the answer
    range = [20, 28]   # where machines differ by more: what they show
    they_say = "12 (the reduce-scatter alone), 6 (the rounds)."   # the lecturers' page
    ask = "how often does one chunk travel?"
    wrong = [
        [12, "12 counts the reduce-scatter alone: the all-gather sends as many again."],
        [["1.6x", inf], "That is more messages than there are."],
    ]

A wrong guess is a number, matched within 1 %, or a range of two ends. An end is a number, "1.6x"
for 1.6 times the measured value, or a list of such ends, of which the greatest counts. The first
guess that matches a prediction is named, unless the prediction is right (within 4 %: the labs'
measured times scatter by that much).

A lecturer's own files are in a folder `questions` beside the notebook: its `00.toml` is read
instead of the one here. If it cannot be used, a warning says why, and the one here is used.
"""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

RIGHT = 1.04  # a factor up to this one is right
PACKAGE = Path(__file__).parent
own = Path("questions").absolute()


@dataclass(frozen=True)
class Question:
    """One question. `wrong` holds the file's (guess, sentence) pairs."""

    id: str
    asks: str
    answer: float
    wrong: list[Any]
    unit: str = ""
    within: float = 0
    range: list[Any] | tuple[()] = ()
    they_say: str = ""
    ask: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "asks", "unit", "they_say", "ask"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"`{name}` is not text: put it in quotes.")
        if not _is_number(self.answer) or math.isinf(self.answer):
            raise ValueError(f"the answer {self.answer!r} is not a number: write what is measured.")
        if not _is_number(self.within) or not 0 <= self.within < 1:
            raise ValueError(f"`within` is {self.within!r}: write 0.02 for 2 %.")
        if self.range and not (_is_range(self.range, 1) and all(map(_is_number, self.range))):
            raise ValueError(f"{self.range!r} is not a range: write [smallest, largest].")
        if not isinstance(self.wrong, list):
            raise ValueError('`wrong` is not a list: write [[12, "a sentence"], ...].')
        for each in self.wrong:
            self._check(each)

    def _check(self, wrong: Any) -> None:
        if not (isinstance(wrong, list) and len(wrong) == 2 and isinstance(wrong[1], str)):
            raise ValueError(f'{wrong!r} is not a wrong guess: write [guess, "a sentence"].')
        guess, _ = wrong
        if not (_is_number(guess) or _is_range(guess, self.answer)):
            raise ValueError(f"the guess {guess!r} is neither a number nor [smaller, larger].")
        off = abs(self.within * self.answer)
        shown = [(self.answer - off, self.answer + off), *((end, end) for end in self.range)]
        for least, most in shown:
            lower, upper = _span(guess, (least + most) / 2)
            if lower <= most and least <= upper:
                raise ValueError(
                    f"the guess {guess!r} includes the measured value, {least:g} to {most:g}: "
                    "write a narrower one."
                )

    @property
    def example(self) -> float:
        """A guess that the first sentence is about; stored labs show it."""
        least, most = _span(self.wrong[0][0], self.answer)
        return float(f"{(least + most) / 2 if most < math.inf else 1.25 * least:.3g}")

    def behind(self, predicted: float, measured: float) -> str:
        """The sentence on the first wrong guess that matches `predicted`; empty if none does or
        it is right."""
        if predicted == measured or 0 < predicted <= RIGHT * measured <= RIGHT**2 * predicted:
            return ""
        for guess, sentence in self.wrong:
            lower, upper = _span(guess, measured)
            if lower <= predicted <= upper:
                return sentence
        return ""


def by_lab() -> dict[str, tuple[Question, ...]]:
    """The questions of each lab and assignment, by the name of its file: "00", "ddp"."""
    return _read(own)


def behind(question: str, predicted: float, measured: float) -> str:
    """The misconception that leads to `predicted`, a sentence; empty if none is known or the
    prediction is right."""
    _, known = _by_text(own).get(question, ("", None))
    return known.behind(predicted, measured) if known else ""


def lab_of(question: str) -> str:
    """The lab or assignment that asks it: "00", "ring_all_reduce"; empty for any other question."""
    return _by_text(own).get(question, ("", None))[0]


def load(path: Path) -> tuple[Question, ...]:
    """The questions of a file. Raises OSError if it cannot be read; ValueError for a mistake,
    which names the file, the question and what to change."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("question")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not TOML: {error}.") from None
    if not (isinstance(entries, list) and all(isinstance(each, dict) for each in entries)):
        raise ValueError(f"{path.name} holds no [[question]]: write one for each.")
    found: list[Question] = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(_question(entry, found))
        except ValueError as error:
            name = entry.get("id", f"number {number}")
            raise ValueError(f"{path.name}, question {name}: {error}") from None
    return tuple(found)


def _question(entry: dict[str, Any], others: list[Question]) -> Question:
    known = {field.name: field.default is MISSING for field in fields(Question)}
    for name, needed in known.items():
        if needed and name not in entry:
            raise ValueError(f"it has no `{name}`: add it.")
    for name in entry:
        if name not in known:
            raise ValueError(f"`{name}` is not known: use {', '.join(known)}.")
    for name in ("id", "asks"):
        if any(entry[name] == getattr(other, name) for other in others):
            raise ValueError(f"its `{name}` is another question's too: change one of the two.")
    return Question(**entry)


@cache
def _read(own: Path) -> dict[str, tuple[Question, ...]]:
    found = {path.stem: load(path) for path in sorted(PACKAGE.glob("*.toml"))}
    for path in sorted(own.glob("*.toml")):
        try:
            found[path.stem] = load(path)
        except (OSError, ValueError) as error:
            warnings.warn(f"{path} is not used: {error}", RuntimeWarning, stacklevel=2)
    return found


@cache
def _by_text(own: Path) -> dict[str, tuple[str, Question]]:
    """Each question with its lab, by text; of two with the same text, the lecturer's."""
    mine = {path.stem for path in own.glob("*.toml")}
    labs = sorted(_read(own).items(), key=lambda each: each[0] in mine)
    return {each.asks: (lab, each) for lab, questions in labs for each in questions}


def _span(guess: Any, measured: float) -> tuple[float, float]:
    """The least and the greatest prediction that match a guess."""
    if isinstance(guess, list):
        return _end(guess[0], measured), _end(guess[1], measured)
    return 0.99 * guess, 1.01 * guess


def _end(end: Any, measured: float) -> float:
    if isinstance(end, list):
        return max(_end(each, measured) for each in end)
    return float(end[:-1]) * measured if isinstance(end, str) else end


def _is_range(guess: Any, measured: float) -> bool:
    if not (isinstance(guess, list) and len(guess) == 2 and all(map(_is_end, guess))):
        return False
    return _end(guess[0], measured) < _end(guess[1], measured)


def _is_end(end: Any) -> bool:
    if isinstance(end, list):
        return bool(end) and all(map(_is_end, end))
    return _is_number(end) or (isinstance(end, str) and bool(re.fullmatch(r"\d+(\.\d+)?x", end)))


def _is_number(value: Any) -> bool:
    """Whether arithmetic can use it: not a bool, not NaN, not an integer of 400 digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 or abs(value) == math.inf
