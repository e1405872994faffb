// One row of softmax in three ways side by side; a step moves one tile.
import { count, html, many, pageData, run } from "./figure.js";

const data = pageData();
const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
const elements = (moved) => sum(Object.values(moved));

/** Bytes of one row up to and with a step. */
function soFar(moves, step, itemBytes) {
  const past = moves.slice(0, step + 1);
  return {
    read: itemBytes * sum(past.map(({ read }) => elements(read))),
    written: itemBytes * sum(past.map(({ write }) => elements(write))),
    onChip: data.on_chip_bytes * sum(past.map((move) => move.on_chip)),
  };
}

/** What became of a tile of an array up to a step: read or written, now or before. */
function look(moves, step, name, tile) {
  let kind = name === "x" ? "there" : "absent";
  moves.slice(0, step + 1).forEach((move, at) => {
    const single = data.one_number.includes(name);
    if (move.tile !== tile && !single) return;
    if (name in move.read) kind = at === step ? "read now" : "read";
    if (name in move.write) kind = at === step ? "written now" : "written";
  });
  return kind;
}

function memory(variant, one, sizes, step) {
  return html("div", { class: "hbm" }, html("small", {}, "HBM, one row"),
    ...variant.arrays.map((name) => {
      const parts = data.one_number.includes(name) ? [1] : sizes;
      return html("div", { class: "array" }, html("code", {}, name),
        html("div", { class: "tiles" }, ...parts.map((n, tile) =>
          html("span", { class: look(one.moves, step, name, tile), style: `flex: ${parts.length === 1 && n === 1 ? "0 0 14px" : `${n} 1 0`}` }))));
    }));
}

function chip(move, done, itemBytes, widest) {
  const crossing = (moved, arrow, kind) => html("span", { class: `crossing ${kind}` },
    elements(moved) ? `${arrow} ${Object.keys(moved).join(", ")}: ${many(itemBytes * elements(moved), "byte")}` : " ");
  const held = done ? 0 : move.held;
  return [
    html("div", { class: "crossings" }, crossing(done ? {} : move.read, "↓", "load"), crossing(done ? {} : move.write, "↑", "store")),
    html("div", { class: "sram" }, html("small", {}, "On chip"),
      html("div", { class: "does" }, done ? "done" : move.does),
      html("div", { class: "held", "aria-hidden": "true" }, html("div", { style: `width: ${(100 * held / widest).toFixed(2)}%` })),
      html("small", {}, `${count(data.on_chip_bytes * held)} bytes held`)),
  ];
}

function card(variant, one, sizes, cols, step, itemBytes, most) {
  const done = step >= one.moves.length;
  const move = one.moves[Math.min(step, one.moves.length - 1)];
  const bytes = soFar(one.moves, step, itemBytes);
  const width = (part) => `width: ${(100 * part / most).toFixed(2)}%`;
  return html("section", { class: `card way ${done ? "done" : ""}` },
    html("h2", {}, variant.title),
    memory(variant, one, sizes, step),
    ...chip(move, done, itemBytes, cols),
    html("div", { class: "meter", "aria-hidden": "true" },
      html("div", { class: "read", style: width(bytes.read) }), html("div", { class: "written", style: width(bytes.written) })),
    html("dl", {},
      html("dt", {}, "HBM read"), html("dd", { class: "number load" }, count(bytes.read)),
      html("dt", {}, "HBM written"), html("dd", { class: "number store" }, count(bytes.written)),
      html("dt", {}, "on chip"), html("dd", { class: "number" }, count(bytes.onChip))));
}

function table(one, cols, dtype) {
  const itemBytes = data.dtypes[dtype];
  const least = data.least[`${cols} ${dtype}`];
  const rows = data.variants.map((variant) => {
    const { read, written, on_chip: onChip, held } = one.variants[variant.name].totals;
    const [hbmRead, hbmWritten] = [read, written].map((n) => n * itemBytes * data.rows);
    const cells = [count(hbmRead), count(hbmWritten), `${((hbmRead + hbmWritten) / least).toFixed(2)}`,
      count(onChip * data.on_chip_bytes * data.rows), count(held * data.on_chip_bytes)];
    return html("tr", {}, html("th", { scope: "row" }, variant.name, html("small", {}, variant.kernel)), ...cells.map((cell) => html("td", {}, cell)));
  });
  const heads = ["bytes", "HBM read", "HBM written", "times the least", "on chip", "held at once"];
  return html("section", { class: "card all" }, html("h2", {}, `All ${count(data.rows)} rows`),
    html("div", { class: "scroll", tabindex: 0, "data-key": "rows", "aria-label": "Bytes of all rows" }, html("table", {},
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))), html("tbody", {}, ...rows))));
}

run({
  choices: [
    { name: "cols", label: "Row length", initial: data.cols[1], options: () => data.cols.map((value) => ({ value, text: count(value) })) },
    { name: "block", label: "Block", initial: data.blocks[0], options: () => data.blocks.map((value) => ({ value, text: count(value) })) },
    { name: "dtype", label: "Type", initial: "fp32", options: () => Object.keys(data.dtypes).map((value) => ({ value, text: value })) },
  ],
  steps: ({ cols, block }) => Math.max(...Object.values(data.cases[`${cols} ${block}`].variants).map(({ moves }) => moves.length)),
  draw(stage, { cols, block, dtype }, step) {
    const one = data.cases[`${cols} ${block}`];
    const itemBytes = data.dtypes[dtype];
    const most = itemBytes * (one.variants.naive.totals.read + one.variants.naive.totals.written);
    stage.append(
      html("div", { class: "row" }, ...data.variants.map((variant) =>
        card(variant, one.variants[variant.name], one.tiles, Number(cols), step, itemBytes, most))),
      table(one, cols, dtype));
    const words = data.variants.map(({ name }) => {
      const { moves } = one.variants[name];
      const { read, written } = soFar(moves, step, itemBytes);
      const doing = step < moves.length ? `${moves[step].does}, tile ${moves[step].tile + 1} of ${one.tiles.length}` : "done";
      return `${name[0].toUpperCase()}${name.slice(1)}: ${doing}; ${count(read + written)} bytes so far.`;
    });
    return `Step ${step + 1}. ${words.join(" ")}`;
  },
  pace: 700,
});
