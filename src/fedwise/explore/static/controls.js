// Sliders, numbers and lists on the left: they read the state and report changes to it.

import { clamp, release, WEIGHTS } from "./state.js";
import { element } from "./words.js";

const HINTS = { alpha: ["α", "direct_bias"], beta: ["β", "proxy_bias"], gamma: ["γ", "redundancy"], lam: ["λ", "signal"] };

export function controls(pool, onChange) {
  const find = (id) => document.getElementById(id);
  const host = find("weights");
  const sliders = {};
  for (const name of WEIGHTS) {
    const [letter, term] = HINTS[name];
    const top = Math.max(4, Math.ceil(2 * pool.weights[name]));
    const range = element("input", { id: name, type: "range", min: 0, max: top, step: 0.01 });
    const exact = element("input", { type: "number", min: 0, step: "any", "aria-label": `${letter}, ${pool.terms[term]}, as a number` });
    const set = (value) => Number.isFinite(value) && value >= 0 && onChange((state) => ({ ...state, weights: { ...state.weights, [name]: value } }));
    range.addEventListener("input", () => set(range.valueAsNumber));
    exact.addEventListener("input", () => set(exact.valueAsNumber));
    host.append(element("div", { class: `slider ${term}` }, element("label", { for: name }, `${letter}, ${pool.terms[term].toLowerCase()}`), exact, range));
    sliders[name] = { range, exact };
  }
  const size = find("k"), exactSize = find("k-number"), records = find("min-records");
  const most = pool.clients.length;
  size.max = Math.min(most, Math.max(30, pool.k));
  exactSize.max = most;
  const resize = (value) => Number.isInteger(value) && onChange((state) => ({ ...state, k: clamp(value, 1, most) }));
  size.addEventListener("input", () => resize(size.valueAsNumber));
  exactSize.addEventListener("input", () => resize(exactSize.valueAsNumber));
  records.addEventListener("input", () => onChange((state) => ({ ...state, min_records: records.value === "" ? null : records.valueAsNumber })));

  // The field someone types in is left alone; everything else follows the state.
  const follow = (field, value) => {
    if (document.activeElement !== field || field.type === "range") field.value = value;
  };
  return (state) => {
    for (const name of WEIGHTS) {
      follow(sliders[name].range, state.weights[name]);
      follow(sliders[name].exact, Number(state.weights[name].toFixed(4)));
    }
    follow(size, state.k);
    follow(exactSize, state.k);
    follow(records, state.min_records ?? "");
    const lists = [["Forced in", state.include], ["Kept out", state.exclude]].filter(([, names]) => names.length);
    find("forced").replaceChildren(
      ...lists.map(([title, names]) =>
        element(
          "div", { class: "forced" }, element("h3", {}, title),
          element("ul", { class: "chips small" }, ...names.map((client) => element("li", { class: "chip" }, element("span", {}, client), element("button", { type: "button", "aria-label": `Leave ${client} to the search`, onclick: () => onChange((old) => release(old, client)) }, "×")))),
        ),
      ),
    );
  };
}
