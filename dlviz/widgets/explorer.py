"""What explorers have in common: controls that a reader moves, and a picture that follows them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from dlviz.trace import Trace
from dlviz.widgets.running import Runner, sentence
from dlviz.widgets.view import compact, dressed


class Explorer(Runner):
    """A widget whose `controls` are traits of its own; `_now` are their values that are shown.

    A subclass says which values cannot be (`check`), what others come to (`moved`, which keeps them
    in `_now`) and what its front end draws (`told`, with a "title"), and has a still picture
    (`picture`); what `told` needs is there before it calls `__init__`. A value that cannot be is
    told in the widget and changes nothing else.
    """

    controls: ClassVar[tuple[str, ...]] = ()

    def __init__(self, trace: Trace, values: dict[str, Any], theme: str):
        self._trace = trace  # all that the widget shows bears its name
        self._now = values
        self._error = ""
        self._answers = 0
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

    def show(self) -> None:
        self._answers += 1
        self._show()

    def kept(self) -> dict[str, Any]:
        return {**super().kept(), **{name: self._now[name] for name in self.controls}}

    def _changed(self, change: Any) -> None:
        values = {name: getattr(self, name) for name in self.controls}
        if values == self._now and not self._error:
            return
        try:
            self.check(values)
            self._error = ""
            if values != self._now:
                self.moved(values)
        except ValueError as error:
            self._error = sentence(error)
        self.show()

    def _show(self) -> None:
        """Have the front end draw what there is now, which may be no answer to a question."""
        self.state = compact(dressed(self._trace, self._state()))

    def _state(self) -> dict[str, Any]:
        answered = {"controls": self._now, "error": self._error, "answer": self._answers}
        return {**self.told(), **answered}
