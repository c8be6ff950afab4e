// Draws the server's Vega-Lite specifications. A spec that differs in its data only is updated, not rebuilt.

const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();
let palette = {};

const ready = new Promise((resolve) => {
  const script = document.getElementById("vega");
  if (window.vegaEmbed) resolve();
  else script.addEventListener("load", resolve);
});

export function useColours(pairs) {
  palette = pairs;
  const again = () => drawn.forEach(({ spec }, element) => draw(element, spec, true));
  dark.addEventListener("change", again);
  let timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(again, 150);
  });
}

function themed(spec) {
  if (!dark.matches) return structuredClone(spec);
  const text = JSON.stringify(spec);
  return JSON.parse(text.replace(/#[0-9a-f]{6}/gi, (hex) => palette[hex.toLowerCase()] ?? hex));
}

export async function draw(element, spec, afresh = false) {
  const before = drawn.get(element);
  const { values } = spec.data;
  const shape = JSON.stringify({ ...spec, description: "", data: 0 }) + element.clientWidth + dark.matches;
  if (before?.shape === shape && !afresh) {
    before.spec = spec;
    const view = await before.view;
    if (drawn.get(element) !== before) return;
    element.setAttribute("aria-label", spec.description);
    await view.data("rows", structuredClone(values)).runAsync();
    return;
  }
  const entry = { shape, spec, view: null };
  drawn.set(element, entry);
  entry.view = ready.then(async () => {
    const full = themed(spec);
    full.width = Math.max(260, element.clientWidth);
    if (full.height?.step) full.height = full.height.step * new Set(values.map((row) => row.name)).size;
    if (full.width < 420) full.config.legend.columns = 2;
    full.autosize = { type: "fit-x", contains: "padding" };
    const old = before ? await before.view : null;
    const { view } = await window.vegaEmbed(element, full, {
      ast: true, actions: false, renderer: "svg", defaultStyle: false,
      tooltip: { theme: "quiet", disableDefaultStyle: true },
    });
    old?.finalize();
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", spec.description);
    return view;
  });
  await entry.view;
}

// The picture of this federation with another one's bars between it and the whole pool.
export function beside(spec, other, label) {
  const joined = structuredClone(spec);
  const first = spec.data.values[0].name;
  const mine = joined.data.values.filter((row) => row.name === first);
  const rest = joined.data.values.filter((row) => row.name !== first);
  const theirs = other.data.values.filter((row) => row.name === first).map((row) => ({ ...row, name: label }));
  joined.data.values = [...mine, ...theirs, ...rest];
  const names = [...new Set(joined.data.values.map((row) => row.name))];
  for (const layer of joined.layer) layer.encoding.y.sort = names;
  joined.description += ` ${label}: ${theirs[0].loss.toFixed(4)}.`;
  return joined;
}
