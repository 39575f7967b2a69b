"""The kernel's side of the drawing board: it receives what the page drew, and checks it.

The page applies each gesture by its own rules and sends the result, with the name of the drawing
that it changed, so that no view overwrites another view's drawing:

    {"do": "draw", "on": "a7", "name": "b3", "cells": [{"action": "0F0", "rank": 0, "slot": 0}],
     "backward": "whole", "limit": null, "overlaps": false, "fault": ""}
    {"do": "undo", "on": "b3", "name": "c9"}        {"do": "csv", "on": "c9", "text": "0F0,0B0"}
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

from dlviz.board.csv import from_csv
from dlviz.board.drawing import Drawing, Placed
from dlviz.board.history import History
from dlviz.board.levels import Level
from dlviz.board.sentences import SENTENCES
from dlviz.schedules import NAMES, TITLES, Action, Schedule, make, parse
from dlviz.schedules.papers import PAPERS


class DrawingBoard:
    """A drawing with its history, as a widget holds it.

    With a `level` its pipeline is fixed. `name`: that of the present drawing.
    """

    def __init__(self, drawing: Drawing, level: Level | None = None):
        self._level = level
        self._go(History(drawing))

    @property
    def drawing(self) -> Drawing:
        return self._history.present

    def start(self, drawing: Drawing) -> None:
        """Go on with another drawing; `undo` brings the present one back."""
        self._go(self._history.did(drawing))

    @property
    def solved(self) -> bool:
        """Whether the board has a level and the drawing solves it."""
        return self._level is not None and self._level.solved(self.drawing)

    def read(self, text: str) -> Drawing:
        """The drawing of a CSV. Raises ValueError for an invalid one, or another pipeline."""
        drawing = from_csv(text, self.drawing.pipeline)
        if self._level is not None and drawing.pipeline != self.drawing.pipeline:
            raise ValueError(SENTENCES["other"])
        return drawing

    def take(self, step: dict[str, Any]) -> bool:
        """Apply a step of the page. Returns False for a step on another drawing than the present
        one. Raises ValueError for an impossible drawing."""
        if step["on"] != self.name:
            return False
        history = self._history
        if step["do"] == "undo":
            history = history.undo()
        elif step["do"] == "redo":
            history = history.redo()
        elif step["do"] == "csv":
            history = history.did(self.read(str(step["text"])))
        else:
            history = history.did(self._drawing(step))
        self._go(history, step.get("name"))
        return True

    def schedule(self) -> Schedule:
        """The drawing as a Schedule. Raises ValueError for one that breaks a rule, or is empty."""
        if not self.drawing.placed:
            raise ValueError(SENTENCES["empty"])
        return self.drawing.schedule()

    def state(self) -> dict[str, Any]:
        """All that the page needs to go on, ready for JSON."""
        pipeline, stages = self.drawing.pipeline, range(self.drawing.pipeline.stages)
        return {
            "name": self.name,
            "ranks": pipeline.ranks,
            "microbatches": pipeline.microbatches,
            "stages": pipeline.stage_rank,
            "lasts": {
                kind: [pipeline.slots(Action(stage, kind, 0)) for stage in stages]
                for kind in ("F" if pipeline.backward == "none" else "FBIW")
            },
            "slot": float(pipeline.slot),
            "latency": pipeline.latency,
            "backward": pipeline.backward,
            "limit": pipeline.limit,
            "overlaps": pipeline.overlaps,
            "cells": [
                {"action": str(action), "rank": rank, "slot": slot}
                for action, rank, slot in self.drawing.placed
            ],
            "undo": len(self._history.past),
            "redo": len(self._history.future),
        }

    def rules(self) -> dict[str, Any]:
        """What the page needs besides, ready for JSON: the known schedules of this size, and the
        level's question."""
        pipeline, level = self.drawing.pipeline, self._level
        known = _known(pipeline.stage_rank, pipeline.microbatches, pipeline.backward == "none")
        asked = None
        if level is not None:
            names = ("question", "slots", "inside", "answer", "source", "lesson")
            asked = {name: getattr(level, name) for name in names}
            asked |= {"title": TITLES[level.answer], "paper": _paper(level.answer)}
        return {"known": known, "level": asked}

    def _go(self, history: History, name: str | None = None) -> None:
        self._history, self.name = history, name or uuid4().hex

    def _drawing(self, step: dict[str, Any]) -> Drawing:
        """What the page drew."""
        own = self.drawing.pipeline
        pipeline = replace(own, **{name: step[name] for name in ("backward", "limit", "overlaps")})
        if self._level is not None and pipeline != own:
            raise ValueError(SENTENCES["fixed"])
        placed = (
            Placed(parse(str(one["action"])), one["rank"], one["slot"]) for one in step["cells"]
        )
        drawing = Drawing(pipeline, tuple(placed), str(step["fault"]))
        drawing.check()
        return drawing


@lru_cache(maxsize=32)
def _known(stage_rank: tuple[int, ...], microbatches: int, inference: bool) -> list[dict[str, Any]]:
    """The known schedules with this placement of stages: those of training, or of inference."""
    found = []
    ranks = max(stage_rank) + 1
    for name in NAMES:
        try:
            made = make(name, ranks, microbatches, len(stage_rank) // ranks)
        except ValueError:
            continue  # it is not defined for this size
        forwards = all(one.kind == "F" for row in made.actions for one in row)
        if made.stage_rank == stage_rank and forwards == inference:
            found.append(
                {
                    "name": name,
                    "title": TITLES[name],
                    "paper": _paper(name),
                    "flushes": made.flushes,
                    "rows": made.to_csv(),
                }
            )
    return found


def _paper(name: str) -> dict[str, str] | None:
    """The paper of a known schedule, with its address; None where it has none."""
    return PAPERS[name]._asdict() if name in PAPERS else None
