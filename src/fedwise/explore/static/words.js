// Numbers and small elements, the same everywhere.

export function number(value, digits = 4) {
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (Number(text.replaceAll(",", "")) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

export function signed(value, digits = 4) {
  const text = number(value, digits);
  return value > 0 && Number(text.replaceAll(",", "")) !== 0 ? `+${text}` : text;
}

// Names come from files of other parties: they only ever become text nodes and attributes.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function standing(state, chosen, client) {
  if (state.exclude.includes(client)) return "out";
  if (state.include.includes(client)) return "in";
  return chosen.has(client) ? "chosen" : "free";
}

export const STANDING = { out: "kept out", in: "forced in", chosen: "chosen", free: "not chosen" };
export const NEXT = { out: "leave it to the search", in: "keep it out", chosen: "force it in", free: "force it in" };

export function describe(client, now) {
  return `${client}: ${STANDING[now]}. Press to ${NEXT[now]}.`;
}
