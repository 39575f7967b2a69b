"""The drawing board without its widget: gestures in, all that a front end draws out.

A gesture says what to do, and where:

    {"do": "place", "action": "0F0", "rank": 0, "slot": 0}      {"do": "undo"}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlviz.board.csv import from_csv
from dlviz.board.drawing import Drawing, laid_out
from dlviz.board.grid import Placed
from dlviz.board.history import History
from dlviz.board.idle import IdleSlots
from dlviz.board.known import beats, best, recognised, zoo
from dlviz.board.levels import Level
from dlviz.board.moves import Move, moves
from dlviz.board.score import Score
from dlviz.board.words import advice, verdict
from dlviz.schedules import TITLES, Action, parse
from dlviz.schedules.papers import PAPERS

ROOM = 3  # actions that fit behind the last one


class DrawingBoard:
    """A drawing with its history, as a widget holds it.

    `apply` does what the front end asks for, `state` is all that it draws. What cannot be done is
    said in the state and changes nothing. On the board of a `level` its pipeline is fixed, and
    known schedules have no part in it until the level is solved.
    """

    def __init__(self, drawing: Drawing, level: Level | None = None):
        self._history = History(drawing)
        self._level = level
        self._said = ""
        self._moves: list[Move] | None = None
        self._do: dict[str, Callable[[dict[str, Any]], None]] = {
            "place": self._place,
            "move": self._move,
            "remove": self._remove,
            "undo": lambda _: self._step(self._history.undo()),
            "redo": lambda _: self._step(self._history.redo()),
            "reset": lambda _: self.start(self.drawing.cleared()),
            "tighten": lambda _: self.start(self.drawing.tightened()),
            "known": self._known,
            "csv": lambda asked: self.start(self.read(str(asked["text"]))),
            "set": self._set,
            "advise": self._advise,
        }

    @property
    def drawing(self) -> Drawing:
        return self._history.present

    def start(self, drawing: Drawing) -> None:
        """Go on with another drawing; `undo` brings the present one back."""
        self._step(self._history.did(drawing))

    @property
    def solved(self) -> bool:
        """Whether the board is a level's and what is drawn solves it."""
        return self._level is not None and self._level.solved(self.drawing)

    def read(self, text: str) -> Drawing:
        """The drawing of a CSV. Raises ValueError for none, and for one that is not the level's."""
        drawing = from_csv(text, self.drawing.pipeline)
        if self._level is not None and drawing.pipeline != self.drawing.pipeline:
            raise ValueError(
                "This text is a schedule of another size or of other kinds of action than this "
                "level: paste one of this level."
            )
        return drawing

    def apply(self, gesture: dict[str, Any]) -> None:
        """Do what the reader did."""
        self._said = ""
        try:
            self._do[gesture["do"]](gesture)
        except ValueError as error:
            self._said = str(error)

    def state(self) -> dict[str, Any]:
        """All that the front end draws and says, ready for JSON."""
        drawing, pipeline = self.drawing, self.drawing.pipeline
        faults: dict[Placed, list[str]] = {}
        for fault in drawing.faults:
            faults.setdefault(fault.placed, []).append(f"{fault.words} {fault.mend}")
        ghosts = [{**self._cell(one.placed), "lead": one.lead} for one in drawing.ghosts]
        ends = [drawing.end, *(one["slot"] + one["slots"] for one in ghosts)]
        longest = max(pipeline.slots(Action(0, kind, 0)) for kind in pipeline.kinds)
        names, score = self._names(), drawing.score
        known = best(pipeline) if self._level is None else None
        return {
            "ranks": pipeline.ranks,
            "microbatches": pipeline.microbatches,
            "stages": pipeline.stage_rank,
            "kinds": pipeline.kinds,
            "lasts": {
                kind: [pipeline.slots(Action(s, kind, 0)) for s in range(pipeline.stages)]
                for kind in ("F" if pipeline.backward == "none" else "FBIW")
            },
            "slot": float(pipeline.slot),
            "latency": pipeline.latency,
            "backward": pipeline.backward,
            "limit": pipeline.limit,
            "overlaps": pipeline.overlaps,
            "columns": max(ends) + ROOM * longest,
            "end": drawing.end,
            "cells": [
                {**self._cell(placed), "faults": faults.get(placed, [])}
                for placed in drawing.placed
            ],
            "ghosts": ghosts,
            "idle": [_idle(one) for one in drawing.idle],
            "left": _left(drawing),
            "verdict": verdict(drawing, names, known),
            "broken": len(drawing.faults),
            "complete": drawing.complete,
            "names": names,
            "held": pipeline.held,
            "score": _scored(score),
            "zoo": []
            if self._level is not None
            else [
                {
                    "name": one.name,
                    "title": TITLES[one.name],
                    "paper": _paper(one.name),
                    **_scored(one.score),
                }
                for one in zoo(pipeline)
            ],
            "best": known.name if known else None,
            "beaten": known is not None and beats(drawing),
            "level": self._goals(),
            "advice": self._advice(),
            "said": self._said,
            "undo": len(self._history.past),
            "redo": len(self._history.future),
            "csv": drawing.to_csv(),
        }

    def rules(self) -> dict[str, Any]:
        """What the front end has to know beside a state, ready for JSON, so as to work out the next
        state where no kernel does: the known schedules of this size, and what the level asks."""
        level = self._level
        known = [
            {
                "name": one.name,
                "title": TITLES[one.name],
                "paper": _paper(one.name),
                "flushes": one.schedule.flushes,
                "rows": one.schedule.to_csv(),
            }
            for one in zoo(self.drawing.pipeline)
        ]
        asked = None
        if level is not None:
            names = ("question", "slots", "inside", "answer", "source", "lesson")
            asked = {name: getattr(level, name) for name in names}
            asked |= {"title": TITLES[level.answer], "paper": _paper(level.answer)}
        return {"known": known, "level": asked}

    def _names(self) -> list[str]:
        """The known schedules that the drawing is, or is so far; a level tells none beforehand."""
        if self._level is not None and not self.solved:
            return []
        return [TITLES[name] for name in recognised(self.drawing)]

    def _goals(self) -> dict[str, Any] | None:
        """What the level asks for; and once that is reached, which schedule it is known by."""
        level = self._level
        if level is None:
            return None
        goals = [{"words": words, "met": met} for words, met in level.goals(self.drawing)]
        shown: dict[str, Any] = {"question": level.question, "goals": goals, "answer": None}
        if self.solved:
            name = TITLES[level.answer]
            same = level.answer in recognised(self.drawing)
            known = (
                f"This schedule is known as {name}"
                if same
                else f"The known schedule for this is {name}"
            )
            other = "" if same else " Your order is another one and just as short."
            words = f"{known}: {level.source}.{other} {level.lesson}"
            shown["answer"] = {
                "name": level.answer, "title": name, "paper": _paper(level.answer), "words": words,
            }  # fmt: skip
        return shown

    def _step(self, history: History) -> None:
        self._history, self._moves = history, None

    def _place(self, asked: dict[str, Any]) -> None:
        if "slot" in asked:
            self.start(self.drawing.place(*_read(asked)))
        else:
            self.start(self.drawing.add(parse(str(asked["action"]))))

    def _move(self, asked: dict[str, Any]) -> None:
        there = _read(asked["from"])
        if (asked["rank"], asked["slot"]) != there[1:]:
            self.start(self.drawing.move(there, int(asked["rank"]), int(asked["slot"])))

    def _remove(self, asked: dict[str, Any]) -> None:
        self.start(self.drawing.remove(_read(asked["from"])))

    def _known(self, asked: dict[str, Any]) -> None:
        self._check_free()
        pipeline = self.drawing.pipeline
        known = next((one for one in zoo(pipeline) if one.name == asked["name"]), None)
        if known is None:
            raise ValueError(f"{asked['name']!r} is not defined for this size and placement.")
        self.start(laid_out(known.schedule, pipeline.offering(known.schedule)))

    def _set(self, asked: dict[str, Any]) -> None:
        """Another pipeline: {"backward": ...}, {"limit": ...} or {"overlaps": ...}."""
        self._check_free()
        now = self.drawing
        new = {name: asked[name] for name in ("backward", "limit", "overlaps") if name in asked}
        self.start(replace(now, pipeline=replace(now.pipeline, **new)))

    def _check_free(self) -> None:
        if self._level is not None:
            raise ValueError("A level is drawn by hand, on the pipeline that it gives.")

    def _advise(self, asked: dict[str, Any]) -> None:
        self._moves = moves(self.drawing)

    def _advice(self) -> dict[str, Any] | None:
        if self._moves is None:
            return None
        return advice(self.drawing, self._moves, named=self._level is None)

    def _cell(self, placed: Placed) -> dict[str, Any]:
        pipeline, (action, rank, slot) = self.drawing.pipeline, placed
        return {
            "action": str(action),
            "rank": rank,
            "slot": slot,
            "slots": pipeline.slots(action),
            "parts": [
                {
                    "stage": half.stage,
                    "kind": half.kind,
                    "microbatch": half.microbatch,
                    "chunk": pipeline.chunk(half.stage),
                }
                for half in action.halves
            ],
        }


def _paper(name: str) -> dict[str, str] | None:
    """The paper of a known schedule, with its address; None where it has none."""
    return PAPERS[name]._asdict() if name in PAPERS else None


def _scored(score: Score) -> dict[str, Any]:
    """A score with both bubbles: idle / busy and idle / total."""
    return {**score._asdict(), "fraction": score.ratio / (1 + score.ratio)}


def _left(drawing: Drawing) -> list[dict[str, Any]]:
    """The actions that are not drawn, by stage and kind."""
    found: dict[tuple[int, str], list[int]] = {}
    for stage, kind, microbatch, _ in drawing.left():
        found.setdefault((stage, kind), []).append(microbatch)
    return [
        {"stage": stage, "kind": kind, "microbatches": which}
        for (stage, kind), which in sorted(found.items())
    ]


def _idle(idle: IdleSlots) -> dict[str, Any]:
    return {
        "rank": idle.rank,
        "start": idle.start,
        "end": idle.end,
        "cause": idle.cause,
        "actions": [str(action) for action in idle.actions],
        "words": idle.words,
    }


def _read(asked: dict[str, Any]) -> Placed:
    return Placed(parse(str(asked["action"])), int(asked["rank"]), int(asked["slot"]))
