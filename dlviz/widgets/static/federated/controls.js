// The controls: clients and rounds, and in three tabs three sliders each, with choices.
import { select, slider } from "../shared/controls.js";
import { h } from "../shared/dom.js";
import { digits } from "../shared/numbers.js";
import { toggle } from "../shared/stage.js";

/** @import { Child } from "../shared/dom.js" */
/** @import { Federated, Tab } from "./state.js" */

const percent = (share) => `${Math.round(100 * share)} %`;
/** @type {Record<string, [label: string, says: (value: any) => string, short?: (value: any) => string]>} */
const SLIDERS = {
  fraction: ["C, asked", (share) => `${percent(share)} of the clients`, percent],
  epochs: ["E, epochs", (many) => `${many} local epochs`, String],
  batch: ["B, batch", (many) => (many ? `batches of ${many}` : "the whole data as one batch"), (many) => many ?? "∞"],
  alpha: ["α, alike", (value) => `Dirichlet with α = ${digits(value)}`, digits],
  deadline: ["deadline", (took) => (took ? `${digits(took)} seconds` : "none"),
    (took) => (took ? `${took} s` : "none")],
  slow: ["slow clients", (share) => `${percent(share)} of the clients`, percent],
  sigma: ["σ, noise", (value) => (value ? `noise of ${digits(value)} S on the sum` : "no noise"), digits],
  clip: ["S, clip", (norm) => (norm ? `clipped to a norm of ${digits(norm)}` : "not clipped"),
    (norm) => norm ?? "none"],
  attackers: ["attackers", (share) => `${percent(share)} of the clients`, percent],
};
/** @type {Record<Tab, string[]>} */
const IN = {
  rounds: ["fraction", "epochs", "batch"], data: ["alpha", "deadline", "slow"], trust: ["sigma", "clip", "attackers"],
};

/**
 * The groups of the toolbar.
 * @param {Federated} own
 * @returns {Child[][]}
 */
export function controls(own) {
  const { clients, rounds } = own.shown.now.data.knobs;
  return [
    [choice(own, "clients", "clients", clients.map((many) => [many, String(many)]))],
    [choice(own, "rounds", "rounds", rounds.map((many) => [many, String(many)]))],
    [own.bar.start, examples(own)],
  ];
}

/** A button that draws the recorded runs too, or the reader's alone. */
function examples({ shown, ask }) {
  const box = toggle("recorded runs", "show the recorded runs", true, (on) => ask({ examples: on }));
  shown.paints(["data", "live"], () => {
    const { data, live } = shown.now;
    box.hidden = !live;
    box.disabled = data.examples && data.runs.every(({ recorded }) => recorded); // there are no others
    box.setAttribute("aria-pressed", String(data.examples));
  });
  return box;
}

/**
 * Fills the panels of the tabs.
 * @param {Federated} own
 */
export function tabControls(own) {
  const { attacks, methods } = own.shown.now.data;
  /** @type {Record<Tab, Child[][]>} */
  const more = {
    rounds: [[choice(own, "bits", "updates of", [[32, "32 bits"], [16, "16 bits"]])]],
    data: [],
    trust: [
      [choice(own, "attack", "they", attacks)],
      [choice(own, "method", "combined by", methods)],
      [choice(own, "secure", "secure aggregation", [[false, "off"], [true, "on"]])],
    ],
  };
  for (const tab of /** @type {Tab[]} */ (Object.keys(IN))) {
    own.tabs.panels[tab].append(h("div", { class: "dlv-toolbar", role: "group", "aria-label": `controls of ${tab}` },
      [...IN[tab].map((name) => knob(own, name)), ...more[tab]].map((group) => h("span", {}, group))));
  }
}

/** A slider over the values that a control can have. */
function knob(own, name) {
  const [label, says, short = says] = SLIDERS[name];
  const values = own.shown.now.data.knobs[name];
  return slider(own, name, {
    label, says, short, min: 0, max: values.length - 1, class: "dlv-slide",
    place: (value) => values.indexOf(value), value: (place) => values[place],
  }).group;
}

/** A choice among a few values, with its label. */
function choice(own, name, label, /** @type {[any, string][]} */ options) {
  return h("label", {}, `${label} `, select(own, name, options, label));
}
