// The frame of a front end: heading, toolbar, body, keys and their help, and what is read out.
import { h, write } from "./base.js";
import { themed } from "./theme.js";

/**
 * A region in `el` that takes keys when it has the focus and leaves Tab to the page.
 *
 * `keys` are [shown keys, what they do, {key: action}] rows; an action gets the event and is not
 * called while the reader types into a field. `clear` is what Escape does; where it gives false there
 * was nothing to clear, and the focus goes to what holds the region. `onColors` gets the theme's
 * colours.
 */
export function stage(el, { name, look, model, title, lines, keys, clear, onColors }) {
  const actions = Object.assign({}, ...keys.map(([, , own]) => own));
  const shownKeys = [...keys, ["Esc", "clear, again: leave", {}], ["?", "list the keys", {}], ["Tab", "leave", {}]];
  const toolbar = h("div", { class: "dlv-toolbar", role: "group", "aria-label": `${name} controls` });
  const body = h("div", { class: "dlv-body" });
  const spoken = h("div", { class: "dlv-spoken", role: "status", "aria-live": "polite" });
  const close = h("button", { type: "button", onclick: () => help(false) }, "close");
  const list = h(
    "div",
    { class: "dlv-help", role: "dialog", "aria-label": `Keys of the ${name}`, hidden: true },
    h("table", {}, h("caption", {}, `Keys of the ${name}`), shownKeys.map(([shown, does]) =>
      h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, shown)), h("td", {}, does)))),
    close,
  );
  const legend = h(
    "div",
    { class: "dlv-keys", "aria-hidden": "true" },
    [["?", "all keys"], ...keys].map(([shown, does]) => h("span", {}, h("kbd", {}, shown), ` ${does}`)),
  );
  const heading = h("h3", {}, title);
  const root = h(
    "section",
    {
      class: "dlv",
      tabindex: "0",
      role: "region",
      "aria-label": `${name}: ${title}. Press question mark for the keys.`,
      "data-lm-suppress-shortcuts": "true",
    },
    h("header", {}, heading, lines.map((line) => h("p", {}, line))),
    toolbar, body, legend, list, spoken,
  );
  const helpButton = h("button", { type: "button", "aria-expanded": "false", onclick: () => help(list.hidden) }, "keys ?");
  let before = null;

  function help(open) {
    if (list.hidden !== open) return;
    list.hidden = !open;
    helpButton.setAttribute("aria-expanded", String(open));
    if (open) {
      before = root.contains(document.activeElement) ? document.activeElement : root;
      close.focus();
    } else before?.focus();
  }

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
    if (event.key === "Escape" && !list.hidden) help(false);
    else if (typing && event.key !== "Escape") return event.stopPropagation();
    else if (event.key === "Escape") clear() || leave();
    else if (event.key === "?") help(list.hidden);
    else {
      const action = actions[event.key] ?? actions[event.key.toLowerCase()];
      if (!action) return;
      action(event);
    }
    event.preventDefault();
    event.stopPropagation();
  });

  el.append(root);
  const theme = themed(root, look, model, onColors);
  toolbar.append(h("span", { class: "dlv-end" }, helpButton, theme.button));
  return {
    root,
    body,
    /** Puts controls into the toolbar, in groups. */
    controls: (...groups) => toolbar.prepend(...groups.map((group) => h("span", {}, group))),
    /** Says a sentence to those who listen. */
    say: (text) => write(spoken, text),
    stop: theme.stop,
  };
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
