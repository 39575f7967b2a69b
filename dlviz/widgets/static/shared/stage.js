// The frame of a front end: heading, toolbar, body, keys and their help, and sentences read out.
import { h, write } from "./dom.js";
import { themed } from "./theme.js";

/** @import { Child } from "./dom.js" */
/** @import { Colors, Look, Model } from "./theme.js" */

/** Keys as shown, what they do, and the action of each `event.key`.
 * @typedef {[shown: string, does: string, actions: Record<string, (event: KeyboardEvent) => void>]} KeyRow */

/**
 * @typedef {object} Plan the description of a front end
 * @property {string} name what it is called
 * @property {Look} look
 * @property {Model} model
 * @property {string} title
 * @property {string[]} lines below the title
 * @property {string[]} [details] sentences behind an (i) beside the title
 * @property {KeyRow[]} keys no action is called while the reader types into a field or moves a slider
 * @property {() => boolean | void} [clear] what Escape does; false if there was nothing to clear: the focus then goes
 *   to what holds the region
 * @property {(colors: Colors) => void} onColors receives the theme's colours, immediately and at each change
 */

/**
 * @typedef {object} Stage
 * @property {HTMLElement} root
 * @property {HTMLElement} body the front end's parts
 * @property {(element: HTMLElement) => void} head puts an element beside the title
 * @property {(...groups: Child[]) => void} controls puts controls into the toolbar, in groups
 * @property {(rows?: [shown: string, does: string, ...rest: unknown[]][]) => void} keys shows these keys in the line
 *   below, in place of the front end's
 * @property {(text: string) => void} say has screen readers read a sentence
 * @property {() => void} gone shows that no kernel answers any more
 * @property {() => void} stop
 */

const GONE = "This widget's kernel is gone: run its cell again.";
const COMMON = [["Esc", "clear, again: leave"], ["?", "list the keys"], ["Tab", "leave"]];
const TYPED_INTO = "input:not([type=checkbox]):not([type=range]), textarea, select";
const SLIDES = /^(Arrow|Page|Home$|End$)/; // the keys of a slider

/** A region in `el` that handles keys while it has the focus, except Tab.
 * @type {(el: HTMLElement, plan: Plan) => Stage} */
export function stage(el, { name, look, model, title, lines, details = [], keys, clear = () => false, onColors }) {
  const helpButton = h("button", { type: "button", "aria-expanded": "false", onclick: () => help.turn() }, "keys ?");
  const info = h("button", {
    type: "button", class: "dlv-info", "aria-label": "details", title: "details", "aria-expanded": "false",
    onclick: () => more.turn(), hidden: !details.length,
  }, "i");
  const help = popup(`Keys of the ${name}`, helpButton, keyTable(`Keys of the ${name}`, [...keys, ...COMMON]));
  const more = popup(`Details of the ${name}`, info, details.map((line) => h("p", {}, line)));
  const heading = h("div", { class: "dlv-heading" }, h("h3", { "aria-level": model.page ? 1 : null }, title), info);
  const gone = h("p", { class: "dlv-gone", role: "alert" });
  const toolbar = h("div", { class: "dlv-toolbar", role: "group", "aria-label": `${name} controls` });
  const body = h("div", { class: "dlv-body" });
  const legend = h("div", { class: "dlv-keys", "aria-hidden": "true" });
  const spoken = h("div", { class: "dlv-spoken", role: "status", "aria-live": "polite" });
  const root = h("section", {
    class: "dlv", tabindex: "0", role: "region", "data-page": Boolean(model.page),
    "aria-label": `${name}: ${title}. Press question mark for the keys.`,
    "data-lm-suppress-shortcuts": "true",
  },
  h("header", {}, heading, lines.map((line) => h("p", {}, line)), gone),
  toolbar, body, legend, help.box, more.box, spoken);
  /** @type {Stage["keys"]} */
  const named = (rows = keys) => legend.replaceChildren(
    ...[["?", "all keys"], ...rows].map(([shown, does]) => h("span", {}, h("kbd", {}, shown), ` ${does}`)),
  );
  named();
  listen(root, { keys, help, popups: [help, more], clear });
  const still = model.get("still"); // the widget's still picture, for where no widget lives
  if (still) root.append(h("style", {}, `.dlv-still-${still} { display: none }`));
  el.append(root);
  const theme = themed(root, look, model, onColors);
  toolbar.append(h("span", { class: "dlv-end" }, helpButton, theme.button));
  return {
    root,
    body,
    head: (element) => heading.append(element),
    controls: (...groups) => toolbar.prepend(...groups.map((group) => h("span", {}, group))),
    keys: named,
    say: (text) => write(spoken, text),
    gone: () => write(gone, GONE),
    stop: theme.stop,
  };
}

/** @type {(title: string, rows: any[][]) => HTMLElement} */
function keyTable(title, rows) {
  return h("table", {}, h("caption", {}, title), rows.map(([shown, does]) =>
    h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, shown)), h("td", {}, does))));
}

/** Handles keys in `root`; a handled key does not reach the page.
 * @type {(root: HTMLElement, does: { keys: KeyRow[], help: Popup, popups: Popup[], clear: () => boolean | void }) =>
 *   void} */
function listen(root, { keys, help, popups, clear }) {
  /** @type {KeyRow[2]} */
  const actions = Object.assign({}, ...keys.map(([, , own]) => own));
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    const target = /** @type {HTMLElement} */ (event.target);
    const sliding = target.matches("input[type=range]") && SLIDES.test(event.key);
    const typing = sliding || target.matches(TYPED_INTO);
    const pressing = target.closest("button, a, summary") && [" ", "Enter"].includes(event.key);
    if (event.defaultPrevented || pressing) return event.stopPropagation();
    const shown = popups.find(({ box }) => !box.hidden);
    if (event.key === "Escape" && shown) shown.open(false);
    else if (typing && event.key !== "Escape") return event.stopPropagation();
    else if (event.key === "Escape") clear() || leave(root);
    else if (event.key === "?") help.turn();
    else {
      const action = actions[event.key] ?? actions[event.key.toLowerCase()];
      if (!action) return;
      action(event);
    }
    event.preventDefault();
    event.stopPropagation();
  });
}

/** @type {(root: HTMLElement) => void} */
function leave(root) {
  const around = /** @type {HTMLElement | null | undefined} */ (root.parentElement?.closest("[tabindex]"));
  if (around) around.focus({ preventScroll: true });
  else root.blur();
}

/** @typedef {{ box: HTMLElement, open: (shown: boolean) => void, turn: () => void }} Popup */

/** A box over the front end that `by` opens and closes.
 * @type {(name: string, by: HTMLElement, content: Child) => Popup} */
function popup(name, by, content) {
  const close = h("button", { type: "button", onclick: () => open(false) }, "close");
  const box = h("div", { class: "dlv-help", role: "dialog", "aria-label": name, hidden: true }, content, close);
  /** @type {HTMLElement | null} */
  let before = null; // what had the focus

  /** @type {Popup["open"]} */
  function open(shown) {
    if (box.hidden !== shown) return;
    box.hidden = !shown;
    by.setAttribute("aria-expanded", String(shown));
    const root = box.parentElement;
    if (shown) {
      const focused = /** @type {HTMLElement | null} */ (document.activeElement);
      before = root?.contains(focused) ? focused : root;
      close.focus();
    } else before?.focus();
  }

  return { box, open, turn: () => open(Boolean(box.hidden)) };
}

/** @typedef {HTMLButtonElement & { turn: (on?: boolean) => void }} Toggle `turn` does what a click does */

/** A toolbar button that is on or off.
 * @type {(label: Child, name: string, on: boolean, changed: (on: boolean) => void) => Toggle} */
export function toggle(label, name, on, changed) {
  const element = h("button", {
    type: "button", "aria-pressed": String(on), "aria-label": name, title: name, onclick: () => turn(),
  }, label);

  /** @type {(value?: boolean) => void} */
  function turn(value = element.getAttribute("aria-pressed") !== "true") {
    element.setAttribute("aria-pressed", String(value));
    changed(value);
  }

  return Object.assign(element, { turn });
}

/** Makes a button's panel take the focus when it opens; Escape closes it and returns the focus.
 * @type {<Button extends Toggle>(opener: Button, panel: HTMLElement) => Button} */
export function opens(opener, panel) {
  panel.tabIndex = -1;
  opener.addEventListener("click", () => {
    const field = /** @type {HTMLElement | null} */ (panel.querySelector("textarea, input"));
    if (!panel.hidden) (field ?? panel).focus({ preventScroll: true });
  });
  for (const one of [opener, panel]) {
    one.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || panel.hidden) return;
      opener.turn(false);
      opener.focus();
      event.preventDefault();
      event.stopPropagation();
    });
  }
  return opener;
}

/** A toolbar button. @type {(label: Child, name: string, pressed: (event: MouseEvent) => void) => HTMLButtonElement} */
export function button(label, name, pressed) {
  return h("button", { type: "button", "aria-label": name, title: name, onclick: pressed }, label);
}
