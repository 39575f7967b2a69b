"""The last runs of an explorer: one of each choice, the newest last."""

from __future__ import annotations

from typing import Any

import pytest

from dlviz.trace import Trace
from dlviz.widgets.control import Setting
from dlviz.widgets.recording import MOST, Recording

TRACE = Trace()


class Halves(Recording):
    """Runs `number`, and finds half of it; the sign does not matter to a run."""

    module = "scaling/index"
    controls = (Setting("number", "number", 0),)

    def check(self, values: dict[str, Any]) -> None:
        if values["number"] is None:
            raise ValueError("number=None is no number.")

    def choice(self, values: dict[str, Any]) -> int:
        return abs(values["number"])

    def work(self):
        def run(values, progress):
            if values["number"] == 13:
                raise RuntimeError("13 cannot be run")
            return {"half": values["number"] / 2}, TRACE

        return self.recording(dict(self._now), run)

    def payload(self) -> dict[str, Any]:
        return {"title": "Halves", "run": self._run or self.run_of(self._now).get("run")}


@pytest.fixture
def explorer():
    return Halves()


def run_each(explorer: Halves, *numbers: int) -> list[int]:
    for number in numbers:
        explorer.number = number
        explorer.run()
    return [one["number"] for one in explorer.recorded]


def test_a_choice_that_is_run_again_takes_the_place_of_its_former_run_as_the_newest(explorer):
    assert run_each(explorer, 1, 2, 3, -2) == [1, 3, -2]
    assert explorer.run_of({"number": 2})["run"] == {"half": -1.0}


def test_the_last_runs_are_stored_and_no_more(explorer):
    assert run_each(explorer, *range(1, MOST + 3)) == [*range(3, MOST + 3)]
    assert explorer.run_of({"number": 2}) == {}


def test_other_controls_drop_what_was_measured_and_a_run_of_theirs_is_shown_again(explorer):
    run_each(explorer, 4, 6)
    assert explorer.measured is TRACE
    explorer.number = 5
    assert explorer.measured is None and explorer.payload()["run"] is None
    explorer.number = 4
    assert explorer.measured is None and explorer.payload()["run"] == {"half": 2.0}


def test_a_run_that_fails_is_not_among_them(explorer):
    assert run_each(explorer, 1, 13) == [1]
    assert explorer.payload()["run"] == {"error": "13 cannot be run"}
