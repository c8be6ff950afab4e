// Sliders, numbers and lists on the left: they read the state and report changes to it.

import { clamp, limits, release, WEIGHTS } from "./state.js";
import { element } from "./words.js";

const HINTS = { alpha: ["α", "direct_bias"], beta: ["β", "proxy_bias"], gamma: ["γ", "redundancy"], lam: ["λ", "signal"] };

// Lines of "client, value"; what cannot be read is named and left out.
function readTable(text, known, numeric) {
  const found = {}, wrong = [];
  for (const line of text.split(/[\n;]/).map((part) => part.trim()).filter(Boolean)) {
    const at = line.lastIndexOf(",");
    const client = line.slice(0, at).trim(), value = line.slice(at + 1).trim();
    if (at < 0 || value === "" || !known.has(client) || (numeric && !(Number(value) >= 0))) wrong.push(line);
    else found[client] = numeric ? Number(value) : value;
  }
  return { found, problem: wrong.length ? `Not read: ${wrong.slice(0, 3).join("; ")}` : "" };
}

const writeTable = (table) => Object.entries(table).map(([client, value]) => `${client}, ${value}`).join("\n");

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

  const number = (id, name) => {
    const field = find(id);
    field.addEventListener("input", () => onChange((state) => ({ ...state, [name]: field.value === "" ? null : field.valueAsNumber })));
    return field;
  };
  const each = number("min-client-records", "min_client_records"), perGroup = number("max-per-group", "max_per_group"), budget = number("budget", "budget");
  const known = new Set(pool.clients.map((row) => row.client));
  const table = (id, name, numeric) => {
    const field = find(id), note = find(`${id}-note`);
    field.addEventListener("input", () => {
      const read = readTable(field.value, known, numeric);
      note.textContent = read.problem;
      onChange((state) => ({ ...state, [name]: read.found }));
    });
    return field;
  };
  const groups = table("groups", "groups", false), costs = table("costs", "costs", true);
  const trusted = find("exclude-suspect");
  trusted.addEventListener("change", () => onChange((state) => ({ ...state, exclude_suspect: trusted.checked })));
  const objective = find("objective");
  objective.append(element("option", { value: "" }, "Loss (the four terms)"), ...Object.entries(pool.objectives).map(([name, words]) => element("option", { value: name }, words)));
  objective.addEventListener("change", () => onChange((state) => ({ ...state, maximise: objective.value || null, subject_to: objective.value ? state.subject_to : {} })));
  const bounds = limits(pool).map(([metric, words], i) => {
    const field = element("input", { id: `limit-${i}`, type: "number", min: 0, max: 1, step: "any", placeholder: "no limit" });
    field.addEventListener("input", () => onChange((state) => {
      const subject_to = { ...state.subject_to };
      if (field.value === "") delete subject_to[metric];
      else subject_to[metric] = field.valueAsNumber;
      return { ...state, subject_to };
    }));
    find("limits").append(element("label", { class: "line", for: `limit-${i}` }, words), field);
    return [metric, field];
  });
  const place = pool.clients.every((row) => row.tile) ? "on the map or in the table" : "in the table";
  find("hint").textContent = `Click a client ${place}: once to force it in, twice to keep it out, three times to leave it to the search.`;

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
    follow(each, state.min_client_records ?? "");
    follow(perGroup, state.max_per_group ?? "");
    follow(budget, state.budget ?? "");
    follow(groups, writeTable(state.groups));
    follow(costs, writeTable(state.costs));
    trusted.checked = state.exclude_suspect;
    objective.value = state.maximise ?? "";
    find("weights").disabled = state.maximise !== null;
    find("limits").hidden = state.maximise === null;
    for (const [metric, field] of bounds) follow(field, state.subject_to[metric] ?? "");
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
