// What is asked, and its place in the address: reload, bookmark or send it, and the page looks the same.

export const MOST_SAVED = 4;
export const WEIGHTS = ["alpha", "beta", "gamma", "lam"];

export function initial(pool) {
  return {
    k: pool.k, weights: { ...pool.weights }, include: [], exclude: [], min_records: null, min_client_records: null,
    groups: {}, max_per_group: null, costs: {}, budget: null, exclude_suspect: false, maximise: null, subject_to: {},
  };
}

export function question(state) {
  return JSON.stringify(state);
}

// Numbers and tables of the state, with their short names in the address; whether a table's values are numbers.
const NUMBERS = [["min", "min_records"], ["each", "min_client_records"], ["pergroup", "max_per_group"], ["budget", "budget"]];
const TABLES = [["groups", "groups", false], ["costs", "costs", true], ["limits", "subject_to", true]];

// Limits that may be set, for every sensitive attribute: the name of the metric and its words.
export function limits(pool) {
  return pool.limits;
}

const list = (names) => names.map(encodeURIComponent).join(",");
const names = (text) => (text ? text.split(",").map(decodeURIComponent) : []);

function pack(state) {
  const parts = [`k=${state.k}`, ...WEIGHTS.map((name) => `${name}=${state.weights[name]}`)];
  if (state.include.length) parts.push(`in=${list(state.include)}`);
  if (state.exclude.length) parts.push(`out=${list(state.exclude)}`);
  for (const [key, name] of NUMBERS) if (state[name] !== null) parts.push(`${key}=${state[name]}`);
  for (const [key, name] of TABLES) {
    const pairs = Object.entries(state[name]).map(([client, value]) => `${encodeURIComponent(client)}:${encodeURIComponent(value)}`);
    if (pairs.length) parts.push(`${key}=${pairs.join(",")}`);
  }
  if (state.exclude_suspect) parts.push("trusted=1");
  if (state.maximise) parts.push(`best=${encodeURIComponent(state.maximise)}`);
  return parts.join("&");
}

function unpack(text, pool) {
  const state = initial(pool);
  const known = new Set(pool.clients.map((row) => row.client));
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    const key = part.slice(0, at), value = part.slice(at + 1);
    const number = Number(value);
    if (key === "k" && Number.isInteger(number)) state.k = clamp(number, 1, pool.clients.length);
    else if (WEIGHTS.includes(key) && value !== "" && Number.isFinite(number) && number >= 0) state.weights[key] = number;
    else if (key === "in") state.include = names(value).filter((name) => known.has(name));
    else if (key === "out") state.exclude = names(value).filter((name) => known.has(name));
    else if (key === "trusted") state.exclude_suspect = value === "1";
    else if (key === "best" && decodeURIComponent(value) in pool.objectives) state.maximise = decodeURIComponent(value);
    else if (value !== "" && Number.isFinite(number) && NUMBERS.some(([short]) => short === key)) state[NUMBERS.find(([short]) => short === key)[1]] = key === "pergroup" ? Math.round(number) : number;
    else if (TABLES.some(([short]) => short === key)) {
      const [, name, numeric] = TABLES.find(([short]) => short === key);
      for (const pair of value.split(",")) {
        const [client, held] = pair.split(":").map(decodeURIComponent);
        const fits = name === "subject_to" ? limits(pool).some(([metric]) => metric === client) : known.has(client);
        if (fits && held !== undefined && (!numeric || (held !== "" && Number.isFinite(Number(held))))) state[name][client] = numeric ? Number(held) : held;
      }
    }
  }
  return state;
}

// The pinned state follows after "|pin:", a what-if after "|without:", saved ones each after "|save:".
export function toHash(state, other, saved = []) {
  let text = pack(state);
  if (other?.kind === "pin") text += `|pin:${pack(other.state)}`;
  if (other?.kind === "without") text += `|without:${encodeURIComponent(other.client)}`;
  for (const one of saved) text += `|save:${pack(one)}`;
  return `#${text}`;
}

export function fromHash(hash, pool) {
  try {
    const [main, ...parts] = hash.replace(/^#/, "").split("|");
    const state = main ? unpack(main, pool) : initial(pool);
    const saved = parts.filter((part) => part.startsWith("save:")).slice(0, MOST_SAVED).map((part) => unpack(part.slice(5), pool));
    const beside = parts.find((part) => !part.startsWith("save:")) ?? "";
    if (beside.startsWith("pin:")) return { state, saved, other: { kind: "pin", state: unpack(beside.slice(4), pool) } };
    if (beside.startsWith("without:")) {
      const client = decodeURIComponent(beside.slice(8));
      if (pool.clients.some((row) => row.client === client)) return { state, saved, other: { kind: "without", client } };
    }
    return { state, saved, other: null };
  } catch {
    return { state: initial(pool), saved: [], other: null };
  }
}

export function cycle(state, client) {
  const include = state.include.filter((name) => name !== client);
  const exclude = state.exclude.filter((name) => name !== client);
  if (state.include.includes(client)) exclude.push(client);
  else if (!state.exclude.includes(client)) include.push(client);
  return { ...state, include, exclude };
}

export function release(state, client) {
  const rest = (names) => names.filter((name) => name !== client);
  return { ...state, include: rest(state.include), exclude: rest(state.exclude) };
}

export function without(state, client) {
  return { ...release(state, client), exclude: [...state.exclude.filter((name) => name !== client), client] };
}

export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}
