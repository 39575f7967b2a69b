"""What an explorer's reader moves, each described once: its trait, its input, its words, its keys.

    controls = (
        Slider("ranks", "ranks", 8, values=range(1, 65), keys=("← →", "fewer, more")),
        (Choice("topology", "on", "ring", options={"ring": "a ring"}), Field("beta", "β", 1e-9)),
    )

Controls in a tuple of their own stand together. `Explorer` makes the traits, and
static/shared/form.js makes the inputs and their keys of what `described` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A control that the explorer's own picture sets: `name` is its trait and keyword, `label` what
    an error calls it, `first` its value at first."""

    name: str
    label: str
    first: Any

    def check(self, value: Any) -> None:
        """Raises ValueError for a value that the control cannot have, whatever the others have."""

    def described(self) -> dict[str, Any]:
        """The control as the front end reads it."""
        return {**vars(self), "kind": type(self).__name__}


@dataclass(frozen=True)
class Input(Setting):
    """A control with an input of its own. `panel` names where it stands, "" being the toolbar; it
    is shown where the control `where[0]` has the value `where[1]`; `keys` are the keys that move it
    and what they do: "← →", "↑ ↓", or a letter for the next value."""

    _: KW_ONLY
    panel: str = ""
    where: tuple[str, Any] | None = None
    keys: tuple[str, str] | None = None


@dataclass(frozen=True)
class Choice(Input):
    """One of a few values: value -> words, or values that are their own words; none where the
    explorer has them (`described`) and checks them."""

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
    """A slider over `values`. `unit` is how a value is written, "number", "bytes" or "percent";
    `says` and `short` put that in a sentence for those who listen and beside the slider, "{}" being
    its place; `words` has both for values that are no amount. A `typed` slider has a field
    for other values, in the unit that it names."""

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
    """A field for a number, of whose `unit` there are `per` in one of the trait's."""

    unit: str = ""
    per: float = 1


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Raises ValueError for a value that is not among those known; True and 1 are two."""
    known = [*known]
    if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in known):
        raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(map(str, known))}.")


def whole(name: str, value: Any, least: int, most: int, label: str = "") -> None:
    """Raises ValueError for what is no whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        called = f" ({label})" if label else ""
        law = f"has to be a whole number from {least} to {most}"
        raise ValueError(f"{name}={value!r}{called} {law}.")
