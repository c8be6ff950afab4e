// What is asked, and its place in the address: reload, bookmark or send it, and the page looks the same.

export const WEIGHTS = ["alpha", "beta", "gamma", "lam"];

export function initial(pool) {
  return { k: pool.k, weights: { ...pool.weights }, include: [], exclude: [], min_records: null };
}

export function question(state) {
  return JSON.stringify(state);
}

const list = (names) => names.map(encodeURIComponent).join(",");
const names = (text) => (text ? text.split(",").map(decodeURIComponent) : []);

function pack(state) {
  const parts = [`k=${state.k}`, ...WEIGHTS.map((name) => `${name}=${state.weights[name]}`)];
  if (state.include.length) parts.push(`in=${list(state.include)}`);
  if (state.exclude.length) parts.push(`out=${list(state.exclude)}`);
  if (state.min_records !== null) parts.push(`min=${state.min_records}`);
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
    else if (key === "min" && value !== "" && Number.isFinite(number)) state.min_records = number;
  }
  return state;
}

// The pinned state follows after "|pin:", a what-if after "|without:".
export function toHash(state, other) {
  let text = pack(state);
  if (other?.kind === "pin") text += `|pin:${pack(other.state)}`;
  if (other?.kind === "without") text += `|without:${encodeURIComponent(other.client)}`;
  return `#${text}`;
}

export function fromHash(hash, pool) {
  try {
    const [main, beside = ""] = hash.replace(/^#/, "").split("|");
    const state = main ? unpack(main, pool) : initial(pool);
    if (beside.startsWith("pin:")) return { state, other: { kind: "pin", state: unpack(beside.slice(4), pool) } };
    if (beside.startsWith("without:")) {
      const client = decodeURIComponent(beside.slice(8));
      if (pool.clients.some((row) => row.client === client)) return { state, other: { kind: "without", client } };
    }
    return { state, other: null };
  } catch {
    return { state: initial(pool), other: null };
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
