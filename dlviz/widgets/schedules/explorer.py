"""ScheduleExplorer: choose a pipeline schedule and its size, see the bubble, run it, draw your own.

    schedule, p, m, v, F, B, I, W, latency, a slow stage; a second schedule beside it
        the timeline of both on one axis, what each gap waits for, the critical path
        the bubble over m        the activations in flight on every rank        a table of both
        Run it: the same on real ranks, paced; measured laid over predicted
        the schedule as CSV, in and out

Times are those of `dlviz.simulate`. The arithmetic is in pipelines.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz import metrics
from dlviz.board.drawing import Drawing
from dlviz.schedules import NAMES, Schedule
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.widgets.control import Setting
from dlviz.widgets.explorer import Explorer
from dlviz.widgets.requests import Answer, sentence
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.schedules.drawing import ShadedBoard
from dlviz.widgets.schedules.pipelines import (
    DRAWN,
    NAMED,
    SIZES,
    board_for,
    board_of,
    chart,
    check,
    costs_of,
    picture_of,
    played,
    predicted,
)
from dlviz.widgets.schedules.run import RUNNABLE, run
from dlviz.widgets.view import compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = 5000  # spans: nothing of larger schedules is sent ahead


class ScheduleExplorer(Explorer):
    """Choose a schedule, its size and its costs; see its timeline, bubble and memory; run it.

    `schedule` is one of `dlviz.schedules.NAMES`, or "drawn" for the one on the board; `beside`
    names a second one, "" none. A `csv` is drawn on the board, then the trait is empty again.
    `ranks`, `microbatches` and `chunks` are the size; `chunks`, None for the schedule's own,
    matters to those that take any. `forward`, `backward` (None: input + weight), `backward_input`
    and `backward_weight` are the seconds that one microbatch takes on a rank, which a rank with v
    stages shares among them; `latency`, in s, passes between ranks; `slow_stage` takes `slow` times
    as long. All may be set later; an invalid value shows an error in the widget and changes
    nothing. `run()` does what the button does. `trace` is what is predicted, `measured` the Trace
    of the last run, or None. Raises ValueError for an invalid first value.
    """

    module = "schedules/index"
    controls = (
        Setting("schedule", "schedule", "1f1b"),
        Setting("ranks", "ranks p", 4),
        Setting("microbatches", "microbatches m", 8),
        Setting("chunks", "chunks v", None),
        Setting("forward", "F", 1.0),
        Setting("backward", "B", None),
        Setting("backward_input", "I", 1.0),
        Setting("backward_weight", "W", 1.0),
        Setting("latency", "latency", 0.0),
        Setting("slow_stage", "slow stage", None),
        Setting("slow", "×", 2.0),
        Setting("beside", "schedule beside it", ""),
        Setting("csv", "CSV", ""),
    )

    csv: Any
    board = traitlets.Unicode("{}").tag(sync=True)
    rules = traitlets.Unicode("{}").tag(sync=True)  # that the front end applies

    def begin(self) -> None:
        self._unready = ""
        self._of_csv = self._progress = False
        self._charted: dict[str, Any] = {}
        self._board: ShadedBoard | None = None
        now = self._now
        self._made, self._trace = predicted(
            NAMES[0] if now["schedule"] == DRAWN else now["schedule"], now
        )
        self._take(now, now)
        self._settle()

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def measured(self) -> Trace | None:
        return self._measured

    def settle(self) -> None:
        """Show what takes longer: the bubble over m, and the CSV."""
        if not self._settled:
            self._settle()
            self.show()

    def _settle(self) -> None:
        names = [name for name in dict.fromkeys([self._now["schedule"], self._now["beside"]])
                 if name not in ("", DRAWN)]  # fmt: skip
        fixed = {**self._now, "names": names, "microbatches": None, "csv": None}
        known = self._charted.get("of") == fixed
        if not known or self._now["microbatches"] not in self._charted["over"]:
            self._charted = {"of": fixed, **chart(names, self._now)}
        self._settled = True

    def requests(self) -> dict[str, Callable[..., Answer]]:
        own = {"draw": self._drawn_on, "ahead": self._neighbours}
        return {**super().requests(), **own}

    def work(self) -> Callable[[Progress], Found]:
        if self._unready:
            raise ValueError(self._unready)
        costs = costs_of(self._made.stage_rank, self._now)
        return partial(run, self._made, self._trace, costs)

    def check(self, values: dict[str, Any]) -> None:
        check(values)

    def moved(self, values: dict[str, Any]) -> None:
        self._take(values, self._now)

    def choice(self, values: dict[str, Any]) -> Any:
        drawn = self._board.drawing if self._board and values["schedule"] == DRAWN else None
        return {**values, "beside": ""}, drawn

    def saved_state(self) -> dict[str, Any]:
        self.settle()
        return {**super().saved_state(), **self._on_board()}

    def _on_board(self) -> dict[str, Any]:
        """The traits of the board that the reader draws on without a kernel: the present one, or an
        empty grid of the size shown."""
        board = self._board
        if board is None:
            try:
                board = ShadedBoard(self._drawing(self._now, self._now))
            except ValueError:  # it is too large to draw
                return {"board": "{}", "rules": "{}"}
        return {"board": compact(board.state()), "rules": compact(board.rules())}

    def picture(self) -> Figure:
        """The timeline of the schedule, with its critical path."""
        from dlviz.viz.print import timeline

        return timeline(self._trace, critical=True, theme=self.paper, title=self._title())

    def _changed(self, change: Any) -> None:
        if self._progress:
            return
        self._of_csv = bool(self.csv)
        super()._changed(change)
        self._set_traits(**({"csv": ""} if self._error else self._now))

    def _neighbours(self, name: str) -> Answer:
        """The pictures a little further along a slider that moves, to be drawn before the kernel
        answers."""
        now = self._now
        if DRAWN in (now["schedule"], now["beside"]) or len(self._trace.spans) > FAST:
            return None
        pictures = {}
        for by in (-2, -1, 1, 2):
            values = {**now, name: self._made.chunks + by if now[name] is None else now[name] + by}
            try:
                check(values)
                pictures[values[name]] = [picture_of(*predicted(now["schedule"], values), values)]
            except ValueError:
                continue
            if now["beside"]:
                pictures[values[name]].append(self._beside(values))
        return self.ahead(name, pictures)

    def _take(self, new: dict[str, Any], before: dict[str, Any]) -> None:
        """Apply other values of the controls. ValueError for invalid ones."""
        if new["csv"] and new["beside"] != DRAWN:
            new["schedule"] = DRAWN
        if new["schedule"] != DRAWN:
            self._made, self._trace = predicted(new["schedule"], new)
        if DRAWN in (new["schedule"], new["beside"]):
            drawing = self._read(new) if new["csv"] else self._drawing(new, before)
            self._put(drawing)
            new.update(_size(drawing), csv="")
        self._now = new
        self._look()

    def _read(self, new: dict[str, Any]) -> Drawing:
        """The drawing of a given CSV."""
        return board_of(new["csv"], new)

    def _drawing(self, new: dict[str, Any], before: dict[str, Any]) -> Drawing:
        """The drawing for the controls: an empty grid where the board is new or of another size,
        else the present drawing with the new costs."""
        if self._board is None:
            return board_for(new, None, self._made.stage_rank)
        drawing = self._board.drawing
        if all(new[name] == before[name] for name in SIZES):
            new = {**new, **_size(drawing)}
        found = board_for(new, drawing, drawing.pipeline.stage_rank)
        return drawing if found.pipeline == drawing.pipeline else found

    def _put(self, drawing: Drawing) -> None:
        """Show another drawing on the board."""
        if self._board is None:
            self._board = ShadedBoard(drawing)
        elif drawing != self._board.drawing:
            self._board.start(drawing)
        self._show_board()

    def _show_board(self) -> None:
        assert self._board is not None
        self.rules = compact(self._board.rules())
        self.board = compact(self._board.state())

    def _drawn_on(self, step: dict[str, Any]) -> Answer:
        """Apply what the reader did on the board, which may be another board by now."""
        if self._board is None:
            return {"late": True}
        before = self._board.drawing
        if not self._board.take(step):
            return {"late": True}
        self._show_board()
        if self._board.drawing != before:
            self._now = {**self._now, **_size(self._board.drawing)}
            if self._now["schedule"] == DRAWN:
                self.forget()
            self._look()
            self.show()
            self._set_traits(**self._now)
        return None

    def _look(self) -> None:
        """Play the drawing where it is the schedule shown; where it cannot run, record why."""
        self._unready, self._settled = "", False
        if self._now["schedule"] != DRAWN:
            return
        try:
            self._made, self._trace = self._drawn()
        except ValueError as error:
            self._unready = sentence(error)

    def _drawn(self) -> tuple[Schedule, Trace]:
        assert self._board is not None
        made = replace(self._board.schedule(), name=DRAWN)
        return made, played(made, costs_of(made.stage_rank, self._now))

    def _set_traits(self, **values: Any) -> None:
        """Set the traits to what is shown."""
        self._progress = True
        try:
            with self.hold_trait_notifications():
                for name, value in values.items():
                    setattr(self, name, value)
        finally:
            self._progress = False

    def _title(self) -> str:
        made = self._made
        return f"{NAMED[made.name]} on {made.ranks} ranks, {made.microbatches} microbatches"

    def payload(self) -> dict[str, Any]:
        """All that the front end draws."""
        now = self._now
        first = picture_of(self._made, self._trace, now)
        sides = [_troubled(DRAWN, self._unready) if self._unready else first]
        if now["beside"]:
            sides.append(self._beside(now))
        return {
            "title": "How large is the bubble of a pipeline?",
            "refused": self._error if self._of_csv else "",
            "titles": NAMED,
            "chunked": [*metrics.CHUNKED],
            "limits": {**SIZES, "run": RUNNABLE},
            "styles": palette.LINES[:2],
            "sides": sides,
            "chart": self._chart() if self._settled else None,
            "csv": self._csv() if self._settled else None,
            "run": self._run,
        }

    def _chart(self) -> dict[str, Any]:
        return {name: self._charted[name] for name in ("over", "lines", "formulas")}

    def _csv(self) -> str:
        return "" if self._unready else self._made.to_csv()

    def _beside(self, values: dict[str, Any]) -> dict[str, Any]:
        name = values["beside"]
        try:
            made = self._drawn() if name == DRAWN else predicted(name, values)
            return picture_of(*made, values)
        except ValueError as error:
            return _troubled(name, sentence(error))


def _troubled(name: str, error: str) -> dict[str, str]:
    """A side that cannot be shown, and why."""
    return {"name": name, "title": NAMED[name], "error": error}


def _size(drawing: Drawing) -> dict[str, int]:
    """The controls of a drawing's size."""
    pipeline = drawing.pipeline
    return {name: getattr(pipeline, name) for name in SIZES}
