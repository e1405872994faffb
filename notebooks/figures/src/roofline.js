import { drawing, html, pageData, run, svg } from "./figure.js";

const data = pageData();
const W = 880, H = 430, LEFT = 62, RIGHT = 20, TOP = 26, BOTTOM = 46;
const COLOUR = { Triton: "accent", Gluon: "store", CUDA: "compute" };
const ALL = "all";

/** Three digits, and no more: 0.0833, 4.41, 719. */
const three = (value) => (value >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(3))));
const shown = ({ value, unit }) => `${three(value)} ${unit === "us" ? "µs" : unit}`;

const kernels = data.kernels.map((kernel, index) => ({ ...kernel, key: String(index) }));
const ofLab = (chosen) => kernels.filter((kernel) => chosen.lab === ALL || kernel.lab === chosen.lab);
const inFocus = (chosen) => ofLab(chosen).filter((kernel) => chosen.kernel === ALL || kernel.key === chosen.kernel);
const pointsOf = (some) => some.flatMap((kernel) => kernel.points.map((point, index) => ({ kernel, point, index })));

/** From FLOP per byte and TFLOP/s to the drawing, for these points and the ridge. */
function scale(points) {
  const xs = points.map(({ point }) => point.intensity), ys = points.map(({ point }) => point.flops.value);
  const roof = data.roofs[0];
  const ends = (values, least) => {
    let [low, high] = [Math.log10(Math.min(...values)) - 0.25, Math.log10(Math.max(...values)) + 0.25];
    const more = Math.max(0, least - (high - low)) / 2;
    return [low - more, high + more];
  };
  const near = Math.max(...xs) > roof.ridge / 12 ? [roof.peak.value] : [];
  const [x0, x1] = ends(xs, 1.6), [y0, y1] = ends([...ys, ...near], 1.2);
  return {
    x0, x1, y0, y1,
    x: (value) => LEFT + (Math.log10(value) - x0) / (x1 - x0) * (W - LEFT - RIGHT),
    y: (value) => H - BOTTOM - (Math.log10(value) - y0) / (y1 - y0) * (H - TOP - BOTTOM),
  };
}

function axes(s) {
  const marks = (low, high) => {
    const found = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
      for (const digit of high - low < 2.2 ? [1, 2, 5] : [1]) {
        const at = Math.log10(digit) + power;
        if (at >= low && at <= high) found.push(Number((digit * 10 ** power).toPrecision(2)));
      }
    }
    return found;
  };
  return [
    marks(s.x0, s.x1).map((value) => [
      svg("line", { x1: s.x(value), x2: s.x(value), y1: TOP, y2: H - BOTTOM, class: "s-line" }),
      svg("text", { x: s.x(value), y: H - BOTTOM + 18, class: "mid small f-quiet" }, String(value)),
    ]),
    marks(s.y0, s.y1).map((value) => [
      svg("line", { x1: LEFT, x2: W - RIGHT, y1: s.y(value), y2: s.y(value), class: "s-line" }),
      svg("text", { x: LEFT - 8, y: s.y(value) + 4, class: "end small f-quiet" }, String(value)),
    ]),
    svg("text", { x: (LEFT + W - RIGHT) / 2, y: H - 8, class: "mid small f-quiet" }, "FLOP per byte of DRAM"),
    svg("text", { x: 4, y: 14, class: "small f-quiet" }, "TFLOP/s"),
  ];
}

/** A roof as far as it is in the picture. */
function roof(s, bandwidth, peak, kinds) {
  const first = Math.max(s.x0, s.y0 - Math.log10(bandwidth));
  const ridge = Math.min(Math.log10(peak), s.y1) - Math.log10(bandwidth);
  const ends = peak < 10 ** s.y1 ? [first, Math.max(first, ridge), s.x1] : [first, ridge];
  if (peak < 10 ** s.y0 || ends.some((power) => power > s.x1 + 1e-9)) return null;
  const d = ends.map((power) => `${s.x(10 ** power).toFixed(1)},${s.y(Math.min(peak, bandwidth * 10 ** power)).toFixed(1)}`).join("L");
  return svg("path", { d: `M${d}`, class: `none ${kinds}` });
}

/** Words beside each roof, above the slope: no mark lies there. */
function roofNames(s) {
  const { bandwidth } = data.roofs[0];
  const named = (x, y, kinds, words) => svg("text", { x, y, class: `small strong ${kinds}` }, words);
  const flat = data.roofs.map(({ dtype, peak }) => {
    const x = s.x(peak.value / bandwidth.value), y = s.y(peak.value);
    const words = `${dtype} matmul: ${shown(peak)}`;
    if (y < TOP || y > H - BOTTOM || x > W - RIGHT) return null;
    return x > LEFT + 180 ? named(x - 12, y + 4, "end", words) : named(W - RIGHT - 6, y - 8, "end", words);
  });
  const low = Math.max(s.x0, s.y0 - Math.log10(bandwidth.value));
  const high = Math.min(s.x1, s.y1 - Math.log10(bandwidth.value), Math.log10(data.roofs[1].ridge));
  const at = 10 ** ((low + high) / 2);
  const room = high > low && s.x(at) > LEFT + 160;
  return [flat, room && named(s.x(at) - 14, s.y(bandwidth.value * at) - 10, "end", `DRAM read: ${shown(bandwidth)}`)];
}

/** A disc for Triton, a square for Gluon, a diamond for CUDA: told apart without colour, too. */
function mark(kind, x, y, r, attributes) {
  if (kind === "Triton") return svg("circle", { cx: x, cy: y, r, ...attributes });
  const side = kind === "Gluon" ? r * 0.9 : r * 1.25;
  const d = kind === "Gluon"
    ? `M${x - side},${y - side}h${2 * side}v${2 * side}h${-2 * side}z`
    : `M${x},${y - side}L${x + side},${y}L${x},${y + side}L${x - side},${y}z`;
  return svg("path", { d, ...attributes });
}

const legend = () => svg("g", {}, Object.entries(COLOUR).map(([kind, colour], i) => [
  mark(kind, W - 236 + 76 * i, 10, 5, { class: `f-${colour}` }),
  svg("text", { x: W - 226 + 76 * i, y: 14, class: "small" }, kind)]));

function facts({ kernel, point }) {
  const row = (name, value, kinds = "") => [html("dt", {}, name), html("dd", { class: kinds }, value)];
  const percent = point.share.value;
  return html("div", { class: "card facts" },
    html("h2", {}, `${kernel.name}, ${kernel.kind}`),
    html("div", { class: "bar", role: "img", "aria-label": `${three(percent)} percent of the limit` },
      html("i", { class: `b-${COLOUR[kernel.kind]}`, style: `width: ${Math.min(100, percent)}%` })),
    html("dl", {},
      row("Size", `${point.size}, ${kernel.dtype}`),
      row("Time", shown(point.time), "number"),
      row("Rate", `${shown(point.flops)}, ${shown(point.bytes)}`, "number"),
      row(point.by_memory ? "Share of peak bandwidth" : "Share of peak arithmetic", `${three(percent)} %`, "number"),
      row("File", html("code", {}, kernel.file)),
      row("Record", [html("code", {}, point.share.source), ` of ${point.date}`])));
}

run({
  choices: [
    { name: "lab", label: "Lab", options: () => [{ value: ALL, text: "all" }, ...data.labs.map((lab) => ({ value: lab, text: lab }))] },
    {
      name: "kernel", label: "Kernel",
      options: (chosen) => [{ value: ALL, text: "all of them" },
        ...ofLab(chosen).map((kernel) => ({ value: kernel.key, text: `${kernel.name} (${kernel.stem})` }))],
    },
  ],
  pace: 700,
  steps: (chosen) => Math.max(2, pointsOf(inFocus(chosen)).length),
  draw(stage, chosen, step, choose, goTo) {
    const focus = inFocus(chosen), points = pointsOf(focus);
    const here = points[Math.min(step, points.length - 1)];
    const s = scale(points);
    const inside = ({ point }) => Math.log10(point.intensity) > s.x0 && Math.log10(point.intensity) < s.x1
      && Math.log10(point.flops.value) > s.y0 && Math.log10(point.flops.value) < s.y1;
    const others = pointsOf(kernels.filter((kernel) => !focus.includes(kernel))).filter(inside);
    const at = ({ point }) => [s.x(point.intensity), s.y(point.flops.value)];
    const line = pointsOf([here.kernel]).map((one) => at(one).map((v) => v.toFixed(1)).join(",")).join("L");
    const limit = here.point.by_memory ? data.roofs[0].bandwidth.value * here.point.intensity : data.roofs[0].peak.value;
    const [x, y] = at(here);
    stage.append(drawing(W, H,
      `Roofline of a ${data.gpu}: ${points.length} points of ${focus.length} kernels; rate against FLOP per byte.`,
      axes(s), roof(s, data.theory.bandwidth.value, data.theory.peak.value, "s-edge dash"),
      data.roofs.map((one) => roof(s, one.bandwidth.value, one.peak.value, "s-ink wide")), roofNames(s),
      others.map((one) => mark(one.kernel.kind, ...at(one), 3, { class: "f-line" })),
      svg("line", { x1: x, x2: x, y1: y, y2: Math.max(TOP, s.y(limit)), class: "s-off dash" }),
      svg("path", { d: `M${line}`, class: `none s-${COLOUR[here.kernel.kind]}` }),
      points.map((one, i) => {
        const mine = one.kernel === here.kernel;
        const words = `${one.kernel.name}, ${one.kernel.kind}, ${one.point.size}: ${shown(one.point.flops)}, ${three(one.point.share.value)} percent of the limit`;
        return mark(one.kernel.kind, ...at(one), mine ? 5.5 : 4.5, {
          class: `dot f-${COLOUR[one.kernel.kind]} s-paper ${mine ? "" : "far"}`, role: "button", tabindex: i === step ? 0 : -1,
          "aria-label": words, "aria-pressed": String(i === step), "data-key": `point-${i}`, "data-point": i,
        });
      }),
      // What is chosen lies over its neighbours.
      mark(here.kernel.kind, x, y, 8, { class: `now f-${COLOUR[here.kernel.kind]} s-ink` }),
      legend()), facts(here));
    const choosePoint = (event) => {
      const point = event.target.closest("[data-point]");
      if (point && Number(point.dataset.point) !== step) goTo(Number(point.dataset.point));
    };
    stage.firstChild.addEventListener("pointerover", choosePoint);
    stage.firstChild.addEventListener("click", choosePoint);
    stage.firstChild.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choosePoint(event);
    });
    const { kernel, point } = here;
    const more = points.length > 1 ? "" : " It is the only mark of this choice.";
    return `${kernel.name} in ${kernel.kind} at ${point.size}: ${shown(point.time)}, ${point.by_memory ? shown(point.bytes) : shown(point.flops)}, `
      + `${three(point.share.value)} % of the GPU's peak ${point.by_memory ? "bandwidth" : "arithmetic"}, which is its limit.${more}`
      + (data.without.length && step === 0 && chosen.lab === ALL ? ` Without a mark, because no run of it is stored: ${data.without.join(", ")}.` : "");
  },
});
