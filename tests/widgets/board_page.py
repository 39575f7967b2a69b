"""The drawing board alone, on a page whose kernel is this process."""

from __future__ import annotations

import json

from dlviz.trace import Trace
from dlviz.widgets.drawing import Board
from dlviz.widgets.modules import joined, read
from dlviz.widgets.view import compact, dressed

FRONT_END = (
    joined("board/index", "unused")
    + """
const frontEnd = { render({ model, el }) {
  const look = JSON.parse(model.get("state")).look;
  let board = null;
  let colors = null;
  const frame = shared_stage_js.stage(el, { name: "board", look, model, title: "Draw your own", lines: [],
    keys: board_index_js.BOARD_KEYS,
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
let answers = Promise.resolve(); // in order, as those of a kernel
const model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; for (const call of listeners.get(`change:${name}`) ?? []) call(); },
  on: (name, call) => listeners.set(name, (listeners.get(name) ?? new Set()).add(call)),
  off: (name, call) => listeners.get(name)?.delete(call),
  save_changes() {
    if (!globalThis.ask) return;
    globalThis.asked = (globalThis.asked ?? 0) + 1;
    const { gesture } = traits;
    answers = answers.then(() => ask(gesture)).then((board) => {
      model.set("board", board);
      globalThis.asked -= 1;
    });
  },
};
frontEnd.render({ model, el: document.getElementById("dlviz") });
"""  # noqa: E501


def page_of(board: Board, *, theme: str = "light", live: bool = True) -> str:
    """A page that shows `board`."""
    traits = {
        "state": compact(dressed(Trace(), {"title": "Draw your own"})),
        "board": compact(board.state()),
        "gesture": "[]",
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
