// The theme: that of the page around, on a saved page that of the system, or the reader's choice.
import { h } from "./dom.js";

/** What a front end reads and writes: the model of anywidget, of a saved page, or of a part of an explorer. `send`: a
 * message to the kernel; `page`: whether it is a saved page's.
 * @typedef {{ get: (name: string) => any, set: (name: string, value: any) => void, on: (event: string, call:
 *   (...given: any[]) => void) => void, off: (event: string, call: (...given: any[]) => void) => void, save_changes:
 *   () => void, send: (content: object) => void, widget_manager?: any, page?: boolean }} Model */

/** Colours by use, in the theme `name`, "light" or "dark".
 * @typedef {Record<"paper" | "ink" | "faint" | "grid" | "cell" | "name", string> & Record<string, string>} Colors */

/** The fill of a kind, or of a rank's contribution; `pattern` is plotly's symbol, or "".
 * @typedef {{ color: string, pattern: string, ink: string, edge: string, line: string }} Style */

/** The colours and font in every state.
 * @typedef {{ themes: Record<string, Colors>, marks: Record<string, string>, font: string, kinds: Record<string,
 *   Style> }} Look */

/** @type {Record<string, string>} */
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const AROUND = {
  paper: "var(--jp-layout-color0, var(--vscode-editor-background, transparent))",
  ink: "var(--jp-ui-font-color0, var(--vscode-editor-foreground, transparent))",
};
/** @type {Record<string, string>} */
const DARK = { dark: "dark", light: "light" }; // what Colab writes on its <html>
const SYSTEM = "(prefers-color-scheme: dark)";

/** Sets root's colours. The model's `theme` is "auto" (as the page, on a saved page as the system), "light" or
 * "dark"; the button goes to the next. `changed` is called with the colours, immediately and at each change.
 * @type {(root: HTMLElement, look: Look, model: Model, changed: (colors: Colors) => void) => { button:
 *   HTMLButtonElement, stop: () => void }} */
export function themed(root, look, model, changed) {
  const probe = h("span", { class: "dlv-probe", "aria-hidden": "true" });
  probe.style.background = AROUND.paper;
  probe.style.color = AROUND.ink;
  root.append(probe);
  const button = h("button", { type: "button", class: "dlv-theme", onclick: turn });
  const inView = new IntersectionObserver((seen) => seen.some(({ isIntersecting }) => isIntersecting) && lookAgain());
  const system = model.page ? matchMedia(SYSTEM) : null;
  let shown = "";

  function turn() {
    model.set("theme", NEXT[model.get("theme")]);
    model.save_changes();
    lookAgain();
  }

  function lookAgain() {
    if (shown && !root.offsetWidth) { // a notebook hides it: nothing can be painted
      inView.unobserve(root);
      inView.observe(root); // reports immediately, or once it is back
      return;
    }
    const chosen = model.get("theme");
    const around = chosen === "auto" ? colorsAround(probe, system?.matches) : null;
    const name = around?.name ?? chosen;
    const colors = { ...look.marks, ...look.themes[name], ...around?.colors, name };
    button.textContent = `theme: ${chosen === "auto" ? (system ? "system" : "page") : chosen}`;
    button.setAttribute("aria-label", `${button.textContent}; press for ${NEXT[chosen]}`);
    if (JSON.stringify(colors) === shown) return;
    shown = JSON.stringify(colors);
    root.dataset.theme = name;
    root.style.colorScheme = name;
    root.style.fontFamily = look.font;
    for (const [part, color] of Object.entries(colors)) root.style.setProperty(`--dlv-${part}`, color);
    changed(colors);
  }

  const watch = new MutationObserver(lookAgain);
  for (const node of [document.documentElement, document.body]) {
    watch.observe(node, { attributes: true });
  }
  const shownAgain = new ResizeObserver(lookAgain);
  shownAgain.observe(root);
  for (const event of ["focusin", "pointerenter"]) root.addEventListener(event, lookAgain);
  model.on("change:theme", lookAgain);
  system?.addEventListener("change", lookAgain);
  lookAgain();
  return {
    button,
    stop() {
      watch.disconnect();
      shownAgain.disconnect();
      inView.disconnect();
      model.off("change:theme", lookAgain);
      system?.removeEventListener("change", lookAgain);
    },
  };
}

/** The page's paper and ink, and whether its theme is light or dark; `dark` decides where the page does not say.
 * @type {(probe: HTMLElement, dark?: boolean) => { name: string, colors?: { paper: string, ink: string } }} */
function colorsAround(probe, dark) {
  const style = getComputedStyle(probe);
  const [paper, ink] = [style.backgroundColor, style.color];
  const own = luminance(paper);
  if (own == null || luminance(ink) == null) {
    return { name: DARK[document.documentElement.getAttribute("theme") ?? ""] ?? (dark ? "dark" : "light") };
  }
  return { name: own < 0.5 ? "dark" : "light", colors: { paper, ink } };
}

/** @type {(color: string) => number | null} */
function luminance(color) {
  const parts = color.match(/[\d.]+/g)?.map(Number) ?? [];
  if (parts.length < 3 || parts[3] === 0) return null;
  const whole = color.startsWith("rgb") ? 255 : 1;
  return (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / whole;
}
