"""ScheduleLevels: a game in which the reader rediscovers the pipeline schedules by drawing them.

    1 ★   2 ★   3   4          "A rank has room for only three microbatches: can the step ...?"
    the grid to draw on        what the level asks for, and what of that is reached
    once it is solved          its name and paper, the known schedule beside it, Run it

What a level asks is in dlviz/board/levels.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.board.csv import from_csv
from dlviz.board.drawing import Drawing
from dlviz.board.levels import LEVELS
from dlviz.widgets.schedules.drawing import ShadedBoard
from dlviz.widgets.schedules.explorer import ScheduleExplorer
from dlviz.widgets.schedules.pipelines import DRAWN, costs_of, picture_of, predicted
from dlviz.widgets.view import compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED = {  # controls that a level fixes
    "schedule": DRAWN, "forward": 1.0, "backward": None, "backward_input": 1.0,
    "backward_weight": 1.0, "latency": 0.0, "slow_stage": None,
}  # fmt: skip


class ScheduleLevels(ScheduleExplorer):
    """Solve levels, each a question that a schedule answers, by drawing.

    `levels` are the numbers of those offered, in any order, None: all; none is locked. `level` is
    the one shown and may be set. `drawings` holds the last legal drawing of each level as CSV, or a
    solution once it is solved: print it, save it, and pass it back to continue. Raises ValueError
    for an unknown level, or a drawing that does not fit its level.
    """

    level = traitlets.Any(1).tag(sync=True)
    drawings = traitlets.Dict().tag(sync=True)
    blanks = traitlets.Unicode("{}").tag(sync=True)  # what the front end opens without a kernel

    def __init__(
        self,
        levels: Iterable[int] | None = None,
        *,
        drawings: Mapping[int, str] | None = None,
        theme: str = "auto",
    ):
        everything = range(1, len(LEVELS) + 1)
        self._offered = [*everything] if levels is None else [*levels]
        self._stored = {int(number): text for number, text in (drawings or {}).items()}
        for number in [*self._offered, *self._stored]:
            if number not in everything:
                raise ValueError(f"level {number!r} does not exist: use 1 to {len(LEVELS)}.")
        if not self._offered:
            raise ValueError("levels is empty: name at least one level.")
        self._level = self._offered[0]
        self._boards: dict[int, ShadedBoard] = {}
        level = LEVELS[self._level - 1]
        super().__init__(DRAWN, max(level.stage_rank) + 1, level.microbatches, theme=theme)
        self.level, self.drawings = self._level, self._stored
        self.blanks = compact({number: self._blank(number) for number in self._offered})
        self.observe(self._turned, "level")

    def picture(self) -> Figure:
        """The drawing as a timeline, under the level's name while it is incomplete; the level's
        question where it cannot be played."""
        from dlviz.viz import paper, print

        assert self._board is not None
        if not self._unready:
            if self._board.drawing.complete:
                return super().picture()
            return print.timeline(self._trace, theme=self.paper, title=self._headed())

        level = LEVELS[self._level - 1]
        return paper.sheet(self._headed(), [level.question], [], 0.0, 7.0, self.paper)[0]

    def saved_state(self) -> dict[str, Any]:
        own = {"level": self._level, "drawings": self._stored, "blanks": self.blanks}
        return {**super().saved_state(), **own}

    def _blank(self, number: int) -> dict[str, Any]:
        """The empty grid of a level, its rules for the front end, and the schedule that solves
        it."""
        level = LEVELS[number - 1]
        board = ShadedBoard(Drawing(level.pipeline(costs_of(level.stage_rank, self._now))), level)
        ranks, stages = max(level.stage_rank) + 1, len(level.stage_rank)
        size = {"ranks": ranks, "microbatches": level.microbatches, "chunks": stages // ranks}
        values = {**self._now, **size}
        known = picture_of(*predicted(level.answer, values), values)
        return {"board": board.state(), "rules": board.rules(), "known": known}

    @traitlets.validate("level")
    def _offered_only(self, proposal: Any) -> int:
        if proposal["value"] not in self._offered:
            offered = ", ".join(map(str, self._offered))
            raise traitlets.TraitError(
                f"level={proposal['value']!r} is not offered: use one of {offered}."
            )
        return proposal["value"]

    def _turned(self, change: Any) -> None:
        """Show another level."""
        self._level = change.new
        self.forget()
        self._take({**self._now, "beside": ""}, self._now)
        self._error = ""
        self.show()
        self._set_traits(**self._now)

    def _take(self, new: dict[str, Any], before: dict[str, Any]) -> None:
        new.update(FIXED)
        super()._take(new, before)

    def _read(self, new: dict[str, Any]) -> Drawing:
        return self._boards[self._level].read(new["csv"])

    def _drawing(self, new: dict[str, Any], before: dict[str, Any]) -> Drawing:
        """The drawing of the level shown."""
        level = LEVELS[self._level - 1]
        pipeline = level.pipeline(costs_of(level.stage_rank, new))
        if self._level not in self._boards:
            board = ShadedBoard(Drawing(pipeline), level)
            if text := self._stored.get(self._level):
                board = ShadedBoard(board.read(text), level)
            self._boards[self._level] = board
        self._board = self._boards[self._level]
        return self._board.drawing

    def _look(self) -> None:
        super()._look()
        board = self._board
        assert board is not None
        if board.drawing.placed and board.drawing.legal:
            if board.solved or not self._solved(self._level):
                self._stored = {**self._stored, self._level: board.drawing.to_csv()}

    def show(self) -> None:
        super().show()
        self.drawings = self._stored

    def _solved(self, number: int) -> bool:
        level, text = LEVELS[number - 1], self._stored.get(number, "")
        pipeline = level.pipeline(costs_of(level.stage_rank, self._now))
        return bool(text) and level.solved(from_csv(text, pipeline))

    def _headed(self) -> str:
        return f"Level {self._level}: {LEVELS[self._level - 1].title}"

    def payload(self) -> dict[str, Any]:
        levels = [
            {"number": number, "title": LEVELS[number - 1].title, "solved": self._solved(number)}
            for number in self._offered
        ]
        summary = {"title": "Find the schedule yourself", "level": self._level, "levels": levels}
        return {**super().payload(), **summary}
