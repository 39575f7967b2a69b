"""ScheduleExplorer: choose a pipeline schedule and its size, see the bubble, run it, draw your own.

    schedule, p, m, v, F, B, I, W, latency, a slow stage; a second schedule beside it
        the timeline of both on one axis, what each gap waits for, the critical path
        the bubble over m        the activations in flight on every rank        a table of both
        Run it: the same on real ranks, paced; measured laid over predicted
        the schedule as CSV, in and out

Times are those of `dlviz.simulate`. The arithmetic is in pipelines.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.schedules import NAMES, Schedule
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.widgets.pipelines import (
    DRAWN,
    LOOPS,
    SIZES,
    chart,
    check,
    picture_of,
    predicted,
    sentence,
)
from dlviz.widgets.view import View, compact, dressed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROLS = (
    "schedule", "ranks", "microbatches", "chunks", "forward", "backward", "backward_input",
    "backward_weight", "latency", "slow_stage", "slow", "beside", "csv",
)  # fmt: skip


class ScheduleExplorer(View):
    """Choose a schedule, its size and its costs; see its timeline, bubble and memory; run it.

    `schedule` is one of `dlviz.schedules.NAMES`, or "drawn" for the one in `csv`; `beside` names a
    second one, "" none. `ranks`, `microbatches` and `chunks` are its size; `chunks`, None for the
    schedule's own, matters to those that take any. `forward`, `backward` (None: input + weight),
    `backward_input` and `backward_weight` are the seconds that one microbatch takes on a rank,
    which a rank with v stages shares among them; `latency` in s passes between ranks;
    `slow_stage` takes `slow` times as long. All may be set later on; a value that cannot be is told
    in the widget and changes nothing else. `run()` does what the button does. `trace` is what is
    predicted, `measured` the Trace of the last run, or None. Raises ValueError where a first value
    cannot be.
    """

    module = "schedules"

    schedule = traitlets.Any("1f1b").tag(sync=True)
    ranks = traitlets.Any(4).tag(sync=True)
    microbatches = traitlets.Any(8).tag(sync=True)
    chunks = traitlets.Any(None).tag(sync=True)
    forward = traitlets.Any(1.0).tag(sync=True)
    backward = traitlets.Any(None).tag(sync=True)
    backward_input = traitlets.Any(1.0).tag(sync=True)
    backward_weight = traitlets.Any(1.0).tag(sync=True)
    latency = traitlets.Any(0.0).tag(sync=True)
    slow_stage = traitlets.Any(None).tag(sync=True)
    slow = traitlets.Any(2.0).tag(sync=True)
    beside = traitlets.Any("").tag(sync=True)
    csv = traitlets.Any("").tag(sync=True)
    calm = traitlets.Unicode("{}").tag(sync=True)
    wanted = traitlets.Int(0).tag(sync=True)
    runs = traitlets.Int(0).tag(sync=True)
    live = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        schedule: str = "1f1b",
        ranks: int = 4,
        microbatches: int = 8,
        chunks: int | None = None,
        forward: float = 1.0,
        backward: float | None = None,
        backward_input: float = 1.0,
        backward_weight: float = 1.0,
        latency: float = 0.0,
        slow_stage: int | None = None,
        slow: float = 2.0,
        beside: str = "",
        csv: str = "",
        *,
        theme: str = "auto",
    ):
        values = (schedule, ranks, microbatches, chunks, forward, backward, backward_input,
                  backward_weight, latency, slow_stage, slow, beside, csv)  # fmt: skip
        self._now: dict[str, Any] = dict(zip(CONTROLS, values, strict=True))
        self._answers = self._ran = 0
        self._error = ""
        self._run: dict[str, Any] | None = None
        self._charted: dict[str, Any] = {}
        self.measured: Trace | None = None
        check(self._now)
        self._made, self.trace = predicted(schedule, self._now)
        super().__init__(self.trace, self._told(), theme)
        with self.hold_trait_notifications():
            for name, value in self._now.items():
                setattr(self, name, value)
        self.settle()
        self.observe(self._changed, [*CONTROLS])
        self.observe(lambda _: self.settle(), "wanted")
        self.observe(lambda _: self.run(), "runs")

    def settle(self) -> None:
        """Show what takes longer: the bubble over m, and the CSV. The front end asks for it once
        the reader pauses."""
        names = [name for name in dict.fromkeys([self._now["schedule"], self._now["beside"]])
                 if name not in ("", DRAWN)]  # fmt: skip
        fixed = {**self._now, "names": names, "microbatches": None, "csv": None}
        if self._charted.get("of") != fixed or self._now["microbatches"] not in self._charted["over"]:
            self._charted = {"of": fixed, **chart(names, self._now)}
        over = {name: self._charted[name] for name in ("over", "lines", "formulas")}
        self.calm = compact({"answer": self._answers, "csv": self._made.to_csv(), **over})

    def run(self) -> None:
        """Run the schedule on real ranks, paced, and show what was measured."""

    def kept(self) -> dict[str, Any]:
        self.settle()
        return {**super().kept(), **self._now, "calm": self.calm, "runs": 0, "live": False}

    def picture(self) -> Figure:
        """The timeline of the schedule."""
        from dlviz.viz.print import timeline

        theme = "dark" if self.theme == "dark" else "light"
        return timeline(self.trace, theme=theme, title=self._title())

    def _changed(self, change: Any) -> None:
        new = {name: getattr(self, name) for name in CONTROLS}
        if new == self._now and not self._error:
            return
        try:
            check(new)
            self._made, self.trace = predicted(new["schedule"], new)
        except ValueError as error:
            self._error = sentence(error)
        else:
            if {**new, "beside": ""} != {**self._now, "beside": ""}:
                self._run = self.measured = None
            self._now, self._error = new, ""
        self._show()

    def _show(self) -> None:
        self.state = compact(dressed(self.trace, self._told()))

    def _title(self) -> str:
        made = self._made
        return f"{made.name} on {made.ranks} ranks, {made.microbatches} microbatches"

    def _told(self) -> dict[str, Any]:
        """All that the front end draws at once."""
        now = self._now
        self._answers += 1
        sides = [picture_of(self._made, self.trace, now)]
        if now["beside"]:
            sides.append(self._beside())
        return {
            "title": "How large is the bubble of a pipeline?",
            "controls": now,
            "error": self._error,
            "schedules": [*NAMES, DRAWN],
            "loops": [*LOOPS],
            "limits": SIZES,
            "styles": {theme: list(palette.LINES[theme][:2]) for theme in palette.THEMES},
            "sides": sides,
            "run": self._run,
            "ran": self._ran,
            "answer": self._answers,
        }

    def _beside(self) -> dict[str, Any]:
        name = self._now["beside"]
        try:
            return picture_of(*predicted(name, self._now), self._now)
        except ValueError as error:
            return {"name": name, "error": sentence(error)}
