// One program of a kernel, line by line: its source, its memory and what it holds.
import { html, pageData, run, source } from "./figure.js";

const data = pageData();
const titles = [...new Set(data.cases.map((one) => one.title))];
const casesOf = (kernel) => data.cases.map((one, at) => ({ ...one, at })).filter((one) => one.title === titles[kernel]);

/** All that a program has done up to a step: elements read and written by buffer, and what its names hold. */
function history(program, step) {
  const touched = {};
  const held = new Map();
  program.slice(0, step + 1).forEach(({ accesses, changed }, at) => {
    for (const { kind, buffer, offsets, mask, values, outside } of accesses) {
      offsets.forEach((offset, lane) => {
        const key = `${buffer} ${offset}`;
        if (outside?.[lane]) {
          touched[key] = { kind: "wrong", now: at === step ? "wrong" : undefined };
          return;
        }
        if (mask[lane]) touched[key] = { kind, value: kind === "store" ? values[lane] : touched[key]?.value };
        if (at === step) touched[key] = { ...touched[key], now: mask[lane] ? kind : "off" };
      });
    }
    for (const [name, value] of Object.entries(changed)) held.set(name, { value, fresh: at === step });
  });
  return { touched, held };
}

/** The elements that a program reads or writes at any time. */
function owned(program) {
  return new Set(program.flatMap(({ accesses }) => accesses.flatMap(({ buffer, offsets, mask }) =>
    offsets.filter((_, lane) => mask[lane]).map((offset) => `${buffer} ${offset}`))));
}

function cell(buffer, offset, inside, own, { touched }) {
  const key = `${buffer.name} ${offset}`;
  const { kind, now, value } = touched[key] ?? {};
  const kinds = ["cell"];
  if (!inside) kinds.push("outside");
  if (own.has(key)) kinds.push("own");
  if (now) kinds.push("now", now);
  else if (kind && (inside || kind === "wrong")) kinds.push(kind);
  const text = now === "off" ? "off" : inside ? value ?? buffer.values[offset] : "";
  const address = `${buffer.name} + ${offset * buffer.item_bytes} bytes`;
  return html("span", { class: kinds.join(" "), title: address }, html("b", {}, text || " "), html("i", {}, offset));
}

function memory(one, pid, past) {
  const program = one.programs[pid];
  const own = owned(program);
  const parts = one.buffers.map((buffer, nth) => {
    const rows = Array.from({ length: buffer.rows }, (_, row) => {
      const blocks = [];
      for (let start = 0; start < buffer.cols; start += buffer.block) {
        // In a row that others follow, a place past its end is the next row's.
        const last = row === buffer.rows - 1;
        const places = Array.from({ length: buffer.block }, (_, lane) => start + lane)
          .filter((at) => one.is_owner_shown || last || at < buffer.cols);
        const cells = places.map((at) => cell(buffer, row * buffer.stride + at, at < buffer.cols, own, past));
        // Of a vector every block is a program's, of a matrix every row.
        const owner = buffer.rows === 1 ? start / buffer.block : row;
        const named = one.is_owner_shown && nth === 0 && (buffer.rows === 1 || start === 0);
        const caption = named && html("small", { class: String(owner) === pid ? "mine" : null }, `program ${owner}`);
        blocks.push(html("span", { class: "block" }, caption, html("span", { class: "cells" }, ...cells)));
      }
      return html("div", { class: "blocks" }, ...blocks);
    });
    return html("div", { class: "buffer" }, html("h3", {}, buffer.name), html("div", {}, ...rows));
  });
  return html("section", { class: "card memory" }, html("h2", {}, "Memory"), ...parts,
    html("p", { class: "legend" },
      html("span", { class: "cell load" }, "read"), html("span", { class: "cell store" }, "written"),
      html("span", { class: "cell own" }, "its own"), html("span", { class: "cell now off" }, "masked off"),
      one.is_owner_shown ? "" : html("span", { class: "cell wrong" }, "outside")));
}

function lanes(one, step, past) {
  const rows = [...past.held].map(([name, { value, fresh }]) => {
    const kind = Array.isArray(value) ? value.map((lane) => html("td", { class: lane === "?" || lane === "False" ? "bad" : null }, lane === "True" ? "yes" : lane === "False" ? "no" : lane))
      : [html("td", { colspan: one.block, class: "scalar" }, value)];
    return html("tr", { class: fresh ? "fresh" : null }, html("th", { scope: "row" }, name), ...kind);
  });
  for (const { kind, buffer, bytes, mask, outside } of step.accesses) {
    rows.push(html("tr", { class: `address ${kind}` },
      html("th", { scope: "row" }, `${kind}s ${buffer} +`),
      ...bytes.map((at, lane) => html("td", { class: outside?.[lane] ? "wrong" : mask[lane] ? null : "bad" }, mask[lane] ? `${at} B` : "off"))));
  }
  const head = html("tr", {}, html("th", { scope: "col" }, "lane"), ...Array.from({ length: one.block }, (_, lane) => html("th", { scope: "col" }, lane)));
  return html("section", { class: "card" }, html("h2", {}, "What the program holds"),
    html("div", { class: "scroll", tabindex: 0, "data-key": "lanes", "aria-label": "Names and values, lane by lane" },
      html("table", { class: "lanes" }, html("thead", {}, head), html("tbody", {}, ...rows))));
}

// A page on a student's own kernel opens at the step that is to blame.
const start = data.start ?? { size: 0, pid: data.cases[0].programs.length - 1, step: 0 };

run({
  at: start.step,
  choices: [
    { name: "kernel", label: "Kernel", initial: titles.indexOf(data.cases[start.size].title), options: () => titles.map((text, value) => ({ value, text })) },
    { name: "size", label: "Size", initial: start.size, options: ({ kernel }) => casesOf(kernel).map(({ at, size }) => ({ value: at, text: size })) },
    { name: "pid", label: "Program id", initial: start.pid, options: ({ size }) => data.cases[size].names.map((text, value) => ({ value, text })) },
  ],
  steps: ({ size, pid }) => data.cases[size].programs[pid].length,
  draw(stage, { size, pid }, at) {
    const one = data.cases[size];
    const program = one.programs[pid];
    const step = program[at];
    const past = history(program, at);
    const [first, last] = step.lines;
    const now = one.code.map(({ number }) => number).filter((number) => number >= first && number <= last);
    const code = source(one.code, now, `Source of the kernel, ${one.file}`);
    stage.append(
      html("ol", { class: "phases", "aria-label": "Phases" }, ...data.phases.map((phase) =>
        html("li", { class: step.phases.includes(phase) ? `at ${phase}` : null, "aria-current": step.phases.includes(phase) ? "step" : null }, phase))),
      html("div", { class: "life" },
        html("div", { class: "left" }, memory(one, pid, past), lanes(one, step, past)),
        html("section", { class: "card" }, html("h2", {}, html("code", {}, one.file)), code)));
    // The line that runs stays in sight where the source is longer than its card.
    const line = code.querySelector(".now");
    if (line) code.scrollTop = line.offsetTop - code.clientHeight / 2;
    return `Program ${one.names[pid]}. ${step.words}`;
  },
  pace: 1300,
});
