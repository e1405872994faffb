import { drawing, html, many, pageData, run, svg } from "./figure.js";

const data = pageData();
const W = 540, H = 410, LEFT = 56, RIGHT = 24, TOP = 20, BOTTOM = 48;
const COLOUR = { "Library call": "quiet", "torch.compile": "load", Triton: "accent", Gluon: "store", CUDA: "compute" };

const times = (value) => `${value < 0.1 ? value.toFixed(3) : value.toFixed(2)}×`;
const patternOf = (chosen) => data.patterns[Number(chosen.pattern)];
const sizeOf = (chosen) => patternOf(chosen).sizes[Number(chosen.size.split(" ")[1])];
const inWords = (one) => (one.way === "Library call" ? "the library call" : one.name);

/** Marks that differ in form as well: a bar, a triangle, a disc, a square, a diamond. */
function mark(way, x, y, r, attributes) {
  const forms = {
    "Library call": `M${x - r * 1.3},${y - r * 0.6}h${r * 2.6}v${r * 1.2}h${-r * 2.6}z`,
    "torch.compile": `M${x},${y - r * 1.2}L${x + r * 1.15},${y + r * 0.85}L${x - r * 1.15},${y + r * 0.85}z`,
    Gluon: `M${x - r * 0.9},${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
    CUDA: `M${x},${y - r * 1.25}L${x + r * 1.25},${y}L${x},${y + r * 1.25}L${x - r * 1.25},${y}z`,
  };
  return way in forms ? svg("path", { d: forms[way], ...attributes }) : svg("circle", { cx: x, cy: y, r, ...attributes });
}

function scale(options) {
  const speeds = [1, ...options.map((one) => one.speed.value)];
  const low = Math.min(0.7, Math.min(...speeds) / 1.15), high = Math.max(1.4, Math.max(...speeds) * 1.15);
  const most = Math.max(100, ...options.map((one) => one.lines)) * 1.5;
  return {
    low, high, most,
    x: (lines) => LEFT + 16 + Math.log(lines) / Math.log(most) * (W - LEFT - RIGHT - 16),
    y: (speed) => H - BOTTOM - Math.log(speed / low) / Math.log(high / low) * (H - TOP - BOTTOM),
  };
}

function axes(s) {
  const wide = s.high / s.low > 12;
  const rows = (wide ? [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3] : [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4]).filter((v) => v > s.low && v < s.high);
  const apart = rows.filter((v, i) => v === 1 || !rows.slice(0, i).some((w) => Math.abs(s.y(w) - s.y(v)) < 17) && Math.abs(s.y(v) - s.y(1)) > 17);
  return [
    apart.map((value) => [
      svg("line", { x1: LEFT, x2: W - RIGHT, y1: s.y(value), y2: s.y(value), class: value === 1 ? "s-ink" : "s-line" }),
      svg("text", { x: LEFT - 8, y: s.y(value) + 4, class: `end small ${value === 1 ? "strong" : "f-quiet"}` }, String(value))]),
    [1, 3, 10, 30, 100, 300].filter((value) => value < s.most).map((value) => [
      svg("line", { x1: s.x(value), x2: s.x(value), y1: TOP, y2: H - BOTTOM, class: "s-line" }),
      svg("text", { x: s.x(value), y: H - BOTTOM + 18, class: "mid small f-quiet" }, String(value))]),
    svg("text", { x: W - RIGHT, y: H - 8, class: "end small f-quiet" }, "lines of code"),
    svg("text", { x: 4, y: 12, class: "small f-quiet" }, "times as fast as the library"),
  ];
}

/** What no other way beats with less code, from left to right. */
function frontier(s, options) {
  let most = 0;
  const best = options.filter((one) => one.speed.value > most && (most = one.speed.value));
  const d = best.map((one, i) => `${i ? `H${s.x(one.lines).toFixed(1)}V` : `M${s.x(one.lines).toFixed(1)},`}${s.y(one.speed.value).toFixed(1)}`).join("");
  return svg("path", { d: `${d}H${W - RIGHT}`, class: "none s-edge dash" });
}

function chart(size, step) {
  const s = scale(size.options);
  const here = size.options[step], x = s.x(here.lines), y = s.y(here.speed.value);
  const right = x + 30 + 8 * here.name.length > W;
  const picked = size.options[size.pick];
  return drawing(W, H, `Speed against lines of code at ${size.words}: ${many(size.options.length, "way")}.`,
    axes(s), frontier(s, size.options),
    svg("circle", { cx: s.x(picked.lines), cy: s.y(picked.speed.value), r: 17, class: "none s-ink ring" }),
    size.options.map((one, i) => mark(one.way, s.x(one.lines), s.y(one.speed.value), 6.5, {
      class: `dot f-${COLOUR[one.way]} s-paper`, "data-option": i, "data-key": `mark-${i}`,
      role: "button", tabindex: -1, "aria-label": `${one.name}: ${many(one.lines, "line")}, ${times(one.speed.value)}`,
    })),
    mark(here.way, x, y, 9, { class: `now f-${COLOUR[here.way]} s-ink` }),
    svg("text", { x: right ? x - 22 : x + 22, y: y < TOP + 30 ? y + 30 : y - 14, class: `strong name ${right ? "end" : ""}` }, here.name));
}

function table(size, step) {
  const most = Math.max(1, ...size.options.map((one) => one.speed.value));
  const row = (one, i) => html("button", {
    type: "button", class: `way ${i === step ? "now" : ""}`, "data-option": i, "data-key": `option-${i}`, "aria-pressed": String(i === step),
  },
  svg("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, mark(one.way, 10, 10, 6, { class: `f-${COLOUR[one.way]}` })),
  html("span", { class: "what" }, one.name, i === size.pick ? html("b", { class: "pick" }, "take this") : null, i === size.fastest ? html("b", { class: "pick fast" }, "fastest") : null),
  html("span", { class: "meter" }, html("i", { class: `b-${COLOUR[one.way]}`, style: `width: ${100 * one.speed.value / most}%` })),
  html("span", { class: "lines" }, many(one.lines, "line")),
  html("span", { class: "number" }, times(one.speed.value)));
  return html("div", { class: "ways" }, size.options.map(row),
    size.missing.map(({ way, words }) => html("p", { class: "gap" }, html("span", {}, way), html("span", {}, words))));
}

function code(one) {
  return html("div", { class: "card code" },
    html("h2", {}, one.code ? one.way : `${one.way}: ${one.name}`),
    one.code ? html("pre", { class: "source", tabindex: 0, "data-key": "code", "aria-label": "What one writes" }, one.code)
      : html("p", {}, `${many(one.lines, "line")} in `, one.files.map((file, i) => [i ? ", " : "", html("code", {}, `solutions/${file}`)]), "."),
    html("p", { class: "quiet" }, "Record: ", html("code", {}, one.speed.source)));
}

/** Why the chosen way is the one to take here, or is not. */
function verdict(size, one, step) {
  const pick = size.options[size.pick], fastest = size.options[size.fastest];
  if (step === size.pick) {
    return step === size.fastest ? "It is the fastest here, and nothing with less code comes close: take it."
      : `The fastest, ${inWords(fastest)}, gains too little for its ${many(fastest.lines, "line")}: take this one.`;
  }
  const close = one.speed.value * data.close >= fastest.speed.value * (data.close - 1);
  if (!close) return one.lines < pick.lines ? `Too slow to stop here: ${inWords(pick)} reaches ${times(pick.speed.value)}.` : `More code than ${inWords(pick)}, and slower.`;
  return `About as fast as the fastest, with more code than ${inWords(pick)}, which is enough.`;
}

run({
  choices: [
    { name: "pattern", label: "Pattern", options: () => data.patterns.map((one, i) => ({ value: i, text: one.title })), initial: 4 },
    {
      name: "size", label: "Size",
      options: (chosen) => {
        const { sizes, first } = patternOf(chosen);
        // The first option is what another pattern begins with.
        return [...sizes.keys()].sort((a, b) => (b === first) - (a === first) || a - b).map((i) => ({ value: `${chosen.pattern} ${i}`, text: sizes[i].words }));
      },
    },
  ],
  pace: 1600,
  steps: (chosen) => Math.max(2, sizeOf(chosen).options.length),
  draw(stage, chosen, step, choose, goTo) {
    const size = sizeOf(chosen), one = size.options[step];
    stage.append(html("div", { class: "two" }, chart(size, step), table(size, step)), code(one));
    const point = (event) => {
      const found = event.target.closest("[data-option]");
      if (found && Number(found.dataset.option) !== step) goTo(Number(found.dataset.option));
    };
    stage.querySelector(".two").addEventListener("click", point);
    stage.querySelector(".two > svg").addEventListener("pointerover", point);
    stage.querySelector(".two > svg").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      point(event);
    });
    return `${one.name}, ${many(one.lines, "line")}: ${times(one.speed.value)} the speed of the library. ${verdict(size, one, step)} `
      + `${patternOf(chosen).limit}`;
  },
});
