"""The reader's hand on a drawing board: gestures, what the page's rules make of them, in Node."""

from __future__ import annotations

import json
from dataclasses import replace

import node
from kernel import ask

from dlviz.board.drawing import Drawing, Placed
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import parse
from dlviz.schedules.orders import loop
from dlviz.sim import Costs
from dlviz.widgets.schedules.drawing import ShadedBoard

PLAYED = """let table = m.tableOf(v[0], v[1]);
return [m.stateOf(table), ...v[2].map((asked) => m.stateOf(table = m.apply(table, asked)))];"""
STEP = """const table = m.tableOf(v[0], v[1], true);
const next = m.apply(table, v[2]);
if (next.present === table.present && !next.beyond) return null;
return m.stepOf(v[2], table, { ...next, name: v[3] });"""


class Hand:
    """Gestures on the page's board of a drawing, which the kernel does not hear of."""

    def __init__(self, drawing, level=None):
        self.board, self.gestures = ShadedBoard(drawing, level), []

    def __call__(self, do, **more):
        """The state after one more gesture."""
        self.gestures.append({"do": do, **more})
        return self.states()[-1]

    def states(self):
        """The states before the first gesture and after each."""
        given = self.board.state(), self.board.rules(), self.gestures
        return node.run("board/rules.js", PLAYED, *given)

    @property
    def state(self):
        return self.states()[-1]

    def place(self, action, rank, slot):
        return self("place", action=action, rank=rank, slot=slot)


def step_on(board, gesture, name="next"):
    """What the page sends to the kernel after a gesture on its `board`, a pair of JSON values."""
    return node.run("board/rules.js", STEP, *board, gesture, name)


def draw_on(widget, do, **more):
    """Have the page of `widget` do a gesture; what the kernel answers to that."""
    board = json.loads(widget.board), json.loads(widget.rules)
    step = step_on(board, {"do": do, **more}, board[0]["name"] + "'")
    return ask(widget, "draw", step=step) if step else {}


def blank(ranks=2, microbatches=3, costs=None, **options):
    return Drawing(Pipeline(loop(ranks), microbatches, costs or Costs(), **options))


def put(drawing, *cells):
    """With cells such as ("0F0", 0, 2)."""
    new = (Placed(parse(action), rank, slot) for action, rank, slot in cells)
    return replace(drawing, placed=(*drawing.placed, *new))


def drawing_of(state, pipeline):
    """What a state shows, as the kernel would have it."""
    offered = {name: state[name] for name in ("backward", "limit", "overlaps")}
    cells = ((cell["action"], cell["rank"], cell["slot"]) for cell in state["cells"])
    return put(Drawing(replace(pipeline, **offered)), *cells)


def there(state):
    return sorted((cell["action"], cell["rank"], cell["slot"]) for cell in state["cells"])


def at(action, rank, slot):
    return {"action": action, "rank": rank, "slot": slot}
