"""The drawing board on an open page; and alone, on a page whose kernel is this process."""

from __future__ import annotations

import json

from dlviz.trace import Trace
from dlviz.widgets.modules import joined, read
from dlviz.widgets.schedules.drawing import ShadedBoard as Board
from dlviz.widgets.view import compact, dressed

FRONT_END = (
    joined("board/index", "unused")
    + """
const frontEnd = { render({ model, el }) {
  const look = JSON.parse(model.get("state")).look;
  let board = null;
  let colors = null;
  const frame = shared_stage_js.stage(el, { name: "board", look, model, lines: [],
    title: "Draw your own", keys: board_keys_js.BOARD_KEYS,
    onColors: (now) => { colors = now; board?.colors(now); } });
  board = board_index_js.drawingBoard({ model, el: frame.body, look, say: frame.say,
    selected: (action) => { globalThis.heard = action; } });
  board.colors(colors);
  globalThis.board = board;
  return () => { board.stop(); frame.stop(); frame.root.remove(); };
} };
"""
)
OPEN = """
const traits = JSON.parse(document.getElementById("state").textContent);
const listeners = new Map();
const fire = (event, given) => { for (const call of listeners.get(event) ?? []) call(given); };
let answers = Promise.resolve(); // in order, as those of a kernel
const model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; fire(`change:${name}`); },
  on: (name, call) => listeners.set(name, (listeners.get(name) ?? new Set()).add(call)),
  off: (name, call) => listeners.get(name)?.delete(call),
  page: !traits.live,
  save_changes() {},
  send({ id, step }) {
    globalThis.asked = (globalThis.asked ?? 0) + 1;
    answers = answers.then(() => ask(step)).then(({ board, rules, ...answer }) => {
      model.set("rules", rules);
      model.set("board", board);
      fire("msg:custom", { id, ...answer });
      globalThis.asked -= 1;
    });
  },
};
frontEnd.render({ model, el: document.getElementById("dlviz") });
"""  # noqa: E501
# Asked of the page as they are: a Locator takes several turns.
DATA = "(which) => [...document.querySelectorAll(which)].map((one) => ({ ...one.dataset }))"
TEXT = "(which) => document.querySelector(which).innerText"
SLOTS = """() => {
    const grid = document.querySelector(".dlv-boardgrid");
    const { x, y, height } = grid.getBoundingClientRect();
    const rows = document.querySelectorAll(".dlv-boardnames text").length;
    return [x, y + 22, Number(grid.dataset.slot), (height - 22) / rows];
}"""


class BoardPage:
    """The board on an open page; `board` is the kernel's, where there is one."""

    def __init__(self, page, board=None):
        self.page, self.board = page, board
        self.root = page.locator(".dlv-board")
        self.grid = page.locator(".dlv-boardgrid")
        self.keys = page.keyboard

    def control(self, name):
        return self.root.get_by_label(name, exact=True).first

    def press(self, *keys):
        for key in keys:
            self.keys.press(key)
        self.settle()

    def click(self, name):
        self.control(name).click()
        self.settle()

    def settle(self):
        self.page.wait_for_function("() => !globalThis.asked")

    def focus(self):
        self.root.get_by_role("application").focus()

    def cells(self):
        """What is drawn: {action: (rank, slot)}."""
        found = self.page.evaluate(DATA, ".dlv-boardgrid .dlv-boardcell")
        return {one["action"]: (int(one["rank"]), int(one["slot"])) for one in found}

    def ghosts(self):
        found = self.page.evaluate(DATA, ".dlv-boardgrid .dlv-boardghost")
        return [one["action"] for one in found]

    def words(self):
        return self.page.evaluate(TEXT, ".dlv-board .dlv-boardwords")

    def spoken(self):
        return self.page.evaluate(TEXT, ".dlv > .dlv-spoken")

    def center(self, rank, slot):
        """The middle of a slot, on the page."""
        x, y, wide, high = self.page.evaluate(SLOTS)
        return x + (slot + 0.5) * wide, y + (rank + 0.5) * high

    def click_at(self, rank, slot):
        self.page.mouse.click(*self.center(rank, slot))
        self.settle()

    def drag(self, start, end):
        """From a (rank, slot), or a locator, to a (rank, slot) or a point off the grid."""
        if isinstance(start, tuple):
            x, y = self.center(*start)
        else:
            box = start.bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        far = self.center(*end) if isinstance(end, tuple) else end
        self.page.mouse.move(*far, steps=6)
        yield
        self.page.mouse.up()
        self.settle()

    def drop(self, start, end):
        for _ in self.drag(start, end):
            pass


def page_of(board: Board, *, theme: str = "light", live: bool = True) -> str:
    """A page that shows `board`."""
    traits = {
        "state": compact(dressed(Trace(), {"title": "Draw your own"})),
        "board": compact(board.state()),
        "rules": compact(board.rules()),
        "theme": theme,
        "live": live,
        "selection": {},
    }
    state = json.dumps(traits, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><title>board</title><style>{read("dlviz.css")}</style>'
        f'<body style="margin: 0"><main id="dlviz"></main>'
        f'<script type="application/json" id="state">{state}</script>'
        f'<script type="module">{FRONT_END}{OPEN}</script></body></html>'
    )
