// The frame of a front end: heading, toolbar, body, keys and their help, and what is read out.
import { h, write } from "./dom.js";
import { themed } from "./theme.js";

const GONE = "This widget's kernel is gone: run its cell again.";

/**
 * A region in `el` that takes keys when it has the focus and leaves Tab to the page.
 *
 * `keys` are [shown keys, what they do, {key: action}] rows; an action gets the event and is not
 * called while the reader types into a field. `clear` is what Escape does; where it gives false there
 * was nothing to clear, and the focus goes to what holds the region. `details` are sentences behind
 * an (i) beside the title. `onColors` gets the theme's colours.
 */
export function stage(el, { name, look, model, title, lines, details = [], keys, clear = () => false, onColors }) {
  const actions = Object.assign({}, ...keys.map(([, , own]) => own));
  const shownKeys = [...keys, ["Esc", "clear, again: leave", {}], ["?", "list the keys", {}], ["Tab", "leave", {}]];
  const toolbar = h("div", { class: "dlv-toolbar", role: "group", "aria-label": `${name} controls` });
  const body = h("div", { class: "dlv-body" });
  const spoken = h("div", { class: "dlv-spoken", role: "status", "aria-live": "polite" });
  const list = popup(`Keys of the ${name}`, h("table", {}, h("caption", {}, `Keys of the ${name}`), shownKeys.map(([shown, does]) =>
    h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, shown)), h("td", {}, does)))));
  const told = popup(`Details of the ${name}`, details.map((line) => h("p", {}, line)));
  const popups = [list, told];
  const legend = h("div", { class: "dlv-keys", "aria-hidden": "true" });
  const named = (rows) => {
    legend.replaceChildren(...[["?", "all keys"], ...rows].map(([shown, does]) => h("span", {}, h("kbd", {}, shown), ` ${does}`)));
  };
  named(keys);
  const info = h("button", { type: "button", class: "dlv-info", "aria-label": "details", title: "details", "aria-expanded": "false", onclick: () => told.open(told.box.hidden), hidden: !details.length }, "i");
  const heading = h("div", { class: "dlv-heading" }, h("h3", {}, title), info);
  const gone = h("p", { class: "dlv-gone", role: "alert" });
  const root = h(
    "section",
    {
      class: "dlv",
      tabindex: "0",
      role: "region",
      "aria-label": `${name}: ${title}. Press question mark for the keys.`,
      "data-lm-suppress-shortcuts": "true",
    },
    h("header", {}, heading, lines.map((line) => h("p", {}, line)), gone),
    toolbar, body, legend, list.box, told.box, spoken,
  );
  const helpButton = h("button", { type: "button", "aria-expanded": "false", onclick: () => list.open(list.box.hidden) }, "keys ?");
  list.by = helpButton;
  told.by = info;

  function leave() {
    const around = root.parentElement.closest("[tabindex]");
    if (around) around.focus({ preventScroll: true });
    else root.blur();
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    const typing = event.target.matches("input:not([type=checkbox]):not([type=range]), textarea, select");
    const pressing = event.target.closest("button, a, summary") && [" ", "Enter"].includes(event.key);
    if (event.defaultPrevented || pressing) return event.stopPropagation();
    const shown = popups.find(({ box }) => !box.hidden);
    if (event.key === "Escape" && shown) shown.open(false);
    else if (typing && event.key !== "Escape") return event.stopPropagation();
    else if (event.key === "Escape") clear() || leave();
    else if (event.key === "?") list.open(list.box.hidden);
    else {
      const action = actions[event.key] ?? actions[event.key.toLowerCase()];
      if (!action) return;
      action(event);
    }
    event.preventDefault();
    event.stopPropagation();
  });

  const still = model.get("still"); // the picture of this widget, which is for where no widget lives
  if (still) root.append(h("style", {}, `.dlv-still-${still} { display: none }`));
  el.append(root);
  const theme = themed(root, look, model, onColors);
  toolbar.append(h("span", { class: "dlv-end" }, helpButton, theme.button));
  return {
    root,
    body,
    /** Puts an element beside the title. */
    head: (element) => heading.append(element),
    /** Puts controls into the toolbar, in groups. */
    controls: (...groups) => toolbar.prepend(...groups.map((group) => h("span", {}, group))),
    /** Names these keys in the line below, in place of its own. */
    keys: (rows = keys) => named(rows),
    /** Says a sentence to those who listen. */
    say: (text) => write(spoken, text),
    /** Says that no kernel answers any more. */
    gone: () => write(gone, GONE),
    stop: theme.stop,
  };
}

/** A box over the front end that `open(true)` shows and `open(false)` closes; `by` is its button. */
function popup(name, content) {
  const close = h("button", { type: "button", onclick: () => own.open(false) }, "close");
  const box = h("div", { class: "dlv-help", role: "dialog", "aria-label": name, hidden: true }, content, close);
  let before = null; // what had the focus
  const own = {
    box,
    by: null,
    open(shown) {
      if (box.hidden !== shown) return;
      box.hidden = !shown;
      own.by.setAttribute("aria-expanded", String(shown));
      const root = box.parentElement;
      if (shown) {
        before = root.contains(document.activeElement) ? document.activeElement : root;
        close.focus();
      } else before?.focus();
    },
  };
  return own;
}

/** A button of a toolbar that is on or off. */
export function toggle(label, name, on, changed) {
  const button = h("button", {
    type: "button", "aria-pressed": String(on), "aria-label": name, title: name,
    onclick: () => button.turn(),
  }, label);
  button.turn = (value = button.getAttribute("aria-pressed") !== "true") => {
    button.setAttribute("aria-pressed", String(value));
    changed(value);
  };
  return button;
}

/** A button of a toolbar. */
export function button(label, name, pressed) {
  return h("button", { type: "button", "aria-label": name, title: name, onclick: pressed }, label);
}
