// What the figures share: the data of the page, making elements, and the controls that step and play.
// A figure's own script imports from here; the page holds both as one module.

const SVG = "http://www.w3.org/2000/svg";

/** The data of the page, as Python computed them. */
export function pageData() {
  return JSON.parse(document.getElementById("data").textContent);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  // Text goes in as text: nothing that is shown can become markup.
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element of HTML; attributes that are null or false are left out, children are elements or text. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of SVG, likewise. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * A drawing of width by height, which `words` describe to whoever cannot see it. It shrinks with the page and
 * grows little beyond its size, so that text of 14 px stays about that.
 */
export function drawing(width, height, words, ...children) {
  const size = { viewBox: `0 0 ${width} ${height}`, style: `max-width: ${1.15 * width}px` };
  return svg("svg", { ...size, role: "img", "aria-label": words }, ...children);
}

/** A whole number with its thousands apart: 1,048,576. */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A number of things in words: 1 byte, 2 bytes. */
export function many(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}

/** The lines of a source, each {number, text}, those in `now` marked as running. */
export function source(lines, now, label) {
  const shown = lines.map(({ number, text }) =>
    html("span", { class: now.includes(number) ? "now" : null, "data-line": number, "aria-current": now.includes(number) ? "step" : null }, text || " "));
  return html("pre", { class: "source", tabindex: 0, "data-key": label, "aria-label": label }, ...shown);
}

/**
 * Build the figure: choices, buttons, a line that says in words what is shown, and the stage.
 *
 * choices: [{ name, label, options(chosen) → [{ value, text }], initial }]; the options of one may depend on
 *   those chosen before it. Values are text.
 * steps(chosen) → how many steps there are, at least 2.
 * draw(stage, chosen, step, choose, goTo) → puts the drawing of a step into the empty stage and returns its
 *   words; choose(name, value) and goTo(step) let the drawing itself be operated.
 * pace: milliseconds a step takes while playing; at: the step that is shown first.
 *
 * What a reader did to an element of the stage with a data-key outlasts the next drawing: it keeps the focus,
 * details stay open, and what was scrolled sideways stays there.
 */
export function run({ choices = [], steps, draw, pace = 1100, at = 0 }) {
  const root = document.getElementById("figure");
  const chosen = {};
  let step = 0;
  let timer = null;

  const selects = choices.map((choice) => html("select", { name: choice.name }));
  const theme = html("button", { type: "button", class: "theme" });
  const back = html("button", { type: "button", "data-do": "back" }, "Step back");
  const forth = html("button", { type: "button", "data-do": "step" }, "Step");
  const play = html("button", { type: "button", class: "main", "data-do": "play" }, "Play");
  const reset = html("button", { type: "button", "data-do": "reset" }, "Reset");
  const slider = html("input", { type: "range", min: 0, value: 0, "aria-label": "Step of the figure" });
  const place = html("output", {});
  // Not spoken while it plays: a screen reader would be cut off by the next step.
  const said = html("p", { class: "said", role: "status", "aria-live": "polite" });
  const stage = html("div", { class: "stage" });
  root.append(
    html("div", { class: "choices", role: "group", "aria-label": "What is shown" },
      ...choices.map((choice, i) => html("label", {}, choice.label, selects[i])), theme),
    html("div", { class: "controls", role: "group", "aria-label": "Steps" },
      play, back, forth, reset, slider, place),
    said, stage);

  const last = () => Math.max(0, steps(chosen) - 1);

  function fillChoices() {
    choices.forEach((choice, i) => {
      const options = choice.options(chosen);
      const values = options.map((option) => String(option.value));
      const wanted = chosen[choice.name] ?? String(choice.initial ?? values[0]);
      chosen[choice.name] = values.includes(wanted) ? wanted : values[0];
      selects[i].replaceChildren(...options.map(({ value, text }) =>
        html("option", { value, selected: String(value) === chosen[choice.name] }, text)));
      selects[i].value = chosen[choice.name];
    });
  }

  function show() {
    const before = [...stage.querySelectorAll("[data-key]")].map((element) => (
      { key: element.dataset.key, open: element.open, left: element.scrollLeft, focused: element === document.activeElement }));
    stage.replaceChildren();
    const words = draw(stage, chosen, step, choose, (to) => { pause(); goTo(to); });
    for (const { key, open, left, focused } of before) {
      const element = stage.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (!element) continue;
      if (open) element.open = true;
      element.scrollLeft = left;
      if (focused) element.focus({ preventScroll: true });
    }
    said.textContent = words;
    slider.max = last();
    slider.value = step;
    slider.setAttribute("aria-valuetext", `step ${step + 1} of ${last() + 1}`);
    place.textContent = `${step + 1} / ${last() + 1}`;
    root.dataset.step = step;
    // Not `disabled`: a button that loses the focus in mid-use throws the keyboard back to the top.
    back.setAttribute("aria-disabled", step === 0);
    forth.setAttribute("aria-disabled", step === last());
  }

  function goTo(wanted) {
    step = Math.min(Math.max(wanted, 0), last());
    show();
  }

  function choose(name, value) {
    chosen[name] = String(value);
    fillChoices();
    goTo(step);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    said.setAttribute("aria-live", "polite");
    root.dataset.playing = "no";
  }

  function toggle() {
    if (timer) return pause();
    if (step === last()) goTo(0);
    timer = setInterval(() => (step < last() ? goTo(step + 1) : pause()), pace);
    play.textContent = "Pause";
    said.setAttribute("aria-live", "off");
    root.dataset.playing = "yes";
  }

  function walk(move) {
    pause();
    goTo(move);
  }

  const isDark = () => (document.documentElement.dataset.theme
    ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);

  selects.forEach((select, i) => select.addEventListener("change", () => {
    pause();
    choose(choices[i].name, select.value);
  }));
  back.addEventListener("click", () => walk(step - 1));
  forth.addEventListener("click", () => walk(step + 1));
  reset.addEventListener("click", () => walk(0));
  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => walk(Number(slider.value)));
  document.addEventListener("keydown", (event) => {
    // What has keys of its own keeps them, and so does the browser.
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, input")) return;
    const moves = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 0, End: last() };
    if (event.key === " " && !event.target.closest("button, summary, [role=button]")) toggle();
    else if (event.key in moves) walk(moves[event.key]);
    else return;
    event.preventDefault();
  });

  fillChoices();
  pause();
  nameTheme();
  goTo(at);
}
