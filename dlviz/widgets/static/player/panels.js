// The player's panels: ranks on a circle, contents, arithmetic, and tables.
import { h, s, write } from "../shared/dom.js";
import { cellsOf, layoutOf } from "./geometry.js";
import {
  cellPicture, fills, groupNames, headPicture, marks, movesPicture, rankName, ranksPicture, sendsPicture, stripPicture,
} from "./paint.js";
import { messagesIn } from "./state.js";
import { afterwards, cellWords, holdWords, numbersIn, outlineOf, segments, timesOf } from "./words.js";

/** @import { Cell, Layout } from "./geometry.js" */
/** @import { Scene } from "./state.js" */

const WORDED = 60; // messages in words per round
const NAMED = 12; // of them in the label of the circle's picture
const TALL = 44; // pixels of the small pictures of the rounds
let panels = 0;

/** @type {(scene: Scene) => ReturnType<typeof fills<SVGElement>>} */
function filling(scene) {
  return fills(s, scene, `dlv-player-${panels++}`);
}

/** The ranks on a circle and who sends to whom; with `all`, a round without messages shows those of all rounds.
 * @type {(scene: Scene) => { root: HTMLElement, draw: (number: number, all: boolean) => void }} */
export function circlePanel(scene) {
  const size = scene.rows.length <= 6 ? 200 : scene.rows.length <= 16 ? 260 : 360;
  const arrows = s("g");
  const { ground, ranks } = ranksPicture(s, scene, size);
  const picture = s("svg", { class: "dlv-circle", viewBox: `0 0 ${size} ${size}`, role: "img" }, ground, arrows, ranks);
  const title = h("h4");
  return {
    root: h("div", { class: "dlv-circles" }, title, picture),
    draw(number, all) {
      const drawn = messagesIn(scene, number).filter(({ src, dst }) => src !== dst);
      arrows.replaceChildren(...sendsPicture(s, scene, number, size, all));
      write(title, drawn.length || !all ? "Who sends to whom" : "Who sends to whom in all rounds");
      const words = drawn.slice(0, NAMED).map(({ sentence }) => sentence).join("; ");
      picture.setAttribute("aria-label", drawn.length ? `${drawn.length} messages: ${words}` : "no message");
    },
  };
}

/**
 * What each rank holds: a grid of ranks and chunks, with the cells of messages outlined.
 * @typedef {object} ChunksPanel
 * @property {HTMLElement} root
 * @property {HTMLElement} box
 * @property {(width: number, tall: number) => void} lay fits the grid into this size
 * @property {() => Layout} layout
 * @property {() => Cell[]} cells the drawn cells
 * @property {Map<string, SVGElement>} groups the element of each cell, by "row:chunk"
 * @property {(number: number) => void} draw
 */

/** @type {(scene: Scene) => ChunksPanel} */
export function chunksPanel(scene) {
  const { defs, of: filled } = filling(scene);
  const [head, body, moves] = [s("g", { "aria-hidden": "true" }), s("g"), s("g")];
  const grid = s("svg", { class: "dlv-chunks", role: "grid", "aria-readonly": "true" }, defs, head, body, moves);
  const title = h("h4");
  const box = h("div", { class: "dlv-chunkbox" }, grid);
  /** @type {Map<string, SVGElement>} */
  const groups = new Map();
  /** @type {Map<string, string>} */
  const painted = new Map(); // the content of each cell's picture
  const least = layoutOf(scene, 0).width;
  /** @type {Layout} */
  let layout;
  /** @type {Cell[]} */
  let cells = [];
  let asked = "";
  let shown = -1;
  let cut = false; // the picture is wider than its panel

  /** @type {(rank: number, row: number) => SVGGElement} */
  function rowOf(rank, row) {
    return s("g", { role: "row" }, rankName(s, layout, rank, row), scene.chunks.map((_, chunk) => {
      const group = s("g", { role: "gridcell", "data-cell": `${row}:${chunk}` });
      groups.set(`${row}:${chunk}`, group);
      return group;
    }));
  }

  /** @type {(width: number, tall: number) => void} */
  function lay(width, tall) {
    cut = least > width;
    if (asked === `${width} ${tall}`) return;
    asked = `${width} ${tall}`;
    layout = layoutOf(scene, width, tall);
    shown = -1;
    painted.clear();
    grid.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    grid.setAttribute("width", String(layout.width));
    grid.setAttribute("height", String(layout.height));
    head.replaceChildren(...headPicture(s, scene, layout), ...groupNames(s, scene, layout));
    body.replaceChildren(...scene.rows.map(rowOf));
  }

  /** @type {(cell: Cell) => void} */
  function drawCell(cell) {
    const key = `${cell.row}:${cell.chunk}`;
    const is = JSON.stringify([cell.values, cell.runs, cell.note]);
    if (painted.get(key) === is) return;
    painted.set(key, is);
    const group = groups.get(key);
    group?.replaceChildren(s("g", { role: "img", "aria-label": cellWords(scene, cell) },
      cellPicture(s, scene, layout, cell, filled)));
  }

  /** @type {(number: number) => void} */
  function draw(number) {
    const whole = `What each rank holds ${afterwards(scene, number)}${scene.buffer ? ` in ${scene.buffer}` : ""}`;
    write(title, whole + (cut ? " (scroll sideways for the rest)" : ""));
    grid.setAttribute("aria-label", whole);
    cells = cellsOf(scene, layout, number);
    cells.forEach(drawCell);
    if (shown === number) return;
    shown = number;
    moves.replaceChildren(...movesPicture(s, scene, layout, number));
  }

  const root = h("div", { class: "dlv-holds", hidden: !scene.values.length }, title, box);
  return { root, box, lay, layout: () => layout, cells: () => cells, groups, draw };
}

/** All rounds as small pictures, the shown one framed, those after `seen` empty; a click goes there.
 * @type {(scene: Scene, go: (number: number) => void) => { root: HTMLElement, draw: (number: number, seen: number)
 *   => void }} */
export function stripPanel(scene, go) {
  const here = s("rect", { class: "dlv-herenow", y: 0.75, height: TALL - 1.5, rx: 3 });
  const picture = s("svg", { class: "dlv-strip", "aria-hidden": "true", height: TALL });
  const root = h("div", { class: "dlv-strips" }, picture);
  let wide = 0;
  /** @type {SVGElement[]} */
  let parts = [];
  picture.addEventListener("click", ({ target }) => {
    const place = parts.findIndex((part) => part.contains(/** @type {Node} */ (target)));
    if (place >= 0) go(place);
  });
  return {
    root,
    draw(number, seen) {
      const width = Math.max(300, root.clientWidth || 700);
      if (width !== wide) {
        wide = width;
        parts = stripPicture(s, scene, width, TALL);
        root.hidden = !parts.length;
        picture.setAttribute("width", String(width));
        picture.replaceChildren(...parts, here);
      }
      parts.forEach((part, i) => part.classList.toggle("dlv-unseen", i > seen));
      const ground = parts[number]?.firstElementChild;
      for (const name of ["x", "width"]) if (ground) here.setAttribute(name, ground.getAttribute(name) ?? "");
    },
  };
}

/** The legend of the grid. @type {(scene: Scene) => HTMLElement} */
export function legend(scene) {
  const { defs, of: filled } = filling(scene);
  const found = marks(s, scene, filled).map(([parts, width, words], i) =>
    h("span", {}, s("svg", { width, height: 16, "aria-hidden": "true" }, i ? null : defs, parts), words));
  return h("div", { class: "dlv-marks" }, found);
}

/** The messages of a frame in words and numbers.
 * @type {(scene: Scene, choose: (message: number) => void) => { root: HTMLElement, draw: (number: number) => void }} */
export function arithmeticPanel(scene, choose) {
  const list = h("ol", { class: "dlv-steps" });
  const title = h("h4");

  /** @type {(message: number) => HTMLLIElement} */
  function item(message) {
    const { sentence, formula } = scene.messages[message];
    return h("li", {}, h("button",
      { type: "button", "data-message": message, "aria-pressed": "false", onclick: () => choose(message) },
      h("strong", {}, sentence),
      formula.length ? h("code", {}, formula.map((part) => h("span", {}, part))) : null));
  }

  return {
    root: h("div", { class: "dlv-arithmetic" }, title, list),
    draw(number) {
      const { messages, losses, remarks, name } = scene.frames[number];
      const more = messages.length - WORDED;
      write(title, messages.length ? `The arithmetic of ${name}` : "What is sent in all");
      list.replaceChildren(
        ...(losses.length ? [remarkOf("dlv-remark dlv-loss", "Lost", losses)] : []),
        ...(remarks.length ? [remarkOf("dlv-remark", "Remarks", remarks)] : []),
        ...messages.slice(0, WORDED).map(item),
        ...(more > 0 ? [h("li", {}, `and ${more} more messages`)] : []),
        ...(messages.length ? [] : outlineOf(scene).map((line) => h("li", {}, line))),
      );
    },
  };
}

/** @type {(kind: string, title: string, lines: string[]) => HTMLLIElement} */
function remarkOf(kind, title, lines) {
  return h("li", { class: kind }, h("strong", {}, title), lines.map((line) => h("span", {}, line)));
}

/** The pictures as tables, for readers who cannot see them.
 * @type {(scene: Scene) => { root: HTMLElement, draw: (number: number, layout: Layout) => void }} */
export function tablesPanel(scene) {
  const root = h("div", { class: "dlv-tables", hidden: true });

  /** @type {(cell: Cell) => string[][]} */
  function cellRows(cell) {
    if (scene.image) return [[`rank ${cell.rank}`, scene.chunks[cell.chunk].name, "", cellWords(scene, cell)]];
    return segments(scene, cell).map((run) => [
      `rank ${cell.rank}`,
      scene.chunks[cell.chunk].name,
      numbersIn(cell, run).join(", "),
      holdWords(scene, run).replace(/^holds /, ""),
    ]);
  }

  /** @type {(message: number) => string[]} */
  function messageRow(message) {
    const own = scene.messages[message];
    return [own.sentence, own.formula.join(", "), timesOf(own)];
  }

  return {
    root,
    draw(number, layout) {
      const { name, messages } = scene.frames[number];
      const held = cellsOf(scene, layout, number).filter(({ values }) => values.length).flatMap(cellRows);
      const moved = messages.slice(0, WORDED).map(messageRow);
      const contents = `What each rank holds ${afterwards(scene, number)}`;
      const moves = moved.length ? `Messages of ${name}` : number ? "No more messages" : "No message yet";
      root.replaceChildren(
        ...(scene.values.length ? [table(contents, ["rank", "chunk", "contents", "contributions"], held)] : []),
        table(moves, ["message", "in numbers", "bytes and times"], moved),
      );
    },
  };
}

/** @type {(caption: string, head: string[], rows: string[][]) => HTMLElement} */
function table(caption, head, rows) {
  return h("div", { class: "dlv-scroll" }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head.map((words) => h("th", { scope: "col" }, words)))),
    h("tbody", {}, rows.map(([first, ...others]) =>
      h("tr", {}, h("th", { scope: "row" }, first), others.map((words) => h("td", {}, words)))))));
}
