"""What explorers have in common: controls that a reader moves, and a picture that follows them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from dlviz.trace import Trace
from dlviz.widgets.requests import Answer, sentence
from dlviz.widgets.running import Runner
from dlviz.widgets.view import compact, dressed


class Explorer(Runner):
    """A widget whose `controls` are traits of its own; `_now` are their values that are shown.

    A subclass says which values cannot be (`check`), what others come to (`moved`, which keeps them
    in `_now`), what a run depends on of them (`choice`) and what its front end draws (`told`, with
    a "title"), and has a still picture (`picture`); what `told` needs is there before it calls
    `__init__`. Where something takes longer `moved` leaves it to `settle` and sets `_settled` to
    False. A value that cannot be is told in the widget and changes nothing else, but that a run
    that is under way ends, as it does at every other change of what it depends on.
    """

    controls: ClassVar[tuple[str, ...]] = ()

    _settled = True

    def __init__(self, trace: Trace, values: dict[str, Any], theme: str):
        self._trace = trace  # all that the widget shows bears its name
        self._now = values
        self._error = ""
        super().__init__(trace, self._state(), theme)
        with self.hold_trait_notifications():
            for name, value in values.items():
                setattr(self, name, value)
        self.observe(self._changed, [*self.controls])

    @abstractmethod
    def check(self, values: dict[str, Any]) -> None:
        """Raises ValueError for values that cannot be."""

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """All that the front end draws of `_now`."""

    def moved(self, values: dict[str, Any]) -> None:
        """Go on with other values, which can be."""
        self._now = values

    def choice(self, values: dict[str, Any]) -> Any:
        """What a run depends on."""
        return values

    def settle(self) -> None:
        """Show what takes longer, unless it is shown. A front end asks once the reader pauses."""

    def show(self) -> None:
        self.state = compact(dressed(self._trace, self._state()))

    def ahead(self, name: str, pictures: dict[Any, Any]) -> Answer:
        """What tells `pictures`, by the values of the control `name`, before they are chosen."""
        of = {**self._now, name: None}
        return {"ahead": {"of": of, "ran": self._ran, "name": name, "pictures": pictures}}

    def requests(self) -> dict[str, Callable[..., Answer]]:
        return {**super().requests(), "change": self._change, "settle": self.settle}

    def kept(self) -> dict[str, Any]:
        return {**super().kept(), **{name: self._now[name] for name in self.controls}}

    def _change(self, values: dict[str, Any]) -> Answer:
        """Set controls as a front end asks, and say what is wrong with them."""
        with self.hold_sync(), self.hold_trait_notifications():
            for name, value in values.items():
                self.set_trait(name, value)
        return {"error": self._error} if self._error else None

    def _changed(self, change: Any) -> None:
        values = {name: getattr(self, name) for name in self.controls}
        if values == self._now and not self._error:
            return
        try:
            self.check(values)
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
        return {**self.told(), **shown}
