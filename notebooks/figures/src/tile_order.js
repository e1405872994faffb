// Two orders of the same tiles side by side, each with a small cache of strips.
import { count, drawing, html, pageData, run, svg } from "./figure.js";

const data = pageData();
const SIDE = 270;  // of c, drawn
const STRIPS = 40;  // room for the strips of a on the left and of b on top

/** The strips that were read last, no more than the cache holds, the latest first. */
function held(places, upTo, capacity) {
  const cache = [];
  for (let at = upTo; at >= 0 && cache.length < capacity; at -= 1) {
    for (const strip of [`b${places[at][1]}`, `a${places[at][0]}`]) {
      if (!cache.includes(strip) && cache.length < capacity) cache.push(strip);
    }
  }
  return cache;
}

/** What is known of one order after program `step`: its tile, hits of a and b, strips fetched, the cache. */
function state(size, group, capacity, step) {
  const places = size.orders[group];
  const misses = size.misses[group][capacity];  // a digit a program: 1 for a, 2 for b, 3 for both
  const fetched = [...misses.slice(0, step + 1)].reduce((sum, digit) => sum + Number(digit > 0) + Number(digit > 2), 0);
  const [row, col] = places[step];
  return {
    places, step, row, col, fetched, read: 2 * (step + 1), cache: held(places, step, capacity),
    missA: Boolean(misses[step] & 1), missB: Boolean(misses[step] & 2),
  };
}

function strip(x, y, width, height, name, now) {
  const colour = now.miss ? "off" : "load";
  const kinds = now.read ? `f-${colour}-fill s-${colour}` : now.held ? "f-load-fill s-load" : "f-blank s-line";
  const text = Math.min(width, height) >= 20
    ? svg("text", { x: x + width / 2, y: y + height / 2 + 4, class: `mid small ${now.read ? `f-${colour} strong` : now.held ? "f-load" : "f-quiet"}` }, name) : null;
  return [svg("rect", { x, y, width, height, rx: 3, class: kinds, "stroke-width": now.read ? 2.5 : 1 }), text];
}

function grid(size, now, words) {
  const cell = Math.floor(SIDE / Math.max(size.rows, size.cols));
  const parts = [svg("text", { x: 20, y: 25, class: "small f-quiet mid" }, "a \\ b")];
  for (let row = 0; row < size.rows; row += 1) {
    const look = { read: row === now.row, miss: now.missA, held: now.cache.includes(`a${row}`) };
    parts.push(strip(4, STRIPS + row * cell + 1, STRIPS - 8, cell - 2, `a${row}`, look));
  }
  for (let col = 0; col < size.cols; col += 1) {
    const look = { read: col === now.col, miss: now.missB, held: now.cache.includes(`b${col}`) };
    parts.push(strip(STRIPS + col * cell + 1, 4, cell - 2, STRIPS - 8, `b${col}`, look));
  }
  now.places.forEach(([row, col], program) => {
    const [x, y] = [STRIPS + col * cell, STRIPS + row * cell];
    const current = program === now.step;
    const done = program < now.step;
    parts.push(
      svg("rect", { x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 3, class: current ? "f-accent" : done ? "f-accent-fill" : "f-blank" }),
      svg("text", { x: x + cell / 2, y: y + cell / 2 + 4, class: `mid small ${current ? "f-paper strong" : done ? "f-ink" : "f-quiet"}` }, program));
  });
  return drawing(STRIPS + size.cols * cell + 4, STRIPS + size.rows * cell + 4, words, ...parts);
}

function card(title, size, capacity, now) {
  const share = now.fetched / now.read;
  const slots = Array.from({ length: capacity }, (_, i) => {
    const name = now.cache[i];
    const fresh = (name === `a${now.row}` && now.missA) || (name === `b${now.col}` && now.missB);
    return html("li", { class: name ? (fresh ? "fetched new" : "held") : null }, name ?? " ");
  });
  return html("section", { class: "card order" },
    html("h2", {}, title),
    grid(size, now, `${title}: program ${now.step} computes the tile in row ${now.row}, column ${now.col}.`),
    html("p", { class: "quiet" }, "In the cache, latest first"),
    html("ol", { class: "slots" }, ...slots),
    html("p", {}, html("span", { class: "number from" }, count(now.fetched)), " of ", html("span", { class: "number" }, count(now.read)), " strips read came from HBM"),
    html("div", { class: "meter", "aria-hidden": "true" }, html("div", { style: `width: ${(100 * share).toFixed(2)}%` })));
}

function measurements() {
  const rows = data.measured.map(({ file, rate }) => html("tr", {},
    html("td", {}, html("code", {}, file)), html("td", { class: "number" }, `${rate.value.toFixed(1)} ${rate.unit}`),
    html("td", {}, html("code", {}, rate.source))));
  return html("details", { class: "card measured", "data-key": "measured" },
    html("summary", { "data-key": "measured-summary" }, `Not the model: L2 hit rates that Nsight Compute counted on an ${data.machine}`),
    html("p", { class: "quiet" }, data.caveat),
    html("div", { class: "scroll", tabindex: 0, "data-key": "rates", "aria-label": "Measured L2 hit rates" }, html("table", {},
      html("thead", {}, html("tr", {}, html("th", {}, "kernel"), html("th", {}, "L2 hit rate"), html("th", {}, "record"))),
      html("tbody", {}, ...rows))));
}

const inWords = (now) => {
  const from = (name, miss) => `${name} ${miss ? "comes from HBM" : "is in the cache"}`;
  return `tile (${now.row}, ${now.col}), ${from(`a${now.row}`, now.missA)}, ${from(`b${now.col}`, now.missB)}`;
};

run({
  choices: [
    { name: "size", label: "Tiles of c", initial: 1, options: () => data.sizes.map(({ rows, cols }, value) => ({ value, text: `${rows} × ${cols}` })) },
    { name: "group", label: "GROUP_M", initial: 4, options: () => data.groups.map((value) => ({ value, text: value === 1 ? "1 (row by row)" : value })) },
    { name: "capacity", label: "The cache holds", initial: 6, options: () => data.capacities.map((value) => ({ value, text: `${value} strips` })) },
  ],
  steps: ({ size }) => data.sizes[size].rows * data.sizes[size].cols,
  draw(stage, { size: which, group, capacity }, step) {
    const size = data.sizes[which];
    const [plain, grouped] = ["1", group].map((one) => state(size, one, capacity, step));
    stage.append(
      html("div", { class: "row" },
        card("Row by row", size, Number(capacity), plain),
        card(`In groups of ${group} rows (GROUP_M = ${group})`, size, Number(capacity), grouped)),
      measurements());
    return `Program ${step}. Row by row: ${inWords(plain)}. With GROUP_M = ${group}: ${inWords(grouped)}. `
      + `From HBM so far: ${plain.fetched} strips row by row, ${grouped.fetched} in groups.`;
  },
  pace: 450,
});
