import { drawing, html, pageData, run, svg } from "./figure.js";

const data = pageData();

run({
  choices: [{ name: "size", label: "Tiles of c", options: () => data.sizes.map((s, i) => ({ value: i, text: `${s.rows} × ${s.cols}` })), initial: 1 }],
  steps: () => 5,
  draw(stage, chosen, step) {
    stage.append(html("div", { class: "card" }, drawing(100, 20, "x", svg("text", { x: 0, y: 15 }, `step ${step}`))));
    return `Program ${step}.`;
  },
});
