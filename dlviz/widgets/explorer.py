"""What explorers have in common: controls that a reader moves, and a picture that follows them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any, ClassVar

import traitlets

from dlviz.trace import Trace
from dlviz.widgets.control import Input, Setting
from dlviz.widgets.requests import Answer, sentence
from dlviz.widgets.running import Runner
from dlviz.widgets.view import compact, dressed

Controls = tuple[Setting | tuple[Setting, ...], ...]


class Explorer(Runner):
    """A widget whose `controls` are its traits and keywords; `_now` holds the values shown. `names`
    is their order as positional arguments, by default that of the toolbar.

    A subclass rejects values that do not go together (`check`), applies new ones (`moved`, which
    puts them into `_now`), says which of them a run depends on (`choice`) and what its front end
    draws (`payload`, with a "title"), and has a still picture (`picture`); `begin` makes what
    `payload` needs. `moved` leaves what takes longer to `settle` and sets `_settled` to False. An
    invalid value shows an error in the widget and changes nothing, except that it ends a run in
    progress, as every change of what the run depends on does.
    """

    controls: ClassVar[Controls] = ()
    names: ClassVar[tuple[str, ...]] = ()
    former: ClassVar[Mapping[str, str]] = {}  # names that controls had, which warn, and their names

    _settled = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "controls" not in cls.__dict__:
            return
        every = {control.name: control for control in flat(cls.controls)}
        cls.names = cls.__dict__.get("names", tuple(every))
        for control in flat(cls.controls):
            trait = traitlets.Any(control.first).tag(sync=True)
            setattr(cls, control.name, trait)
            trait.class_init(cls, control.name)
        for old, name in cls.former.items():
            setattr(cls, old, former_name(old, name))
        kind, alone = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        given = [Parameter(name, kind, default=every[name].first) for name in cls.names]
        cls.__signature__ = Signature([*given, Parameter("theme", alone, default="auto")])

    def __init__(self, *given: Any, theme: str = "auto", **values: Any):
        name = type(self).__name__
        if len(given) > len(self.names):
            raise TypeError(f"{name} has {len(self.names)} controls, and {len(given)} were given.")
        for old in self.former.keys() & values.keys():
            if self.former[old] in values:
                raise TypeError(f"{name} was given two values of {self.former[old]!r}.")
            warn_of(self, old)
            values[self.former[old]] = values.pop(old)
        now = {control.name: control.first for control in flat(self.controls)}
        for control, value in [*zip(self.names, given, strict=False), *values.items()]:
            if control not in now:
                raise TypeError(f"{name} has no {control!r}.")
            if control in values and control in self.names[: len(given)]:
                raise TypeError(f"{name} was given two values of {control!r}.")
            now[control] = value
        self._error = ""
        self._trace = Trace()  # all that the widget shows carries its identity
        self._now = self.taken(now)
        self._check(self._now)
        self.begin()
        super().__init__(self._trace, self._state(), theme)
        with self.hold_trait_notifications():
            for control, value in self._now.items():
                setattr(self, control, value)
        self.observe(self._changed, [*self.names])

    def taken(self, values: dict[str, Any]) -> dict[str, Any]:
        """The first values as the controls hold them."""
        return values

    def check(self, values: dict[str, Any]) -> None:
        """Raises ValueError for values that are valid alone and invalid together."""

    def begin(self) -> None:
        """Make what `payload` needs from the first values."""

    @abstractmethod
    def payload(self) -> dict[str, Any]:
        """All that the front end draws for `_now`."""

    def described(self) -> list[list[dict[str, Any]]]:
        """The inputs in their groups, as the front end reads them."""
        groups = [one if isinstance(one, tuple) else (one,) for one in self.controls]
        inputs = [[one.described() for one in own if isinstance(one, Input)] for own in groups]
        return [own for own in inputs if own]

    def moved(self, values: dict[str, Any]) -> None:
        """Apply other values, which are valid."""
        self._now = values

    def choice(self, values: dict[str, Any]) -> Any:
        """What a run depends on."""
        return values

    def settle(self) -> None:
        """Show what takes longer, unless it is shown. Front ends ask once the reader pauses."""

    def pages(self) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
        """What a page without a kernel shows for other controls: some of their values, and what
        these change in the payload."""
        return ()

    @property
    def paper(self) -> str:
        """The theme of the still picture."""
        return "dark" if self.theme == "dark" else "light"

    def show(self) -> None:
        self.state = compact(dressed(self._trace, self._state()))

    def ahead(self, name: str, pictures: dict[Any, Any]) -> Answer:
        """`pictures` by value of the control `name`, sent before a value is chosen."""
        of = {**self._now, name: None}
        return {"ahead": {"of": of, "ran": self._ran, "name": name, "pictures": pictures}}

    def requests(self) -> dict[str, Callable[..., Answer]]:
        return {**super().requests(), "change": self._change, "settle": self.settle}

    def saved_state(self) -> dict[str, Any]:
        self.settle()
        pages = [{"controls": some, "state": new} for some, new in self.pages()]
        values = {name: self._now[name] for name in self.names}
        return {**super().saved_state(), **values, "pages": compact(pages)}

    def _change(self, values: dict[str, Any]) -> Answer:
        """Set controls as a front end asks; return the error, if there is one."""
        with self.hold_sync(), self.hold_trait_notifications():
            for name, value in values.items():
                self.set_trait(name, value)
        return {"error": self._error} if self._error else None

    def _check(self, values: dict[str, Any]) -> None:
        for control in flat(self.controls):
            control.check(values[control.name])
        self.check(values)

    def _changed(self, change: Any) -> None:
        values = {name: getattr(self, name) for name in self.names}
        if values == self._now and not self._error:
            return
        try:
            self._check(values)
            self._error = ""
            if values != self._now:
                before = self.choice(self._now)
                self.moved(values)
                if self.choice(self._now) != before:
                    self.forget()
        except ValueError as error:
            self._error = sentence(error)
            self.halt()
        self.show()

    def _state(self) -> dict[str, Any]:
        shown = {"controls": self._now, "error": self._error, "settled": self._settled}
        return {"form": self.described(), "ran": self._ran, **self.payload(), **shown}


def former_name(old: str, name: str) -> property:
    """A control by the name that it had."""

    def read(explorer: Explorer) -> Any:
        warn_of(explorer, old)
        return getattr(explorer, name)

    def write(explorer: Explorer, value: Any) -> None:
        warn_of(explorer, old)
        setattr(explorer, name, value)

    return property(read, write)


def warn_of(explorer: Explorer, old: str) -> None:
    """DeprecationWarning at the line that uses the name that a control had."""
    words = f"{old} of {type(explorer).__name__} is called {explorer.former[old]} now."
    warnings.warn(words, DeprecationWarning, stacklevel=3)


def flat(controls: Controls) -> Iterator[Setting]:
    """The controls of all groups."""
    for one in controls:
        yield from one if isinstance(one, tuple) else (one,)
