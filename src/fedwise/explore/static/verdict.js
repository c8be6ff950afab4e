// One selection as a card: who, at what loss, with which terms, and how it differs from the one beside it.

import { element, number, signed } from "./words.js";

const ORDER = ["direct_bias", "proxy_bias", "redundancy", "signal"];

export function card(host, title, answer, { labels, other, frequency, forecast, rehearsal, note, buttons = [], onWithout }) {
  const theirs = new Set(other?.clients ?? []);
  const chips = answer.clients.map((client) => {
    const share = frequency?.[client];
    const unlike = other && !theirs.has(client);
    return element(
      "li",
      { class: unlike ? "chip unlike" : "chip", title: unlike ? "only here" : null },
      element("span", {}, client),
      share === undefined ? null : element("small", { title: "chosen in this share of redrawn pools" }, `${Math.round(share * 100)}%`),
      onWithout ? element("button", { type: "button", "aria-label": `What if without ${client}?`, title: `What if without ${client}?`, onclick: () => onWithout(client) }, "×") : null,
    );
  });
  const difference = (mine, yours) => (other ? element("small", {}, signed(mine - yours)) : null);
  host.replaceChildren(...[
    element("div", { class: "head" }, element("h2", {}, title), ...buttons),
    element("ul", { class: "chips", "aria-label": `${title}: clients` }, ...chips),
    element(
      "dl", { class: "loss" },
      element("dt", {}, answer.objective ?? "Loss"),
      element("dd", {}, element("output", { "data-value": answer.loss }, number(answer.loss)), !answer.std_error ? null : element("small", {}, ` ± ${number(answer.std_error)}`), other ? element("small", { class: "delta" }, ` ${signed(answer.loss - other.loss)}`) : null),
    ),
    element(
      "dl", { class: "terms" },
      ...ORDER.map((key) => element("div", { class: key }, element("dt", {}, labels[key]), element("dd", {}, number(answer.terms[key]), difference(answer.terms[key], other?.terms[key])))),
    ),
    forecast?.length ? element("h3", {}, "Forecast of the trained model") : null,
    forecast?.length
      ? element(
          "dl", { class: "terms forecast" },
          ...forecast.map((m) => element("div", {}, element("dt", {}, m.label), element("dd", {}, m.known ? number(m.value, 3) : "not known at this epsilon", m.low === null ? null : element("small", {}, `${number(m.low, 3)} to ${number(m.high, 3)}`)))),
        )
      : null,
    rehearsal ? element("h3", {}, "Rehearsal on artificial doubles") : null,
    rehearsal
      ? element(
          "dl", { class: "terms rehearsal" },
          ...rehearsal.rows.map((r) => element("div", {}, element("dt", {}, r.title), element("dd", {}, r.value === null ? "not known" : number(r.value, 3), r.random === null ? null : element("small", {}, `random ${number(r.random, 3)}: ${r.word}`)))),
        )
      : null,
    rehearsal ? element("p", { class: "note" }, rehearsal.verdict) : null,
    element("p", { class: "note" }, note),
  ].filter(Boolean));
}
