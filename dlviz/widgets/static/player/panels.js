// The player's panels: ranks on a circle, what each rank holds, the arithmetic, and all as tables.
import { h, s, write } from "../shared/dom.js";
import { bytes, moment, seconds, unitOf } from "../shared/numbers.js";
import { cellsOf, holdWords, layoutOf, messagesIn, stretches } from "./geometry.js";
import {
  cellPicture,
  cellWords,
  fills,
  headPicture,
  marks,
  movesPicture,
  rankName,
  ranksPicture,
  sendsPicture,
  stripPicture,
} from "./paint.js";

const WORDED = 60; // messages put in words per round
const TALL = 44; // pixels of the small pictures of the rounds
let panels = 0;

function filling(scene) {
  return fills(s, [...scene.ranks, scene.undecoded], `dlv-player-${panels++}`);
}

function afterwards({ frames }, number) {
  const { name, messages } = frames[number];
  return messages.length ? `after ${name}` : number ? "in the end" : "at the start";
}

/** The ranks on a circle and who sends to whom. */
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
      const words = drawn
        .slice(0, 12)
        .map(({ sentence }) => sentence)
        .join("; ");
      picture.setAttribute("aria-label", drawn.length ? `${drawn.length} messages: ${words}` : "no message");
    },
  };
}

/** What each rank holds: a grid of ranks and chunks, in which a message's cells are outlined. */
export function chunksPanel(scene) {
  const { defs, of: filled } = filling(scene);
  const [head, body, moves] = [s("g", { "aria-hidden": "true" }), s("g"), s("g")];
  const grid = s("svg", { class: "dlv-chunks", role: "grid", "aria-readonly": "true" }, defs, head, body, moves);
  const title = h("h4");
  const box = h("div", { class: "dlv-chunkbox" }, grid);
  const groups = new Map();
  const least = layoutOf(scene, 0).width;
  let layout = null;
  let asked = "";
  let shown = -1;
  let cut = false; // the picture is wider than its panel

  function lay(width, tall) {
    cut = least > width;
    if (asked === `${width} ${tall}`) return;
    asked = `${width} ${tall}`;
    layout = layoutOf(scene, width, tall);
    shown = -1;
    groups.clear();
    grid.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    grid.setAttribute("width", layout.width);
    grid.setAttribute("height", layout.height);
    head.replaceChildren(...headPicture(s, scene, layout).flat().filter(Boolean));
    body.replaceChildren(
      ...scene.rows.map((rank, row) =>
        s(
          "g",
          { role: "row" },
          rankName(s, layout, rank, row),
          scene.chunks.map((_, chunk) => {
            const group = s("g", { role: "gridcell", "data-cell": `${row}:${chunk}` });
            groups.set(`${row}:${chunk}`, { group, is: "" });
            return group;
          }),
        ),
      ),
    );
  }

  return {
    root: h("div", { class: "dlv-holds", hidden: !scene.values.length }, title, box),
    box,
    grid,
    groups,
    lay,
    layout: () => layout,
    cell: (key) => groups.get(key)?.cell,
    draw(number) {
      const whole = `What each rank holds ${afterwards(scene, number)}${scene.buffer ? ` in ${scene.buffer}` : ""}`;
      write(title, whole + (cut ? " (scroll sideways for the rest)" : ""));
      grid.setAttribute("aria-label", whole);
      for (const cell of cellsOf(scene, layout, number)) {
        const own = groups.get(`${cell.row}:${cell.chunk}`);
        const is = JSON.stringify([cell.values, cell.runs]);
        own.cell = cell;
        if (own.is === is) continue;
        own.is = is;
        own.group.replaceChildren(...cellPicture(s, scene, layout, cell, filled));
        own.group.setAttribute("aria-label", cellWords(scene, cell));
      }
      if (shown === number) return;
      shown = number;
      moves.replaceChildren(...movesPicture(s, scene, layout, number));
    },
  };
}

/** All rounds as small pictures, the one shown framed; a click goes there. */
export function stripPanel(scene, go) {
  const here = s("rect", { class: "dlv-herenow", y: 0.75, height: TALL - 1.5, rx: 3 });
  const picture = s("svg", { class: "dlv-strip", "aria-hidden": "true", height: TALL });
  const root = h("div", { class: "dlv-strips" }, picture);
  let wide = 0;
  picture.addEventListener("click", ({ target }) => {
    const part = target.closest("[data-frame]");
    if (part) go(Number(part.dataset.frame));
  });
  return {
    root,
    draw(number, seen) {
      const width = Math.max(300, root.clientWidth || 700);
      if (width !== wide) {
        wide = width;
        const parts = stripPicture(s, scene, width, TALL);
        root.hidden = !parts.length;
        picture.setAttribute("width", width);
        picture.replaceChildren(...parts, here);
      }
      const parts = picture.querySelectorAll("[data-frame]");
      parts.forEach((part, i) => part.classList.toggle("dlv-unseen", i > seen));
      const ground = parts[number]?.firstChild;
      for (const name of ["x", "width"]) if (ground) here.setAttribute(name, ground.getAttribute(name));
    },
  };
}

/** What the marks of the grid mean. */
export function legend(scene) {
  const { defs, of: filled } = filling(scene);
  const found = marks(s, scene, filled).map(([parts, width, words]) =>
    h("span", {}, s("svg", { width, height: 16, "aria-hidden": "true" }, parts), words),
  );
  found[0]?.firstChild.prepend(defs);
  return h("div", { class: "dlv-marks" }, found);
}

/** All rounds in a few lines: those of one phase together. */
function outlineOf({ frames, messages }) {
  const parts = [];
  for (const { name, phase, messages: own } of frames.filter((frame) => frame.messages.length)) {
    const last = parts.at(-1);
    const call = name.match(/^call \d+/)?.[0] ?? "";
    if (last?.phase === phase && last.call === call)
      Object.assign(last, { rounds: last.rounds + 1, many: last.many + own.length });
    else parts.push({ phase, call, rounds: 1, many: own.length });
  }
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const lines = parts
    .slice(0, 12)
    .map(
      ({ phase, call, rounds, many }) =>
        `${[call, phase].filter(Boolean).join(", ")}: ${counted(many, "message")} in ${counted(rounds, "round")}`,
    );
  return lines.length
    ? [...lines, `${counted(Object.keys(messages).length, "message")} in all`]
    : ["No message was sent."];
}

/** A message's bytes and times in words. */
export function timesOf({ nbytes, sent, received }) {
  const unit = unitOf(received ?? sent);
  const parts = nbytes >= 0 ? [bytes(nbytes)] : [];
  parts.push(`sent at ${moment(sent, unit)}`);
  if (received != null) parts.push(`received at ${moment(received, unit)}, ${seconds(received - sent)} later`);
  return parts.join(" · ");
}

/** The messages of a frame in words and numbers. */
export function arithmeticPanel(scene, choose) {
  const list = h("ol", { class: "dlv-steps" });
  const title = h("h4");
  return {
    root: h("div", { class: "dlv-arithmetic" }, title, list),
    draw(number) {
      const { messages, losses, notes, name } = scene.frames[number];
      write(title, messages.length ? `The arithmetic of ${name}` : "What is sent in all");
      const items = messages.slice(0, WORDED).map((message) => {
        const own = scene.messages[message];
        return h(
          "li",
          {},
          h(
            "button",
            { type: "button", "data-message": message, "aria-pressed": "false", onclick: () => choose(message) },
            h("strong", {}, own.sentence),
            own.formula.length
              ? h(
                  "code",
                  {},
                  own.formula.map((part) => h("span", {}, part)),
                )
              : null,
          ),
        );
      });
      if (messages.length > WORDED) items.push(h("li", {}, `and ${messages.length - WORDED} more messages`));
      if (!messages.length) items.push(...outlineOf(scene).map((line) => h("li", {}, line)));
      if (notes.length) items.unshift(noteOf("dlv-note", "To note", notes));
      if (losses.length) items.unshift(noteOf("dlv-note dlv-loss", "Lost", losses));
      list.replaceChildren(...items);
    },
  };
}

function noteOf(kind, title, lines) {
  return h(
    "li",
    { class: kind },
    h("strong", {}, title),
    lines.map((line) => h("span", {}, line)),
  );
}

/** The same as tables, for those who cannot see the pictures. */
export function tablesPanel(scene, layoutNow) {
  const root = h("div", { class: "dlv-tables", hidden: true });
  const cell = (tag, words) => h(tag, tag === "th" ? { scope: "col" } : {}, words);
  return {
    root,
    draw(number) {
      const { name } = scene.frames[number];
      const cells = cellsOf(scene, layoutNow(), number).filter(({ values }) => values.length);
      const rows = cells.flatMap((own) =>
        stretches(scene, own).map((run) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, `rank ${own.rank}`),
            h("td", {}, scene.chunks[own.chunk].name),
            h(
              "td",
              {},
              own.values
                .filter(({ column }) => column >= run.from && column < run.to)
                .map(({ text }) => text)
                .join(", "),
            ),
            h("td", {}, holdWords(scene, run).replace(/^holds /, "")),
          ),
        ),
      );
      const moved = scene.frames[number].messages.slice(0, WORDED).map((message) => {
        const own = scene.messages[message];
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, own.sentence),
          h("td", {}, own.formula.join(", ")),
          h("td", {}, timesOf(own)),
        );
      });
      root.replaceChildren(
        h(
          "div",
          { class: "dlv-scroll" },
          h(
            "table",
            {},
            h("caption", {}, `What each rank holds ${afterwards(scene, number)}`),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["rank", "chunk", "contents", "contributions"].map((words) => cell("th", words)),
              ),
            ),
            h("tbody", {}, rows),
          ),
        ),
        h(
          "div",
          { class: "dlv-scroll" },
          h(
            "table",
            {},
            h("caption", {}, moved.length ? `Messages of ${name}` : number ? "No more messages" : "No message yet"),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["message", "in numbers", "bytes and times"].map((words) => cell("th", words)),
              ),
            ),
            h("tbody", {}, moved),
          ),
        ),
      );
    },
  };
}

/** Rows of the messages that took from, or reached, a rank's chunk (any chunk, if none is given). */
export function messagesAt(scene, number, rank, chunk = null) {
  return messagesIn(scene, number)
    .filter(
      ({ src, dst, chunks }) =>
        (src === rank || dst === rank) && (chunk == null || (chunk >= chunks[0] && chunk < chunks[1])),
    )
    .map(({ message }) => message);
}
