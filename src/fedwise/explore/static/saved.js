// Saved selections side by side: one column each, asked for once, opened again with a press.

import { once } from "./api.js";
import { question } from "./state.js";
import { element, number } from "./words.js";

const TERMS = ["direct_bias", "proxy_bias", "redundancy", "signal"];

export function saves(panel, host, pool, { onOpen, onRemove }) {
  const answers = new Map();

  function draw(saved) {
    panel.hidden = saved.length === 0;
    const found = saved.map((one) => answers.get(question(one)) ?? null);
    const line = (label, show) => element("tr", {}, element("th", { scope: "row" }, label), ...found.map((answer) => element("td", {}, answer === null ? "…" : answer.error ?? show(answer))));
    host.replaceChildren(
      element("thead", {}, element("tr", {}, element("td"), ...saved.map((one, i) => element(
        "th", { scope: "col" }, `${i + 1}: k = ${one.k} `,
        element("button", { type: "button", class: "plain", "aria-label": `Open saved selection ${i + 1}`, onclick: () => onOpen(structuredClone(one)) }, "Open"),
        element("button", { type: "button", class: "plain", "aria-label": `Remove saved selection ${i + 1}`, onclick: () => onRemove(one) }, "Remove"),
      )))),
      element(
        "tbody", {},
        line("Clients", (answer) => answer.clients.join(", ")),
        line("Objective", (answer) => answer.objective),
        line("Its loss", (answer) => number(answer.loss)),
        ...TERMS.map((key) => line(pool.terms[key], (answer) => number(answer.terms[key]))),
        line("Records, about", (answer) => number(answer.records, 0)),
      ),
    );
  }

  return (saved) => {
    draw(saved);
    for (const one of saved) {
      const body = question(one);
      if (answers.has(body)) continue;
      answers.set(body, null);
      once("api/answer", body).then((answer) => answers.set(body, answer), (error) => answers.set(body, { error: error.message })).then(() => draw(saved));
    }
  };
}
