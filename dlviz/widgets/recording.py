"""Explorers that store their last runs, each with its controls, and show them again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from dlviz.trace import Trace
from dlviz.widgets.explorer import Explorer
from dlviz.widgets.running import Found, Progress

MOST = 8  # runs


class Recording(Explorer):
    """An Explorer whose last runs can be shown again; one run of each choice is stored.

    A subclass starts each run through `recording` and names its controls (`label`). It says which
    controls make a choice (`choice`) where some do not matter, and what is stored of a run
    (`record`) where that is more than the front end shows.
    """

    def begin(self) -> None:
        self._runs: list[dict[str, Any]] = []  # the last of each choice, the newest last

    @property
    def measured(self) -> Trace | None:
        """The Trace of the last run; None where no run has the present controls."""
        return self._measured

    @property
    def recorded(self) -> list[dict[str, Any]]:
        """The controls of each run."""
        return [one["controls"] for one in self._runs]

    @abstractmethod
    def label(self, values: dict[str, Any]) -> str:
        """The name of a run with these controls."""

    def payload(self) -> dict[str, Any]:
        return {"recorded": [{"controls": one, "words": self.label(one)} for one in self.recorded]}

    def record(self, values: dict[str, Any], found: dict[str, Any], trace: Trace) -> dict[str, Any]:
        """What is stored of a run, with its "controls"."""
        return {"controls": values, "run": found}

    def recording(
        self, values: dict[str, Any], run: Callable[[dict[str, Any], Progress], Found]
    ) -> Callable[[Progress], Found]:
        """A run with these controls, which then stores its record."""

        def recorded(progress: Progress) -> Found:
            found, trace = run(values, progress)
            others = [one for one in self._runs if not self._alike(one["controls"], values)]
            self._runs = [*others, self.record(values, found, trace)][-MOST:]
            return found, trace

        return recorded

    def run_of(self, values: dict[str, Any]) -> dict[str, Any]:
        """The record of a run with these controls; {} where there is none."""
        return next((one for one in self._runs if self._alike(one["controls"], values)), {})

    def _alike(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        return self.choice(one) == self.choice(other)
