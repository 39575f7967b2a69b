// The look: the colours of the page around, or the reader's own choice of light or dark.
import { h } from "./dom.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const AROUND = {
  paper: "var(--jp-layout-color0, var(--vscode-editor-background, transparent))",
  ink: "var(--jp-ui-font-color0, var(--vscode-editor-foreground, transparent))",
};
const DARK = { dark: "dark", light: "light" }; // what Colab writes on its <html>

/** Keeps root's colours right; calls `changed(colors)` at each change of them. */
export function themed(root, look, model, changed) {
  const probe = h("span", { class: "dlv-probe", "aria-hidden": "true" });
  probe.style.background = AROUND.paper;
  probe.style.color = AROUND.ink;
  root.append(probe);
  const button = h("button", { type: "button", class: "dlv-theme", onclick: turn });
  const inView = new IntersectionObserver((seen) => seen.some(({ isIntersecting }) => isIntersecting) && look_again());
  let shown = "";

  function turn() {
    model.set("theme", NEXT[model.get("theme")]);
    model.save_changes();
    look_again();
  }

  function look_again() {
    if (shown && !root.offsetWidth) { // a notebook has put it aside, where nothing can be painted
      inView.unobserve(root);
      inView.observe(root); // tells at once, or once it is back
      return;
    }
    const chosen = model.get("theme");
    const around = chosen === "auto" ? colorsAround(probe) : null;
    const name = chosen === "auto" ? around.name : chosen;
    const colors = { ...look.themes[name], ...around?.colors, name };
    button.textContent = { auto: "theme: page", light: "theme: light", dark: "theme: dark" }[chosen];
    button.setAttribute("aria-label", `theme: ${chosen === "auto" ? "as the page" : chosen}; press for ${NEXT[chosen]}`);
    if (JSON.stringify(colors) === shown) return;
    shown = JSON.stringify(colors);
    root.dataset.theme = name;
    root.style.colorScheme = name;
    root.style.fontFamily = look.font;
    for (const part of ["paper", "ink", "faint", "grid", "cell"]) {
      root.style.setProperty(`--dlv-${part}`, colors[part]);
    }
    changed(colors);
  }

  const watch = new MutationObserver(look_again);
  for (const node of [document.documentElement, document.body]) {
    watch.observe(node, { attributes: true });
  }
  const shownAgain = new ResizeObserver(look_again);
  shownAgain.observe(root);
  for (const event of ["focusin", "pointerenter"]) root.addEventListener(event, look_again);
  model.on("change:theme", look_again);
  look_again();
  return {
    button,
    stop() {
      watch.disconnect();
      shownAgain.disconnect();
      inView.disconnect();
      model.off("change:theme", look_again);
    },
  };
}

/** What the page around paints: its paper and ink, and whether that is a light or a dark theme. */
function colorsAround(probe) {
  const style = getComputedStyle(probe);
  const [paper, ink] = [style.backgroundColor, style.color];
  const own = luminance(paper);
  if (own == null || luminance(ink) == null) {
    return { name: DARK[document.documentElement.getAttribute("theme")] ?? "light" };
  }
  return { name: own < 0.5 ? "dark" : "light", colors: { paper, ink } };
}

function luminance(color) {
  const parts = color.match(/[\d.]+/g)?.map(Number) ?? [];
  if (parts.length < 3 || parts[3] === 0) return null;
  const whole = color.startsWith("rgb") ? 255 : 1;
  return (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / whole;
}
