// Searches the names of spans.
import { h, write } from "../shared/dom.js";
import { titleOf } from "./words.js";

/** @import { Timeline } from "./context.js" */

/** @type {(own: Timeline) => Timeline["search"]} */
export function search(own) {
  const { shown, scene, clock } = own;
  const { now } = shown;
  const counted = h("span", { class: "dlv-found", role: "status" });
  const field = h("input", {
    type: "search", placeholder: "search names", "aria-label": "search spans by name", size: "14",
    oninput: () => find(field.value),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") next(!event.shiftKey);
      if (event.key === "Escape") {
        clear();
        own.frame.root.focus();
      }
      if (["Enter", "Escape"].includes(event.key)) event.preventDefault();
    },
  });

  /** Shows the matches; null ends the search. @type {(matches: Uint8Array | null) => void} */
  function found(matches) {
    const count = matches?.reduce((sum, one) => sum + one, 0) ?? 0;
    write(counted, matches ? `${count.toLocaleString("en")} found` : "");
    shown.set({ matches });
  }

  /** @type {(text: string) => void} */
  function find(text) {
    const query = text.trim().toLowerCase();
    shown.set({ query });
    if (!query) return found(null);
    const { kind, name, label, where } = scene.span;
    const known = new Map();
    found(Uint8Array.from({ length: scene.count }, (_, i) => {
      const all = `${titleOf(scene, i)} ${kind[i]} ${name[i]} ${label[i].join(" ")} ${where[i]}`;
      if (!known.has(all)) known.set(all, Number(all.toLowerCase().includes(query)));
      return known.get(all);
    }));
  }

  function clear() {
    field.value = "";
    find("");
  }

  /** @type {(forward: boolean) => void} */
  function next(forward) {
    if (!now.matches) return;
    const { start } = clock();
    const places = [...now.matches.keys()].filter((i) => now.matches?.[i]);
    places.sort((a, b) => start[a] - start[b] || a - b);
    if (!places.length) return;
    const at = places.indexOf(now.span);
    const after = at >= 0 ? at + (forward ? 1 : -1) : places.findIndex((i) => start[i] >= now.from);
    own.moves.go(places[(Math.max(after, at >= 0 ? after : 0) + places.length) % places.length]);
  }

  return { group: [field, counted], focus: () => field.focus(), clear, found };
}
