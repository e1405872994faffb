import { count, drawing, html, many, pageData, run, svg } from "./figure.js";

const data = pageData();
const LEFT = 118, TOP = 34, WIDE = 96, HIGH = 33;
const rounded = ({ value }) => (value < 10 ? value.toFixed(1) : String(Math.round(value)));
const kernelOf = (chosen) => data.kernels.find((kernel) => kernel.name === chosen.kernel);
const sizeOf = (chosen) => kernelOf(chosen).sizes.find((size) => String(size.side) === chosen.size);
const rateOf = (size, config) => size.rates[config.name] ?? { why: config.error };
const tileWords = (config) => config.tile.join("×");
const SHAPED = ["wgmma", "TMA load", "TMA store", "mbarrier", "cp.async", "ldmatrix", "stmatrix", "ld.shared", "st.shared", "ld.global", "st.global", "barrier"];

/** The autotuner's choice, then the others from the fastest to the slowest, and what does not run. */
function ordered(kernel, size) {
  const speed = (config) => (config.name === size.picked ? Infinity : rateOf(size, config).value ?? -1);
  return [...kernel.configs].sort((a, b) => speed(b) - speed(a));
}

function map(kernel, size, configs, step) {
  const text = (tile) => tile.join(" ");
  const rows = [...new Map(configs.map((one) => [text(one.tile), one.tile])).values()].sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  const columns = [...new Map(configs.map((one) => [`${one.warps} ${one.stages}`, [one.warps, one.stages]])).values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const most = Math.max(...configs.map((one) => rateOf(size, one).value ?? 0));
  const at = (one) => [LEFT + WIDE * columns.findIndex(([w, s]) => w === one.warps && s === one.stages), TOP + HIGH * rows.findIndex((tile) => text(tile) === text(one.tile))];
  const cell = (one, i) => {
    const [x, y] = at(one), rate = rateOf(size, one), runs = rate.value !== undefined;
    const words = `${one.name}: ${runs ? `${rounded(rate)} TFLOP/s` : "does not run"}${one.spilled ? ", spills" : ""}${one.name === size.picked ? ", the autotuner's choice" : ""}`;
    return svg("g", { class: "cell", role: "button", tabindex: i === step ? 0 : -1, "aria-label": words, "aria-pressed": String(i === step), "data-config": i, "data-key": `cell-${i}`, "data-row": y, "data-column": x },
      svg("rect", { x: x + 2, y: y + 2, width: WIDE - 4, height: HIGH - 4, rx: 5, class: runs ? "f-raised s-line" : "f-blank dash s-edge" }),
      runs ? svg("rect", { x: x + 2, y: y + 2, width: WIDE - 4, height: HIGH - 4, rx: 5, class: "f-accent", "fill-opacity": (0.5 * Math.max(0.02, (rate.value / most - 0.15) / 0.85) ** 1.6).toFixed(3) }) : null,
      svg("text", { x: x + WIDE / 2, y: y + 21, class: runs ? "mid" : "mid small f-quiet" }, runs ? rounded(rate) : "cannot run"),
      one.spilled ? svg("path", { d: `M${x + WIDE - 15},${y + 4}h10v10z`, class: "f-off" }) : null,
      one.own ? svg("circle", { cx: x + 12, cy: y + HIGH / 2, r: 3, class: "f-ink" }) : null,
      one.name === size.picked ? svg("rect", { x: x + 2, y: y + 2, width: WIDE - 4, height: HIGH - 4, rx: 5, class: "none s-ink frame" }) : null);
  };
  const height = TOP + HIGH * rows.length + 26, width = LEFT + WIDE * columns.length + 4;
  const below = height - 8, [left, top] = at(configs[step]);
  return drawing(width, height, `TFLOP/s of ${many(configs.length, "configuration")} of ${kernel.name} at ${size.side}.`,
    columns.map(([warps, stages], i) => svg("text", { x: LEFT + WIDE * (i + 0.5), y: 14, class: "mid small f-quiet" },
      svg("tspan", { x: LEFT + WIDE * (i + 0.5) }, `${warps} warps`), svg("tspan", { x: LEFT + WIDE * (i + 0.5), dy: 14 }, `${stages} stages`))),
    rows.map((tile, i) => svg("text", { x: LEFT - 8, y: TOP + HIGH * i + 21, class: "end small" }, tile.join("×"))),
    configs.map(cell),
    svg("rect", { x: left - 0.5, y: top - 0.5, width: WIDE + 1, height: HIGH + 1, rx: 7, class: "none s-accent frame chosen" }),
    svg("rect", { x: 6, y: below - 11, width: 18, height: 13, rx: 3, class: "none s-ink frame" }), svg("text", { x: 30, y: below, class: "small" }, "the autotuner's choice"),
    svg("circle", { cx: 184, cy: below - 4, r: 3, class: "f-ink" }), svg("text", { x: 193, y: below, class: "small" }, "in the file's list"),
    svg("path", { d: `M310,${below - 11}h12v12z`, class: "f-off" }), svg("text", { x: 328, y: below, class: "small" }, "spills registers"));
}

function facts(kernel, size, config, rank, able) {
  const rate = rateOf(size, config);
  const row = (name, value) => [html("dt", {}, name), html("dd", { class: "number" }, value)];
  const bars = kernel.sizes.map((one) => {
    const mine = rateOf(one, config).value, library = one.library.value, picked = one.rates[one.picked].value;
    const most = Math.max(library, ...Object.values(one.rates).map((other) => other.value ?? 0));
    const bar = (kinds, value) => html("span", { class: "meter" }, html("i", { class: kinds, style: `width: ${100 * (value ?? 0) / most}%` }));
    return html("tr", { class: one === size ? "now" : null }, html("th", { scope: "row" }, String(one.side)),
      html("td", {}, bar("b-accent", mine), mine === undefined ? "–" : rounded({ value: mine })),
      html("td", {}, bar("b-ink", picked), rounded({ value: picked })),
      html("td", {}, bar("b-quiet", library), rounded({ value: library })));
  });
  return html("div", { class: "card" },
    html("h2", {}, config.name),
    html("dl", { class: "facts" },
      rate.value === undefined ? row("Does not run", rate.why || config.error) : [
        row("Rate", `${rounded(rate)} TFLOP/s, rank ${rank} of ${able}`),
        row("Time", `${rate.us.value.toFixed(1)} µs (${rate.spread[0].value.toFixed(1)} to ${rate.spread[1].value.toFixed(1)})`),
        row(`Against ${size.library.name}`, `${rate.of_library.value.toFixed(2)}×`)],
      row("Registers a thread", config.registers === null ? "–" : `${config.registers}${config.spilled ? `, and ${count(config.spilled)} bytes spilled` : ", none spilled"}`),
      row("Shared memory", config.shared === null ? "–" : `${count(config.shared)} bytes`),
      row("Instruction", config.instruction || "–")),
    html("table", { class: "sizes" },
      html("thead", {}, html("tr", {}, ["TFLOP/s at", "this one", "the choice", "library"].map((words) => html("th", { scope: "col" }, words)))),
      html("tbody", {}, bars)),
    html("p", { class: "quiet record" }, html("code", {}, kernel.source), `: ${data.where}.`));
}

const line = (kinds, number, text) => html("span", { class: kinds, "data-line": number }, text || " ");

function triton(kernel, config) {
  const shown = [];
  kernel.triton.forEach((one, i) => {
    if (i && one.number > kernel.triton[i - 1].number + 2) shown.push(line("cut", "", "⋮"));
    shown.push(line(`${one.topic && `t-${one.topic}`} ${config.listed.includes(one.number) ? "now" : ""}`, one.number, one.text));
  });
  return html("div", { class: "card panel" },
    html("h2", {}, "Triton: the same source for all"), html("p", { class: "quiet" }, html("code", {}, kernel.file),
      config.own ? "; the configuration's line is marked." : "; this configuration is not in its list."),
    html("pre", { class: "source", tabindex: 0, "data-key": "triton", "aria-label": `Triton source of ${kernel.name}` }, shown));
}

function cuda(config) {
  const { constants, parts, file, warps } = data.cuda;
  const wanted = { BLOCK_M: config.tile[0], BLOCK_N: config.tile[1], BLOCK_K: config.tile[2], STAGES: config.stages };
  const other = Object.entries(wanted).filter(([name, value]) => constants[name].value !== value);
  const off = new Set(other.map(([name]) => constants[name].line));
  if (warps !== config.warps) off.add(constants.CONSUMERS.line);
  const says = [...other.map(([name, value]) => `${name} ${constants[name].value}, not ${value}`), ...(warps === config.warps ? [] : [`${warps} warps multiply, not ${config.warps}`])];
  const shown = parts.flatMap((part, i) => [i ? line("cut", "", "⋮") : null,
    ...part.map((one) => line(`${one.topic && `t-${one.topic}`} ${off.has(one.number) ? "differs" : ""}`, one.number, one.text))]);
  return html("div", { class: "card panel" },
    html("h2", {}, "CUDA: committed to one"), html("p", { class: "quiet" }, html("code", {}, file), says.length ? `: ${says.join("; ")}.` : ": the constants of this configuration."),
    html("pre", { class: "source", tabindex: 0, "data-key": "cuda", "aria-label": "CUDA source, shortened" }, shown));
}

const topicOf = (text) => (/^wgmma\.mma_async|^mma\.sync/.test(text) ? "compute"
  : /^cp\.async\.bulk\.tensor\.\dd\.shared|^cp\.async\.c[ag]|^ld\.global|expect_tx/.test(text) ? "load"
    : /^cp\.async\.bulk\.tensor\.\dd\.global|^st\.global|^stmatrix|^st\.shared|^ldmatrix/.test(text) ? "store" : "");

/** Two lists in one, by their longest common part: each entry with "both", "here" or "gone". */
function merged(old, now) {
  const same = (a, b) => a[0] === b[0] && a[1] === b[1] && a[2] === b[2];
  const length = Array.from({ length: old.length + 1 }, () => new Array(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      length[i][j] = same(old[i], now[j]) ? 1 + length[i + 1][j + 1] : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const found = [];
  let i = 0, j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && same(old[i], now[j])) { found.push([now[j++], "both"]); i++; }
    else if (i < old.length && (j === now.length || length[i + 1][j] >= length[i][j + 1])) found.push([old[i++], "gone"]);
    else found.push([now[j++], "here"]);
  }
  return found;
}

function ptx(config, pick) {
  const shown = [];
  const places = [...new Set(pick.ptx.map(([where]) => where))];
  for (const place of config.ptx.length ? places : []) {
    const of = ({ ptx: lines }) => lines.filter(([where]) => where === place);
    shown.push(line("where", "", `// ${place}`));
    for (const [[, index, times], side] of merged(of(pick), of(config))) {
      const text = data.ptx.lines[index], topic = topicOf(text);
      shown.push(line(`${topic && `t-${topic}`} ${{ both: "", here: "differs", gone: "gone" }[side]}`, times > 1 ? `${times}×` : "", text));
    }
  }
  const unlike = SHAPED.filter((name) => Object.keys(config.ran).length && (config.ran[name] ?? 0) !== (config.compiled[name] ?? 0))
    .map((name) => `${config.ran[name] ?? 0} ${name} lines, here ${config.compiled[name] ?? 0}`);
  return html("div", { class: "card panel" },
    html("h2", {}, "PTX: what it became"),
    html("p", { class: "quiet" }, `Triton ${data.ptx.triton}, ${data.ptx.arch}: ${many(config.ptx.reduce((sum, [, , times]) => sum + times, 0), "line")} of ${count(config.of)}.`,
      unlike.length ? ` What ran, by Triton ${data.ran_with}, had ${unlike.join("; ")}.` : ""),
    html("pre", { class: "source", tabindex: 0, "data-key": "ptx", "aria-label": "PTX, shortened" }, shown.length ? shown : "not compiled"));
}

run({
  choices: [
    { name: "kernel", label: "Kernel", options: () => data.kernels.map(({ name, how }) => ({ value: name, text: `${name}: ${how}` })) },
    { name: "size", label: "m = n = k", options: (chosen) => kernelOf(chosen).sizes.map(({ side }) => ({ value: side, text: count(side) })), initial: 4096 },
  ],
  pace: 1500,
  steps: (chosen) => kernelOf(chosen).configs.length,
  draw(stage, chosen, step, choose, goTo) {
    const kernel = kernelOf(chosen), size = sizeOf(chosen), configs = ordered(kernel, size);
    const config = configs[step], pick = configs[0], rate = rateOf(size, config);
    const rates = configs.map((one) => rateOf(size, one).value).filter((value) => value !== undefined).sort((a, b) => b - a);
    const rank = rates.indexOf(rate.value) + 1;
    stage.append(
      html("div", { class: "top" }, map(kernel, size, configs, step), facts(kernel, size, config, rank, rates.length)),
      html("div", { class: "panels" }, triton(kernel, config), cuda(config), ptx(config, pick)));
    const heat = stage.querySelector(".top > svg");
    const chooseCell = (event) => {
      const cell = event.target.closest("[data-config]");
      if (cell) goTo(Number(cell.dataset.config));
    };
    heat.addEventListener("click", chooseCell);
    heat.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        return chooseCell(event);
      }
      const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!down) return undefined;
      event.preventDefault();
      const here = event.target.closest("[data-config]").dataset;
      const column = [...heat.querySelectorAll(`[data-column="${here.column}"]`)].sort((a, b) => a.dataset.row - b.dataset.row);
      const next = column[column.findIndex((one) => one.dataset.row === here.row) + down];
      if (!next) return undefined;
      goTo(Number(next.dataset.config));
      stage.querySelector(".cell[aria-pressed=true]").focus({ preventScroll: true });
      return undefined;
    });
    const named = `${tileWords(config)} with ${many(config.warps, "warp")} and ${many(config.stages, "stage")}`;
    if (rate.value === undefined) return `${named} does not run here: ${rate.why || config.error}.`;
    const own = step === 0 ? `The autotuner's choice at ${size.side}, of ${many(size.tried.length, "configuration")} that it tried: ` : config.own ? "In the file's list: " : "";
    const share = rate.value / rateOf(size, pick).value;
    const beside = step === 0 ? (rank === 1 ? "nothing measured here was faster" : `rank ${rank} of ${rates.length} that were measured`)
      : `rank ${rank} of ${rates.length}, ${share.toFixed(2)}× the speed of the autotuner's choice`;
    return `${own}${named}: ${rounded(rate)} TFLOP/s, ${beside}.${config.spilled ? ` It spills ${count(config.spilled)} bytes a thread.` : ""}`;
  },
});
