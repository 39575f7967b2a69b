"""The controls of an explorer, each described once: trait, input, words, keys.

    controls = (
        Slider("ranks", "ranks", 8, values=range(1, 65), keys=("← →", "fewer, more")),
        (Choice("topology", "on", "ring", options={"ring": "a ring"}), Field("beta", "β", 1e-9)),
    )

Controls in a tuple of their own form a group. `Explorer` makes the traits, and
static/shared/form.js makes inputs and keys from what `described` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A control that the explorer's own picture sets: `name` is its trait and keyword, `label` its
    name in errors, `first` its first value."""

    name: str
    label: str
    first: Any

    def check(self, value: Any) -> None:
        """Raises ValueError for a value that is invalid whatever the other controls are."""

    def described(self) -> dict[str, Any]:
        """The control as the front end reads it."""
        return {**vars(self), "kind": type(self).__name__}


@dataclass(frozen=True)
class Input(Setting):
    """A control with an input of its own in `panel` ("": the toolbar), shown while the control
    `where[0]` has the value `where[1]`. `keys` are the keyboard keys that move it and what they do:
    "← →", "↑ ↓", or a character for the next value."""

    _: KW_ONLY
    panel: str = ""
    where: tuple[str, Any] | None = None
    keys: tuple[str, str] | None = None


@dataclass(frozen=True)
class Choice(Input):
    """One of a few values. `options` maps values to words, or lists values that are their own
    words; it is empty where the explorer supplies them (`described`) and checks them."""

    options: Mapping[Any, str] | Sequence[Any] = ()

    def check(self, value: Any) -> None:
        if self.options:
            one_of(self.name, value, self.options)

    def described(self) -> dict[str, Any]:
        options = self.options
        words = options if isinstance(options, Mapping) else {one: str(one) for one in options}
        return {**super().described(), "options": [[*one] for one in words.items()]}


@dataclass(frozen=True)
class Slider(Input):
    """A slider over `values`, written as `unit`: "number", "bytes" or "percent". `says` (for screen
    readers) and `short` (beside the slider) hold the value at "{}"; `words` has both for values
    that are not amounts. `typed` names the unit of a field for other values."""

    values: Sequence[Any] = ()
    unit: str = "number"
    says: str = "{}"
    short: str = "{}"
    words: Mapping[Any, tuple[str, str]] | None = None
    typed: str = ""

    def described(self) -> dict[str, Any]:
        words = [[value, *both] for value, both in (self.words or {}).items()]
        return {**super().described(), "values": [*self.values], "words": words}


@dataclass(frozen=True)
class Field(Input):
    """A field for a number in `unit`, `per` of which are one of the trait's."""

    unit: str = ""
    per: float = 1


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Raises ValueError for a value that is not among `known`; True and 1 differ."""
    known = [*known]
    if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in known):
        raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(map(str, known))}.")


def whole(name: str, value: Any, least: int, most: int, label: str = "") -> None:
    """Raises ValueError unless the value is a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        called = f" ({label})" if label else ""
        law = f"has to be a whole number from {least} to {most}"
        raise ValueError(f"{name}={value!r}{called} {law}.")
