// The matrices as blocks in the colours of their ranks, and the collectives between them.
import { h, s, write } from "../shared/dom.js";
import { bytes } from "../shared/numbers.js";
import { fills, swatch } from "../shared/paint.js";
import { tooltip } from "../shared/tooltip.js";
import { fitted } from "../shared/chart.js";
import { pictureOf } from "./geometry.js";
import { blockLines, pictureWords, rankWords, shapeWords } from "./words.js";

/** @import { Arrow, Picture, Placed } from "./geometry.js" */
/** @import { Data, Tensor } from "./state.js" */

/** The picture, `height` pixels high. @type {(own: Tensor, height: number) => HTMLElement} */
export function matricesPicture(own, height) {
  const { shown } = own;
  const { now } = shown;
  const svg = s("svg", { class: "dlv-matrices", role: "group" });
  const plot = h("div", { class: "dlv-plot" }, svg);
  const { element: box, show: showTip, hide } = tooltip(plot);
  const about = h("p", { class: "dlv-about" });
  const element = h("div", { class: "dlv-owners" },
    h("div", { class: "dlv-rankbar" }, h("h4", {}, "Who has which block"), ranksBar(own)), plot, about);
  plot.append(box);
  const owners = fills(now.data.owners);
  /** @type {Picture} */
  let picture = { matrices: [], signs: [], arrows: [] };

  plot.addEventListener("pointermove", (event) => {
    const part = /** @type {Element} */ (event.target).closest("[data-block]");
    const [place, rank] = (part?.getAttribute("data-block") ?? "-1 -1").split(" ").map(Number);
    shown.show({ pointed: rank });
    const found = picture.matrices[place];
    const sheet = found?.sheets.find((one) => one.rank === rank);
    if (sheet) showTip(event, blockLines(found.matrix, rank, sheet.block));
    else hide();
  });
  plot.addEventListener("pointerleave", () => {
    shown.show({ pointed: -1 });
    hide();
  });
  shown.paints(["data", "width", "part"], () => {
    if (!element.clientWidth) return;
    picture = pictureOf(now.data, fitted(svg, element.clientWidth, height), height);
    svg.replaceChildren(...drawn(own, picture, owners));
    svg.setAttribute("aria-label", pictureWords(now.data));
  });
  shown.paints(["data", "width", "part", "rank", "pointed"], () => {
    const hot = now.pointed >= 0 ? now.pointed : now.rank;
    for (const one of svg.querySelectorAll("[data-block]")) {
      const other = hot >= 0 && !one.getAttribute("data-block")?.endsWith(` ${hot}`);
      one.classList.toggle("dlv-dim", other);
    }
    write(about, rankWords(now.data, hot));
  });
  return element;
}

/** A button for each rank that highlights its blocks. @type {(own: Tensor) => HTMLElement} */
function ranksBar(own) {
  const { shown } = own;
  const { now } = shown;
  const bar = h("span", { class: "dlv-rankbar", role: "group", "aria-label": "the blocks of one rank" });
  const buttons = now.data.owners.map((style, rank) => h("button", {
    type: "button", "aria-label": `rank ${rank}`, onclick: () => shown.show({ rank: now.rank === rank ? -1 : rank }),
  }, swatch(style), ` ${rank}`));
  bar.append("rank", ...buttons);
  shown.paints(["data", "rank"], () => buttons.forEach((one, rank) => {
    one.hidden = rank >= now.data.controls.ranks;
    one.setAttribute("aria-pressed", String(rank === now.rank));
  }));
  return bar;
}

/** @type {(own: Tensor, picture: Picture, owners: ReturnType<typeof fills>) => SVGElement[]} */
function drawn(own, { matrices, signs, arrows }, owners) {
  return [
    owners.defs,
    ...matrices.map((placed, place) => matrixOf(placed, place, owners.of)),
    ...signs.map(({ x, y, text }) => s("text", { x, y, class: "dlv-sign" }, text)),
    ...arrows.map((arrow) => arrowOf(own, arrow)),
  ];
}

/** @type {(placed: Placed, place: number, fillOf: (rank: number) => string) => SVGElement} */
function matrixOf({ matrix, sheets, middle, name, made, fits }, place, fillOf) {
  const front = sheets[sheets.length - 1];
  return s("g", { "data-matrix": matrix.name },
    s("text", { x: middle, y: name, class: "dlv-named" }, matrix.name),
    s("text", { x: middle, y: name + 13 }, shapeWords(matrix.shape)),
    sheets.map(({ rank, x, y, width, height }) => s("rect", {
      class: "dlv-block", "data-block": `${place} ${rank}`, x, y, width, height, fill: fillOf(rank),
    })),
    matrix.cut === "sum" && sheets.length > 1
      ? s("text", { class: "dlv-sum", x: front.x + front.width / 2, y: front.y + front.height / 2 }, "Σ") : null,
    fits ? s("text", { x: middle, y: made }, matrix.made) : null);
}

/** A collective; after a run it links to its messages. @type {(own: Tensor, arrow: Arrow) => SVGElement} */
function arrowOf({ shown, tabs, model }, { x1, x2, y, matrix, pass }) {
  const { data } = shown.now;
  const head = x2 > x1 ? 5 : -5;
  const middle = (x1 + x2) / 2;
  const [before, after] = (matrix.collective ?? "").split("-");
  const first = (data.run?.first ?? []).find((row, i) => row >= 0 && (i === pass || i === 2)) ?? -1;
  const says = `${matrix.collective}: a rank sends ${bytes(matrix.bytes ?? 0)}`;
  const open = () => {
    tabs.show("messages");
    model.set("selection", { message: first });
    model.save_changes();
  };
  const element = s("g", {
    class: first < 0 ? "dlv-moves" : "dlv-moves dlv-opens", role: first < 0 ? null : "button",
    tabindex: first < 0 ? null : 0, "aria-label": first < 0 ? null : `${says}; show its messages`,
  },
  s("title", {}, first < 0 ? says : `${says}; click for its messages`),
  s("rect", { class: "dlv-touch", x: middle - 17, y: y - 32, width: 34, height: 52 }),
  s("path", { d: `M${x1} ${y}H${x2}m${-head} -4l${head} 4l${-head} 4` }),
  s("text", { x: middle, y: y - 21 }, `${before}-`), s("text", { x: middle, y: y - 10 }, after),
  s("text", { x: middle, y: y + 13 }, bytes(matrix.bytes ?? 0)));
  if (first < 0) return element;
  element.addEventListener("click", open);
  element.addEventListener("keydown", (event) => {
    if (![" ", "Enter"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    open();
  });
  return element;
}
