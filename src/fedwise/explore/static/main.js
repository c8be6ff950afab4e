// Wires the page: a change of the state asks the server, the answer redraws what depends on it.

import * as api from "./api.js";
import { beside, draw, useColours } from "./charts.js";
import { map, table } from "./clients.js";
import { controls } from "./controls.js";
import { saves } from "./saved.js";
import { cycle, fromHash, initial, MOST_SAVED, question, toHash, without } from "./state.js";
import { card } from "./verdict.js";
import { element, number } from "./words.js";

const find = (id) => document.getElementById(id);
const pool = await api.pool();
let { state, other, saved } = fromHash(location.hash, pool);
let answer = null, answerB = null, selection = null, asked = 0, since = 0;
// Forecasts by question: they stay true, so coming back to a question finds its forecast.
const forecasts = new Map();
const rehearsals = new Map();

useColours(pool.palette);
const promise = pool.privacy;
const delta = promise.delta < 1e-3 ? promise.delta.toExponential() : promise.delta;
const strength = promise.label === "not private" ? "" : `ε = ${promise.epsilon}, δ = ${delta}, `;
// Whatever is not private is marked here, and its sentence stays on the screen.
find("about").replaceChildren(
  `${pool.schema} · ${pool.clients.length} clients · ${strength}`,
  promise.label === "private" ? "private" : element("strong", { class: "stamp" }, promise.label),
);
if (promise.label !== "private") {
  find("label").textContent = pool.label;
  find("label").hidden = false;
  document.title += ` (${promise.label})`;
}

const showControls = controls(pool, (edit) => change(edit(state)));
const press = (client) => change(cycle(state, client));
const showMap = map(find("map"), find("map-panel"), pool, press);
const showTable = table(find("clients"), find("filter"), find("more"), pool, press);

// An answer keeps its question: while a slider moves, what is on the screen may belong to an earlier one.
const ask = api.channel("api/answer", (found, body, version) => {
  answer = { ...found, body };
  selection = null;
  find("problem").hidden = true;
  show(false);
  requestAnimationFrame(() => { find("federation").dataset.answered = version; });
  if (version !== asked) return;
  // Only when the newest question is answered may slower work have the machine.
  frontier.ask(body, version);
  search.ask(body, version);
}, trouble);
const askB = api.channel("api/answer", (found, body, version) => {
  if (version < since) return; // it was for another card, since replaced or closed
  answerB = { ...found, body };
  show(false);
  forecastB.ask(body, version);
}, trouble);
const frontier = api.patient("api/frontier", (found) => {
  find("frontier").classList.remove("waiting");
  if (found.spec) draw(find("frontier"), found.spec);
}, trouble, 150);
const search = api.patient("api/search", (found, body, version) => {
  selection = found.selection;
  show(true);
  forecast.ask(body, version);
}, trouble, 400);
const remember = (found, body) => { forecasts.set(body, found.measures); show(false); };
const forecast = api.patient("api/forecast", remember, () => {}, 50);
const rehearsal = api.patient("api/rehearse", (found, body) => { rehearsals.set(body, found); show(false); }, (error) => {
  rehearsals.delete(answer?.body);
  trouble(error);
  show(false);
}, 0);
const rehearse = () => {
  rehearsals.set(answer.body, null);
  rehearsal.ask(answer.body, asked);
  show(false);
};
const forecastB = api.patient("api/forecast", remember, () => {}, 400);

function trouble(error) {
  find("problem").textContent = `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}.`;
  find("problem").hidden = false;
}

function change(next) {
  state = next;
  refresh();
}

function place(next) {
  other = next;
  answerB = null;
  since = asked + 1;
}

function compare(next) {
  place(next);
  refresh();
}

function refresh() {
  history.replaceState(null, "", toHash(state, other, saved));
  showControls(state);
  const body = question(state);
  ask(body, ++asked);
  find("federation").dataset.asked = asked;
  if (other) askB(questionB(), asked);
  find("frontier").classList.add("waiting");
  frontier.cancel();
  search.cancel();
  forecast.cancel();
  forecastB.cancel();
  rehearsal.cancel();
  for (const [body, found] of rehearsals) if (found === null) rehearsals.delete(body);
  const q = `?q=${encodeURIComponent(body)}`;
  find("get-selection").href = `download/selection.json${q}`;
  find("get-report").href = `download/report.html${q}`;
}

function questionB() {
  return question(other.kind === "pin" ? other.state : without(state, other.client));
}

function show(final) {
  if (!answer) return;
  // The full search may have found a better federation than the quick one.
  const mine = selection && selection.loss < answer.loss - 1e-12 ? { ...answer, ...selection } : answer;
  const chosen = new Set(mine.clients);
  const quick = `${answer.proven ? "No single swap improves it" : "Found quickly"}: ${number(answer.evaluations, 0)} federations in ${number(answer.seconds * 1000, 0)} ms.`;
  const note = selection ? `Proved: ${selection.certificate.statement} Left open: ${selection.certificate.noise_statement}` : quick;
  const b = other ? answerB : null;
  const title = other?.kind === "without" ? `Without ${other.client}` : "Pinned";
  card(find("now"), other ? "Now" : "Federation", mine, {
    labels: pool.terms, other: b, note, forecast: forecasts.get(answer.body), frequency: selection?.frequency && Object.keys(selection.frequency).length ? selection.frequency : null,
    rehearsal: rehearsals.get(answer.body),
    buttons: [element("button", { type: "button", class: "plain", id: "rehearse", title: "Train on artificial doubles of these clients, some seconds", disabled: rehearsals.get(answer.body) === null ? "" : null, onclick: rehearse }, rehearsals.get(answer.body) === null ? "Rehearsing …" : "Rehearse")],
    onWithout: (client) => compare({ kind: "without", client }),
  });
  find("other").hidden = !b;
  if (b) {
    const buttons = [
      other.kind === "without"
        ? element("button", { type: "button", class: "plain", onclick: () => { const kept = other.client; place(null); change(without(state, kept)); } }, "Keep it out")
        : element("button", { type: "button", class: "plain", onclick: () => { const old = other.state; compare({ kind: "pin", state }); change(old); } }, "Swap"),
      element("button", { type: "button", class: "plain", id: "close", onclick: () => { compare(null); show(false); } }, "Close"),
    ];
    card(find("other"), title, b, { labels: pool.terms, other: mine, note: "", buttons, forecast: forecasts.get(b.body) });
  }
  // On a phone the sliders are a screen away from the answer: a line at the bottom keeps it in sight.
  find("glance").replaceChildren(element("b", {}, number(mine.loss)), mine.clients.join(" "));
  showMap(state, chosen);
  showTable(state, chosen, final);
  find("command").textContent = answer.command;
  draw(find("terms"), b ? beside(answer.spec, b.spec, title) : answer.spec);
  if (final) find("federation").dataset.searched = asked;
}

const showSaved = saves(find("saved-panel"), find("saved"), pool, {
  onOpen: (one) => change(one),
  onRemove: (one) => { saved = saved.filter((each) => each !== one); keep(); },
});
function keep() {
  history.replaceState(null, "", toHash(state, other, saved));
  find("save").disabled = saved.length >= MOST_SAVED;
  showSaved(saved);
}
find("save").addEventListener("click", () => { saved = [...saved, structuredClone(state)].slice(0, MOST_SAVED); keep(); });
find("pin").addEventListener("click", () => compare({ kind: "pin", state }));
find("reset").addEventListener("click", () => { place(null); change(initial(pool)); });
find("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(find("command").textContent);
  find("copy").textContent = "Copied";
  setTimeout(() => { find("copy").textContent = "Copy command"; }, 1500);
});
addEventListener("hashchange", () => {
  if (location.hash === toHash(state, other, saved)) return;
  const next = fromHash(location.hash, pool);
  saved = next.saved;
  keep();
  place(next.other);
  change(next.state);
});

keep();
refresh();
