"""The drawing board without its widget: gestures in, all that the front end draws out.

The front end numbers its gestures and sends all that are unanswered, so none is lost however fast
they come and none is done twice:

    [{"n": 7, "do": "place", "action": "0F0", "rank": 0, "slot": 0}, {"n": 8, "do": "undo"}]

What a drawing means is said in dlviz/schedules/drawing.py and known.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlviz.schedules import Action, parse
from dlviz.schedules.drawing import Drawing, History, Idle, Placed, from_csv, laid_out
from dlviz.schedules.known import Move, beats, best, moves, recognised, zoo
from dlviz.viz import palette

ROOM = 3  # actions that fit behind the last one
HUES = 7  # microbatches, or chunks, until the colours come again
TINT = 0.62  # of white in a backward's colour
HOW = "Found by finishing each move as the zoo and greedily: no proof of the best."


class Board:
    """A drawing with its history, as a widget holds it.

    `apply` does what the front end asks for, `state` is all that it draws. What cannot be done is
    told in the state and changes nothing.
    """

    def __init__(self, drawing: Drawing):
        self._history = History(drawing)
        self._answered = 0
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
            "csv": lambda asked: self.start(from_csv(str(asked["text"]), self.drawing.pipeline)),
            "set": self._set,
            "advise": self._advise,
        }

    @property
    def drawing(self) -> Drawing:
        return self._history.present

    def start(self, drawing: Drawing) -> None:
        """Go on with another drawing; `undo` brings the present one back."""
        self._step(self._history.did(drawing))

    def apply(self, text: str) -> None:
        """Do the gestures of a JSON text that have not been done."""
        for asked in json.loads(text):
            if asked["n"] <= self._answered:
                continue
            self._answered = asked["n"]
            self._said = ""
            try:
                self._do[asked["do"]](asked)
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
        names, (slots, ratio, peak) = recognised(drawing), drawing.score
        return {
            "answer": self._answered,
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
            "verdict": verdict(drawing),
            "legal": not drawing.faults,
            "complete": drawing.complete,
            "names": names,
            "score": {"slots": slots, "ratio": ratio, "peak": peak},
            "zoo": [
                {"name": name, "slots": s, "ratio": r, "peak": p, "fits": one.fits(pipeline)}
                for one in zoo(pipeline)
                for name, _, (s, r, p) in [one]
            ],
            "best": known.name if (known := best(pipeline)) else None,
            "beaten": beats(drawing),
            "advice": advice(drawing, self._moves) if self._moves is not None else None,
            "said": self._said,
            "undo": len(self._history.past),
            "redo": len(self._history.future),
            "csv": drawing.to_csv(),
            "hues": [_hue(number) for number in range(HUES)],
        }

    def _step(self, history: History) -> None:
        self._history, self._moves = history, None

    def _place(self, asked: dict[str, Any]) -> None:
        action, rank, slot = _read(asked)
        self.start(self.drawing.place(action, rank, slot))

    def _move(self, asked: dict[str, Any]) -> None:
        there = _read(asked["from"])
        if (asked["rank"], asked["slot"]) != there[1:]:
            self.start(self.drawing.move(there, int(asked["rank"]), int(asked["slot"])))

    def _remove(self, asked: dict[str, Any]) -> None:
        self.start(self.drawing.remove(_read(asked["from"])))

    def _known(self, asked: dict[str, Any]) -> None:
        pipeline = self.drawing.pipeline
        known = next((one for one in zoo(pipeline) if one.name == asked["name"]), None)
        if known is None:
            raise ValueError(f"{asked['name']!r} is not defined for this size and placement.")
        self.start(laid_out(known.schedule, pipeline.offering(known.schedule)))

    def _set(self, asked: dict[str, Any]) -> None:
        """Another pipeline: {"backward": ...}, {"limit": ...} or {"overlaps": ...}."""
        now = self.drawing
        new = {name: asked[name] for name in ("backward", "limit", "overlaps") if name in asked}
        self.start(replace(now, pipeline=replace(now.pipeline, **new)))

    def _advise(self, asked: dict[str, Any]) -> None:
        self._moves = moves(self.drawing)

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


def verdict(drawing: Drawing) -> str:
    """What a look at the whole drawing says: faults, what is missing or what it comes to."""
    done, faults = len(drawing.placed), drawing.faults
    if faults:
        broken = len({fault.placed for fault in faults})
        verb = "breaks" if broken == 1 else "break"
        return f"{broken} of {done} actions {verb} a rule. {faults[0].words} {faults[0].mend}"
    if not done:
        return f"Nothing is drawn yet; {_next(drawing)}."
    if not drawing.complete:
        missing = [*drawing.left()]
        way = {one for one in missing if one.kind != "B"}
        missing = [one for one in missing if one.kind != "B" or one._replace(kind="I") not in way]
        names = recognised(drawing)
        words = f"{done} drawn, no rule broken, {len(missing)} to go; {_next(drawing)}."
        return words + (f" So far this is {_named(drawing)}." if 0 < len(names) < 4 else "")
    return f"Complete and legal: {_score(drawing)}"


def _score(drawing: Drawing) -> str:
    slots, ratio, peak = drawing.score
    known, named = best(drawing.pipeline), _named(drawing)
    words = f"{slots} slots, idle / work {100 * ratio:.1f} %, at most {max(peak)} in flight. "
    words += f"This is {named}. " if named else "It has no name in the zoo. "
    if known is None:
        return words + "No schedule of the zoo fits the limit."
    record = f"{known.name} with {known.score.slots} slots"
    if slots < known.score.slots:
        return words + f"It beats the best known, {record}."
    if slots == known.score.slots:
        return words + f"That equals the best known, {record}."
    return words + f"The best known is {record}."


def advice(drawing: Drawing, found: list[Move]) -> dict[str, Any]:
    """The best of the next moves in words, and where it is."""
    if not found:
        words = "First mend what breaks a rule." if drawing.faults else "Nothing is left to draw."
        return {"words": words, "move": None}
    (action, rank, slot), end, way = found[0]
    words = f"A good move is {action} on rank {rank} at slot {slot}: "
    words += f"finished {way}, all ends at slot {end}. " if end else "no way to finish was found. "
    for (other, *_), later, _ in found[1:4]:
        cost = "finds no end" if later is None or end is None else _cost(later - end)
        words += f"{other} instead {cost}. "
    at = {"action": str(action), "rank": rank, "slot": slot}
    return {"words": words + HOW, "move": at}


def _cost(slots: int) -> str:
    if not slots:
        return "costs nothing"
    return f"costs {slots} slot{'s' * (slots > 1)}"


def _next(drawing: Drawing) -> str:
    ghost = min(drawing.ghosts, key=lambda one: one.placed.slot, default=None)
    if ghost is None:
        return "nothing may come next"
    action, rank, slot = ghost.placed
    return f"{action} may come next, on rank {rank} from slot {slot} on"


def _named(drawing: Drawing) -> str:
    return " or ".join(recognised(drawing))


def _left(drawing: Drawing) -> list[dict[str, Any]]:
    """The actions that are not drawn, by stage and kind."""
    found: dict[tuple[int, str], list[int]] = {}
    for stage, kind, microbatch, _ in drawing.left():
        found.setdefault((stage, kind), []).append(microbatch)
    return [
        {"stage": stage, "kind": kind, "microbatches": which}
        for (stage, kind), which in sorted(found.items())
    ]


def _idle(idle: Idle) -> dict[str, Any]:
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


def _hue(number: int) -> dict[str, str]:
    """The colours of a microbatch or chunk: full for F, a tint for what goes back."""
    style = palette.rank_style(number)
    channels = (int(style.color[i : i + 2], 16) for i in (1, 3, 5))
    tint = "#" + "".join(f"{round(c + (255 - c) * TINT):02X}" for c in channels)
    return {"color": style.color, "ink": style.ink, "edge": style.edge, "tint": tint}
