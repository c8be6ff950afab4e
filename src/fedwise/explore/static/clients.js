// The table and the map: every client a button with three states.

import { WEIGHTS } from "./state.js";
import { describe, element, number, standing, STANDING } from "./words.js";

const STEP = 200;
const TERMS = ["direct_bias", "proxy_bias", "redundancy", "signal"];
const signs = (weights) => WEIGHTS.map((name) => (name === "lam" ? -weights[name] : weights[name]));
const loss = (row, factors) => row.terms.reduce((sum, value, i) => sum + value * factors[i], 0);

export function map(host, panel, pool, onPress) {
  const tiles = pool.clients.filter((row) => row.tile);
  if (tiles.length !== pool.clients.length || !tiles.length) return () => {};
  panel.hidden = false;
  const buttons = tiles.map(({ client, tile: [row, column, code] }) => {
    const button = element("button", { type: "button", onclick: () => onPress(client) }, code);
    button.style.gridArea = `${row + 1} / ${column + 1}`;
    return [client, button];
  });
  host.replaceChildren(...buttons.map(([, button]) => button));
  return (state, chosen) => {
    for (const [client, button] of buttons) {
      const now = standing(state, chosen, client);
      if (button.dataset.now === now && button.dataset.chosen === String(chosen.has(client))) continue;
      button.dataset.now = now;
      button.dataset.chosen = chosen.has(client);
      button.title = button.ariaLabel = describe(client, now);
    }
  };
}

// How unusual the records look, -log10 p: 2 is reached by one honest client in a hundred.
function doubt(card) {
  if (!card || card.score === null) return element("td", { class: "n", title: card?.verdict ?? null }, "cannot tell");
  return element("td", { class: card.suspect ? "n suspect" : "n", title: card.verdict }, number(card.score, 1));
}

export function table(host, filter, more, pool, onPress) {
  const staged = pool.clients.some((row) => row.spent !== null);
  const columns = [
    ["client", "Client", (row) => row.client],
    ["standing", "Now", null],
    ["records", "Records, about", (row) => -row.records],
    ...TERMS.map((key, i) => [key, pool.terms[key], (row) => row.terms[i]]),
    ["loss", "Loss alone", null],
    ["bar", "", null],
    ["noise", "Noise / cell", (row) => row.noise],
    ...(staged ? [["spent", "ε spent", (row) => -row.spent]] : []),
    ...(Object.keys(pool.quality).length ? [["quality", "Doubt", (row) => -(pool.quality[row.client]?.score ?? -1)]] : []),
  ];
  const shown = new Map();
  let sorted = "standing", down = false, limit = STEP, last = null;

  const heads = columns.map(([key, label]) => {
    const sortable = key !== "bar";
    const head = element("th", { scope: "col", class: key === "client" || key === "standing" ? null : "n" });
    head.append(sortable ? element("button", { type: "button", onclick: () => sort(key) }, label) : label);
    return head;
  });
  host.tHead.replaceChildren(element("tr", {}, ...heads));

  function sort(key) {
    down = sorted === key ? !down : false;
    sorted = key;
    if (last) build(...last);
  }

  function ordered(state, chosen, factors) {
    const wanted = filter.value.trim().toLowerCase();
    const rows = pool.clients.filter((row) => row.client.toLowerCase().includes(wanted));
    const rank = { in: 0, chosen: 0, free: 1, out: 2 };
    const by = {
      standing: (row) => rank[standing(state, chosen, row.client)] * 1e6 + loss(row, factors),
      loss: (row) => loss(row, factors),
    }[sorted] ?? columns.find(([key]) => key === sorted)[2];
    const keyed = rows.map((row) => [by(row), row]);
    keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
    return keyed.map(([, row]) => row);
  }

  function build(state, chosen) {
    const factors = signs(state.weights);
    const rows = ordered(state, chosen, factors);
    shown.clear();
    const lines = rows.slice(0, limit).map((row) => {
      const press = element("button", { type: "button", class: "client", onclick: () => onPress(row.client) }, row.client);
      const now = element("td");
      const alone = element("td", { class: "n" });
      const bar = ["signal", "direct_bias", "proxy_bias", "redundancy"].map((key) => element("i", { class: key }));
      const line = element(
        "tr", {},
        element("th", { scope: "row" }, press, row.flag ? element("small", { title: row.flag }, "flagged") : row.suspect ? element("small", { title: row.suspect }, "suspect") : row.alert ? element("small", { title: row.alert }, "unusual") : null),
        now,
        element("td", { class: "n" }, number(row.records, 0)),
        ...row.terms.map((value) => element("td", { class: "n" }, number(value, 3))),
        alone,
        element("td", { class: "stack", "aria-hidden": "true" }, ...bar),
        element("td", { class: "n" }, number(row.noise, 2)),
        staged ? element("td", { class: "n", title: row.stages }, String(+row.spent.toPrecision(3))) : null,
        Object.keys(pool.quality).length ? doubt(pool.quality[row.client]) : null,
      );
      shown.set(row.client, { row, line, press, now, alone, bar });
      return line;
    });
    host.tBodies[0].replaceChildren(...lines);
    heads.forEach((head, i) => head.setAttribute("aria-sort", columns[i][0] === sorted ? (down ? "descending" : "ascending") : "none"));
    more.hidden = rows.length <= limit;
    more.textContent = `Show more (${Math.min(limit, rows.length)} of ${rows.length})`;
    refresh(state, chosen, factors);
  }

  function refresh(state, chosen, factors) {
    let reach = 1e-9;
    for (const row of pool.clients) reach = Math.max(reach, Math.abs(row.terms[3] * factors[3]), row.terms[0] * factors[0] + row.terms[1] * factors[1] + row.terms[2] * factors[2]);
    for (const [client, { row, line, press, now, alone, bar }] of shown) {
      const at = standing(state, chosen, client);
      if (line.dataset.now !== at || line.dataset.chosen !== String(chosen.has(client))) {
        line.dataset.now = at;
        line.dataset.chosen = chosen.has(client);
        now.textContent = at === "free" ? "" : STANDING[at];
        press.ariaLabel = describe(client, at);
      }
      alone.textContent = number(loss(row, factors), 3);
      // Signal grows to the left of the middle, the three costs to the right.
      const part = (i) => (Math.abs(row.terms[i] * factors[i]) / reach) * 50;
      const widths = [part(3), part(0), part(1), part(2)];
      let left = 50 - widths[0];
      bar.forEach((piece, i) => {
        piece.style.left = `${left}%`;
        piece.style.width = `${widths[i]}%`;
        left += widths[i];
      });
    }
  }

  filter.addEventListener("input", () => last && build(...last));
  more.addEventListener("click", () => {
    limit += STEP;
    if (last) build(...last);
  });
  return (state, chosen, final) => {
    const first = last === null;
    last = [state, chosen];
    // While a slider moves the rows keep their places; they are sorted anew when it rests.
    if (first || final) build(state, chosen);
    else refresh(state, chosen, signs(state.weights));
  };
}
